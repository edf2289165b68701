#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# apps/examples: the programs that train without data of a file reach the quality that is stated here.
# usage: training.sh FARCALL DIRECTORY_OF_PROGRAMS
set -u
farcall=$1
programs=$2
. "$(dirname "$0")/cases.sh"
export FAR_LOG=warning # a join that takes long on a busy machine is no error

# Runs a program with so many workers: it succeeds, and every line of its output has the form of the pattern.
trained() { # workers, program, pattern
	bounded "$farcall" run -n "$1" -- "$programs/$2"
	[ $rc -eq 0 ] && [ ! -s "$dir/err" ] && has out "$3"
}
# The number behind (or before) these words is at least, or at most, this one.
field() { # pattern with the number in \\(\\), operator, bound
	sed -n "s/.*$1.*/\\1/p" "$dir/out" | awk -v bound="$3" -v op="$2" '
		{ n++; good = op == ">=" ? $1 >= bound : $1 <= bound }
		END { exit !(n == 1 && good) }'
}

for stages in 1 2 4; do
	trained $stages stages "^$stages stages: loss " && field ', \([0-9.]*\) % right' '>=' 96 &&
		field 'loss \([0-9.]*\),' '<=' 0.15
	ok "$stages stages: 96 % right, or more" $?
	sed -n 's/.*loss \([^,]*\), \([0-9.]*\) % right.*/\1 \2/p' "$dir/out" >"$dir/quality.$stages"
	has out "bubble [-0-9.]* %, in theory $(awk -v s=$stages 'BEGIN { printf "%.1f", 100 * (s - 1) / (7 + s) }') %$"
	ok "$stages stages: the bubble, and the theory beside it" $?
done
[ -s "$dir/quality.1" ] && cmp -s "$dir/quality.1" "$dir/quality.2" && cmp -s "$dir/quality.1" "$dir/quality.4"
ok "the same loss whatever the number of stages" $?
bounded "$farcall" run -n 3 -- "$programs/stages"
[ $rc -ne 0 ] && says "give it 1, 2 or 4 workers, not 3"
ok "3 stages: an error that says how many" $?

trained 2 rnn '^150 steps: ' && field ', \([0-9.]*\) % of the next words' '>=' 99 &&
	field 'perplexity \([0-9.]*\),' '<=' 1.3
ok "rnn: 99 % of the next words right, or more" $?

for workers in 2 3 5; do
	trained $workers hybrid "^$((workers - 1)) trainers: " && field ' \([0-9.]*\) % of new bags' '>=' 93
	ok "hybrid: 93 % of new bags right, or more, with $((workers - 1)) trainers" $?
done
has out '^all-reduce of 65536 floats: ring [0-9]* us (floor [0-9]*), tree [0-9]* us (floor [0-9]*)$'
ok "hybrid: the all-reduces, and their floor" $?

trained 4 cartpole ' rounds of 30 episodes: ' && field 'running mean reward \([0-9.]*\)' '>=' 195
ok "cartpole: a mean reward of 195, or more" $?

finish

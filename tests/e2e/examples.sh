#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# apps/examples: each program prints what its README shows, over whatever FAR_NIC says, and is one that a newcomer can
# read; the names of the library in its documents are the headers'.
# usage: examples.sh FARCALL SOURCE_TOP DIRECTORY_OF_PROGRAMS CPP    CPP: true: those in C++ are built
set -u
farcall=$1
top=$2
programs=$3
cpp=$4
. "$(dirname "$0")/cases.sh"
export FAR_LOG=warning # a join that takes long on a busy machine is no error
documents=$top/apps/examples

# Each block of sh, and the block of text behind it, into run.N and shown.N.
awk -v dir="$dir" '
	/^```sh$/ { to = dir "/run." ++n; next }
	/^```text$/ { to = dir "/shown." n; next }
	/^```/ { to = ""; next }
	to { print > to }
' "$documents/README.md"

# What is shown, with … for anything within a line.
shown() {
	python3 - "$1" "$2" <<'PYTHON'
import re, sys
shown, out = (open(name, encoding="utf-8").read() for name in sys.argv[1:3])
sys.exit(re.fullmatch(".*".join(re.escape(part) for part in shown.split("…")), out) is None)
PYTHON
}

# Runs $command with the programs' names and this suffix.
run_as() { # suffix
	suffix=$1
	set --
	for word in $command; do
		case $word in
		farcall) word=$farcall ;;
		./*) word=$programs/${word#./}$suffix ;;
		esac
		set -- "$@" "$word"
	done
	bounded "$@"
	# farcall run reports restarts.
	[ $rc -eq 0 ] && ! grep -qv '^farcall run: .*restart' "$dir/err" && shown "$dir/shown.${run##*.}" "$dir/out"
}

for run in "$dir"/run.*; do
	read -r command <"$run"
	program=$(printf '%s\n' "$command" | sed -n 's/.* -- \.\/\([a-z_]*\).*/\1/p')
	run_as ""
	ok "$command: prints what is shown, and nothing else" $?
	echo "$program" >>"$dir/ran"
	if [ "$cpp" = true ]; then
		run_as _cpp
		ok "$command: so does the program in C++" $?
	else
		skip "$command, in C++" "a C++ compiler like the one for C (package g++)"
	fi
done

for suffix in "" _cpp; do
	[ -z "$suffix" ] || [ "$cpp" = true ] || continue
	bounded "$farcall" run -n 3 -- "$programs/tables$suffix"
	[ $rc -eq 0 ] && [ ! -s "$dir/err" ] && grep -qx 'user 42: -0.02 -0.02 ROW' "$dir/out" &&
		[ "$(wc -l <"$dir/out")" -eq 3 ]
	ok "tables$suffix: a push of repeated keys and a pull" $?
done
echo tables >>"$dir/ran"
bounded "$farcall" run -n 3 -- "$programs/quotas"
sed -n '/^## quotas/,/^## names/p' "$documents/README.md" | grep -E '^(user|all)' >"$dir/want"
[ $rc -eq 0 ] && [ "$(wc -l <"$dir/want")" -eq 9 ] && cmp "$dir/want" "$dir/out"
ok "quotas: a function at the rows prints what README shows" $?
echo quotas >>"$dir/ran"
bounded "$farcall" run -n 3 -- "$programs/names"
sed -n '/^## names/,/^## digits/p' "$documents/README.md" | grep '^user' >"$dir/want"
[ $rc -eq 0 ] && [ "$(wc -l <"$dir/want")" -eq 3 ] && cmp "$dir/want" "$dir/out"
ok "names: a table of values prints what README shows" $?
echo names >>"$dir/ran"

# None is left out, and none is long. digits.sh and training.sh run these.
printf '%s\n' digits digits_server stages rnn hybrid cartpole >>"$dir/ran"
for source in "$documents"/*.cc; do
	[ "$(wc -l <"$source")" -lt 150 ] && [ -f "${source%c}" ]
	ok "$(basename "$source"): has a twin in C, and less than 150 lines" $?
done
for source in "$documents"/*.c; do
	name=$(basename "$source" .c)
	grep -qx "$name" "$dir/ran" && grep -qF "| \`$name.c\` |" "$documents/README.md" && [ "$(wc -l <"$source")" -lt 150 ]
	ok "$name.c: is in the README, runs, and has less than 150 lines" $?
done

bounded python3 "$(dirname "$0")/example_names.py" --index "$top/include/farcall" "$documents/FROM_PYTORCH.md"
ok "FROM_PYTORCH.md: every name is in the headers, and every call has a place" $?
sed 's/far_future_then/far_future_than/; s/far_opts\.group/far_opts.groop/; s/`FAR_TIMEOUT`/`FAR_TIMEOUTS`/; s/`get_metrics()`//; s/agent\.get_metrics()//' \
	"$documents/FROM_PYTORCH.md" >"$dir/wrong.md"
bounded python3 "$(dirname "$0")/example_names.py" --index "$top/include/farcall" "$dir/wrong.md"
[ $rc -eq 1 ] && says "far_future_than is in no header" && says "struct far_opts has no groop" &&
	says "FAR_TIMEOUTS is in no header" && says "has no row for get_metrics"
ok "names that are not there are found" $?

finish

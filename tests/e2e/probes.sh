# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Static probes: those of the library are those of perf/bpftrace/README.md, and each script of that folder prints what
# it is for. usage: probes.sh PROGRAM LIBRARY SOURCE_TOP
set -u
. "$(dirname "$0")/cases.sh"
program=$1 library=$2 folder=$3/perf/bpftrace

# name, number of arguments
readelf -n "$library" | awk '/Provider: /{ ours = $2 == "farcall" } ours && /Name: /{ name = $2 }
	ours && /Arguments: /{ print name, NF - 1 }' | sort -u >"$dir/built"
# The rows of a function end with other words than the first: "as `call_begin`, then" stands for its five.
awk -F'|' '/^\| `[a-z_]*` \| (function|rank|identity|as)/ { split($2, n, "`"); gsub(/\([^)]*\)/, "", $3)
	c = split($3, args, ","); if ($3 ~ /as `call_begin`/) c += 4; print n[2], c }' "$folder/README.md" | sort >"$dir/table"
rc=0
diff "$dir/table" "$dir/built" >"$dir/out" 2>"$dir/err" || rc=$?
ok "the probes of the library are those of the table" $rc
ok "there are nine" "$([ "$(wc -l <"$dir/built")" -eq 9 ]; echo $?)"

prints() { # script, pattern
	bounded env FAR_PROBES=1 bpftrace -c "$program" "$folder/$1.bt" "$program"
	[ "$rc" -eq 0 ] && has out "$2"
	ok "$1.bt prints $2" $?
}

timeout 20 bpftrace -e 'BEGIN { exit(); }' >"$dir/out" 2>"$dir/err" </dev/null && attached=yes || attached=
if [ -z "$attached" ]; then
	sed 's/^/probes: bpftrace does not run here: /' "$dir/err" | tail -n 3
	skip "the scripts of perf/bpftrace" "root, CONFIG_BPF_SYSCALL and CONFIG_UPROBE_EVENTS, for bpftrace"
else
	prints calls '^@calls\[p::echo, 0\]: 20$'
	prints calls '^@calls\[p::refuse, [1-9][0-9]*\]: 5$'
	prints requests '^@running_us\[p::refuse\]:'
	prints sessions 'shard 0 of worker 0: session with shard 0 of worker 1 is up'
	prints sleeps '^@slept_us\[1, 0\]:'
	prints retransmits '^[0-9:]*$'
	bounded bpftrace -c "$program" "$folder/calls.bt" "$program"
	[ "$rc" -eq 0 ] && ! has out '^@calls'
	ok "without FAR_PROBES calls have none" $?
fi
FAR_PROBES=2 bounded "$program"
[ "$rc" -eq 0 ] && says 'FAR_PROBES is "2": it is 0 or 1'
ok "another value of FAR_PROBES is named" $?
finish

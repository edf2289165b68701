#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# perf/peers/run.sh with sockets, Farcall and ZeroMQ, if that is installed: that figures are made, that a row without
# them says why, that wrong options are refused, and that every process ends.
# usage: peers.sh RUN_SH BUILD
set -u
run_sh=$1
build=$2
. "$(dirname "$0")/cases.sh"
guard_s=280

run() { bounded sh "$run_sh" --no-install --work "$dir/made" --farcall "$build" "$@"; }
short="--rounds 1 --short --line-ratio 1e9"
figures='lambda row, *names: all(positive(j["rows"][row]["figures"][n], "median") and
	len(j["rows"][row]["figures"][n]["values"]) == 1 for n in names)'
small='"round_trip", "rate"'
large='"64kib_depth_1", "64kib_depth_4", "1mib_depth_1", "1mib_depth_4",
	"8mib_depth_1", "8mib_depth_4"'

bounded sh "$run_sh" --help
[ $rc -eq 0 ] && has out '^usage: run.sh ' && has out '--ucx PREFIX' && [ ! -s "$dir/err" ]
ok "--help" $?
refused() { # what, a text of the message, options
	what=$1 text=$2
	shift 2
	bounded sh "$run_sh" --no-install --work "$dir/none" "$@"
	[ $rc -eq 2 ] && says "$text" && [ ! -s "$dir/out" ] &&
		[ "$(wc -l <"$dir/err")" -eq 1 ] && [ ! -e "$dir/none" ]
	ok "refused: $what" $?
}
refused "an unknown peer" 'no peer "carrier-pigeon"; there are farcall-shm' --only raw,carrier-pigeon
refused "no rounds" '"0" is not between 1 and 101' --rounds 0
refused "rounds that are no number" '"many" is not between' --rounds many
refused "an unknown option" 'unrecognized arguments: --fast' --fast
refused "a prefix without UCX" 'has no include/ucp/api/ucp.h' --ucx "$dir"
refused "a directory without a build" 'has no engine/libfarcall.so' --farcall "$dir"
refused "a CPU that is none" 'this process may use the CPUs' --cpus 0,100000

# shellcheck disable=SC2086 # words
run --only raw,farcall-shm $short --json
[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] && json "($figures)('raw-tcp', $small, $large) and
	($figures)('farcall-shm', $small, $large) and ($figures)('raw-udp', $small) and
	len(j['rows']['raw-udp']['figures']) == 2 and j['summary'] == '3 of 3 rows measured' and
	j['run']['rounds_lost'] == 0 and len(j['run']['lines_ns']) == 8 and j['run']['clock'] and
	j['run']['versions']['farcall']"
ok "every figure of sockets and of Farcall, as JSON" $?

# shellcheck disable=SC2086
run --only farcall-udp,farcall-typed,raw-udp $short
[ $rc -eq 0 ] && has out '^farcall-udp  *polls\( *[0-9.]*[0-9]\)\{8\}$' &&
	has out '^farcall-typed  *polls\( *[0-9.]*[0-9]\)\{2\}\( *-\)\{6\}$' &&
	has out '^raw-udp  *polls\( *[0-9.]*[0-9]\)\{2\}\( *-\)\{6\}$' && has out '^ *[0-9.]*x  *[0-9.]*x$' &&
	[ "$(awk 'length > 120' "$dir/out" | wc -l)" -eq 0 ] && [ "$(tail -n 1 "$dir/out")" = "3 of 3 rows measured" ]
ok "the table: figures, ratios, at most 120 columns" $?

# shellcheck disable=SC2086
run --only zeromq $short --json
if command -v dpkg-query >/dev/null && ! dpkg-query -W libzmq3-dev >/dev/null 2>&1; then
	[ $rc -eq 1 ] && json "j['rows']['zeromq'] == {'state': 'absent', 'why': 'not installed: libzmq3-dev'} and
		j['summary'] == '0 of 1 rows measured; absent: zeromq'"
	ok "a row whose package is absent says so" $?
else
	[ $rc -eq 0 ] && json "($figures)('zeromq', $small, $large)"
	ok "every figure of ZeroMQ" $?
fi

# A program that fails in place of one that was built: newer than its sources, so it stays.
plant() { printf '#!/bin/sh\n[ "$1" = --version ] && echo 1 && exit 0\n%s\n' "$1" >"$dir/made/bin/raw"; }
plant 'echo broken >&2; exit 3'
# shellcheck disable=SC2086
run --only raw-udp,farcall-typed $short
[ $rc -eq 1 ] && has out '^raw-udp  *FAILED: exit status 3: broken$' && has out '^farcall-typed  *polls  *[0-9.]' &&
	[ "$(tail -n 1 "$dir/out")" = "1 of 2 rows measured; failed: raw-udp" ]
ok "a program that fails costs its row, not the others" $?

# A program that never ends, and a signal. SIGKILL leaves no time to end a process that the program started.
killed() { # signal, exit status
	# shellcheck disable=SC2086
	TMPDIR=$dir sh "$run_sh" --no-install --work "$dir/made" --only raw-udp $short >"$dir/out" 2>"$dir/err" &
	pid=$!
	eventually pgrep -f '^sleep 4722$' >/dev/null
	found=$?
	kill "-$1" $pid
	rc=0
	wait $pid 2>/dev/null || rc=$?
	[ $found -eq 0 ] && [ $rc -eq "$2" ] && gone '^sleep 472[12]$'
}
plant 'sleep 4721 & exec sleep 4722'
killed TERM 130 && says 'stopped by SIGTERM' && [ -z "$(find "$dir" -maxdepth 1 -name 'farcall-peers-*')" ]
ok "SIGTERM: exit status 130, no process and no file left" $?
plant 'exec sleep 4722'
killed KILL 137
ok "SIGKILL: the program that was running ends" $?
finish

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# farcall run: environment, output, failures, signals, and that nothing is left behind.
# usage: run_cmd.sh FARCALL
set -u

farcall=$1
. "$(dirname "$0")/cases.sh"
nap=$$ # what sleeps is known by this fraction of a second

run() { bounded "$farcall" run "$@"; }
there() { eventually pgrep -f -- "$1" >/dev/null; }

run -n 3 -- sh -c 'echo "$RANK of $WORLD_SIZE at $MASTER_ADDR"; test "$MASTER_PORT" -gt 0'
[ $rc -eq 0 ] && [ "$(cat "$dir/out")" = "0 of 3 at 127.0.0.1" ] && has err '^\[1\] 1 of 3 at 127.0.0.1$' &&
	has err '^\[2\] 2 of 3 at 127.0.0.1$' && [ "$(wc -l <"$dir/err")" -eq 2 ]
ok "environment, and where output goes" $?

run -n 3 -- sh -c 'if [ "$RANK" = 0 ]; then readlink "/proc/self/fd/$FAR_STORE_FD"
	else [ -z "${FAR_STORE_FD:-}" ] && ! ls -l /proc/self/fd | grep socket; fi'
[ $rc -eq 0 ] && has out '^socket:'
ok "only rank 0 gets the listener" $?

run -n 2 -- sh -c 'printf "a%s" $RANK >&2; sleep 0.3; printf "b\nno newline" >&2'
[ $rc -eq 0 ] && has err '^\[0\] a0b$' && has err '^\[1\] a1b$' && [ "$(grep -c '\] no newline$' "$dir/err")" -eq 2 ]
ok "lines stay whole, the last one too" $?

run -n 1 -- sh -c 'head -c 20000 /dev/zero | tr "\0" x >&2'
[ $rc -eq 0 ] && [ "$(tr -cd x <"$dir/err" | wc -c)" -eq 20000 ]
ok "a long line arrives in pieces" $?

run -n 3 -- sh -c 'if [ $RANK = 2 ]; then for i in $(seq 30); do echo line $i; done; exit 7; fi; exec sleep 341.'$nap
[ $rc -eq 7 ] && has err 'worker 2 exited with status 7' && has err 'last lines of worker 2' &&
	[ "$(grep -c '^\[2\] line 30$' "$dir/err")" -eq 2 ] && [ "$(grep -c '^\[2\] line 11$' "$dir/err")" -eq 2 ] &&
	[ "$(grep -c '^\[2\] line 10$' "$dir/err")" -eq 1 ] && gone "sleep 341.$nap"
ok "one failure stops all, and its last 20 lines are shown" $?

run -n 2 -- sh -c '[ $RANK = 1 ] && kill -9 $$; exec sleep 342.'$nap
[ $rc -eq 137 ] && has err 'worker 1 was killed by signal 9 (Killed)' && gone "sleep 342.$nap" && ! has err crash_report
ok "death by signal" $?
run -n 1 -- sh -c 'kill -SEGV $$'
[ $rc -eq 139 ] && has err 'calls far_crash_report_install() prints the handler'
ok "a crash without a report: what makes one" $?
run -n 1 -- sh -c 'echo "farcall: crash: SIGSEGV" >&2; kill -SEGV $$'
[ $rc -eq 139 ] && has err '^\[0\] farcall: crash: SIGSEGV' && ! has err crash_report
ok "a crash with a report" $?

# Status 69 says that another worker was lost: who fails otherwise began it, though it ends later: when 1 is reaped.
run -n 3 -- sh -c 'case $RANK in
	1) echo $$ >"$0"; exit 69 ;;
	2) until [ -s "$0" ]; do sleep 0.02; done; while kill -0 $(cat "$0"); do sleep 0.02; done; exit 3 ;;
	esac; exec sleep 346.'$nap "$dir/victim"
[ $rc -eq 3 ] && has err 'worker 2 exited with status 3' && gone "sleep 346.$nap"
ok "a victim that ends first is not blamed" $?

run -n 2 -- sh -c '[ $RANK = 1 ] && exit 69; exec sleep 347.'$nap
[ $rc -eq 69 ] && has err 'worker 1 exited with status 69: it lost another worker' && gone "sleep 347.$nap"
ok "victims only: the first one is named as such" $?

run -n 2 --grace 300ms -- sh -c '[ $RANK = 1 ] && exit 3; trap "" TERM; while :; do sleep 343.'$nap'; done'
[ $rc -eq 3 ] && gone "sleep 343.$nap"
ok "a worker that ignores SIGTERM is killed after the grace" $?

run -n 2 -- sh -c 'setsid sleep 344.'$nap' & exit 0'
[ $rc -eq 0 ] && gone "sleep 344.$nap"
ok "grandchildren end with the workers, in sessions of their own too" $?

run -n 2 -- ./does-not-exist
[ $rc -eq 127 ] && has err 'does-not-exist: not found'
ok "program not found" $?

run -n 2 -- /etc/passwd
[ $rc -eq 126 ] && has err 'cannot start /etc/passwd'
ok "program not executable" $?

for n in 0 257 -1 x 1.5; do
	run -n "$n" -- true
	[ $rc -eq 2 ] && has err 'from 1 to 256'
	ok "-n $n is refused with the range" $?
done

run -n 2
[ $rc -eq 2 ] && has err 'program is missing'
ok "no program" $?

for sig in INT TERM HUP; do
	# A shell starts background jobs with SIGINT ignored; env gives the default back.
	env --default-signal=INT "$farcall" run -n 2 -- sh -c 'exec sleep 345.'$nap >"$dir/out" 2>"$dir/err" &
	pid=$!
	there "sleep 345.$nap"
	kill -s $sig $pid
	wait $pid
	rc=$?
	case $sig in INT) want=130 ;; TERM) want=143 ;; HUP) want=129 ;; esac
	[ $rc -eq $want ] && gone "sleep 345.$nap"
	ok "SIG$sig ends all with $want (got $rc)" $?
done

"$farcall" run -n 2 --grace 300ms -- sh -c 'trap "" INT TERM; while :; do sleep 346.'$nap'; done' >"$dir/out" 2>"$dir/err" &
pid=$!
there "sleep 346.$nap"
kill -TERM $pid
wait $pid
[ $? -eq 143 ] && gone "sleep 346.$nap"
ok "workers that ignore it are killed after the grace" $?

"$farcall" run -n 2 -- sh -c 'sleep 347.'$nap'; true' >"$dir/out" 2>"$dir/err" &
pid=$!
there "sleep 347.$nap"
kill -KILL $pid
wait $pid
gone "sleep 347.$nap" && gone "$farcall run -n 2 -- sh -c sleep 347.$nap"
ok "kill -9 of farcall run leaves neither children nor grandchildren" $?

timeout "$guard_s" "$farcall" run -n 2 -- sh -c '[ $RANK = 0 ] && exec yes; exec sleep 348.'$nap 2>"$dir/err" | head -n 1 >"$dir/out"
[ "$(cat "$dir/out")" = y ] && gone "sleep 348.$nap"
ok "a closed stdout ends it" $?

timeout "$guard_s" "$farcall" run -n 2 -- sh -c 'yes >&2' 2>&1 | head -n 1 >"$dir/out"
has out '\] y$' && gone "$farcall run -n 2 -- sh -c yes"
ok "a closed stderr ends it" $?

finish

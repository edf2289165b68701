#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# farcall run: environment, output, failures, signals, and that nothing is left behind.
# usage: run_cmd.sh FARCALL
set -u

farcall=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0
failed=0

ok() { # name, condition's status
	if [ "$2" -eq 0 ]; then
		passed=$((passed + 1))
		echo "PASS $1"
	else
		failed=$((failed + 1))
		echo "FAIL $1"
		sed 's/^/  out: /' "$dir/out" 2>/dev/null
		sed 's/^/  err: /' "$dir/err" 2>/dev/null
	fi
}

run() { # arguments of farcall run; leaves out, err and $rc
	timeout 30 "$farcall" run "$@" >"$dir/out" 2>"$dir/err" </dev/null
	rc=$?
}

has() { grep -q -- "$2" "$dir/$1"; }

# Waits up to 5 s until no process has $1 among its arguments.
gone() {
	for _ in $(seq 50); do
		pids=$(pgrep -f -- "$1") || return 0
		sleep 0.1
	done
	echo "still there: $pids"
	return 1
}

# Waits up to 5 s until a process has $1 among its arguments.
there() {
	for _ in $(seq 50); do
		pgrep -f -- "$1" >/dev/null && return 0
		sleep 0.1
	done
	return 1
}

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

run -n 3 -- sh -c 'if [ $RANK = 2 ]; then for i in $(seq 30); do echo line $i; done; exit 7; fi; exec sleep 41.25'
[ $rc -eq 7 ] && has err 'worker 2 exited with status 7' && has err 'last lines of worker 2' &&
	[ "$(grep -c '^\[2\] line 30$' "$dir/err")" -eq 2 ] && [ "$(grep -c '^\[2\] line 11$' "$dir/err")" -eq 2 ] &&
	[ "$(grep -c '^\[2\] line 10$' "$dir/err")" -eq 1 ] && gone 'sleep 41.25'
ok "one failure stops all, and its last 20 lines are shown" $?

run -n 2 -- sh -c '[ $RANK = 1 ] && kill -9 $$; exec sleep 42.25'
[ $rc -eq 137 ] && has err 'worker 1 was killed by signal 9 (Killed)' && gone 'sleep 42.25' && ! has err crash_report
ok "death by signal" $?
run -n 1 -- sh -c 'kill -SEGV $$'
[ $rc -eq 139 ] && has err 'calls far_crash_report_install() prints the handler'
ok "a crash without a report: what makes one" $?
run -n 1 -- sh -c 'echo "farcall: crash: SIGSEGV" >&2; kill -SEGV $$'
[ $rc -eq 139 ] && has err '^\[0\] farcall: crash: SIGSEGV' && ! has err crash_report
ok "a crash with a report" $?

# Status 69 says that another worker was lost: who fails otherwise began it, though it ends later.
run -n 3 -- sh -c 'case $RANK in 1) exit 69 ;; 2) sleep 0.4; exit 3 ;; esac; exec sleep 46.25'
[ $rc -eq 3 ] && has err 'worker 2 exited with status 3' && gone 'sleep 46.25'
ok "a victim that ends first is not blamed" $?

run -n 2 -- sh -c '[ $RANK = 1 ] && exit 69; exec sleep 47.25'
[ $rc -eq 69 ] && has err 'worker 1 exited with status 69: it lost another worker' && gone 'sleep 47.25'
ok "victims only: the first one is named as such" $?

run -n 2 --grace 300ms -- sh -c '[ $RANK = 1 ] && exit 3; trap "" TERM; while :; do sleep 43.25; done'
[ $rc -eq 3 ] && gone 'sleep 43.25'
ok "a worker that ignores SIGTERM is killed after the grace" $?

run -n 2 -- sh -c 'setsid sleep 44.25 & exit 0'
[ $rc -eq 0 ] && gone 'sleep 44.25'
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
	env --default-signal=INT "$farcall" run -n 2 -- sh -c 'exec sleep 45.25' >"$dir/out" 2>"$dir/err" &
	pid=$!
	there 'sleep 45.25'
	kill -s $sig $pid
	wait $pid
	rc=$?
	case $sig in INT) want=130 ;; TERM) want=143 ;; HUP) want=129 ;; esac
	[ $rc -eq $want ] && gone 'sleep 45.25'
	ok "SIG$sig ends all with $want (got $rc)" $?
done

"$farcall" run -n 2 --grace 300ms -- sh -c 'trap "" INT TERM; while :; do sleep 46.25; done' >"$dir/out" 2>"$dir/err" &
pid=$!
there 'sleep 46.25'
kill -TERM $pid
wait $pid
[ $? -eq 143 ] && gone 'sleep 46.25'
ok "workers that ignore it are killed after the grace" $?

"$farcall" run -n 2 -- sh -c 'sleep 47.25; true' >"$dir/out" 2>"$dir/err" &
pid=$!
there 'sleep 47.25'
kill -KILL $pid
wait $pid
gone 'sleep 47.25' && gone "$farcall run -n 2 -- sh -c sleep 47.25"
ok "kill -9 of farcall run leaves neither children nor grandchildren" $?

timeout 30 "$farcall" run -n 2 -- sh -c '[ $RANK = 0 ] && exec yes; exec sleep 48.25' 2>"$dir/err" | head -n 1 >"$dir/out"
[ "$(cat "$dir/out")" = y ] && gone 'sleep 48.25'
ok "a closed stdout ends it" $?

timeout 30 "$farcall" run -n 2 -- sh -c 'yes >&2' 2>&1 | head -n 1 >"$dir/out"
has out '\] y$' && gone "$farcall run -n 2 -- sh -c yes"
ok "a closed stderr ends it" $?

echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]

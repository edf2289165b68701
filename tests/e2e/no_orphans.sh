#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Each role of a training job is killed in turn: within a bound no process is left, and the status and the text name
# what happened.
# usage: no_orphans.sh FARCALL
set -u
farcall=$1
. "$(dirname "$0")/cases.sh"

n=0 # jobs so far; each has a seed of its own, by which its processes are known

# Starts a job that would take for ever. Leaves $job, its process, and $mark.
train() { # arguments of farcall train
	n=$((n + 1))
	mark="seed $$$(printf %03d $n)"
	: >"$dir/out"
	: >"$dir/err"
	# A shell starts background jobs with SIGINT ignored; env gives the default back.
	# shellcheck disable=SC2086 # two words
	env --default-signal=INT "$farcall" train --servers 2 --workers 2 --rows 1000 --epochs 1000000 --$mark "$@" \
		>"$dir/out" 2>"$dir/err" </dev/null &
	job=$!
}

# The process of a rank.
pid_of() {
	for p in $(pgrep -f -- "$mark"); do
		tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -qx "RANK=$1" && echo "$p" && return
	done
}

# The process of a rank, once it has one: to $pid.
is_there() {
	pid=$(pid_of "$1")
	[ -n "$pid" ]
}
# Has $pid worked for as many ticks: data of this size and the way into the group take fewer.
has_worked() {
	read -r stat <"/proc/$pid/stat" || return 1
	# shellcheck disable=SC2086 # words; the name, in parentheses, has none
	set -- "$1" $stat
	[ $((${15} + ${16})) -ge "$1" ]
}
works() { eventually is_there "$1" && eventually has_worked "$2"; }
training() { works 1 10 && works 2 20; }

ended() { ! kill -0 "$job" 2>/dev/null; }

# The job's end, at most a minute away: its status in $rc; 255 when it had to be killed.
await() {
	if eventually ended; then
		wait "$job"
		rc=$?
	else
		kill -KILL "$job"
		wait "$job" 2>/dev/null
		rc=255
	fi
}

for mode in async bsp; do
	case $mode in
	async) victims=0:server others='1:server 2:worker 3:worker' ;;
	bsp) victims=2:worker others=1:server ;;
	esac
	! in_full || victims="$victims $others"
	for victim in $victims; do
		rank=${victim%:*}
		train --mode $mode
		training && kill -KILL "$(pid_of "$rank")"
		await
		# Its sockets close before it can be reaped, so a survivor may fail first: the blame must not be its.
		[ $rc -eq 137 ] && says "farcall run: worker $rank was killed by signal 9 (Killed)" && [ ! -s "$dir/out" ] &&
			gone "$mark"
		ok "$mode: kill -9 of rank $rank, a ${victim#*:}" $?
	done
done

for victim in 0 3; do
	[ $victim = 3 ] || in_full || continue
	train
	training && kill -TERM "$(pid_of $victim)"
	await
	[ $rc -ne 0 ] && [ $rc -ne 255 ] && says "farcall run: worker $victim " && gone "$mark"
	ok "SIGTERM to rank $victim" $?
done

for signal in INT:130 TERM:143 HUP:129; do
	[ $signal = TERM:143 ] || in_full || continue
	train
	training && kill -s "${signal%:*}" "$job"
	await
	[ $rc -eq "${signal#*:}" ] && [ ! -s "$dir/out" ] && gone "$mark"
	ok "SIG${signal%:*} to farcall run" $?
done

train
training && kill -KILL "$job"
await
[ $rc -eq 137 ] && gone "$mark"
ok "kill -9 of farcall run" $?

# A member that hangs is seen by the deadline of the calls to it.
train --timeout 1s
training && kill -STOP "$(pid_of 1)"
await
[ $rc -ne 0 ] && [ $rc -ne 255 ] && says 'TIMEOUT' && gone "$mark"
ok "a server that hangs: the call's deadline ends the job" $?

# Has the shell's child become the program: what is sent to it before that, the shell's own traps may swallow.
# By its file: it soon starts itself again by another name than $farcall.
started() { readlink "/proc/$job/exe" | grep -q '/farcall$'; }

# While the members are still joining.
for nap in 0 0.01 0.02 0.05; do
	[ $nap = 0 ] || [ $nap = 0.02 ] || in_full || continue
	train
	eventually started
	sleep $nap
	kill -KILL "$job"
	await
	[ $rc -eq 137 ] && gone "$mark"
	ok "kill -9 of farcall run $nap s after its start" $?
	train
	eventually started
	sleep $nap
	kill -TERM "$job"
	await
	[ $rc -eq 143 ] && gone "$mark"
	ok "SIGTERM to farcall run $nap s after its start" $?
done

# Members without farcall run: nobody stops the others, they see the loss themselves.
mark="seed $$$(printf %03d $((n + 1)))"
port=$(ports 1)
members=
for rank in 0 1 2; do
	# shellcheck disable=SC2086
	"$farcall" train --servers 1 --rows 1000 --epochs 1000000 --$mark --world-size 3 --rank $rank \
		--init-method "tcp://127.0.0.1:$port" >"$dir/out$rank" 2>"$dir/err$rank" </dev/null &
	members="$members $!"
done
cp "$dir/err1" "$dir/err"
has_rank() { tr '\0' ' ' <"/proc/$1/cmdline" | grep -q -- "--rank $2 "; }
pid_of() {
	for p in $members; do
		has_rank "$p" "$1" && echo "$p" && return
	done
}
training
# shellcheck disable=SC2086
set -- $members
kill -KILL "$3"
rc=0
gone "$mark"
ok "members on their own: kill -9 of a worker ends the others" $?
wait "$1"
rc=$?
cp "$dir/err0" "$dir/err"
[ $rc -eq 69 ] && says 'lost "worker2" (rank 2)'
ok "members on their own: the server names who was lost" $?
wait "$2"
rc=$?
cp "$dir/err1" "$dir/err"
[ $rc -eq 69 ] && says '"worker2" (rank 2)'
ok "members on their own: the other worker fails with a reason" $?

finish

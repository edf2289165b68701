#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Limits of a real cgroup, of version 1 or 2: what the CPU quota does to polling, and the memory limit to messages.
# usage: container_limits.sh FARCALL API_QUOTA API_CONTAINER
set -u
farcall=$1
api_quota=$2
api_container=$3
. "$(dirname "$0")/cases.sh"

root=/sys/fs/cgroup
boxes=

# box CONTROLLER: makes a child group that limits it, and names it in $box. 1: not here.
box() {
	box=
	if [ -f "$root/cgroup.controllers" ]; then
		grep -qw "$1" "$root/cgroup.controllers" || return 1
		grep -qw "$1" "$root/cgroup.subtree_control" || echo "+$1" >"$root/cgroup.subtree_control" || return 1
		box=$root/farcall-test-$$
	else
		[ -f "$root/$1/cgroup.procs" ] || return 1
		box=$root/$1/farcall-test-$$
	fi 2>/dev/null
	[ -d "$box" ] && return
	mkdir "$box" 2>/dev/null || return 1
	boxes="$boxes $box"
}

empty_box() { rmdir "$1" 2>/dev/null || [ ! -d "$1" ]; }
clean() {
	for b in $boxes; do
		eventually empty_box "$b" || echo "cannot remove $b"
	done
	rm -rf "$dir"
}
trap clean EXIT

# cpus THOUSANDTHS: the quota of the box from now on.
cpus() {
	if [ -f "$box/cpu.max" ]; then
		echo "$(($1 * 100)) 100000" >"$box/cpu.max"
	else
		echo 100000 >"$box/cpu.cfs_period_us" && echo "$(($1 * 100))" >"$box/cpu.cfs_quota_us"
	fi
}
memory() {
	if [ -f "$box/memory.max" ]; then echo "$1" >"$box/memory.max"; else echo "$1" >"$box/memory.limit_in_bytes"; fi
}

# Processes of the box that the kernel has killed for its memory.
killed() {
	sed -n 's/^oom_kill //p' "$box/memory.events" "$box/memory.oom_control" 2>/dev/null
}

# shellcheck disable=SC2016 # the inner shell's
inside() { bounded sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$box" "$@"; }

warned() { # times, pattern
	[ "$(grep -c -e "$2" "$dir/err")" -eq "$1" ]
}
warning="farcall: the cgroup's quota is"

bounded "$farcall" info --json
free=false
[ $rc -eq 0 ] && json '(j["cpu_quota"] is None or j["cpu_quota"] > 0) and j["busy_polling"] in (True, False)'
ok "farcall info shows the quota" $?
json 'j["busy_polling"]' 2>/dev/null && free=true

if [ $free = true ]; then
	bounded "$farcall" run -n 2 -- "$api_quota" busy
	[ $rc -eq 0 ] && warned 0 "$warning"
	ok "with a CPU for each shard busy polling never sleeps, and nothing warns" $?
else
	skip "busy polling with a CPU for each shard" "a CPU quota of at least one CPU around the tests"
fi

if box cpu; then
	cpus 500
	inside "$farcall" info
	[ $rc -eq 0 ] && has out '^CPU quota  *0\.5 CPUs (cgroup): no busy polling'
	ok "half a CPU: farcall info" $?
	inside "$farcall" info --json
	[ $rc -eq 0 ] && json 'j["cpu_quota"] == 0.5 and j["busy_polling"] is False'
	ok "half a CPU: farcall info --json" $?
	inside "$farcall" run -n 2 -- "$api_quota" scarce
	[ $rc -eq 0 ] && warned 1 "^\[0\] $warning 0.5 CPUs for 1 polling shard: there is no busy polling.*--cpus 1" &&
		warned 1 "^\[1\] $warning"
	ok "half a CPU: busy polling sleeps, one warning of each process" $?
	inside "$farcall" perf latency --seconds 0.2 --json
	[ $rc -eq 0 ] && json 'j["p50_ns"] > 0' && warned 0 "$warning"
	ok "half a CPU: farcall perf latency, which polls adaptively, without a warning" $?
	cpus 1500
	inside "$farcall" train --shards 2 --rows 2000 --test-rows 1000 --epochs 2 --json
	[ $rc -eq 0 ] && json '0.5 < j["test_auc"] <= 1' && warned 2 "$warning 1.5 CPUs for 2 polling shards: .*fewer shards"
	ok "one and a half: servers with two shards warn, and serve" $?
	cpus 2000
	inside "$farcall" train --shards 2 --rows 2000 --test-rows 1000 --epochs 2 --json
	[ $rc -eq 0 ] && warned 0 "$warning"
	ok "two CPUs: they do not" $?
else
	skip "CPU quotas" "making a cgroup with a CPU quota below $root"
fi

if box memory && memory 268435456; then
	inside "$farcall" info --json
	[ $rc -eq 0 ] && json 'j["memory_max"] == 128 << 20'
	ok "256 MiB: farcall info" $?
	# shellcheck disable=SC2016 # the inner shell's
	bounded "$farcall" run -n 2 -- sh -c '[ "$RANK" -eq 0 ] || echo $$ >"$0/cgroup.procs" || exit; exec "$@"' \
		"$box" "$api_quota" memory
	[ $rc -eq 0 ]
	ok "256 MiB: a message of 160 MiB is refused where it would be sent" $?
	memory 100663296
	[ ! -f "$box/memory.swap.max" ] || echo 0 >"$box/memory.swap.max"
	inside "$farcall" info --json
	[ $rc -eq 0 ] && json 'j["memory_max"] == 48 << 20'
	ok "96 MiB: farcall info" $?
	for nic in shm udp; do
		# shellcheck disable=SC2016 # the inner shell's
		bounded env FAR_NIC=$nic "$farcall" run -n 2 -- sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$box" \
			"$api_container"
		[ $rc -eq 0 ] && [ "$(killed)" = 0 ]
		ok "96 MiB over $nic: what does not fit is an error with both numbers, and nobody is killed" $?
	done
else
	skip "memory limits" "making a cgroup with a memory limit below $root"
fi

finish

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Two workers of a host over vhost-user: one has net_vhost, the other net_virtio_user, whose memory the first maps.
# usage: dpdk_vhost.sh FARCALL AGENTS_NET CALLS_ON IN_PLACE
set -u
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
. "$here/../e2e/cases.sh"
farcall=$1
agents_net=$2
calls_on=$3
in_place=$4
export FAR_RUNTIME_DIR="$dir/runtime" AT="$dir/vhost.sock"
mkdir -m 700 "$FAR_RUNTIME_DIR"
pages=/proc/sys/vm/nr_hugepages
pages_before=
others=
cleanup() {
	# shellcheck disable=SC2086 # numbers
	[ -z "$others" ] || kill -9 $others 2>/dev/null
	wait
	[ -z "$pages_before" ] || echo "$pages_before" >"$pages"
	rm -rf "$dir"
}
trap cleanup EXIT

# The second waits until the first one's socket is there.
# shellcheck disable=SC2016 # for the workers
worker='tries=0
	if [ "$RANK" -eq 0 ]; then
		export FAR_NIC="dpdk:net_vhost0,iface=$AT,queues=$RINGS,ip=$NET::1/64$MORE"
	else
		until [ -S "$AT" ] || [ "$tries" -gt 200 ]; do
			tries=$((tries + 1))
			sleep 0.05
		done
		export FAR_NIC="dpdk:net_virtio_user0,path=$AT,queues=$RINGS,ip=$NET::2/64$MORE"
	fi
	exec "$@"'
export NET=fd93
over() { # rings, more arguments, program...
	export RINGS="$1" MORE="$2"
	shift 2
	rm -f "$AT"
	bounded "$farcall" run -n 2 -- sh -c "$worker" worker "$@"
}

over 1 ',huge=0' "$agents_net" 1 1000000
[ "$rc" -eq 0 ] && has out 'worker1 by dpdk'
ok "calls by one ring" $?
over 3 ',huge=0' "$agents_net" 3 10000
ok "three shards, a ring each" "$rc"
over 1 ',huge=0' "$agents_net" 3 10000
ok "three shards on one ring" "$rc"
over 1 ',huge=0' "$in_place" dpdk 1300
ok "received in place" "$rc"

# The other worker gets an error, and goes on.
begin() { # rank
	RANK=$1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -k 3 "$guard_s" sh -c "$worker" worker \
		"$calls_on" "$dir" 2 >"$dir/out" 2>"$dir/err.$1" </dev/null &
	eval "pid$1=$!"
	others="$others $!"
}
calls_made() { [ -s "$dir/state" ]; }
# shellcheck disable=SC2154 # set by begin
killed() { # case, rank that is killed, the other
	rm -f "$AT" "$dir/state"
	port=$((20000 + $$ % 10000 + $2))
	begin 0
	begin 1
	eventually calls_made
	good=$?
	eval "kill -9 \$(pgrep -P \$pid$2)"
	rc=0
	eval "wait \$pid$3" || rc=$?
	eval "wait \$pid$2"
	cat "$dir/err.$3" >"$dir/err"
	[ "$good" -eq 0 ] && [ "$rc" -eq 1 ] && says PEER_LOST
	ok "$1" $?
} 2>/dev/null
export RINGS=1 MORE=,huge=0
killed "net_vhost is killed" 0 1
killed "net_virtio_user is killed" 1 0

if [ -w "$pages" ]; then
	pages_before=$(cat "$pages")
	echo $((pages_before + 80)) >"$pages"
	if [ "$(cat "$pages")" -ge $((pages_before + 80)) ]; then
		over 1 ',huge=1' "$agents_net" 1 100000
		ok "with huge pages" "$rc"
	else
		skip "with huge pages" "160 MiB of them"
	fi
else
	skip "with huge pages" "to have some set aside"
fi
finish

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# `farcall perf` over NICs: their floors, the measurements over each, network namespaces, and what is refused. Short
# runs: that the figures are there, not what they are.
# usage: perf_nic.sh FARCALL
set -u
farcall=$1
. "$(dirname "$0")/perf_cases.sh"

fails() { # name, text, command...
	name=$1
	text=$2
	shift 2
	bounded "$farcall" perf "$@"
	[ $rc -eq 1 ] && says "$text" && [ ! -s "$dir/out" ] && ! says "no longer answers"
	ok "fails: $name" $?
}

# ---- floors ----

raw='positive(j, "raw_rtt_p50_ns", "raw_rtt_p99_ns", "raw_calls_per_s", "raw_bytes_per_s", "raw_packet_bytes", "wake_p50_ns")'
bounded "$farcall" perf floor --nic udp --seconds 0.3 --json
[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] && json "$raw and positive(j, 'raw_wake_p50_ns') and j['raw_lost'] >= 0 and
	j['nic'] == 'udp' and j['inflight'] == 64 and j['where'].startswith('udp 127.0.0.1:')" && has err '^packet wakes epoll_wait '
ok "floor --nic udp --json" $?
for n in 1 2 7 256; do
	case $n in 2 | 7) in_full || continue ;; esac
	bounded "$farcall" perf floor --nic udp --inflight $n --seconds 0.2 --json
	[ $rc -eq 0 ] && json "$raw and j['inflight'] == $n"
	ok "floor --nic udp --inflight $n" $?
done
bounded "$farcall" perf floor --nic udp --seconds 0.2
[ $rc -eq 0 ] && has out '^round trip, 32 bytes ' && has out ' M round trips/s, 64 in flight'
ok "floor --nic udp: text" $?
bounded "$farcall" perf floor --nic shm --seconds 0.3 --json
# Status 75: figures are printed, but fewer than three rounds were undisturbed.
{ [ $rc -eq 0 ] || { [ $rc -eq 75 ] && has err 'something else is running'; }; } &&
	json 'positive(j, "ring_rtt_ns", "ring_calls_per_s")'
ok "floor --nic shm: those of memory" $?

# ---- first calls after a silence ----

if in_full; then
	bounded "$farcall" perf wake --seconds 0.3 --json
	[ $rc -eq 0 ] && json 'positive(j, "p50_ns", "p90_ns", "p99_ns", "max_ns", "calls") and j["rounds"] == 7 and
		j["nic"] == "shm" and "ratio_median" not in j' && has err '^farcall perf wake: message API, nic shm'
	ok "wake --json" $?
fi
bounded "$farcall" perf wake --seconds 0.3 --floor --json
[ $rc -eq 0 ] && json 'positive(j, "p50_ns", "floor_wake_p50_ns", "ratio_median") and j["rounds"] == 7 and
	j["calls"] == 35 and "floor_nic_wake_p50_ns" not in j' && has err '^ratio to the eventfd wake-up, median: '
ok "wake --floor --json: beside an eventfd's" $?

# ---- measurements over udp, each beside its floor ----

figures='positive(j, "p50_ns", "p90_ns", "p99_ns", "max_ns") and j["calls_per_s"] >= 0 and j["nic"] == "udp"'
beside='positive(j, "floor_raw_rtt_ns", "ratio_median") and j["rounds"] == 7 and j["floor_raw_lost"] >= 0 and
	"floor_ring_rtt_ns" not in j and "floor_cacheline_rtt_ns" not in j'
for what in 'latency' 'latency --api rpc' 'latency --handler fiber' 'latency --via thread'; do
	[ "$what" = latency ] || in_full || continue
	# shellcheck disable=SC2086 # words of a command
	bounded "$farcall" perf $what --nic udp --seconds 0.35 --floor --json
	[ $rc -eq 0 ] && json "$figures and $beside and 'added_lines_median' not in j" &&
		has err '^floor, medians of 7 rounds: raw packets '
	ok "$what --nic udp --floor" $?
done
for what in 'rate' 'rate --shards 2' 'rate --via thread' 'rate --api rpc --inflight 7'; do
	[ "$what" = rate ] || in_full || continue
	# shellcheck disable=SC2086 # words of a command
	bounded "$farcall" perf $what --nic udp --seconds 0.35 --floor --json
	[ $rc -eq 0 ] && json "$figures and positive(j, 'floor_raw_rtt_ns', 'floor_raw_calls_per_s') and j['ratio_median'] >= 0 and
		'floor_ring_calls_per_s' not in j"
	ok "$what --nic udp --floor" $?
done
if in_full; then
	bounded "$farcall" perf rate --nic udp --bytes 64K --inflight 4 --seconds 0.35 --floor --json
	[ $rc -eq 0 ] && json "$figures and positive(j, 'floor_raw_bytes_per_s') and 'floor_raw_calls_per_s' not in j"
	ok "rate --nic udp --bytes 64K --floor: beside bytes one way" $?
fi
bounded "$farcall" perf bandwidth --nic udp --bytes 64K,1M --depth 1,4 --seconds 0.35 --floor --json
[ $rc -eq 0 ] && json 'j["nic"] == "udp" and len(j["results"]) == 4 and all(positive(r, "p50_ns", "floor_raw_bytes_per_s") and
	r["ratio_median"] >= 0 and "floor_copy1_bytes_per_s" not in r for r in j["results"])' && has err 'raw MB/s'
ok "bandwidth --nic udp --floor" $?
bounded "$farcall" perf wake --nic udp --seconds 0.35 --floor --json
[ $rc -eq 0 ] && json 'positive(j, "p50_ns", "floor_wake_p50_ns", "floor_nic_wake_p50_ns", "ratio_median") and
	j["nic"] == "udp" and j["rounds"] == 7'
ok "wake --nic udp --floor: beside a packet that wakes epoll_wait(), too" $?
bounded "$farcall" perf fanout --nic udp --targets 4 --seconds 0.4 --json
[ $rc -eq 0 ] && json 'j["nic"] == "udp"'
ok "fanout --nic udp" $?
bounded "$farcall" perf idle --nic udp --seconds 0.3 --floor --json
[ $rc -eq 0 ] && json 'j["nic"] == "udp" and positive(j, "floor_wake_p50_ns") and
	all(positive(w, "first_call_p50_ns") for w in j["workers"])'
ok "idle --nic udp" $?
bounded env FAR_NIC=udp "$farcall" perf latency --seconds 0.2 --json
[ $rc -eq 0 ] && json "$figures"
ok "latency with FAR_NIC=udp" $?
bounded "$farcall" perf latency --nic shm,udp --server-nic udp --seconds 0.2 --json
[ $rc -eq 0 ] && json "$figures"
ok "latency --server-nic: what both have" $?

rm -f "$dir/serve.out"
"$farcall" perf serve --listen 127.0.0.1:0 --nic udp >"$dir/serve.out" 2>"$dir/serve.err" </dev/null &
serve=$!
eventually grep -qs 'listening on' "$dir/serve.out"
bounded "$farcall" perf latency --nic udp --connect "$(sed -n 's/.*listening on //p' "$dir/serve.out")" --seconds 0.35 --floor --json
[ $rc -eq 0 ] && json "$figures and $beside"
ok "serve --nic udp, latency --connect --floor" $?
wait $serve
rc=$?
cp "$dir/serve.err" "$dir/err"
[ $rc -eq 0 ] && says "the measuring process has left"
ok "serve --nic udp ends with it" $?

# ---- over DPDK: a device of shared memory between the two ----

memif='j["nic"] == "dpdk"'
"$farcall" perf floor --nic memif --seconds 0.1 >/dev/null 2>"$dir/no-dpdk" </dev/null
if grep -q 'is a module, and there is no\|cannot be loaded from' "$dir/no-dpdk"; then
	skip_data "measurements over memif" "$(cat "$dir/no-dpdk")"
else
	bounded "$farcall" perf floor --nic memif --seconds 0.3 --json
	[ $rc -eq 0 ] && json "$raw and 'raw_wake_p50_ns' not in j and j['raw_burst'] in (16, 32, 64)"
	ok "floor --nic memif" $?
	bounded "$farcall" perf latency --nic memif --seconds 0.35 --floor --json
	[ $rc -eq 0 ] && json "$memif and positive(j, 'p50_ns') and $beside"
	ok "latency --nic memif --floor: raw packets on the same queue" $?
	if in_full; then
		bounded "$farcall" perf rate --nic memif --handler fiber --seconds 0.35 --floor --json
		[ $rc -eq 0 ] && json "$memif and positive(j, 'floor_raw_rtt_ns', 'floor_raw_calls_per_s') and j['base'] == 'inline'"
		ok "rate --nic memif --handler fiber --floor" $?
		bounded "$farcall" perf bandwidth --nic memif --bytes 64K --depth 4 --seconds 0.35 --floor --json
		[ $rc -eq 0 ] && json "$memif and positive(j, 'floor_raw_bytes_per_s')"
		ok "bandwidth --nic memif --floor" $?
		bounded "$farcall" perf wake --nic memif --seconds 0.35 --floor --json
		[ $rc -eq 0 ] && json "$memif and positive(j, 'p50_ns', 'floor_wake_p50_ns') and 'floor_nic_wake_p50_ns' not in j"
		ok "wake --nic memif --floor" $?
		bounded "$farcall" perf fanout --nic memif --targets 3 --seconds 0.3 --json
		[ $rc -eq 0 ] && json "$memif"
		ok "fanout --nic memif" $?
	fi
	mkdir -m 700 "$dir/runtime"
	bounded env FAR_RUNTIME_DIR="$dir/runtime" "$farcall" perf latency --nic memif --seconds 0.2
	[ $rc -eq 0 ] && [ -z "$(ls -A "$dir/runtime")" ]
	ok "memif: nothing is left in the runtime directory" $?
	fails "floor: no device" "dpdk: no device given" floor --nic dpdk
	fails "latency: both are clients" 'nic "dpdk" cannot be opened' latency --nic dpdk:net_memif0,role=client
fi

# ---- two network namespaces ----

veth=$(dirname "$0")/../../perf/veth.sh
bounded sh "$veth" --help
[ $rc -eq 0 ] && has out '^usage: sh perf/veth.sh '
ok "veth.sh --help" $?
for wrong in '' '--mtu' '--mtu 1500' 'farcall' 'farcall run x'; do
	# shellcheck disable=SC2086 # words of a command
	bounded sh "$veth" $wrong
	[ $rc -eq 2 ] && has err '^usage: sh perf/veth.sh ' && [ ! -s "$dir/out" ]
	ok "veth.sh $wrong: its usage" $?
done
if ip netns add farcall-test-$$ 2>/dev/null; then
	ip netns delete farcall-test-$$
	bounded sh "$veth" "$farcall" perf floor --nic udp --seconds 0.3 --json
	[ $rc -eq 0 ] && json "$raw and j['raw_packet_bytes'] == 1472"
	ok "veth.sh, floor --nic udp" $?
	if in_full; then
		bounded sh "$veth" --mtu 9000 "$farcall" perf latency --nic udp --seconds 0.35 --floor --json
		[ $rc -eq 0 ] && json "$figures and $beside"
		ok "veth.sh, latency --nic udp --floor" $?
		bounded sh "$veth" "$farcall" perf wake --nic udp --seconds 0.4 --json
		[ $rc -eq 0 ] && json 'positive(j, "p50_ns") and j["nic"] == "udp"'
		ok "veth.sh, wake --nic udp" $?
		bounded sh "$veth" "$farcall" perf latency --nic shm --seconds 0.2 --json
		[ $rc -eq 0 ] && json 'j["nic"] == "shm"'
		ok "veth.sh, latency --nic shm: a common directory is enough" $?
	fi
	if ! [ -s "$dir/no-dpdk" ]; then
		bounded sh "$veth" "$farcall" perf latency --nic dpdk:net_af_packet0,iface=farcall0 --seconds 0.35 --floor --json
		[ $rc -eq 0 ] && json "$memif and $beside"
		ok "veth.sh, latency over af_packet" $?
	fi
	ip netns list >"$dir/out"
	! has out "^farcall-[0-9]*-[ab]"
	ok "veth.sh leaves no namespace behind" $?
else
	skip "two network namespaces" "to make network namespaces (root), and iproute2"
fi

# ---- what is refused ----

refuses "--netns with --connect" "--netns goes with processes that are started here" latency --netns x --connect 127.0.0.1:7
refuses "--server-nic with --connect" "--server-nic goes with processes" rate --server-nic udp --connect 127.0.0.1:7
refuses "--server-netns with --to self" "leave --to self out" latency --server-netns x --to self
refuses "--netns with --peers" "leave --peers out" rate --netns x --peers 3
refuses "wake --connect" "unknown option --connect" wake --connect 127.0.0.1:7
for what in latency rate bandwidth fanout wake 'floor --nic udp'; do
	# shellcheck disable=SC2086 # words of a command
	fails "$what, an unknown network namespace" "network namespace \"no-such\": there is none of that name" $what --netns no-such
	# shellcheck disable=SC2086 # words of a command
	fails "$what, of the other process" "network namespace \"no-such\": there is none of that name" $what --server-netns no-such
done
fails "a namespace that is a path" 'network namespace "../netns": there is none of that name' latency --netns ../netns
for what in latency rate bandwidth fanout wake floor; do
	for option in --nic --server-nic; do
		[ $what$option = floor--server-nic ] ||
			fails "$what $option: an unknown driver" 'there is no NIC driver "carrier-pigeon"' $what $option carrier-pigeon
	done
done
fails "floor: two drivers" '"udp,shm": the floor of a NIC is that of one driver on both sides' floor --nic udp,shm
fails "floor: memory on one side" "those of memory need neither --nic nor --server-nic" floor --nic udp --server-nic shm
fails "floor: memory on the other side" '"auto": the floor of a NIC is that of one driver' floor --server-nic udp
fails "floor: the driver's own words" "nic=udp:frob=1 is not a key" floor --nic udp:frob=1
fails "an empty entry" "nic: entry 1 is empty" latency --nic ';;'
fails "the driver's own words" "nic=udp:frob=1 is not a key" rate --nic udp:frob=1
fails "the other side's driver" "port must be a number in" wake --nic udp --server-nic udp:port=99999
# The group's error names the worker, unless its process was seen to end before.
says 'worker "worker1" (rank 1) cannot join: nic "udp" cannot be opened' || says 'the other process has ended'
ok "and whose they are" $?
for what in latency wake; do
	fails "$what: no driver in common" "no NIC driver is shared: udp 127.0.0.1:" $what --nic udp --server-nic shm
done
for option in '--peers 3' '--to self' '--via thread' '--server-nic udp' '--connect 127.0.0.1:7'; do
	# shellcheck disable=SC2086 # words of a command
	refuses "memif with $option" "--nic memif is one device between two agents; leave ${option%% *}" latency --nic memif $option
done
refuses "memif with two servers" "leave --servers out" fanout --nic memif --servers 2
bounded env FAR_RUNTIME_DIR="$dir/a,b" "$farcall" perf floor --nic memif
[ $rc -eq 1 ] && says "cannot be passed to DPDK; set FAR_RUNTIME_DIR to a path without commas and semicolons"
ok "memif: a socket path that DPDK cannot take" $?

finish

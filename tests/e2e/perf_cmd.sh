#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# `farcall perf`: what its measurements print, two processes that were started by themselves, many peers, and what it
# refuses. Short runs: that the figures are there, not what they are.
# usage: perf_cmd.sh FARCALL PERF_OTHER
set -u
farcall=$1
other=$2
. "$(dirname "$0")/perf_cases.sh"

for command in 'perf bandwidth' 'perf serve'; do
	# shellcheck disable=SC2086 # words of a command
	bounded "$farcall" $command --help
	[ $rc -eq 0 ] && has out "^usage: farcall $command " && [ ! -s "$dir/err" ]
	ok "farcall $command --help" $?
done
bounded "$farcall" perf --help
[ $rc -eq 0 ] && has out '^  bandwidth ' && has out '^  serve ' && ! has out attached
ok "farcall perf --help names them" $?

# Floors are refused while something else runs on the cores, which is no fault of what is tested here.
disturbed() { [ $rc -eq 1 ] && says "something else is running on these cores"; }

# On a machine with much else to do, all calls of a short run may be answered behind its end: rates may be 0.
figures='positive(j, "p50_ns", "p90_ns", "p99_ns", "max_ns") and j["calls_per_s"] >= 0 and j["bytes_per_s"] >= 0'
compared='positive(j, "base_p50_ns") and j["rounds"] == 7 and j["base_calls_per_s"] >= 0 and
	j["added_ratio_median"] >= 0 and "added_ns_median" in j'

bounded "$farcall" perf bandwidth --bytes 64K,1M --depth 1,4 --seconds 0.1 --json
[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] && json '[(r["bytes"], r["depth"]) for r in j["results"]] ==
	[(65536, 1), (65536, 4), (1 << 20, 1), (1 << 20, 4)] and "bytes" not in j and
	all(positive(r, "p50_ns") and r["bytes_per_s"] >= 0 and r["calls"] >= 0 for r in j["results"])'
ok "bandwidth --json: each size with each depth" $?
bounded "$farcall" perf bandwidth --bytes 8M --depth 4 --seconds 0.35 --floor --json
[ $rc -eq 0 ] && json 'j["bytes"] == 8 << 20 and j["depth"] == 4 and
	positive(j, "floor_copy1_bytes_per_s", "p50_ns") and j["bytes_per_s"] >= 0 and j["ratio_median"] >= 0 and j["rounds"] == 7'
ok "bandwidth --floor --json, a single size: its figures are the object's" $?
for how in '' --release; do
	[ -n "$how" ] || in_full || continue
	# shellcheck disable=SC2086 # none, or an option
	bounded "$farcall" perf bandwidth --memory region $how --bytes 1M --depth 4 --seconds 0.35 --floor --json
	[ $rc -eq 0 ] && json 'positive(j, "floor_in_place_bytes_per_s") and j["bytes_per_s"] >= 0 and j["rounds"] == 7'
	ok "bandwidth --memory region $how: the floor is a read in place" $?
done
bounded "$farcall" perf bandwidth --api rpc --memory region --bytes 64K,100001 --depth 1,4 --seconds 0.35 --json
[ $rc -eq 0 ] && json 'len(j["results"]) == 4 and all(r["in_place"] == 1 and r["copied_in_place"] == 0 and
	r["copied_bytes_per_s"] >= 0 and r["to_copied_median"] >= 0 and positive(r, "p50_ns", "copied_p50_ns") for r in j["results"])'
ok "bandwidth --api rpc --memory region: read in place, and copied by turns" $?
bounded "$farcall" perf bandwidth --api rpc --bytes 1M --depth 4 --seconds 0.1 --json
[ $rc -eq 0 ] && json 'positive(j, "p50_ns") and "in_place" not in j'
ok "bandwidth --api rpc: calls whose arguments are copied" $?
bounded "$farcall" perf bandwidth --bytes 4K --seconds 0.1
[ $rc -eq 0 ] && has out '^ *4 KiB  *1 ' && has out '^ *4 KiB  *4 '
ok "bandwidth: text" $?

bounded "$farcall" perf rref --seconds 0.3 --json
[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] && json '[w["way"] for w in j["ways"]] ==
	["call", "make_and_fetch", "fetch", "method"] and j["bytes"] == 8 and j["references"] == 5000 and
	j["references_seconds"] > 0 and j["ways"][0]["ratio"] == 1 and
	all(positive(w, "p50_ns", "p99_ns", "ratio", "calls") and w["noise"] >= 0 for w in j["ways"])'
ok "rref --json: each way, and many references" $?
if in_full; then
	bounded "$farcall" perf rref --seconds 0.2 --bytes 4K --nic udp
	[ $rc -eq 0 ] && has out 'nic udp, two tensors of 4096 bytes' && has out '^method of an object ' &&
		has out '^5000 references issued, fetched and given back in '
	ok "rref: text, over udp" $?
fi

bounded "$farcall" perf latency --via thread --to self --seconds 0.4 --json
[ $rc -eq 0 ] && json "$figures and $compared and j['base'] == 'direct' and j['to'] == 'self' and j['via'] == 'thread'"
ok "latency --via thread --to self: beside the same call from the held shard" $?
if in_full; then
	bounded "$farcall" perf latency --via thread --to self --api rpc --seconds 0.4 --json
	[ $rc -eq 0 ] && json "$figures and $compared and j['api'] == 'rpc'"
	ok "latency --via thread --to self --api rpc" $?
	bounded "$farcall" perf latency --via thread --to self --seconds 0.35 --floor --json
	disturbed || { [ $rc -eq 0 ] && json "$figures and $compared and positive(j, 'floor_cacheline_rtt_ns') and
		'added_lines_median' in j"; }
	ok "latency --via thread --to self --floor: in round trips of a line" $?
	bounded "$farcall" perf latency --nic udp --to self --seconds 0.35 --floor --json
	disturbed || { [ $rc -eq 0 ] && json 'j["nic"] == "shm" and positive(j, "floor_ring_rtt_ns")'; }
	ok "latency --nic udp --to self: by memory, and its floor" $?
fi
bounded "$farcall" perf latency --to self --seconds 0.2
[ $rc -eq 0 ] && has out 'to this worker itself' && ! has out 'beside it'
ok "latency --to self: text" $?

for kind in fiber blocking; do
	for what in latency rate; do
		case $what,$kind in latency,blocking | rate,fiber) in_full || continue ;; esac
		bounded "$farcall" perf $what --handler $kind --seconds 0.4 --json
		[ $rc -eq 0 ] && json "$figures and $compared and j['base'] == 'inline' and j['handler'] == '$kind'" &&
			has err '^beside it, inline: '
		ok "$what --handler $kind: beside the inline handler" $?
	done
done

for api in message rpc; do
	[ $api = message ] || in_full || continue
	bounded "$farcall" perf rate --shards 3 --api $api --inflight 8 --seconds 0.2 --json
	[ $rc -eq 0 ] && json "$figures and j['shards'] == 3 and j['inflight'] == 8"
	ok "rate --shards 3 --api $api" $?
done
if in_full; then
	bounded "$farcall" perf rate --shards 2 --via thread --handler inline --inflight 8 --seconds 0.2 --json
	[ $rc -eq 0 ] && json "$figures and j['shards'] == 2 and j['via'] == 'thread'"
	ok "rate --shards 2 --via thread" $?
fi

attached='positive(j, "attached_seconds", "attached_rss_bytes", "attached_threads", "attached_files", "attached_maps")'
bounded "$farcall" perf latency --peers 1 --seconds 0.1 --json
[ $rc -eq 0 ] && json "$figures and j['peers'] == 1 and 'attached_agents' not in j"
ok "latency --peers 1" $?
bounded "$farcall" perf latency --peers 64 --seconds 0.2 --json
[ $rc -eq 0 ] && json "$figures and $attached and j['attached_agents'] == 63" && has err '^64 peers attached: 63 idle agents'
ok "latency --peers 64" $?
if in_full; then
	bounded sh -c 'ulimit -Sn 256; exec "$1" perf rate --peers 40 --seconds 0.2 --json' sh "$farcall"
	[ $rc -eq 0 ] && json "$figures and $attached and j['attached_agents'] == 39 and j['attached_files'] > 256"
	ok "rate --peers 40: the soft limit of open files is raised" $?
	files=$(ulimit -Hn)
	if [ "$files" = unlimited ] || [ "$files" -ge 10284 ]; then
		bounded "$farcall" perf latency --peers 1024 --seconds 0.2 --json
		[ $rc -eq 0 ] && json "$figures and $attached and j['peers'] == 1024 and j['attached_agents'] == 1022"
		ok "latency --peers 1024" $?
	else
		skip "latency --peers 1024" "a hard limit of 10284 open files (ulimit -Hn)"
	fi
fi
bounded sh -c 'ulimit -n 600; exec "$1" perf latency --peers 1024' sh "$farcall"
[ $rc -eq 1 ] && says "--peers 1024 needs 10284 open files in one process, the hard limit is 600; raise it" &&
	says "give at most --peers 54"
ok "--peers beyond the hard limit of open files" $?

groups='[(r["workers"], r["rounds"]) for r in j["results"]] == [(2, 2), (5, 2)] and
	all(positive(r, "start_ns", "start_ns_max", "stop_ns", "stop_ns_max", "threads", "rss_bytes", "rss_bytes_max",
	"bare_rss_bytes") and r["noise"] is None and r["start_ns"] <= r["start_ns_max"] and r["stop_ns"] <= r["stop_ns_max"] and
	r["bare_rss_bytes"] < r["rss_bytes"] <= r["rss_bytes_max"] for r in j["results"])'
for nic in auto udp; do
	[ $nic = auto ] || in_full || continue
	bounded "$farcall" perf start --workers 2,5 --rounds 2 --nic $nic --json
	[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] && json "$groups and j['nic'] == '$nic'" &&
		has err '^workers  *start ms'
	ok "start --json, nic $nic: both groups, each way, and what a worker holds" $?
done
bounded "$farcall" perf start --workers 3 --rounds 1 --nic udp:sloth=1
[ $rc -eq 1 ] && says sloth && has err '^farcall perf start: ' && gone 'perf [s]tarting'
ok "start: a worker fails, and none is left" $?

# A cut is measured only with the right to make namespaces.
unshare -n true 2>/dev/null && cuts=True || cuts=False
bounded "$farcall" perf group --rounds 1 --seconds 0.1 --json
[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] && has err '^figure  *time' &&
	json '[(r["figure"], r["time"]) for r in j["results"] if r["figure"] != "cut"] == [("kill", "call"), ("kill", "member"),
		("stop", "call"), ("stop", "member"), ("restart", "answer"), ("restart", "full rate"), ("alone", "p99"),
		("joins", "p99"), ("joins", "join")] + [(w, t) for w in ("nothing", "samples", "spans", "metrics")
		for t in ("p50", "p99")] and all(positive(r, "rounds", "median_ns", "max_ns") for r in j["results"]) and
		all(r["median_ns"] >= j["lease_ns"] for r in j["results"] if r["figure"] == "stop" and r["time"] == "member") and
		any(r["figure"] == "cut" for r in j["results"]) == '$cuts
ok "group --json: every figure, and a lease is waited for" $?
bounded "$farcall" perf group --rounds 1 --nic udp:sloth=1
[ $rc -eq 1 ] && says sloth
ok "group: a worker fails" $?

bounded "$farcall" perf share --seconds 0.3 --pairs 3 --inflight 8 --json
[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] && has err '^3 pairs together' &&
	json 'j["pairs"] == 3 and j["inflight"] == 8 and positive(j, "one_calls_per_s", "all_calls_per_s", "one_cpu_ns",
		"all_cpu_ns", "ratio_median", "cpu_ratio_median", "rounds")'
ok "share --json: one pair and all, calls and CPU time" $?
bounded "$farcall" perf share --seconds 0.3 --nic udp:sloth=1
[ $rc -eq 1 ] && says sloth && says 'pair 1 of 2'
ok "share: a worker fails" $?

# A driver that does not exist is refused once, before any process starts.
for measurement in latency rate bandwidth fanout rref ps trace idle wake memory start group share floor; do
	bounded "$farcall" perf $measurement --nic shm,slot
	[ $rc -eq 1 ] && [ ! -s "$dir/out" ] && [ "$(wc -l <"$dir/err")" -eq 1 ] &&
		has err "^farcall perf $measurement: --nic: there is no NIC driver \"slot\"; .farcall info. lists them"
	ok "$measurement --nic: a driver that does not exist" $?
done
bounded "$farcall" perf latency --nic udp --server-nic 'udp;;'
[ $rc -eq 1 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && says '--server-nic: nic: entry'
ok "latency --server-nic: no list of drivers" $?

# The helper's end is the end of its parent, however that comes.
cp "$farcall" "$dir/farcall-killed"
"$dir/farcall-killed" perf latency --peers 8 --seconds 50 >"$dir/out" 2>"$dir/err" </dev/null &
pid=$!
helper_there() { pgrep -f "perf attached.*--peers 8 " >/dev/null; }
eventually helper_there
there=$?
kill -9 $pid
wait $pid 2>/dev/null
rc=$?
[ $there -eq 0 ] && eventually sh -c '! pgrep -f "perf [a]ttached.*--peers 8 " && ! pgrep -f "perf [p]eer.*--peers 8" ' >/dev/null
ok "killed: neither server nor idle agents are left" $?

# ---- two processes, each started by itself ----

# Starts a listener on a free port: $serve its process, $at where.
serve() {
	rm -f "$dir/serve.out" "$dir/serve.err" # what an earlier one said
	"$farcall" perf serve --listen 127.0.0.1:0 "$@" >"$dir/serve.out" 2>"$dir/serve.err" </dev/null &
	serve=$!
	eventually grep -qs 'listening on' "$dir/serve.out"
	at=$(sed -n 's/.*listening on //p' "$dir/serve.out")
}
# The listener's end: its status in $rc, what it said in err.
served() {
	wait "$serve"
	rc=$?
	cp "$dir/serve.err" "$dir/err"
}

for what in latency rate 'latency --api rpc' 'latency --handler fiber' 'latency --via thread' 'rate --shards 2'; do
	case $what in latency | 'rate --shards 2') ;; *) in_full || continue ;; esac
	serve --shards 2
	# shellcheck disable=SC2086 # words of a command
	bounded "$farcall" perf $what --connect "$at" --seconds 0.2 --json
	[ $rc -eq 0 ] && json "$figures and j['nic'] == 'shm'"
	ok "serve, $what --connect" $?
	served
	[ $rc -eq 0 ] && says "the measuring process has left"
	ok "serve ends with it" $?
done
serve
bounded "$farcall" perf bandwidth --bytes 64K --depth 2 --connect "$at" --seconds 0.2 --floor --json
[ $rc -eq 0 ] && json 'positive(j, "floor_copy1_bytes_per_s") and j["bytes_per_s"] >= 0'
ok "serve, bandwidth --connect --floor: the floor runs in the same two processes" $?
served
[ $rc -eq 0 ]
ok "serve ends with that, too" $?
serve
bounded "$farcall" perf latency --connect "$at" --seconds 0.4 --floor --json
disturbed || { [ $rc -eq 0 ] && json "$figures and positive(j, 'floor_ring_rtt_ns', 'ratio_median')"; }
ok "serve, latency --connect --floor" $?
served

serve
bounded "$farcall" perf rate --shards 2 --connect "$at" --seconds 0.2
[ $rc -eq 1 ] && says "the listener has 1 shards; start it with --shards 2" && [ ! -s "$dir/out" ]
ok "--connect: too few shards there" $?
served
[ $rc -eq 0 ]
ok "serve ends well all the same" $?

serve
bounded "$farcall" perf serve --listen "$at"
[ $rc -eq 1 ] && says "cannot listen on $at: Address already in use; choose another port, or 0 for any that is free"
ok "serve: the port is taken" $?
for signal in INT TERM; do
	kill -$signal "$serve"
	served
	[ $rc -eq 0 ] && says "before a client connected" && [ "$(wc -l <"$dir/err")" -eq 1 ]
	ok "serve: SIG$signal while it waits" $?
	[ $signal = TERM ] || serve
done
bounded "$farcall" perf latency --connect "$at" --timeout 0.3
[ $rc -eq 1 ] && says "$at, did not answer within" && [ ! -s "$dir/out" ]
ok "--connect: nobody listens there" $?
bounded "$farcall" perf serve --listen 127.0.0.1:0 --timeout 0.2
[ $rc -eq 1 ] && says "no client connected; start 'farcall perf latency --connect 127.0.0.1:"
ok "serve --timeout: nobody comes" $?

# Somebody measures, until one of the two is ended.
measured() {
	serve
	"$farcall" perf latency --connect "$at" --seconds 50 >"$dir/client.out" 2>"$dir/client.err" </dev/null &
	client=$!
	eventually grep -qs ': serving' "$dir/serve.err"
}
measured
kill -TERM "$serve"
served
[ $rc -eq 0 ] && says "ended by signal 15"
ok "serve: SIGTERM while somebody measures" $?
wait "$client"
rc=$?
cp "$dir/client.err" "$dir/err"
[ $rc -eq 1 ] && says "PEER_LOST"
ok "--connect: the listener was ended" $?
measured
kill -9 "$client"
wait "$client" 2>/dev/null
served
[ $rc -eq 1 ] && says "the measuring process died"
ok "serve: who measured was killed" $?

# What is no `farcall perf serve`: another group of two, hosted by the program itself.
bounded "$farcall" run -n 2 -- sh -c 'if [ "$RANK" = 0 ]; then exec "$0" train --servers 1 --rank 0 --world-size 2 --timeout 3; fi
	unset RANK WORLD_SIZE
	"$0" perf latency --connect "$MASTER_ADDR:$MASTER_PORT" --timeout 5 --seconds 0.1
	[ $? -eq 1 ] && exit 7' "$farcall"
[ $rc -ne 0 ] && says "is no 'farcall perf serve' of farcall"
ok "--connect: what listens there is something else" $?

bounded "$farcall" run -n 2 -- sh -c 'if [ "$RANK" = 0 ]; then exec "$1" 9.8.7; fi
	"$0" perf latency --connect "$MASTER_ADDR:$MASTER_PORT" --timeout 20 --seconds 0.1
	[ $? -eq 1 ]' "$farcall" "$other"
[ $rc -eq 0 ] && says "is farcall 9.8.7, this is " && says "use the same build on both sides"
ok "--connect: a listener of another version" $?

# Open loops, beside the closed ones: a row for each rate.
for what in 'rate' 'rate --api rpc' 'latency' 'latency --api rpc' 'bandwidth --bytes 64K' 'fanout --targets 4' rref; do
	case $what in rate | latency* | 'rate --api rpc') in_full || continue ;; esac # in perf_trace.sh, too
	# shellcheck disable=SC2086 # words of a command line
	bounded "$farcall" perf $what --rate 200,300 --seconds 0.1 --csv
	[ $rc -eq 0 ] && has out '^measurement,.*,rate,.*,p50_ns,' && [ "$(lines_of_out)" -eq 3 ] && has out '^load,.*,300,' &&
		has out ',noise'
	ok "$what --rate" $?
done

# ---- what is refused ----

refuses "an unknown flag, bandwidth" "unknown option --frobnicate" bandwidth --frobnicate
refuses "an unknown flag, serve" "unknown option --frobnicate" serve --frobnicate
refuses "a size that is no tensor, rref" "give a multiple of 4" rref --bytes 6
refuses "a flag of another measurement" "unknown option --inflight" latency --inflight 3
refuses "a size in a list" "--bytes: 65M is out of range; give a size" bandwidth --bytes 64K,65M
refuses "an empty size" "is not a size" bandwidth --bytes 64K,,1M
refuses "an open loop of typed calls" "--api rpc: --rate sends messages" bandwidth --api rpc --rate 10
refuses "typed calls from other memory" "--api rpc: --release goes with --memory region" bandwidth --api rpc --release
refuses "a depth of 0" "--depth: 0 is out of range" bandwidth --depth 1,0
refuses "too many sizes" "--bytes: too many values; give at most 16" bandwidth --bytes 8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8
refuses "serve without --listen" "give --listen HOST:PORT" serve
refuses "a listener without a port" '"localhost" is not HOST:PORT' serve --listen localhost
refuses "port 0 to connect to" "the port is not a number from 1 to 65535" latency --connect 127.0.0.1:0
refuses "IPv6 without brackets" "write an IPv6 address in brackets" rate --connect ::1:7
refuses "unknown security" 'it can be none, or be left out' serve --listen 127.0.0.1:0 --security some
refuses "timeout of processes of our own" "--timeout goes with --connect" rate --timeout 3
refuses "--peers 0" "--peers: 0 is out of range" latency --peers 0
refuses "--peers 1025" "--peers: 1025 is out of range" latency --peers 1025
refuses "--peers with --connect" "--peers needs processes of its own" latency --peers 2 --connect 127.0.0.1:7
refuses "--to self with --connect" "--to self needs processes of its own" latency --to self --connect 127.0.0.1:7
refuses "--peers with a hand-over" "--peers measures the usual call" latency --peers 2 --via thread
refuses "--handler with --api rpc" "far::add is an inline handler" rate --handler fiber --api rpc
refuses "--handler with a hand-over" "give one of them at a time" latency --handler fiber --via thread
refuses "an unknown kind" "give one of: inline, fiber, blocking" latency --handler none
refuses "too many shards" "--shards: 17 is out of range" rate --shards 17
refuses "the helper by itself" "started by farcall perf latency and rate only" attached
refuses "a worker of start by itself" "started by farcall perf start only" starting
refuses "groups of 257" "--workers: 257 is out of range" start --workers 2,257
refuses "no rounds" "--rounds: 0 is out of range" start --rounds 0
refuses "the peer by itself" "started by the other measurements only" peer
bounded "$farcall" perf serve --listen 0.0.0.0:0
[ $rc -eq 1 ] && says "0.0.0.0 is not a loopback address; listen on 127.0.0.1, or pass --security none"
ok "refused: to listen beyond loopback" $?

finish

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What small packets take on soft-RoCE, by the programs of others and by ours, in turns. For floor.sh: a record, no test.
# usage: floor.sh [ROUNDS]
. "$VM_TOP/tests/vm/guest.sh"
unset FAR_MODULE_DIR
modprobe rdma_rxe && rdma link add rxe0 type rxe netdev lo
ok "soft-RoCE on loopback" $?
listens() { ss -ltn | grep -q ":$1 "; }

# Two ends of a program: the second gets the address of the first; both are bounded.
ends() { # port, program and arguments...
	port=$1
	shift
	timeout -k 10 "$guard_s" "$@" >"$dir/server" 2>&1 </dev/null &
	server=$!
	within 60 listens "$port"
	bounded "$@" 127.0.0.1
	far_end=$rc
	reap "$server" 60 "$1"
	[ "$rc" -eq 0 ] || cat "$dir/server"
	rc=$((far_end + rc))
}
for round in $(seq "${1:-3}"); do
	ends 18515 ib_send_lat -d rxe0 -x 1 -c UD -s 64 -n 5000
	did "ib_send_lat, round $round"
	# A line of figures behind two heads: bytes, iterations, least, most, typical, average, deviation, 99 %.
	log "figure ib_send_lat $(awk '$1 == 64 { print 2 * $5, 2 * $8 }' "$dir/out")"
	ends 18515 ibv_ud_pingpong -d rxe0 -g 1 -s 64 -n 5000
	did "ibv_ud_pingpong, round $round"
	log "figure ibv_ud_pingpong $(sed -n 's|.*= *\([0-9.]*\) usec/iter|\1 -|p' "$dir/out")"
	bounded "$VM_BUILD/farcall" perf floor --nic verbs --seconds 3 --json
	did "farcall perf floor, round $round"
	log "figure raw $(tail -n 1 "$dir/out" | sed -n 's/.*"raw_rtt_p50_ns": \([0-9]*\).*"raw_rtt_p99_ns": \([0-9]*\).*/\1 \2/p' | awk '{ print $1 / 1000, $2 / 1000 }')"
	bounded "$VM_BUILD/farcall" perf latency --nic verbs --seconds 3 --json
	did "farcall perf latency, round $round"
	cp "$dir/out" "$VM_RUN/latency-$round.json"
	log "figure farcall $(tail -n 1 "$dir/out" | sed -n 's/.*"p50_ns": \([0-9]*\).*"p99_ns": \([0-9]*\).*/\1 \2/p' | awk '{ print $1 / 1000, $2 / 1000 }')"
done
rdma link delete rxe0
finish

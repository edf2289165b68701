# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Groups of processes over the whole transport, by soft-RoCE on loopback: the programs that also run over udp.
# usage: e2e.sh [all]    all: every one of them, which takes some minutes; else those of CI
. "$VM_TOP/tests/vm/guest.sh"
unset FAR_MODULE_DIR
modprobe rdma_rxe && rdma link add rxe0 type rxe netdev lo
ok "soft-RoCE on loopback" $?
export FAR_NIC=verbs FAR_RUNTIME_DIR="$dir/runtime"
mkdir -m 700 "$FAR_RUNTIME_DIR"
# shellcheck disable=SC3045 # dash has it
ulimit -n 8192
group() { # program, workers; 0: it starts them itself
	if [ "$2" -gt 0 ]; then
		bounded "$VM_BUILD/farcall" run -n "$2" -- "$VM_BUILD/tests/e2e/$1"
	else
		bounded "$VM_BUILD/tests/e2e/$1"
	fi
	did "$1"
}
large() { # what of it
	bounded "$VM_BUILD/tests/e2e/api_large" "$1"
	did "api_large $1"
}
group api_message 2
group api_values 4
group api_cancel 2
group api_retry 0
group api_fanout 0
if [ "${1:-}" = all ]; then
	group api_rpc 2
	group api_object 4
	group api_rref 4
	group api_deferred 3
	group api_deadline 2
	group api_group 0
	for name in object_death shutdown death rref_death faults drain restart fibers blocking fiber_cancel shards fanout_ends; do
		group "api_$name" 0
	done
	large both
	large death0
	large death1
fi
rdma link delete rxe0
ok "all is taken down" $?
finish

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Groups of processes over the whole transport, by RDMA devices: the programs that also run over udp.
# usage: e2e.sh rxe [all]     by soft-RoCE on loopback
#        e2e.sh siw [all]     by siw, the kernel's iWARP, with vm.sh's --siw
#        e2e.sh pair [all]    by soft-RoCE between two machines that are joined by card 0: even ranks are A's, odd ones
#                             B's; the programs that start no workers themselves
# all: every one of them, which takes some minutes; else those of CI
. "$VM_TOP/tests/vm/guest.sh"
unset FAR_MODULE_DIR
kind=$1
here=1 first=0
[ "$VM_ID" = A ] || here=2 first=1

# shellcheck disable=SC3045 # dash has it
ulimit -n 8192
case $kind in
rxe)
	modprobe rdma_rxe && rdma link add rxe0 type rxe netdev lo
	;;
siw)
	siw_begin
	;;
pair)
	bind 0 kernel && at=$(interface 0) && ip addr replace "10.7.0.$here/24" dev "$at" && ip link set "$at" up &&
		modprobe rdma_rxe && rdma link add rxe0 type rxe netdev "$at"
	;;
esac
ok "a device" $?
# Its address leads to other hosts, but for loopback's.
[ "$kind" = rxe ] || export FAR_SECURITY=none
export FAR_NIC=verbs FAR_RUNTIME_DIR="$dir/runtime"
mkdir -m 700 "$FAR_RUNTIME_DIR"

# This machine's workers of a group. The status is that of one that failed.
divided() { # program, workers
	meet "$1"
	rc=0
	i=$first
	while [ "$i" -lt "$2" ]; do
		MASTER_ADDR=10.7.0.1 MASTER_PORT=7078 WORLD_SIZE=$2 RANK=$i timeout -k 10 "$guard_s" "$VM_BUILD/tests/e2e/$1" \
			>"$dir/out-$i" 2>"$dir/err-$i" </dev/null &
		eval "worker$i=$!"
		i=$((i + 2))
	done
	i=$first
	while [ "$i" -lt "$2" ]; do
		eval "wait \$worker$i" || rc=$?
		i=$((i + 2))
	done
	cat "$dir"/out-* >"$dir/out"
	cat "$dir"/err-* >"$dir/err"
	rm "$dir"/out-* "$dir"/err-*
	did "$1, $2 workers on two machines"
}
group() { # program, workers; 0: it starts them itself
	if [ "$kind" = pair ]; then
		divided "$@"
		return
	fi
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
all=${2:-}
alone() { [ "$kind" != pair ]; }
group api_message 2
group api_values 4
# Cancelling and fan-outs are the same by connections: those of CI run over datagrams.
if alone; then
	group api_retry 0
fi
[ "$kind" != rxe ] && [ "$all" != all ] || group api_cancel 2
[ "$kind" != rxe ] && { [ "$all" != all ] || ! alone; } || group api_fanout 0
if [ "$all" = all ]; then
	group api_rpc 2
	group api_object 4
	group api_rref 4
	group api_deferred 3
	group api_deadline 2
fi
if [ "$all" = all ] && alone; then
	group api_group 0
	for name in object_death shutdown death rref_death faults drain restart fibers blocking fiber_cancel shards fanout_ends; do
		group "api_$name" 0
	done
	large both
	large death0
	large death1
fi
alone || meet left
if [ "$kind" = siw ]; then siw_end; else rdma link delete rxe0; fi
ok "all is taken down" $?
finish

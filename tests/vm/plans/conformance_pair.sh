# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The reference's tests on two machines that are joined by card 0, by soft-RoCE between them: of each group the workers 0
# and 2 are A's, 1 and 3 are B's, so that peer(1) is always on the other machine.
# usage: conformance_pair.sh [WHICH]
# WHICH: "all"; or a pattern of Criterion's, '@(A*|B*)/*'. Else those of CI.
. "$VM_TOP/tests/vm/guest.sh"
unset FAR_MODULE_DIR

here=1 ranks=02
[ "$VM_ID" = A ] || here=2 ranks=13
bind 0 kernel && at=$(interface 0) && ip addr add "10.7.0.$here/24" dev "$at" && ip link set "$at" up
ok "a card" $?
modprobe rdma_rxe && rdma link add rxe0 type rxe netdev "$at"
ok "soft-RoCE on it" $?
some=${1:-@(G1|I1)/*}
[ "$some" != all ] || some='*'
# shellcheck disable=SC2034 # guest.sh's
guard_s=1600
numbers=$VM_RUN/divided-$VM_PLAN_N
results=$VM_RUN/results-$VM_PLAN_N-$VM_ID
mkdir -p "$numbers" "$results"
meet devices
export FAR_CONFORM_OPEN=1 FAR_CONFORM_RANKS=$ranks FAR_CONFORM_MEET="$numbers" FAR_CONFORM_HOST=10.7.0.1
# One at a time: both machines are at the same test then.
bounded sh "$VM_TOP/tests/conformance/conformance.sh" verbs "$VM_BUILD/tests/conformance/conformance" "$results" \
	--jobs 1 --filter "$some"
cat "$dir/out" "$dir/err" >"$VM_RUN/conformance-pair-$VM_ID"
did "the reference's tests"
reference_passed "$results/verbs"
meet end
rdma link delete rxe0
ok "all is taken down" $?
finish

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The reference's tests, over RDMA devices or network cards: four workers each time.
# usage: conformance.sh verbs [WHICH]          by soft-RoCE on loopback
#        conformance.sh iwarp [WHICH]          by siw, with vm.sh's --siw
#        conformance.sh cards DRIVER [WHICH]   a card for each worker, 0 to 3, of uio_pci_generic or vfio-pci
# WHICH: "all", 3 to 5 minutes by RDMA devices and about 10 over cards; or a pattern of Criterion's, '@(A*|B*)/*'. Else those
# of CI. The result of each test is written to $VM_RUN at once, so that a run that is ended leaves its results.
. "$VM_TOP/tests/vm/guest.sh"
kind=$1
shift
# Criterion's patterns: suite/test.
case $kind in
verbs)
	unset FAR_MODULE_DIR
	some='@(B1|I2)/*' # conformance_pair.sh has G1 and I1
	at_once=2
	modprobe rdma_rxe && rdma link add rxe0 type rxe netdev lo
	ok "soft-RoCE on loopback" $?
	;;
iwarp)
	unset FAR_MODULE_DIR
	some='G1/*'
	at_once=2
	siw_begin
	ok "siw on an interface of this host" $?
	export FAR_CONFORM_OPEN=1
	;;
cards)
	driver=$1
	shift
	some='G1/*'
	at_once=1 # a card serves one process
	huge_pages 512
	bound=0
	for i in 0 1 2 3; do
		bind $i "$driver" || bound=1
		FAR_CONFORM_CARDS="${FAR_CONFORM_CARDS:-}${FAR_CONFORM_CARDS:+ }$(card $i)"
	done
	ok "four cards of $driver" $bound
	export FAR_CONFORM_CARDS FAR_CONFORM_KEYS=,rxd=256,txd=256
	;;
esac
some=${1:-$some}
[ "$some" != all ] || some='*'
guard_s=3000
results=$VM_RUN/results-$VM_PLAN_N
over=$kind
[ "$kind" != iwarp ] || over=verbs
mkdir "$results"
bounded sh "$VM_TOP/tests/conformance/conformance.sh" "$over" "$VM_BUILD/tests/conformance/conformance" "$results" \
	--jobs "$at_once" --filter "$some"
cp "$dir/out" "$VM_RUN/conformance-$kind"
cat "$dir/err" >>"$VM_RUN/conformance-$kind"
did "the reference's tests"
reference_passed "$results/$over"
[ "$kind" != verbs ] || rdma link delete rxe0
[ "$kind" != iwarp ] || siw_end
finish

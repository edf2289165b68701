# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Two workers, each with a network card of its own, which DPDK takes over; the cards are joined. Calls, cables that are
# pulled, training.
# usage: calls.sh [--brief|--lost] DRIVER [KEY=VALUE]...    uio_pci_generic or vfio-pci; keys of both ports
# --brief: only what another card or driver may make different; --lost: only the report of a pulled cable
. "$VM_TOP/tests/vm/guest.sh"
brief= lost=
if [ "$1" = --brief ]; then
	brief=yes
	shift
elif [ "$1" = --lost ]; then
	lost=yes
	shift
fi
driver=$1
shift
keys=
for key; do
	keys="$keys,$key"
done
farcall=$VM_BUILD/farcall
huge_pages 384
bind 0 "$driver" && bind 1 "$driver"
ok "cards of $driver" $?
guard_s=420
CARD0=$(card 0) CARD1=$(card 1) KEYS=$keys MORE=
export CARD0 CARD1 KEYS MORE FARCALL="$farcall"

# shellcheck disable=SC2016 # for the workers
worker='[ "$RANK" -eq 0 ] && at=$CARD0,ip=10.8.0.1/24 || at=$CARD1,ip=10.8.0.2/24
	export FAR_NIC="dpdk:$at$KEYS$MORE"
	[ "$RANK" -ne 0 ] || exec "$@"
	"$@" || {
		failed=$?
		"$FARCALL" debug --metrics text worker0 >&2
		exit $failed
	}'
both() { bounded "$farcall" run -n 2 -- sh -c "$worker" worker "$@"; }
cable() { echo "python3 $VM_TOP/tests/vm/monitor.py $(echo /dev/vport*p1) '$(set_link 1 "$1")' >&2"; }

cable_stays_pulled() {
	both "$VM_BUILD/tests/vm/card_calls" lost "$(cable false)" "$(cable true)"
	did "a cable stays pulled"
	log "$(grep -h "nothing was received" "$dir/err" | head -n 1)"
	has err "nothing was received .*the link of $CARD1 is down: see its cable"
	ok "which is said" $?
}
if [ -n "$lost" ]; then
	cable_stays_pulled
	finish
fi
both "$VM_BUILD/tests/nic/agents_net" 1 1000000 400
did "calls of any size"
log "$(grep -h by "$dir/out" | head -n 1)"
both "$VM_BUILD/tests/nic/agents_net" 3 100000 400
did "three shards each"
both "$VM_BUILD/tests/e2e/in_place_dpdk" dpdk 1200 400
did "received where the card has written it"
IN_PLACE_COPIED=loop
export IN_PLACE_COPIED
both "$VM_BUILD/tests/e2e/in_place_dpdk_copied" dpdk 1200 400
[ "$rc" -ne 0 ] && has err 'is elsewhere'
ok "a copy is found" $?
both "$VM_BUILD/tests/vm/card_calls" waits "$(cable false)" "$(cable true)"
did "a cable is pulled and put back"
if [ -z "$brief" ]; then
	MORE=';udp'
	both "$VM_BUILD/tests/vm/card_calls" other "$(cable false)" "$(cable true)"
	did "another network meanwhile"
	MORE=
	cable_stays_pulled
fi
link 1 down
MORE=';udp'
both "$VM_BUILD/tests/vm/card_calls" never
did "a cable that was never there"
log "$(grep -h "is down" "$dir/err" | head -n 1)"
MORE=
if [ -z "$brief" ]; then
	both "$VM_BUILD/tests/vm/card_calls" joins
	did "and nobody joins without another network"
	log "$(grep -h "worker1: " "$dir/err" | head -n 1)"
fi
link 1 up
[ -z "$brief" ] || finish

bounded "$farcall" perf latency --security none --nic "dpdk:$CARD0,ip=10.8.0.1/24$keys" \
	--server-nic "dpdk:$CARD1,ip=10.8.0.2/24$keys" --seconds 1
did "farcall perf latency"
log "$(grep -h -i p50 "$dir/out" | head -n 1)"
both "$farcall" train --security none --servers 1 --workers 1 --rows 4000 --test-rows 1000 --features 50 --epochs 2 \
	--timeout 100
did "farcall train"
log "$(grep -h accuracy "$dir/out" | head -n 1)"
finish

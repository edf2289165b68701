# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Two machines joined by card 0, which DPDK takes over in both, and by card 1, the kernel's, where the store is: packets of
# all sizes, a group of two workers, and the other machine's kernel, which resolves the address and pings.
# usage: pair_cards.sh DRIVER [KEY=VALUE]...    keys of both ports
. "$VM_TOP/tests/vm/guest.sh"
driver=$1
shift
keys=
for key; do
	keys="$keys,$key"
done
here=1 there=2 rank=0
[ "$VM_ID" = A ] || here=2 there=1 rank=1
bind 1 kernel && at=$(interface 1) && ip addr replace "10.7.0.$here/24" dev "$at" && ip link set "$at" up
ok "a card of the kernel's" $?
huge_pages 192
bind 0 "$driver"
ok "a card of $driver" $?
port="$(card 0),ip=10.8.0.$here/24$keys"
meet bound

peers=$VM_RUN/peers-$VM_PLAN_N
mkdir -p "$peers"
bounded "$VM_BUILD/tests/nic/nic_peer" --dir "$peers" --index "$rank" --peers 2 --driver dpdk --args "$port" --calls 60 \
	--patience 120
did "packets of all sizes between two machines"
log "$(tail -n 1 "$dir/out")"
meet exchanged
bounded env MASTER_ADDR=10.7.0.1 MASTER_PORT=7077 WORLD_SIZE=2 RANK=$rank FAR_NIC="dpdk:$port" \
	"$VM_BUILD/tests/nic/agents_net" 1 100000 200
did "a group of two machines"
shows "by their cards" out "by dpdk at dpdk 10.8.0.$there:"
meet called

# A's card stays DPDK's, B's goes back to the kernel.
if [ "$VM_ID" = A ]; then
	hold_card "$port"
	meet held
	meet pinged
	let_card_go
else
	bind 0 kernel && at=$(interface 0) && ip addr add "10.8.0.2/24" dev "$at" && ip link set "$at" up
	ok "B's card goes back to its kernel" $?
	meet held
	answers() { ping -c 2 -W 5 10.8.0.1 >"$dir/out" 2>&1; }
	within 120 answers
	ok "the other machine's kernel gets answers" $?
	bounded ip neigh show 10.8.0.1
	shows "and A's MAC address" out "lladdr 52:54:00:0a:00:0"
	ip addr flush dev "$at"
	meet pinged
fi
finish

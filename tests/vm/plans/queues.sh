# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Cards with several queues, one for each shard: whom a packet reaches is the card's to choose, by a hash, so senders try
# paths until it is the right one. With one shard more than queues they share the first.
# usage: queues.sh QUEUES
. "$VM_TOP/tests/vm/guest.sh"
farcall=$VM_BUILD/farcall
huge_pages 384
bind 0 uio_pci_generic && bind 1 uio_pci_generic
ok "cards" $?
# shellcheck disable=SC3045 # dash has it
ulimit -n 8192
guard_s=390 # before the workers' own alarm, so that the stacks of their threads are printed
bounded "$VM_BUILD/tests/nic/nic_conformance" --open --slow 6 --case 'several queues' \
	--case 'several queues of one port' --driver dpdk --args "$(card 0),ip=10.8.0.1/24" --args "$(card 1),ip=10.8.0.2/24"
did "several queues, of two ports and of one"
log "$(tail -n 1 "$dir/out")"
CARD0="$(card 0),ip=10.8.0.1/24"
CARD1="$(card 1),ip=10.8.0.2/24"
export CARD0 CARD1
# shellcheck disable=SC2016 # for the workers
worker='[ "$RANK" -eq 0 ] && FAR_NIC="dpdk:$CARD0" || FAR_NIC="dpdk:$CARD1"
	export FAR_NIC
	exec "$@"'
for shards in "$1" $(($1 + 1)); do
	bounded "$farcall" run -n 2 -- sh -c "$worker" worker "$VM_BUILD/tests/nic/agents_net" "$shards" 100000 400
	did "$shards shards, $1 queues"
done
finish

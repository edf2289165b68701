# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# DPDK takes over two network cards of the machine, which are joined: what every driver promises, on them.
# usage: cards.sh [--brief|--fewer] uio_pci_generic|vfio-pci [KEY=VALUE]...    keys of both ports
# --brief: what cards, rings and the memory they write to may break, with fewer repetitions; --fewer: all, with these
. "$VM_TOP/tests/vm/guest.sh"
some=
case $1 in
--brief | --fewer)
	some=$1
	shift
	;;
esac
driver=$1
shift
keys=
for key; do
	keys="$keys,$key"
done

huge_pages 256
bind 0 "$driver" && bind 1 "$driver"
ok "cards of $driver" $?
# shellcheck disable=SC3045 # dash has it
ulimit -n 8192
guard_s=800
set --
[ -z "$some" ] || set -- --brief
if [ "$some" = --brief ]; then
	# The same names are those of cases with a link over it, where there are such.
	for case in sizes bursts 'held packets' 'ring full' wake 'close with places left' 'two processes'; do
		set -- "$@" --case "$case"
	done
fi
bounded "$VM_BUILD/tests/nic/nic_conformance" --open --slow 6 "$@" --driver dpdk --args "$(card 0),ip=10.8.0.1/24$keys" \
	--args "$(card 1),ip=10.8.0.2/24$keys"
did "conformance"
log "$(tail -n 1 "$dir/out")"
cp "$dir/out" "$VM_RUN/conformance-$VM_PLAN_N"
finish

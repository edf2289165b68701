# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What `farcall info` says of a network card, and of what is missing, as it goes from the kernel to DPDK.
# usage: info.sh DRIVER    uio_pci_generic or vfio-pci; the machine has an IOMMU, or not
. "$VM_TOP/tests/vm/guest.sh"
driver=$1
farcall=$VM_BUILD/farcall
card=$(card 0)
# An answer as of a worker on that card: by root, or in front of it $as_user.
info() { bounded "$@" "$farcall" info --security none --nic "dpdk:$card,ip=10.8.0.1/24"; }

huge_pages 0
bind 0 kernel
info env
shows "a card of the kernel's" out "chosen .*nothing: .*$card .* is the kernel's $(interface 0), driver [a-z0-9-]*: .*dpdk-devbind.py -b $driver $card"
bind 0 none
info env
shows "a card without a driver" out "not ready: $card (.*) has no driver: .modprobe $driver; dpdk-devbind.py -b $driver $card. as root"
bind 0 "$driver"
if [ "$driver" = uio_pci_generic ]; then
	info env
	shows "huge pages are missing" out "a card under uio needs 16 MiB of huge pages.*sysctl vm.nr_hugepages=64"
	huge_pages 128
	# shellcheck disable=SC2086 # words
	info $as_user
	shows "rights are missing" out "$card is bound to uio_pci_generic, which only root can use"
else
	# shellcheck disable=SC2086
	info $as_user
	shows "rights are missing" out "no permission for /dev/vfio/[0-9]*: .chown 65534 /dev/vfio/"
	info env
	shows "without huge pages" out "^  dpdk 10.8.0.1:7471"
	huge_pages 128
	chown 65534 /dev/vfio/*
	# shellcheck disable=SC2016,SC2086
	info sh -c 'ulimit -l unlimited; exec "$@"' sh $as_user
	shows "a user with the rights" out "^  dpdk 10.8.0.1:7471"
fi
# The text goes to stderr with --json.
FAR_DPDK="$card" bounded "$farcall" info --security none --json --nic "dpdk:$card,ip=10.8.0.1/24"
shows "the port" err "^  dpdk 10.8.0.1:7471"
shows "the card" err "^  $card (.*, $driver): ready"
python3 - "$dir/out" "$card" "$driver" <<'END'
import json, sys
j = json.loads(open(sys.argv[1]).read().splitlines()[-1])
dpdk = [d for d in j["nic"]["drivers"] if d["name"] == "dpdk"] if "nic" in j else [d for d in j["drivers"] if d["name"] == "dpdk"]
cards = j["nic"]["cards"] if "nic" in j else j["cards"]
mine = [c for c in cards if c["address"] == sys.argv[2]]
assert dpdk[0]["available"] and sys.argv[2] in dpdk[0]["remark"], dpdk
assert mine[0]["ready"] and mine[0]["driver"] == sys.argv[3], cards
END
ok "the same as JSON" $?
bounded "$farcall" info --nic "dpdk:$card"
shows "other hosts only when it is said" out "$card leads to other hosts.*security=none"
bounded "$farcall" info --security none --nic dpdk:0000:7f:1f.7
shows "no such card" out "there is no PCI device 0000:7f:1f.7"
hold_card "$card,ip=10.8.0.1/24"
info env
has out "$card is another process' already, and a card serves one"
ok "a card serves one process" $?
let_card_go
info env
shows "and then the next" out "^  dpdk 10.8.0.1:7471"
if [ "$driver" = vfio-pci ]; then
	group=$(readlink "/sys/bus/pci/devices/$card/iommu_group")
	exec 9<>"/dev/vfio/${group##*/}" # as a program that knows of no claims
	info env 9>&-
	shows "a card that another process has" out "another process has it, and a card serves one: one card, or one virtual function"
	exec 9>&-
	info env
	shows "it has let it go" out "^  dpdk 10.8.0.1:7471"
fi
finish

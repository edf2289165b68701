#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A machine whose two network cards have several queues each: that takes interfaces of the host's, which are made in a
# network namespace of this test's own, and joined there.
# usage: queues.sh BUILD QUEUES
set -u
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)

skip() {
	echo "SKIP: vm_queues: missing right: $1"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
}

case $1$here in
*[!A-Za-z0-9_./+-]*) skip "paths of letters, digits and _./+-" ;;
esac
if [ -z "${FAR_TEST_INSIDE:-}" ]; then
	# Here: the namespace leads nowhere.
	FAR_VM_KERNEL=$(sh "$here/kernel.sh" "${FAR_VM_CACHE:-$1/vm-cache}") || {
		echo "FAIL vm_queues: there is no kernel"
		echo "0 passed, 1 failed, 0 skipped"
		exit 1
	}
	export FAR_VM_KERNEL
	rights=-n
	[ "$(id -u)" -eq 0 ] || rights=-Urn
	unshare $rights true 2>/dev/null || skip "a network namespace"
	FAR_TEST_INSIDE=1 exec unshare $rights sh "$0" "$@"
fi
ip link add both type bridge || skip "bridges"
for t in tap0 tap1; do
	ip tuntap add mode tap multi_queue name "$t" || skip "/dev/net/tun"
	ip link set "$t" master both
	ip link set "$t" up
done
ip link set both up
# Where Debian's emulator hashes itself (its eBPF program does not load), it stops to read an interface's queue when a
# packet finds the ring of another one full, and goes on when the guest notifies it of the first, which is not short of
# buffers: never. Rings of 1024 have room for all that peers may send unasked; those of 256, the default, have not.
nics=
for t in tap0 tap1; do
	nics="$nics --nic virtio-net-pci,mq=on,vectors=$((2 * $2 + 2)),rss=on,rx_queue_size=1024@tap:$t:$2"
done
# shellcheck disable=SC2086 # words
exec sh "$here/vm.sh" --build "$1" $nics queues "$2"

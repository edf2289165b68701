# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What the host's kernel may have no module for: the dpdk driver in a VLAN, against the kernel's interface of it.
. "$VM_TOP/tests/vm/guest.sh"
modprobe -a veth 8021q af_packet
guard_s=400
bounded sh "$VM_TOP/tests/nic/dpdk_hops.sh" "$VM_BUILD/tests/nic/agents_net" "$VM_BUILD/tests/nic/calls_on" \
	"$VM_BUILD/tests/vm/card_calls" vlan
sed 's/^/  /' "$dir/out"
[ "$rc" -eq 0 ] && ! has out '^SKIP'
ok "VLANs of the kernel's" $?
finish

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What the host's kernel may have no module for: the dpdk driver in a VLAN, against the kernel's interface of it; and flow
# rules of net_tap.
. "$VM_TOP/tests/vm/guest.sh"
modprobe -a veth 8021q af_packet
guard_s=400
bounded sh "$VM_TOP/tests/nic/dpdk_nexthops.sh" "$VM_BUILD/tests/nic/agents_net" "$VM_BUILD/tests/nic/calls_on" \
	"$VM_BUILD/tests/vm/card_calls" vlan
sed 's/^/  /' "$dir/out"
[ "$rc" -eq 0 ] && ! has out '^SKIP'
ok "VLANs of the kernel's" $?

# Flow rules, of the only driver here that has some: two shards, each a ring of its own. The kernel's ends of the devices,
# which have the same MAC addresses at first, are joined by a bridge.
modprobe -a tun bridge sch_multiq sch_ingress cls_flower act_skbedit
bounded "$VM_BUILD/farcall" info --security none --nic dpdk:net_tap0,iface=tap0,ip=10.7.0.1/24,huge=0
shows "rules are said" out 'dpdk 10.7.0.1:7471 (flow rules lead to the ring of a shard)'
ip link add both type bridge && ip link set both up
join() { # interface, MAC address
	[ -d "/sys/class/net/$1" ] && [ ! -d "/sys/class/net/$1/master" ] || return 0
	ip link set "$1" address "$2" && ip link set "$1" master both && ip link set "$1" up
}
while sleep 0.2; do
	join tap0 02:00:00:00:77:01
	join tap1 02:00:00:00:77:02
	tc filter show dev tap0 >>"$dir/filters"
	tc filter show dev tap0 root >>"$dir/filters"
	tc filter show dev tap0 parent 1: >>"$dir/filters"
done 2>/dev/null &
joiner=$!
# shellcheck disable=SC2016 # for the workers
worker='FAR_NIC="dpdk:net_tap0,iface=tap$RANK,ip=10.7.0.$((RANK + 1))/24,huge=0"
	export FAR_NIC
	exec "$@"'
bounded "$VM_BUILD/farcall" run -n 2 -- sh -c "$worker" worker "$VM_BUILD/tests/nic/agents_net" 2 20000 200
did "calls between two shards each"
kill "$joiner"
grep -q skbedit "$dir/filters"
ok "by rules of the kernel's" $?
finish

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Ways of the dpdk driver beyond its own subnet: two workers in network namespaces of their own, and the kernel of a third
# that routes between them. Devices that are ours alone (net_pcap on an interface without addresses) resolve the router
# themselves; net_af_packet follows the kernel's routes. VLANs, against the kernel's interfaces of them.
# usage: dpdk_nexthops.sh AGENTS_NET CALLS_ON CARD_CALLS own|vlan|kernel
# vlan: in an emulated machine (tests/vm/plans/hops.sh), as the host's kernel may know none
set -u
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
if [ "$(id -u)" -ne 0 ] && [ -z "${FAR_TEST_INSIDE:-}" ]; then
	if ! unshare -Urn true 2>/dev/null; then
		echo "SKIP: dpdk_nexthops: missing right: user namespaces for an unprivileged user"
		echo "0 passed, 0 failed, 1 skipped"
		exit 0
	fi
	FAR_TEST_INSIDE=1 exec unshare -Urn sh "$0" "$@"
fi
. "$here/../e2e/cases.sh"
agents_net=$1
calls_on=$2
card_calls=$3
part=$4
guard_s=${FAR_HANG_GUARD_S:-150}
export FAR_RUNTIME_DIR="$dir/runtime"
mkdir -m 700 "$FAR_RUNTIME_DIR"

# ---- namespaces ----

# Each is held by a process that does nothing: they end with the test, or a few minutes after it was killed.
holders=
others=
cleanup() {
	# shellcheck disable=SC2086 # numbers
	[ -z "$others$holders" ] || kill $others $holders 2>/dev/null
	wait
	rm -rf "$dir"
}
trap cleanup EXIT
new_ns() { # leaves its holder in $ns
	unshare -n sleep 900 &
	ns=$!
	holders="$holders $ns"
	eventually is_apart "$ns"
	at "$ns" ip link set lo up
}
is_apart() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
at() { # holder, command...
	where=$1
	shift
	nsenter -t "$where" -n "$@"
}

# Workers in $a and $b, the router in $r. far0 of each worker leads to the router's far0 and far1; by ctl0 the two find
# each other.
wired() {
	new_ns
	a=$ns
	new_ns
	b=$ns
	new_ns
	r=$ns
	ip link add ctl0 netns "$a" type veth peer name ctl0 netns "$b" &&
		ip link add far0 netns "$a" address 02:00:00:00:92:01 type veth peer name far0 netns "$r" address 02:00:00:00:92:fa &&
		ip link add far0 netns "$b" address 02:00:00:00:92:02 type veth peer name far1 netns "$r" address 02:00:00:00:92:fb ||
		return 1
	at "$a" ip addr add 10.92.9.1/24 dev ctl0
	at "$b" ip addr add 10.92.9.2/24 dev ctl0
	for w in $a $b; do
		at "$w" sh -c 'echo 1 >/proc/sys/net/ipv6/conf/far0/disable_ipv6' # silent, but for us
		at "$w" ip link set ctl0 up
		at "$w" ip link set far0 up
	done
	for i in 0 1; do
		at "$r" ip addr add "10.92.$i.9/24" dev "far$i"
		at "$r" ip addr add "fd92:$i::9/64" dev "far$i" nodad
		at "$r" ip link set "far$i" up
	done
	at "$r" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding'
}

# ---- workers ----

# worker HOLDER RANK NIC PROGRAM...: in the background; its output in $dir/out.RANK and err.RANK
worker() {
	where=$1
	rank=$2
	nic=$3
	shift 3
	nsenter -t "$where" -n env RANK="$rank" WORLD_SIZE="$size" MASTER_ADDR=10.92.9.1 MASTER_PORT=7712 FAR_NIC="$nic" \
		timeout -k 3 "$guard_s" "$@" >"$dir/out.$rank" 2>"$dir/err.$rank" </dev/null &
	eval "worker$rank=$!"
	others="$others $!"
}
size=2
# shellcheck disable=SC2154 # set by worker
finished() {
	rc=0
	wait "$worker0" || rc=$?
	[ "$size" -eq 1 ] || wait "$worker1" || rc=$?
	cat "$dir"/out.* >"$dir/out"
	cat "$dir"/err.* >"$dir/err"
	[ "$rc" -eq 0 ]
}
# shellcheck disable=SC2086 # words of a command
both() { # NIC of a, NIC of b, program...
	of_a=$1
	of_b=$2
	shift 2
	worker "$a" 0 "$of_a" "$@"
	worker "$b" 1 "$of_b" "$@"
}
own() { echo "dpdk:net_pcap0,iface=far0,phy_mac=1,$1"; }

has_rights() { # a worker alone has the device
	size=1
	worker "$a" 0 "$1" "$agents_net" 1 1000
	finished
	size=2
	[ "$rc" -eq 0 ]
}

# Worker 1 calls worker 0 from here on, until calls_end.
calls_begin() { # NICs
	rm -f "$dir/stop" "$dir/state"
	both "$1" "$2" "$calls_on" "$dir"
	eventually test -s "$dir/state"
}
calls_made() { sed 's/ .*//' "$dir/state" 2>/dev/null; }
more_calls() { [ "$(calls_made)" -gt "$((before + 200))" ]; }
calls_go_on() {
	before=$(calls_made)
	eventually more_calls
}
calls_end() { # case, what else must hold
	: >"$dir/stop"
	finished && [ "$2" -eq 0 ]
	ok "$1" $?
}

# ---- cases ----

refused() { # text, the device's arguments: the start of a single worker fails with the text
	text=$1
	size=1
	worker "$a" 0 "$(own "$2")" "$agents_net" 1 1000
	finished
	size=2
	[ "$rc" -ne 0 ] && says "$text"
}
pinged() { at "$r" ping -q -c "${2:-2}" -W 3 "$1" >"$dir/out" 2>"$dir/err" </dev/null; }

# Both routers' addresses change; the second one is a MAC address that nobody announces.
moves() { # case, NICs
	calls_begin "$2" "$3"
	good=$?
	for n in 1 2; do
		at "$r" ip link set far0 address "02:00:00:00:9$n:fa"
		at "$r" ip link set far1 address "02:00:00:00:9$n:fb"
		calls_go_on || good=1
	done
	calls_end "$1" "$good"
}

# The router's ways are as narrow as that, 1500: as wide as the interfaces.
router_mtu() { # MTU
	at "$r" ip route change 10.92.0.0/24 dev far0 proto kernel scope link src 10.92.0.9 mtu "$1" &&
		at "$r" ip route change 10.92.1.0/24 dev far1 proto kernel scope link src 10.92.1.9 mtu "$1" &&
		at "$r" ip -6 route replace fd92:0::/64 dev far0 proto kernel metric 256 mtu "$1" &&
		at "$r" ip -6 route replace fd92:1::/64 dev far1 proto kernel metric 256 mtu "$1"
}
passes_small_mtu() { # case, NICs
	router_mtu 1300
	both "$2" "$3" "$agents_net" 1 100000
	finished && has out '^worker1 by dpdk'
	ok "$1" $?
	router_mtu 1500
}

# shellcheck disable=SC2016 # for the worker
down='nsenter -t "$ROUTER" -n ip link set far1 down'
# shellcheck disable=SC2016
up='nsenter -t "$ROUTER" -n ip link set far1 up'

own_cases() {
	nic0=$(own ip=10.92.0.1/24,gw=10.92.0.9) nic1=$(own ip=10.92.1.1/24,gw=10.92.1.9)
	size=1
	worker "$a" 0 "$nic0" "$card_calls" hold
	eventually grep -q held "$dir/out.0"
	eventually pinged 10.92.0.1
	ok "the kernel's ping is answered" $?
	at "$r" ip neigh show 10.92.0.1 | grep -q 'lladdr 02:00:00:00:92:01'
	ok "and its question for the MAC address" $?
	kill "$worker0"
	wait "$worker0" 2>/dev/null
	size=2
	both "$nic0" "$nic1" "$agents_net" 2 100000
	finished && has out '^worker1 by dpdk'
	ok "calls through a router that is resolved by ARP" $?
	both "$(own ip=fd92:0::1/64,gw=fd92:0::9)" "$(own ip=fd92:1::1/64,gw=fd92:1::9)" "$agents_net" 1 100000
	finished
	ok "calls through a router that is resolved by neighbour solicitation" $?
	passes_small_mtu "calls through a router whose ways are narrow" "$nic0" "$nic1"
	passes_small_mtu "the same with IPv6" "$(own ip=fd92:0::1/64,gw=fd92:0::9)" "$(own ip=fd92:1::1/64,gw=fd92:1::9)"
	moves "a router's MAC address changes under calls" "$nic0" "$nic1"
	moves "the same with IPv6" "$(own ip=fd92:0::1/64,gw=fd92:0::9)" "$(own ip=fd92:1::1/64,gw=fd92:1::9)"
	fixed="neighbour=10.92.0.8/$(at "$r" ip -br link show far0 | tr -s ' ' | cut -d ' ' -f 3)"
	both "$(own "ip=10.92.0.1/24,gw=10.92.0.8,$fixed")" "$nic1" "$agents_net" 1 1000
	finished
	ok "a router that answers nobody, with neighbour=" $?
	both "$(own ip=10.92.0.1/24,gw=10.92.0.8)" "$(own ip=10.92.1.1/24,gw=10.92.1.8)" "$agents_net" 1 1000
	finished
	[ "$rc" -ne 0 ] && says '.8 has not replied to 12 solicitations (ARP) on net_pcap0' &&
		says '.8/MAC'
	ok "without it, it is said who does not answer, and what helps" $?
	export ROUTER="$r"
	both "$nic0" "$nic1" "$card_calls" lost "$down" "$up"
	finished
	[ "$rc" -eq 0 ] && says 'router 10.92.1.9 has not replied'
	ok "a router that goes away under calls is named" $?
	both "$(own ip=10.92.0.1/24)" "$(own ip=10.92.1.1/24)" "$agents_net" 1 1000
	finished
	[ "$rc" -ne 0 ] && says 'nothing is routed here unless gw= or router= names one'
	ok "no router is named" $?
	refused 'an IP and a MAC address' ip=10.92.0.1/24,neighbour=10.92.0.9/02:00:00:00:92:02:fa
	ok "a malformed neighbour= is named" $?
	refused 'gw=10.93.0.9 is not in the subnet of ip=' ip=10.92.0.1/24,gw=10.93.0.9
	ok "a router that is elsewhere is refused" $?
	refused 'both name a router' ip=10.92.0.1/24,gw=10.92.0.9,router=02:00:00:00:00:01
	ok "two routers are refused" $?
}

# The kernel's interface of a VLAN: at a VLAN's own subnet, with the same addresses that are elsewhere untagged.
vlan_cases() {
	if ! at "$r" ip link add link far0 name far0.5 type vlan id 5 2>"$dir/err"; then
		skip_data "dpdk_nexthops: VLANs" "the kernel's module 8021q"
		return
	fi
	at "$r" ip addr add 10.92.5.9/24 dev far0.5
	at "$r" ip addr add fd92:5::9/64 dev far0.5 nodad
	at "$r" ip link set far0.5 up
	size=1
	worker "$a" 0 "$(own ip=10.92.5.1/24,vlan=5)" "$card_calls" hold
	eventually grep -q held "$dir/out.0"
	eventually pinged 10.92.5.1
	ok "a ping by the kernel's interface of the VLAN is answered" $?
	at "$r" ip addr del 10.92.5.9/24 dev far0.5
	at "$r" ip addr add 10.92.5.9/24 dev far0
	! pinged 10.92.5.1 1
	ok "not without the tag" $?
	at "$r" ip addr del 10.92.5.9/24 dev far0
	at "$r" ip link add link far0 name far0.6 type vlan id 6
	at "$r" ip addr add 10.92.5.9/24 dev far0.6
	at "$r" ip link set far0.6 up
	! pinged 10.92.5.1 1
	ok "nor with another one" $?
	at "$r" ip link del far0.6
	at "$r" ip addr add 10.92.5.9/24 dev far0.5
	kill "$worker0"
	wait "$worker0" 2>/dev/null
	size=2
	both "$(own ip=10.92.5.1/24,vlan=5,gw=10.92.5.9)" "$(own ip=10.92.1.1/24,gw=10.92.1.9)" "$agents_net" 1 100000
	finished
	ok "calls through a router that is in a VLAN" $?
	# Worker 1 now runs at the router: net_af_packet on the kernel's interface of the VLAN.
	at "$r" ip link add ctl1 type veth peer name ctl1 netns "$a"
	at "$a" ip addr add 10.92.8.1/24 dev ctl1
	at "$a" ip link set ctl1 up
	at "$r" ip addr add 10.92.8.2/24 dev ctl1
	at "$r" ip link set ctl1 up
	at "$r" ip route add 10.92.9.0/24 via 10.92.8.1
	worker "$a" 0 "$(own ip=10.92.5.1/24,vlan=5)" "$agents_net" 1 100000
	worker "$r" 1 dpdk:net_af_packet0,iface=far0.5 "$agents_net" 1 100000
	finished && has out '^worker0 by dpdk'
	ok "calls to net_af_packet on the kernel's interface of the VLAN" $?
}

# Interfaces that the kernel shares: it has addresses and routes.
kernel_cases() { # device, shards
	device=dpdk:$1,iface=far0
	for w in $a $b; do
		at "$w" sh -c 'echo 0 >/proc/sys/net/ipv6/conf/far0/disable_ipv6'
	done
	at "$a" ip addr replace 10.92.0.1/24 dev far0
	at "$b" ip addr replace 10.92.1.1/24 dev far0
	at "$a" ip route flush 10.92.1.0/24
	at "$b" ip route flush 10.92.0.0/24 via 10.92.1.9
	if ! has_rights "$device"; then
		skip "$1: through a router" "$(tail -n 1 "$dir/err")"
		return
	fi
	both "$device" "$device" "$agents_net" 1 1000
	finished
	[ "$rc" -ne 0 ] && says 'the kernel has no route to'
	ok "$1: without a route it is said that there is none" $?
	at "$a" ip route add 10.92.1.0/24 via 10.92.0.9
	at "$b" ip route add 10.92.0.0/24 via 10.92.1.9
	both "$device" "$device" "$agents_net" "$2" 100000
	finished && has out '^worker1 by dpdk'
	ok "$1: calls by the kernel's routes" $?
	export ROUTER="$r"
	both "$device" "$device" "$card_calls" lost "$down" "$up"
	finished
	[ "$rc" -eq 0 ] && says 'the link of far0 is down: see its cable'
	ok "$1: a cable that is pulled under calls is reported" $?
	# Packets that go to the kernel alone are not seen.
	[ "$1" = net_af_xdp0 ] || passes_small_mtu "$1: calls through a router with a small MTU" "$device" "$device"
	moves "$1: a router's MAC address changes under calls" "$device" "$device"
}

wired || exit 1
case $part in
own | vlan)
	if ! has_rights "$(own ip=10.92.0.1/24)"; then
		skip "dpdk_nexthops: $part" "$(tail -n 1 "$dir/err")"
		finish
		exit
	fi
	"${part}_cases"
	;;
kernel)
	kernel_cases net_af_packet0 2
	kernel_cases net_af_xdp0 1
	;;
esac
finish

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The kernel resolves the address of a network card that DPDK has, pings it, and routes between two of them. Cards 0 and
# 1 are DPDK's, 2 and 3 the kernel's, joined with them.
# usage: neighbours.sh DRIVER
. "$VM_TOP/tests/vm/guest.sh"
farcall=$VM_BUILD/farcall
huge_pages 256
bind 0 "$1" && bind 1 "$1" && bind 2 kernel && bind 3 kernel
ok "cards" $?
left=$(interface 2)
right=$(interface 3)
network() { # interface, number
	ip addr add "10.$2.0.9/24" dev "$1" && ip addr add "fd0$2::9/64" dev "$1" nodad && ip link set "$1" up
}
network "$left" 8 && network "$right" 9
ok "networks of the kernel's" $?
mac() { cat "/sys/class/net/$1/address"; }
hold_card "$(card 0),ip=10.8.0.1/24"
answers() { bounded ping -c 2 -W 5 "$@" && [ "$rc" -eq 0 ]; }
within 120 answers 10.8.0.1
ok "ARP and ping" $?
bounded ip neigh show 10.8.0.1
shows "its MAC address" out "lladdr 52:54:00:0a:00:00"
within 60 answers -s 1400 10.8.0.1
ok "a long ping" $?
let_card_go
hold_card "$(card 0),ip=fd08::1/64"
within 120 answers fd08::1
ok "neighbour solicitation and ping" $?
let_card_go

# In a VLAN: the kernel's interface without the tag is another network.
modprobe 8021q
ip link add link "$left" name vlan5 type vlan id 5
ip addr add 10.5.0.9/24 dev vlan5
ip link set vlan5 up
hold_card "$(card 0),ip=10.5.0.1/24,vlan=5"
within 120 answers 10.5.0.1
ok "ping in a VLAN" $?
ip addr del 10.5.0.9/24 dev vlan5
ip addr add 10.5.0.9/24 dev "$left"
ip neigh flush dev "$left"
bounded ping -c 2 -W 3 10.5.0.1
[ "$rc" -eq 1 ] # ping's word for: sent, and not answered
ok "no answer without the tag" $?
ip addr del 10.5.0.9/24 dev "$left"
ip addr add 10.5.0.9/24 dev vlan5
within 60 answers 10.5.0.1
ok "and again with it" $?
let_card_go
ip link del vlan5

echo 1 >/proc/sys/net/ipv4/ip_forward
guard_s=420
CARD0="$(card 0),router=$(mac "$left")"
CARD1="$(card 1),router=$(mac "$right")"
export CARD0 CARD1
# shellcheck disable=SC2016 # for the workers
worker='[ "$RANK" -eq 0 ] && at=$CARD0,ip=10.8.0.1/24 || at=$CARD1,ip=10.9.0.1/24
	export FAR_NIC="dpdk:$at"
	exec "$@"'
bounded "$farcall" run -n 2 -- sh -c "$worker" worker "$VM_BUILD/tests/nic/agents_net" 1 100000 400
did "calls through a router"
CARD0=$(card 0)
CARD1=$(card 1)
bounded "$farcall" run -n 2 -- sh -c "$worker" worker "$VM_BUILD/tests/nic/agents_net" 1 100000 400
[ "$rc" -ne 0 ] && has err 'nothing is routed here unless gw= or router= names one'
ok "no router is named" $?
finish

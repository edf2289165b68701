#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Two network namespaces with a virtual cable between them, for as long as one measurement takes.
set -eu

usage() {
	cat <<'END'
usage: sh perf/veth.sh [--mtu BYTES] FARCALL perf MEASUREMENT [OPTIONS]

Makes two network namespaces with a veth pair between them, runs the measurement with one process in each, and removes
them again. In both the interface is called farcall0; the measuring side is 10.99.0.1 and fd99::1, the other one
10.99.0.2 and fd99::2. Needs root and the package iproute2.

	sh perf/veth.sh build/farcall perf latency --nic udp --floor
	sh perf/veth.sh build/farcall perf latency --nic dpdk:net_af_packet0,iface=farcall0 --floor
	sh perf/veth.sh build/farcall perf floor --nic dpdk:net_af_xdp0,iface=farcall0

--netns, --server-netns and --security none are added to the command.
END
}

mtu=1500
case ${1:-} in
--help | -h)
	usage
	exit 0
	;;
--mtu)
	[ $# -ge 2 ] || set -- "" "" # rejected below
	mtu=$2
	shift 2
	;;
esac
if [ $# -lt 3 ] || [ "$2" != perf ]; then
	usage >&2
	exit 2
fi
fail() {
	echo "veth.sh: $*" >&2
	exit 1
}
command -v ip >/dev/null || fail "ip is missing: install the package iproute2"
[ "$(id -u)" = 0 ] || fail "network namespaces take root"

a=farcall-$$-a
b=farcall-$$-b
# Interfaces go with their namespace.
# shellcheck disable=SC2317 # called by the trap
clear_up() {
	for ns in "$a" "$b"; do
		ip netns delete "$ns" 2>/dev/null || true
	done
}
trap clear_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

for ns in "$a" "$b"; do
	ip netns add "$ns"
	ip -n "$ns" link set lo up
done
ip -n "$a" link add farcall0 mtu "$mtu" type veth peer name farcall0 netns "$b" mtu "$mtu"
n=1
for ns in "$a" "$b"; do
	ip -n "$ns" address add 10.99.0.$n/24 dev farcall0
	ip -n "$ns" address add fd99::$n/64 dev farcall0 nodad
	ip -n "$ns" link set farcall0 up
	n=$((n + 1))
done
# The kernel takes up to a second to report a carrier.
for ns in "$a" "$b"; do
	for _ in $(seq 100); do
		ip -n "$ns" -o link show farcall0 | grep -q ' state UP ' && break
		sleep 0.05
	done
done
"$@" --netns "$a" --server-netns "$b" --security none

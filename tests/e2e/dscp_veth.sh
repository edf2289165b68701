#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What DSCP the packets of two workers carry, on a virtual cable between two network namespaces: over udp and over dpdk on
# af_packet, over IPv4 and IPv6.
# usage: dscp_veth.sh FARCALL PROTOCOL.md [DPDK: yes or no]
set -u
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)

# Who is not root is root of a user namespace.
if [ "$(id -u)" -ne 0 ] && [ -z "${FAR_TEST_INSIDE:-}" ]; then
	if ! unshare -Urn true 2>/dev/null; then
		echo "SKIP: dscp_veth: missing right: user namespaces for an unprivileged user"
		echo "0 passed, 0 failed, 1 skipped"
		exit 0
	fi
	FAR_TEST_INSIDE=1 exec unshare -Urn sh "$0" "$@"
fi

. "$here/cases.sh"
farcall=$1
protocol=$2
dpdk=${3:-yes}
for tool in ip tcpdump; do
	if ! command -v $tool >/dev/null; then
		skip dscp_veth "the package of $tool"
		finish
	fi
done
export FAR_RUNTIME_DIR="$dir/runtime"
mkdir -m 700 "$FAR_RUNTIME_DIR"

# shellcheck source=tests/e2e/veth.sh
. "$here/veth.sh"
interface() { # holder, number
	at "$1" ip addr add "10.91.9.$2/24" dev far0
	at "$1" ip addr add "fd91:9::$2/64" dev far0 nodad
}
veth dscp_veth

listens() { grep -q 'listening on' "$dir/serve" 2>/dev/null; }
captures_at() { grep -q 'listening on' "$dir/tcpdump.$1" 2>/dev/null; }
capturing() { captures_at a && captures_at b; }
capture() { # name, holder: what comes in there; who sends past the queues of the kernel is not seen where it sends
	nsenter -t "$2" -n tcpdump -i far0 -Q in -U -s 256 -B 65536 -w "$dir/pcap.$1" udp >"$dir/tcpdump.$1" 2>&1 </dev/null &
	captures="$captures $!"
	others="$others $!"
}

# What is on the cable last is in both files: all before it is.
mark() { # holder, the address of the other
	at "$1" python3 -c 'import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"no more", (sys.argv[1], 9))' "$2"
}
written() { grep -qa 'no more' "$dir/pcap.a" && grep -qa 'no more' "$dir/pcap.b"; }
settled() {
	mark "$a" 10.91.9.2 && mark "$b" 10.91.9.1 && eventually written
}

# Calls of all lengths from a to b, with what is on the cable in $dir/pcap.*. Segmentation is left to the sender: the kernel
# would show what it has not cut yet.
look() { # nic, listen, 4 or 6, further arguments of dscp_seen.py
	captures=
	rm -f "$dir"/tcpdump.* "$dir/serve"
	capture a "$a"
	capture b "$b"
	eventually capturing
	nsenter -t "$b" -n env FAR_LISTEN="$2" timeout -k 3 "$guard_s" "$farcall" perf serve --listen 10.91.9.2:7722 --nic "$1" --security none \
		--timeout 20 >"$dir/serve" 2>&1 </dev/null &
	server=$!
	others="$others $server"
	eventually listens
	bounded nsenter -t "$a" -n env FAR_LISTEN="$2" "$farcall" perf bandwidth --connect 10.91.9.2:7722 --nic "$1" --security none \
		--bytes 32,6K,40K,1M --depth 2 --seconds 0.1s
	measured=$rc
	[ $measured -eq 0 ] || kill "$server"
	wait "$server"
	settled
	# shellcheck disable=SC2086 # numbers
	kill $captures
	# shellcheck disable=SC2086
	wait $captures
	if [ $measured -eq 0 ]; then
		bounded python3 "$here/dscp_seen.py" "$protocol" "$dir/pcap.a" "$dir/pcap.b" "$3" ${4:-}
		cat "$dir/out"
	else
		cat "$dir/serve" >>"$dir/err"
	fi
}


# On a busy machine a capture may lose packets. tcpdump reports that, and the capture is repeated.
all_captured() { ! grep -h 'dropped by' "$dir"/tcpdump.* | grep -qv '^0 '; }
seen() { # case, and as of look
	name=$1
	shift
	for _ in 1 2 3 4 5; do
		look "$@"
		all_captured && break
		echo "$name: not all was captured; again"
	done
	ok "$name" $rc
}

seen "udp, IPv4" udp:gso=0 10.91.9.0/24 4
seen "udp, IPv6" udp:gso=0 fd91:9::/64 6
seen "udp, IPv4, off" udp:gso=0,dscp=off 10.91.9.0/24 4 off
if [ "$dpdk" = yes ]; then
	seen "af_packet, IPv4" dpdk:net_af_packet0,iface=far0 10.91.9.0/24 4
	seen "af_packet, IPv6" dpdk:net_af_packet0,iface=far0 fd91:9::/64 6
	seen "af_packet, IPv6, off" dpdk:net_af_packet0,iface=far0,dscp=off fd91:9::/64 6 off
fi
finish

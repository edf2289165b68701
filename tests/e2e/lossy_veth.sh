#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Mixed traffic between two network namespaces with a virtual cable between them, over udp as it is, and with 1 % of the
# packets lost, repeated, delayed, reordered and damaged each, and while the MTU falls: everything arrives intact.
# usage: lossy_veth.sh API_LOSSY [BYTES]
set -u
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)

# Who is not root is root of a user namespace.
if [ "$(id -u)" -ne 0 ] && [ -z "${FAR_TEST_INSIDE:-}" ]; then
	if ! unshare -Urn true 2>/dev/null; then
		echo "SKIP: lossy_veth: missing right: user namespaces for an unprivileged user"
		echo "0 passed, 0 failed, 1 skipped"
		exit 0
	fi
	FAR_TEST_INSIDE=1 exec unshare -Urn sh "$0" "$@"
fi

. "$here/cases.sh"
api_lossy=$1
bytes=${2:-128m}
case $bytes in *g) guard_s=900 ;; esac

# shellcheck source=tests/e2e/veth.sh
. "$here/veth.sh"
interface() { # holder, number
	at "$1" ip addr add "10.91.8.$2/24" dev far0
}
veth lossy_veth

# Both workers; their output in out and err. $rc as of the one that failed.
both() { # arguments...
	rc=0
	at "$b" env RANK=1 WORLD_SIZE=2 MASTER_ADDR=10.91.8.1 MASTER_PORT=7711 \
		timeout -k 3 "$guard_s" "$api_lossy" --member far0 --bytes "$bytes" "$@" >"$dir/out1" 2>"$dir/err1" </dev/null &
	second=$!
	at "$a" env RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.91.8.1 MASTER_PORT=7711 \
		timeout -k 3 "$guard_s" "$api_lossy" --member far0 --bytes "$bytes" "$@" >"$dir/out" 2>"$dir/err" </dev/null || rc=$?
	wait "$second" || rc=$?
	cat "$dir/out1" >>"$dir/out"
	cat "$dir/err1" >>"$dir/err"
	[ $rc -eq 0 ] && cat "$dir/out"
}

both --nic udp
ok "$bytes over udp on veth" $rc
both --over udp --packet 1400
ok "$bytes over udp on veth, 1 % lost" $rc

# Packets of several small messages are wide at first, and IP fragments what is in flight when the MTU falls.
mtu() { at "$a" ip link set far0 mtu "$1" && at "$b" ip link set far0 mtu "$1"; }
sent() { at "$a" ip -s link show far0 | awk '/TX:/ { getline; print $1 }'; }
has_sent() { [ "$(sent)" -gt "$1" ]; }
mtu 65535
before=$(sent)
both --nic udp &
traffic=$!
others=$traffic
rc=1
eventually has_sent $((before + 8000000)) && mtu 1500 && kill -0 "$traffic" 2>/dev/null && rc=0
wait "$traffic" || rc=1
others=
ok "$bytes over udp on veth, whose MTU falls" $rc
finish

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Two machines joined by card 0: a group of two workers by soft-RoCE between them, and what tshark makes of its packets.
. "$VM_TOP/tests/vm/guest.sh"
unset FAR_MODULE_DIR

here=1 rank=0
[ "$VM_ID" = A ] || here=2 rank=1
bind 0 kernel && at=$(interface 0) && ip addr add "10.7.0.$here/24" dev "$at" && ip link set "$at" up
ok "a card" $?
modprobe rdma_rxe && rdma link add rxe0 type rxe netdev "$at"
ok "soft-RoCE on it" $?
if [ "$VM_ID" = A ]; then
	tcpdump -i "$at" -w "$dir/packets" -B 16384 udp port 4791 >"$dir/tcpdump" 2>&1 &
	capture=$!
	within 60 grep -q listening "$dir/tcpdump"
	ok "a capture" $?
fi
meet up
ok "the other machine is met" $?
bounded env MASTER_ADDR=10.7.0.1 MASTER_PORT=7077 WORLD_SIZE=2 RANK=$rank FAR_NIC=verbs \
	"$VM_BUILD/tests/nic/agents_net" 1 20000 400
did "calls between two machines"
shows "by verbs" out "by verbs at verbs 10.7.0.$((3 - here)):"
meet called
if [ "$VM_ID" = A ]; then
	sleep 2
	kill "$capture" && reap "$capture" 60 tcpdump
	# Protocol, opcode of InfiniBand (100: UD SEND Only), our kind of packet, verdict. How many there are of each
	# depends on the time, as does whether there are PING and RESET (3, 8).
	export HOME="$dir"
	bounded tshark -X "lua_script:$VM_TOP/apps/wireshark/farcall.lua" -r "$dir/packets" \
		-T fields -e _ws.col.Protocol -e infiniband.bth.opcode -e farcall.kind -e farcall.verdict
	did "tshark"
	sort -u "$dir/out" | grep -v "	[38]	ok\$" >"$VM_RUN/dissected"
	cp "$dir/packets" "$VM_RUN/packets.pcap"
	diff "$VM_TOP/tests/vm/verbs_dissected.txt" "$VM_RUN/dissected" >"$dir/out"
	ok "what the dissector makes of them" $?
fi
meet end
finish

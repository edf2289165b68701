# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Two machines joined by card 0: packets of all sizes and a group of two workers by soft-RoCE between them; what tshark
# and farcall decode make of its packets, and what class of service these carry.
. "$VM_TOP/tests/vm/guest.sh"
unset FAR_MODULE_DIR

here=1 rank=0
[ "$VM_ID" = A ] || here=2 rank=1
bind 0 kernel && at=$(interface 0) && ip addr add "10.7.0.$here/24" dev "$at" && ip link set "$at" up
ok "a card" $?
modprobe rdma_rxe && rdma link add rxe0 type rxe netdev "$at"
ok "soft-RoCE on it" $?
meet devices
peers=$VM_RUN/peers-$VM_PLAN_N
mkdir -p "$peers"
bounded "$VM_BUILD/tests/nic/nic_peer" --dir "$peers" --index "$rank" --peers 2 --driver verbs --args rxe0 --calls 60 \
	--patience 120
did "packets of all sizes between two machines"
log "$(tail -n 1 "$dir/out")"
meet exchanged
if [ "$VM_ID" = A ]; then
	tcpdump -i "$at" -w "$dir/packets" -B 16384 udp port 4791 >"$dir/tcpdump" 2>&1 &
	capture=$!
	within 60 grep -q listening "$dir/tcpdump"
	ok "a capture" $?
fi
meet up
ok "the other machine is met" $?
# What priorities carry: A's the class selectors, B's are said.
nic=verbs
[ "$VM_ID" = A ] || nic=verbs:rxe0,dscp=0/8/10/18/26/34/45/44
bounded env MASTER_ADDR=10.7.0.1 MASTER_PORT=7077 WORLD_SIZE=2 RANK=$rank FAR_NIC=$nic \
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
	guard_s=560
	bounded tshark -X "lua_script:$VM_TOP/apps/wireshark/farcall.lua" -r "$dir/packets" \
		-T fields -e _ws.col.Protocol -e infiniband.bth.opcode -e farcall.kind -e farcall.verdict -e ip.src -e ip.dsfield.dscp
	did "tshark"
	cut -f5,6 "$dir/out" | sort | uniq -c | awk '{ print $2, $3, "packets", $1 }' >"$VM_RUN/classes"
	cut -f1-4 "$dir/out" | sort -u | grep -v "	[38]	ok\$" >"$VM_RUN/dissected"
	cp "$dir/packets" "$VM_RUN/packets.pcap"
	diff "$VM_TOP/tests/vm/verbs_dissected.txt" "$VM_RUN/dissected" >"$dir/out"
	ok "what the dissector makes of them" $?
	cat "$VM_RUN/classes"
	# Small packets are of priority 7, large ones below; nobody's carry what is not said.
	grep -q '^10.7.0.1 56 ' "$VM_RUN/classes" && [ "$(grep -c '^10.7.0.1 ' "$VM_RUN/classes")" -gt 1 ] &&
		grep -q '^10.7.0.2 44 ' "$VM_RUN/classes" && ! grep '^10.7.0.1 ' "$VM_RUN/classes" | grep -qv ' \(0\|8\|16\|24\|32\|40\|48\|56\) packets' &&
		! grep '^10.7.0.2 ' "$VM_RUN/classes" | grep -qv ' \(0\|8\|10\|18\|26\|34\|45\|44\) packets' &&
		[ "$(grep -c '^10.7.0.2 ' "$VM_RUN/classes")" -gt 1 ]
	ok "the classes of service that they carry" $?
	bounded "$VM_BUILD/farcall" decode "$dir/packets"
	did "farcall decode"
	shows "from queue pair to queue pair" out "10.7.0.1/qp[0-9]* > 10.7.0.2/qp[0-9]* .*ok\$"
	! has out 'bad='
	ok "and finds nothing wrong" $?
fi
meet end
finish

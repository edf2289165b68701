# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The verbs driver on the kernel's soft-RoCE.
# usage: verbs.sh contract lo|v4|v6    what every driver promises, by loopback, or a network's IPv4 or IPv6 address;
#                                      "lo --brief": with fewer repetitions
#        verbs.sh bulk                 what is exposed to a peer is read by it, and by nobody else
#        verbs.sh workers [groups]     groups of workers; without "groups" also programs, and the errors of bad
#                                      configurations and missing rights
#        verbs.sh removed              the interface goes down and up, and the device is removed, while calls run, with the
#                                      kernel's nodes and with others
# shellcheck disable=SC2086,SC2317 # words of $as_user; functions that within calls
. "$VM_TOP/tests/vm/guest.sh"
unset FAR_MODULE_DIR
farcall=$VM_BUILD/farcall
info() { bounded "$farcall" info --security none; }
shows_line() { info && has out "$1"; }

if [ "$*" = workers ]; then
	info
	shows "without a device, what to load" out 'verbs .*no RDMA device.*modprobe rdma_rxe'
fi
modprobe -a rdma_rxe dummy
ip link add dummy0 type dummy && ip link set dummy0 up && ip addr add 10.9.0.1/24 dev dummy0 &&
	ip -6 addr add fd00:9::1/64 nodad dev dummy0
ok "a network of our own" $?

contract() { # device and GID, more arguments
	# shellcheck disable=SC3045 # Debian's sh has it
	ulimit -n 16384
	guard_s=800
	bounded "$VM_BUILD/tests/nic/nic_conformance" --slow 6 --driver verbs "$@"
	did "conformance"
	log "$(tail -n 1 "$dir/out")"
	cp "$dir/out" "$VM_RUN/conformance-$VM_PLAN_N"
}

add() { # soft-RoCE device, interface
	rdma link add "$1" type rxe netdev "$2"
	ok "$1 over $2" $?
}

# Workers of a group that all take $FAR_NIC.
together() { # name, how many, program...
	name=$1
	n=$2
	shift 2
	bounded "$farcall" run -n "$n" -- "$@"
	did "$name"
}

workers() {
	add rxe0 dummy0
	within 60 shows_line 'rxe0 port 1 gid [0-9]*: fd00:9::1 '
	shows "info: the device" out 'verbs  *rxe0: up to [0-9]* queue pairs'
	shows "info: its port" out 'rxe0 port 1: Ethernet, active, MTU 1024'
	shows "info: its IPv4 address" out 'rxe0 port 1 gid [0-9]*: 10.9.0.1 (RoCE v2, dummy0)'
	shows "info: its IPv6 address" out 'rxe0 port 1 gid [0-9]*: fd00:9::1 (RoCE v2, dummy0)'
	shows "info: the port of a worker" out '^  verbs 10.9.0.1:[0-9]'
	bounded "$farcall" info
	shows "closed, without security=none" out 'verbs is left out: .*set security=none'

	export FAR_NIC=verbs
	together "two workers" 2 "$VM_BUILD/tests/nic/agents_net" 1 3000000 400
	shows "by verbs" out 'by verbs at verbs 10.9.0.1:'
	together "four workers" 4 "$VM_BUILD/tests/nic/agents_net" 1 300000 400
	together "two workers of two shards" 2 "$VM_BUILD/tests/nic/agents_net" 2 300000 400
	export FAR_NIC=verbs:rxe0,gid=2,rx_slots=64,dscp=off
	together "IPv6, few buffers" 2 "$VM_BUILD/tests/nic/agents_net" 1 300000 400
	unset FAR_NIC
	[ "$1" != groups ] || return
	bounded "$farcall" perf latency --nic verbs --security none --seconds 1 --floor --json
	has out '"p50_ns": [1-9]'
	ok "farcall perf latency" $?
	has out '"floor_raw_rtt_ns": [1-9]'
	ok "raw packets on the same queues" $?
	bounded "$farcall" train --nic verbs --security none --servers 2 --workers 2 --rows 5000 --epochs 4 --json
	ok "farcall train, four processes" "$rc"

	# By its bounds and rights.
	chmod 777 "$dir"
	bounded $as_user env FAR_RUNTIME_DIR="$dir/user" FAR_NIC=verbs "$farcall" run -n 2 -- "$VM_BUILD/tests/nic/agents_net" 1 20000 400
	did "an ordinary user"
	bounded $as_user env FAR_NIC=verbs prlimit --memlock=65536 "$farcall" info --security none
	shows "little memory may be locked" out 'locking [0-9]* KiB of the [0-9]* .*RLIMIT_MEMLOCK is 64 KiB: raise it (ulimit -l [0-9]'
	chmod 600 /dev/infiniband/uverbs0
	bounded $as_user "$farcall" info --security none
	shows "no right to the device" out 'no permission to open /dev/infiniband/uverbs0'
	# To the same file system: another node, even alike, would not go with the device.
	mv /dev/infiniband/uverbs0 /dev/uverbs0-aside
	info
	shows "the device's node is missing" out '/dev/infiniband/uverbs0 does not exist'
	mv /dev/uverbs0-aside /dev/infiniband/uverbs0
	chmod 666 /dev/infiniband/uverbs0
	FAR_NIC=verbs:rxe7 info
	shows "a device that is not there" out 'no device "rxe7"; there are: rxe0'
	FAR_NIC=verbs:rxe0,port=2 info
	shows "a port that is not there" out 'rxe0 has 1 ports, not a port 2'
	FAR_NIC=verbs:rxe0,gid=900 info
	shows "a GID that is not there" out 'rxe0 port 1 has no such GID of RoCE v2'
	FAR_NIC='verbs:rxe0;udp' FAR_LISTEN=10.8.0.0/16 info
	shows "an address that is not there" out 'no address in listen=10.8.0.0/16'
	FAR_NIC=verbs:rxe0,rx_slots=1 info
	shows "a wrong argument" out 'rx_slots=1: receive buffers of a queue, 64 to 16384'
	# The device hears of its interface a little later.
	ip link set dummy0 down
	within 60 shows_line 'verbs .*rxe0 port 1 is .*ip link set its interface up'
	ok "the port is down" $?
	ip link set dummy0 up
	ip addr flush dev dummy0
	within 60 shows_line 'rxe0 port 1 has no GID of RoCE v2 with an address: .*ip addr add'
	ok "no address" $?
}

calls() { cut -d' ' -f1 "$dir/calls/state" 2>/dev/null || echo 0; }
leads() { grep -q " $1 " "$dir/calls/state"; }
more() { [ "$(calls)" -ge "$wanted" ]; }
goes_on() { # name
	wanted=$(($(calls) + 200))
	within 120 more
	ok "$1" $?
}

# Two workers that call each other, by verbs where it leads.
calls_begin() {
	rm -rf "$dir/calls"
	mkdir "$dir/calls"
	FAR_NIC='verbs;udp:listen=127.0.0.1' "$farcall" run -n 2 -- "$VM_BUILD/tests/nic/calls_on" "$dir/calls" \
		>"$dir/group-out" 2>"$dir/group-err" </dev/null &
	group=$!
	within 120 leads verbs
	ok "calls by verbs" $?
	goes_on "calls"
}
# The device is removed under them.
calls_end() { # name of the case
	timeout -k 10 120 rdma link delete rxe0
	ok "the kernel gets the device back$1" $?
	within 120 leads udp
	ok "the device was removed: by udp" $?
	goes_on "calls without the device"
	: >"$dir/calls/stop"
	reap $group 240 "the group"
	cat "$dir/group-out" "$dir/group-err"
	did "no call was lost, or ran twice"
	log "$(grep calls, "$dir/group-out")"
}

removed() {
	add rxe0 dummy0
	calls_begin
	ip link set dummy0 down
	within 120 leads udp
	ok "the interface is down: by udp" $?
	goes_on "calls while it is down"
	ip link set dummy0 up
	within 120 leads verbs
	ok "the interface is up: by verbs" $?
	goes_on "calls as before"
	calls_end ""

	# As in a container whose runtime made them: these nodes stay when the device goes.
	add rxe0 dummy0
	: >/dev/infiniband/stays # or the kernel takes the directory away with its last node, and what is mounted there
	cp -a /dev/infiniband "$dir/nodes" && mount -t tmpfs none /dev/infiniband && cp -a "$dir/nodes/." /dev/infiniband
	ok "nodes that are not the kernel's" $?
	calls_begin
	calls_end ", whose node stays"
	[ -n "$(find /dev/infiniband -name 'uverbs*' -type c)" ]
	ok "it has stayed" $?
	umount /dev/infiniband && rm /dev/infiniband/stays
	ok "the kernel's own again" $?
}

# Milliseconds that farcall info takes, which opens a port: recorded.
opening() { # argument of the driver
	begun=$(date +%s%3N)
	FAR_NIC="verbs:rxe0,$1" info
	echo "$(($(date +%s%3N) - begun)) ms"
}

# Packets of the device, while workers send each other messages of up to 16 MB: recorded, not required. The first ones go
# in packets in any case; making the connection and registering memory may take most of the time here.
sends() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rdma_sends; }
bulk_workers() {
	before=$(sends)
	FAR_NIC=verbs:rxe0 together "workers, all by packets" 2 "$VM_BUILD/tests/nic/agents_net" 1 16000000 400
	by_packets=$(($(sends) - before))
	test "$(cat "$dir/out" "$dir/err" | grep -c 'read_bytes=0$')" -eq 2
	ok "nothing is read by itself" $?
	before=$(sends)
	FAR_NIC=verbs:rxe0,bulk=16384 together "workers, larger messages read" 2 "$VM_BUILD/tests/nic/agents_net" 1 25000000 400
	read_where=$(($(sends) - before))
	log "$by_packets packets of messages up to 8 MB; with bulk= $read_where, up to 24 MB"
	log "$(cat "$dir/out" "$dir/err" | grep -o 'read_bytes=.*' | tr '\n' ' ')"
	test "$(cat "$dir/out" "$dir/err" | grep -c 'read_bytes=[1-9]')" -eq 2
	ok "both have read where the other had it" $?
	export FAR_SECURITY=none
	FAR_NIC=verbs:rxe0,bulk=16384 together "registered memory, sent from where it lies" 2 "$VM_BUILD/tests/nic/zero_copy"
	FAR_NIC=verbs:rxe0,bulk=16384 together "read into its place, copied by nobody" 2 "$VM_BUILD/tests/nic/zero_copy" --read
	log "$(cat "$dir/out" "$dir/err" | grep -o 'of [0-9]* bytes .*' | tail -n 1)"
	unset FAR_SECURITY
}

case $1 in
contract)
	case $2 in
	lo)
		add rxe0 lo
		shift 2
		contract "$@"
		;;
	v4)
		add rxe0 dummy0
		contract --open
		;;
	v6)
		add rxe0 dummy0
		# What an address family may break: sizes, who sends to whom, the set-up.
		set -- --brief
		for case in sizes bursts 'several handles of one address' 'unexpected peers and self' 'several queues' wake \
			'address in words' reach 'connect to nonsense' 'somebody has gone' connect refused down 'two processes'; do
			set -- "$@" --case "$case"
		done
		contract --open --args rxe0,gid=2 "$@"
		;;
	esac
	;;
bulk)
	modprobe rdma_ucm
	add rxe0 dummy0
	info
	shows "info: bulk" out 'rxe0: memory windows of type 2; bulk='
	# Soft-RoCE of Linux 6.1 does not check a window's bounds, only those of its region.
	shows "info: not by itself, and why" out 'rxe0 port 1: bulk=auto is off: it does not check the bounds of memory windows'
	log "opening a port: $(opening 'bulk=off') without a try, $(opening 'bulk=auto') with one"
	ulimit -l unlimited
	contract --open --args rxe0,bulk=65536 --case bulk --case sizes --case 'several queues' --case 'two processes'
	has out '^bulk: ok'
	ok "bulk by memory windows" $?
	# Recorded, not required.
	bounded "$VM_BUILD/tests/nic/nic_conformance" --slow 6 --driver verbs --open --args rxe0,bulk=65536 --case 'bulk ranges'
	log "$(grep '^bulk ranges' "$dir/out")"
	bulk_workers
	;;
workers) workers "${2:-}" ;;
removed) removed ;;
esac
# As it was found, for the next plan: the module holds its devices.
rdma link delete rxe0 2>/dev/null
ip link del dummy0 && modprobe -r rdma_rxe
ok "all is taken down" $?
finish

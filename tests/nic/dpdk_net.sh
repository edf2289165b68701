#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The dpdk driver on interfaces that it shares with the kernel, net_af_packet and net_af_xdp: between two network
# namespaces joined by a pair of veth, and three through a bridge, beside the kernel's own traffic.
# usage: dpdk_net.sh NIC_PEER AGENTS_NET COMBINED_QUEUES [packet|xdp|bridge]
set -u
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)

# Who is not root is root of a user namespace, where all but XDP can be had.
if [ "$(id -u)" -ne 0 ] && [ -z "${FAR_TEST_INSIDE:-}" ]; then
	if ! unshare -Urn true 2>/dev/null; then
		echo "SKIP: dpdk_net: missing right: user namespaces for an unprivileged user"
		echo "0 passed, 0 failed, 1 skipped"
		exit 0
	fi
	FAR_TEST_INSIDE=1 exec unshare -Urn sh "$0" "$@"
fi

. "$here/../e2e/cases.sh"
nic_peer=$1
agents_net=$2
combined=$3
export FAR_RUNTIME_DIR="$dir/runtime"
mkdir -m 700 "$FAR_RUNTIME_DIR"

# ---- namespaces ----

# Each is held by a process that does nothing: they end with the test, or a few minutes after it was killed.
holders=
others= # started in the background
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
}
is_apart() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }

at() { # holder, command...
	where=$1
	shift
	nsenter -t "$where" -n "$@"
}

interface() { # holder, name, number: its addresses; brings it up
	at "$1" ip addr add "10.91.7.$3/24" dev "$2"
	at "$1" ip addr add "fd91:7::$3/64" dev "$2" nodad
	at "$1" ip link set "$2" up
	at "$1" ip link set lo up
}

mac() { printf '02:00:00:00:91:%02x' "$1"; }

joined() { # queues: two namespaces, $a and $b, joined by interfaces of the same name
	new_ns
	a=$ns
	new_ns
	b=$ns
	ip link add far0 netns "$a" address "$(mac 1)" numrxqueues "$1" numtxqueues "$1" type veth \
		peer name far0 netns "$b" address "$(mac 2)" numrxqueues "$1" numtxqueues "$1" &&
		interface "$a" far0 1 && interface "$b" far0 2
}

bridged() { # three namespaces, $w0 to $w2, and $s with the bridge
	new_ns
	s=$ns
	at "$s" ip link add far-br type bridge forward_delay 0 && at "$s" ip link set far-br up || return 1
	for i in 0 1 2; do
		new_ns
		eval "w$i=$ns"
		ip link add far0 netns "$ns" address "$(mac $((i + 1)))" type veth peer name "port$i" netns "$s" &&
			interface "$ns" far0 $((i + 1)) &&
			at "$s" ip link set "port$i" master far-br && at "$s" ip link set "port$i" up || return 1
	done
}

# ---- workers ----

runs=0
new_run() {
	runs=$((runs + 1))
	run="$dir/run$runs"
	mkdir "$run"
	workers=
	stop="$run/stop"
}

preload= # env LD_PRELOAD=…

# worker HOLDER INDEX COUNT ARGUMENTS...: in the background; its output in $run/out.INDEX
worker() {
	where=$1
	index=$2
	count=$3
	shift 3
	# shellcheck disable=SC2086 # words of a command
	nsenter -t "$where" -n $preload timeout -k 3 "$guard_s" "$nic_peer" --dir "$run" --index "$index" --peers "$count" "$@" \
		>"$run/out.$index" 2>"$run/err.$index" </dev/null &
	last=$!
	workers="$workers $last"
	others="$others $last"
}

# What runs beside the workers, until $stop is there: its output in $run/NAME
beside() { # name, holder, command...
	name=$1
	where=$2
	shift 2
	nsenter -t "$where" -n "$@" >"$run/$name" 2>&1 </dev/null &
	last=$!
	others="$others $last"
}

# Waits for the workers; $rc is 0 when all have succeeded. Their output is shown when a case fails.
finished() {
	rc=0
	for pid in $workers; do
		wait "$pid" || rc=$?
	done
	cat "$run"/out.* >"$dir/out"
	cat "$run"/err.* >"$dir/err"
	[ $rc -eq 0 ]
}

counter() { # index, name
	sed -n "s/.*\b$2=\([0-9]*\).*/\1/p" "$run/out.$1" | tail -n 1
}
above() { # index, name, number
	n=$(counter "$1" "$2")
	[ "${n:-0}" -gt "$3" ] && return 0
	echo "$2 of worker $1 is ${n:-missing}" >>"$dir/err"
	return 1
}
is_zero() { # index, name
	n=$(counter "$1" "$2")
	[ "${n:-1}" -eq 0 ] && return 0
	echo "$2 of worker $1 is ${n:-missing}" >>"$dir/err"
	return 1
}

no_program() { # holder: no XDP program is on its interface
	! at "$1" ip link show dev far0 | grep -q xdp
}

# The first UDP port of a worker, as another one says it.
port_of() { cat "$run"/out.* | sed -n "s/^worker $1 is at .*:\([0-9]*\)$/\1/p" | head -n 1; }
knows_port() { [ -n "$(port_of "$1")" ]; }

traffic() { echo "$here/net_traffic.py"; }

# agent HOLDER RANK WORLD NIC ARGUMENTS...: a whole worker, with the store in the first one's namespace
agent() {
	where=$1
	index=$2
	count=$3
	nic=$4
	shift 4
	# shellcheck disable=SC2086
	nsenter -t "$where" -n env RANK="$index" WORLD_SIZE="$count" MASTER_ADDR=10.91.7.1 MASTER_PORT=7711 FAR_NIC="$nic" \
		$preload timeout -k 3 "$guard_s" "$agents_net" "$@" >"$run/out.$index" 2>"$run/err.$index" </dev/null &
	last=$!
	workers="$workers $last"
	others="$others $last"
}

# ---- captures ----

# From now on what passes an interface: the first 20000 packets, whole, into $run/NAME.pcap, and all that the kernel
# says by ICMP, beside pings, into $run/NAME-icmp.pcap
capture() { # name, holder, interface
	tcpdump=
	[ -z "${FAR_TEST_INSIDE:-}" ] || return 0 # it insists on leaving the user, which a user namespace forbids
	beside "tcpdump.$1" "$2" tcpdump -i "$3" -U -s 0 -B 16384 -c 20000 -w "$run/$1.pcap" udp
	tcpdump=$last
	beside "tcpdump.$1-icmp" "$2" tcpdump -i "$3" -U -s 0 -B 4096 -w "$run/$1-icmp.pcap" \
		'icmp[icmptype] == icmp-unreach or (icmp6 and ip6[40] < 128)'
	tcpdump="$tcpdump $last"
	eventually grep -q 'listening on' "$run/tcpdump.$1" && eventually grep -q 'listening on' "$run/tcpdump.$1-icmp"
}

uncaptured() { # case: is skipped where nothing can be captured
	[ -n "${FAR_TEST_INSIDE:-}" ] && skip "$1" "tcpdump as root of a user namespace"
}

captured() { # ends it, after what was on its way is in the file
	sleep 0.5
	for pid in $tcpdump; do
		kill -INT "$pid"
		wait "$pid"
	done 2>/dev/null
}

frames() { # capture, filter: how many there are
	HOME=$dir tshark -r "$run/$1.pcap" -o ip.check_checksum:TRUE -o udp.check_checksum:TRUE \
		-Y "$2" -T fields -e frame.number 2>>"$dir/err" | wc -l
}

to_ports() {
	ours=
	for p in "$@"; do
		ours="${ours:+$ours || }udp.dstport == $p"
	done
}

# The kernel said "unreachable" of no frame to these ports.
none_refused() { # capture, ports...
	name=$1
	shift
	to_ports "$@"
	refused=$(frames "$name-icmp" "($ours) && (icmp.type == 3 || icmpv6.type == 1)")
	heard=$(frames "$name-icmp" "icmp.type == 3 || icmpv6.type == 1")
	echo "$name: $refused frames refused, and $heard of other ports" >>"$dir/err"
	[ "$refused" -eq 0 ]
}

# Every frame to these ports is whole, with good checksums.
decodes() { # capture, ports...
	name=$1
	shift
	to_ports "$@"
	all=$(frames "$name" "($ours) && !icmp && !icmpv6 && eth.src != 02:00:00:00:00:99")
	good=$(frames "$name" "($ours) && !icmp && !icmpv6 && udp.checksum.status == 1 && !_ws.malformed && (ipv6 || ip.checksum.status == 1)")
	echo "$name: $all frames, $good of them good" >>"$dir/err"
	[ "$all" -gt 500 ] && [ "$good" -eq "$all" ]
}

# ---- cases ----

has_rights() { # device
	at "$a" "$nic_peer" --dir "$dir" --index 0 --peers 2 --args "$1,iface=nosuch0" >"$dir/out" 2>"$dir/err" </dev/null
	has err '"nosuch0"'
}

exchange() { # name, device, arguments...
	name=$1
	device=$2
	shift 2
	new_run
	worker "$a" 0 2 --args "$device,iface=far0" "$@"
	worker "$b" 1 2 --args "$device,iface=far0" "$@"
	finished && above 0 longest 1400 && above 1 longest 1400 && is_zero 0 rx_malformed && is_zero 1 rx_malformed
	ok "$name" $?
}

rights= # setpriv ...

# Opening fails, and says why.
refuses() { # name, text, arguments...
	name=$1
	text=$2
	shift 2
	rc=0
	# shellcheck disable=SC2086 # words of a command
	at "$a" $rights timeout -k 3 "$guard_s" "$nic_peer" --dir "$dir" --index 0 --peers 2 "$@" >"$dir/out" 2>"$dir/err" </dev/null || rc=$?
	[ $rc -eq 1 ] && says "$text"
	ok "$name" $?
}

refusals() { # device
	refuses "$1: no interface is named" 'iface=' --args "$1"
	refuses "$1: no such interface" 'no interface "nosuch0"' --args "$1,iface=nosuch0"
	refuses "$1: the loopback interface" 'lo carries no Ethernet frames' --args "$1,iface=lo"
	refuses "$1: a subnet where there is no address" 'far0 has no address in listen=10.92.0.0/16' \
		--args "$1,iface=far0" --listen 10.92.0.0/16
	refuses "$1: listen= of another interface" 'listen=far1 is neither' --args "$1,iface=far0" --listen far1
	refuses "$1: a key that the device does not know" "$1" --args "$1,iface=far0,colour=blue"
	at "$a" ip link set far0 down
	refuses "$1: an interface that is down" 'far0 is down' --args "$1,iface=far0"
	at "$a" ip link set far0 up
	at "$a" ip addr add fd91:7::1/64 dev far0 nodad 2>/dev/null
	at "$a" python3 -c 'import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.91.7.1", 7472))
print("bound", flush=True)
time.sleep(30)' >"$dir/bound" &
	holder=$!
	others="$others $holder"
	eventually grep -q bound "$dir/bound"
	refuses "$1: a port that is taken" 'UDP port 7472 of 10.91.7.1 is taken' --args "$1,iface=far0,port=7472" \
		--listen 10.91.7.0/24
	kill "$holder"
	wait "$holder" 2>/dev/null
	rights="setpriv --bounding-set=-all --inh-caps=-all"
	refuses "$1: without rights" 'CAP_NET_RAW' --args "$1,iface=far0"
	rights=
	no_program "$a"
	ok "$1: what was refused leaves nothing" $?
}

# ulimit -l is looked at before memory is locked: root is bound by it without one right.
refuses_memory() { # device
	rights="setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock prlimit --memlock=65536"
	refuses "$1: too little memory may be locked" 'ulimit -l' --args "$1,iface=far0"
	rights=
}

# Two processes want the same interface.
twice() { # name, device, text
	new_run
	worker "$a" 0 2 --args "$2,iface=far0" --until "$stop"
	worker "$b" 1 2 --args "$2,iface=far0" --until "$stop"
	eventually is_up
	refuses "$1" "$3" --args "$2,iface=far0"
	: >"$stop"
	finished
	ok "$1: the first one goes on" $?
}

# Neither notices the other: a connection of the kernel's stays open and moves data, pings are answered, frames for
# others are counted and left alone, and no packet reports that our ports are unreachable.
neighbours() { # name, device, address of b, where
	new_run
	device=$2
	capture "a" "$a" far0
	beside server "$b" python3 "$(traffic)" tcp-server "$3" 7999 "$stop"
	beside client "$a" python3 "$(traffic)" tcp-client "$3" 7999 "$stop"
	client=$last
	eventually grep -q open "$run/client"
	worker "$a" 0 2 --args "$device,iface=far0" --listen "$4" --until "$stop"
	worker "$b" 1 2 --args "$device,iface=far0" --listen "$4" --until "$stop"
	eventually knows_port 1
	beside unexpected "$a" python3 "$(traffic)" unexpected far0 "$(mac 2)" "$3" "$stop"
	unexpected=$last
	sleep 1.5
	at "$a" python3 "$(traffic)" malformed far0 "$(mac 2)" "$3" "$(port_of 1)" >"$run/malformed"
	captured # while both are there: who ends leaves its port to the kernel, which refuses what comes later
	: >"$stop"
	finished
	good=$?
	wait "$client" || good=1
	wait "$unexpected" || good=1
	cat "$run/client" "$run/unexpected" "$run/malformed" >>"$dir/err"
	[ $good -eq 0 ] && grep -q 'moved [1-9]' "$run/client" && grep -q 'of each' "$run/unexpected"
	ok "$1: the kernel's own traffic goes on" $?
	each=$(sed -n 's/^sent \([0-9]*\) of each.*/\1/p' "$run/unexpected")
	kinds=$(sed -n 's/^sent \([0-9]*\) kinds$/\1/p' "$run/malformed")
	case $device in
	net_af_xdp*) # what is broken in its headers, and what is not for us, is the kernel's
		above 1 rx_malformed 9
		;;
	*) # 9 kinds of the latter, some may find a ring full; a busy machine sends few of each
		above 1 rx_malformed $((kinds * 10)) && above 1 rx_unexpected $((each * 2))
		;;
	esac
	ok "$1: unexpected and malformed frames are counted" $?
	uncaptured "$1: none of our frames is refused" && return
	# The generator sends to a port that nobody has, so that it is certain that refusals are seen.
	[ $good -eq 0 ] && none_refused a "$(port_of 0)" "$(port_of 1)" && [ "$heard" -gt 0 ]
	ok "$1: none of our frames is refused" $?
}

# Who sleeps is woken by a kick, through the kernel.
large() { # name, device, MTU, largest body
	at "$a" ip link set far0 mtu "$3" && at "$b" ip link set far0 mtu "$3"
	new_run
	worker "$a" 0 2 --args "$2,iface=far0"
	worker "$b" 1 2 --args "$2,iface=far0,mtu=1200" # the smaller side decides
	finished && above 0 longest 1100 && ! above 0 longest 1172
	ok "$1, towards a peer of 1200" $?
	new_run
	worker "$a" 0 2 --args "$2,iface=far0"
	worker "$b" 1 2 --args "$2,iface=far0"
	finished && above 0 longest $(($4 - 1)) && above 1 longest $(($4 - 1)) && ! above 1 longest "$4"
	ok "$1" $?
	at "$a" ip link set far0 mtu 1500 && at "$b" ip link set far0 mtu 1500
}

sleepers() { # name, device
	new_run
	worker "$a" 0 2 --args "$2,iface=far0" --calls 1 --sleep
	worker "$b" 1 2 --args "$2,iface=far0" --calls 40 --nap 20
	finished && above 0 wakes 0 && above 1 kicks 0
	ok "$1: a sleeper is woken" $?
}

is_up() { knows_port 0 && knows_port 1; }

# A killed worker leaves nothing that is in the way of anybody, and can be started again.
killed() { # name, device
	new_run
	worker "$a" 0 2 --args "$2,iface=far0" --until "$stop"
	worker "$b" 1 2 --args "$2,iface=far0" --until "$stop"
	eventually is_up
	sleep 0.3
	for pid in $(pgrep -f -- "--dir $run --index"); do
		kill -KILL "$pid"
	done
	for pid in $workers; do
		wait "$pid"
	done 2>/dev/null
	eventually no_program "$a" && eventually no_program "$b"
	ok "$1: kill -9 leaves no program on the interface" $?
	new_run
	beside server "$b" python3 "$(traffic)" tcp-server 10.91.7.2 7998 "$stop"
	: >"$stop"
	at "$a" python3 "$(traffic)" tcp-client 10.91.7.2 7998 "$stop" >"$dir/out" 2>"$dir/err" && has out 'moved [1-9]'
	ok "$1: the host's traffic goes on after kill -9" $?
	exchange "$1: starts again after kill -9" "$2"
}

pair_cases() { # device
	joined 1 || return 1
	if ! has_rights "$1"; then
		if has err 'CAP_'; then
			skip "$1: all cases" "$(sed 's/.*needs //' "$dir/err" | head -n 1)"
			return 0
		fi
		false
		ok "$1: the module loads" $?
		return 0
	fi
	refusals "$1"
	case $1 in
	net_af_xdp*) twice "$1: two processes on one interface" "$1" 'is used by net_af_xdp of another process' ;;
	esac
	exchange "$1: IPv4" "$1"
	exchange "$1: IPv6" "$1" --listen fd91::/16
	exchange "$1: opened and closed before" "$1" --again 4
	sleepers "$1" "$1"
	agents "$1: agents, calls of all sizes" "dpdk:$1,iface=far0" 1 30000000
	neighbours "$1, IPv4" "$1" 10.91.7.2 10.91.7.0/24
	neighbours "$1, IPv6" "$1" fd91:7::2 fd91:7::/64
	killed "$1" "$1"
	no_program "$a" && no_program "$b"
	ok "$1: nothing is left on the interfaces" $?
	refuses_memory "$1"
	case $1 in
	net_af_packet*) large "$1: frames of 9000 bytes" "$1" 9000 8972 ;;
	net_af_xdp*) large "$1: frames of 3000 bytes" "$1" 3000 2972 ;;
	esac
}

all_called() { [ -e "$run/called.0" ] && [ -e "$run/called.1" ] && [ -e "$run/called.2" ]; }

# Three workers through a bridge, which sees all of their frames.
bridge() { # name, device, where
	new_run
	capture bridge "$s" far-br
	for i in 0 1 2; do
		eval "worker \$w$i $i 3 --args $2,iface=far0 --listen $3 --until $stop"
	done
	eventually all_called
	captured # while all are there, as with neighbours
	: >"$stop"
	finished
	good=$?
	[ $good -eq 0 ] && above 0 longest 1400 && above 1 longest 1400 && above 2 longest 1400
	ok "$1: three workers through a bridge" $?
	uncaptured "$1: all frames on the bridge decode" && return
	[ $good -eq 0 ] && decodes bridge "$(port_of 0)" "$(port_of 1)" "$(port_of 2)" &&
		none_refused bridge "$(port_of 0)" "$(port_of 1)" "$(port_of 2)"
	ok "$1: all frames on the bridge decode" $?
}

bridge_cases() {
	bridged || return 1
	a=$w0
	for device in net_af_packet0 net_af_xdp0; do
		if has_rights $device; then
			bridge "$device, IPv4" $device 10.91.7.0/24
			bridge "$device, IPv6" $device fd91:7::/64
			three_agents "$device: three agents through a bridge" "dpdk:$device,iface=far0"
		elif has err 'CAP_'; then
			skip "$device: through a bridge" "$(sed 's/.*needs //' "$dir/err" | head -n 1)"
		fi
	done
}

# A pair of veth has as many queues as one likes; a preloaded function has net_af_xdp believe that they are "combined". A
# packet arrives at the queue of the number that it was sent from.
queue_cases() { # device
	joined 3 || return 1
	has_rights "$1" || return 0 # said already
	case $1 in
	net_af_xdp*)
		at "$a" "$nic_peer" --dir "$dir" --index 0 --peers 2 --args "$1,iface=far0" >"$dir/out" 2>"$dir/err" </dev/null
		says 'far0 has 3 receive queues' && says 'ethtool -L far0'
		ok "$1: queues that would not be looked at are refused" $?
		exchange "$1: one queue of three, by the user's word" "$1" --args "$1,iface=far0,queue_count=1"
		;;
	esac
	preload="env LD_PRELOAD=$combined"
	exchange "$1: one shard looks at all queues" "$1"
	exchange "$1: three queues each" "$1" --queues 3
	exchange "$1: three queues, each to another one" "$1" --queues 3 --shift 1
	exchange "$1: three queues, each to another one, IPv6" "$1" --queues 3 --shift 2 --listen fd91::/16
	exchange "$1: three queues, opened and closed before" "$1" --queues 3 --again 3
	exchange "$1: two shards on three queues" "$1" --queues 2 --shift 1
	agents "$1: agents of three shards" "dpdk:$1,iface=far0" 3 1000000
	case $1 in
	net_af_xdp*)
		# shellcheck disable=SC2086
		at "$a" $preload "$nic_peer" --dir "$dir" --index 0 --peers 2 --queues 4 --args "$1,iface=far0" \
			>"$dir/out" 2>"$dir/err" </dev/null
		says 'serves 3 queues of interface far0' && says '4 shards'
		ok "$1: more shards than queues are refused" $?
		;;
	esac
	preload=
}

agents() { # name, nic, shards, largest
	new_run
	agent "$a" 0 2 "$2" "$3" "$4"
	agent "$b" 1 2 "$2" "$3" "$4"
	finished && has out '^worker0 by dpdk' && has out '^worker1 by dpdk' && has out 'wakeups=[1-9]'
	ok "$1" $?
}

three_agents() { # name, nic
	new_run
	agent "$w0" 0 3 "$2" 1 3000000
	agent "$w1" 1 3 "$2" 1 3000000
	agent "$w2" 2 3 "$2" 1 3000000
	finished && has out '^worker0 by dpdk' && has out '^worker2 by dpdk'
	ok "$1" $?
}

part=${4:-all}
case $part in
all | packet)
	pair_cases net_af_packet0
	queue_cases net_af_packet0
	;;
esac
case $part in
all | xdp)
	pair_cases net_af_xdp0
	queue_cases net_af_xdp0
	;;
esac
case $part in
all | bridge) bridge_cases ;;
esac

finish

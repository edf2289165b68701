# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The verbs driver's connections: on siw, the kernel's iWARP over TCP, and on soft-RoCE with rc=1.
# usage: verbs_rc.sh contract          what every driver promises, on siw
#        verbs_rc.sh workers siw|rxe   groups of workers, caches that are too small, and reports of errors
# shellcheck disable=SC2317 # functions that within calls
. "$VM_TOP/tests/vm/guest.sh"
unset FAR_MODULE_DIR
farcall=$VM_BUILD/farcall
agents=$VM_BUILD/tests/nic/agents_net
info() { bounded "$farcall" info --security none; }
kind=$2
device=${kind:-siw}0

modprobe -a rdma_ucm veth
ip link add veth0 type veth peer name veth1 && ip link set veth0 up && ip link set veth1 up &&
	ip addr add 10.9.0.1/24 dev veth0
ok "a network of our own" $?

contract() {
	# shellcheck disable=SC3045 # Debian's sh has it
	ulimit -n 16384
	# shellcheck disable=SC2034 # guest.sh's
	guard_s=800
	# siw holds root, too, to what may be locked.
	bounded prlimit --memlock=unlimited "$VM_BUILD/tests/nic/nic_conformance" --slow 6 --driver verbs --open
	did "conformance"
	log "$(tail -n 1 "$dir/out")"
	cp "$dir/out" "$VM_RUN/conformance"
}

# Workers of a group that all take $FAR_NIC.
together() { # name, how many, arguments of agents_net...
	name=$1
	n=$2
	shift 2
	bounded "$farcall" run -n "$n" -- "$agents" "$@"
	did "$name"
}

workers() {
	ulimit -l unlimited
	keys=
	[ "$kind" = siw ] || keys=,rc=1
	export FAR_NIC="verbs:$device$keys"
	info
	shows "info: the address" out "$device port 1.*: 10.9.0.1 (.*, veth0)"
	shows "info: the port of a worker" out '^  verbs 10.9.0.1:[0-9]'
	[ "$kind" != siw ] || shows "info: no bulk" out 'siw0: no memory windows of type 2; messages go in packets'
	FAR_NIC="$FAR_NIC,bulk=65536" info
	shows "no bulk by these, and what to say" out 'bulk= needs RoCE v2 with datagrams, .*leave bulk= out'
	export FAR_NIC="verbs:$device$keys"
	together "two workers of two shards" 2 2 1000000 400
	shows "by verbs" out 'by verbs at verbs 10.9.0.1:'
	evicted
	errors
}

# Six workers of two connections each, with five peers that they call, and are called by, many at once: connections are
# closed with calls on them all the time.
evicted() {
	FAR_NIC="verbs:$device$keys,connections=2" bounded "$farcall" run -n 6 -- "$agents" 1 5000 400
	did "five peers, two connections"
}

errors() {
	export FAR_NIC="verbs:$device$keys"
	if [ "$kind" = siw ]; then
		FAR_NIC="verbs:$device,rc=0" info
		shows "datagrams are selected" out 'is iWARP, which has no datagrams: leave rc=0 out'
		bounded prlimit --memlock=65536 "$farcall" info --security none
		shows "little memory may be locked" out 'locking [0-9]* KiB of the [0-9]* .*RLIMIT_MEMLOCK is 64 KiB: raise it'
	else
		FAR_NIC="verbs:$device,connections=2" info
		shows "connections, and datagrams" out 'sends datagrams, but connections=2 is for connections: give rc=1 or bulk= with it'
	fi
	mv /dev/infiniband/rdma_cm "$dir/rdma_cm"
	info
	shows "rdma_cm is missing" out 'rdma_cm, which sets connections up, cannot be used: .*modprobe rdma_ucm'
	mv "$dir/rdma_cm" /dev/infiniband/rdma_cm
	ip link set veth0 down
	info
	shows "the port is down" out "verbs .*$device port 1 is .*ip link set its interface up"
	ip link set veth0 up
	ip addr flush dev veth0
	info
	shows "no address" out "$device port 1 has no .*: .*ip addr add"
}

modprobe "$([ "$kind" = rxe ] && echo rdma_rxe || echo siw)" &&
	rdma link add "$device" type "${kind:-siw}" netdev veth0
ok "$device" $?
case $1 in
contract) contract ;;
workers) workers ;;
esac
rdma link delete "$device" && ip link del veth0
ok "all is taken down" $?
finish

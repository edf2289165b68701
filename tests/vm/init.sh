# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The first process of the emulated machine, once it has its root: mounts what is missing, runs the plans, powers off.
# What is meant for the host begins with @@: UP; for each plan PLAN, its name, PASS, FAIL, SKIP, LOG, END and its exit
# status.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C
read -r uptime _ </proc/uptime
echo "@@ UP after $uptime s"
for word in $(cat /proc/cmdline); do
	case $word in
	vm_id=*) id=${word#vm_id=} ;;
	esac
done
# Not /tmp: the build may be there. What the host has in these are sockets of nobody, and files of its processes.
mkdir -p /run /dev/shm /dev/pts /dev/hugepages
mount -t tmpfs run /run
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t devpts pts /dev/pts
mount -t hugetlbfs huge /dev/hugepages
mount -t configfs config /sys/kernel/config 2>/dev/null
mount -t debugfs debug /sys/kernel/debug 2>/dev/null
# DPDK loads every driver that it finds, which takes half of a start: here it finds those that plans use.
for pmds in /usr/lib/*/dpdk/pmds-*; do
	[ -d "$pmds" ] || continue
	mkdir /run/pmds
	set --
	for d in bus_pci bus_vdev mempool_ring net_virtio net_e1000 net_null net_tap net_pcap net_memif net_vhost net_af_packet net_af_xdp; do
		set -- "$@" "$pmds/librte_$d".so*
	done
	cp -a "$@" /run/pmds/
	mount --bind /run/pmds "$pmds"
done
mkdir -p /run/vm
mount -t 9p -o trans=virtio,version=9p2000.L,cache=none run /run/vm
# Plans run programs of the build as an unprivileged user, also when the clone is readable by root alone. The modes change
# in this machine's overlay only, all by one process: to start one takes an emulated processor long.
open_build() {
	set --
	up=$VM_BUILD
	while [ "$up" ]; do
		set -- "$@" "$up"
		up=${up%/*}
	done
	for f in "$VM_BUILD"/tests "$VM_BUILD"/tests/e2e "$VM_BUILD"/tests/nic "$VM_BUILD"/nic "$VM_BUILD"/nic/dpdk \
		"$VM_BUILD"/nic/verbs "$VM_BUILD"/farcall "$VM_BUILD"/tests/e2e/api_message "$VM_BUILD"/tests/nic/agents_net \
		"$VM_BUILD"/nic/*/*.so; do
		[ ! -e "$f" ] || set -- "$@" "$f"
	done
	chmod a+rx "$@"
}
plans_n=0
plan() { # its cards, script, name, arguments...
	VM_CARDS=$1
	VM_PLAN=$2
	plans_n=$((plans_n + 1))
	VM_PLAN_N=$plans_n
	export VM_CARDS VM_PLAN_N
	printf '\n@@ PLAN %s\n' "$3"
	shift 3
	read -r from _ </proc/uptime
	sh "$VM_PLAN" "$@"
	status=$?
	read -r to _ </proc/uptime
	[ "$status" -eq 0 ] || dmesg | tail -n 40
	printf '\n@@ LOG plan: %s s\n@@ END %s\n' $((${to%.*} - ${from%.*})) "$status"
}
if [ -r "/run/vm/$id.job" ]; then
	# shellcheck source=/dev/null # made for this run
	. "/run/vm/$id.job"
	open_build
	# The kernel has modules loaded by /sbin/modprobe, which knows this place only.
	mkdir -p /lib/modules
	mount --bind "$VM_KERNEL/lib/modules" /lib/modules
	ip link set lo up
	modprobe virtio_console
	plans
fi
sync
mkfifo /run/never
echo o >/proc/sysrq-trigger
# Nothing can be started any more; a first process that ends would be a panic.
read -r _ </run/never

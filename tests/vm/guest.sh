# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Sourced by plans, in the emulated machine: cases, network cards, the machine's monitor, the other machine.
#
#	VM_TOP, VM_BUILD   the source and build trees, as on the host
#	VM_ID, VM_OTHER    A or B; the other's, or nothing when there is one machine
#	VM_CARDS           numbers of the plan's cards. Number i is at 0000:00:1i.0, MAC 52:54:00:0a:00:0i (of B: 0b),
#	                   link nici; the plan calls them 0, 1 …
#	VM_RUN             a directory that is on the host, and the other machine's too
#	dir                a directory of this machine

export FAR_MODULE_DIR="$VM_BUILD/nic/dpdk"
guard_s=240 # no command takes longer
# An emulated processor stands still for seconds while its host is busy: such a peer is not dead, and a join that does
# not end fails by its own error, which names what is missing.
export FAR_PEER_LIMIT_NS=20000000000 FAR_HANG_GUARD_S=200
dir=$(mktemp -d /run/plan.XXXXXX)
chmod 755 "$dir"
# A report of a sanitizer ends the program and fails the plan, also if no case checks the program's status.
reports=$dir/reports
mkdir -m 1777 "$reports"
export ASAN_OPTIONS="detect_leaks=1:abort_on_error=1:log_path=$reports/report"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:log_path=$reports/report"
failed=0
rc=0

# One line, whatever was written before it without an end.
emit() { printf '\n@@ %s\n' "$*"; }
log() { emit LOG "$*"; }

now_s() {
	read -r uptime _ </proc/uptime
	echo "${uptime%.*}"
}
since=$(now_s)
ok() { # name, the condition's status
	took=$(($(now_s) - since))
	since=$((since + took))
	[ "$took" -lt 5 ] || log "$1: $took s"
	if [ "$2" -eq 0 ]; then
		emit PASS "$1"
	else
		failed=$((failed + 1))
		echo "case $1, exit status $rc:"
		tail -n 60 "$dir/out" 2>/dev/null | sed 's/^/  out: /'
		tail -n 60 "$dir/err" 2>/dev/null | sed 's/^/  err: /'
		emit FAIL "$1"
	fi
}
skip() { emit SKIP "$1: $2"; } # name, why
finish() {
	if [ -n "$(ls -A "$reports")" ]; then
		head -n 60 "$reports"/*
		emit FAIL "what the sanitizers reported"
		failed=$((failed + 1))
	fi
	exit $((failed > 0))
}

# Runs a command: leaves its output in out and err, its status in $rc (124 and 137: the guard ended it).
bounded() {
	rc=0
	read -r began _ </proc/uptime
	echo "$((${began%.*} + guard_s - 20))" >"$dir/running"
	timeout -k 10 "$guard_s" "$@" >"$dir/out" 2>"$dir/err" </dev/null || rc=$?
	: >"$dir/running"
}
# What each thread of the users' processes does, for who reads of a command that does not end.
threads() {
	for task in /proc/[0-9]*/task/*; do
		[ -e "${task%/task/*}/exe" ] || continue
		echo "thread $task: $(cat "$task/comm"), $(sed -n 's/^State:	//p' "$task/status"), system call $(cut -d' ' -f1 "$task/syscall")"
		sed 's/^/	/' "$task/stack"
	done 2>/dev/null
}
# Beside the plan: reports once a command that is about to be ended by its guard.
look_on() { # the plan's shell
	while [ -d "/proc/$1" ]; do
		late=
		read -r late <"$dir/running"
		if [ -n "$late" ] && [ "$(now_s)" -gt "$late" ]; then
			echo "a command that does not end:"
			threads
			return
		fi
		sleep 5
	done
}
: >"$dir/running"
look_on $$ &
# Does out or err have a line with a pattern.
has() { grep -q -e "$2" "$dir/$1"; }
# The exit status of a command that was run by bounded, or "has", as that of a case.
did() { ok "$1" "$rc"; }
shows() { # name, out or err, pattern
	has "$2" "$3"
	ok "$1" $?
}

# In front of a command: by a user without rights.
# shellcheck disable=SC2034 # the plans'
as_user="setpriv --reuid=65534 --regid=65534 --clear-groups"

# Waits up to $1 seconds for a condition: a command and its arguments.
within() {
	most=$1
	shift
	end=$(($(date +%s) + most))
	while [ "$(date +%s)" -lt "$end" ]; do
		"$@" && return 0
		sleep 0.3
	done
	return 1
}

ended() { ! [ -e "/proc/$1" ] || grep -q '^State:	Z' "/proc/$1/status"; }
# Waits for a process that this shell has started: its status goes to $rc.
reap() { # process, seconds, what it is
	within "$2" ended "$1" || {
		ok "$3 ends within $2 s" 1
		kill -9 "$1"
		within 30 ended "$1" || {
			cat "/proc/$1/stack"
			ok "$3 ends when it is killed" 1
			finish # a wait for what the kernel holds would have no end
		}
	}
	rc=0
	wait "$1" || rc=$?
}

# What came of the reference's tests. One that passed has written so; one that was cut short has not.
reference_passed() { # directory of results
	passed=$(grep -l '^passed$' -r "$1" | wc -l)
	not_passed=$(grep -L '^passed$' -r "$1")
	for r in $not_passed; do
		log "failed: ${r##*/}"
	done
	log "$passed of the reference's tests passed, $(echo "$not_passed" | grep -c .) failed"
	[ "$passed" -ge 6 ] && [ -z "$not_passed" ]
	ok "all of those that were chosen passed" $?
}

# ---- RDMA ----

# siw0, the kernel's iWARP, on an interface of this host's: 10.9.0.1. siw holds root, too, to what may be locked.
siw_begin() {
	# shellcheck disable=SC3045 # dash has it
	ulimit -l unlimited
	modprobe -a siw rdma_ucm veth && ip link add veth0 type veth peer name veth1 && ip link set veth0 up &&
		ip link set veth1 up && ip addr add 10.9.0.1/24 dev veth0 && rdma link add siw0 type siw netdev veth0
}
siw_end() { rdma link delete siw0 && ip link del veth0; }

# ---- the other machine ----

# Both wait here for each other, 600 s at most, and no longer than there is another. Who waits in vain ends its plan.
meet() { # a word that is used once
	: >"$VM_RUN/met-$VM_PLAN_N-$1-$VM_ID"
	within 600 met_or_gone "$1"
	[ -e "$VM_RUN/met-$VM_PLAN_N-$1-$VM_OTHER" ] || {
		echo "machine $VM_OTHER $(if [ -e "$VM_RUN/gone-$VM_OTHER" ]; then echo is gone; else echo does not come; fi)" >"$dir/err"
		ok "both machines are at '$1'" 1
		finish
	}
}
met_or_gone() { [ -e "$VM_RUN/met-$VM_PLAN_N-$1-$VM_OTHER" ] || [ -e "$VM_RUN/gone-$VM_OTHER" ]; }

# ---- the machine's monitor ----

# A command of QEMU's monitor protocol, as JSON; its answer goes to stdout. Fails when it does.
monitor() { python3 "$VM_TOP/tests/vm/monitor.py" /dev/vport*p1 "$1"; }
set_link() { # card, true or false
	printf '{"execute": "set_link", "arguments": {"name": "nic%d", "up": %s}}' "$(number "$1")" "$2"
}
link() { # card, up or down
	up=true
	[ "$2" = up ] || up=false
	monitor "$(set_link "$1" $up)" >/dev/null
}

# ---- network cards ----

number() { echo "$VM_CARDS" | cut -d' ' -f$(($1 + 1)); }
card() { printf '0000:00:1%d.0' "$(number "$1")"; }
driver_of() { # card
	d=$(readlink "/sys/bus/pci/devices/$(card "$1")/driver") && basename "$d"
}
# Gives a card to a driver of the kernel's: uio_pci_generic, vfio-pci, its own (kernel), or to none.
bind() { # card, driver
	address=$(card "$1")
	at=/sys/bus/pci/devices/$address
	wanted=$2
	case $2 in
	kernel)
		wanted=
		modprobe -a virtio_net "$(cat "$at/modalias")"
		;;
	none) ;;
	*) modprobe "$2" ;;
	esac
	[ ! -e "$at/driver" ] || echo "$address" >"$at/driver/unbind"
	[ "$2" != none ] || return 0
	echo "$wanted" >"$at/driver_override"
	echo "$address" >/sys/bus/pci/drivers_probe
	if [ "$2" = kernel ]; then within 30 interface "$1" >/dev/null; else [ "$(driver_of "$1")" = "$2" ]; fi
}
# The kernel's name of a card that its driver has.
interface() {
	for n in "/sys/bus/pci/devices/$(card "$1")"/net/* "/sys/bus/pci/devices/$(card "$1")"/virtio*/net/*; do
		[ ! -e "$n" ] || {
			basename "$n"
			return 0
		}
	done
	return 1
}
# A worker of its own that has a card, until it is let go; what it says goes to held. It closes the card then: one that
# is left running may have an interrupt to come when its next driver requests interrupts of another kind, and QEMU's
# e1000e ends the emulator for that.
hold_card() { # what follows dpdk:
	: >"$dir/held" # not the one before
	FAR_NIC="dpdk:$1" "$VM_BUILD/farcall" run -n 1 -- "$VM_BUILD/tests/vm/card_calls" hold >"$dir/held" 2>&1 </dev/null &
	card_holder=$!
	within 240 card_is_held
	if ! grep -q '^held$' "$dir/held"; then
		threads
		cp "$dir/held" "$dir/err"
		ok "a worker holds dpdk:$1" 1
	fi
}
card_is_held() { grep -q '^held$' "$dir/held" || ended "$card_holder"; }
let_card_go() {
	kill "$card_holder"
	reap "$card_holder" 60 "the holder of a card"
}
# So many, of 2 MiB, and none of those that an earlier process has left in a file.
huge_pages() {
	rm -f /dev/hugepages/*
	echo "$1" >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
	has_pages=$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)
	[ "$has_pages" -eq "$1" ] || ok "$1 huge pages, and there are $has_pages" 1
}

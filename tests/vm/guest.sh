# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Sourced by plans, in the emulated machine: cases, network cards, the machine's monitor, the other machine.
#
#	VM_TOP, VM_BUILD   the source and build trees, as on the host
#	VM_ID, VM_OTHER    A or B; the other's, or nothing when there is one machine
#	VM_NICS            how many cards; card i is at 0000:00:1i.0, MAC 52:54:00:0a:00:0i (of B: 0b), link nici
#	VM_RUN             a directory that is on the host, and the other machine's too
#	dir                a directory of this machine

export FAR_MODULE_DIR="$VM_BUILD/nic/dpdk"
guard_s=240 # no command takes longer
dir=$(mktemp -d /run/plan.XXXXXX)
chmod 755 "$dir"
failed=0
rc=0

# One line, whatever was written before it without an end.
tell() { printf '\n@@ %s\n' "$*"; }
log() { tell LOG "$*"; }

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
		tell PASS "$1"
	else
		failed=$((failed + 1))
		echo "case $1, exit status $rc:"
		tail -n 60 "$dir/out" 2>/dev/null | sed 's/^/  out: /'
		tail -n 60 "$dir/err" 2>/dev/null | sed 's/^/  err: /'
		tell FAIL "$1"
	fi
}
skip() { tell SKIP "$1: $2"; } # name, why
finish() { exit $((failed > 0)); }

# Runs a command: leaves its output in out and err, its status in $rc (124 and 137: the guard ended it).
bounded() {
	rc=0
	timeout -k 10 "$guard_s" "$@" >"$dir/out" 2>"$dir/err" </dev/null || rc=$?
}
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

# ---- the other machine ----

# Both wait here for each other, 240 s at most.
meet() { # a word that is used once
	: >"$VM_RUN/met-$1-$VM_ID"
	within 240 test -e "$VM_RUN/met-$1-$VM_OTHER"
}

# ---- the machine's monitor ----

# A command of QEMU's monitor protocol, as JSON; its answer goes to stdout. Fails when it does.
monitor() { python3 "$VM_TOP/tests/vm/monitor.py" /dev/vport*p1 "$1"; }
link() { # card, up or down
	up=true
	[ "$2" = up ] || up=false
	monitor "{\"execute\": \"set_link\", \"arguments\": {\"name\": \"nic$1\", \"up\": $up}}" >/dev/null
}

# ---- network cards ----

card() { printf '0000:00:1%d.0' "$1"; }
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
# A worker of its own that has a card, until it is let go; what it says goes to held.
hold_card() { # what follows dpdk:
	FAR_NIC="dpdk:$1" "$VM_BUILD/farcall" run -n 1 -- "$VM_BUILD/tests/vm/card_calls" hold >"$dir/held" 2>&1 </dev/null &
	card_holder=$!
	within 240 grep -q held "$dir/held"
}
let_card_go() {
	kill "$card_holder"
	wait "$card_holder"
}
huge_pages() { echo "$1" >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages; }

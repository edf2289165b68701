#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs plans in an emulated machine, or in two that are joined: Debian's stock kernel, the host's files, which it cannot
# change, and the programs of a build tree. `vm.sh --help` has the options.
set -u

usage() {
	cat <<'END'
usage: sh tests/vm/vm.sh [OPTIONS] --build BUILD [@CARDS] PLAN [ARGS]... [+ [@CARDS] PLAN [ARGS]...]...

PLAN is a shell script of tests/vm/plans, or elsewhere; it is run as root in the machine, and sources guest.sh. Several
are run one after the other. @CARDS: the numbers of the cards that are the plan's 0, 1 …, as in @2,3; nothing: all.

  --build DIR    the build tree whose programs are run; kernels are kept in DIR/vm-cache, or in $FAR_VM_CACHE
  --nic MODEL[,PROPERTY=VALUE]...[@hubN|@wire|@tap:NAME[:QUEUES]]
                 a network card, in order. On the same hub: joined with the machine's other ones there. wire: with the
                 other machine's card of the same number. tap: with an interface of the host's, of so many queues.
                 Nothing: with nobody
  --pair         two machines, A and B, which both run the plan
  --iommu        with an IOMMU, as vfio needs it
  --siw          with the module siw
  --cpus N       1 to 8; default 2, 1 for each of two
  --memory MB    default 2048
  --limit S      seconds that the whole may take; default 900. 240 of them for the machine to start
  --keep DIR     where logs, and what the plans write to $VM_RUN, go and stay
  --help         this text

environment: FAR_VM_KERNEL=DIR  what kernel.sh has printed: this kernel is taken

The last line is 'N passed, N failed, N skipped'. When something failed, the machines' logs are printed. The exit status
is 77 when the paths of tree and build have other characters than letters, digits and _./+-.
END
}

here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
boot_s=240
limit_s=900
build=
nics=
nics_n=0
pair=
iommu=
siw=
cpus=
memory=2048
keep=

bad() {
	echo "vm.sh: $*; --help lists the options" >&2
	exit 2
}

while [ $# -gt 0 ]; do
	case $1 in
	-h | --help)
		usage
		exit 0
		;;
	--build | --nic | --cpus | --memory | --limit | --keep)
		[ $# -gt 1 ] || bad "$1 needs a value"
		case $1 in
		--build) build=$2 ;;
		--cpus) cpus=$2 ;;
		--memory) memory=$2 ;;
		--limit) limit_s=$2 ;;
		--keep) keep=$2 ;;
		--nic)
			[ "$nics_n" -lt 8 ] || bad "more than 8 cards"
			nics="$nics $2"
			nics_n=$((nics_n + 1))
			;;
		esac
		shift
		;;
	--pair) pair=yes ;;
	--iommu) iommu=yes ;;
	--siw) siw=--siw ;;
	-*) bad "unknown option $1" ;;
	*) break ;;
	esac
	shift
done
[ -n "$build" ] || bad "--build is missing"
[ $# -gt 0 ] || bad "no plan is named"
build=$(CDPATH='' cd -- "$build" && pwd) || bad "no such directory"
# They are words of the kernel's command line, and make, which builds a module, takes no other ones.
case $build$here in
*[!A-Za-z0-9_./+-]*)
	echo "SKIP: vm: missing right: paths of letters, digits and _./+- for the tree and the build ($build)"
	echo "0 passed, 0 failed, 1 skipped"
	exit 77
	;;
esac
for n in "$memory" "$limit_s" "${cpus:-1}"; do
	case $n in
	*[!0-9]* | '') bad "'$n' is no number" ;;
	esac
done

# Calls $1 for each plan, with its cards, its script, how it is called, and its arguments.
each_plan() { # function, words of the command line...
	calls=$1
	shift
	while [ $# -gt 0 ]; do
		of_cards=
		case $1 in
		@*)
			of_cards=$(echo "${1#@}" | tr , ' ')
			shift
			;;
		esac
		case ${1:-+} in
		+) bad "no plan is named" ;;
		esac
		script=$1
		[ -f "$script" ] || script=$here/plans/${script%.sh}.sh
		[ -f "$script" ] || bad "there is no plan $script"
		script=$(CDPATH='' cd -- "$(dirname "$script")" && pwd)/$(basename "$script")
		shift
		words=
		name=$(basename "$script" .sh)
		while [ $# -gt 0 ] && [ "$1" != + ]; do
			words="$words$(quoted "$1")"
			name="$name $1"
			shift
		done
		[ $# -eq 0 ] || shift
		$calls "$of_cards" "$script" "$name" "$words"
	done
}
quoted() { # words, so that a shell reads the same
	for word; do
		printf " '%s'" "$(printf %s "$word" | sed "s/'/'\\\\''/g")"
	done
}
plans_n=0
# shellcheck disable=SC2317 # each_plan calls it
plan_check() {
	plans_n=$((plans_n + 1))
	case $2 in
	*[!A-Za-z0-9_./+-]*) bad "the path $2 cannot be handed to the machine: letters, digits and _./+- can" ;;
	esac
	for n in $1; do
		case $n in
		[0-7]) [ "$n" -lt "$nics_n" ] || bad "$3: there is no card $n" ;;
		*) bad "$3: '$n' is no number of a card" ;;
		esac
	done
}
each_plan plan_check "$@"

began=$(date +%s)
run=$(mktemp -d "${TMPDIR:-/tmp}/farcall-vm.XXXXXX")
machines=
# Ends an emulator, within 15 s whatever it does.
stop() { # process
	kill "$1" 2>/dev/null
	for _ in $(seq 50); do
		kill -0 "$1" 2>/dev/null || break
		sleep 0.3
	done
	kill -9 "$1" 2>/dev/null
	wait "$1" 2>/dev/null
}
finish() {
	trap - EXIT INT TERM
	for m in $machines; do
		stop "${m#*:}"
	done
	if [ -n "$keep" ]; then
		mkdir -p "$keep"
		find "$run" -type f -exec cp {} "$keep/" ';'
	fi
	rm -rf "$run"
	exit "$1"
}
trap 'finish 1' EXIT
trap 'finish 130' INT
trap 'finish 143' TERM

fail() { # before there is a machine
	echo "FAIL vm: $*"
	echo "0 passed, 1 failed, 0 skipped"
	finish 1
}

command -v qemu-system-x86_64 >/dev/null || fail "qemu-system-x86_64 is missing: sh tests/run.sh installs it (qemu-system-x86, seabios)"
kernel=${FAR_VM_KERNEL:-}
# shellcheck disable=SC2086 # nothing, or an option
[ -n "$kernel" ] || kernel=$(sh "$here/kernel.sh" $siw "${FAR_VM_CACHE:-$build/vm-cache}") || fail "there is no kernel"
case $kernel in
*[!A-Za-z0-9_./+-]*) fail "the path $kernel cannot be handed to the machine" ;;
esac

# A machine's time stamp counter is the host's. A kernel that boots on a loaded host measures it against timers that are
# late: in one machine of a pair the clock ran four times as fast.
tsc_khz=$(python3 "$here/tsc_khz.py") || fail "python3 cannot measure the processor's time stamp counter"

other_of() { if [ "$1" = A ]; then echo B; else echo A; fi; }

# shellcheck disable=SC2317 # each_plan calls it
plan_line() { printf "plan %s%s\n" "$(quoted "${1:-$(seq -s ' ' 0 $((nics_n - 1)))}" "$2" "$3")" "$4"; }
job() { # id, words of the command line
	id=$1
	shift
	other=
	[ -z "$pair" ] || other=$(other_of "$id")
	echo "export VM_TOP=${here%/tests/vm} VM_BUILD=$build VM_KERNEL=$kernel"
	echo "export VM_ID=$id VM_OTHER=$other VM_RUN=/run/vm"
	echo "plans() {"
	each_plan plan_line "$@"
	echo "}"
}

# Options of QEMU for one card.
nic() { # id, number, description
	model=${3%%@*}
	to=${3#"$model"}
	mac=$(printf '52:54:00:0%s:00:0%d' "$(echo "$1" | tr AB ab)" "$2")
	case $to in
	@hub[0-9]) net="hubport,id=net$2,hubid=${to#@hub}" ;;
	# Not datagrams: they wait for a card that nobody reads, and then the sender's emulator resolves again without a pause.
	@wire) net="stream,id=net$2,server=$(if [ "$1" = A ]; then echo on; else echo off; fi),addr.type=unix,addr.path=$run/wire.$2" ;;
	@tap:*:*) net="tap,id=net$2,script=no,downscript=no,vhost=off,ifname=$(echo "$to" | cut -d: -f2),queues=$(echo "$to" | cut -d: -f3)" ;;
	@tap:*) net="tap,id=net$2,script=no,downscript=no,vhost=off,ifname=$(echo "$to" | cut -d: -f2)" ;;
	'') net="hubport,id=net$2,hubid=$((100 + $2))" ;;
	*) net="unknown place $to" ;;
	esac
	# What DMA of this card is translated, where there is an IOMMU.
	translated=
	case $model in
	virtio*) [ -z "$iommu" ] || translated=,iommu_platform=on,ats=on,disable-legacy=on ;;
	esac
	echo "-netdev $net -device $model,netdev=net$2,id=nic$2,mac=$mac,addr=1$2,romfile=$translated"
}

boot() { # id
	cards=
	i=0
	for n in $nics; do
		cards="$cards $(nic "$1" $i "$n")"
		i=$((i + 1))
	done
	type=q35
	extra=
	words=
	if [ -n "$iommu" ]; then
		type=q35,kernel-irqchip=split
		extra="-device intel-iommu,intremap=on,caching-mode=on"
		words="intel_iommu=on iommu=nopt"
	fi
	# On a loaded host the kernel finds its timer too slow to be one: no_timer_check; and the processor's counter of time
	# unsteady, and reads a device of the emulator's instead, which takes 20 us: tsc=reliable. A Nehalem has what programs
	# here are built for; AVX and XSAVE of later ones cost a quarter more when emulated. What a kernel does against
	# attacks is left out, as is the filling of its memory with zeros: a fifth of the time.
	spared="init_on_alloc=0 hardened_usercopy=off randomize_kstack_offset=off apparmor=0 audit=0 cryptomgr.notests"
	spared="$spared transparent_hugepage=madvise nowatchdog" # short processes need not have 2 MiB filled with zeros
	# The machine's end of the monitor is the first port of the serial lines; the monitor connects to the other end.
	# shellcheck disable=SC2086 # words
	exec qemu-system-x86_64 -M $type -accel tcg,thread=multi -cpu Nehalem -smp "$cpus" -m "$memory" \
		-kernel "$kernel/vmlinux" -initrd "$kernel/initrd.gz" \
		-append "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off $spared nokaslr no_timer_check tsc=reliable ${tsc_khz:+tsc_early_khz=$tsc_khz }vm_init=$here/init.sh vm_id=$1 $words" \
		-virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
		-virtfs "local,path=$run,mount_tag=run,security_model=none,multidevs=remap" \
		-nodefaults -display none -no-reboot -serial "file:$run/$1.log" $extra \
		-chardev "socket,id=line,path=$run/$1.mon,server=on,wait=off" \
		-device virtio-serial-pci -device virtserialport,chardev=line,name=monitor \
		-chardev "socket,id=monitor,path=$run/$1.mon" -mon chardev=monitor,mode=control \
		$cards >"$run/$1.qemu" 2>&1 </dev/null
}

[ -n "$cpus" ] || cpus=$([ -n "$pair" ] && echo 1 || echo 2)
ids=A
[ -z "$pair" ] || ids="A B"
# The machine that is to connect to another's wires comes after them.
wires_are_there() {
	i=0
	for n in $nics; do
		case $n in
		*@wire) [ -S "$run/wire.$i" ] || return 1 ;;
		esac
		i=$((i + 1))
	done
}
for id in $ids; do
	job "$id" "$@" >"$run/$id.job"
	: >"$run/$id.log"
	if [ "$id" = B ]; then
		for _ in $(seq 100); do
			! wires_are_there || break
			sleep 0.3
		done
		sleep 0.3 # from their names to their being listened at
	fi
	boot "$id" &
	machines="$machines $id:$!"
done

# ---- the watchdog ----

lines() { tr -d '\r' <"$run/$1.log" | sed -n 's/^@@ //p'; } # the results that a machine printed
alive() { kill -0 "$1" 2>/dev/null; }
trouble=
watch() { # id:pid; whether it goes on
	id=${1%:*}
	alive "${1#*:}" || {
		: >"$run/gone-$id"
		return 1
	}
	after=$(($(date +%s) - began))
	if [ "$after" -gt "$limit_s" ]; then
		trouble="$trouble machine $id has run for more than $limit_s s;"
	elif [ "$after" -gt "$boot_s" ] && ! grep -q '^@@ UP' "$run/$id.log"; then
		trouble="$trouble machine $id has not started within $boot_s s;"
	else
		return 0
	fi
	stop "${1#*:}"
	return 1
}
began_all=$began
began=$(date +%s) # the kernel may have taken its time
running=yes
while [ -n "$running" ]; do
	sleep 0.5
	running=
	for m in $machines; do
		! watch "$m" || running=yes
	done
done
wait
machines=
# Of what has ended, the machines above all: user and system. A subshell would report its own.
times >"$run/times"
processor_s=$(sed -n '2s/[ms]/ /gp' "$run/times" | awk '{ printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }')

# ---- what came of it ----

# Prints the results of a machine's plans. A plan without a case, one that failed without naming it, and one that did not
# end have a line for "trouble".
judge() { # id, prefix
	lines "$1" | awk -v id="$1" -v prefix="$2" -v plans="$plans_n" '
		{ rest = $0; sub(/^[A-Z]+ /, "", rest) }
		$1 == "PLAN" { name = rest; cases = bad = 0; of = plans > 1 ? name ": " : "" }
		$1 == "PASS" || $1 == "FAIL" { bad += $1 == "FAIL"; cases++; print $1, prefix of rest }
		$1 == "SKIP" { cases++; print "SKIP: " prefix of rest }
		$1 == "LOG" { print "log: " prefix of rest }
		$1 == "END" {
			ended++
			which = plans > 1 ? "the plan " name : "the plan"
			if ($2 != 0 && !bad)
				print "trouble " which " ended with status " $2 " in machine " id ";"
			else if (!cases)
				print "trouble " which " has no case;"
		}
		END { if (ended < plans) print "trouble machine " id " ended before its plan;" }'
}
for id in $ids; do
	prefix=
	[ -z "$pair" ] || prefix="$id: "
	judge "$id" "$prefix"
done >"$run/report"
grep -v '^trouble ' "$run/report" >"$run/shown"
trouble="$trouble$(sed -n 's/^trouble/ /p' "$run/report" | tr -d '\n' | tr -s ' ')"
cat "$run/shown"
passed=$(grep -c '^PASS ' "$run/shown")
failed=$(grep -c '^FAIL ' "$run/shown")
skipped=$(grep -c '^SKIP: ' "$run/shown")
if [ -n "$trouble" ]; then
	echo "FAIL vm:${trouble%;}"
	failed=$((failed + 1))
fi
if [ "$failed" -gt 0 ]; then
	for id in $ids; do
		echo "---- machine $id"
		cat "$run/$id.qemu"
		tr -d '\r' <"$run/$id.log"
	done
	# Once more, in short, as a reader of the end alone would miss what failed first.
	for id in $ids; do
		tr -d '\r' <"$run/$id.log" | awk -v id="$id" '
			/^case .*, exit status / { n = 0; open = 1 }
			open { block[n++] = $0 }
			open && /^@@ FAIL/ {
				print "---- machine " id ", what failed"
				for (i = 0; i < n; i++)
					if (i < 4 || i >= n - 12)
						print block[i]
				open = 0
			}' | head -n 40
	done
	echo "----"
fi
up=$(for id in $ids; do lines "$id" | sed -n 's/^UP after \([0-9]*\).*/\1/p'; done | sort -n | tail -n 1)
echo "vm: $(echo "$*" | sed "s|[^ ]*/||g"): $(($(date +%s) - began_all)) s, up after ${up:-?} s; $processor_s s of processors"
echo "$passed passed, $failed failed, $skipped skipped"
finish $((failed > 0))

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Installs what the tests need, builds with gcc and clang and under sanitizers, runs every test, counts the cases.
set -u

packages="meson ninja-build gcc g++ clang spin pkg-config libc6-dev libsodium-dev libcriterion-dev libclang-rt-dev libjemalloc-dev binutils
gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user valgrind python3 procps util-linux iproute2 nftables
libdpdk-dev dpdk libibverbs-dev librdmacm-dev librdmacm1 ibverbs-providers tshark tcpdump ethtool iputils-ping
qemu-system-x86 seabios busybox-static kmod cpio gzip make xz-utils"
suites="unit models nic sim e2e e2e-udp conformance install vm"

usage() {
	cat <<'END'
usage: sh tests/run.sh [--suite NAME] [--no-sanitizers] [--no-docker] [--no-vm]

Installs the packages that the tests need (only what is missing; as root, or with sudo), builds into build/,
build-clang/, build-asan/ and build-tsan/, runs every suite in each build where it belongs, and prints the time of each.
The last line is 'N passed, N failed, N skipped', in test cases; the exit status is 0 when none failed.

  --suite NAME     only this one: unit, models, nic, sim, e2e, e2e-udp, conformance, install, vm; asan and tsan are
                   those builds' own tests, docker is docker/test.sh
  --no-sanitizers  without build-asan/ and build-tsan/
  --no-docker      without docker/test.sh: the image, and the training groups of docker/compose.yaml. Counted as one
                   skip
  --no-vm          without the emulated machines: network cards under DPDK, and verbs on soft-RoCE. Counted as
                   one skip
  --help           this text

environment: FAR_TESTS_STRICT=1  warnings are errors, and a skip is a failure, but for missing external data
             FAR_TESTS_BUILD     where the build directories are made (default: the top of the tree)
END
}

say() { echo "tests: $*"; }

die() {
	say "$*"
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
}

only=
sanitizers=yes
docker=yes
vm=yes
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help)
		usage
		exit 0
		;;
	--suite)
		only=${2:-}
		case " $suites asan tsan docker " in
		*" $only "*) ;;
		*)
			echo "tests: --suite: '$only' is not one of: $suites asan tsan docker" >&2
			exit 2
			;;
		esac
		shift
		;;
	--no-sanitizers) sanitizers= ;;
	--no-docker) docker= ;;
	--no-vm) vm= ;;
	*)
		echo "tests: unknown option $1; --help lists them" >&2
		exit 2
		;;
	esac
	shift
done

top=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
builds=${FAR_TESTS_BUILD:-$top}
mkdir -p "$builds" || die "cannot make $builds"
counts=$(mktemp) || die "mktemp failed"
trap 'rm -f "$counts" "$counts.log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
began=$(date +%s)

# ---- packages ----

missing=
for p in $packages; do
	dpkg -s "$p" 2>/dev/null | grep -q '^Status: install ok installed' || missing="$missing $p"
done
if [ -n "$missing" ]; then
	sudo=
	[ "$(id -u)" -eq 0 ] || sudo="sudo"
	say "installing:$missing"
	# shellcheck disable=SC2086 # words of a command
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing >"$counts.log" 2>&1 </dev/null ||
		{ $sudo apt-get update && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } \
			>"$counts.log" 2>&1 </dev/null || {
		cat "$counts.log"
		die "installing failed:$missing"
	}
fi

# ---- what this machine permits ----

permits() { # what, command...
	what=$1
	shift
	if "$@" >/dev/null 2>&1 </dev/null; then say "permitted here: $what"; else say "not permitted here: $what"; fi
}
user="env"
[ "$(id -u)" -ne 0 ] || user="setpriv --reuid=65534 --regid=65534 --clear-groups"
# shellcheck disable=SC2086 # words of a command
[ "$(id -u)" -ne 0 ] || permits "becoming an unprivileged user" $user true
# shellcheck disable=SC2086
permits "user namespaces for an unprivileged user" $user unshare -Ur true
# shellcheck disable=SC2086
permits "mounting and network devices in them" $user unshare -Urmn sh -c 'mount -t tmpfs x /dev/shm && ip link set lo up'
say "$(nproc) cores, Linux $(uname -r)"

# ---- builds and suites ----

seconds() { echo $(($(date +%s) - began)); }

failed_build() {
	tail -n 100 "$counts.log"
	say "FAILED: $1 does not build"
	echo "0 1 0" >>"$counts"
}

build() { # directory, compiler, meson options...
	where=$builds/$1
	label=$1
	compiler=$2
	shift 2
	from=$(seconds)
	if [ ! -f "$where/build.ninja" ]; then
		CC=$compiler meson setup "$where" "$top" "$@" >"$counts.log" 2>&1 || {
			failed_build "$label"
			return 1
		}
	else # it may have been made with other options, by the quickstart for one
		meson configure "$where" -Dtests=true "$@" >"$counts.log" 2>&1 || {
			failed_build "$label"
			return 1
		}
	fi
	ninja -k 0 -C "$where" >"$counts.log" 2>&1 || {
		failed_build "$label"
		return 1
	}
	say "$label: built with $compiler in $(($(seconds) - from)) s"
}

# What the sanitizers reported in this run is shown, and is one failure more.
show_reports() {
	[ -n "$(ls -A "$reports")" ] || return
	say "FAILED: $label: reports of the sanitizers:"
	head -n 40 "$reports"/*
	awk '{ line[NR] = $0 } END {
		for (i = 1; i < NR; i++) print line[i]
		split(line[NR], n, " "); print n[1], n[2] + 1, n[3]
	}' "$counts" >"$counts.log"
	cat "$counts.log" >"$counts"
}

run() { # directory, suite, arguments of meson test...
	where=$builds/$1
	label="$1, $2"
	suite=$2
	shift 2
	from=$(seconds)
	reports=$where/reports
	rm -rf "$where/meson-logs/testlog.json" "$reports"
	mkdir "$reports"
	# Reports go to files: Criterion hides those that come when the process of a case ends, as leaks do.
	log="log_path=$reports/report:log_exe_name=1"
	ASAN_OPTIONS=detect_leaks=1:abort_on_error=1:$log UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:$log \
		TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:$log meson test -C "$where" --no-rebuild --suite "$suite" "$@" >"$counts.log" 2>&1 </dev/null
	if [ -s "$where/meson-logs/testlog.json" ]; then
		python3 "$top/tests/tally.py" "$where/meson-logs/testlog.json" "$label" "$counts" ||
			echo "0 1 0" >>"$counts"
		show_reports
		say "$label: $(tail -n 1 "$counts" | awk '{print $1 " passed, " $2 " failed, " $3 " skipped"}')," \
			"$(($(seconds) - from)) s"
	else
		cat "$counts.log"
		say "FAILED: $label: meson test ran nothing"
		echo "0 1 0" >>"$counts"
	fi
}

wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }

strict=false
[ "${FAR_TESTS_STRICT:-}" != 1 ] || strict=true

# Sanitizers change what the compiler can prove: their builds never take warnings for errors.

gate() { # directory
	from=$(seconds)
	sh "$top/perf/instructions.sh" --check "$builds/$1"
	case $? in
	0) echo "1 0 0" >>"$counts" ;;
	77) echo "0 0 1" >>"$counts" ;;
	*) echo "0 1 0" >>"$counts" ;;
	esac
	say "$1, instructions: $(tail -n 1 "$counts" | awk '{print $1 " passed, " $2 " failed, " $3 " skipped"}')," \
		"$(($(seconds) - from)) s"
}

# What both compilers make of the simulator's clusters: the same packets.
same() {
	from=$(seconds)
	if sh "$top/tests/sim/cluster_same.sh" "$builds/build/tests/sim/cluster_trace" "$builds/build-clang/tests/sim/cluster_trace"; then
		echo "1 0 0" >>"$counts"
	else
		echo "0 1 0" >>"$counts"
	fi
	say "gcc and clang, simulated packets: $(tail -n 1 "$counts" | awk '{print $1 " passed, " $2 " failed"}')," \
		"$(($(seconds) - from)) s"
}

# The image and the groups of containers.
containers() {
	from=$(seconds)
	FAR_TESTS_BUILD=$builds sh "$top/docker/test.sh" >"$counts.log" 2>&1 </dev/null
	tail -n 1 "$counts.log" | awk -v strict="$strict" '
		!/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { print "0 1 0"; exit }
		strict == "true" { print $1, $3 + $5, 0; exit }
		{ print $1, $3, $5 }' >>"$counts"
	if grep -q '^FAIL' "$counts.log" || ! grep -q '^[0-9]* passed' "$counts.log"; then
		cat "$counts.log"
	else
		grep -e '^SKIP' -e '^the image' "$counts.log"
	fi
	say "docker: $(tail -n 1 "$counts" | awk '{print $1 " passed, " $2 " failed, " $3 " skipped"}')," \
		"$(($(seconds) - from)) s"
}

if [ -z "$only" ] || [ "$only" != asan ] && [ "$only" != tsan ] && [ "$only" != docker ]; then
	if build build gcc --buildtype=release -Dwerror=$strict; then
		for s in $suites; do
			[ "$s" != vm ] || [ -n "$vm" ] || continue
			wanted "$s" && run build "$s"
		done
		wanted e2e && gate build
	fi
	if wanted unit && build build-clang clang --buildtype=release -Dwerror=$strict; then
		run build-clang unit
		run build-clang clang
		gate build-clang
		[ ! -d "$builds/build/tests" ] || same
	fi
fi
if [ -n "$sanitizers" ]; then
	if wanted asan && build build-asan clang --buildtype=debugoptimized -Db_lundef=false -Db_sanitize=address,undefined; then
		run build-asan sanitize
	fi
	if wanted tsan && build build-tsan clang --buildtype=debugoptimized -Db_lundef=false -Db_sanitize=thread; then
		run build-tsan tsan
	fi
fi
if wanted vm; then
	if [ -z "$vm" ]; then
		say "SKIP: vm: left out by --no-vm: DPDK on network cards, and verbs on soft-RoCE, in emulated machines with" \
			"Debian's own kernel"
		echo "0 0 1" >>"$counts"
	elif [ -n "$sanitizers" ] && build build-asan clang --buildtype=debugoptimized -Db_lundef=false -Db_sanitize=address,undefined; then
		run build-asan vm-sanitize
	fi
fi
if wanted docker; then
	if [ -n "$docker" ]; then
		containers
	else
		say "SKIP: docker: left out by --no-docker: the image of docker/Dockerfile, and training in containers over" \
			"udp and shm"
		echo "0 0 1" >>"$counts"
	fi
fi

say "$(seconds) s in all"
awk '{ p += $1; f += $2; s += $3 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p + s == 0 }' "$counts"

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# From a fresh clone to a trained model: installs what the build needs, builds, trains on 2 servers and 2 workers, and
# measures a call over each driver.
set -eu

packages="meson ninja-build gcc pkg-config libc6-dev libsodium-dev"
# Of the drivers for DPDK and RDMA devices, of jemalloc, of the store etcd://, of compressed saves, of metrics over HTTP,
# and of static probes.
drivers="libdpdk-dev libibverbs-dev librdmacm-dev libjemalloc-dev libcurl4-openssl-dev libjansson-dev libzstd-dev libmicrohttpd-dev systemtap-sdt-dev"

usage() {
	cat <<'END'
usage: sh apps/quickstart.sh [--minimal] [OPTIONS OF 'farcall train']

Installs what the build needs (only what is missing; uses sudo once), builds into build/, and trains logistic
regression on a parameter server of 2 servers and 2 workers, each a process, over shared memory. Without --data the
data are generated from a known model, so the result can be compared with the best possible one. Then it measures a
call over shm, memif and udp, each beside the floor of the machine (not with --json).

  --minimal                 leave out what DPDK and RDMA devices, jemalloc, etcd://, compressed saves, metrics over HTTP
                            and static probes need
  --mode async|bsp          apply each push at once (default), or advance in step
  --data FILE --test FILE   files (libsvm, .csv, or Criteo's .tsv) instead of generated data
  --json                    one JSON object on stdout, all else on stderr
  --help                    this text; 'build/farcall train --help' lists the other options

environment: FARCALL_BUILD  build directory (default: build/ beside apps/)
END
}

minimal=
json=
for arg in "$@"; do
	shift
	case $arg in
	-h | --help)
		usage
		exit 0
		;;
	--minimal)
		minimal=yes
		continue
		;;
	--json) json=yes ;;
	esac
	set -- "$@" "$arg"
done
[ -n "$minimal" ] || packages="$packages $drivers"

say() {
	echo "quickstart: $*" >&2
}

die() {
	say "$*"
	exit 1
}

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=${FARCALL_BUILD:-$root/build}
case $build in
/*) ;;
*) build=$PWD/$build ;;
esac

# A build by root inside a user's clone would leave files that the user cannot change.
if [ "$(id -u)" -eq 0 ] && [ -n "${SUDO_USER:-}" ] && [ "$SUDO_USER" != root ]; then
	die "do not run this with sudo: it uses sudo itself, for apt alone"
fi

# Is a package there: by its name, or by what the build wants of it, wherever that came from.
present() {
	case $(dpkg -s "$1" 2>/dev/null) in
	*"Status: install ok installed"*) return 0 ;;
	esac
	case $1 in
	libc6-dev) [ -e /usr/include/stdio.h ] ;;
	libsodium-dev | libibverbs-dev | librdmacm-dev | libdpdk-dev) pkg-config --exists "${1%-dev}" 2>/dev/null ;;
	libcurl4-openssl-dev) pkg-config --exists libcurl 2>/dev/null ;;
	libjansson-dev) pkg-config --exists jansson 2>/dev/null ;;
	libzstd-dev) pkg-config --exists libzstd 2>/dev/null ;;
	libmicrohttpd-dev) pkg-config --exists libmicrohttpd 2>/dev/null ;;
	systemtap-sdt-dev) echo '#include <sys/sdt.h>' | cc -E - >/dev/null 2>&1 ;;
	libjemalloc-dev) [ -e /usr/include/jemalloc/jemalloc.h ] ;;
	ninja-build) command -v ninja >/dev/null 2>&1 ;;
	*) command -v "$1" >/dev/null 2>&1 ;;
	esac
}

missing() {
	for p in $packages; do
		present "$p" || printf ' %s' "$p"
	done
}

need=$(missing)
if [ -n "$need" ]; then
	command -v apt-get >/dev/null 2>&1 || die "these are missing, under the names Debian has for them:$need"
	sudo=
	[ "$(id -u)" -eq 0 ] || sudo="sudo "
	apt="${sudo}apt-get -o DPkg::Lock::Timeout=300"
	install="$apt install -y --no-install-recommends$need"
	say "the build needs these packages; running: $install"
	if [ -n "$sudo" ] && ! command -v sudo >/dev/null 2>&1; then
		die "there is no sudo here: have an administrator run: apt-get install$need"
	fi
	# A fresh system has no lists of packages yet, an old one has lists of packages that are gone.
	# shellcheck disable=SC2086 # words of a command line
	$install >&2 || { say "updating the lists of packages" && $apt update >&2 && $install >&2; } || die "installing failed"
fi
log=$(mktemp "${TMPDIR:-/tmp}/farcall-quickstart.XXXXXX")
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

run_logged() {
	if ! "$@" >"$log" 2>&1; then
		cat "$log" >&2
		die "this failed: $*"
	fi
}

# Where Debian's linker, pkg-config and CMake look; without the package dpkg-dev meson would choose lib64.
multiarch=$(${CC:-cc} -print-multiarch 2>/dev/null) || multiarch=
[ -z "$minimal" ] && feature=auto || feature=disabled
options="-Ddpdk=$feature -Dverbs=$feature -Djemalloc=$feature -Detcd=$feature -Dzstd=$feature -Dmetrics=$feature ${multiarch:+-Dlibdir=lib/$multiarch}"
if [ ! -f "$build/build.ninja" ]; then
	say "configuring $build"
	# shellcheck disable=SC2086 # words of a command line
	run_logged meson setup --buildtype=release -Dtests=false $options "$build" "$root"
elif [ -n "$need" ]; then
	say "configuring $build again, for what was installed"
	# shellcheck disable=SC2086
	run_logged meson setup --reconfigure --clearcache $options "$build" "$root"
else # --minimal may be gone, or new
	# shellcheck disable=SC2086
	run_logged meson configure "$build" $options
	run_logged ninja -C "$build" build.ninja
fi
# What is built and what is not, and why, as meson found it.
sed -n '/^ *Drivers$/,/^ *static probes/p' "$build/meson-logs/meson-log.txt" >&2
say "building"
if [ -t 2 ]; then # one line that ninja rewrites
	ninja -C "$build" >&2 || die "this failed: ninja -C $build"
else
	run_logged ninja -C "$build"
fi

farcall=
for f in "$build/farcall" "$build/apps/farcall" "$build/apps/farcall/farcall"; do
	[ -f "$f" ] && [ -x "$f" ] && farcall=$f
done
[ -n "$farcall" ] || die "the build made no program 'farcall' in $build"

say "training"
status=0
"$farcall" train --servers 2 --workers 2 "$@" || status=$?
[ $status -eq 0 ] && [ -z "$json" ] || exit $status

# One line for each driver; the modules of the build are where they were built.
measure() {
	if "$farcall" perf latency --nic "$1" --floor --seconds 1 --json >"$log" 2>"$log.err"; then
		python3 - "$1" "$log" <<'END'
import json, sys
j = json.loads(open(sys.argv[2]).read().splitlines()[-1])
floor = j.get("floor_ring_rtt_ns", j.get("floor_raw_rtt_ns"))
print("  %-8s %8.2f us  %8.2f us  %6.2f" % (sys.argv[1], j["p50_ns"] / 1e3, floor / 1e3, j["p50_ns"] / floor))
END
	else
		echo "  $1: not measured: $(grep -v 'see its messages above' "$log.err" | tail -n 1 | cut -c 1-200)"
	fi
	rm -f "$log.err"
}
say "measuring"
echo
echo "round trip of 32 bytes, median; floor of the machine; ratio"
measure shm
if [ -e "$build/nic/dpdk/libfarcall-nic-dpdk.so" ]; then
	FAR_MODULE_DIR="$build/nic/dpdk" measure memif
else
	echo "  memif: not measured: the driver dpdk is not built"
fi
measure udp

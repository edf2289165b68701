#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# From a fresh clone to a trained model: installs what the build needs, builds, trains on 2 servers and 2 workers.
set -eu

packages="meson ninja-build gcc pkg-config libc6-dev libsodium-dev"

usage() {
	cat <<'END'
usage: sh apps/quickstart.sh [OPTIONS OF 'farcall train']

Installs what the build needs (only what is missing; asks for sudo once), builds into build/, and trains logistic
regression on a parameter server of 2 servers and 2 workers, each a process, over shared memory. Without --data the
data are generated from a known model, so the result can be compared with the best possible one.

  --mode async|bsp          apply each push at once (default), or advance in step
  --data FILE --test FILE   libsvm files instead of generated data
  --json                    one JSON object on stdout, all else on stderr
  --help                    this text; 'build/farcall train --help' tells the other options

environment: FARCALL_BUILD  build directory (default: build/ beside apps/)
END
}

for arg in "$@"; do
	case $arg in
	-h | --help)
		usage
		exit 0
		;;
	esac
done

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
	die "do not run this with sudo: it asks for sudo itself, for apt alone"
fi

# Is a package there: by its name, or by what the build wants of it, wherever that came from.
present() {
	case $(dpkg -s "$1" 2>/dev/null) in
	*"Status: install ok installed"*) return 0 ;;
	esac
	case $1 in
	libc6-dev) [ -e /usr/include/stdio.h ] ;;
	libsodium-dev) pkg-config --exists libsodium 2>/dev/null ;;
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
	install="${sudo}apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends$need"
	say "the build needs these packages; running: $install"
	if [ -n "$sudo" ] && ! command -v sudo >/dev/null 2>&1; then
		die "there is no sudo here: have an administrator run: apt-get install$need"
	fi
	# shellcheck disable=SC2086 # words of a command line
	$install >&2 || die "installing failed; 'apt-get update' first may help, then run this again"
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

if [ ! -f "$build/build.ninja" ]; then
	say "configuring $build"
	run_logged meson setup --buildtype=release -Dtests=false "$build" "$root"
fi
say "building"
run_logged ninja -C "$build"

farcall=
for f in "$build/farcall" "$build/apps/farcall" "$build/apps/farcall/farcall"; do
	[ -f "$f" ] && [ -x "$f" ] && farcall=$f
done
[ -n "$farcall" ] || die "the build made no program 'farcall' in $build"

say "training"
rm -f "$log"
trap - EXIT INT TERM
exec "$farcall" train --servers 2 --workers 2 "$@"

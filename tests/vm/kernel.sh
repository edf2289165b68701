#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Has Debian's stock kernel in a directory, unpacked and never installed, with an initramfs that finds the host's root:
# downloaded and made once, by the first that needs it. Prints the directory: vmlinux, initrd.gz, version, lib/modules.
# When the kernel of today cannot be had, one of an earlier day is taken, and said to be.
# With --siw also the module siw, which Debian's kernel lacks, built from Debian's own sources.
# usage: kernel.sh [--siw] CACHE
set -eu
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
wait_s=1200 # for another who makes the same

siw=
if [ "${1:-}" = --siw ]; then
	siw=yes
	shift
fi
mkdir -p "$1"
cache=$(CDPATH='' cd -- "$1" && pwd)

die() {
	echo "kernel.sh: $*" >&2
	exit 1
}

# A package of Debian's into the current directory, its log in apt.log.
download() { timeout 600 apt-get -o Acquire::http::Timeout=30 -o Acquire::Retries=2 download "$1" >apt.log 2>&1; }
# The lists of packages may be missing, or older than the archive. Root's to renew.
renew_lists() {
	[ "$(id -u)" -eq 0 ] &&
		timeout 300 apt-get -o Acquire::http::Timeout=30 -o DPkg::Lock::Timeout=120 update >"$cache/update.log" 2>&1
}

package() {
	apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1
}

# Modules as they must be loaded, each after what it needs.
modules_of() { # root, version, modules...
	root=$1
	version=$2
	shift 2
	for m; do
		modprobe -d "$root" -S "$version" -D "$m" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
	done | awk '!seen[$0]++'
}

# The name that says it is whole comes last: a file of another name is what a run that was ended has left.
initramfs() { # root, version
	tree=$cache/initramfs
	rm -rf "$tree"
	mkdir -p "$tree/bin" "$tree/modules" "$tree/proc" "$tree/sys" "$tree/dev" "$tree/lower" "$tree/upper" "$tree/root"
	cp "$(command -v busybox)" "$tree/bin/busybox"
	cp "$here/initramfs.sh" "$tree/init"
	chmod 755 "$tree/init"
	needed="virtio_pci 9pnet_virtio 9p overlay"
	# shellcheck disable=SC2086 # words
	modules_of "$1" "$2" $needed >"$cache/order"
	for m in $needed; do
		grep -q "/$m\.ko" "$cache/order" || die "the kernel $2 has no module $m that modprobe finds under $1; remove $1"
	done
	while read -r file; do
		cp "$file" "$tree/modules/"
		basename "$file"
	done <"$cache/order" >"$tree/modules/order"
	(cd "$tree" && find . >"$cache/files" && cpio -o -H newc --quiet <"$cache/files" >"$cache/initrd.cpio") ||
		die "the initramfs cannot be packed into $cache/initrd.cpio: is the disk full?"
	{ gzip -1 <"$cache/initrd.cpio" >"$1/initrd.new" && gzip -t "$1/initrd.new"; } ||
		die "the initramfs cannot be written to $1/initrd.new: is the disk full?"
	mv "$1/initrd.new" "$1/initrd.gz"
	rm -rf "$tree" "$cache/order" "$cache/files" "$cache/initrd.cpio"
}
# Whether the one that is there is whole, and none of what it was made of is newer.
initramfs_is_good() { # root
	[ -s "$1/initrd.gz" ] && gzip -t "$1/initrd.gz" 2>/dev/null || return 1
	for source in initramfs.sh kernel.sh; do
		[ -n "$(find "$1/initrd.gz" -newer "$here/$source")" ] || return 1
	done
}

# Unpacked here, once, and not by each emulated machine; what is not packed as expected is left for the machine.
unpack_kernel() { # vmlinuz, to
	python3 - "$1" "$2" <<'END' || cp "$1" "$2"
import lzma, struct, sys
image = open(sys.argv[1], "rb").read()
offset, length = struct.unpack_from("<II", image, 0x248)  # of the x86 boot protocol: payload_offset, payload_length
start = ((image[0x1F1] or 4) + 1) * 512 + offset
kernel = lzma.LZMADecompressor().decompress(image[start : start + length])
sys.exit(not kernel.startswith(b"\x7fELF") or open(sys.argv[2], "wb").write(kernel) != len(kernel))
END
}

# Has the package's kernel in the cache, as a whole or not at all.
unpack() { # package
	rm -rf "$cache/new"
	mkdir -p "$cache/new"
	cd "$cache/new"
	download "$1" || return 1
	version=${1#linux-image-}
	{ dpkg -x ./*.deb . && [ -f "boot/vmlinuz-$version" ]; } || {
		echo "kernel.sh: the package $1 cannot be unpacked, or has no boot/vmlinuz-$version" >>apt.log
		return 1
	}
	unpack_kernel "boot/vmlinuz-$version" vmlinux && depmod -b "$cache/new" "$version" && echo "$version" >version || return 1
	rm -f ./*.deb apt.log
	cd /
	rm -rf "${cache:?}/$1"
	mv "$cache/new" "$cache/$1"
}
is_here() { [ -n "$1" ] && [ -s "$cache/$1/version" ] && [ -s "$cache/$1/vmlinux" ]; }
# The one that was taken last, or any.
cached() {
	for k in "$cache/$(cat "$cache/name" 2>/dev/null)" "$cache"/linux-image-*; do
		k=${k##*/}
		if is_here "$k"; then
			echo "$k"
			return
		fi
	done
}
# Sets name.
find_kernel() {
	rm -rf "$cache/new"
	name=$(package)
	is_here "$name" && return
	if [ -n "$name" ] && (unpack "$name" >&2); then return; fi
	# The archive keeps no old versions: what the lists name may have gone.
	if renew_lists; then
		name=$(package)
		is_here "$name" && return
		if [ -n "$name" ] && (unpack "$name" >&2); then return; fi
	fi
	wanted=${name:-the kernel behind linux-image-amd64}
	tail -n 5 "$cache/new/apt.log" >&2 2>/dev/null || true
	name=$(cached)
	[ -n "$name" ] || die "$wanted cannot be downloaded, and there is none in $cache from before: give this machine" \
		"access to Debian's archive, run 'apt-get update' as root, and try again"
	echo "kernel.sh: WARNING: $wanted CANNOT BE DOWNLOADED; $name, of an earlier day, is taken: 'apt-get update' as" \
		"root, and access to Debian's archive, would mend it" >&2
}

# Out of tree, against Debian's headers, which say where they are: that is changed to where they are unpacked.
build_siw() { # root of the kernel
	version=$(cat "$1/version")
	base=${version%-*}
	series=${version%.0-*}
	rm -rf "$cache/siw"
	mkdir -p "$cache/siw"
	cd "$cache/siw"
	for p in "linux-headers-$version" "linux-headers-$base-common" "linux-kbuild-$series" "linux-source-$series"; do
		download "$p" || {
			tail -n 5 apt.log >&2
			die "the package $p cannot be downloaded: see above; as root, 'apt-get update' may help"
		}
	done
	for p in ./*.deb; do
		dpkg -x "$p" .
	done
	headers=$cache/siw/usr/src/linux-headers-$version
	sed -i -e "s|/usr/src/|$cache/siw/usr/src/|" "$headers/Makefile"
	source=linux-source-$series
	tar xf "usr/src/$source.tar.xz" "$source/drivers/infiniband/sw/siw"
	make -C "$headers" M="$cache/siw/$source/drivers/infiniband/sw/siw" CONFIG_RDMA_SIW=m modules >make.log 2>&1 || {
		tail -n 20 make.log >&2
		die "siw cannot be built: see above"
	}
	mkdir -p "$1/lib/modules/$version/updates"
	cp "$source/drivers/infiniband/sw/siw/siw.ko" "$1/lib/modules/$version/updates/"
	depmod -b "$1" "$version"
	: >"$1/siw" # it is whole
	cd /
	rm -rf "$cache/siw"
}

PATH=$PATH:/usr/sbin:/sbin
for tool in apt-get dpkg depmod modprobe busybox cpio gzip flock python3; do
	command -v "$tool" >/dev/null ||
		die "$tool is missing: sh tests/run.sh installs it (busybox-static, cpio, gzip, kmod, python3, util-linux)"
done
exec 9>"$cache/lock"
flock -w "$wait_s" 9 || die "another has held $cache/lock for $wait_s s"
find_kernel
root=$cache/$name
initramfs_is_good "$root" || initramfs "$root" "$(cat "$root/version")" >&2
[ -z "$siw" ] || [ -f "$root/siw" ] || build_siw "$root" >&2
echo "$name" >"$cache/name"
echo "$root"

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Has Debian's stock kernel in a directory, unpacked and never installed, with an initramfs that finds the host's root:
# downloaded and made once, by whoever comes first. Prints the directory: vmlinuz, initrd.gz, version, lib/modules.
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

# A package of Debian's into the current directory; the lists of packages may be missing, or older than the archive.
download() {
	apt-get download "$1" >apt.log 2>&1 ||
		{ [ "$(id -u)" -eq 0 ] && apt-get update >>apt.log 2>&1 && apt-get download "$1" >>apt.log 2>&1; } ||
		{
			tail -n 5 apt.log >&2
			die "the package $1 cannot be downloaded: see above; as root, 'apt-get update' may help"
		}
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

initramfs() { # root, version
	tree=$cache/initramfs
	rm -rf "$tree"
	mkdir -p "$tree/bin" "$tree/modules" "$tree/proc" "$tree/sys" "$tree/dev" "$tree/lower" "$tree/upper" "$tree/root"
	cp "$(command -v busybox)" "$tree/bin/busybox"
	cp "$here/initramfs.sh" "$tree/init"
	chmod 755 "$tree/init"
	modules_of "$1" "$2" virtio_pci 9pnet_virtio 9p overlay >"$cache/order"
	while read -r file; do
		cp "$file" "$tree/modules/"
		basename "$file"
	done <"$cache/order" >"$tree/modules/order"
	(cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$1/initrd.new"
	mv "$1/initrd.new" "$1/initrd.gz"
	rm -rf "$tree" "$cache/order"
}

unpack() { # package
	rm -rf "$cache/new"
	mkdir -p "$cache/new"
	cd "$cache/new"
	download "$1"
	dpkg -x ./*.deb .
	version=${1#linux-image-}
	[ -f "boot/vmlinuz-$version" ] || die "the package $1 has no boot/vmlinuz-$version"
	depmod -b "$cache/new" "$version"
	ln -s "boot/vmlinuz-$version" vmlinuz
	echo "$version" >version
	rm -f ./*.deb apt.log
	cd /
	rm -rf "${cache:?}/$1"
	mv "$cache/new" "$cache/$1"
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
		download "$p"
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
	cd /
	rm -rf "$cache/siw"
}

for tool in apt-get dpkg depmod modprobe busybox cpio flock; do
	command -v "$tool" >/dev/null || PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null ||
		die "$tool is missing: sh tests/run.sh installs it (busybox-static, cpio, kmod, util-linux)"
done
PATH=$PATH:/usr/sbin:/sbin
name=$(package)
[ -n "$name" ] || { [ "$(id -u)" -eq 0 ] && apt-get update >/dev/null 2>&1 && name=$(package); } || true
[ -n "$name" ] || name=$(cat "$cache/name" 2>/dev/null) ||
	die "apt-cache knows no kernel behind linux-image-amd64: this takes Debian's package lists ('apt-get update')"
exec 9>"$cache/lock"
flock -w "$wait_s" 9 || die "another has held $cache/lock for $wait_s s"
[ -f "$cache/$name/version" ] || unpack "$name" >&2
for source in initramfs.sh kernel.sh; do
	[ -n "$(find "$cache/$name" -name initrd.gz -newer "$here/$source")" ] || initramfs "$cache/$name" "$(cat "$cache/$name/version")" >&2
done
[ -z "$siw" ] || [ -f "$cache/$name/lib/modules/$(cat "$cache/$name/version")/updates/siw.ko" ] || build_siw "$cache/$name" >&2
echo "$name" >"$cache/name"
echo "$cache/$name"

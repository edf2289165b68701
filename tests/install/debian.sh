#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The packages of Debian: built from the last commit, checked by lintian, unpacked into one directory, used there.
# usage: debian.sh BUILD_TOP SOURCE_TOP
set -u
build=$1
top=$2
. "$(dirname "$0")/../e2e/cases.sh"

for command in dpkg-buildpackage dh lintian git; do
	command -v $command >/dev/null || missing="${missing:-} $command"
done
if [ -n "${missing:-}" ] || ! git -C "$top" rev-parse --verify HEAD >/dev/null 2>&1; then
	skip "packages of Debian" "${missing:-a clone of the repository} (packages debhelper, lintian)"
	finish
	exit
fi

# The same directory in every run, so that ccache has the objects: debug information names it.
work=$build/debian
root=$work/root
tree=$work/farcall
rm -rf "$work"
mkdir -p "$tree" "$root"
trap 'rm -rf "$dir" "$work"' EXIT
git -C "$top" archive HEAD | tar x -C "$tree"

# ---- the packages ----

guard_s=900 # a build, where ccache has nothing, beside other tests
export DEB_BUILD_OPTIONS="nocheck noautodbgsym parallel=2"
bounded sh -c 'cd "$1" && dpkg-buildpackage -us -uc' sh "$tree"
[ $rc -eq 0 ]
ok "dpkg-buildpackage, source and binary" $?
[ $rc -eq 0 ] || finish
guard_s=600 # lintian takes a minute of a processor
sed -n 's/^Package: //p' "$top/debian/control" | sort >"$dir/named"
find "$work" -maxdepth 1 -name '*.deb' | sed 's|.*/||; s/_.*//' | sort >"$dir/made"
diff "$dir/named" "$dir/made" >"$dir/err"
ok "a package for each of debian/control" $?
dpkg-source -x "$work"/farcall_*.dsc "$work/unpacked" >"$dir/out" 2>"$dir/err" &&
	diff -r "$tree/engine" "$work/unpacked/engine" >"$dir/err"
ok "the source package holds the sources" $?
bounded lintian --allow-root --fail-on error,warning "$(find "$work" -maxdepth 1 -name 'farcall_*.changes')"
[ $rc -eq 0 ] && ! grep -hv '^running with root' "$dir/out" "$dir/err" >"$dir/found"
ok "lintian finds nothing" $?

# ---- what is in them ----

guard_s=150
for deb in "$work"/*.deb; do
	dpkg-deb -x "$deb" "$root" || echo "$deb"
done >"$dir/err" 2>&1
[ ! -s "$dir/err" ]
ok "they unpack beside each other" $?
# A shared library is in this directory or in a package that the control file requires, so none is lacking here.
pc=$(find "$root" -name farcall.pc)
lib=$(dirname "${pc%/*}")
farcall=$root/usr/bin/farcall
export PKG_CONFIG_LIBDIR="${pc%/*}:/usr/lib/pkgconfig:/usr/share/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root"
export LD_LIBRARY_PATH="$lib"
find "$root/usr" -type f \( -perm -u+x -o -name '*.so*' \) | while read -r file; do
	readelf -h "$file" >/dev/null 2>&1 && ldd "$file" | sed -n "s|.*=> not found|$file: &|p"
done >"$dir/err"
[ ! -s "$dir/err" ]
ok "no library is missing" $?
for deb in libfarcall1 libfarcall-dev farcall; do
	dpkg-deb -f "$work/$deb"_*.deb Depends
done >"$dir/out"
[ "$(grep -c 'libfarcall-ops1 (= ' "$dir/out")" -eq 3 ] && grep -q 'libc6 (>=' "$dir/out" && grep -q 'libsodium23 (>=' "$dir/out"
ok "the packages require each other and their libraries" $?

# ---- use ----

bounded "$farcall" --version
[ $rc -eq 0 ] && [ "$(cat "$dir/out")" = "farcall $(dpkg-parsechangelog -l "$top/debian/changelog" -S Version)" ]
ok "the program runs, and its version is the package's" $?
for how in shared static; do
	if [ $how = shared ]; then libs=$(pkg-config --libs farcall); else
		libs="-L$lib -Wl,-Bstatic -lfarcall -Wl,-Bdynamic -lsodium $(pkg-config --static --libs-only-other farcall)"
	fi
	rm -f "$dir/app"
	# shellcheck disable=SC2046,SC2086 # words of a command
	bounded cc -std=c11 -Wall -Wextra -Werror $(pkg-config --cflags farcall) "$top/tests/install/hello.c" -o "$dir/app" $libs
	[ $rc -eq 0 ]
	ok "$how: a program builds against them" $?
	bounded "$farcall" run -n 2 -- sh -c 'exec "$0" "member$RANK"' "$dir/app"
	[ $rc -eq 0 ] && [ "$(cat "$dir/out")" = "hello, worker number 0" ] && says '[1] hello, worker number 1'
	ok "$how: it runs as a group" $?
done
for component in train:digits:2 ps:tables:0; do
	name=${component%%:*}
	example=${component#*:}
	rm -f "$dir/app"
	# shellcheck disable=SC2046 # words of a command
	bounded cc -std=c11 $(pkg-config --cflags "farcall-$name") \
		"$root/usr/share/doc/libfarcall-dev/examples/${example%:*}.c" -o "$dir/app" $(pkg-config --libs "farcall-$name")
	[ $rc -eq 0 ]
	ok "libfarcall-$name: an installed example builds" $?
	bounded "$farcall" run -n 3 -- "$dir/app"
	[ $rc -eq "${example#*:}" ] # digits lacks its argument
	ok "libfarcall-$name: it runs" $?
done
bounded env FAR_MODULE_DIR="$lib/farcall" "$farcall" info
for driver in dpdk verbs; do
	# A module that cannot be loaded has a message that begins with: driver "NAME".
	has out "^  $driver  *\(not \)\?available" && ! has out "^  $driver .*driver \"$driver\""
	ok "the driver $driver loads" $?
done
bounded env FAR_MODULE_DIR="$dir" "$farcall" info
has out '^  dpdk .*driver "dpdk"'
ok "a driver that is absent is found to be" $?
finish

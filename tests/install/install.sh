#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What `meson install` leaves: an application outside the tree builds against it, statically and shared, in C11 and
# C++17, and the library shows nothing but its interface.
# usage: install.sh BUILD_TOP SOURCE_TOP
set -u
build=$1
source=$2/tests/install
. "$(dirname "$0")/../e2e/cases.sh"

bounded env DESTDIR="$dir/root" meson install -C "$build" --no-rebuild
[ $rc -eq 0 ]
ok "meson install" $?

# pkg-config gives the paths below the DESTDIR: the sysroot is put before them.
pc=$(find "$dir/root" -name farcall.pc)
export PKG_CONFIG_LIBDIR="${pc%/*}" PKG_CONFIG_SYSROOT_DIR="$dir/root"
lib=$(dirname "$PKG_CONFIG_LIBDIR")
farcall=$(find "$dir/root" -path '*/bin/farcall')
[ -n "$pc" ] && bounded pkg-config --modversion farcall && "$farcall" --version >"$dir/err" &&
	[ "farcall $(cat "$dir/out")" = "$(cat "$dir/err")" ]
ok "pkg-config finds it, and tells the version of the program" $?

for header in agent farcall future memory message rpc status value version; do
	find "$dir/root" -path "*/include/farcall/$header.h" | grep -q . || echo "$header.h is missing"
done >"$dir/out"
[ ! -s "$dir/out" ] && ! find "$dir/root" -name '*.h' | grep -qv '/include/farcall/'
ok "the public headers, and no other" $?

for header in "$2"/include/farcall/*.h; do
	echo "#include <farcall/$(basename "$header")>"
	echo "int use_$(basename "$header" .h)(void);"
done >"$dir/each"
flags="-Wall -Wextra -Wpedantic -Wshadow -Werror -O1"
for lang in c:gcc:c11 c:clang:c11 c++:g++:c++17 c++:clang++:c++17; do
	name=${lang%%:*}
	std=${lang##*:}
	compiler=${lang#*:}
	compiler=${compiler%:*}
	if ! command -v "$compiler" >/dev/null; then
		skip "headers and application, $compiler" "$compiler (package ${compiler%++})"
		continue
	fi
	: >"$dir/out"
	: >"$dir/err"
	for header in "$2"/include/farcall/*.h; do
		echo "#include <farcall/$(basename "$header")>" |
			"$compiler" -x "$name" -std=$std $flags $(pkg-config --cflags farcall) -fsyntax-only - 2>>"$dir/err"
	done
	[ ! -s "$dir/err" ]
	ok "$compiler: every header alone" $?
	[ "$name" = c ] && program=hello.c || program=headers.cc
	for how in shared static; do
		if [ $how = shared ]; then
			libs="$(pkg-config --libs farcall) -Wl,-rpath,$lib"
		else
			libs="-L$lib -Wl,-Bstatic -lfarcall -Wl,-Bdynamic $(pkg-config --static --libs-only-other farcall) -lsodium"
		fi
		# shellcheck disable=SC2046,SC2086 # words of a command
		bounded "$compiler" -std=$std $flags $(pkg-config --cflags farcall) "$source/$program" -o "$dir/app" $libs
		[ $rc -eq 0 ]
		ok "$compiler, $how: $program builds" $?
		readelf -d "$dir/app" >"$dir/out" 2>"$dir/err"
		[ "$(grep -c 'NEEDED.*libfarcall\.so\.' "$dir/out")" -eq "$([ $how = shared ] && echo 1 || echo 0)" ]
		ok "$compiler, $how: is what was asked for" $?
		if [ $program = hello.c ]; then
			bounded "$farcall" run -n 2 -- sh -c 'exec "$0" "member$RANK"' "$dir/app"
			[ $rc -eq 0 ] && [ "$(cat "$dir/out")" = "hello, worker number 0" ] &&
				says '[1] hello, worker number 1'
		else
			bounded "$farcall" run -n 1 -- "$dir/app"
			[ $rc -eq 0 ] && [ "$(cat "$dir/out")" = 3.5 ]
		fi
		ok "$compiler, $how: $program runs" $?
		rm -f "$dir/app"
	done
done

# Memory: with and without jemalloc, which a program brings; beside another malloc: a jemalloc of the application's own,
# and ASan's.
plain() { pkg-config --libs farcall; }
static_plain() { echo "-L$lib -Wl,-Bstatic -lfarcall -Wl,-Bdynamic $(pkg-config --static --libs-only-other farcall) -lsodium"; }
with_jemalloc() { pkg-config --libs farcall-jemalloc; }
static_jemalloc() { echo "-L$lib -Wl,-u,far_jemalloc -lfarcall-jemalloc $(static_plain) -lm"; }
for how in plain static_plain with_jemalloc static_jemalloc; do
	case $how in *jemalloc) allocator="^jemalloc 5" ;; *) allocator="^page runs$" ;; esac
	if [ "$how" != "${how%jemalloc}" ] && ! pkg-config --exists farcall-jemalloc; then
		skip "memory, $how" "jemalloc (package libjemalloc-dev, when the build is configured)"
		continue
	fi
	for with in gcc:-O1 gcc:-ljemalloc clang:-O1 "gcc:-fsanitize=address,undefined -g" "clang:-fsanitize=address,undefined -g"; do
		if [ "$with" = gcc:-ljemalloc ] && ! pkg-config --exists farcall-jemalloc; then
			skip "memory, $how, beside the application's own jemalloc" "jemalloc (package libjemalloc-dev)"
			continue
		fi
		if ! command -v "${with%%:*}" >/dev/null; then
			skip "memory, $how, $with" "${with%%:*}"
			continue
		fi
		# shellcheck disable=SC2046,SC2086 # words of a command
		bounded "${with%%:*}" -std=c11 -Wall -Wextra -Werror ${with#*:} $(pkg-config --cflags farcall) \
			"$source/memory.c" -o "$dir/app" $($how) ${with#*:} "-Wl,-rpath,$lib" &&
			[ $rc -eq 0 ] && bounded "$farcall" run -n 1 -- "$dir/app" && [ $rc -eq 0 ] && has out "$allocator"
		ok "memory, $how, $with" $?
		rm -f "$dir/app"
	done
done
nm -a "$lib/libfarcall.so" >"$dir/out"
! has out 'je_\|jemalloc'
ok "the shared library holds no jemalloc" $?

readelf -d "$lib/libfarcall.so" >"$dir/out"
has out 'SONAME.*\[libfarcall\.so\.[0-9]*\]'
ok "the shared library has a soname" $?
nm -D --defined-only "$lib/libfarcall.so" | awk '{print $3}' | sed 's/@.*//' | grep -v '^FARCALL_' >"$dir/out"
[ -s "$dir/out" ] && ! grep -v '^far_' "$dir/out" >"$dir/err"
ok "it exports far_* and nothing else" $?
sort -u "$dir/out" >"$dir/exported"

nm -D --defined-only "$lib/libfarcall-ops.so" | awk '{print $3}' | sed 's/@.*//' | grep -v '^FARCALL_' | sort -u >"$dir/ops"
[ -s "$dir/ops" ] && ! grep -v -e '^far_op_' -e '^far_ops_module$' "$dir/ops" >"$dir/err"
ok "libfarcall-ops exports far_op_*, far_ops_module and nothing else" $?
readelf -d "$lib/libfarcall-ops.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v '^lib[cm]\.so\.' >"$dir/err"
[ ! -s "$dir/err" ]
ok "libfarcall-ops needs the C library alone" $?

nm -D --defined-only "$lib/libfarcall-train.so" | awk '{print $3}' | sed 's/@.*//' | grep -v '^FARCALL_' | sort -u >"$dir/train"
[ -s "$dir/train" ] && ! grep -Ev '^far_(pool|var|tape|grads|optimizer|module)_' "$dir/train" >"$dir/err"
ok "libfarcall-train exports its own names and nothing else" $?
# shellcheck disable=SC2046 # words of a command
bounded cc -std=c11 -Wall -Wextra -Werror $(pkg-config --cflags farcall-train) "$2/apps/examples/digits.c" -o "$dir/app" \
	$(pkg-config --libs farcall-train) "-Wl,-rpath,$lib" && [ $rc -eq 0 ] && bounded "$dir/app" && [ $rc -eq 2 ] &&
	says "usage:"
ok "a program builds with pkg-config's farcall-train, and runs" $?
rm -f "$dir/app"

# The static library exports the same. A program that defines all names which the engine has inside links and runs.
nm -g --defined-only "$lib/libfarcall.a" | awk 'NF == 3 { print $3 }' >"$dir/static"
sort "$dir/static" | diff - "$dir/exported" >"$dir/err" && [ -s "$dir/static" ] && ! grep -v '^far_' "$dir/static" >>"$dir/err"
ok "the static library exports the same names, far_* alone" $?
nm -g --defined-only "$build/engine/libfarcall-internal.a" | awk 'NF == 3 && $3 !~ /^far_/ { print "int " $3 ";" }' |
	sort -u >"$dir/names.c"
# shellcheck disable=SC2046 # words of a command
bounded cc -std=c11 -fno-builtin $(pkg-config --cflags farcall) "$source/hello.c" "$dir/names.c" -o "$dir/app" $(static_plain)
[ $rc -eq 0 ] && [ "$(wc -l <"$dir/names.c")" -gt 500 ]
ok "a program with names of the engine's links the static library" $?
bounded "$farcall" run -n 2 -- sh -c 'exec "$0" "member$RANK"' "$dir/app"
[ $rc -eq 0 ] && [ "$(cat "$dir/out")" = "hello, worker number 0" ] && says '[1] hello, worker number 1'
ok "a program with names of the engine's runs" $?
rm -f "$dir/app"

# Every function that a header declares is there.
sed -n 's/^[a-z].*[ *]\(far_[a-z0-9_]*\)(.*/\1/p' "$2"/include/farcall/*.h | sort -u >"$dir/declared"
grep -h '^static inline' "$2"/include/farcall/*.h | sed -n 's/.*[ *]\(far_[a-z0-9_]*\)(.*/\1/p' | sort -u >"$dir/inline"
grep '^typedef' -h "$2"/include/farcall/*.h | sed -n 's/.*[ *]\(far_[a-z0-9_]*\)(.*/\1/p' | sort -u >>"$dir/inline"
sort -u "$dir/exported" "$dir/ops" "$dir/train" >"$dir/both"
sort -u "$dir/inline" | comm -23 "$dir/declared" - | comm -23 - "$dir/both" >"$dir/err"
[ -s "$dir/declared" ] && [ ! -s "$dir/err" ]
ok "every function that the headers declare is exported" $?

finish

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Makes one object of a static jemalloc: its public symbols are renamed, and made local but for those that jemalloc.c uses, so
# that it neither replaces a program's malloc nor collides with its jemalloc. Its settings come from jemalloc.c
# alone: the environment and /etc configure the application's own jemalloc.
# usage: hide.sh AR LD NM OBJCOPY ARCHIVE OUTPUT
set -eu
ar=$1 ld=$2 nm=$3 objcopy=$4 output=$6
archive=$(realpath "$5")
work=$(mktemp -d "${TMPDIR:-/tmp}/farcall-jemalloc.XXXXXX")
trap 'rm -rf "$work"' EXIT

(cd "$work" && "$ar" x "$archive" && rm -f jemalloc_cpp*.o) # C++'s new and delete stay the application's
"$ld" -r -o "$work/all.object" "$work"/*.o
{
	"$nm" -g --defined-only "$work/all.object" | awk 'NF == 3 && $3 !~ /^je_/ { print $3, "far_je_" $3 }'
	echo "secure_getenv far_je_getenv"
	echo "readlink far_je_readlink"
} >"$work/rename"
for name in malloc_conf mallocx dallocx sallocx mallctl; do
	grep -q "^$name " "$work/rename" || {
		echo "hide.sh: $archive defines no $name: configured with a prefix?" >&2
		exit 1
	}
	echo "far_je_$name"
done >"$work/keep"
# Renaming first: the list of what stays global has the new names.
"$objcopy" --redefine-syms="$work/rename" "$work/all.object" "$work/renamed.object"
"$objcopy" --keep-global-symbols="$work/keep" "$work/renamed.object" "$output"

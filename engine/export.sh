#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Makes the static library that is installed: one object of all members of an archive, in which only the symbols of the
# version script stay global. A program that links it can define any name outside far_*, as with the shared library.
# usage: export.sh AR LD OBJCOPY VERSION_SCRIPT ARCHIVE OUTPUT
set -eu
ar=$1 ld=$2 objcopy=$3 map=$4 archive=$5
case $6 in /*) output=$6 ;; *) output=$PWD/$6 ;; esac
work=$(mktemp -d "${TMPDIR:-/tmp}/farcall-export.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The patterns between "global:" and "local:".
sed -n '/global:/,/local:/s/^[[:space:]]*\([A-Za-z_][A-Za-z0-9_*?]*\);.*/\1/p' "$map" >"$work/keep"
[ -s "$work/keep" ] || {
	echo "export.sh: $map lists no global symbol" >&2
	exit 1
}
# --whole-archive reads thin archives, too; `ar x` does not.
"$ld" -r -o "$work/all.object" --whole-archive "$archive"
# Symbols of hidden visibility (base/stack_switch.c) match the pattern, but are not exported by the shared library.
"$objcopy" --wildcard --keep-global-symbols="$work/keep" --localize-hidden "$work/all.object" "$work/farcall.o"
rm -f "$output"
(cd "$work" && "$ar" rcsD "$output" farcall.o)

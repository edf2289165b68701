#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Freezes the interface of libfarcall as that of a release: its headers, and the symbols of the library.
#
# usage: sh tests/abi/freeze.sh LIBRARY
#
# Run it when a version is released, and after a change of an interface that no release has yet.
set -eu

[ $# -eq 1 ] && [ -f "$1" ] || {
	sed -n '3,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
headers=$here/../../include/farcall
version=$(sed -n 's/^#define FAR_VERSION *"\([0-9]*\.[0-9]*\).*/\1/p' "$headers/version.h")
mkdir -p "$here/$version/farcall"
for header in "$headers"/*.h; do
	case ${header##*/} in # those of the other libraries, which promise nothing yet
	ops.h | ps.h | ps_schema.h | autograd.h | optim.h | module.h | train.h) continue ;;
	esac
	cp "$header" "$here/$version/farcall/"
done
nm -D --defined-only "$1" | sed -n 's/.* T \(far_[a-z0-9_]*\).*/\1/p' | sort >"$here/$version/symbols"

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Every symbol of a release is in the library. usage: symbols.sh LIBRARY SYMBOLS
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nm -D --defined-only "$1" | sed -n 's/.* T \(far_[a-z0-9_]*\).*/\1/p' | sort >"$work/now"
missing=$(comm -23 "$2" "$work/now")
[ -z "$missing" ] || {
	echo "the library does not have: $missing" >&2
	exit 1
}
# The check sees a symbol that is missing.
echo far_of_no_release >"$work/more"
[ "$(sort "$2" "$work/more" | comm -23 - "$work/now")" = far_of_no_release ]

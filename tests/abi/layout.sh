#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Compares the types of the frozen headers with the present ones by abidiff: only the growing structs may grow, at their
# end, and `reserved` words may shrink. usage: layout.sh FROZEN.so PRESENT.so CHANGED.so SUPPRESSIONS
#
# CHANGED.so is made of the present headers with a field of a frozen struct widened: the check must see that.
set -eu
command -v abidiff >/dev/null || {
	echo "needs the package abigail-tools" >&2
	exit 77
}
abidiff --ignore-soname --suppressions "$4" "$1" "$2"
if abidiff --ignore-soname --suppressions "$4" "$1" "$3" >/dev/null; then
	echo "abidiff does not see a changed struct" >&2
	exit 1
fi

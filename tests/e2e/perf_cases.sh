# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh disable=SC2154
# Sourced by the tests of `farcall perf`, which set `farcall`.
. "$(dirname "$0")/cases.sh"

refuses() { # name, text, command...
	name=$1
	text=$2
	shift 2
	bounded "$farcall" perf "$@"
	[ $rc -eq 2 ] && says "$text" && [ ! -s "$dir/out" ]
	ok "refused: $name" $?
}

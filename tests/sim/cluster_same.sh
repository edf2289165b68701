#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The same seed gives the same packets: in several processes, whose addresses differ, and from every build given (of
# other compilers, say).
# usage: cluster_same.sh CLUSTER_TRACE [CLUSTER_TRACE of another build]...
set -eu
[ $# -gt 0 ] || {
	echo "usage: cluster_same.sh CLUSTER_TRACE..." >&2
	exit 2
}
# Where a system takes addresses from the program's own environment and arguments, these differ too.
for run in "2 1 3" "3 2 2 20000000" "10 3 1 5000000" "20 4 1" "--restart 6 5 20 5000000"; do
	expected=
	for program in "$@"; do
		for round in 1 2; do
			# shellcheck disable=SC2086 # several arguments
			got=$(PADDING=$(printf "%$((round * 977))d" 0) "$program" $run 2>/dev/null) || {
				echo "$program $run: failed: $got" >&2
				exit 1
			}
			[ -n "$expected" ] || expected=$got
			[ "$got" = "$expected" ] || {
				echo "$program $run: not the same packets as before:" >&2
				printf '%s\n%s\n' "$expected" "$got" >&2
				exit 1
			}
		done
	done
	case $run in
	"2 1 3") other=$("$1" 2 7 3) ;;
	*) other= ;;
	esac
	[ "$other" != "$expected" ] || {
		echo "another seed gives the same packets" >&2
		exit 1
	}
	echo "$run: $expected"
done

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Instructions of a queue's pass with 0 to 896 idle links beside the active one (valgrind has no room for more), by
# callgrind: (long run - short run) / rounds between them. "active": a packet of 32 bytes sent and received; "idle": a
# pass that finds nothing. Below each, what a link costs in memory.
# usage: recv_cost.sh BUILD-DIRECTORY [DRIVER]   (needs the package valgrind)
set -eu
cost=${1:?usage: recv_cost.sh BUILD-DIRECTORY [DRIVER]}/tests/nic/recv_cost
driver=${2:-shm}
command -v valgrind >/dev/null || { echo "recv_cost.sh: needs the package valgrind" >&2; exit 1; }
count() {
	valgrind --tool=callgrind --callgrind-out-file=/dev/null "$cost" --driver "$driver" "$@" 2>&1 >/dev/null |
		sed -n 's/.*Collected : //p'
}
for links in 1 2 17 65 897; do
	for what in active idle; do
		short=$(count "$links" 1000 $what)
		long=$(count "$links" 101000 $what)
		echo "$((links - 1)) idle links, $what: $(((long - short) / 100000)) instructions"
	done
	"$cost" --driver "$driver" "$links" 1 idle | sed 's/^/  /'
done

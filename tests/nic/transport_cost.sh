#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Instructions that a link adds to a message, one side to the other, by callgrind: with checksums of its own, and over a
# driver that checks. Its driver below only copies; what that takes is counted too, some 40.
# usage: transport_cost.sh BUILD-DIRECTORY   (a release build; needs the package valgrind)
set -eu
cost=${1:?usage: transport_cost.sh BUILD-DIRECTORY}/tests/nic/transport_cost
command -v valgrind >/dev/null || { echo "transport_cost.sh: needs the package valgrind" >&2; exit 1; }
count() {
	valgrind --tool=callgrind --callgrind-out-file=/dev/null "$cost" "$@" 2>&1 >/dev/null |
		sed -n 's/.*Collected : //p'
}
for crc in own driver; do
	[ "$crc" = own ] || export LINK_COST_CRC=1
	for bytes in 0 32 128 1024; do
		short=$(count "$bytes" 1000)
		long=$(count "$bytes" 11000)
		echo "$bytes bytes, checksums: $crc: $(((long - short) / 20000)) instructions a message"
	done
done

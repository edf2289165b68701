#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Instructions of one call with its answer, both sides together, by callgrind: (long run - short run) / calls between them.
# usage: instructions.sh BUILD-DIRECTORY   (made without -Dtests=false; needs the package valgrind)
set -eu
step=${1:?usage: instructions.sh BUILD-DIRECTORY}/perf/step
command -v valgrind >/dev/null || { echo "instructions.sh: needs the package valgrind" >&2; exit 1; }
count() {
	valgrind --tool=callgrind --callgrind-out-file=/dev/null "$step" "$1" "$2" 2>&1 >/dev/null |
		sed -n 's/.*Collected : //p'
}
for api in message fiber rpc fanout; do
	short=$(count 100 $api)
	long=$(count 1100 $api)
	echo "$api: $(((long - short) / 16000)) instructions a call"
done

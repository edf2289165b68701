#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What a round trip of a small packet takes on the kernel's soft-RoCE in an emulated machine, by perftest's ib_send_lat
# by ibv_ud_pingpong and by raw packets on the verbs driver's queues, and beside them a call by that driver. A record for perf/NOTES.md: neither a test nor a
# statement about a device, since device, kernel and processor are all emulated.
# usage: floor.sh BUILD [ROUNDS]
set -u
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
if [ $# -lt 1 ] || [ ! -x "$1/farcall" ]; then
	echo "usage: floor.sh BUILD [ROUNDS]; BUILD is a build tree with the program farcall" >&2
	exit 2
fi
for tool in ib_send_lat ibv_ud_pingpong; do
	command -v "$tool" >/dev/null || {
		echo "floor.sh: $tool is missing: apt-get install perftest ibverbs-utils" >&2
		exit 1
	}
done
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
sh "$here/vm.sh" --build "$1" floor "${2:-3}" >"$out" || {
	cat "$out"
	exit 1
}
# log: figure NAME MEDIAN P99
awk '
	$2 == "figure" { n[$3]++; of[$3, n[$3]] = $4 + 0; tail[$3, n[$3]] = $5 }
	function middle(name, i, j, t, k) {
		for (i = 1; i <= n[name]; i++) k[i] = of[name, i]
		for (i = 1; i <= n[name]; i++) for (j = i + 1; j <= n[name]; j++) if (k[j] < k[i]) { t = k[i]; k[i] = k[j]; k[j] = t }
		return k[int((n[name] + 1) / 2)]
	}
	END {
		if (!n["ib_send_lat"] || !n["ibv_ud_pingpong"] || !n["raw"] || !n["farcall"]) { print "floor.sh: figures are missing"; exit 1 }
		printf "%-20s %12s   %s\n", "round trip, us", "median", "each round (99 %)"
		for (i = split("ib_send_lat ibv_ud_pingpong raw farcall", name, " "); i >= 1; i--) {
			printf "%-20s %12.1f  ", name[i], middle(name[i])
			for (r = 1; r <= n[name[i]]; r++) printf " %.1f (%s)", of[name[i], r], tail[name[i], r]
			printf "\n"
		}
		printf "farcall / ib_send_lat %.2f\n", middle("farcall") / middle("ib_send_lat")
	}' "$out"

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Sweeps of `farcall perf` as pictures: farcall perf --plot with points that suit the machine.
set -eu

usage() {
	cat <<'END'
usage: sh perf/plots.sh [--seconds N] [--nic SPEC] [--peers N,...] FARCALL OUT-DIRECTORY

Measures and draws, in OUT-DIRECTORY, with the figures beside each picture (.csv):

  load.svg       latency against load: calls begin at fixed times (5 % to 95 % of the rate that --inflight 64 reaches)
                 and their times count from when they should have begun
  bandwidth.svg  bandwidth against the size of messages, 1 and 4 in flight
  peers.svg      latency against the number of peers that are attached to the server, one of them active

  --seconds N    of each point (1)
  --nic SPEC     drivers, as of farcall perf (FAR_NIC, else auto)
  --peers N,...  numbers of peers (1,4,16,64,256)

Needs the packages gnuplot-nox and python3.
exit status: 0; 1: a measurement failed, with its message; 2: usage
END
}

fail() {
	echo "plots.sh: $*" >&2
	exit 1
}
wrong() {
	echo "plots.sh: $*" >&2
	echo "Try 'sh perf/plots.sh --help'." >&2
	exit 2
}

seconds=1
peers=1,4,16,64,256
nic=
while [ $# -gt 0 ]; do
	case $1 in
	--help)
		usage
		exit 0
		;;
	--seconds | --nic | --peers)
		[ $# -gt 1 ] || wrong "$1 needs a value"
		case $1 in
		--seconds) seconds=$2 ;;
		--nic) nic=$2 ;;
		--peers) peers=$2 ;;
		esac
		shift 2
		;;
	-*) wrong "unknown option $1" ;;
	*) break ;;
	esac
done
if [ $# -ne 2 ]; then
	usage >&2
	exit 2
fi
case $peers in
*[!0-9,]* | ,* | *, | *,,* | '') wrong "--peers: \"$peers\" is not a list of numbers such as 1,16,64" ;;
esac
farcall=$1
out=$2
[ -x "$farcall" ] || wrong "$farcall is no program"
command -v gnuplot >/dev/null || fail "needs the package gnuplot-nox"
command -v python3 >/dev/null || fail "needs the package python3"
mkdir -p "$out"
[ -z "$nic" ] || export FAR_NIC="$nic"

sweep() { # NAME, what perf is to do
	name=$1
	shift
	"$farcall" perf "$@" --seconds "$seconds" --csv --plot "$out/$name.svg" >"$out/$name.csv" || fail "farcall perf $* failed"
	echo "$out/$name.svg"
}

rates=$("$farcall" perf rate --seconds "$seconds" --json | python3 -c 'import json, sys
j = json.loads(sys.stdin.read().splitlines()[-1])
print(",".join(str(max(1, round(j["calls_per_s"] * p / 100))) for p in (5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95)))') ||
	fail "farcall perf rate failed"
sweep load rate --rate "$rates"
sweep bandwidth bandwidth --bytes 256,1K,4K,16K,64K,256K,1M,2M,4M,8M --depth 1,4
sweep peers latency --peers "$peers"

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Sweeps of `farcall perf` as pictures.
set -eu

usage() {
	cat <<'END'
usage: sh perf/plots.sh [--seconds N] [--nic SPEC] [--peers N,...] FARCALL OUT-DIRECTORY

Measures and draws, in OUT-DIRECTORY, with the figures beside each picture (.dat):

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

measure() { # FILE, what perf is to do
	file=$1
	shift
	"$farcall" perf "$@" --json >"$file" || fail "farcall perf $* failed"
}

# Prints a Python expression over the object `j` of a file.
of() { # FILE, EXPRESSION
	python3 -c 'import json, sys
j = json.loads(open(sys.argv[1]).read().splitlines()[-1])
print(eval(sys.argv[2]))' "$1" "$2"
}

draw() { # NAME, gnuplot commands on stdin
	{
		echo "set terminal svg size 800,480 font 'DejaVu Sans,13' background rgb 'white'"
		echo "set output '$out/$1.svg'"
		echo "set datafile commentschars '#'"
		echo "set grid lc rgb '#dddddd'; set key outside above; set border 3; set tics nomirror; set style data linespoints"
		cat
	} >"$out/.gnuplot"
	gnuplot "$out/.gnuplot" || fail "gnuplot failed for $1"
	rm "$out/.gnuplot"
	echo "$out/$1.svg"
}

json=$out/.json
trap 'rm -f "$json" "$out/.gnuplot"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

measure "$json" rate --seconds "$seconds"
rates=$(of "$json" '",".join(str(max(1, round(j["calls_per_s"] * p / 100))) for p in (5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95))')
measure "$json" rate --rate "$rates" --seconds "$seconds"
driver=$(of "$json" 'j["nic"]')
{
	echo "# calls/s that should begin, answered/s, us: p50 p99 p99.9; 1: saturated"
	of "$json" '"\n".join("%d %.0f %.3f %.3f %.3f %d" % (r["rate"], r["calls_per_s"], r["p50_ns"] / 1e3, r["p99_ns"] / 1e3, r["p999_ns"] / 1e3, r["unsent"] > 0) for r in j["results"])'
} >"$out/load.dat"
draw load <<END
set title 'Latency against load, $driver, 32 bytes, open loop'
set xlabel 'million calls per second that should begin'; set ylabel 'time from when a call should begin, µs'
set logscale y; set format y '%g'; set xrange [0:*]
plot '$out/load.dat' using (\$1/1e6):3 title 'p50' lw 2 pt 7 ps 0.5, \
     '' using (\$1/1e6):4 title 'p99' lw 2 pt 7 ps 0.5, \
     '' using (\$1/1e6):5 title 'p99.9' lw 2 pt 7 ps 0.5, \
     '' using (\$6 > 0 ? \$1/1e6 : NaN):3 with points title 'saturated' pt 2 ps 1.2 lc rgb 'black'
END

sizes=256,1K,4K,16K,64K,256K,1M,2M,4M,8M
sizes_tics="'256' 256, '1 KiB' 2**10, '4 KiB' 2**12, '16 KiB' 2**14, '64 KiB' 2**16, '256 KiB' 2**18, '1 MiB' 2**20, '4 MiB' 2**22"
measure "$json" bandwidth --bytes $sizes --depth 1,4 --seconds "$seconds"
{
	echo "# bytes, GB/s at depth 1, at depth 4"
	of "$json" '"\n".join("%d %.4f %.4f" % (a["bytes"], a["bytes_per_s"] / 1e9, b["bytes_per_s"] / 1e9) for a, b in zip(j["results"][::2], j["results"][1::2]))'
} >"$out/bandwidth.dat"
draw bandwidth <<END
set title 'Bandwidth against the size of messages, $driver, the receiver reads every byte'
set xlabel 'size of a message, bytes'; set ylabel 'GB/s'
set logscale x 2; set yrange [0:*]
set xtics ($sizes_tics)
plot '$out/bandwidth.dat' using 1:2 title '1 in flight' lw 2 pt 7 ps 0.5, \
     '' using 1:3 title '4 in flight' lw 2 pt 7 ps 0.5
END

echo "# peers, us: p50 p99" >"$out/peers.dat"
for n in $(echo "$peers" | tr , ' '); do
	measure "$json" latency --peers "$n" --seconds "$seconds"
	of "$json" '"%d %.3f %.3f" % (j["peers"], j["p50_ns"] / 1e3, j["p99_ns"] / 1e3)' >>"$out/peers.dat"
done
draw peers <<END
set title 'Latency against attached peers, $driver, one of them active'
set xlabel 'peers'; set ylabel 'round trip, µs'
set logscale x 2; set yrange [0:*]
plot '$out/peers.dat' using 1:2 title 'p50' lw 2 pt 7 ps 0.5, \
     '' using 1:3 title 'p99' lw 2 pt 7 ps 0.5
END

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What each part of the fast path gives: the program without it, by turns with the whole one.
set -eu

factors="fast bursts claims own ahead prefetch deadlines sites plans futures quiet polls"

usage() {
	cat <<'END'
usage: sh perf/factors.sh [--rounds N] [--seconds S] BUILD-DIRECTORY [FACTOR...]

Builds the program without each part of the fast path (engine/base/factor.h), and prints how many times as long a call
takes without it: message and typed call over shm, 64 in flight (calls/s) and one (p50). Each figure is the median of
the ratios of N rounds (7). In each round the whole program runs before the one without, for S seconds (0.3, 0.1 at
least). Behind it is the distance of the quartiles. 1.00: it gives nothing there.

  fast       the whole fast path
  bursts     the first line of a burst is published last (without it claims have no effect either)
  claims     the ownership of a burst's lines is requested at once
  own        they are requested by a prefetch that owns (else by stores), where the processor obeys it
  ahead      each line of a burst requests the ownership of one further ahead
  prefetch   the receiver prefetches the lines of a burst
  deadlines  one reading of the clock for 64 passes of calls
  sites      a place that calls finds its function again by the name's address
  plans      the callee remembers how a function's arguments came
  futures    free futures are kept by the shard
  quiet      a pass looks at the next lines before it receives
  polls      a wait polls the lane alone between two passes

exit status: 0; 1: a program failed; 2: usage
END
}

rounds=7
seconds=0.3
while [ $# -gt 0 ]; do
	case $1 in
	--help)
		usage
		exit 0
		;;
	--rounds | --seconds)
		case ${2:-} in
		'' | *[!0-9.]*)
			echo "factors.sh: $1 takes a number" >&2
			exit 2
			;;
		esac
		if [ "$1" = --rounds ]; then rounds=$2; else seconds=$2; fi
		shift 2
		;;
	-*)
		echo "factors.sh: unknown option $1; --help lists them" >&2
		exit 2
		;;
	*) break ;;
	esac
done
if [ $# -lt 1 ]; then
	usage >&2
	exit 2
fi
build=$1
shift
for factor; do
	case " $factors " in
	*" $factor "*) ;;
	*)
		echo "factors.sh: '$factor' is not one of: $factors" >&2
		exit 2
		;;
	esac
done
[ $# -eq 0 ] || factors=$*
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# shellcheck disable=SC2046,SC2086 # words
ninja -C "$build" farcall-without-none $(printf 'farcall-without-%s ' $factors) >"$work/log" 2>&1 || {
	tail -n 20 "$work/log" >&2
	echo "factors.sh: the programs do not build" >&2
	exit 1
}

# Prints the time of a call: the reciprocal of the rate, or the median.
measure() { # factor, measurement, api
	"$build/farcall-without-$1" perf "$2" --api "$3" --nic shm --seconds "$seconds" --json 2>"$work/log" >"$work/json" || {
		cat "$work/log" >&2
		echo "factors.sh: farcall-without-$1 perf $2 --api $3 failed" >&2
		exit 1
	}
	if [ "$2" = rate ]; then
		sed -n 's/.*"calls_per_s": \([0-9.e+]*\).*/\1/p' "$work/json" | awk '{ print 1e9 / $1 }'
	else
		sed -n 's/.*"p50_ns": \([0-9.e+]*\).*/\1/p' "$work/json"
	fi
}

for round in $(seq "$rounds"); do
	for factor in $factors; do
		for figure in rate-message latency-message rate-rpc latency-rpc; do
			whole=$(measure none "${figure%-*}" "${figure#*-}")
			without=$(measure "$factor" "${figure%-*}" "${figure#*-}")
			echo "$factor $figure $whole $without" >>"$work/figures"
		done
	done
	[ ! -t 2 ] || echo "factors.sh: round $round of $rounds" >&2
done
awk -v factors="$factors" '
	function sort(list, sorted, n, i, j, x) {
		n = split(list, sorted, " ")
		for (i = 2; i <= n; i++) {
			x = sorted[i] + 0
			for (j = i - 1; j > 0 && sorted[j] + 0 > x; j--)
				sorted[j + 1] = sorted[j]
			sorted[j + 1] = x
		}
		return n
	}
	{ of[$1, $2] = of[$1, $2] " " $4 / $3 }
	END {
		figures = split("rate-message latency-message rate-rpc latency-rpc", figure, " ")
		printf "%-10s %16s %16s %16s %16s\n", "without", "message, 64", "message, one", "typed, 64", "typed, one"
		n = split(factors, factor, " ")
		for (i = 1; i <= n; i++) {
			printf "%-10s", factor[i]
			for (k = 1; k <= figures; k++) {
				m = sort(of[factor[i], figure[k]], list)
				printf "  %6.2f (%4.0f %%)", list[int((m + 1) / 2)], \
					100 * (list[int((3 * m + 3) / 4)] - list[int((m + 3) / 4)])
			}
			print ""
		}
	}' "$work/figures"

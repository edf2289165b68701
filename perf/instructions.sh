#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Instructions of one call with its answer, both sides together, counted by callgrind.
set -eu

usage() {
	cat <<'END'
usage: sh perf/instructions.sh [--check | --update | --functions | --counters] BUILD-DIRECTORY

Counts the instructions of a call with its answer, both sides together, per API: a message of 32 bytes to an inline
handler, the same to a fiber, a typed call of far::add, by its name and by a handle, one of 16 in a fan-out, one of an
object's method, in bursts and one after the other (method_single); and of their stages, which perf/stages lists. rref:
a reference made, fetched and given back. udp, udp_alone: a message over udp, in bursts of 16 and alone; without the
kernel's share, and with what polls find nothing. The directory is of a build with --buildtype=release and the tests.
Needs the packages valgrind and python3.

  --check      compares with perf/instructions.expected, made by the same compiler for the same machine; fails when a
               count is more than 3 % above what is expected there (stages: and more than 8 instructions, over udp 40:
               by the clock a call takes a pass more, which finds nothing), when the tables of engine/README.md differ
               from a trace, or when spans, which are off, take more than 2; with the compiler that these tables name,
               also when counters by peer take more than 4 instructions of a caller or of a callee (9 of a call alone,
               which shares them with no other call of a burst)
  --update     writes the counts there, in place of those of this compiler and machine, and, with the compiler that the
               tables of engine/README.md name, these tables
  --functions  prints the functions of each API with their stages and instructions
  --counters   prints the instructions of a call that count by peer, of the caller and of the callee: those that
               perf/step-without-counters lacks

exit status: 0; 1: more instructions than expected, or nothing could be counted; 2: usage; 77: nothing is expected of
this compiler and machine
END
}

mode=show
case ${1:-} in
--check | --update | --functions | --counters)
	mode=${1#--}
	shift
	;;
--help)
	usage
	exit 0
	;;
esac
if [ $# -ne 1 ]; then
	usage >&2
	exit 2
fi
top=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
build=$1
step=$build/perf/step
readme=$top/../engine/README.md
expected=$top/instructions.expected
rounds=500
percent=3
slack=8
slack_clocked=40
counters_most=4
counters_most_alone=9
spans_most=2

fail() {
	echo "instructions.sh: $*" >&2
	exit 1
}

stages() { python3 "$top/stages.py" "$@"; }

command -v valgrind >/dev/null || fail "needs the package valgrind"
command -v python3 >/dev/null || fail "needs the package python3"
for program in "$step" "$step-without-counters"; do
	[ -x "$program" ] || fail "$program is not there: ninja -C $1 perf/$(basename "$program")"
done
made=$("$step" build)
case $made in
*" release") ;;
*) fail "$1 is a build of another kind than --buildtype=release, whose counts do not compare: $made" ;;
esac
compiler=${made% release}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

calls=$((rounds * 16))

# Writes PROFILE, and what callgrind prints to PROFILE.log.
profile() { # PROGRAM, API, PROFILE
	FAR_NIC=$nic valgrind --tool=callgrind --callgrind-out-file="$3" --dump-instr=yes --compress-pos=no \
		--compress-strings=no --collect-atstart=no --toggle-collect=measured "$1" "$rounds" "$2" >"$3.log" 2>&1 || {
		cat "$3.log" >&2
		fail "$1 $rounds $2 failed under callgrind"
	}
}

count() { # API
	nic= of=$1
	case $1 in
	udp) nic=udp of=message ;;
	udp_alone) nic=udp of=message_single ;;
	esac
	profile "$step" "$of" "$work/$1.profile"
	total=$(sed -n 's/.*Collected : //p' "$work/$1.profile.log")
	[ "${total:-0}" -gt 0 ] || fail "callgrind counted nothing in measured()"
	if [ "$mode" = functions ]; then
		stages functions "$build" "$work/$1.profile" "$calls" | sed "s/^/$1 /"
		return
	fi
	echo "$compiler $1 total $((total / calls))"
	stages counts "$build" "$work/$1.profile" "$calls" >"$work/$1.stages" || exit 1
	sed "s/^/$compiler $1 /" "$work/$1.stages"
}

# Two commands side by side, a core each: both have ended when it returns, and one that failed ends this program.
beside() {
	# shellcheck disable=SC2086 # words of a command
	$1 &
	one=$!
	# shellcheck disable=SC2086
	$2 &
	other=$!
	status=0
	wait "$one" || status=1
	wait "$other" || status=1
	[ "$status" -eq 0 ] || exit 1
}

# The instructions and memory accesses of a few calls of an API, one after the other.
trace() { # API, FILE
	from=$(stages address "$build" measured)
	to=$(stages address "$build" end_of_measurement)
	mkfifo "$2.pipe"
	sed -n "/^I *0*$from,/,/^I *0*$to,/p" <"$2.pipe" >"$2" &
	valgrind --tool=lackey --trace-mem=yes --vgdb=no --log-fd=9 "$step" 1 "$1" 9>"$2.pipe" >"$2.log" 2>&1 || {
		cat "$2.log" >&2
		fail "$step 1 $1 failed under lackey"
	}
	wait
	grep '^map ' "$2.log" >>"$2"
}

tables() {
	beside "trace message_single $work/message" "trace rpc_single $work/rpc"
	stages tables "$build" "$work/counts" "$compiler" "$work/message" "$work/rpc" >"$work/tables"
}

count_each() {
	for api; do
		count "$api" >"$work/$api.counts"
	done
}

# Of each API, in files of their own: two run at once.
count_counters() {
	nic=
	for api; do
		[ -f "$work/$api.profile" ] || profile "$step" "$api" "$work/$api.profile"
		profile "$step-without-counters" "$api" "$work/$api.without"
		stages counters "$work/$api.profile" "$work/$api.without" "$calls" >"$work/$api.counters" || exit 1
	done
}

# Prints what counters by peer take of each side; fails if it is more than is permitted.
counters() {
	beside "count_counters $counted" "count_counters $counted_too"
	for api in $counted $counted_too; do
		sed "s/^/$api /" "$work/$api.counters"
	done | awk -v bursts="$counters_most" -v alone="$counters_most_alone" '
		{
			most = $1 ~ /_single$/ ? alone : bursts
			over = $3 >= most + 0.5
			bad = bad || over
			printf "%-14s %s %4.1f instructions of a call count by peer, at most %d%s\n", $1, $2, $3, most, over ? "  MORE" : ""
		}
		END { exit bad }'
}
counted="message fiber rpc handle"
counted_too="fanout method message_single method_single"

if [ "$mode" = counters ]; then
	counters
	exit
fi
first="message fiber rpc handle fanout"
second="method method_single rref"
clocked="udp udp_alone" # their timers run by the clock: nothing is beside them
beside "count_each $first" "count_each $second"
# shellcheck disable=SC2086 # words
count_each $clocked
for api in $first $second $clocked; do
	cat "$work/$api.counts" >>"$work/counts"
done

case $mode in
functions)
	cat "$work/counts"
	;;
show)
	awk '{ printf "%-9s %-14s %5d instructions a call\n", $3, $4, $5 }' "$work/counts"
	;;
update)
	{
		echo "# Instructions of a call, by instructions.sh --update: compiler, machine, API, stage, count."
		{ grep -v -e '^#' -e "^$compiler " "$expected" 2>/dev/null || true; } | cat - "$work/counts" | LC_ALL=C sort -s -k 1,2
	} >"$work/new"
	cat "$work/new" >"$expected"
	echo "perf/instructions.expected: $(wc -l <"$work/counts") counts of $compiler written"
	if grep -qx "Compiler $compiler." "$readme"; then
		tables
		stages readme --write "$readme" "$work/tables"
		echo "engine/README.md: tables written"
	fi
	;;
check)
	if ! grep -q "^$compiler " "$expected"; then
		echo "instructions.sh: nothing is expected of $compiler; --update writes what it counts" >&2
		exit 77
	fi
	awk -v percent="$percent" -v slack="$slack" -v slack_clocked="$slack_clocked" -v spans="$spans_most" '
		/^#/ { next }
		FNR == NR { want[$1, $2, $3, $4] = $5; next }
		{
			w = want[$1, $2, $3, $4]
			least = $4 == "total" ? 0 : $3 ~ /^udp/ ? slack_clocked : slack
			if (w == "" && $4 == "total") verdict = "not expected: --update"
			else if ($4 == "spans" && $5 > spans) verdict = "MORE"
			else if ($5 - w > w * percent / 100 && $5 - w > least) verdict = "MORE"
			else if (w - $5 > w * percent / 100 && w - $5 > least) verdict = "less: --update keeps it so"
			else verdict = ""
			bad = bad || verdict == "MORE" || (w == "" && $4 == "total")
			printf "%-9s %-14s %5d instructions a call, expected %5d  %s\n", $3, $4, $5, w, verdict
		}
		END { exit bad }' "$expected" "$work/counts" || {
		echo "instructions.sh: FAILED: more instructions than perf/instructions.expected. Take them back, or, when they" \
			"are worth it, give the reason in the commit and run: sh perf/instructions.sh --update $1" >&2
		exit 1
	}
	if grep -qx "Compiler $compiler." "$readme"; then
		counters || fail "FAILED: counters by peer take more instructions of a side than --help permits"
		tables
		stages readme --check "$readme" "$work/tables" || exit 1
		echo "engine/README.md: its tables are those of this build"
	fi
	;;
esac

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Instructions of one call with its answer, both sides together, counted by callgrind.
set -eu

usage() {
	cat <<'END'
usage: sh perf/instructions.sh [--check | --update] BUILD-DIRECTORY

Counts the instructions of a call with its answer, both sides together, per API: a message of 32 bytes to an inline
handler, the same to a fiber, a typed call of far::add, one of 16 in a fan-out, one of an object's method; and of their
parts. rref: a reference made, fetched and given back. The directory is of a build with --buildtype=release and the
tests. Needs the package valgrind.

  --check   compares with perf/instructions.expected, made by the same compiler for the same machine; fails when a count
            is more than 3 % above what is expected there (parts: and more than 8 instructions)
  --update  writes the counts there, in place of those of this compiler and machine

exit status: 0; 1: more instructions than expected, or nothing could be counted; 2: usage; 77: nothing is expected of
this compiler and machine
END
}

mode=show
case ${1:-} in
--check | --update)
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
step=$1/perf/step
expected=$top/instructions.expected
rounds=500
percent=3
slack=8

fail() {
	echo "instructions.sh: $*" >&2
	exit 1
}

command -v valgrind >/dev/null || fail "needs the package valgrind"
[ -x "$step" ] || fail "$step is not there: ninja -C $1 perf/step"
build=$("$step" build)
case $build in
*" release") ;;
*) fail "$1 is a build of another kind than --buildtype=release, whose counts say nothing: $build" ;;
esac
compiler=${build% release}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Of a call, inclusive of what they call: FUNCTION... of the profile of the last API.
of() {
	for function in "$@"; do
		awk -v name="$function" -v calls="$calls" '
			$0 ~ ":" name "( \\[|$)" { gsub(",", "", $1); n += $1 }
			END { printf "%d", n / calls + 0.5 }' "$work/inclusive"
		echo
	done | awk '{ n += $1 } END { print n + 0 }'
}

count() { # API
	calls=$((rounds * 16))
	valgrind --tool=callgrind --callgrind-out-file="$work/profile" --collect-atstart=no --toggle-collect=measured \
		"$step" "$rounds" "$1" >"$work/log" 2>&1 || {
		cat "$work/log" >&2
		fail "$step $rounds $1 failed under callgrind"
	}
	total=$(sed -n 's/.*Collected : //p' "$work/log")
	[ "${total:-0}" -gt 0 ] || fail "callgrind counted nothing in measured()"
	callgrind_annotate --inclusive=yes --threshold=100 "$work/profile" >"$work/inclusive"
	total=$((total / calls))
	echo "$compiler $1 total $total"
	case $1 in # a fiber's frames are not below those of its caller
	message) parts far_msg_send far_reply ;;
	fanout) parts far_rpc_fanout far_return_tensor far_future_value far_future_free ;;
	rpc) parts far_rpc_async_to far_return_tensor far_future_value far_val_fini far_future_free ;;
	esac
}

parts() { # what calls, what replies, what takes the result
	calling=$(of "$1")
	replying=$(of "$2")
	dispatching=$(of dispatch)
	completing=$(of call_on_answer)
	shift 2
	reading=$(of "$@")
	for n in "$calling" "$replying" "$dispatching" "$completing"; do
		[ "$n" -gt 0 ] || fail "a part of $api cannot be separated: its function is not in the profile"
	done
	echo "$compiler $api call $calling"
	echo "$compiler $api dispatch $((dispatching - replying))"
	echo "$compiler $api reply $replying"
	echo "$compiler $api complete $completing"
	[ "$reading" -eq 0 ] || echo "$compiler $api result $reading"
	echo "$compiler $api loop $((total - calling - dispatching - completing - reading))"
}

for api in message fiber rpc fanout method rref; do
	count $api >>"$work/counts"
done

case $mode in
show)
	awk '{ printf "%-8s %-9s %5d instructions a call\n", $3, $4, $5 }' "$work/counts"
	;;
update)
	{
		echo "# Instructions of a call, by instructions.sh --update: compiler, machine, API, part, count."
		{ grep -v -e '^#' -e "^$compiler " "$expected" 2>/dev/null || true; } | cat - "$work/counts" | LC_ALL=C sort -s -k 1,2
	} >"$work/new"
	cat "$work/new" >"$expected"
	echo "perf/instructions.expected: $(wc -l <"$work/counts") counts of $compiler written"
	;;
check)
	if ! grep -q "^$compiler " "$expected"; then
		echo "instructions.sh: nothing is expected of $compiler; --update writes what it counts" >&2
		exit 77
	fi
	awk -v percent="$percent" -v slack="$slack" '
		/^#/ { next }
		FNR == NR { want[$1, $2, $3, $4] = $5; next }
		{
			w = want[$1, $2, $3, $4]
			least = $4 == "total" ? 0 : slack
			if (w == "") verdict = "not expected: --update"
			else if ($5 - w > w * percent / 100 && $5 - w > least) verdict = "MORE"
			else if (w - $5 > w * percent / 100 && w - $5 > least) verdict = "less: --update keeps it so"
			else verdict = ""
			bad = bad || verdict == "MORE" || w == ""
			printf "%-8s %-9s %5d instructions a call, expected %5d  %s\n", $3, $4, $5, w, verdict
		}
		END { exit bad }' "$expected" "$work/counts" || {
		echo "instructions.sh: FAILED: more instructions than perf/instructions.expected. Take them back, or, when they" \
			"are worth it, say so in the commit and run: sh perf/instructions.sh --update $1" >&2
		exit 1
	}
	;;
esac

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Instructions and cycles of the stages of a call and of the structures that it uses.
set -eu

usage() {
	cat <<'END'
usage: sh perf/micro.sh BUILD-DIRECTORY

Prints a table of the structures, each alone and warm, and one of the stages of a message and of a typed call (calls of
16 at a time, both sides on one core, nothing crosses cores). Instructions are counted by callgrind. Cycles are those of
the time stamp counter: of the structures, medians of batches; of the stages, the median of a call, divided by where a
timer found the program. "libraries" are functions of libc and the clock of the kernel, whose instructions the table
has with their callers. The directory is of a build with --buildtype=release and the tests.

Needs the packages valgrind and python3.
exit status: 0; 1: nothing could be measured; 2: usage
END
}

case ${1:-} in
--help)
	usage
	exit 0
	;;
-*)
	echo "micro.sh: unknown option $1" >&2
	echo "Try 'sh perf/micro.sh --help'." >&2
	exit 2
	;;
esac
if [ $# -ne 1 ]; then
	usage >&2
	exit 2
fi
top=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
build=$1
rounds=500
rounds_of_samples=50000

fail() {
	echo "micro.sh: $*" >&2
	exit 1
}
command -v valgrind >/dev/null || fail "needs the package valgrind"
command -v python3 >/dev/null || fail "needs the package python3"
for program in step micro; do
	[ -x "$build/perf/$program" ] || fail "$build/perf/$program is not there: ninja -C $build perf/$program"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

"$build/perf/micro" >"$work/micro" || fail "perf/micro failed"
valgrind --tool=callgrind --callgrind-out-file="$work/counts" "$build/perf/micro" count >"$work/log" 2>&1 || {
	cat "$work/log" >&2
	fail "perf/micro failed under callgrind"
}
callgrind_annotate --inclusive=yes --threshold=100 "$work/counts" >"$work/inclusive"
printf '%-30s %12s %8s\n' structure instructions "$(head -n 1 "$work/micro" | cut -f 4)"
while IFS='	' read -r function what ticks _; do
	n=$(awk -v name="$function" '$0 ~ ":" name "( \\[|$)" { gsub(",", "", $1); print $1 / 1000; exit }' "$work/inclusive")
	printf '%-30s %12.1f %8.1f\n' "$what" "${n:?callgrind has not seen $function}" "$ticks"
done <"$work/micro"

for api in message rpc; do
	valgrind --tool=callgrind --callgrind-out-file="$work/$api" --dump-instr=yes --compress-pos=no \
		--compress-strings=no --collect-atstart=no --toggle-collect=measured "$build/perf/step" $rounds $api \
		>"$work/log" 2>&1 || {
		cat "$work/log" >&2
		fail "perf/step $api failed under callgrind"
	}
	"$build/perf/step" $rounds_of_samples $api samples >"$work/$api.samples" || fail "perf/step $api samples failed"
done
echo
printf '%-30s %21s %21s\n' '' message 'typed call'
python3 "$top/stages.py" ticks "$build" "$work/message" $((rounds * 16)) "$work/message.samples" \
	"$work/rpc" $((rounds * 16)) "$work/rpc.samples"

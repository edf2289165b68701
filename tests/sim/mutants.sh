#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Every planted defect (engine/base/mutant.h) must be found by the simulator's checkers within 1000 runs of
# the scenario that is most likely to meet it, from seed 1 on; and the program without one must pass what finds them.
# usage: mutants.sh FARCALL_MUTANTS [SEEDS]
set -u
program=$1
most=${2:-1000}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
[ -x "$program" ] || {
	echo "mutants.sh: there is no $program: ninja -C BUILD tests/sim/farcall-mutants builds it" >&2
	exit 1
}
failed=0

# Where a defect shows soonest.
scenario_of() {
	case $1 in
	dedup-skipped) echo all-to-all-disturbed ;;
	retry-run-again) echo retry ;;
	old-incarnation-accepted) echo restart ;;
	grant-doubled) echo lost-grant ;;
	credit-lost) echo oneway ;;
	slot-leaked) echo deadlines ;;
	checksum-ignored) echo slow ;;
	wake-lost) echo nested ;;
	sleep-unarmed) echo pauses ;;
	executed-no) echo crash ;;
	unordered-forgotten | eager-forgotten) echo sizes ;;
	rref-dead-kept | rref-flight-kept) echo references-crash ;;
	sack-shifted) echo bursts ;;
	stale-down | stale-mail | claim-refused | functions-kept | waiting-kept) echo stale ;;
	stale-connect) echo chaos ;;
	oneway-window) echo window-paused ;;
	bulk-early) echo window-order ;;
	dead-caller-served) echo orphans ;;
	generation-kept) echo retry-often ;;
	rings-left) echo window-back ;;
	rref-unrecalled) echo references-silences ;;
	rref-*) echo references ;;
	*) echo mixed ;;
	esac
}

# found MUTANT SCENARIO FROM SEEDS: do those seeds find it.
found() {
	"$program" sim --jobs 1 --mutant "$1" --scenario "$2" --from "$3" --seeds "$4" --limit 60 --failures "$dir/failures" \
		>"$dir/out" 2>&1
	[ $? -eq 1 ]
}

# Those of leases and of copies of keys have workloads of their own (lease_mutants.sh).
for mutant in $("$program" sim --mutant list | grep -v -e ^lease- -e ^evicted- -e ^copy-); do
	scenario=$(scenario_of "$mutant")
	from=1
	step=8
	caught=0
	while [ "$from" -le "$most" ]; do
		if found "$mutant" "$scenario" "$from" "$step"; then
			caught=$(sed -n 's/^FAIL .*, seed \([0-9]*\): .*/\1/p' "$dir/out" | sort -n | head -n 1)
			break
		fi
		from=$((from + step))
		step=64
	done
	if [ "$caught" -gt 0 ]; then
		printf 'caught %-18s in %s after %s runs: %s\n' "$mutant" "$scenario" "$caught" \
			"$(sed -n 's/^FAIL [^:]*: //p' "$dir/out" | head -n 1 | cut -c1-100)"
	else
		echo "MISSED $mutant: $scenario passed $most runs"
		failed=1
	fi
	if ! "$program" sim --scenario "$scenario" --seeds 1 --failures "$dir/failures" >"$dir/out" 2>&1; then
		echo "BROKEN: $scenario fails without a defect"
		cat "$dir/out"
		failed=1
	fi
done
exit $failed

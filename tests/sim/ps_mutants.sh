#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Every planted defect of the parameter server (apps/libps/ps_mutant.h) must be found by the checkers within 2000 seeds,
# and the same program without one must pass these.
# usage: ps_mutants.sh PS_SERVICE_MUTANTS [SEEDS]
set -u
program=$1
most=${2:-2000}
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
failed=0
found_at_most=1
for mutant in $("$program" list); do
	"$program" "$mutant" 1 "$most" >/dev/null 2>"$out"
	if [ $? -eq 1 ]; then
		seed=$(sed -n 's/^ps_service: seed \([0-9]*\): .*/\1/p' "$out" | head -n 1)
		printf 'caught %-16s by seed %s: %s\n' "$mutant" "$seed" "$(sed -n 's/^ps_service: seed [0-9]*: //p' "$out" |
			head -n 1 | cut -c1-100)"
		[ "$seed" -gt "$found_at_most" ] && found_at_most=$seed
	else
		echo "MISSED $mutant: $most seeds passed"
		failed=1
	fi
done
if ! "$program" none 1 "$found_at_most" 2>"$out"; then
	echo "BROKEN: a run fails without a defect"
	cat "$out"
	failed=1
fi
exit $failed

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Each of these defects of the rules about leases, or about keys (engine/base/mutant.h), must be found by the program
# within SEEDS runs; one that hardly any run finds, by the seed behind its name.
# usage: [SEEDS=N] lease_mutants.sh LEASE_MUTANTS|KEYS_MUTANTS MUTANT[:SEED]...
set -u
program=$1
shift
seeds=${SEEDS:-200}
failed=0
for mutant; do
	caught=0
	seed=1
	last=$seeds
	case $mutant in
	*:*)
		seed=${mutant#*:}
		last=$seed
		mutant=${mutant%:*}
		;;
	esac
	while [ "$seed" -le "$last" ] && [ "$caught" -eq 0 ]; do
		out=$(timeout 60 "$program" "$seed" 1 "$mutant" 2>&1)
		case $out in
		*"seed $seed: "*) caught=$seed ;;
		esac
		seed=$((seed + 1))
	done
	if [ "$caught" -gt 0 ]; then
		printf 'caught %-16s by seed %s: %s\n' "$mutant" "$caught" \
			"$(printf '%s\n' "$out" | sed -n 's/^seed [0-9]*: //p' | cut -c1-90)"
	else
		echo "MISSED $mutant: the runs up to seed $last passed"
		failed=1
	fi
done
exit $failed

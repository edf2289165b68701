# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Sourced by the tests of `farcall pserver`, after cases.sh.

export dir

# Runs shell commands under `farcall run -n 1`, which brings the store's listener: N servers of a group of N + 1 run
# beside them, and are stopped afterwards.
# shellcheck disable=SC2016 # the inner shell's
group() { # servers and their options, commands
	bounded "$farcall" run -n 1 -- sh -c '
		n=${1%% *} options=${1#"${1%% *}"} pids=
		export WORLD_SIZE=$((n + ${clients:-1})) RANK
		for RANK in $(seq 0 $((n - 1))); do
			[ "$RANK" -eq 0 ] || unset FAR_STORE_FD
			"$farcall" pserver --servers "$n" $options >"$dir/server$RANK" 2>&1 & pids="$pids $!"
		done
		unset FAR_STORE_FD
		RANK=$n
		eval "$2"
		kill $pids
		for pid in $pids; do wait "$pid" || exit 9; done' group "$1" "$2"
}

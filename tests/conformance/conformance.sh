#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# All conformance tests over one sort of network. Prints TAP; leaves a file for each test in RESULTS/MODE.
# usage: conformance.sh shm|udp|lossy|memif|verbs|cards PROGRAM RESULTS [ARGUMENTS OF CRITERION...]
# verbs wants an RDMA device on loopback, cards four network cards that DPDK may take: FAR_CONFORM_CARDS="ADDRESS ...",
# FAR_CONFORM_KEYS=",KEY=VALUE..." of all. tests/vm/plans/conformance.sh has machines with either.
set -u
mode=$1
program=$2
results=$3
shift 3
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

[ $# -gt 0 ] || rm -rf "${results:?}/$mode"
mkdir -p "$results"
export FAR_CONFORM_NIC="$mode" FAR_CONFORM_RESULTS="$results" FAR_CONFORM_DIR="$dir" FAR_RUNTIME_DIR="$dir/runtime"
mkdir -m 700 "$FAR_RUNTIME_DIR"
fewer=
jobs=2
if [ "$mode" = memif ]; then
	jobs=4 # a worker's start waits more than it computes
	# DPDK loads every driver that it finds, which takes half of a worker's start: here it finds what memif needs,
	# where this process may mount.
	[ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null && fewer="unshare -m sh $(dirname "$0")/fewer_pmds.sh $dir/pmds"
fi
# shellcheck disable=SC2086 # words of a command
$fewer "$program" --tap -j"$jobs" "$@"

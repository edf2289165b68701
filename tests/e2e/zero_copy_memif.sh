#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Larger messages over memif arrive intact, and are copied by its driver alone: out of the sender's memory, and into the
# message.
# usage: zero_copy_memif.sh FARCALL ZERO_COPY
set -u
. "$(dirname "$0")/cases.sh"
farcall=$1
export ZERO_COPY="$2" SOCKET="$dir"

# shellcheck disable=SC2016 # for the workers
workers='[ "$RANK" -eq 0 ] && role=server || role=client
	export FAR_NIC="dpdk:net_memif0,role=$role,id=7,socket=$SOCKET/m.sock,socket-abstract=no"
	exec "$ZERO_COPY" $HOW'
for how in '' --places; do
	HOW=$how bounded "$farcall" run -n 2 -- sh -c "$workers"
	[ $rc -eq 0 ] || cat "$dir/out" "$dir/err"
	ok "zero_copy $how" $rc
done
finish

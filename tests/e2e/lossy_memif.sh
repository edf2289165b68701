#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Mixed traffic over a memif that loses, repeats, delays, reorders and damages 1 % of the packets each: everything
# arrives intact.
# usage: lossy_memif.sh FARCALL API_LOSSY [BYTES]
set -u
. "$(dirname "$0")/cases.sh"
farcall=$1
export API_LOSSY="$2" SOCKET="$dir" BYTES="${3:-128m}"
case $BYTES in *g) guard_s=900 ;; esac

# shellcheck disable=SC2016 # for the workers
bounded "$farcall" run -n 2 -- sh -c '[ "$RANK" -eq 0 ] && role=server || role=client
	exec "$API_LOSSY" --over dpdk --packet 2000 --bytes "$BYTES" --member - \
		--args "net_memif0,role=$role,id=7,socket=$SOCKET/m.sock,socket-abstract=no"'
[ $rc -eq 0 ] && cat "$dir/out" "$dir/err"
ok "$BYTES over memif, 1 % lost" $rc
finish

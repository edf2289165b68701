#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Messages of one packet are received without a copy; two builds of the program that copy are found.
# usage: in_place.sh FARCALL IN_PLACE COPIED shm|dpdk
set -u
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
. "$here/cases.sh"
farcall=$1
program=$2
copied=$3
over=$4

# shellcheck disable=SC2016 # for the workers
memif='[ "$RANK" -eq 0 ] && role=server || role=client
	export FAR_NIC="dpdk:net_memif0,role=$role,id=7,socket=$SOCKET/m.sock,socket-abstract=no"
	exec "$@"'
export SOCKET="$dir"
both() { # what shows that requests are copied, program
	export IN_PLACE_COPIED="$1"
	case $over in
	dpdk) bounded "$farcall" run -n 2 -- sh -c "$memif" worker "$2" dpdk 1400 ;;
	shm) FAR_NIC=shm bounded "$farcall" run -n 2 -- "$2" shm 1400 ;;
	esac
}

both '' "$program"
ok "received in place over $over" "$rc"
both library "$copied"
[ "$rc" -ne 0 ] && says 'in the packet, aligned, and was copied'
ok "a copy by the C library is found over $over" $?
both loop "$copied"
[ "$rc" -ne 0 ] && says 'is elsewhere'
ok "a copy by a loop is found over $over" $?
finish

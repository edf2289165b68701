#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Workers over the dpdk driver: two, by a memif each has one end of.
# usage: dpdk_agents.sh FARCALL API_RPC API_MESSAGE API_CANCEL CALLS
set -u
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
. "$here/cases.sh"
farcall=$1

# shellcheck disable=SC2016 # for the workers
worker='[ "$RANK" -eq 0 ] && role=server || role=client
	export FAR_NIC="$BEFORE""dpdk:net_memif0,role=$role,id=7,socket=$SOCKET/m.sock,socket-abstract=no$MORE"
	exec "$@"'
over() { # what follows the device, what goes before it, program...
	export SOCKET="$dir" MORE="$1" BEFORE="$2"
	shift 2
	bounded "$farcall" run -n 2 -- sh -c "$worker" worker "$@"
}

for program in "$2" "$3" "$4"; do
	over '' '' "$program"
	ok "$(basename "$program") over memif" "$rc"
done
for more in '' ',bsize=640' ',bsize=16384,rsize=8'; do
	over "$more" '' "$5" dpdk
	ok "calls of any size over memif$more" "$rc"
done
over '' 'shm;' "$5" shm
ok 'shm is taken where both have it' "$rc"
over '' '' "$5" dpdk 3
ok 'three shards each over memif' "$rc"
over ',id=x' '' "$2"
[ "$rc" -ne 0 ] && says 'id=x' && says 'the same on both sides'
ok 'a wrong argument is named' $?
# Both are the server.
# shellcheck disable=SC2016
bounded "$farcall" run -n 2 -- sh -c 'FAR_NIC="dpdk:net_memif0,role=server,id=$RANK,socket=$SOCKET/m$RANK" \
	exec "$@"' worker "$2"
[ "$rc" -ne 0 ] && says 'dpdk'
ok 'the error of two that do not fit together names the cause' $?
finish

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One member of a training group, in a container: turns the variables of compose.yaml into the options of farcall.
set -eu

usage() {
	cat <<'END'
usage: farcall-node first|server|worker [OPTIONS of 'farcall train']

first   rank 0: a parameter server, where the group meets; prints the result. One of them.
server  one more parameter server: claims a rank of [1, MORE_SERVERS]. MORE_SERVERS of them.
worker  trains: claims one of the ranks behind the servers'. WORKERS of them.

environment: MORE_SERVERS (default 1), WORKERS (default 2): how many there are of each
             MASTER_ADDR, MASTER_PORT: host and port of `first`
             FAR_NIC: driver (default auto); FAR_SECURITY: none, when the network is private; TRAIN: more options
END
}

wrong() {
	echo "farcall-node: $*" >&2
	exit 2
}

# number NAME VALUE LEAST
number() {
	case $2 in
	'' | *[!0-9]* | ?????*) wrong "$1 is '$2'; give a number from $3 to 255" ;;
	esac
	[ "$2" -ge "$3" ] && [ "$2" -le 255 ] || wrong "$1 is $2; give a number from $3 to 255"
}

case ${1:-} in
first | server | worker) role=$1 ;;
-h | --help)
	usage
	exit 0
	;;
*)
	usage >&2
	exit 2
	;;
esac
shift

more=${MORE_SERVERS:-1}
workers=${WORKERS:-2}
number MORE_SERVERS "$more" 0
number WORKERS "$workers" 1
[ "$role" != server ] || [ "$more" -gt 0 ] || wrong "MORE_SERVERS is 0: there is no server but the first"
servers=$((1 + more))
export WORLD_SIZE=$((servers + workers))
security=${FAR_SECURITY:-default}

# shellcheck disable=SC2086 # TRAIN: words
set -- farcall train --servers "$servers" --workers "$workers" --nic "${FAR_NIC:-auto}" --security "$security" \
	${TRAIN:-} "$@"
case $role in
first) exec "$@" --rank 0 ;;
server) exec farcall claim --first 1 --count "$more" --security "$security" -- "$@" ;;
worker) exec farcall claim --first "$servers" --count "$workers" --security "$security" -- "$@" ;;
esac

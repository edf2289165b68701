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
             FAR_NIC: driver (default auto); TRAIN: more options for train
             FAR_KEY_FILE: the group's key; FAR_SECURITY: none instead, when the network is private
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

# The group's key, where the containers share its directory and nobody has put it there: the first makes it. Whole
# before it has its name.
if [ -n "${FAR_KEY_FILE:-}" ] && [ ! -e "$FAR_KEY_FILE" ]; then
	if [ "$role" = first ]; then
		rm -f "$FAR_KEY_FILE.new"
		farcall key "$FAR_KEY_FILE.new" >/dev/null && mv "$FAR_KEY_FILE.new" "$FAR_KEY_FILE" || exit 1
	fi
	for _ in $(seq 600); do # 60 s
		[ ! -e "$FAR_KEY_FILE" ] || break
		sleep 0.1
	done
	[ -e "$FAR_KEY_FILE" ] || {
		echo "farcall-node: FAR_KEY_FILE, $FAR_KEY_FILE, did not come within 60 s: start the first, or mount the key" >&2
		exit 1
	}
fi
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

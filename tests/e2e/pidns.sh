#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Shared memory between workers that share a runtime directory and no pids, each in namespaces of its own as in a
# container; and none with other users. When not root, in user namespaces.
# usage: pidns.sh FARCALL API_PIDNS REFUSED
set -u
. "$(dirname "$0")/cases.sh"

chmod 755 "$dir"
mkdir -m 700 "$dir/runtime"
mkdir -m 755 "$dir/bin"
cp "$1" "$dir/bin/farcall" # another user may not be able to read the build directory
cp "$2" "$dir/bin/api_pidns"
cp "$3" "$dir/bin/refused"
farcall=$dir/bin/farcall
export FAR_RUNTIME_DIR="$dir/runtime"

flags=-mpif
[ "$(id -u)" -eq 0 ] || flags=-Urmpif
# shellcheck disable=SC2086
bounded unshare $flags --mount-proc true
usable=$rc
why=$(head -n 1 "$dir/err")

# each SCRIPT MODE: under farcall run, each worker by a shell that is the first process of its pid namespace.
each() { bounded "$farcall" run -n 2 -- unshare $flags --mount-proc --kill-child sh -c "$1" "$dir/bin/api_pidns" "$2"; }
apart() { # name, script, mode
	if [ "$usable" -ne 0 ]; then
		skip "$1" "pid and user namespaces ($why)"
		return
	fi
	each "$2" "$3"
	ok "$1" "$rc"
}

# shellcheck disable=SC2016 # the inner shell's
apart "calls of every size, both ways" '[ $$ -eq 1 ] && "$0" "$1"' traffic
[ -z "$(ls -A "$dir/runtime")" ]
ok "nothing is left in the runtime directory" $?
# The death is a worker's end that is wanted, and not the job's.
# shellcheck disable=SC2016
apart "the death of one is seen by the other at once" '[ $$ -eq 1 ] && "$0" "$1" || [ $? -eq 137 ]' death

bounded "$farcall" run -n 2 -- "$dir/bin/api_pidns" traffic
[ $rc -ne 0 ] && says 'namespace()) != 0 does not hold'
ok "the test would notice a shared namespace" $?

if [ "$usable" -eq 0 ]; then
	# shellcheck disable=SC2016
	each '"${0%/*}/farcall" info --json' -
	[ $rc -eq 0 ] && json 'j["drivers"][0]["name"] == "shm" and j["drivers"][0]["available"]'
	ok "farcall info there" $?
fi

# Another user, who is let into the directory by nothing but its own rights, or by all.
other='setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all'
# shellcheck disable=SC2086
bounded $other true
if [ "$(id -u)" -eq 0 ] && [ $rc -eq 0 ]; then
	# shellcheck disable=SC2016
	non_members='[ "$RANK" -eq 0 ] && exec "$0" "$@"; exec '"$other"' "$0" "$@"'
	bounded env FAR_NIC=shm "$farcall" run -n 2 -- unshare $flags --mount-proc --kill-child sh -c "$non_members" "$dir/bin/refused" join
	[ $rc -eq 1 ] && says "$dir/runtime"
	ok "another user is refused the runtime directory" $?
	chmod 711 "$dir/runtime"
	bounded env FAR_NIC=shm "$farcall" run -n 2 -- unshare $flags --mount-proc --kill-child sh -c "$non_members" "$dir/bin/refused" join
	[ $rc -eq 1 ] && says "must be yours with mode 700"
	ok "a runtime directory that lets others in is refused" $?
	chmod 700 "$dir/runtime"
else
	skip "other users" "root, to be another user"
fi

gone "$dir/bin/"
ok "no process is left" $?

finish

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The whole job as an unprivileged user in a user namespace of its own: no root, no huge pages, no network device but
# loopback, and a /dev/shm where nothing can be created.
# usage: userns.sh FARCALL
set -u
. "$(dirname "$0")/cases.sh"

chmod 755 "$dir"
cp "$1" "$dir/farcall" # the user may not be able to read the build directory
chmod 755 "$dir/farcall"
mkdir -m 700 "$dir/runtime"
if [ "$(id -u)" -eq 0 ]; then
	chown 65534:65534 "$dir/runtime"
	as_user="setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs"
else
	as_user="env"
fi

# inside FLAGS SCRIPT: runs it as that user in new namespaces; $farcall is the program there.
inside() {
	# shellcheck disable=SC2086 # words of a command
	bounded $as_user env -u XDG_RUNTIME_DIR FAR_RUNTIME_DIR="$dir/runtime" HOME=/nonexistent farcall="$dir/farcall" \
		unshare $1 sh -euc "$2"
}

job='"$farcall" train --rows 2000 --test-rows 1000 --epochs 3 --json'
trained='0.5 < j["test_auc"] <= 1 and j["mode"]'

# shellcheck disable=SC2086
bounded $as_user unshare -U true
usable=$rc
probe_err=$(head -n 1 "$dir/err")

try() { # name, flags, script, condition on the JSON
	if [ "$usable" -ne 0 ]; then
		skip "$1" "user namespaces for an unprivileged user ($probe_err)"
		return
	fi
	inside "$2" "$3"
	[ $rc -eq 0 ] && json "$4"
	ok "$1" $?
}

readonly_shm='mount -t tmpfs -o ro,nosuid,nodev tmpfs /dev/shm; ! touch /dev/shm/x 2>/dev/null;'
loopback='ip link set lo up; ! ip -o link show | grep -v ": lo:";'

try "train, user not mapped" -U "$job" "$trained"
try "train, mapped to root" -Ur "$job" "$trained"
try "train, bsp" -Ur "$job --mode bsp" "$trained"
try "train, nothing to be created in /dev/shm" -Urm "$readonly_shm $job; [ -z \"\$(ls -A /dev/shm)\" ]" "$trained"
try "train, no network but loopback" -Urn "$loopback $job" "$trained"
try "train, processes of its own" -Urmpf "mount -t proc proc /proc; $job" "$trained"
try "farcall run" -Ur '"$farcall" run -n 2 -- "$farcall" perf idle --seconds 0.2 --json' 'len(j["workers"]) == 2'
try "farcall perf latency" -Urmn "$readonly_shm $loopback \"\$farcall\" perf latency --seconds 0.2 --json" 'j["p50_ns"] > 0'
try "farcall info" -Ur '"$farcall" info --json' 'j["auto"] == "shm" and j["drivers"][0]["available"]'

[ -z "$(ls -A "$dir/runtime")" ]
ok "nothing is left in the runtime directory" $?

pgrep -f -- "$dir/farcall" >"$dir/out"
[ $? -eq 1 ]
ok "no process is left" $?

finish

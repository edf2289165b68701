# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# For scripts, behind cases.sh and with $guard_s: two network namespaces with a virtual cable between them, far0 at both
# ends. Each is held by a process that does nothing: they end with the test, or a while after it was killed.
holders=
others= # what the script started in the background, ended with it
cleanup() {
	# shellcheck disable=SC2086 # numbers
	[ -z "$others$holders" ] || kill $others $holders 2>/dev/null
	wait
	rm -rf "$dir"
}
trap cleanup EXIT
is_apart() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
new_ns() { # leaves its holder in $ns
	unshare -n sleep $((5 * guard_s)) &
	ns=$!
	holders="$holders $ns"
	eventually is_apart "$ns"
}
at() { # holder, command...
	where=$1
	shift
	nsenter -t "$where" -n "$@"
}
is_up() { at "$1" ip link show far0 | grep -q 'state UP'; }

# Leaves the holders in $a and $b; interface(holder, 1 or 2) of the script sets addresses.
veth() { # the test's name
	new_ns
	a=$ns
	new_ns
	b=$ns
	if ! ip link add far0 netns "$a" type veth peer name far0 netns "$b"; then
		skip "$1" "to make a veth pair"
		finish
	fi
	for end in "$a 1" "$b 2"; do
		# shellcheck disable=SC2086 # two words
		interface $end
		at "${end% *}" ip link set far0 up
		at "${end% *}" ip link set lo up
	done
	eventually is_up "$a" && eventually is_up "$b"
}

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Sourced by the shell tests: their cases, counted, and waits with a bound. Ends with `finish`.

export LC_ALL=C
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT FAR_STORE_FD
# Over a network silence ends a session, after 1 s by default; a busy machine stops a process for as long.
export FAR_PEER_LIMIT_NS="${FAR_PEER_LIMIT_NS:-5000000000}"

# False in the first tier of tests/run.sh, which leaves some cases out.
in_full() { [ "${FAR_TESTS_BRIEF:-}" != 1 ]; }

guard_s=150 # no case takes longer, on a machine that has a tenth of a core for each
dir=$(mktemp -d "${TMPDIR:-/tmp}/farcall-test.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
passed=0
failed=0
skipped=0
rc=0

# Runs a command: leaves its output in out and err, its status in $rc (124 and 137: the guard ended it).
bounded() {
	rc=0
	timeout -k 3 "$guard_s" "$@" >"$dir/out" 2>"$dir/err" </dev/null || rc=$?
}

# Does out or err have a line with a pattern; does err hold a text.
has() { grep -q -e "$2" "$dir/$1"; }
says() { grep -qF -e "$1" "$dir/err"; }

ok() { # name, the condition's status
	if [ "$2" -eq 0 ]; then
		passed=$((passed + 1))
		echo "PASS $1"
	else
		failed=$((failed + 1))
		echo "FAIL $1 (exit status $rc)"
		tail -n 30 "$dir/out" 2>/dev/null | sed 's/^/  out: /'
		tail -n 30 "$dir/err" 2>/dev/null | sed 's/^/  err: /'
	fi
}

skip() { # name, the missing right
	skipped=$((skipped + 1))
	echo "SKIP: $1: missing right: $2"
}

skip_data() { # name, what is missing
	skipped=$((skipped + 1))
	echo "SKIP-DATA: $1: $2"
}

# Unpacks a package of Debian to $dir/PACKAGE, without installing it: what would start a service here, or is used once.
fetched() { # package
	(cd "$dir" && timeout "$guard_s" apt-get download "$1" && dpkg-deb -x "$1"_*.deb "$1") >"$dir/out" 2>"$dir/err"
}

# Prints so many free ports: none that the system gives to connections, which a client that connects again and again
# to a port without a listener may get for its own end.
ports() {
	python3 -c 'import random, socket, sys
s, low = [], int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0])
while len(s) < int(sys.argv[1]):
    x = socket.socket()
    try:
        x.bind(("127.0.0.1", random.randrange(min(10000, low // 2), low)))
    except OSError:
        continue
    s.append(x)
print(*(x.getsockname()[1] for x in s))' "$1"
}

# Waits up to a minute for a condition: a command and its arguments. Checks every 50 ms for a second, then five times a
# second: to start a command takes a part of a core.
eventually() {
	for _ in $(seq 20); do
		"$@" && return 0
		sleep 0.05
	done
	for _ in $(seq 295); do
		"$@" && return 0
		sleep 0.2
	done
	return 1
}

# Waits until no process has $1 among its arguments; says which are left.
none_left() {
	pgrep -f -- "$1" >/dev/null
	[ $? -eq 1 ]
}
gone() {
	eventually none_left "$1" && return 0
	echo "still there:"
	pgrep -fa -- "$1"
	return 1
}

# Evaluates a Python expression over the object `j` in the last line of out, which must be strict JSON.
json() {
	python3 - "$dir/out" "$1" <<'END'
import json, sys
def refuse(word):
    raise ValueError(word + " is not JSON")
lines = open(sys.argv[1]).read().splitlines()
j = json.loads(lines[-1], parse_constant=refuse)
positive = lambda o, *keys: all(type(o[k]) in (int, float) and o[k] > 0 for k in keys)
if not eval("(" + sys.argv[2] + ")"):
    sys.exit("false: " + sys.argv[2])
END
}

lines_of_out() { wc -l <"$dir/out"; }

finish() {
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" -eq 0 ]
	exit
}

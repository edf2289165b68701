#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The store of a real group under load: connections that wait and stay, a rank 0 without descriptors, a worker without a
# NIC.
# usage: store_load.sh REFUSED
set -u
refused=$1
. "$(dirname "$0")/cases.sh"

# Connects COUNT times, sends LOGIN, sends WAITS requests by each, prints "ready", and stays until its stdin ends. Stops
# connecting when it is hung up on.
cat >"$dir/clients.py" <<'END'
import socket, struct, sys, time
port, count, waits = map(int, sys.argv[1:])
def frame(op, id, key):
    return struct.pack("<4sBBBBQQQHHHH", b"FCST", 8, op, 0, 0, id, 2**64 - 1 if op == 6 else 0, 0, len(key), 0, 0, 0) + key
def connect():
    for _ in range(500 if all else 6000): # until rank 0 listens
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.01)
    sys.exit("nobody listens")
def client(i):
    s = connect()
    s.sendall(frame(1, 0, b""))
    if len(s.recv(40)) == 40:
        s.sendall(b"".join(frame(6, 1 + k, b"never/%d/%d" % (i, k)) for k in range(waits)))
        all.append(s)
all = []
for i in range(count):
    try:
        client(i)
    except OSError: # hung up on
        if not waits and i >= 64:
            break
for s in all if waits else []:
    s.sendall(frame(3, 9999, b"nothing")) # answered when all before has been read
    s.recv(40)
print("ready", len(all), flush=True)
sys.stdin.read()
END

member() { # rank, world, name of its output, command...
	rank=$1 world=$2 as=$3
	shift 3
	env RANK="$rank" WORLD_SIZE="$world" MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" \
		timeout "$guard_s" "$@" >"$dir/$as.out" 2>"$dir/$as.err"
	echo $? >"$dir/$as.rc"
}
ended() { # name, status
	[ "$(cat "$dir/$1.rc")" = "$2" ] && return
	echo "$1 ended with $(cat "$dir/$1.rc"):"
	cat "$dir/$1.err"
	return 1
}
mkfifo "$dir/hold" "$dir/said"

# 200 connections with 2000 WAITs each, which stay open: the group comes and goes.
port=$(ports 1)
member 0 2 w0 "$refused" open-join &
w0=$!
python3 "$dir/clients.py" "$port" 200 2000 <"$dir/hold" >"$dir/said" &
clients=$!
exec 9>"$dir/hold"
read -r said <"$dir/said"
member 1 2 w1 "$refused" open-join
wait "$w0"
[ "$said" = "ready 200" ] && ended w0 0 && ended w1 0
ok "a shutdown with 200 clients of 2000 WAITs that stay" $?
exec 9>&-
wait "$clients"

# Rank 0 runs out of descriptors while it waits for rank 1, which never comes.
port=$(ports 1)
member 0 2 w0 sh -c 'ulimit -n 64; exec "$0" open-join' "$refused" &
w0=$!
python3 "$dir/clients.py" "$port" 100 0 <"$dir/hold" >"$dir/said" &
clients=$!
exec 9>"$dir/hold"
read -r said <"$dir/said"
wait "$w0"
ended w0 1 && grep -q 'cannot accept the members. connections .*RLIMIT_NOFILE of this process is 64; raise it' "$dir/w0.err"
ok "rank 0 out of descriptors says so" $?
exec 9>&-
wait "$clients"

# One of three has a NIC that cannot be opened: all three say so, by its name.
for who in 2 0; do
	port=$(ports 1)
	for r in 0 1 2; do
		nic=shm
		[ $r = $who ] && nic=dpdk:nonsense
		member $r 3 "w$r" env FAR_NIC=$nic "$refused" patient-join &
		eval "w$r=\$!"
	done
	wait "$w0" "$w1" "$w2"
	ended w0 1 && ended w1 1 && ended w2 1 && grep -q 'nic "dpdk" cannot be opened' "$dir/w$who.err"
	for r in 0 1 2; do
		[ $r = $who ] || grep -q "worker \"worker$who\" (rank $who) cannot join: nic \"dpdk\" cannot be opened: .*reported by" "$dir/w$r.err" ||
			cat "$dir/w$r.err"
	done >"$dir/bad"
	[ ! -s "$dir/bad" ] && ended w0 1 && ended w1 1 && ended w2 1
	ok "rank $who has no NIC: all fail by its name" $?
	cat "$dir/bad"
done

finish

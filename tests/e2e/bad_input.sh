#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Bad input: each ends in a clear error and a status that is not 0, within a bound.
# usage: bad_input.sh FARCALL REFUSED
set -u
farcall=$1
refused=$2
. "$(dirname "$0")/cases.sh"
guard_s=30

# refuses NAME STATUS TEXT COMMAND...: it ends with that status and says that.
refuses() {
	name=$1
	want=$2
	text=$3
	shift 3
	bounded "$@"
	[ $rc -eq "$want" ] && says "$text" && [ ! -s "$dir/out" ]
	ok "$name" $?
}

printf '1 1:1\n-1 2:1\n1 1:1 2:2\n-1 2:1\n' >"$dir/good"
printf '1 1:1\n-1 2:1\n1 x:1\n' >"$dir/index"
printf '1 1:1\nyes 2:1\n' >"$dir/label"
printf '1 1:1\n-1 2:1\n1 1:nan\n' >"$dir/value"
printf '1 2:1 1:1\n1 2:1 1:1 2:3\n' >"$dir/twice"
printf '1 1:1\n\000\n' >"$dir/zero"
: >"$dir/empty"
for t in index:3:"index \"x\"" label:2:"label \"yes\"" value:3:"value \"nan\"" twice:2:"the feature 2 comes twice" zero:2:"zero byte"; do
	file=${t%%:*}
	rest=${t#*:}
	refuses "malformed line, $file: named by number" 1 "$dir/$file:${rest%%:*}: " \
		"$farcall" train --data "$dir/$file" --test "$dir/good"
	says "${rest#*:}"
	ok "malformed line, $file: says what is wrong with it" $?
done
printf '1,a\n0,b,c\n' >"$dir/fields.csv"
refuses "a line of CSV with more fields" 1 "$dir/fields.csv:2: the line has 3 fields, the first one has 2" \
	"$farcall" train --data "$dir/fields.csv" --test "$dir/fields.csv"
refuses "libsvm read as Criteo's format" 1 "$dir/good:1: label \"1 1:1\" is not one of" \
	"$farcall" train --data "$dir/good" --test "$dir/good" --format criteo
refuses "malformed test data" 1 "$dir/index:3: " "$farcall" train --data "$dir/good" --test "$dir/index"
refuses "empty file" 1 "$dir/empty: the file has no rows" "$farcall" train --data "$dir/empty" --test "$dir/good"
refuses "missing file" 1 "$dir/none: cannot open: No such file or directory" \
	"$farcall" train --data "$dir/none" --test "$dir/good"
refuses "missing test file" 1 "$dir/none: cannot open" "$farcall" train --data "$dir/good" --test "$dir/none"
refuses "predictions of no model" 2 "--predict without --data needs a trained model: give --load DIR, or --service NAME" \
	"$farcall" train --test "$dir/good" --predict "$dir/predicted"
refuses "patience of the default workers" 2 "--patience goes with one worker, here are 2" "$farcall" train --patience 1
refuses "a service without a group" 2 "--service needs --rank and --world-size" "$farcall" train --service default
refuses "a server's rank" 2 "rank 1 is a server when there are 2" \
	"$farcall" train --service default --rank 1 --world-size 3
refuses "patience of two workers" 2 "--patience goes with one worker, here are 2" \
	"$farcall" train --service default --patience 1 --servers 1 --rank 2 --world-size 3
refuses "data without test" 2 "--data needs --test FILE" "$farcall" train --data "$dir/good"

refuses "unknown command" 2 "unknown command 'frobnicate'" "$farcall" frobnicate
refuses "unknown command, nearly right" 2 "did you mean 'train'?" "$farcall" trian
refuses "unknown measurement" 2 "did you mean 'latency'?" "$farcall" perf latncy
for command in run claim health info pserver sim tables train 'perf latency' 'perf rate' 'perf fanout' 'perf idle' 'perf floor'; do
	# shellcheck disable=SC2086 # words of a command
	refuses "farcall $command: unknown flag" 2 "farcall $command: unknown option --frobnicate" \
		"$farcall" $command --frobnicate
done
refuses "a value that is no number" 2 '--epochs: "x" is not a whole number' "$farcall" train --epochs x
refuses "fan-out with a floor" 2 "separate calls" "$farcall" perf fanout --floor
refuses "an unknown optimizer" 2 "sgd, adagrad, adam, ftrl" "$farcall" train --optimizer newton
refuses "an epsilon of 0" 2 "above 0" "$farcall" train --optimizer adagrad --epsilon 0
refuses "an epsilon for sgd" 2 "goes with --optimizer adagrad" "$farcall" train --epsilon 1e-8
refuses "too many shards" 2 "from 1 to 16" "$farcall" pserver --shards 17
refuses "a value that is out of range" 2 "give" "$farcall" perf latency --bytes 17M
refuses "a choice that is none" 2 "give one of: async, bsp" "$farcall" train --mode fast
refuses "an argument too many" 2 "unexpected argument 'more'" "$farcall" train more

refuses "RANK not set" 2 "RANK is not set: start it under 'farcall run', or give --rank" "$farcall" pserver
refuses "WORLD_SIZE not set" 2 "WORLD_SIZE is not set" env RANK=0 "$farcall" pserver
refuses "RANK is no number" 2 "RANK is 'x', not a number" env RANK=x WORLD_SIZE=2 "$farcall" pserver
refuses "MASTER_ADDR not set" 1 "MASTER_ADDR expected, but not set" "$farcall" pserver --rank 0 --world-size 2
refuses "rank beyond the world" 2 "rank 2 is not below the world size 2" "$farcall" pserver --rank 2 --world-size 2
refuses "a rank that is no server" 2 "rank 1 is a client when there are 1 servers" \
	"$farcall" pserver --rank 1 --world-size 2
refuses "a group without its servers" 2 "a group of 2 has no 3 servers" \
	"$farcall" pserver --rank 1 --world-size 2 --servers 3
refuses "tables: no action" 2 "give it one of: ls, stats" "$farcall" tables
refuses "tables: an unknown action" 2 "'sl' is none of: ls, stats" "$farcall" tables sl
refuses "tables: an argument too few" 2 "1 argument; give 'get TABLE KEY...'" "$farcall" tables get users
refuses "tables: an option behind the command" 2 "options come before 'stats'" "$farcall" tables stats users --name ads
refuses "tables: a key that is none" 2 "'-1' is not a key" "$farcall" tables -- get users 1 -1
refuses "no worker left" 2 "has no worker" "$farcall" train --rank 0 --world-size 2 --servers 2
refuses "world sizes differ" 1 "world_size is 3 for worker \"worker1\" but 2" "$farcall" run -n 2 -- \
	sh -c 'exec "$0" train --servers 1 --world-size $((2 + RANK))' "$farcall"

# A listener that is not ours, until its stdin ends.
port=$(ports 1)
mkfifo "$dir/hold" "$dir/listens"
python3 -c '
import socket, sys
s = socket.socket()
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen()
open(sys.argv[2], "w").close()
sys.stdin.read()' "$port" "$dir/listens" <"$dir/hold" &
listener=$!
exec 9>"$dir/hold"
timeout "$guard_s" cat "$dir/listens"
refuses "port in use" 1 "cannot listen on 127.0.0.1:$port: Address already in use; choose another port" \
	"$farcall" pserver --rank 0 --world-size 2 --init-method "tcp://127.0.0.1:$port"
refuses "the port is another program's" 1 "127.0.0.1:$port" \
	env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$refused" join-in-vain
exec 9>&-
wait "$listener"
refuses "nobody hosts the store" 1 "rank 0, which hosts the store at 127.0.0.1:$port, did not answer" \
	env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$refused" join-in-vain
refuses "a member does not come" 1 "missing" \
	env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$refused" join-in-vain
refuses "FAR_STORE_FD is no listener" 1 "FAR_STORE_FD is 99" \
	env FAR_STORE_FD=99 RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$refused" join

bounded "$farcall" run -n 2 -- "$refused" join
[ $rc -eq 0 ]
ok "(the same join, with nothing wrong)" $?
mkdir "$dir/store"
chmod 755 "$dir/store"
: >"$dir/open-store"
chmod 644 "$dir/open-store"
echo "this is no store, but a text of somebody" >"$dir/text"
chmod 600 "$dir/text"
refuses "file store: a relative path" 1 "expected an absolute path" env FAR_INIT_METHOD=file://store RANK=0 WORLD_SIZE=1 "$refused" join
refuses "file store: no directory" 1 "No such file or directory" env FAR_INIT_METHOD=file:///nonexistent/store RANK=0 WORLD_SIZE=1 "$refused" join
refuses "file store: open to others" 1 "others can access it" env FAR_INIT_METHOD="file://$dir/open-store" RANK=0 WORLD_SIZE=1 "$refused" join
refuses "file store: another program's file" 1 "not a store of this version" env FAR_INIT_METHOD="file://$dir/text" RANK=0 WORLD_SIZE=1 "$refused" join
refuses "file store: a member is missing" 1 "1 of 2 members of group" env FAR_INIT_METHOD="file://$dir/store" RANK=0 WORLD_SIZE=2 "$refused" join-in-vain
refuses "group key: no file" 1 "the key file /nonexistent/farcall.key cannot be opened" "$farcall" run -n 2 -- "$refused" key
"$farcall" key "$dir/key" >"$dir/id" || failed=$((failed + 1))
"$farcall" key "$dir/other" >/dev/null || failed=$((failed + 1))
cp "$dir/key" "$dir/open-key"
chmod 640 "$dir/open-key"
tr 0-9 x <"$dir/key" >"$dir/wrong-key"
chmod 600 "$dir/wrong-key"
refuses "group key: a file that is there is not replaced" 1 "a key in use is not replaced" "$farcall" key "$dir/key"
refuses "group key: no file is named" 2 "the file is missing" "$farcall" key
refuses "group key: open to others" 1 "run \`chmod 600\` on it" env FAR_KEY_FILE="$dir/open-key" "$farcall" run -n 2 -- "$refused" join
refuses "group key: no digits" 1 "does not hold a key of 64 hexadecimal digits" env FAR_KEY_FILE="$dir/wrong-key" "$farcall" key --id "$dir/wrong-key"
refuses "group key: in the environment, no digits" 1 "FAR_KEY is not a key" env FAR_KEY=1 "$farcall" run -n 2 -- "$refused" join
refuses "group key: two" 1 "unset one of them" env FAR_KEY="$(cat "$dir/key")" FAR_KEY_FILE="$dir/key" "$farcall" run -n 2 -- "$refused" join
if [ "$(id -u)" -eq 0 ]; then
	cp "$dir/key" "$dir/others-key"
	chmod 600 "$dir/others-key"
	chown 65534 "$dir/others-key"
	refuses "group key: another user's" 1 "belongs to user 65534" env FAR_KEY_FILE="$dir/others-key" "$farcall" run -n 2 -- "$refused" join
else
	skip "group key: another user's" root
fi
bounded env FAR_KEY_FILE="$dir/key" "$farcall" run -n 2 -- "$refused" join
[ $rc -eq 0 ]
ok "(the same join, with a key)" $?
bounded env FAR_KEY_FILE="$dir/key" "$farcall" info --json
[ $rc -eq 0 ] && has err "$dir/key, id $(cat "$dir/id")" && ! grep -qF "$(cat "$dir/key")" "$dir/out" "$dir/err"
ok "farcall info shows the key's path and id, and not the key" $?
# Two members with keys of their own: one hosts the store.
env FAR_KEY_FILE="$dir/key" RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" timeout -k 3 "$guard_s" "$refused" patient >"$dir/rank0" 2>&1 &
rank0=$!
refuses "group key: another than the store's" 1 "whose key is that of $dir/other (id $("$farcall" key --id "$dir/other"))" \
	env FAR_KEY_FILE="$dir/other" RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$refused" join
refuses "group key: none, and the store has one" 1 "was not found in" \
	env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" FAR_RUNTIME_DIR="$dir/none-here" "$refused" impatient
env FAR_KEY_FILE="$dir/key" RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" timeout -k 3 "$guard_s" "$refused" patient >"$dir/rank1" 2>&1
rc=$?
[ $rc -eq 0 ] && wait $rank0
ok "(and nothing is disturbed by those)" $?
refuses "store beyond loopback" 1 "unless security=none is set" "$farcall" run -n 1 -- "$refused" any-address
bounded env RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$refused" open-twice
[ $rc -eq 0 ] && [ "$(grep -c '^farcall: security=none: .* open to every process that reaches them' "$dir/err")" -eq 1 ]
ok "security=none warns, once for two groups of a process" $?
refuses "unknown security" 1 'it can be "none" or left out' "$farcall" run -n 2 -- "$refused" security
refuses "unknown NIC" 1 'no NIC driver "carrier-pigeon"' "$farcall" run -n 2 -- "$refused" nic
refuses "unknown NIC, perf" 1 'no NIC driver "foo"' "$farcall" perf latency --nic foo
refuses "too many shards" 1 "it must be in [1, 16]" "$farcall" run -n 2 -- "$refused" shards
refuses "unknown scheme" 1 'unknown scheme "http"' "$farcall" run -n 2 -- "$refused" scheme
refuses "name not unique" 1 'name "twin" is not unique: ranks 0 and 1 share it' "$farcall" run -n 2 -- "$refused" same-name
refuses "name with a space" 1 'worker name "not a name" has a character outside' \
	"$farcall" run -n 2 -- "$refused" bad-name
refuses "unknown worker" 1 'could not find destination name "nobody"' "$farcall" run -n 2 -- "$refused" unknown-worker
refuses "unknown function" 1 'no function "far::no_such"' "$farcall" run -n 2 -- "$refused" unknown-function
refuses "wrong number of arguments" 1 'far::zeros: takes 1 argument' "$farcall" run -n 2 -- "$refused" bad-arguments

mkdir -m 755 "$dir/open"
mkdir -m 700 "$dir/theirs"
refuses "runtime directory: open to others" 1 "$dir/open belongs to user $(id -u) with mode 755" \
	env FAR_NIC=shm FAR_RUNTIME_DIR="$dir/open" "$farcall" run -n 2 -- "$refused" join
refuses "runtime directory: a file" 1 "$dir/good is not a directory" \
	env FAR_NIC=shm FAR_RUNTIME_DIR="$dir/good" "$farcall" run -n 2 -- "$refused" join
refuses "runtime directory: cannot be made" 1 "cannot create the runtime directory $dir/none/x" \
	env FAR_NIC=shm FAR_RUNTIME_DIR="$dir/none/x" "$farcall" run -n 2 -- "$refused" join
refuses "runtime directory: path too long" 1 "too long for a unix socket; set FAR_RUNTIME_DIR" \
	env FAR_NIC=shm FAR_RUNTIME_DIR="/tmp/$(printf '%0200d' 1)" "$farcall" run -n 2 -- "$refused" join
if [ "$(id -u)" -eq 0 ] && chown 65534 "$dir/theirs" 2>/dev/null; then
	theirs=$dir/theirs
else
	theirs=/
fi
refuses "runtime directory: another user's" 1 "must be yours with mode 700; set FAR_RUNTIME_DIR to another" \
	env FAR_NIC=shm FAR_RUNTIME_DIR="$theirs" "$farcall" run -n 2 -- "$refused" join
refuses "runtime directory: perf says so too" 1 "set FAR_RUNTIME_DIR" \
	env FAR_NIC=shm FAR_RUNTIME_DIR="$theirs" "$farcall" perf latency
bounded env FAR_NIC=shm FAR_RUNTIME_DIR="$theirs" "$farcall" info
[ $rc -eq 0 ] && has out '^ *shm  *not available: .*set FAR_RUNTIME_DIR' && has out 'nic "shm" cannot be opened: .*set FAR_RUNTIME_DIR'
ok "runtime directory: farcall info shows it" $?

finish

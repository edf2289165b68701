#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# `farcall claim`: ranks for members that know none of their own. `farcall run -n 1` brings the store's listener, and
# the shell that it starts the members.
# usage: claim.sh FARCALL
set -u
farcall=$1
. "$(dirname "$0")/cases.sh"
export farcall

inside() { bounded "$farcall" run -n 1 -- sh -c "$1"; }
# shellcheck disable=SC2016 # the inner shells'
job='set -- "$farcall" train --servers 2 --workers 2 --rows 2000 --test-rows 1000 --epochs 2 --json; export WORLD_SIZE=4;'
trained='0.5 < j["test_auc"] <= 1 and j["settings"]["servers"] == 2 and j["settings"]["workers"] == 2'

# shellcheck disable=SC2016
inside "$job"'
	for i in 1 2; do "$farcall" claim --first 2 --count 2 -- "$@" & done
	"$farcall" claim --first 1 --count 1 -- "$@" &
	"$@" --rank 0 && wait'
[ $rc -eq 0 ] && json "$trained"
ok "servers and workers claim their ranks, and train" $?

# shellcheck disable=SC2016
inside "$job"'
	"$farcall" claim --first 1 --count 3 -- "$@" & a=$!
	"$farcall" claim --first 1 --count 3 -- "$@" & b=$!
	"$farcall" claim --first 1 --count 3 -- "$@" & c=$!
	sleep 0.5
	"$@" --rank 0; main=$?
	wait $a && wait $b && wait $c && exit $main'
[ $rc -eq 0 ] && json "$trained"
ok "who comes before rank 0 waits for it" $?

# shellcheck disable=SC2016
inside 'export WORLD_SIZE=3
	"$farcall" train --servers 1 --workers 2 --rank 0 --rows 1000 --epochs 2 & main=$!
	for i in 1 2 3; do "$farcall" claim --first 1 --count 2 -- sh -c "echo rank \$RANK of \$WORLD_SIZE \${FAR_STORE_FD:-free}"; done
	echo last: $?
	kill $main; wait $main; true'
[ $rc -eq 0 ] && [ "$(grep '^rank' "$dir/out" | sort | tr '\n' ';')" = "rank 1 of 3 free;rank 2 of 3 free;" ] &&
	has out '^last: 1$' && has err 'ranks 1 to 2 are all claimed: this is number 3'
ok "each rank once; one member too many is refused" $?

# shellcheck disable=SC2016
inside 'export WORLD_SIZE=9
	"$farcall" train --servers 1 --workers 8 --rank 0 --rows 1000 --epochs 2 & main=$!
	p=
	for i in 1 2 3 4 5 6 7 8; do "$farcall" claim --first 1 --count 8 -- sh -c "echo rank \$RANK" & p="$p $!"; done
	for i in $p; do wait $i || echo failed; done
	kill $main; wait $main; true'
[ $rc -eq 0 ] && [ "$(sort "$dir/out" | tr '\n' ' ')" = "$(for i in 1 2 3 4 5 6 7 8; do printf 'rank %s ' $i; done)" ]
ok "eight at once" $?

# Any store: each rank once, after rank 0 has joined; another group has ranks of its own.
# shellcheck disable=SC2016
any_store='"$farcall" train --servers 1 --workers 2 --rank 0 --rows 1000 --epochs 2 & main=$!
	for i in 1 2 3; do "$farcall" claim --first 1 --count 2 -- sh -c "echo rank \$RANK of \$WORLD_SIZE at \$FAR_INIT_METHOD"; done
	kill $main; wait $main; true'
for group in a b; do
	bounded env FAR_INIT_METHOD="file://$dir/store" FAR_GROUP=$group WORLD_SIZE=3 sh -c "$any_store"
	[ $rc -eq 0 ] && has err 'ranks 1 to 2 are all claimed: this is number 3' &&
		[ "$(sort "$dir/out" | tr '\n' ';')" = "rank 1 of 3 at file://$dir/store;rank 2 of 3 at file://$dir/store;" ]
	ok "ranks of group $group in a file" $?
done
# shellcheck disable=SC2016
train='"$farcall" train --servers 1 --workers 2 --rows 2000 --test-rows 1000 --epochs 2 --json'
bounded env FAR_INIT_METHOD="file://$dir/store" WORLD_SIZE=3 sh -c "
	\"\$farcall\" claim --first 1 --count 2 -- $train &
	\"\$farcall\" claim --first 1 --count 2 -- $train &
	$train --rank 0 && wait"
[ $rc -eq 0 ] && json '0.5 < j["test_auc"] <= 1'
ok "members that claim in a file before rank 0 train with it" $?

refuses() { # name, status, text, arguments of claim...
	name=$1
	status=$2
	text=$3
	shift 3
	bounded "$farcall" claim "$@"
	[ $rc -eq "$status" ] && says "$text" && [ ! -s "$dir/out" ]
	ok "$name" $?
}
url=tcp://127.0.0.1:1 # nobody listens on a port that only root may have and no service has
refuses "no ranks to claim from" 2 "give both" --world-size 2 -- true
refuses "no count" 2 "give both" --first 1 --world-size 2 -- true
refuses "rank 0 is not to be claimed" 2 "give a whole number from 1" --first 0 --count 1 --world-size 2 -- true
refuses "no program" 2 "the program is missing" --first 1 --count 1 --world-size 2
refuses "no world size" 2 "WORLD_SIZE expected" --first 1 --count 1 --init-method $url -- true
refuses "ranks beyond the group" 2 "ranks 1 to 3 are not in a group of 3" --first 1 --count 3 --world-size 3 --init-method $url -- true
refuses "no address" 2 "MASTER_ADDR expected" --first 1 --count 1 --world-size 2 -- true
refuses "a bad address" 2 "names no port" --first 1 --count 1 --world-size 2 --init-method tcp://x -- true
refuses "nobody there" 1 "127.0.0.1:1: Connection refused; start rank 0 there" \
	--first 1 --count 1 --world-size 2 --init-method $url --timeout 300ms -- true
refuses "a name that does not resolve" 1 "its name did not resolve in time; correct MASTER_ADDR" \
	--first 1 --count 1 --world-size 2 --init-method tcp://no-such-host.invalid:1 --timeout 300ms --security none -- true
refuses "a file that is none" 1 "that belongs to this user alone" \
	--first 1 --count 1 --world-size 2 --init-method file:///proc/self/mem --timeout 300ms -- true
refuses "a file without rank 0" 1 "rank 0 has not joined; start it, with the same store and group" \
	--first 1 --count 1 --world-size 2 --init-method "file://$dir/other" --timeout 300ms -- true
refuses "beyond loopback" 1 "pass --security none" \
	--first 1 --count 1 --world-size 2 --init-method tcp://192.0.2.1:1 --timeout 300ms -- true
refuses "beyond loopback, permitted, and nobody there" 1 "the store at 192.0.2.1:1: " \
	--first 1 --count 1 --world-size 2 --init-method tcp://192.0.2.1:1 --timeout 300ms --security none -- true

# An unexpected server at the port, which sends nothing or other bytes.
cat >"$dir/unexpected.py" <<'END'
import os, socket, subprocess, sys
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen()
p = subprocess.Popen([os.environ["farcall"], "claim", "--first", "1", "--count", "1", "--world-size", "2", "--timeout",
                      "1s", "--init-method", "tcp://127.0.0.1:%d" % s.getsockname()[1], "--", "true"])
words = sys.argv[1].encode()
s.settimeout(20)
c, _ = s.accept()
if words:
    c.sendall(words)
sys.exit(p.wait(20))
END
for words in '' 'HTTP/1.1 400 Bad Request
Content-Length: 100000

................................................................................'; do
	bounded python3 "$dir/unexpected.py" "$words"
	[ $rc -eq 1 ] && has err '^farcall claim: the store at 127.0.0.1:[0-9]*: '
	ok "an unexpected server at the port${words:+, other bytes}" $?
done

# shellcheck disable=SC2016
inside 'export WORLD_SIZE=2; "$farcall" train --servers 1 --workers 1 --rank 0 --rows 1000 & main=$!
	"$farcall" claim --first 1 --count 1 -- /no/such/program; echo $?; kill $main; wait $main; true'
[ $rc -eq 0 ] && has out '^127$' && has err 'cannot start /no/such/program: No such file'
ok "a program that is not there" $?

gone "$farcall claim"
ok "no process is left" $?

finish

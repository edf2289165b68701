#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# `farcall health` and the file that it reads: in each state of a worker, after its death, and with files that are not
# a worker's.
# usage: health.sh FARCALL
set -u
farcall=$1
. "$(dirname "$0")/cases.sh"
export farcall

says_of() { # file, status, text
	bounded "$farcall" health --file "$1"
	[ $rc -eq "$2" ] && has out "$3" && [ "$(lines_of_out)" -eq 1 ] && [ ! -s "$dir/err" ]
}

says_of "$dir/none" 1 '^unhealthy: .*none: is not there'
ok "no file" $?
bounded "$farcall" health
[ $rc -eq 2 ] && says 'give --file, or set FAR_HEALTH_FILE'
ok "no file is named" $?
bounded env FAR_HEALTH_FILE="$dir/none" "$farcall" health
[ $rc -eq 1 ] && has out '^unhealthy: .*none: is not there'
ok "FAR_HEALTH_FILE" $?

: >"$dir/empty"
says_of "$dir/empty" 1 'the worker that wrote it is gone'
ok "a file that nobody has locked" $?
mkfifo "$dir/fifo"
says_of "$dir/fifo" 1 '^unhealthy: '
ok "a fifo is not waited for" $?
says_of /dev/zero 1 '^unhealthy: '
ok "a device" $?
says_of "$dir" 1 '^unhealthy: '
ok "a directory" $?
ln -s "$dir/empty" "$dir/link"
says_of "$dir/link" 1 '^unhealthy: .*symbolic'
ok "a symbolic link" $?

# Locked as a worker does, with contents that a worker never writes.
cat >"$dir/lock.py" <<'END'
import fcntl, os, struct, subprocess, sys
path, text = sys.argv[1], sys.argv[2].encode().decode("unicode_escape").encode("latin1")
fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)) # F_OFD_SETLK
os.write(fd, text)
sys.exit(subprocess.call([os.environ["farcall"], "health", "--file", path]))
END
forged() { bounded python3 "$dir/lock.py" "$dir/forged" "$2"; [ $rc -eq 1 ] && has out "^unhealthy: .*$1"; }
record='is no health record'
forged "$record" '' && forged "$record" 'farcall-health-1' && forged "$record" 'farcall-health-2 joined rank 0 world 1 beat 1' &&
	forged "$record" 'farcall-health-1 joined rank 1 world 1 beat 1' &&
	forged "$record" 'farcall-health-1 joined rank -1 world 1 beat 1' &&
	forged "$record" 'farcall-health-1 joined rank 0 world 1 beat x' &&
	forged "$record" 'farcall-health-1 joinedjoinedjoinedjoined rank 0 world 1 beat 1' &&
	forged "$record" 'farcall-health-1 joined rank 0 world 1 beat 1 more' &&
	forged "$record" '\x00\xff\xff%s%n%n' && forged 'has not joined' 'farcall-health-1 dancing rank 0 world 1 beat 1'
ok "records that no worker writes" $?
forged 'rank 0: its shards have not answered for [0-9.]* s' 'farcall-health-1 joined rank 0 world 1 beat 1'
ok "a beat that is too old" $?

health=$dir/health
eventually_says() { eventually says_of "$@"; }

# One of two members: it waits for the other.
# shellcheck disable=SC2016 # the inner shell's
"$farcall" run -n 1 -- sh -c 'exec "$farcall" train --servers 1 --workers 1 --world-size 2 --rank 0 --health "$0"' \
	"$health" >"$dir/job.out" 2>&1 </dev/null &
job=$!
eventually_says "$health" 1 'rank 0 has not joined yet: it waits for the other 1 members'
ok "before the others have come" $?
bounded "$farcall" train --rank 0 --world-size 1 --servers 1 --workers 1 --health "$health"
[ $rc -ne 0 ]
ok "a group without a worker is refused with a health file too" $?
bounded "$farcall" pserver --rank 0 --world-size 2 --init-method tcp://127.0.0.1:1 --health "$health"
[ $rc -eq 1 ] && says "another running worker holds it; give each worker a file of its own"
ok "a second worker is refused the file" $?
kill "$job"
wait "$job"
says_of "$health" 1 '^unhealthy: '
ok "after a stop while joining" $?

# A whole job that would take for ever, each rank with a file of its own; a worker is killed.
# shellcheck disable=SC2016
"$farcall" run -n 3 -- sh -c 'FAR_HEALTH_FILE=$0$RANK exec "$farcall" train --servers 1 --shards 2 --rows 1000 --epochs 1000000' \
	"$health" >"$dir/job.out" 2>&1 </dev/null &
job=$!
for r in 0 1 2; do
	eventually_says "$health$r" 0 "^healthy: rank $r of 3, joined$"
	ok "rank $r is healthy" $?
done
[ "$(stat -c %a "$health"0)" = 600 ]
ok "the file is its owner's alone" $?
victim=$(pgrep -f -- "$farcall train --servers 1 --shards 2 --rows 1000 --epochs 1000000" | while read -r p; do
	tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -qx RANK=2 && echo "$p"
done | tail -n 1)
[ -n "$victim" ] && kill -KILL "$victim"
wait "$job"
says_of "$health"2 1 'the worker that wrote it is gone'
ok "after it was killed" $?
says_of "$health"1 1 '^unhealthy: '
ok "and the others after the job has ended" $?

# shellcheck disable=SC2016
bounded "$farcall" run -n 3 -- sh -c 'exec "$farcall" train --servers 1 --rows 2000 --epochs 2 --health "$0$RANK"' "$dir/done"
[ $rc -eq 0 ] && [ -z "$(ls "$dir" | grep '^done')" ]
ok "a job that ends well leaves no file" $?

bounded "$farcall" run -n 1 -- "$farcall" train --servers 1 --world-size 2 --health /no/such/dir/file
[ $rc -eq 1 ] && says 'health file /no/such/dir/file: No such file or directory; name one that can be written'
ok "a file that cannot be made" $?

finish

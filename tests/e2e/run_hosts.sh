#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# farcall run --hosts: a program in place of ssh shows what it gets; then workers on two hosts, network namespaces with an
# sshd each. And --nic, --security, --max-restarts.
# usage: run_hosts.sh FARCALL RUN_RESTART
set -u
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
. "$here/cases.sh"
farcall=$(readlink -f "$1")
restart=$(readlink -f "$2")
nap=$$ # what sleeps is known by this fraction of a second

bounded "$farcall" run --hosts , -- true
[ $rc -eq 2 ] && says "names no host"
ok "a list without a host" $?
bounded "$farcall" run --hosts a,-oProxyCommand=x -- true
[ $rc -eq 2 ] && says "begins with a dash"
ok "a host that ssh would take for an option" $?
bounded "$farcall" run --hosts a --ssh " " -- true
[ $rc -eq 2 ] && says "--ssh is empty"
ok "an empty ssh command" $?
bounded "$farcall" run --hosts a --ssh "$dir/none" -- true
[ $rc -eq 127 ] && says "$dir/none: not found"
ok "an ssh that is not there" $?
bounded "$farcall" run --hosts a --ssh "sh -c 'exit" -- true
[ $rc -ne 0 ] && says "worker 0 on a exited with status 2"
ok "an ssh that fails: its host is named" $?

# A program as ssh: records its arguments and runs the command here, in a session of its own as sshd does.
cat >"$dir/ssh" <<'END'
#!/bin/sh
printf '%s\n' "$@" >>"$SSH_ARGS"
shift 3
exec setsid -w sh -c "$*"
END
chmod 755 "$dir/ssh"
export SSH_ARGS="$dir/args"
local_ssh() { bounded "$farcall" run --ssh "$dir/ssh -o x" "$@"; }

# shellcheck disable=SC2016
WITH_LINES="two
lines' of \"it\"" local_ssh -n 3 --hosts user@a,b --security none --nic udp -- sh -c \
	'echo "$RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT $FAR_NIC $FAR_SECURITY ${FAR_KEY-nokey} $1"; echo "$WITH_LINES"' sh "it's 'one' \\ word"
[ $rc -eq 0 ] && has out "^0 of 3 at a:29500 udp none nokey it's 'one' .* word$" && has out "^lines' of \"it\"$" &&
	has err '^\[1\] 1 of 3 at a' && has err '^\[2\] 2 of 3 at a' && [ "$(grep -cx user@a "$dir/args")" -eq 2 ] &&
	[ "$(grep -cx b "$dir/args")" -eq 1 ]
ok "environment, arguments, blocks of ranks, prefixes" $?

# shellcheck disable=SC2016
(cd "$dir" && local_ssh --hosts a,b -- sh -c 'printenv FAR_KEY >key.$RANK; ! grep -aqFf key.$RANK /proc/[0-9]*/cmdline')
[ $rc -eq 0 ] && [ "$(wc -c <"$dir/key.0")" -eq 65 ] && cmp -s "$dir/key.0" "$dir/key.1" && ! grep -qFf "$dir/key.0" "$dir/args"
ok "a key for the run, the same for all, in no argument" $?

"$farcall" key "$dir/group.key" >/dev/null
# shellcheck disable=SC2016
(cd "$dir" && FAR_KEY_FILE=group.key local_ssh --hosts a,b -- sh -c 'printenv FAR_KEY >key.$RANK; [ -z "${FAR_KEY_FILE-}" ]')
[ $rc -eq 0 ] && cmp -s "$dir/key.0" "$dir/group.key" && cmp -s "$dir/key.1" "$dir/group.key"
ok "the key of FAR_KEY_FILE" $?

# shellcheck disable=SC2016
local_ssh --hosts a,b,c -- sh -c 'if [ $RANK = 1 ]; then sleep 0.3; echo last words; exit 7; fi; exec sleep 351.'$nap
[ $rc -eq 7 ] && says 'worker 1 on b exited with status 7' && has err '^\[1\] last words' && gone "sleep 351.$nap"
ok "one failure stops all" $?

# shellcheck disable=SC2016
local_ssh --hosts a,b -- sh -c 'if [ $RANK = 1 ]; then kill -9 $$; fi; exec sleep 352.'$nap
[ $rc -eq 137 ] && says 'worker 1 on b was killed by signal 9' && gone "sleep 352.$nap"
ok "death by signal" $?

# shellcheck disable=SC2016
local_ssh --hosts a,b --grace 300ms -- sh -c 'if [ $RANK = 1 ]; then sleep 0.3; exit 3; fi; trap "" TERM; while :; do sleep 353.'$nap'; done'
[ $rc -eq 3 ] && gone "sleep 353.$nap"
ok "a worker that ignores SIGTERM is killed after the grace" $?

# shellcheck disable=SC2016
local_ssh --hosts a,b -- sh -c 'setsid sleep 354.'$nap' & setsid sleep 354.'$nap' >/dev/null 2>&1 & exit 0'
[ $rc -eq 0 ] && gone "sleep 354.$nap"
ok "what a worker started ends with it, in a session of its own too" $?

local_ssh --hosts a,b -- ./does-not-exist
[ $rc -eq 127 ] && has err 'does-not-exist'
ok "program not found" $?

there() { pgrep -f -- "$1" >/dev/null; }
for sig in INT TERM KILL; do
	env --default-signal=INT "$farcall" run --ssh "$dir/ssh -o x" --hosts a,b -- sleep "355.$nap" >"$dir/out" 2>"$dir/err" &
	pid=$!
	eventually there "sleep 355.$nap"
	kill -s $sig $pid
	wait $pid
	rc=$?
	case $sig in INT) want=130 ;; TERM) want=143 ;; KILL) want=137 ;; esac
	[ $rc -eq $want ] && gone "sleep 355.$nap"
	ok "SIG$sig ends all" $?
done

bounded "$farcall" run -n 2 --max-restarts 3 -- "$restart" 3
[ $rc -eq 0 ] && has out '^served again$' && says 'worker 1 was killed by signal 9 (Killed); restart 3 of 3' && says '3 restarts'
ok "--max-restarts: a worker that dies joins the group again" $?
bounded "$farcall" run -n 2 --max-restarts 2 -- "$restart" 3
[ $rc -eq 137 ] && says 'restart 2 of 2' && says 'worker 1 was killed by signal 9'
ok "--max-restarts is a bound" $?
# shellcheck disable=SC2016
bounded "$farcall" run -n 2 --max-restarts 2 -- sh -c '[ $RANK = 1 ] || { sleep 0.3; exit 4; }; exec sleep 356.'$nap
[ $rc -eq 4 ] && ! says 'restart' && gone "sleep 356.$nap"
ok "rank 0 is not started again" $?

# Two hosts.
name="two network namespaces with an sshd each"
if [ "$(id -u)" -ne 0 ] || ! unshare -nm true 2>/dev/null; then
	skip "$name" "root and network namespaces"
	finish
fi
sshd=/usr/sbin/sshd
if [ ! -x "$sshd" ]; then
	if ! fetched openssh-server; then
		skip "$name" "the package openssh-server, which apt cannot fetch"
		finish
	fi
	sshd=$dir/openssh-server$sshd
fi
. "$here/veth.sh"
interface() { # holder, number
	at "$1" ip addr add "10.91.9.$2/24" dev far0
}
veth "$name"

ssh-keygen -q -t ed25519 -N '' -f "$dir/host" && ssh-keygen -q -t ed25519 -N '' -f "$dir/user"
cat >"$dir/sshd.conf" <<END
Port 2222
HostKey $dir/host
AuthorizedKeysFile $dir/user.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
PidFile none
MaxStartups 100
END
cat >"$dir/ssh.conf" <<END
Host *
Port 2222
IdentityFile $dir/user
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
END
chmod 711 "$dir"
# Where sshd is not installed there is no user of its name.
{ cat /etc/passwd && { getent passwd sshd >/dev/null || echo 'sshd:x:65534:65534::/run/sshd:/usr/sbin/nologin'; }; } >"$dir/passwd"
for end in "$a" "$b"; do
	# sshd wants /run/sshd; a /run of its own is nobody else's
	nsenter -t "$end" -n unshare -m sh -c 'mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd &&
		mount --bind "$3" /etc/passwd && exec "$2" -D -e -f "$1"' \
		sh "$dir/sshd.conf" "$sshd" "$dir/passwd" >>"$dir/sshd.log" 2>&1 </dev/null &
	others="$others $!"
done
is_listening() { at "$1" ss -ltn | grep -q ':2222 '; }
if ! eventually is_listening "$a" || ! eventually is_listening "$b"; then
	cat "$dir/sshd.log"
	false
	ok "sshd starts" $?
	finish
fi
hosts="root@10.91.9.1,10.91.9.2"
over_ssh() { # arguments of run
	rc=0
	at "$a" timeout -k 3 "$guard_s" "$farcall" run --ssh "ssh -T -o BatchMode=yes -F $dir/ssh.conf" --hosts "$@" \
		>"$dir/out" 2>"$dir/err" </dev/null || rc=$?
}

# shellcheck disable=SC2016
over_ssh "$hosts" -n 4 --nic udp -- sh -c 'echo "$RANK: $(ip -o -4 addr show far0 | grep -o "10[.0-9]*" | head -n 1)"'
[ $rc -eq 0 ] && has out '^0: 10.91.9.1$' && has err '^\[1\] 1: 10.91.9.1$' && has err '^\[2\] 2: 10.91.9.2$' && has err '^\[3\] 3: 10.91.9.2$'
ok "ranks in blocks over two sshd" $?

over_ssh "$hosts" -n 3 --nic udp -- "$farcall" train --servers 1 --workers 2 --rows 2000 --test-rows 1000 --epochs 2 --json
[ $rc -eq 0 ] && json '0.5 < j["test_auc"] <= 1'
ok "training over two hosts, with a key for the run" $?

over_ssh "$hosts" -n 3 --nic udp --security none -- "$farcall" train --servers 1 --workers 2 --rows 2000 --test-rows 1000 --epochs 2 --json
[ $rc -eq 0 ] && json '0.5 < j["test_auc"] <= 1'
ok "the same with --security none" $?

over_ssh "$hosts" --nic udp --max-restarts 2 -- "$restart" 2
[ $rc -eq 0 ] && has out '^served again$' && says 'worker 1 on 10.91.9.2 was killed by signal 9 (Killed); restart 2 of 2'
ok "a worker of another host joins again after its death" $?

# shellcheck disable=SC2016
over_ssh "$hosts" -- sh -c '[ $RANK = 1 ] && { sleep 0.5; exit 5; }; exec sleep 357.'$nap
[ $rc -eq 5 ] && says 'worker 1 on 10.91.9.2 exited with status 5' && gone "sleep 357.$nap"
ok "one failure on another host stops all" $?

nsenter -t "$a" -n "$farcall" run --ssh "ssh -T -o BatchMode=yes -F $dir/ssh.conf" --hosts "$hosts" -- sleep "358.$nap" >"$dir/out" 2>"$dir/err" &
pid=$!
eventually there "^sleep 358.$nap"
kill -KILL "$pid"
wait "$pid"
gone "^sleep 358.$nap"
ok "kill -9 of farcall run ends the workers on both hosts" $?

over_ssh "10.91.9.1,10.91.9.77" --ssh "ssh -T -o BatchMode=yes -o ConnectTimeout=1 -F $dir/ssh.conf" -- sleep "359.$nap"
[ $rc -eq 255 ] && says 'worker 1 on 10.91.9.77 exited with status 255' && gone "^sleep 359.$nap"
ok "a host that does not answer ends the run" $?
finish

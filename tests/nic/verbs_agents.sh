#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Groups of workers over the verbs driver and a device of the tests' own, and the error on a machine without a device.
# usage: verbs_agents.sh FARCALL AGENTS_NET DIRECTORY_OF_THE_MODULE_WITH_THE_DEVICE ZERO_COPY
set -u
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
# shellcheck source=tests/e2e/cases.sh
. "$here/../e2e/cases.sh"
farcall=$1
agents=$2
fake=$3
# A worker that gets no time for long is not lost.
patience_s=120

over() { # arguments of the driver, how many workers, arguments of agents_net
	args=$1
	n=$2
	shift 2
	bounded env FAR_MODULE_DIR="$fake" FAR_NIC="verbs:$args" "$farcall" run -n "$n" -- "$agents" "$@" $patience_s
}
over fake0,gid=2 2 1 1000000
[ "$rc" -eq 0 ] && has out 'by verbs at verbs 127.0.0.1:'
ok "two workers" $?
over fake0,gid=3,rx_slots=64,dscp=off 3 2 100000
ok "three of two shards, IPv6, few buffers" "$rc"
# Each of them has read what the others exposed, most of what is sent.
read_it() { # bytes at least, how many workers
	awk -v least="$1" -v n="$2" '/fake: [0-9]+ reads, / { for (i = 1; i < NF; i++) if ($i == "reads,") readers += $(i + 1) >= least }
		END { exit readers != n }' "$dir/out" "$dir/err"
}
# None has sent a key of a region of its own. Four bytes are found among millions of random ones now and then, but the
# same ones hardly twice; a key that leaks would be said with each message that is exposed.
no_keys() { # how many workers
	cat "$dir/out" "$dir/err" >"$dir/said"
	awk -v n="$1" '/fake: [0-9]+ times a key of a region in / {
			for (i = 1; i < NF; i++) if ($i == "times") seen += $(i - 1) <= 2 && $(i + 7) > 10000 }
		END { exit seen != n }' "$dir/said"
}
# The first messages go by packets, while the connection is made: who gets no time for that may have sent the last one
# by then, and tries again.
reading() { # bytes at least, arguments of over()
	least=$1
	shift
	for _ in 1 2 3 4 5 6 7 8; do
		over "$@"
		[ "$rc" -eq 0 ] && no_keys "$2" || return 1
		! read_it "$least" "$2" || return 0
	done
	return 1
}
export FAKE_VERBS_SAY=1
reading 1000000 fake0,gid=2,bulk=16384 2 1 16000000
ok "two workers, larger messages read where they lie" $?
reading 100000 fake0,gid=3,bulk=65536,connections=2 4 2 1000000
ok "four of two shards, of two connections for that" $?
reading 1000000 fake0,gid=2 2 1 16000000
ok "without bulk=, on a device that checks bounds" $?
over fake0,gid=2,bulk=off 2 1 1000000
[ "$rc" -eq 0 ] && read_it 100000 0 && no_keys 2
ok "with bulk=off nothing is read" $?
FAKE_VERBS_LOCK=4194304 over fake0,gid=2 2 1 1000000
[ "$rc" -eq 0 ] && read_it 100000 0 && [ "$(cat "$dir/out" "$dir/err" | grep -c 'farcall: verbs: fake0: .*larger messages go in packets')" -eq 2 ]
ok "memory cannot be locked: by packets, and said once" $?
FAKE_VERBS_LOOSE=1 over fake0,gid=2 2 1 1000000
[ "$rc" -eq 0 ] && read_it 100000 0
ok "nor on a device that does not check bounds" $?
FAKE_VERBS_LOOSE=1 reading 1000000 fake0,gid=2,bulk=65536 2 1 16000000
ok "but with bulk=" $?
bounded env FAR_MODULE_DIR="$fake" FAR_NIC=verbs:fake0,gid=2,bulk=16384 "$farcall" run -n 2 -- "$4"
[ "$rc" -eq 0 ] && read_it 10000000 1 && no_keys 2
ok "registered memory, read where it lies" $?
unset FAKE_VERBS_SAY
over fake0,gid=2,rc=1,connections=2 6 1 20000
[ "$rc" -eq 0 ] && has out 'by verbs at verbs 127.0.0.1:'
ok "six workers of two connections" $?
over fake0,gid=2,rc=1 3 2 100000
ok "three of two shards, by connections" "$rc"
export FAKE_VERBS_IWARP=1 FAKE_VERBS_OWN=1 FAR_LISTEN=127.0.0.1
over fake0,connections=2 6 1 20000
ok "iWARP, buffers of each connection's own" "$rc"
unset FAKE_VERBS_IWARP FAKE_VERBS_OWN FAR_LISTEN
bounded env FAR_MODULE_DIR="$fake" FAR_NIC=verbs "$farcall" info
[ "$rc" -eq 0 ] && has out '^ *verbs  *available' && has out 'fake0 port 1 gid 2: 127.0.0.1 (RoCE v2, this host only' &&
	has out 'fake0 port 1: bulk=auto is on: messages of 65536 bytes'
ok "farcall info" $?
bounded env FAKE_VERBS_LOOSE=1 FAR_MODULE_DIR="$fake" FAR_NIC=verbs "$farcall" info
has out 'fake0 port 1: bulk=auto is off: it does not check the bounds of memory windows'
ok "farcall info, no bulk" $?
bounded env FAR_MODULE_DIR="$fake" FAR_NIC=verbs "$farcall" info --json
json 'j["auto"] == "verbs" and "fake0 port 1" in j["advice"]["verbs"]'
ok "farcall info --json" $?
bounded env FAR_MODULE_DIR="$fake" FAR_NIC=verbs "$farcall" info --security none
has out 'nothing: .*no GID of RoCE v2 with an address'
ok "only loopback, and other hosts are wanted" $?
bounded env FAR_MODULE_DIR="$dir" FAR_NIC=verbs "$farcall" info
has out 'driver "verbs" is a module, and there is no '
ok "the module is missing" $?
if [ -z "$(ls -A /sys/class/infiniband 2>/dev/null)" ]; then
	bounded env FAR_NIC=verbs "$farcall" run -n 2 -- "$agents" 1 1000
	[ "$rc" -ne 0 ] && says 'shows no RDMA device' && says 'modprobe rdma_rxe'
	ok "no device" $?
fi
bounded env FAR_NIC=verbs:rxe0,gid=x "$farcall" run -n 2 -- "$agents" 1 1000
[ "$rc" -ne 0 ] && says "gid=x: an index of the port's GID table"
ok "a wrong argument" $?
finish

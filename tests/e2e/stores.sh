#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# perf/peers/stores.sh with Farcall, and with Redis and memcached if they can be fetched: that figures are made, that a
# row without them says why, that wrong options are refused, and that every process ends.
# usage: stores.sh STORES_SH BUILD
set -u
stores_sh=$1
build=$2
. "$(dirname "$0")/cases.sh"
guard_s=280

run() { bounded sh "$stores_sh" --work "$dir/made" --farcall "$build" --rows 8000 --rounds 1 --seconds 0.1 "$@"; }

bounded sh "$stores_sh" --help
[ $rc -eq 0 ] && has out '^usage: stores.sh ' && has out '--no-fetch' && [ ! -s "$dir/err" ]
ok "--help" $?
refused() { # what, a text of the message, options
	what=$1 text=$2
	shift 2
	bounded sh "$stores_sh" --work "$dir/none" --farcall "$build" "$@"
	[ $rc -eq 2 ] && says "$text" && [ ! -s "$dir/out" ] && [ ! -e "$dir/none" ]
	ok "refused: $what" $?
}
refused "an unknown row" 'no row "etcd"; there are farcall, redis-mget' --only farcall,etcd
refused "too few rows" '"100" is not between' --rows 100
refused "no rounds" '"0" is not between 1 and 101' --rounds 0
refused "a directory without a build" 'has no farcall' --farcall "$dir"

row='lambda b, r: positive(j["batches"][b][r], "p50_ns", "per_s") and len(j["batches"][b][r]["rounds"]) == 1'
run --no-fetch --only farcall,memcached --json
[ $rc -eq 1 ] && [ "$(lines_of_out)" -eq 1 ] && json "all(($row)(b, 'farcall') and list(j['batches'][b]) == ['farcall']
	for b in ('500 x 512 B', '2000 x 64 B')) and j['not_measured'] == {'memcached': 'not fetched'}"
ok "a store that is not fetched costs its row, not the others" $?

run --json
if [ $rc -eq 1 ] && says 'fetching' && json '"farcall" not in j["not_measured"] and
	any("apt-get" in why for why in j["not_measured"].values())'; then
	skip_data "Redis and memcached" "their packages cannot be downloaded"
	finish
fi
[ $rc -eq 0 ] && json "all(($row)(b, r) and ('p50_ratio' in j['batches'][b][r]) == ('rate_ratio' in j['batches'][b][r]) ==
	(r != 'farcall') for b in ('500 x 512 B', '2000 x 64 B') for r in ('farcall', 'redis-mget', 'redis-hmget', 'memcached')) and
	j['not_measured'] == {} and j['rows'] == 8000"
ok "every figure of Farcall, Redis and memcached" $?
gone 'farcall-stores-' && ! has err Traceback
ok "the stores have ended" $?
run --no-fetch --only farcall,redis-hmget
[ $rc -eq 0 ] && has out '^redis-hmget  *\([0-9.]*  *[0-9.]*x  *[0-9]*  *[0-9.]*x *\)\{2\}$' &&
	[ "$(awk 'length > 120' "$dir/out" | wc -l)" -eq 0 ]
ok "the table: figures, ratios, at most 120 columns" $?

# What a reply holds is compared with what was loaded.
redis=$dir/made/fetched-redis
socket=$dir/redis
for libraries in "$redis"/usr/lib/*-linux-gnu*; do :; done
LD_LIBRARY_PATH=$libraries setpriv --pdeathsig KILL -- "$redis/usr/bin/redis-server" --port 0 --unixsocket "$socket" --save '' >"$dir/redis.out" 2>&1 &
pid=$!
eventually test -S "$socket"
store="$dir/made/bin/store"
bounded "$store" load redis-mget "$socket" --rows 100 --bytes 64
[ $rc -eq 0 ]
ok "store load" $?
bounded "$store" get redis-mget "$socket" --rows 100 --bytes 64 --keys 10 --seconds 0.01
[ $rc -eq 0 ] && json 'positive(j, "count", "p50_ns", "per_s") and j["keys"] == 10'
ok "store get" $?
bounded "$store" get redis-mget "$socket" --rows 100 --bytes 32 --keys 10 --seconds 0.01
[ $rc -eq 1 ] && says "the answer is \"\$64\", not \"\$32\""
ok "store get: values of another length" $?
bounded "$store" get redis-mget "$socket" --rows 1000000 --bytes 64 --keys 10 --seconds 0.01
[ $rc -eq 1 ] && says "the answer is \"\$-1\", not \"\$64\""
ok "store get: keys that are missing" $?
bounded "$store" get redis-hmget "$socket" --rows 100 --bytes 64 --keys 10 --seconds 0.01
[ $rc -eq 1 ] && says "not \"\$64\""
ok "store get: another command's data" $?
kill "$pid"
wait "$pid"
finish

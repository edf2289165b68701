#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# `farcall perf sim`, `memory` and `ps`: each figure in a tiny form, that its object has what it must, that a seed
# says all, and what is refused.
# usage: perf_sim.sh FARCALL
set -u
farcall=$1
. "$(dirname "$0")/cases.sh"
# Large tables that are hardly used: a malloc that fills its memory would touch them all.
unset MALLOC_PERTURB_

conditions='positive(j, "simulator", "mtu", "rate_bits_per_s", "delay_ns", "base_rtt_ns", "framing_limit") and
	0.5 < j["framing_limit"] < 1 and j["version"] and j["seed"] >= 0 and "instructions_per_packet" in j'
counts='all(r["calls_failed"] == 0 and all(k in r for k in ("packets", "lost", "dropped_by_queues", "resent", "spurious_retransmits",
	"timeouts")) for r in j["results"])'

bounded "$farcall" perf sim --help
[ $rc -eq 0 ] && has out '^  goodput ' && has out '^  incast ' && has out '^  mix ' && [ ! -s "$dir/err" ]
ok "perf sim --help names the figures" $?
for figure in goodput incast mix sessions; do
	bounded "$farcall" perf sim $figure --help
	[ $rc -eq 0 ] && has out "^usage: farcall perf sim $figure "
	ok "perf sim $figure --help" $?
done

goodput="perf sim goodput --bytes 100000 --messages 20 --loss 0,5000 --seed 7"
# shellcheck disable=SC2086 # words
bounded "$farcall" $goodput --json
[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] && json "$conditions and $counts and j['figure'] == 'goodput' and
	[r['loss'] for r in j['results']] == [0, 0.005] and
	j['results'][0]['lost'] == 0 and j['results'][1]['lost'] > 0 and
	0 < j['results'][1]['of_framing_limit'] < j['results'][0]['of_framing_limit'] <= 1 and
	j['instructions_per_packet'] == 0" && has err 'MTU 1500' && has err 'base round trip' && has err 'simulator'
ok "goodput --json" $?
cp "$dir/out" "$dir/first"
# shellcheck disable=SC2086
bounded "$farcall" $goodput --json
[ $rc -eq 0 ] && cmp -s "$dir/out" "$dir/first"
ok "the same seed: the same object" $?
# shellcheck disable=SC2086
bounded "$farcall" $goodput --seed 8 --json
[ $rc -eq 0 ] && ! cmp -s "$dir/out" "$dir/first"
ok "another seed: another one" $?
bounded "$farcall" perf sim goodput --bytes 100000 --messages 20 --loss 0 --ghz 1 --mtu 9000 --rate 10 --delay 5us
[ $rc -eq 0 ] && has out 'cores of 1 GHz, [0-9]* instructions a packet' && has out 'MTU 9000, 10 Gb/s' &&
	has out '0\.[0-9]* of the framing limit$'
ok "goodput: text, with cores that take time" $?
bounded "$farcall" perf sim goodput --bytes 1000000 --messages 20 --loss 1000 --small --json
[ $rc -eq 0 ] && json "$conditions and $counts and all(r['small_calls'] > 10 and
	0 < r['small_p50_ns'] <= r['small_p99_ns'] <= r['small_max_ns'] for r in j['results'])" && has err 'beside them [0-9]* calls of 32 bytes'
ok "goodput with small calls beside" $?

bounded "$farcall" perf sim incast --workers 4 --bytes 60000 --messages 10 --buffer 200000 --json
[ $rc -eq 0 ] && json "$conditions and $counts and j['figure'] == 'incast' and j['senders'] == 4 and
	[r['priorities'] for r in j['results']] == [1, 8] and
	all(r['finished'] and r['messages_fewest'] >= 10 and 0 < r['jain_index'] <= 1 and
		0 < r['of_line_rate_less_framing'] <= 1.1 and
		positive(r, 'bystander_calls', 'bystander_p50_ns', 'bystander_p99_ns') and 'port_drops' in r
		for r in j['results'])"
ok "incast --json" $?
bounded "$farcall" perf sim incast --workers 4 --bytes 60000 --messages 10 --priorities 2
[ $rc -eq 0 ] && has out "^priorities 2: " && has out "Jain's index" && has out ', p99 [0-9.]* us, max [0-9.]* us$'
ok "incast: text" $?

for mix in W1 W5; do
	bounded "$farcall" perf sim mix --workers 5 --messages 20 --mix $mix --json
	[ $rc -eq 0 ] && json "$conditions and $counts and j['figure'] == 'mix' and j['mix'] == '$mix' and
		j['load_percent'] == 80 and positive(j, 'mean_bytes') and len(j['results']) == 1 and
		all(r['finished'] and r['messages'] == 100 and len(r['tenths']) == 10 and
			sum(t['messages'] for t in r['tenths']) == 80 and
			all(t['messages'] == 0 or 0.9 < t['slowdown_p50'] <= t['slowdown_p99'] for t in r['tenths'])
			for r in j['results'])"
	ok "mix $mix --json" $?
done
bounded "$farcall" perf sim mix --workers 5 --messages 20 --mix W3 --load 20 --priorities 1,4
[ $rc -eq 0 ] && has out 'W3, .* 5 workers at 20 % load' && has out '^priorities 1, 100 messages' &&
	has out '^priorities 4, 100 messages' && has out 'slowdown p50 .* p99 *[0-9.]*$'
ok "mix: text" $?

bounded "$farcall" perf sim sessions --sessions 3000 --messages 200 --depth 4 --json
[ $rc -eq 0 ] && json "j['sessions'] == 3000 and j['calls'] == 200 and
	j['bytes_each'] <= 640 and j['bytes_link_heap'] >= j['bytes_link_peer'] > 0 and
	positive(j, 'sessions_max', 'bytes_session', 'bytes_resident', 'lines_each') and
	[r['depth'] for r in j['rates']] == [1, 4] and
	all(positive(r, 'few_ns', 'any_ns', 'ratio') for r in j['rates'])"
ok "sessions --json" $?
bounded "$farcall" perf sim sessions --sessions 16 --messages 10
[ $rc -eq 0 ] && has out '^16 sessions of one shard' && has out 'nothing being under way: [0-9]*$' &&
	has out '16 at a time: .* x the rate'
ok "sessions: text" $?

bounded "$farcall" perf memory --nic shm --calls 30000,60000 --json
[ $rc -eq 0 ] && json 'len(j["looks"]) == 3 and j["nic"] == "shm" and j["looks"][1]["calls"] >= 30000 and
	j["looks"][2]["calls"] >= 60000 and (j["noise"] is None or j["noise"] >= 0) and
	j["grown_bytes"] == sum(j["looks"][2][k] - j["looks"][1][k] for k in ("resident_bytes", "server_resident_bytes")) and
	all(positive(l, "resident_bytes", "server_resident_bytes") for l in j["looks"])'
ok "memory --json" $?
bounded "$farcall" perf memory --nic udp --calls 30000
[ $rc -eq 0 ] && has out 'nic udp: grown by .* calls on$' && has out '^noise .* readings'
ok "memory: text" $?

# A wrong row or status ends the measurement.
ps='j["rows"] == 3000 and j["limit_ns"] == 300000 and all(0 <= r["within_limit"] <= 1 and r["p50_ns"] <= r["p99_ns"] <= r["max_ns"] and
	positive(r, "p50_ns", "ops") for r in j["results"])'
bounded "$farcall" perf ps --rows 3000 --owners 1,3 --keys zipf --seconds 0.1 --json
[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] && json "$ps and j['rounds'] == 7 and j['nic'] == 'shm' and
	[(r['owners'], r['workload'], r['keys_n'], r['row_bytes']) for r in j['results']] == [(n, *w) for n in (1, 3) for w in
	(('pull', 2000, 64), ('push', 2000, 64), ('get', 500, 512), ('step', 3328, 64))] and
	all(r['keys'] == 'zipf' and r['loop'] == 'closed' and r['noise'] >= 0 and
		positive(r, 'floor_exchange_ns', 'ratio_median', 'floor_memcpy_ns') and
		('floor_apply_ns' in r) == ('apply_ratio_median' in r) == (r['workload'] in ('push', 'step')) and
		('samples_per_s' in r) == (r['workload'] == 'step') for r in j['results'])" && has err '^owners  *workload '
ok "ps --json: each workload with its floors, each number of owners" $?
bounded "$farcall" perf ps --rows 3000 --rate 50,100 --keys uniform --seconds 0.1 --limit 300us --json
[ $rc -eq 0 ] && json "$ps and [(r['workload'], r['rate']) for r in j['results']] == [(w, n) for w in ('pull', 'push', 'get') for n in (50, 100)] and
	all(r['loop'] == 'open' and r['keys'] == 'uniform' and r['ops'] + r['unsent'] == r['rate'] // 10 and
	'ratio_median' not in r and 'noise' in r for r in j['results'])"
ok "ps --rate: an open loop, as many operations as the rate says" $?
bounded "$farcall" perf ps --rows 2000 --workload get --nic udp --seconds 0.1 --csv
[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 3 ] && has out '^measurement,nic,rows,.*owners,workload,keys' &&
	has out '^ps,udp,2000,.*,get,zipf,closed,500,512,' && has out '^ps,udp,2000,.*,get,uniform,'
ok "ps --csv, over udp: a row for each distribution" $?

# The command waits in each stop until as many pulls are complete as are in flight.
bounded "$farcall" perf ps --stop 50ms --limit 2ms --rows 2000 --seconds 0.1 --json
[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] && json 'j["measurement"] == "ps_stop" and j["rows"] == 2000 and
	j["deadline_ns"] == 2000000 and j["stop_ns"] == 50000000 and positive(j, "stops", "keys_late_stopped") and
	j["pulls"] >= j["pulls_during"] >= 64 * j["stops"] and
	j["pulls"] * 26 == j["keys_answered"] + j["keys_late_stopped"] + j["keys_late_other"] and
	j["pulls"] >= j["after_deadline"] > 0 and all(0 <= l["p50_ns"] <= l["p99_ns"] <= l["p999_ns"] <= l["max_ns"] for l in (j["late_clock"], j["late_processor"]))' &&
	has err '^pulls: .* begun beside a stopped server'
ok "ps --stop: pulls beside a stopped server, with the right status of each key" $?

# A wrong row ends the measurement.
bounded "$farcall" perf ps --workload dense --owners 2 --memory 1M --seconds 0.1 --json
[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] && json 'j["measurement"] == "ps_dense" and j["bytes"] == 1048576 and
	j["owners"] == 2 and [r["operation"] for r in j["results"]] == ["memcpy", "pull", "push"] and
	all(r["ops"] >= 7 and positive(r, "p50_ns", "bytes_per_s", "memcpy_ratio") for r in j["results"])'
ok "ps --workload dense: a dense table pulled and pushed" $?
bounded "$farcall" perf ps --memory 2M --workload pull --keys zipf --seconds 0.1 --json
[ $rc -eq 0 ] && json 'j["rows"] == 2 * 1024 * 1024 // 520 and len(j["results"]) == 1'
ok "ps --memory: as many rows as it holds" $?
# A save has some 60 requests; its thread has this core by turns with the measuring one.
mkdir "$dir/saved"
bounded env TMPDIR="$dir/saved" "$farcall" perf ps --beside --rows 2000 --seconds 0.2 --json
[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] && json 'j["measurement"] == "ps_beside" and j["rows"] == 2000 and
	[r["beside"] for r in j["results"]] == ["nothing", "pushes", "saves", "pushes and saves"] and
	all(r["pulls"] >= 70 and 0 < r["p50_ns"] <= r["p99_ns"] <= r["max_ns"] for r in j["results"]) and
	positive(j, "pushes_all", "saves_all") and j["results"][0]["partitions_saved"] == j["results"][1]["partitions_saved"] == 0
	and j["results"][0]["p99_ratio"] == 1 and j["results"][0]["pushes"] == j["results"][2]["pushes"] == 0' &&
	[ -z "$(ls "$dir/saved")" ]
ok "ps --beside: small pulls beside pushes and saves, whose files are removed" $?

refuses() { # text, arguments...
	text=$1
	shift
	bounded "$farcall" perf "$@"
	[ $rc -eq 2 ] && says "$text" && [ ! -s "$dir/out" ]
	ok "perf $*: refused" $?
}
bounded "$farcall" perf sim
[ $rc -eq 2 ] && has err '^usage: farcall perf sim FIGURE'
ok "perf sim alone" $?
refuses "did you mean 'incast'" sim incats
refuses "give goodput, incast, mix or sessions" sim xyzzy
refuses "arguments are not expected" sim goodput 5
refuses "--loss: 200000 of a million is more than a tenth" sim goodput --loss 200000
refuses "--loss" sim goodput --loss x
refuses "--mtu: 100 is out of range" sim goodput --mtu 100
refuses "--ghz: 0 is out of range" sim incast --ghz 0
refuses "--priorities: 9 is out of range" sim incast --priorities 1,9
refuses "--workers" sim mix --workers 1
refuses "--mix" sim mix --mix W6
refuses "--load: 100 is out of range" sim mix --load 100
refuses "--sessions: 32769 is out of range" sim sessions --sessions 32769
refuses "--mtu" sim sessions --mtu 1500
refuses "--loss" sim incast --loss 1
refuses "ever larger numbers" memory --calls 50000,50000
refuses "ever larger numbers" memory --calls 10
refuses "--workload: \"sparse\"" ps --workload sparse
refuses "leave --workload dense out" ps --workload dense --rate 10
refuses "one number of --owners" ps --workload dense --owners 1,2
refuses "is in memory 3 times" ps --workload dense --memory "$(awk '/^MemAvailable/ { print int($2 * 2 / 5) "K" }' /proc/meminfo)"
refuses "--owners: 17 is out of range" ps --owners 1,17
refuses "--rows: 0 is out of range" ps --rows 0
refuses "leave --workload step out" ps --workload step --rate 10
refuses "give more than --limit" ps --stop 10ms --limit 10ms
refuses "leave --rate out" ps --stop 1 --rate 10
refuses "leave --beside out" ps --stop 1 --beside
finish

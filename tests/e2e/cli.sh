#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The command line: help and version everywhere, and JSON that machines can read.
# usage: cli.sh FARCALL
set -u
farcall=$1
. "$(dirname "$0")/cases.sh"

for command in '' run key claim health info decode perf 'perf latency' 'perf rate' 'perf fanout' 'perf idle' 'perf floor' pserver sim tables train; do
	for flag in --help -h; do
		# shellcheck disable=SC2086 # words of a command
		bounded "$farcall" $command $flag
		[ $rc -eq 0 ] && has out "^usage: farcall${command:+ $command} " && [ ! -s "$dir/err" ]
		ok "farcall $command $flag" $?
	done
	! grep -v '^usage: ' "$dir/out" | grep -q '.\{81\}'
	ok "farcall $command --help fits 80 columns" $?
	# shellcheck disable=SC2086
	bounded "$farcall" $command --version
	[ $rc -eq 0 ] && has out '^farcall [0-9]*\.[0-9]*\.[0-9]*$' && [ "$(lines_of_out)" -eq 1 ] && [ ! -s "$dir/err" ]
	ok "farcall $command --version" $?
done

bounded "$farcall" help
[ $rc -eq 0 ] && has out '^usage: farcall '
ok "farcall help" $?

bounded "$farcall"
[ $rc -eq 2 ] && has err '^usage: farcall ' && [ ! -s "$dir/out" ]
ok "no command: usage on stderr, status 2" $?

bounded "$farcall" info
[ $rc -eq 0 ] && has out '^ *shm  *available$' && has out '^ *auto  *shm$' && has out '^  shm /.*\.sock$' && [ ! -s "$dir/err" ]
ok "farcall info" $?

bounded "$farcall" info --json
[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] &&
	json 'j["auto"] == "shm" and j["drivers"][0]["name"] == "shm" and j["drivers"][0]["available"] is True and
		j["ports"][0]["driver"] == "shm" and j["ports"][0]["address"].startswith("shm /") and
		positive(j, "cores", "cores_usable", "memory_max") and j["allocator_why"] and
		(j["allocator"] == "page runs" or j["allocator"].startswith("jemalloc ")) and j["runtime_dir"] and j["version"]'
ok "farcall info --json" $?

bounded env FAR_NIC=shm,carrier-pigeon "$farcall" info --json
[ $rc -eq 0 ] && json '"carrier-pigeon" in j["ports_error"] and "ports" not in j and j["auto"] == ""'
ok "farcall info --json: a FAR_NIC that cannot be" $?

bounded "$farcall" info --nic shm --security none --json
[ $rc -eq 0 ] && json '[p["driver"] for p in j["ports"]] == ["shm"]'
ok "farcall info --nic" $?

# What each launcher sets, for rank 1 of 3, and what is found. Of PMIx and Kubernetes the rank is all.
launched() { # name, address, port, variables...
	name=$1 addr=$2 port=$3
	shift 3
	bounded env "$@" "$farcall" info --json
	[ $rc -eq 0 ] && json "j['launcher'] == '$name' and j['rank'] == '1' and j['world_size'] == '3' and
		j['master_addr'] == '$addr' and j['master_port'] == '$port'"
	ok "farcall info: the launcher $name" $?
}
launched torchrun h 7 TORCHELASTIC_RUN_ID=x RANK=1 WORLD_SIZE=3 MASTER_ADDR=h MASTER_PORT=7
launched torchrun h 8 TORCHELASTIC_RUN_ID=x RANK=1 WORLD_SIZE=3 MASTER_ADDR=h MASTER_PORT=7 TORCHELASTIC_USE_AGENT_STORE=True
launched Slurm n01 29500 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=3 'SLURM_STEP_NODELIST=n[01-04]'
launched 'Open MPI' 127.0.0.1 29500 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_SIZE=3 PMIX_RANK=2
launched Paddle h 8 PADDLE_TRAINER_ID=1 PADDLE_TRAINERS_NUM=3 PADDLE_MASTER=h:8
launched PMIx h 29500 PMIX_RANK=1 WORLD_SIZE=3 MASTER_ADDR=h
launched Kubernetes h 29500 JOB_COMPLETION_INDEX=1 WORLD_SIZE=3 MASTER_ADDR=h

# The port of `farcall run` is the group's own, under torchrun too.
# shellcheck disable=SC2016 # the inner shell's
bounded env TORCHELASTIC_USE_AGENT_STORE=True "$farcall" run -n 1 -- sh -c '
	"$0" info --json 2>/dev/null | tr , "\n" | grep -q "\"master_port\": *\"$MASTER_PORT\""' "$farcall"
ok "farcall run beside the store of torchrun" $rc

# Two workers as mpirun starts them.
port=$(ports 1)
ompi() { # rank
	env OMPI_COMM_WORLD_RANK="$1" OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 MASTER_PORT="$port" \
		timeout -k 3 "$guard_s" "$farcall" train --servers 1 --workers 1 --rows 2000 --test-rows 1000 --epochs 2 --json
}
ompi 1 >/dev/null 2>&1 &
rc=0
ompi 0 >"$dir/out" 2>"$dir/err" </dev/null || rc=$?
wait $! || rc=$?
[ $rc -eq 0 ] && json '0.5 < j["test_auc"] <= 1'
ok "farcall train in the environment of Open MPI" $?

# The same rows in each format: a label that a number decides, and one that a word does.
awk -v dir="$dir" 'BEGIN {
	for (i = 0; i < 200; i++) {
		x = (i * 7919) % 100 / 100
		word = i % 3 ? "red" : "blue"
		label = (x > 0.5) != (word == "blue" && x > 0.2 && x < 0.4)
		print label " 1:" x " " (i % 3 ? "70000:1" : "80000:1") > dir "/rows"
		print label "," x "," word > dir "/rows.csv"
		line = label "\t" int(100 * x)
		for (f = 2; f <= 13; f++) line = line "\t"
		line = line "\t" (i % 3 ? "ed" : "b1")
		for (f = 2; f <= 26; f++) line = line "\t"
		print line > dir "/rows.tsv"
	}
}'
for file in rows rows.csv rows.tsv; do
	bounded "$farcall" train --data "$dir/$file" --test "$dir/$file" --servers 1 --workers 1 --mode bsp --epochs 20 --json
	[ $rc -eq 0 ] && json 'j["test_auc"] > 0.9 and j["test_logloss"] < 0.6'
	ok "farcall train: $file, by its name" $?
done
bounded "$farcall" train --data "$dir/rows.csv" --test "$dir/rows.csv" --format libsvm
[ $rc -ne 0 ] && says "$dir/rows.csv:1: label"
ok "farcall train --format: not by its name" $?

# An open loop: of a rate that is kept, and of one that cannot be, where the batches count from when they should begin.
job="train --servers 1 --workers 1 --rows 2000 --test-rows 1000 --epochs 2 --json"
# shellcheck disable=SC2086 # words of a command line
bounded "$farcall" $job --rate 100
[ $rc -eq 0 ] && json 'j["seconds"] >= 39 / 100 and j["settings"]["rate"] == 100 and j["batch_p50_ns"] > 0'
ok "farcall train --rate: batches begin at fixed times" $?
# The p99 of 40 batches is the longest one: the last, which should have begun with the job. The job itself may wait for a
# core before its first batch and after its last one, for longer than the batches take.
for _ in 1 2 3 4 5; do
	# shellcheck disable=SC2086 # words of a command line
	bounded "$farcall" $job --rate 10000000
	[ $rc -eq 0 ] && json 'j["seconds"] * 1e9 / 2 < j["batch_p99_ns"] <= j["seconds"] * 1.1e9' && break
done
ok "farcall train --rate: their times count from when they should have begun" $?

bounded "$farcall" info --nic foo
[ $rc -eq 1 ] && has err '^farcall info: --nic "foo": .*foo' && has out '^ *chosen  *nothing'
ok "farcall info --nic: a driver that does not exist" $?

whole_names() {
	for word in $(sed -n 's/.*built in are: //p' "$dir/err" | tr , ' '); do
		[ "$word" = ... ] || grep -q "^ *$word " "$dir/list" || return 1
	done
}
"$farcall" sim --list >"$dir/list"
bounded "$farcall" sim -s nosuch
[ $rc -eq 2 ] && says "there is no scenario 'nosuch'" && whole_names
ok "farcall sim: the names in its error are whole" $?

rm -f "$dir/trace.fail"
"$farcall" sim -s echo --from 1 --seeds 1 --trace --failures "$dir/trace.fail" 2>"$dir/err" | head -n 1 >"$dir/out"
rc=0
[ "$(lines_of_out)" -eq 1 ] && [ ! -e "$dir/trace.fail" ]
ok "farcall sim --trace: a reader that leaves is no failure" $?

# Against the lines of the same capture: packets, retransmissions, and each request once, however often it was sent.
pcap=$(dirname "$0")/../protocol/recorded.pcap
"$farcall" decode "$pcap" >"$dir/lines" 2>/dev/null
bounded "$farcall" decode --summary "$pcap"
[ $rc -eq 0 ] && python3 - "$dir/lines" "$dir/out" <<'END'
import re, sys
packets, again, requests = {}, {}, {}
for line in open(sys.argv[1]):
    kind, frm, to = re.search(r" kind=(\w+)", line), *line.split(" ")[2:5:2]
    if not kind or kind[1] not in ("MESSAGE", "ACK") or "bad=crc" in line or "bad=head" in line:
        continue
    ends = frozenset((frm, to))
    packets[ends] = packets.get(ends, 0) + 1
    again[ends] = again.get(ends, 0) + (kind[1] == "MESSAGE" and "RETRANSMIT" in re.search(r" flags=(\S+)", line)[1])
    for slot in re.findall(r"type=REQUEST flags=\S+ handler=\d+ slot=(\d+ generation=\d+)", line):
        requests.setdefault(ends, set()).add((frm, slot))
seen = {}
for line in open(sys.argv[2]):
    head = re.match(r"(\S+) - (\S+): (\d+) packets, \d+ bytes, (\d+) retransmitted", line)
    row = re.match(r"  \S.{18} +(\d+) +(\d+) +(\d+) +(\d+)", line)
    if head:
        ends = frozenset(head.groups()[:2])
        seen[ends] = 0
        assert (int(head[3]), int(head[4])) == (packets[ends], again[ends]), (line, packets[ends], again[ends])
    elif row:
        seen[ends] += int(row[1])
        assert int(row[3]) <= int(row[2]) <= int(row[1]), line
assert seen and seen.keys() == packets.keys()
assert all(0 < seen[e] <= len(requests[e]) for e in seen if e in requests), (seen, {e: len(r) for e, r in requests.items()})
assert any(seen[e] == len(requests[e]) for e in requests)
END
ok "farcall decode --summary: agrees with the packets" $?

bounded env FAR_MEMORY_MAX=64M "$farcall" info
[ $rc -eq 0 ] && has out '^memory  *up to 64 MiB' && has out '^allocator  *[pj]'
ok "farcall info: FAR_MEMORY_MAX" $?

bounded env MALLOC_CONF=stats_print:true,nonsense:1 "$farcall" info
[ $rc -eq 0 ] && [ ! -s "$dir/err" ] && ! has out jemalloc.*stat
ok "farcall info: MALLOC_CONF means an application's own jemalloc" $?

bounded env FAR_MEMORY_MAX=64X "$farcall" info
[ $rc -eq 0 ] && has out '^memory  *none: FAR_MEMORY_MAX is "64X"; give bytes'
ok "farcall info: a FAR_MEMORY_MAX that cannot be read" $?

bounded env XDG_RUNTIME_DIR="$dir/xdg" "$farcall" info --json
[ $rc -eq 0 ] && json 'j["runtime_dir"].endswith("/xdg/farcall") and j["runtime_dir_from"] == "XDG_RUNTIME_DIR"'
ok "farcall info --json: where XDG_RUNTIME_DIR leads" $?

# Short runs: that the figures are there, not what they are. On a machine with much else to do, all calls of a short run
# may be answered behind its end: rates may be 0.
figures='positive(j, "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns", "seconds") and j["calls_per_s"] >= 0 and
	j["bytes_per_s"] >= 0'
for api in message rpc; do
	for via in direct thread; do
		bounded "$farcall" perf latency --api $api --via $via --seconds 0.2 --json
		[ $rc -eq 0 ] && json "$figures and j['api'] == '$api' and j['via'] == '$via' and j['nic'] == 'shm'"
		ok "farcall perf latency --api $api --via $via --json" $?
	done
	bounded "$farcall" perf rate --api $api --seconds 1 --inflight 16 --json
	[ $rc -eq 0 ] && json "$figures and j['inflight'] == 16 and j['api'] == '$api'"
	ok "farcall perf rate --api $api --json" $?
	bounded "$farcall" perf latency --api $api --bytes 1M --seconds 0.2 --json
	[ $rc -eq 0 ] && json "$figures and j['bytes'] == 1 << 20"
	ok "farcall perf latency --api $api --bytes 1M --json" $?
done

# A floor that something else disturbs is no floor, and is refused with status 1: tried again.
measured() {
	for _ in 1 2 3 4 5; do
		bounded "$farcall" "$@"
		says 'something else is running' || return
		sleep 1
	done
}
measured perf latency --floor --seconds 0.2 --json
[ $rc -eq 0 ] && json "$figures and positive(j, 'floor_ring_rtt_ns', 'ratio_median')"
ok "farcall perf latency --floor --json" $?

measured perf rate --floor --seconds 0.2 --json
[ $rc -eq 0 ] && json "$figures and positive(j, 'floor_ring_calls_per_s') and j['ratio_median'] >= 0"
ok "farcall perf rate --floor --json" $?

bounded "$farcall" perf fanout --seconds 0.3 --servers 2 --json
[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] &&
	json '[t["targets"] for t in j["targets"]] == [1, 8, 64] and j["servers"] == 2 and
		all(t["p50_ns"] > 0 and t["separate_p50_ns"] > 0 and t["ratio"] > 0 for t in j["targets"])'
ok "farcall perf fanout --servers 2 --json" $?
bounded "$farcall" perf fanout --seconds 0.1 --targets 3
[ $rc -eq 0 ] && has out 'ratio'
ok "farcall perf fanout: text" $?

# Status 75: figures are printed, but fewer than three rounds were undisturbed.
floor_figures='positive(j, "cacheline_rtt_ns", "ring_rtt_ns", "ring_calls_per_s", "memcpy_bytes_per_s",
	"copy1_bytes_per_s", "wake_p50_ns") and 0 <= j["quiet_rounds"] <= j["rounds"] and 0 <= j["noise"] <= 1 and
	0 <= j["lost_fraction"] <= 1 and 0 <= j["stolen_fraction"] <= 1 and j["involuntary_switches"] >= 0'
measured perf floor --seconds 0.2 --json
{ [ $rc -eq 0 ] && json "$floor_figures and j['quiet_rounds'] >= 3"; } ||
	{ [ $rc -eq 75 ] && says 'something else is running' && json "$floor_figures and j['quiet_rounds'] < 3"; }
ok "farcall perf floor --json" $?

idle='all(positive(w, "first_call_p50_ns", "rss_bytes", "threads") and
	w["noise"] >= 0 and w["cpu_fraction"] >= 0 and w["wakeups_per_s"] >= 0 and w["ctl_wakeups_per_s"] >= 0 for w in j["workers"])'
bounded "$farcall" perf idle --seconds 0.3 --json
[ $rc -eq 0 ] && json "len(j['workers']) == 2 and $idle"
ok "farcall perf idle --json" $?

bounded "$farcall" run -n 3 -- "$farcall" perf idle --seconds 0.3 --json
[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] && json "len(j['workers']) == 3 and $idle"
ok "farcall run -n 3 -- farcall perf idle --json: one object, from rank 0" $?

bounded sh -c '"$1" run -n 2 -- sh -c "echo hi >&2" 2>&-' sh "$farcall"
[ $rc -eq 0 ]
ok "farcall run with a closed stderr ends" $?

bounded sh -c '"$1" run -n 2 -- sh -c "exit 0" >&- 2>&- <&-' sh "$farcall"
[ $rc -eq 0 ]
ok "farcall run with all standard streams closed ends" $?

bounded sh -c '"$1" info >/dev/full' sh "$farcall"
[ $rc -eq 1 ] && says "cannot write to standard output"
ok "farcall info on a full device says so" $?

bounded "$farcall" perf latency --seconds 0.2
[ $rc -eq 0 ] && [ -s "$dir/out" ]
ok "farcall perf latency: text" $?

finish

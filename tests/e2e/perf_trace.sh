#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# `farcall perf trace` with planted outliers, `farcall perf rate --rate`, perf/plots.sh, perf/micro.sh, the stages of
# perf/instructions.sh: what they find, not how long it takes.
# usage: perf_trace.sh FARCALL SOURCE-ROOT
set -u
farcall=$1
root=$2
. "$(dirname "$0")/perf_cases.sh"

# ---- trace ----

causes='["stopped", "context switch", "handler", "steal", "page faults", "interrupts", "unexplained"]'
whole="[c['cause'] for c in j['causes']] == $causes and j['outliers'] == sum(c['outliers'] for c in j['causes']) and
	len(j['longest']) == min(64, j['outliers']) and j['calls'] > 0 and
	[x['ns'] for x in j['longest']] == sorted((x['ns'] for x in j['longest']), reverse=True) and
	0 < j['p50_ns'] <= j['p99_ns'] <= j['p999_ns'] <= j['max_ns']"

# The planted ones are those of 20 ms. The handler is the cause of one, unless others had the server's CPU in all.
# On a loaded machine there may be too few calls for the noise of their medians: then a longer measurement.
for seconds in 2 4 8; do
	bounded "$farcall" perf trace --spin 20ms --seconds $seconds --json
	[ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] && json "$whole and j['limit_ns'] == 20000 and j['noise'] >= 0 and
		any(x['handler_ns'] >= 20000000 for x in j['longest']) and
		(any(x['cause'] == 'handler' and x['evidence'].startswith('the handler ran for ') for x in j['longest']) or
		 all(x['evidence'].startswith(('server ', 'caller ')) for x in j['longest'] if x['handler_ns'] >= 20000000))" &&
		break
done
ok "trace --spin: the handler" $?

# The server is the only child. It is stopped and goes on, several times: some of that is in a round trip, not between.
serves() { server=$(pgrep -P $pid) && [ "$(ps -o state= -p "$server")" = R ]; }
stopped() { # times, seconds
	eventually serves
	sleep 0.5
	for _ in $(seq "$1"); do
		kill -STOP "$server" || break
		sleep "$2"
		kill -CONT "$server"
		sleep 0.1
	done 2>/dev/null
}
# On a loaded machine the caller may wait for its CPU for most of such a time: then the server is stopped for longer.
if in_full; then
	for stop in 0.25 1 2 2; do
		"$farcall" perf trace --seconds $(echo $stop | awk '{ print 2 + 8 * $1 }') --json >"$dir/stopped" 2>"$dir/err" </dev/null &
		pid=$!
		stopped 8 $stop
		rc=0
		wait $pid || rc=$?
		cp "$dir/stopped" "$dir/out"
		[ $rc -eq 0 ] && json "$whole and any(x['cause'] == 'stopped' and x['ns'] > 20000000 and
			x['evidence'].startswith('server did not run') for x in j['longest'])" && break
	done
	ok "trace, the server was stopped: stopped" $?
fi

# Other threads on the server's CPU, the second one of this process: more of them where others compete with the caller.
cpu=$(python3 -c 'import os; c = sorted(os.sched_getaffinity(0)); print(c[1] if len(c) > 1 else c[0])')
if in_full; then
	for rivals in 1 2 4 8; do
		spinning=
		for _ in $(seq $rivals); do
			timeout 9 taskset -c "$cpu" sh -c 'while :; do :; done' &
			spinning="$spinning $!"
		done
		bounded "$farcall" perf trace --seconds 2 --json
		# shellcheck disable=SC2086 # words
		kill $spinning 2>/dev/null
		[ $rc -eq 0 ] && json "$whole and any(x['cause'] == 'context switch' and x['evidence'].startswith('server ready for ')
			for x in j['longest'])" && break
	done
	ok "trace, a rival on the server's CPU: context switch" $?
fi

bounded "$farcall" perf trace --limit 60m --seconds 0.2
[ $rc -eq 0 ] && has out '^0 round trips above ' && ! has out '^the longest'
ok "trace --limit: text without outliers" $?
refuses "no limit" "--limit: 0 is out of range" trace --limit 0
refuses "a limit that is no time" '"soon" is not a time' trace --limit soon
refuses "a spin of trace elsewhere" "unknown option --spin" latency --spin 1ms
refuses "trace with another's process" "unknown option --connect" trace --connect 127.0.0.1:7

# ---- rate --rate ----

bounded "$farcall" perf rate --rate 10,2000 --seconds 0.3 --json
[ $rc -eq 0 ] && json '[(r["rate"], r["due"]) for r in j["results"]] == [(10, 3), (2000, 600)] and
	j["measurement"] == "load" and all(0 < r["p50_ns"] <= r["p99_ns"] <= r["max_ns"] and
		r["calls"] <= r["due"] and r["unsent"] <= r["due"] for r in j["results"])'
ok "rate --rate: each rate, with the calls that were due" $?
# More than can be sent: calls that were not sent count as late as they are.
bounded "$farcall" perf rate --rate 100000000 --seconds 0.2 --json
[ $rc -eq 0 ] && json 'j["results"][0]["unsent"] > 0 and j["results"][0]["p99_ns"] > 50000000'
ok "rate --rate: saturated, times from when a call should begin" $?
# While the server is stopped more calls fall due than can be in flight; all count from when they should have begun.
if in_full; then
	for stop in 0.8 2 4; do
		"$farcall" perf rate --rate 10000 --seconds $(echo $stop | awk '{ print 2.5 * $1 }') --json >"$dir/stopped" 2>"$dir/err" </dev/null &
		pid=$!
		stopped 1 $stop
		rc=0
		wait $pid || rc=$?
		cp "$dir/stopped" "$dir/out"
		[ $rc -eq 0 ] && json 'j["results"][0]["p90_ns"] > 200000000' && break
	done
	ok "rate --rate, the server was stopped: calls that could not be sent count, too" $?
fi
refuses "a rate of a hand-over" "leave --via thread out" rate --rate 5 --via thread
refuses "a rate of shards" "leave --shards out" rate --rate 5 --shards 2
refuses "a rate beside a floor" "leave --floor out" rate --rate 5 --floor
refuses "a rate of 0" "--rate: 0 is out of range" rate --rate 5,0
refuses "a rate of calls to oneself" "leave --to self out" latency --rate 5 --to self
refuses "a rate of buffers" "leave --release out" bandwidth --rate 5 --release

# ---- latency --rate, bandwidth --rate ----

bounded "$farcall" perf latency --rate 100,100000000 --seconds 0.2 --json
[ $rc -eq 0 ] && json 'j["api"] == "echo" and [r["due"] for r in j["results"]] == [20, 20000000] and
	j["results"][1]["unsent"] > 0 and j["results"][1]["p50_ns"] > 50000000'
ok "latency --rate: the calls that were due, times from when they should begin" $?
if in_full; then
	bounded "$farcall" perf bandwidth --rate 50,1000000 --bytes 4K,1M --depth 1,4 --seconds 0.1 --json
	[ $rc -eq 0 ] && json '[(r["bytes"], r["depth"], r["rate"], r["due"]) for r in j["results"]] ==
		[(b, d, r, r // 10) for b in (4096, 1 << 20) for d in (1, 4) for r in (50, 1000000)] and
		all(abs(r["bytes_per_s"] - r["calls_per_s"] * r["bytes"]) <= r["bytes_per_s"] / 1000 for r in j["results"]) and
		j["results"][5]["unsent"] > 0'
	ok "bandwidth --rate: each size, depth and rate" $?
fi

# ---- tables and plots ----

bounded "$farcall" perf bandwidth --bytes 64,4K --depth 1,2 --seconds 0.1 --csv
[ $rc -eq 0 ] && python3 - "$dir/out" <<'END'
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1], newline="")))
assert [(r["bytes"], r["depth"]) for r in rows] == [("64", "1"), ("64", "2"), ("4096", "1"), ("4096", "2")], rows
assert all(r["measurement"] == "bandwidth" and r["nic"] == "shm" and float(r["bytes_per_s"]) > 0 for r in rows)
assert all(0 <= float(r["noise"] or 0) for r in rows)  # none where a round answered no call
END
ok "bandwidth --csv: a row for each size and depth" $?
bounded "$farcall" perf latency --peers 1,3 --seconds 0.1 --csv
[ $rc -eq 0 ] && python3 - "$dir/out" <<'END'
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1], newline="")))
assert [r["peers"] for r in rows] == ["1", "3"] and all(int(r["calls"]) > 0 and float(r["p50_ns"]) > 0 for r in rows)
assert rows[1]["attached_agents"] == "2" and rows[0]["attached_agents"] == ""
END
ok "latency --peers N,N --csv: a row for each number" $?
refuses "numbers of peers without a table" "give --csv or --plot" latency --peers 1,2
refuses "two forms on one stdout" "leave one of them out" latency --csv --json
refuses "a plot of one load" "give --rate" rate --plot "$dir/x.svg"
refuses "a plot of one number of peers" "give --peers" latency --plot "$dir/x.svg"
refuses "a plot of several sizes against load" "--bytes and to --depth" bandwidth --rate 5 --bytes 4K,1M --plot "$dir/x.svg"
if command -v gnuplot >/dev/null; then
	refuses "a plot that cannot be written" "cannot be written" bandwidth --plot "$dir/none/x.svg"
	bounded timeout -s INT 1 "$farcall" perf bandwidth --seconds 30 --plot "$dir/x.svg"
	[ $rc -ne 0 ] && [ ! -e "$dir/x.svg" ]
	ok "a measurement that was interrupted leaves no picture" $?
fi
# A measurement of more than 2 s prints its seconds on a terminal, and nothing of it elsewhere.
if command -v script >/dev/null; then
	bounded script -qec "'$farcall' perf latency --seconds 2.5" /dev/null
	[ $rc -eq 0 ] && has out 'farcall perf latency: 2 s of 2 s'
	ok "progress on a terminal" $?
fi
if in_full && command -v script >/dev/null; then
	bounded script -qec "'$farcall' perf bandwidth --bytes 64K --depth 1,2,3 --seconds 0.9" /dev/null
	[ $rc -eq 0 ] && has out 'farcall perf bandwidth: 2 s' && ! has out ' s of '
	ok "progress of several rows" $?
fi
bounded "$farcall" perf latency --seconds 2.5
[ $rc -eq 0 ] && ! has err ' s of ' && has out 'noise [0-9.]* %'
ok "no progress elsewhere; the noise of the figure" $?

bounded sh "$root/perf/plots.sh" --frobnicate
[ $rc -eq 2 ] && says "unknown option --frobnicate"
ok "plots.sh refuses an unknown option" $?
bounded sh "$root/perf/plots.sh" --peers 1,,2 "$farcall" "$dir/plots"
[ $rc -eq 2 ] && says 'is not a list of numbers'
ok "plots.sh refuses what is no list" $?
if ! in_full; then
	: # seven seconds of measurements
elif command -v gnuplot >/dev/null; then
	bounded sh "$root/perf/plots.sh" --seconds 0.1 --peers 1,4 "$farcall" "$dir/plots"
	svg() { python3 -c 'import sys, xml.dom.minidom as m
assert m.parse(sys.argv[1]).documentElement.tagName == "svg" and sys.argv[2] in open(sys.argv[1]).read()' "$dir/plots/$1.svg" "$2"; }
	points() { [ "$(grep -c '^[0-9a-z].*,.*[0-9]' "$dir/plots/$1.csv")" -eq "$(($2 + 1))" ]; }
	[ $rc -eq 0 ] && svg load 'open loop' && points load 11 && svg bandwidth 'in flight' && points bandwidth 20 &&
		svg peers 'attached peers' && points peers 2
	ok "plots.sh draws the three sweeps" $?
else
	skip_data "plots.sh draws" "no gnuplot"
fi

# ---- micro ----

bounded sh "$root/perf/micro.sh" --frobnicate
[ $rc -eq 2 ] && says "unknown option --frobnicate"
ok "micro.sh refuses an unknown option" $?
bounded sh "$root/perf/micro.sh" "$dir"
[ $rc -eq 1 ] && says "perf/step is not there"
ok "micro.sh refuses what is no build" $?
if ! in_full; then
	: # perf/instructions.sh sees a function without a stage
elif command -v valgrind >/dev/null; then
	bounded sh "$root/perf/micro.sh" "$(dirname "$farcall")"
	[ $rc -eq 0 ] && has out '^CRC32C, 4 KiB  *[1-9]' && has out '^receive  *[1-9]' && has out '^sum  *[1-9]' &&
		! has out '^unassigned'
	ok "micro.sh: structures and stages, none without a stage" $?
else
	skip_data "micro.sh" "no valgrind"
fi

# ---- stages: the functions of a build, without valgrind ----

cat >"$dir/stages.py" <<'END'
import sys
sys.path.insert(0, sys.argv[1] + "/perf")
sys.dont_write_bytecode = True
import stages

class Program(stages.Program):
    def __init__(self):
        self.rules, self.known = self.read_rules(), {}

program = Program()
assert program.stage(("call_on_answer", "engine/core/call.c")) == "completion"  # by name, before its file
assert program.stage(("new_function", "engine/core/call.c")) == "call"
assert program.stage(("new_function", "engine/nowhere/new.c")) is None
try:
    stages.fail_unassigned([("new_function", "engine/nowhere/new.c")])
    sys.exit("passed a function without a stage")
except SystemExit as e:
    assert "new_function() of engine/nowhere/new.c" in str(e), e
same, more, gone = "| call | 100 | 5 |", "| call | 108 | 5 |", "| call | 109 | 5 |"
assert not stages.differs(same, more) and stages.differs(same, gone) and stages.differs(gone, same)

tables = "".join(stages.BEGIN % n + "\n| a | b | c | d |\n|---|---|---|---|\n| %s | f | x | 10 |\n" % n + stages.END % n + "\n"
                 for n in ("budget", "path"))
def readme(text, measured, mode="--check"):
    for name, content in (("README", text), ("tables", measured)):
        with open(sys.argv[2] + "/" + name, "w") as f:
            f.write(content)
    try:
        stages.readme(mode, sys.argv[2] + "/README", sys.argv[2] + "/tables")
    except SystemExit as e:
        return str(e)
    return ""
assert readme(tables, tables) == ""
assert "in the table: | path | f | x | 10 |" in readme(tables, tables.replace("| path | f | x | 10 |", "| path | f | x | 30 |"))
assert "not on the path" in readme(tables, tables.replace("| path | f | x | 10 |\n", ""))
assert "not in the table" in readme(tables, tables.replace("| budget | f | x | 10 |", "| budget | f | x | 10 |\n| new | f | x | 1 |"))
assert "has no lines" in readme("nothing", tables)
readme("x\n" + tables.replace("10", "20") + "y\n", tables, "--write")
assert open(sys.argv[2] + "/README").read() == "x\n" + tables + "y\n"

# Two sides, a shared line at two addresses, the stack of both in one thread.
class Traced:
    symbol = {"alone": 0x1000, "serve": 0x2000, "pass_round": 0x3000}
    def function(self, at):
        names = {1: ("alone", "perf/step.c"), 2: ("serve", "perf/step.c"), 3: ("pass_round", "perf/step.c"),
                 4: ("send", "engine/send.c"), 5: ("receive", "engine/receive.c"), 6: ("measured", "perf/step.c")}
        return names.get(at >> 12)
one = """I  00001000,4
 S 10000000,8
I  00004000,4
 S 20000040,8
 L 50000000,4
I  00003000,4
I  00002000,4
I  00005000,4
 L 30000044,4
I  00009000,4
 M 50000040,4
I  00003004,4
I  00006000,4
"""
with open(sys.argv[2] + "/trace", "w") as f:
    f.write(one * 3 + "map 20000000-20001000 rw-s 00000000 00:01 7 x\nmap 30000000-30001000 rw-s 00000000 00:01 7 x\n")
calls = stages.calls_of(Traced(), sys.argv[2] + "/trace", "alone")
rows = stages.medians(calls, lambda: lambda side, f: (side, f[0]))
assert ([("caller", "send"), 1, 1, 1, 1, 2]) in rows, rows
assert ([("callee", "receive"), 2, 2, 1, 1, 2]) in rows, rows  # a library's instruction is its caller's
END
bounded python3 "$dir/stages.py" "$root" "$dir"
ok "stages.py: stages, tables, traces" $rc

finish

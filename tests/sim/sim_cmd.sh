#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The command `farcall sim`: what it takes, says and returns.
# usage: sim_cmd.sh FARCALL
set -u
farcall=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") # the cases have a directory of their own
. "$(dirname "$0")/../e2e/cases.sh"
cd "$dir" || exit 1

bounded "$farcall" sim --list
[ $rc -eq 0 ] && grep -q '^loss-without-death ' "$dir/out" && grep -q '^ten-seconds ' "$dir/out"
ok "the scenarios are listed" $?

bounded "$farcall" sim --help
[ $rc -eq 0 ] && grep -q -- '--seeds' "$dir/out" && ! grep -q mutant "$dir/out"
ok "help" $?

bounded "$farcall" sim --scenario pair-loss --seeds 3 --from 5 --jobs 2
[ $rc -eq 0 ] && grep -q '^3 of 3 runs done, 0 failed: 1 scenario, seeds 5 to 7' "$dir/out" && [ ! -s "$dir/err" ] &&
	[ ! -e farcall-sim-failures.txt ]
ok "runs that pass: a summary, no file, nothing on stderr" $?

bounded "$farcall" sim --scenario pair-loss --seeds 2 --hashes
cp "$dir/out" "$dir/first"
bounded "$farcall" sim --scenario pair-loss --seeds 2 --hashes --jobs 1
[ $rc -eq 0 ] && grep '^pair-loss' "$dir/first" | sort >"$dir/a" && grep '^pair-loss' "$dir/out" | sort >"$dir/b" &&
	cmp "$dir/a" "$dir/b" && [ "$(cut -d' ' -f3 "$dir/a" | sort -u | wc -l)" -eq 2 ]
ok "the same seed has the same packets, another one others" $?

bounded "$farcall" sim --scenario pair-loss --seeds 1 --trace
[ $rc -eq 0 ] && [ "$(wc -l <"$dir/out")" -gt 100 ]
ok "a trace" $?

# A trap is one only if its packets are lost: as many as the disturbance says.
for trap in lost-grant lost-credit; do
	bounded "$farcall" sim --scenario $trap --seeds 1 --trace
	[ $rc -eq 0 ] && [ "$(grep -c ' dropped .*loss' "$dir/out")" -eq 12 ]
	ok "$trap: twelve packets are lost" $?
done

# A checker that cannot be content: each packet is lost now and then, and none may be sent again.
mkdir -p workloads disturbances checkers
printf 'mix echo 1\ncalls 200\n' >workloads/w.txt
printf 'loss 20%%\n' >disturbances/d.txt
printf 'check resends\nresends 0\n' >checkers/c.txt
printf 'about mine\nworkload w\ndisturbance d\ncheckers c\nworkers 2\n' >mine.txt
bounded "$farcall" sim --scenario ./mine.txt --seeds 2
[ $rc -eq 1 ] && grep -q '^FAIL ./mine.txt, seed 1: resends: ' "$dir/out" &&
	grep -q "repeat: farcall sim --scenario './mine.txt' --from 2 --seeds 1\$" "$dir/out" &&
	grep -q '^2 of 2 runs done, 2 failed' "$dir/out" && grep -q 'farcall-sim-failures.txt' "$dir/out" &&
	grep -q '^FAIL ./mine.txt, seed 2: ' farcall-sim-failures.txt
ok "failures are printed with the command that repeats them, and written" $?
rm -f farcall-sim-failures.txt

# The command of the message repeats the failure.
command=$(sed -n 's/^  repeat: farcall //p' "$dir/out" | head -n 1)
bounded sh -c "\"$farcall\" $command"
[ $rc -eq 1 ] && grep -q '^FAIL ./mine.txt' "$dir/out"
ok "the command repeats it" $?

printf 'check once\n' >checkers/c.txt
bounded "$farcall" sim --scenario ./mine.txt --seeds 1
[ $rc -eq 0 ]
ok "another checker is content" $?

refuses() {
	name=$1
	text=$2
	shift 2
	bounded "$@"
	[ $rc -eq 2 ] && says "$text" && [ ! -s "$dir/out" ]
	ok "$name" $?
}
refuses "no such scenario" "there is no scenario 'nothing'; built in are: " "$farcall" sim --scenario nothing
refuses "no such file" "cannot read ./none.txt" "$farcall" sim --scenario ./none.txt
printf 'about mine\nworkload w\ndisturbance d\ncheckers c\nworkrs 2\n' >bad.txt
refuses "a word that is none" "bad.txt:5: 'workrs' is no word of a scenario; allowed are: about, workload" \
	"$farcall" sim --scenario bad.txt
refuses "a trace of many" "--trace prints one run" "$farcall" sim --trace --seeds 2 --scenario echo
refuses "a defect that is not there" "this program has no such defect" "$farcall" sim --mutant slot-leaked
refuses "no seeds" "from 1 to" "$farcall" sim --seeds 0
refuses "a report of no campaign" "--json belongs to a campaign" "$farcall" sim --json
refuses "a campaign with a trace" "leave out --trace" "$farcall" sim --campaign 1 --trace --scenario echo --seeds 1
refuses "an argument too many" "unexpected argument 'more'" "$farcall" sim more

# A campaign: as many runs of each scenario, and what an interrupted one has done is done once.
printf 'mix echo 1\nmix oneway 1\ncalls 60\npause 0us..10ms\n' >workloads/w.txt
printf 'loss 3%%\nduplicate 1%%\n' >disturbances/d.txt
printf 'check resends\nresends 2\n' >checkers/c.txt
printf 'about mine\nworkload w\ndisturbance d\ncheckers c\nworkers 2\n' >mine.txt
bounded "$farcall" sim --scenario ./mine.txt --campaign 100 --from 7 --state whole --json
whole=$rc
cp "$dir/out" "$dir/whole.json"
[ $rc -eq 1 ] && json 'j["requested"] == j["runs"] == 100 and j["scenarios"][0]["runs"] == 100 and
	j["faults"]["losses"] > 30 and j["faults"]["duplicates"] > 30 and j["faults"]["crashes"] == 0 and
	0 < j["failed"] == len(j["failures"]) < 100 and
	"--from %d --seeds 1" % j["failures"][0]["seed"] in j["failures"][0]["repeat"]'
ok "a campaign: totals, faults, failures with what repeats them" $?

# One that would take hours holds its state file until it is killed.
some_done() { [ "$(sed -n 's/^scenario 0 \([0-9]*\) .*/\1/p' "$state" 2>/dev/null || echo 0)" -gt 0 ]; }
state=held
"$farcall" sim --scenario ./mine.txt --campaign 10000000 --from 7 --state held --failures held-failures >"$dir/part" 2>&1 &
pid=$!
eventually some_done
bounded "$farcall" sim --scenario ./mine.txt --campaign 10000000 --from 7 --state held
[ $rc -eq 2 ] && says "the state file held is in use by another process"
ok "one process at a time has a state file" $?
kill -KILL $pid
wait $pid 2>/dev/null

state=parts
"$farcall" sim --scenario ./mine.txt --campaign 100 --from 7 --state parts --failures parts-failures >"$dir/part" 2>&1 &
pid=$!
eventually some_done
kill -KILL $pid
wait $pid 2>/dev/null
"$farcall" sim --scenario ./mine.txt --campaign 100 --from 7 --state parts --jobs 3 >"$dir/part" 2>&1 &
pid=$!
sleep 0.2
kill -INT $pid
wait $pid
bounded "$farcall" sim --scenario ./mine.txt --campaign 100 --from 7 --state parts --json --jobs 3
sed 's/"seconds":[0-9.]*,//' "$dir/whole.json" >"$dir/a"
sed 's/"seconds":[0-9.]*,//' "$dir/out" >"$dir/b"
[ $rc -eq $whole ] && cmp "$dir/a" "$dir/b"
ok "killed, interrupted and continued, it has the totals of one that ran through" $?

bounded "$farcall" sim --scenario ./mine.txt --campaign 100 --from 7 --state parts
[ $rc -eq 1 ] && grep -q '^100 of 100 runs done, .*; this process made 0 calls in 0\.0 s of virtual time' "$dir/out" && grep -q '^all  *100 ' "$dir/out" &&
	grep -q "repeat: farcall sim --scenario './mine.txt' --from " "$dir/out"
ok "of one that is done the report is printed again" $?

refuses "another campaign's state" "the state file parts is of a campaign of other runs, seeds or scenarios" \
	"$farcall" sim --scenario ./mine.txt --campaign 101 --from 7 --state parts
echo "something" >other
refuses "a state file that is none" "the state file other is of something else than a campaign" \
	"$farcall" sim --scenario ./mine.txt --campaign 100 --state other
head -n 5 whole >damaged
refuses "a state file that was cut off" "the state file damaged is of a campaign, and damaged" \
	"$farcall" sim --scenario ./mine.txt --campaign 100 --from 7 --state damaged
refuses "a state file that cannot be" "cannot open the state file /proc/none" \
	"$farcall" sim --scenario ./mine.txt --campaign 100 --state /proc/none

printf 'check once\n' >checkers/c.txt
bounded "$farcall" sim --campaign 55 --from 3 --state spread --json
[ $rc -eq 0 ] && json 'j["runs"] == 55 and 30 < len(j["scenarios"]) < 55 and
	max(s["runs"] for s in j["scenarios"]) - min(s["runs"] for s in j["scenarios"]) == 1'
ok "the runs are spread over the scenarios" $?

# A run that hangs for us: virtual hours.
printf 'mix slow 1\ncalls 100000\nin-flight 64\nwork 1us\npattern all\n' >workloads/w.txt
printf 'about mine\nworkload w\ndisturbance d\ncheckers c\nworkers 64\ntime 3600s\n' >mine.txt
bounded "$farcall" sim --scenario ./mine.txt --seeds 1 --limit 1
[ $rc -eq 1 ] && grep -q 'watchdog: it used the CPU for 1 s' "$dir/out"
ok "the watchdog" $?

"$farcall" sim --scenario ./mine.txt --seeds 100 --jobs 2 >"$dir/out" 2>"$dir/err" &
pid=$!
sleep 1
kill -INT $pid
wait $pid
rc=$?
[ $rc -eq 130 ] && grep -q '^interrupted by signal 2: 0 of 100 runs done, 0 failed' "$dir/out"
ok "an interrupt ends the runs, and says what was done" $?
finish

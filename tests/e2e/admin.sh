#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# `farcall top`, `workers` and `debug` while two groups of one name and one with a file as its store are on the host.
# usage: admin.sh FARCALL API_METRICS
set -u
farcall=$1
program=$2
. "$(dirname "$0")/cases.sh"
export FAR_RUNTIME_DIR="$dir/run"
mkdir -m 700 "$dir/run"

groups=
trap 'kill $groups 2>/dev/null; wait; rm -rf "$dir"' EXIT
for n in 2 3; do
	timeout -k 3 "$guard_s" "$farcall" run -n $n -- "$program" load >"$dir/group$n" 2>&1 </dev/null &
	groups="$groups $!"
done
timeout -k 3 "$guard_s" "$farcall" run -n 2 -- env FAR_INIT_METHOD="file://$dir/a store" "$program" load >"$dir/file" 2>&1 </dev/null &
groups="$groups $!"
ready() {
	"$farcall" workers --json >"$dir/out" 2>"$dir/err" && json '[w["state"] for w in j] == ["ready"] * 7' 2>/dev/null
}
eventually ready
ok "farcall workers lists the workers of three groups" $?
store=$(python3 -c '
import json, sys
print(next(w["store"] for w in json.load(open(sys.argv[1])) if w["world"] == 3))' "$dir/out")
other=$(python3 -c '
import json, sys
print(next(w["store"] for w in json.load(open(sys.argv[1])) if w["world"] == 2 and w["store"][0] != "f"))' "$dir/out")

bounded "$farcall" workers --store "$store" --json
[ $rc -eq 0 ] && json 'sorted((w["rank"], w["world"], w["group"]) for w in j) == [(r, 3, "default") for r in (0, 1, 2)]'
ok "farcall workers --store" $?
bounded "$farcall" workers --group other
[ $rc -eq 0 ] && has out 'no workers of this user with the group'
ok "farcall workers --group: there is none" $?

bounded "$farcall" top --once
[ $rc -eq 1 ] && [ ! -s "$dir/out" ] && says "more than one group" && says "--group default --store $store   3 workers" &&
	says "--group default --store $other   2 workers" && says "--store 'file://$dir/a store'   2 workers"
ok "farcall top: an ambiguous choice lists the groups" $?
bounded "$farcall" top --once --group other
[ $rc -eq 1 ] && says "there are:" && says "--store $store   3 workers"
ok "farcall top: a choice that none matches lists the groups" $?
for of in "$store:3" "$other:2" "file://$dir/a store:2"; do
	bounded "$farcall" top --once --json --interval 100ms --store "${of%:*}"
	[ $rc -eq 0 ] && json "len(j['workers']) == ${of##*:} and [w['rank'] for w in j['workers']] == list(range(${of##*:})) and
		j['group'] == 'default' and j['store'] == '${of%:*}'"
	ok "farcall top --store: the ${of##*:} workers of one group" $?
done
bounded "$farcall" top --once --interval 100ms --store "$store" --group default
[ $rc -eq 0 ] && has out " 3 workers here  group default, store $store$" && has out '^   2 worker2 '
ok "farcall top: text" $?
# A terminal of 80 columns and 24 lines.
bounded python3 "$(dirname "$0")/screen.py" "$farcall" top --store "$store" --interval 100ms
[ $rc -eq 0 ] && has out "^farcall top  .*  3 workers here  .* store $store$" && has out '^RANK WORKER .* CPU$' &&
	has out '^   2 worker2  ' && [ "$(lines_of_out)" -le 24 ] && ! grep -q '.\{81\}' "$dir/out"
ok "farcall top on a terminal: within 80 columns and 24 lines; q ends it" $?

# Without another look: the interval is an hour.
bounded python3 "$(dirname "$0")/screen.py" --rows 12 --press j "$farcall" top --store "$store" --interval 3600
[ $rc -eq 0 ] && has out '^   1 worker1 ' && ! has out '^   [02] worker' && has out '^     and 2 more workers: j, k ' &&
	[ "$(lines_of_out)" -le 12 ]
ok "farcall top: j moves through the workers" $?
bounded python3 "$(dirname "$0")/screen.py" --rows 12 --resize 14 "$farcall" top --store "$store" --interval 3600
[ $rc -eq 0 ] && has out '^   0 worker0 ' && has out '^   2 worker2 ' && ! has out more
ok "farcall top: another size of the terminal is drawn at once" $?

# Names of a length that 80 columns have no room for; a worker that is killed.
long=the-longest-name-of-a-worker
for rank in 0 1 2; do
	RANK=$rank WORLD_SIZE=3 FAR_INIT_METHOD="file://$dir/long" timeout -k 3 "$guard_s" "$program" load $long- \
		>"$dir/long$rank" 2>&1 </dev/null &
	groups="$groups $!"
done
long_store() {
	"$farcall" workers --json >"$dir/out" 2>"$dir/err" && long_at=$(python3 -c '
import json, sys
found = [w for w in json.load(open(sys.argv[1])) if w["worker"].startswith("the-longest") and w["state"] == "ready"]
print(found[0]["store"] if len(found) == 3 else "", *(w["pid"] for w in found if w["rank"] == 2))' "$dir/out") &&
		[ -n "${long_at%% *}" ]
}
eventually long_store
ok "three workers of long names" $?
bounded python3 "$(dirname "$0")/screen.py" "$farcall" top --store "${long_at%% *}" --interval 100ms
[ $rc -eq 0 ] && has out '^   1 the-l~rker-1 ready' && ! grep -q '.\{81\}' "$dir/out"
ok "farcall top: of a long name its begin and its end" $?
bounded "$farcall" top --once --interval 100ms --store "${long_at%% *}"
[ $rc -eq 0 ] && has out "^   1 $long-1 ready"
ok "farcall top: the whole name where there is room" $?
kill -KILL "${long_at##* }"
lost() { bounded "$farcall" top --once --interval 100ms --store "${long_at%% *}"; has out '  2 of 3 workers here, 1 lost  ' && ! has out "$long-2"; }
eventually lost
ok "farcall top: a worker that was killed is lost" $?

bounded "$farcall" debug worker0
[ $rc -eq 1 ] && says '3 workers are "worker0"' && says "$store" && says "$other" && has err '^  admin-[0-9]*-0 '
ok "farcall debug: an ambiguous name lists the workers" $?
bounded "$farcall" debug --json --store "$store" worker0
[ $rc -eq 0 ] && json 'j["info"]["world"] == 3 and j["info"]["rank"] == 0'
ok "farcall debug --store" $?
bounded "$farcall" debug --metrics json --store "file://$dir/a store" worker1
[ $rc -eq 0 ] && json 'j["worker"] == "worker1" and j["group"] == "default"'
ok "the group of a worker whose store is a file" $?
finish

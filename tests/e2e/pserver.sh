#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# `farcall pserver` serves until it is stopped, while clients come, leave and are killed; `farcall tables` looks at the
# tables, saves, drops and loads them; a service of another size begins with what was saved. `farcall train --service`
# trains in its tables, and its first worker reports for all.
# usage: pserver.sh FARCALL PS_CLIENT PLUGIN
set -u
farcall=$1
export farcall
export client="$2"
. "$(dirname "$0")/cases.sh"
. "$(dirname "$0")/service.sh"

# shellcheck disable=SC2016 # the inner shell's, here and below
group '2 --shards 2' '
	"$client" once >/dev/null && "$client" once >/dev/null || exit 1
	mkfifo "$dir/fifo"
	"$client" again >"$dir/fifo" & victim=$!
	read -r line <"$dir/fifo"
	kill -KILL "$victim"; wait "$victim"
	"$farcall" tables ls && "$farcall" tables get counts 0 99 100 && "$farcall" tables hot counts 3 >"$dir/hot" && "$farcall" tables save "$dir/saved"'
killed=$rc
[ "$killed" -eq 0 ] && has out '^counts  *2  *f32  *sgd  *100 ' && has out '^saved 1 tables, 100 rows, [0-9]* bytes$'
ok "clients come, leave and are killed; the servers go on" $?
awk '$2 == "ROW" && $3 == $4 && $3 >= 3 { n++ } $0 == "100 MISSING" { n++ } END { exit n != 3 }' "$dir/out"
ok "rows have all pushes; a key without a row is missing" $?
awk '$1 < 100 && $2 % 61 == 0 && $2 > 0 { n++ } END { exit n != 3 || NR != 3 }' "$dir/hot"
ok "tables hot prints the keys that were used most" $?
grep -E '^(0|99|100) ' "$dir/out" >"$dir/rows"
grep -qx 'worker1 serves "default" with 2 shards' "$dir/server1"
ok "a server prints what it serves" $?

# shellcheck disable=SC2016
group "3 --load $dir/saved" '
	"$farcall" tables ls >"$dir/first" # the group is complete, and rank 0 begins to load
	until grep -q serves "$dir/server0"; do sleep 0.05; done
	"$farcall" tables get counts 0 99 100 && "$farcall" tables drop counts && "$farcall" tables ls &&
		"$farcall" tables load "$dir/saved" && "$farcall" tables stats counts'
[ $rc -eq 0 ] && grep -E '^(0|99|100) ' "$dir/out" | cmp - "$dir/rows" && has out '^rows  *100$' &&
	has out '^loaded 1 tables, 100 rows' && [ "$(grep -c '^counts ' "$dir/out")" -eq 0 ]
ok "three servers begin with what two had saved; drop, and load again" $?
grep -qx 'loaded 1 tables, 100 rows' "$dir/server0"
ok "rank 0 prints what it has loaded" $?

# shellcheck disable=SC2016
group '1' '"$farcall" tables get nothing 1; [ $? -eq 1 ] && "$farcall" tables --name other --timeout 300ms ls; [ $? -eq 1 ]'
[ $rc -eq 0 ] && says 'has no such table' && says 'no member of the group serves "other"'
ok "a table and a service that are not there" $?
# shellcheck disable=SC2016
bounded "$farcall" run -n 1 -- sh -c '
	export WORLD_SIZE=3
	RANK=0 "$client" serve >/dev/null 2>&1 & first=$!
	unset FAR_STORE_FD
	RANK=1 "$farcall" pserver --servers 3 >/dev/null 2>&1 & second=$!
	RANK=2 "$farcall" tables ls; [ $? -eq 1 ] || exit 5
	kill $first; kill $second; wait $second || exit 9'
[ $rc -eq 0 ] && says 'serves "default" with another list of servers' && says 'give all servers the same list'
ok "servers with different lists of servers are refused" $?

# Server 1 ends, and prints what it was given and what server 0 was; server 0 stays.
differs() { # options of server 0, of server 1, what server 1 prints
	# shellcheck disable=SC2016
	bounded "$farcall" run -n 1 -- sh -c '
		export WORLD_SIZE=2
		RANK=0 "$farcall" pserver $1 >"$dir/server0" 2>&1 & first=$!
		unset FAR_STORE_FD
		RANK=1 "$farcall" pserver $2 >"$dir/server1" 2>&1; [ $? -eq 1 ] || exit 5
		kill $first; wait $first || exit 9' differs "$1" "$2"
	[ $rc -eq 0 ] && grep -qF "worker1: $3 at worker0: all servers of a service need the same" "$dir/server1"
}
differs '--servers 1' '--servers 2' "--servers is '2', and '1'"
ok "servers with different numbers of servers: the second one ends" $?
differs '--servers 2 --name a' '--servers 2 --name b' "--name is 'b', and 'a'" &&
	differs '--servers 2 --memory 1G' '--servers 2' "--memory is 'none', and '1073741824'" &&
	differs '--servers 2 --tenants a:rows=4,b:tables=1' '--servers 2 --tenants b:tables=1,a:rows=5' \
		"--tenants is 'a:rows=5,b:tables=1', and 'a:rows=4,b:tables=1'"
ok "servers with another name, memory or tenants, likewise" $?

# shellcheck disable=SC2016
group '2' '"$client" values >/dev/null && "$farcall" tables ls && "$farcall" tables get names 7 8 &&
	"$farcall" tables get names 010 0x7; "$farcall" tables hot names x; [ $? -eq 2 ]'
[ $rc -eq 0 ] && has out '^names  *0  *bytes  *-  *1 ' && has out '^7 ROW "A\\042da\\012"$' && has out '^8 MISSING$'
ok "tables ls and get show a table of values" $?
has out '^two?lines  *0  *bytes' && ! has out '^lines'
ok "tables ls: a name stays in its line" $?
[ "$(grep -c '^7 ROW' "$dir/out")" -eq 2 ] && has out '^10 MISSING' && says "'x' is not a number of keys"
ok "tables: numbers are decimal or hexadecimal" $?

# The metrics of the servers, and bounds of tenants. The client pushes the keys 0 to 99 of the table "counts" twice.
export FAR_RUNTIME_DIR="$dir/run"
mkdir -m 700 "$FAR_RUNTIME_DIR"
# shellcheck disable=SC2016
group '2 --shards 2' '
	"$client" once >/dev/null && "$client" once >/dev/null || exit 1
	for pid in $pids; do "$farcall" debug --metrics prometheus "$pid" >"$dir/metrics.$pid" || exit 2; done
	cat "$dir"/metrics.* >"$dir/metrics"; "$farcall" tables stats counts'
value() { awk -v name="$1" 'index($1, name "{") == 1 && $1 ~ /service="default",table="counts"}$/ { n += $2 } END { print n }' "$dir/metrics"; }
[ $rc -eq 0 ] && [ "$(value farcall_ps_rows)" -eq 100 ] && [ "$(value farcall_ps_keys_pushed_total)" -eq 200 ] &&
	[ "$(value farcall_ps_rows_made_total)" -eq 100 ] && [ "$(value farcall_ps_bytes)" -gt 800 ] &&
	[ "$(grep -c '^# TYPE farcall_ps_rows gauge$' "$dir/metrics")" -eq 2 ] && has out '^pushes  *[1-9]'
ok "the metrics of the tables, of each server" $?
unset FAR_RUNTIME_DIR

# shellcheck disable=SC2016
group '2 --tenants other:tables=1,cou:rows=40:bytes=1M --memory 1G' '
	"$client" once >/dev/null; "$farcall" tables ls; "$farcall" tables stats counts'
[ $rc -eq 0 ] && awk '$1 == "rows" && $2 <= 40 { n++ } $1 == "refused" && $2 >= 60 { n++ } END { exit n != 2 }' "$dir/out"
ok "a tenant's tables have as many rows as it may have" $?
for wrong in a: a:row=1 :rows=1 a:rows=x a a:rows=0; do
	bounded env RANK=0 WORLD_SIZE=1 "$farcall" pserver --tenants "$wrong"
	[ $rc -eq 2 ] && says '--tenants' || break
done
ok "malformed tenants are refused" $?

# In a dynamic group. The servers are there before the first client, and after the last one.
# shellcheck disable=SC2016
bounded "$farcall" run -n 1 -- sh -c '
	export WORLD_SIZE=dynamic
	unset RANK
	RANK=0 "$farcall" pserver --servers 2 >"$dir/server0" 2>&1 & first=$!
	unset FAR_STORE_FD
	"$farcall" tables ls >"$dir/early" 2>&1 & early=$!
	RANK=1 "$farcall" pserver --servers 2 >"$dir/server1" 2>&1 & second=$!
	wait $early || exit 8
	RANK=7 "$client" once >/dev/null && RANK=7 "$client" once >/dev/null || exit 1
	mkfifo "$dir/pipe"
	RANK=9 "$client" again >"$dir/pipe" & victim=$!
	read -r line <"$dir/pipe"
	kill -KILL "$victim"; wait "$victim"
	RANK=7 "$client" once >/dev/null && "$farcall" tables get counts 0 100
	kill $first $second
	wait $first && wait $second'
[ $rc -eq 0 ] && awk '$1 == 0 && $3 == $4 && $3 >= 4 { n++ } $0 == "100 MISSING" { n++ } END { exit n != 2 }' "$dir/out" &&
	grep -qx 'worker1 serves "default" with 1 shards' "$dir/server1"
ok "dynamic: clients without a rank come, leave and are killed; servers begin before and end after them" $?
# shellcheck disable=SC2016
bounded "$farcall" run -n 1 -- sh -c 'export WORLD_SIZE=dynamic; "$farcall" pserver --servers 2 & pid=$!
	until [ -e /proc/$pid/task ] && ls /proc/$pid/task/*/comm | xargs cat 2>/dev/null | grep -q far-members; do sleep 0.05; done
	kill $pid; wait $pid'
[ $rc -eq 0 ] && ! has out serves
ok "dynamic: a signal ends a server that waits for another" $?
# shellcheck disable=SC2016
bounded sh -c '
	export WORLD_SIZE=dynamic
	set -- --init-method "file://$dir/store" --servers 2
	RANK=1 "$farcall" pserver "$@" --memory 1G >"$dir/server1" 2>&1 & second=$!
	until cat /proc/$second/task/*/comm 2>/dev/null | grep -q far-members; do sleep 0.05; done
	RANK=0 "$farcall" pserver "$@" --memory 1G >"$dir/server0" 2>&1 & first=$!
	until grep -q serves "$dir/server0" && grep -q serves "$dir/server1"; do
		[ -e /proc/$first ] && [ -e /proc/$second ] || exit 4
		sleep 0.05
	done
	kill -KILL $first; wait $first
	RANK=0 "$farcall" pserver "$@" --memory 2G; [ $? -eq 1 ] || exit 5
	kill $second; wait $second'
[ $rc -eq 0 ] && says "worker0: --memory is '2147483648', and '1073741824' at worker1"
ok "dynamic, file://: servers begin in any order; a server 0 that comes back with other options ends" $?
bounded env WORLD_SIZE=dynamic RANK=0 "$farcall" train --service default
[ $rc -eq 2 ] && says "WORLD_SIZE is 'dynamic'"
ok "dynamic: training is refused" $?
bounded env -u RANK WORLD_SIZE=dynamic "$farcall" pserver
[ $rc -eq 2 ] && says 'needs its number'
ok "dynamic: a server without a number is refused" $?

# ---- functions of a plugin ----

mkdir "$dir/plugins" && chmod 755 "$dir/plugins" && install -m 644 "$3" "$dir/plugins/fn.so"
# shellcheck disable=SC2016
FAR_PLUGIN_PATH=$dir/plugins group "2 --functions $dir/plugins/fn.so" '"$client" call && "$farcall" tables ls'
[ $rc -eq 0 ] && has out '^halves  *2  *f32  *halve  *100 '
ok "pserver --functions: a function and an optimizer of a plugin" $?
bounded "$farcall" run -n 1 -- "$farcall" pserver --functions "$dir/plugins/fn.so"
[ $rc -eq 1 ] && says 'FAR_PLUGIN_PATH'
ok "pserver --functions: a plugin that is not permitted is refused" $?

cut -b 1-50 "$dir/saved/manifest" >"$dir/torn"
mv "$dir/torn" "$dir/saved/manifest"
bounded "$farcall" run -n 1 -- "$farcall" pserver --load "$dir/saved"
[ $rc -eq 1 ] && says 'the manifest is torn'
ok "a service does not begin with a torn manifest" $?
# ---- farcall train --service ----

"$farcall" train --help >"$dir/help" && grep -q -- '--service NAME' "$dir/help"
ok "train --help names --service" $?
awk 'BEGIN {
	srand(1)
	for (i = 0; i < 1000; i++) {
		x = rand(); y = rand(); z = rand() < 0.1
		print (x + y > 1) != z, "0:" x, "4294967296:" y
	}
}' >"$dir/data"
export learns='"$farcall" train --service default --servers 2'
# shellcheck disable=SC2016
group 2 '
	eval "$learns" --data "$dir/data" --test "$dir/data" --epochs 4 --optimizer ftrl --save "$dir/model" \
		--predict "$dir/predicted" --json &&
	"$farcall" tables drop logistic >/dev/null &&
	eval "$learns" --test "$dir/data" --load "$dir/model" --predict "$dir/again" --optimizer ftrl >"$dir/loaded"'
[ $rc -eq 0 ] && json 'j["test_auc"] > 0.85 and positive(j, "test_logloss", "test_accuracy", "samples_per_s", "train_logloss") and
	j["settings"]["optimizer"] == "ftrl" and j["settings"]["epochs"] == 4' && has err 'epoch 4/4  loss .* test AUC .* s left'
ok "train --service: learns, and reports as a job with its own servers does" $?
[ "$(wc -l <"$dir/predicted")" -eq 1000 ] && cmp "$dir/predicted" "$dir/again" &&
	awk '!($1 > 0 && $1 < 1) { exit 1 }' "$dir/predicted" && [ "$(sort -u "$dir/predicted" | wc -l)" -gt 500 ]
ok "train --save, --load and --predict: the same probabilities, without training" $?
for optimizer in sgd adagrad adam; do
	# shellcheck disable=SC2016
	optimizer=$optimizer group 2 'eval "$learns" --data "$dir/data" --test "$dir/data" --epochs 4 --optimizer $optimizer --json'
	[ $rc -eq 0 ] && json 'j["test_auc"] > 0.85'
	ok "train --service --optimizer $optimizer" $?
done
# shellcheck disable=SC2016
group 2 'eval "$learns" --rows 500 --test-rows 500 --epochs 20000 --patience 2 --optimizer ftrl --json'
[ $rc -eq 0 ] && json '2 < j["settings"]["epochs"] < 20000'
ok "train --patience: ends when the test loss has not fallen" $?
# So few rows are learnt by heart: the test loss is least in the middle.
head -n 60 "$dir/data" >"$dir/few"
# shellcheck disable=SC2016
group 2 '
	eval "$learns" --data "$dir/few" --test "$dir/data" --epochs 1000 --patience 3 --optimizer adagrad --batch 10 --json \
		--save "$dir/best" --predict "$dir/predicted" &&
	"$farcall" tables drop logistic >/dev/null &&
	eval "$learns" --test "$dir/data" --load "$dir/best" --predict "$dir/again" >"$dir/loaded"'
[ $rc -eq 0 ] && json 'j["best_epoch"] == j["settings"]["epochs"] - 3 > 0' && cmp "$dir/predicted" "$dir/again" &&
	loss=$(cut -d " " -f 1 "$dir/data" | paste -d " " - "$dir/predicted" |
		awk '{ n -= log($1 > 0 ? $2 : 1 - $2) } END { printf "%.9f", n / NR }') &&
	json "abs(j['test_logloss'] - $loss) < 1e-6"
ok "train --patience: saves, predicts and reports the epoch with the least test loss" $?
# shellcheck disable=SC2016
clients=2 group 2 '
	RANK=3 eval "$learns" --rows 4000 --test-rows 2000 --epochs 3 --json >"$dir/second" & other=$!
	eval "$learns" --rows 4000 --test-rows 2000 --epochs 3 --json && wait $other && touch "$dir/both"'
[ $rc -eq 0 ] && json 'j["bayes_auc"] - 0.1 < j["test_auc"] and j["settings"]["workers"] == 2 and
	round(j["samples_per_s"] * j["seconds"]) == 12000' && [ -e "$dir/both" ] &&
	[ ! -s "$dir/second" ]
ok "train --service: two workers; the first one reports" $?
# shellcheck disable=SC2016
clients=3 group 2 '
	for RANK in 3 4; do
		eval "$learns" --mode bsp --rows 3000 --test-rows 2000 --epochs 2 --json >"$dir/second" & others="$others $!"
	done
	RANK=2
	eval "$learns" --mode bsp --rows 3000 --test-rows 2000 --epochs 2 --json && wait $others && touch "$dir/three"'
[ $rc -eq 0 ] && json 'j["bayes_auc"] - 0.1 < j["test_auc"] and j["settings"]["workers"] == 3 and j["mode"] == "bsp"' &&
	[ -e "$dir/three" ]
ok "train --service --mode bsp: three workers in step" $?
# shellcheck disable=SC2016
clients=2 group 2 '
	RANK=3 eval "$learns" --mode bsp --rate 3 --rows 400 --test-rows 100 --epochs 1 --json >"$dir/second" & other=$!
	eval "$learns" --mode bsp --rows 400 --test-rows 100 --epochs 1 --json && wait $other'
[ $rc -eq 0 ] && json 'j["settings"]["workers"] == 2 and j["seconds"] > 0.3'
ok "train --mode bsp: a worker waits for one whose batches begin later" $?
# shellcheck disable=SC2016
group 2 'eval "$learns" --rows 100 --test-rows 10 --epochs 1 --json >/dev/null &&
	eval "$learns" --rows 100 --test-rows 10 --epochs 1 --optimizer adagrad'
says 'another schema'
ok "train --service: a table of another optimizer is refused" $?

a9a=$(dirname "$0")/../../../shared/data/a9a
export a9a
for optimizer in "adagrad --lr 0.05" ftrl; do
	if [ ! -r "$a9a/a9a" ] || [ ! -r "$a9a/a9a.t" ]; then
		skip_data "a9a, $optimizer" "no ../shared/data/a9a/a9a and a9a.t beside the repository"
		continue
	fi
	# shellcheck disable=SC2016
	optimizer=$optimizer group 2 'eval "$learns" --data "$a9a/a9a" --test "$a9a/a9a.t" --optimizer $optimizer --json'
	[ $rc -eq 0 ] && json 'j["test_auc"] >= 0.9015 and j["test_logloss"] <= 0.330'
	ok "a9a, $optimizer: AUC of 0.9015 and log loss of 0.330 or better" $?
done
finish

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# `farcall train --model NAME`: each model learns data that the test makes from a seed to a stated quality, is
# saved, and predicts the same when it is loaded.
# usage: models.sh FARCALL
set -u
farcall=$1
export farcall
. "$(dirname "$0")/cases.sh"
. "$(dirname "$0")/service.sh"

export learn='"$farcall" train --service default --servers 2 --json'

# The label is the product of a sign of the first feature and one of the second: without a pair there is nothing to see.
# 3 % of the labels are wrong.
awk -v dir="$dir" 'BEGIN {
	srand(1)
	for (i = 0; i < 60; i++) sign[i] = rand() < 0.5 ? -1 : 1
	for (r = 0; r < 6000; r++) {
		a = int(rand() * 30); b = 30 + int(rand() * 30)
		y = sign[a] * sign[b] * (rand() < 0.03 ? -1 : 1) > 0
		name = dir (r < 4500 ? "/pairs" : "/pairs.test")
		print y, a ":1", b ":1" >name
		print y "," "a" a ",b" b >(name ".csv")
	}
}'

# Trains on $1, tests on $1.test: the options $2. `$out` has the report; then the model is saved and its tables dropped,
# and a second service predicts.
trains() { # data, its ending, options, model
	# shellcheck disable=SC2016 # the inner shell's, here and below
	data=$dir/$1$2 tested=$dir/$1.test$2 flags=$3 model=$4 group 2 '
		rm -rf "$dir/model" "$dir/first" "$dir/same" "$dir/second"
		eval "$learn" --model $model --data "$data" --test "$tested" $flags --save "$dir/model" --predict "$dir/first" &&
			eval "$learn" --model $model --test "$tested" --predict "$dir/same" >"$dir/trained"'
	[ $rc -eq 0 ] || return
	cp "$dir/out" "$dir/report"
	cp "$dir/err" "$dir/progress"
	# shellcheck disable=SC2016
	tested=$dir/$1.test$2 model=$4 group 1 'eval "$learn" --servers 1 --model $model --test "$tested" --load "$dir/model" --predict "$dir/second"'
}
predicts_the_same() {
	[ "$(wc -l <"$dir/first")" -eq "$1" ] && [ "$(sort -u "$dir/first" | wc -l)" -gt "$2" ] &&
		cmp "$dir/first" "$dir/same" && cmp "$dir/first" "$dir/second"
}
report() {
	cp "$dir/report" "$dir/out"
	json "$1"
}

trains pairs '' '--epochs 10 --optimizer adagrad' logistic
report 'j["test_auc"] < 0.6'
ok "pairs: logistic regression does not see them" $?
for data in '' .csv; do
	[ -z "$data" ] || in_full || continue
	trains pairs "$data" '--epochs 10' fm
	report 'j["test_auc"] > 0.95 and j["test_logloss"] < 0.2 and j["settings"]["model"] == "fm"'
	ok "fm: AUC of 0.95 and log loss of 0.2 on pairs$data" $?
	predicts_the_same 1500 500
	ok "fm: the same predictions after save and load, by one server instead of two" $?
done
if in_full; then
	trains pairs '' '--epochs 1 --batch 4500' fm
	report 'abs(j["train_logloss"] - 0.693147181) > 1e-6'
	ok "fm: the first step sees the initial factors, which are not 0" $?
	for options in '--optimizer adam --lr 0.02' '--optimizer sgd --lr 10'; do
		trains pairs '' "--epochs 20 --l2 1e-5 --dim 4 $options" 'fm --dim 4'
		report 'j["test_auc"] > 0.95'
		ok "fm: $options" $?
	done
	cp "$dir/first" "$dir/before"
	trains pairs '' "--epochs 20 --l2 1e-5 --dim 4 $options" 'fm --dim 4'
	cmp "$dir/first" "$dir/before"
	ok "fm: a second training gives the same bits" $?
	cp -r "$dir/model" "$dir/dim4"
fi

# The same without a service: the servers are the job's, and end with it.
if in_full; then
	bounded "$farcall" train --workers 1 --model fm --data "$dir/pairs" --test "$dir/pairs.test" --epochs 10 --json \
		--save "$dir/own" --predict "$dir/first"
	[ $rc -eq 0 ] && json 'j["test_auc"] > 0.95 and j["settings"]["servers"] == 2 and j["settings"]["service"] is None'
	ok "fm: a job with its own servers" $?
	bounded "$farcall" train --servers 3 --model fm --test "$dir/pairs.test" --load "$dir/own" --predict "$dir/second"
	[ $rc -eq 0 ] && has out '^factorisation machine, mode async, 2 workers, tested on 1500 rows' &&
		[ "$(wc -l <"$dir/second")" -eq 1500 ] && cmp "$dir/first" "$dir/second"
	ok "fm: three servers of another job predict the same" $?
	has out '^  test AUC' && ! has out 'nan' && ! has out 'samples/s'
	ok "predictions alone: the figures of the test, none of a training" $?
fi

# Ratings: 3.5 plus the product of two factors of 100 users and 100 items, plus noise of deviation 0.2; 9000 of them.
awk -v dir="$dir" '
	function gauss() { return sqrt(-2 * log(1 - rand())) * cos(6.283185307 * rand()) }
	BEGIN {
		srand(2)
		for (k = 0; k < 200; k++) for (f = 0; f < 2; f++) p[k, f] = gauss()
		for (r = 0; r < 12000; r++) {
			u = int(rand() * 100); i = int(rand() * 100)
			y = 3.5 + p[u, 0] * p[100 + i, 0] + p[u, 1] * p[100 + i, 1] + 0.2 * gauss()
			print u, i, y >(dir (r < 9000 ? "/ratings" : "/ratings.test"))
		}
	}'
trains ratings '' '--epochs 20' mf
report '0.19 < j["test_rmse"] < 0.24 and 0.15 < j["train_rmse"] < 0.24 and "test_auc" not in j' && has progress 'epoch 20/20  loss 0.0.*  test RMSE 0.2'
ok "mf: RMSE within 0.04 of the noise" $?
predicts_the_same 3000 2500
ok "mf: the same predictions after save and load, by one server instead of two" $?
if in_full; then
	# shellcheck disable=SC2016
	clients=2 group 2 '
		RANK=3 eval "$learn" --model mf --data "$dir/ratings" --test "$dir/ratings.test" --epochs 20 >"$dir/second" & other=$!
		eval "$learn" --model mf --data "$dir/ratings" --test "$dir/ratings.test" --epochs 20 && wait $other'
	[ $rc -eq 0 ] && json '0.19 < j["test_rmse"] < 0.25 and j["settings"]["workers"] == 2'
	ok "mf: two workers" $?
	# shellcheck disable=SC2016
	group 1 '"$farcall" train --service default --servers 1 --model mf --data "$dir/ratings" --test "$dir/ratings.test" --epochs 500 --patience 2'
	[ $rc -eq 0 ] && has out '^matrix factorisation, mode async, 1 worker, tested on 3000 rows' && has out '^  test RMSE  *0\.2' &&
		! has out 'AUC' && ! has err 'epoch 500/500'
	ok "mf: a table at the end; --patience stops by the RMSE" $?
fi

# The label is the product of three signs: pairs show nothing of it either.
awk -v dir="$dir" 'BEGIN {
	srand(4)
	for (r = 0; r < 12000; r++) {
		a = int(rand() * 8); b = int(rand() * 8); c = int(rand() * 8)
		y = (a + b + c) % 2 != (rand() < 0.03)
		print y, a ":1", (20 + b) ":1", (40 + c) ":1" >(dir (r < 9000 ? "/threes" : "/threes.test"))
	}
}'
if in_full; then
	trains threes '' '--epochs 20' fm
	report 'j["test_auc"] < 0.6'
	ok "threes: a factorisation machine does not see them" $?
fi
trains threes '' '--epochs 20' deepfm
report 'j["test_auc"] > 0.95 and j["test_logloss"] < 0.2 and
	[j["settings"][k] for k in ("model", "dim", "hidden", "l2", "epsilon")] == ["deepfm", 8, 32, 0, 1e-10]'
ok "deepfm: AUC of 0.95 and log loss of 0.2 on threes" $?
predicts_the_same 3000 300
ok "deepfm: the same predictions after save and load, by one server instead of two" $?
if in_full; then
	cp "$dir/first" "$dir/before"
	trains threes '' '--epochs 20' deepfm
	cmp "$dir/first" "$dir/before"
	ok "deepfm: a second training gives the same bits" $?
	for seed in 2 3 4; do
		trains threes '' "--epochs 20 --hidden 16 --seed $seed" 'deepfm'
		report 'j["test_auc"] > 0.95'
		ok "deepfm: 16 units, seed $seed" $?
	done
fi

# Each of 20 meanings has two words, which are never in one line but have the same four words beside them. Lines also
# have words of no meaning. The file begins with a byte order mark, and words that come once.
awk -v dir="$dir" 'BEGIN {
	srand(3)
	print "\357\273\277first once" >(dir "/text")
	for (r = 0; r < 5000; r++) {
		m = int(rand() * 20); word = (rand() < 0.5 ? "a" : "b") m; line = ""
		for (k = 0; k < 6; k++) line = line (k == 3 ? word " " : "") (rand() < 0.3 ? "noise" int(rand() * 40) : "near" m "-" int(rand() * 4)) " "
		print line >(dir (r < 4000 ? "/text" : "/text.test"))
	}
}'
trains text '' '--epochs 10 --dim 16' 'word2vec --dim 16'
report 'j["test_auc"] > 0.85 and j["train_logloss"] < 0.4 and
	[j["settings"][k] for k in ("model", "dim", "window", "negative")] == ["word2vec", 16, 5, 5] and "l2" not in j["settings"]'
ok "word2vec: AUC of 0.85 for near words against samples" $?
python3 - "$dir/first" <<-'END'
	import sys
	vectors = {w: [float(x) for x in v] for w, *v in map(str.split, open(sys.argv[1]))}
	assert len(vectors) == 162 and "first" in vectors and all(len(v) == 16 for v in vectors.values()), len(vectors)
	def cosine(a, b):
	    dot = lambda x, y: sum(p * q for p, q in zip(vectors[x], vectors[y]))
	    return dot(a, b) / (dot(a, a) * dot(b, b)) ** 0.5
	words = [w for w in vectors if w[0] in "ab"]
	found = sum(max((v for v in words if v != w), key=lambda v: cosine(w, v))[1:] == w[1:] for w in words)
	assert len(words) == 40 and found >= 38, found
END
ok "word2vec: the nearest of 40 words is the other one with its meaning, for 38 of them" $?
grep -vE '^(first|once) ' "$dir/first" | sort >"$dir/sorted" && cmp "$dir/same" "$dir/second" && sort "$dir/same" | cmp "$dir/sorted" -
ok "word2vec: the same vectors after save and load, by one server instead of two" $?
if in_full; then
	cp "$dir/first" "$dir/before"
	trains text '' '--epochs 10 --dim 16' 'word2vec --dim 16'
	cmp "$dir/first" "$dir/before"
	ok "word2vec: a second training gives the same bits" $?
fi

# ---- Curves ----

if command -v gnuplot >/dev/null; then
	for model in fm:pairs mf:ratings; do
		[ $model = fm:pairs ] || in_full || continue
		rm -f "$dir/curves.svg"
		trains "${model#*:}" '' "--epochs 5 --plot $dir/curves.svg" "${model%:*}"
		python3 - "$dir/curves.svg" "${model%:*}" <<-'END'
			import sys, xml.etree.ElementTree as tree
			root = tree.parse(sys.argv[1]).getroot()
			ns = "{http://www.w3.org/2000/svg}"
			texts = ["".join(t.itertext()).strip() for t in root.iter(ns + "text")]
			wanted = {"fm": ["Training, factorisation machine", "log loss", "AUC", "test AUC (right)"],
			          "mf": ["Training, matrix factorisation", "RMSE"]}[sys.argv[2]] + ["training", "test", "steps"]
			missing = [w for w in wanted if w not in texts]
			marks = sum(1 for _ in root.iter(ns + "use"))
			assert not missing and ("AUC" in texts) == (sys.argv[2] == "fm"), (missing, texts)
			# A mark for each of the five tests and one in the key, for each curve of a test.
			assert marks >= 6 * (2 if sys.argv[2] == "fm" else 1), marks
		END
		ok "${model%:*}: --plot draws the loss and the tests" $?
	done
else
	skip_data "--plot" "no gnuplot"
fi

# ---- Progress ----

if command -v script >/dev/null; then
	bounded script -qec "stty cols 80; '$farcall' train --servers 1 --rows 4000 --test-rows 2000 --epochs 3" "$dir/typescript"
	python3 - "$dir/out" <<-'END'
		import re, sys
		pieces = open(sys.argv[1], newline="").read().split("\r\033[K")[1:]
		lines = [re.split("[\r\n]", p)[0] for p in pieces]
		drawn = [l for l in lines if "epoch" in l and l.startswith("[ ") or l.startswith("[=")]
		assert drawn and drawn[0].startswith("[ ") and "epoch 1/3  loss" in drawn[0], lines
		assert all(len(l) < 80 for l in drawn), max(drawn, key=len)
	END
	ok "progress on a terminal: a bar and its figures in one line, of members that 'farcall run' starts" $?
	bounded script -qec "'$farcall' train --servers 1 --rows 4000 --test-rows 2000 --epochs 3 --progress lines" /dev/null
	[ $rc -eq 0 ] && has out 'epoch 3/3  loss' && ! has out '\[ '
	ok "--progress lines: no line that changes" $?
fi

# ---- Options that do not apply ----

refuses() { # text, options
	text=$1
	shift
	bounded env RANK=1 WORLD_SIZE=2 "$farcall" train --servers 1 "$@"
	[ $rc -eq 2 ] && says "$text"
	ok "refused: $*" $?
}
refuses '--dim does not go with --model logistic' --service default --dim 4
refuses '--l2 does not go with --model logistic' --service default --l2 0.1
refuses "--l2 takes a number from 0 and up to 1000, not '-1'" --service default --model fm --l2 -1
refuses '--optimizer ftrl sets new factors to 0' --service default --model fm --optimizer ftrl
refuses '--l2 does not go with --model word2vec' --service default --model word2vec --l2 0.1
refuses '--hidden goes with --model deepfm' --service default --model fm --hidden 3
refuses '--window goes with --model word2vec' --service default --model fm --window 3
refuses '--model word2vec needs --data FILE and --test FILE: lines of words' --service default --model word2vec
refuses '--model mf needs --data FILE and --test FILE' --service default --model mf
refuses '--format does not go with --model mf' --service default --model mf --format csv --data /dev/null --test /dev/null
refuses '--plot draws a training; give --data FILE' --service default --test "$dir/pairs.test" --predict "$dir/none" --plot "$dir/x.svg"
refuses 'cannot be written' --service default --plot "$dir/none/x.svg"
# shellcheck disable=SC2016
group 1 'eval "$learn" --servers 1 --model fm --test "$dir/pairs.test" --predict "$dir/none"; [ $? -eq 1 ] || echo accepted'
says 'there is no table "fm" of this model; give --load DIR, or the --model that was trained' && ! has out accepted
ok "refused: to predict without a trained model" $?
# Before it trains, which may take long.
refuses_file() { # text, options
	bounded "$farcall" train --data "$dir/pairs" --test "$dir/pairs.test" "$2" "$3"
	[ $rc -eq 1 ] && says "$1" && ! has err epoch
	ok "refused before it trains: $2 ${3#"$dir/"}" $?
}
refuses_file "--predict: $dir/none/x: cannot write: No such file or directory" --predict "$dir/none/x"
refuses_file "--save: $dir/none/x: cannot write: No such file or directory" --save "$dir/none/x"
refuses_file "--save: $dir/pairs: cannot write: Not a directory" --save "$dir/pairs"
refuses_file "--predict: $dir/model: cannot write: Is a directory" --predict "$dir/model"
if in_full; then
	# shellcheck disable=SC2016
	group 1 'eval "$learn" --servers 1 --model fm --test "$dir/pairs.test" --load "$dir/dim4" --predict "$dir/none"'
	says 'has rows of 4 numbers, not of 8; give its --dim'
	ok "refused: to predict with factors of another length" $?
	# shellcheck disable=SC2016
	group 1 '"$farcall" train --service default --servers 1 --model mf --test "$dir/ratings.test" --load "$dir/dim4" --predict "$dir/none"; [ $? -eq 1 ] || echo accepted'
	says 'there is no table "mf" of this model' && ! has out accepted
	ok "refused: to predict with another model's tables" $?
fi
finish

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# apps/examples: digits and digits_server learn the 8 × 8 digits, and others can read the model that is saved. The
# images are those of the package python3-sklearn, which is fetched, but not installed, where it is missing.
# usage: digits.sh PROGRAM SOURCE_TOP FARCALL
set -u
program=$1
top=$2
farcall=$3
. "$(dirname "$0")/cases.sh"
export FAR_LOG=warning # a join that takes long on a busy machine is no error

bounded "$program"
[ $rc -eq 2 ] && says "DIGITS.CSV is missing"
ok "without arguments: an error that names the first" $?
bounded "$program" "$dir/none" "$dir/state"
[ $rc -eq 2 ] && says "$dir/none: has not 100 images" && [ ! -e "$dir/state" ]
ok "no images: an error that names the file" $?

for found in "$top/../shared/data/digits/digits.csv" "$top/../shared/data/digits/digits.csv.gz" \
	/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz; do
	[ -r "$found" ] && break
	found=
done
if [ -z "$found" ] && fetched python3-sklearn; then
	found=$dir/python3-sklearn/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz
fi
case $found in
'') skip_data "digits" "neither ../shared/data/digits/digits.csv beside the repository nor the package python3-sklearn, which apt cannot fetch" ;;
*.gz) zcat "$found" >"$dir/digits.csv" ;;
*) cp "$found" "$dir/digits.csv" ;;
esac
if [ -n "$found" ]; then
	bounded "$program" "$dir/digits.csv" "$dir/state"
	[ $rc -eq 0 ] && [ ! -s "$dir/err" ] &&
		awk '$0 ~ /^1437 images learned, 360 others: / { right = $6 } END { exit !(right >= 97) }' "$dir/out"
	ok "97 % of the images that it did not learn, or more" $?
	python3 - "$dir/state" >"$dir/out" 2>"$dir/err" <<'PYTHON'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
length = struct.unpack("<Q", data[:8])[0]
tensors = json.loads(data[8 : 8 + length])
shapes = {name: (t["dtype"], t["shape"]) for name, t in tensors.items()}
assert shapes == {"0.weight": ("F32", [512, 64]), "0.bias": ("F32", [512]),
                  "3.weight": ("F32", [10, 512]), "3.bias": ("F32", [10])}, shapes
begin, end = tensors["3.bias"]["data_offsets"]
bias = struct.unpack("<10f", data[8 + length + begin : 8 + length + end])
assert all(abs(b) < 1 for b in bias) and len(set(bias)) == 10, bias
assert len(data) == 8 + length + sum(t["data_offsets"][1] - t["data_offsets"][0] for t in tensors.values())
PYTHON
	rc=$?
	ok "the model is a safetensors file" $rc
	bounded "$farcall" run -n 2 -- "${program}_server" "$dir/digits.csv"
	[ $rc -eq 0 ] && [ ! -s "$dir/err" ] &&
		awk '$0 ~ /^1437 images learned, 360 others: / { right = $6 } END { exit !(right >= 97) }' "$dir/out"
	ok "97 % with the network on a parameter server" $?
fi

finish

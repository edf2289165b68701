#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Steps of training across two workers beside PyTorch's distributed autograd (Debian's python3-torch, which it installs),
# by turns in one run: medians, ratios and noise. train_step.c and train_torch.py define a step; both must reach the
# same loss.
# usage: train.sh BUILD [ROUNDS [SECONDS]]    rounds of all figures (5), seconds of each (1)
# exit status: 0; 1: a program failed, or the losses differ; 2: usage
set -u
usage="usage: train.sh BUILD [ROUNDS [SECONDS]]; BUILD has apps/libtrain/train_step"
if [ "${1:-}" = --help ]; then
	echo "$usage"
	exit 0
fi
if [ $# -lt 1 ] || [ $# -gt 3 ] || [ ! -x "$1/apps/libtrain/train_step" ]; then
	echo "$usage" >&2
	exit 2
fi
build=$1
rounds=${2:-5}
seconds=${3:-1}
here=$(cd "$(dirname "$0")" && pwd) || exit 1
# Debian's own interpreter: python3-torch installs for it alone.
python=/usr/bin/python3
if ! "$python" -c 'import torch' 2>/dev/null; then
	root=
	[ "$(id -u)" -eq 0 ] || root=sudo
	$root apt-get -o DPkg::Lock::Timeout=300 -q install -y --no-install-recommends python3-torch >&2 || {
		echo "train.sh: python3-torch is not installed" >&2
		exit 1
	}
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/farcall-train.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Appends the figures of a program: round, program, figure, ns, steps, loss.
measured() { # round, program, its command...
	round=$1 program=$2
	shift 2
	"$@" >"$dir/out" 2>"$dir/err" || {
		echo "train.sh: failed: $*" >&2
		tail -n 20 "$dir/err" >&2
		exit 1
	}
	sed "s/^/$round $program /" "$dir/out" >>"$dir/figures"
}

for round in $(seq "$rounds"); do
	for figure in add mlp embedding pipeline hop; do
		measured "$round" farcall "$build/farcall" run -n 2 -- "$build/apps/libtrain/train_step" "$figure" "$seconds"
		measured "$round" torch "$python" -B "$here/train_torch.py" "$figure" "$seconds"
	done
done

version=$("$python" -c 'import torch; print(torch.__version__)')
echo "torch $version, $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg)"
awk '
	function median(list, n, sorted, i, j, x) {
		n = split(list, sorted, " ")
		for (i = 2; i <= n; i++) {
			x = sorted[i] + 0
			for (j = i - 1; j > 0 && sorted[j] + 0 > x; j--)
				sorted[j + 1] = sorted[j]
			sorted[j + 1] = x
		}
		low = sorted[1]
		high = sorted[n]
		return n % 2 ? sorted[(n + 1) / 2] : (sorted[n / 2] + sorted[n / 2 + 1]) / 2
	}
	function row(what, ratio_of, as, bs, mine, theirs, range_a, range_b, ratio) {
		mine = median(as)
		range_a = sprintf("%.0f..%.0f", low / 1000, high / 1000)
		theirs = median(bs)
		range_b = sprintf("%.0f..%.0f", low / 1000, high / 1000)
		ratio = median(ratios[ratio_of])
		printf "%-34s %10.1f %16s %10.1f %16s %8.2f %16s\n", what, mine / 1000, range_a, theirs / 1000, \
			range_b, ratio, sprintf("%.2f..%.2f", low, high)
	}
	{
		ns[$2 "/" $3] = ns[$2 "/" $3] " " $4
		last[$2 "/" $3] = $4
		loss[$2 "/" $3] = $6
	}
	$2 == "torch" { ratios[$3] = ratios[$3] " " $4 / last["farcall/" $3] }
	$3 == "call" {
		ratios["call"] = ratios["call"] " " last["farcall/hop"] / $4
		hops = (last["farcall/hop"] - last["farcall/local"]) / 2
		ns["farcall/one"] = ns["farcall/one"] " " hops
		ratios["one"] = ratios["one"] " " hops / $4
	}
	END {
		printf "%-34s %10s %16s %10s %16s %8s %16s\n", "us, medians of rounds", "farcall", "rounds", "torch", \
			"rounds", "ratio", "rounds"
		n = split("add mlp embedding pipeline hop", figures, " ")
		for (i = 1; i <= n; i++) {
			f = figures[i]
			row(f == "hop" ? "backward of an empty remote graph" : f, f, ns["farcall/" f], ns["torch/" f])
			a = loss["farcall/" f]
			b = loss["torch/" f]
			if ((a - b) ^ 2 > (1e-3 * b) ^ 2) {
				printf "train.sh: the losses of %s differ: %s and %s\n", f, a, b > "/dev/stderr"
				bad = 1
			}
		}
		row("that, and a typed call", "call", ns["farcall/hop"], ns["farcall/call"])
		row("one of its two hops, and the call", "one", ns["farcall/one"], ns["farcall/call"])
		exit bad
	}' "$dir/figures"

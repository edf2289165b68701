#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The main job as a new user starts it: apps/quickstart.sh builds and trains, on generated data and on a9a.
# usage: train.sh SOURCE_TOP BUILD
set -u
top=$1
. "$(dirname "$0")/cases.sh"

# Beside the build, with its options and its compiler: called by the same name, with the same words, ccache has most of
# the objects.
FARCALL_BUILD=$(dirname "$2")/build-train-$$
export FARCALL_BUILD
trap 'rm -rf "$dir" "$FARCALL_BUILD"' EXIT
unset SUDO_USER
CC=$(python3 - "$2/meson-info/intro-targets.json" <<'END'
import json, sys
print(*next(s["compiler"] for t in json.load(open(sys.argv[1])) for s in t["target_sources"] if s.get("language") == "c"))
END
)
export CC
# As on a system without dpkg-dev.
mkdir "$dir/without" "$dir/bin"
printf '#!/bin/sh\nexit 1\n' >"$dir/without/dpkg-architecture"
chmod 755 "$dir/without/dpkg-architecture"
PATH=$dir/without:$PATH
if grep -q '"name": "werror", "value": true' "$2/meson-info/intro-buildoptions.json"; then
	printf '#!/bin/sh\nPATH="%s"\n[ "$1" != setup ] || set -- "$@" -Dwerror=true\nexec meson "$@"\n' "$PATH" >"$dir/bin/meson"
	chmod 755 "$dir/bin/meson"
	PATH=$dir/bin:$PATH
fi

quickstart() { bounded sh "$top/apps/quickstart.sh" "$@"; }

keys='positive(j, "test_auc", "test_logloss", "test_accuracy", "samples_per_s", "pull_p50_ns", "push_p50_ns", "seconds")'
one_object() { [ $rc -eq 0 ] && [ "$(lines_of_out)" -eq 1 ] && json "$keys and j['mode'] == '$1'"; }

quickstart --help
[ $rc -eq 0 ] && has out '^usage: sh apps/quickstart.sh' && [ ! -e "$FARCALL_BUILD" ]
ok "quickstart.sh --help, which builds nothing" $?

# The first one builds: what that takes is the compiler's and the machine's.
guard_s=900
for mode in async bsp; do
	[ $mode = async ] || in_full || continue
	quickstart --mode $mode --json
	one_object $mode
	ok "quickstart.sh --mode $mode --json: one object" $?
	# The model that made the data reaches bayes_auc; chance is 0.5.
	json 'j["bayes_auc"] - 0.01 < j["test_auc"] < j["bayes_auc"] + 0.005 and
		j["test_logloss"] < j["bayes_logloss"] + 0.01 and j["test_accuracy"] > 0.75'
	ok "$mode, generated data: close to the best there can be" $?
	has err 'epoch '
	ok "$mode: progress while training" $?
	guard_s=240
done

quickstart
[ $rc -eq 0 ] && has out 'AUC' && has out 'p50' && [ "$(lines_of_out)" -ge 5 ]
ok "quickstart.sh: a table at the end" $?
measured() { # a driver, with its floor, or why not
	has out "^  $1 *[0-9.]* us *[0-9.]* us *[0-9.]*$" || has out "^  $1: not measured: ."
}
measured shm && measured memif && measured udp && has err '^ *Drivers' && has err '^ *verbs *: .'
ok "quickstart.sh: the drivers, and a measured line for each" $?
# shellcheck disable=SC2086 # words of a command
multiarch=$($CC -print-multiarch 2>/dev/null)
[ -z "$multiarch" ] || grep -q "\"name\": \"libdir\", \"value\": \"lib/$multiarch\"" "$FARCALL_BUILD/meson-info/intro-buildoptions.json"
ok "quickstart.sh: libraries go where the system looks for them, without dpkg-dev too" $?

quickstart --servers 3 --workers 1 --rows 3000 --epochs 2 --json
one_object async && json 'j["settings"]["servers"] == 3 and j["settings"]["workers"] == 1'
ok "3 servers, 1 worker" $?
quickstart --servers 1 --workers 3 --rows 3000 --epochs 2 --mode bsp --json
one_object bsp && json 'j["settings"]["servers"] == 1 and j["settings"]["workers"] == 3'
ok "1 server, 3 workers" $?

a9a=$top/../shared/data/a9a
for mode in async bsp; do
	[ $mode = async ] || in_full || continue
	if [ ! -r "$a9a/a9a" ] || [ ! -r "$a9a/a9a.t" ]; then
		skip_data "a9a, $mode" "no ../shared/data/a9a/a9a and a9a.t beside the repository"
		continue
	fi
	quickstart --data "$a9a/a9a" --test "$a9a/a9a.t" --mode $mode --json
	one_object $mode && json 'j["test_auc"] >= 0.900 and j["test_logloss"] <= 0.330'
	ok "a9a, $mode: AUC of 0.900 and log loss of 0.330 or better" $?
done

finish

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# `meson dist`: the archive has what the last commit has; without git it configures, builds, and passes tests of its own.
# usage: dist.sh BUILD_TOP SOURCE_TOP
set -u
build=$1
top=$2
. "$(dirname "$0")/../e2e/cases.sh"
guard_s=500 # a build, where ccache has nothing

if ! git -C "$top" rev-parse --verify HEAD >/dev/null 2>&1; then
	skip "meson dist" "a clone of the repository, and git (package git)"
	finish
	exit
fi
rm -rf "$build/meson-dist"
bounded meson dist -C "$build" --no-tests --allow-dirty --formats gztar
archive=$(find "$build/meson-dist" -name '*.tar.gz')
[ $rc -eq 0 ] && [ -f "$archive" ]
ok "meson dist" $?
tar xzf "$archive" -C "$dir"
tree=$(find "$dir" -mindepth 1 -maxdepth 1 -type d -name 'farcall-*')
git -C "$top" ls-tree -r --name-only HEAD | sort >"$dir/committed"
(cd "$tree" && find . -type f -o -type l) | sed 's|^\./||' | sort | diff "$dir/committed" - >"$dir/err"
ok "it has the files of the last commit" $?

# As deep as the build directory, with its compiler and its options: ccache has the objects.
export GIT_DIR=/nonexistent
werror=$(grep -q '"name": "werror", "value": true' "$build/meson-info/intro-buildoptions.json" && echo true || echo false)
bounded meson setup "$tree/build" "$tree" --buildtype=release -Dwerror="$werror"
[ $rc -eq 0 ]
ok "it configures without git" $?
bounded ninja -C "$tree/build" -n
[ $rc -eq 0 ]
ok "every source is there" $?
bounded meson test -C "$tree/build" --list --no-rebuild
for name in api_rpc examples guide install readme layers; do
	has out "$name\$" || echo "$name" >>"$dir/lacking"
done
[ $rc -eq 0 ] && [ ! -e "$dir/lacking" ]
ok "so are the tests" $?
own="api_rpc api_rref transport/rtt value/signature"
# shellcheck disable=SC2086 # words
bounded meson test -C "$tree/build" --print-errorlogs --num-processes 1 $own
[ $rc -eq 0 ] && has out "^Ok: *$(echo $own | wc -w)" && has out '^Fail: *0'
ok "tests of its own pass in it: $own" $?
finish

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The README's example, the first C block with a main(), builds without a warning and runs.
# usage: readme.sh FARCALL SOURCE_TOP BUILD_TOP
set -u
farcall=$1
top=$2
build=$3
. "$(dirname "$0")/cases.sh"
export FAR_LOG=warning # a join that takes long on a busy machine is no error
. "$(dirname "$0")/veth.sh"

awk '
	/^```/ && inside { inside = 0; if (block ~ /int main/) { printf "%s", block; exit } next }
	/^```c$/ { inside = 1; block = ""; next }
	inside { block = block $0 "\n" }
' "$top/README.md" >"$dir/example.c" 2>"$dir/err"
[ -s "$dir/example.c" ]
ok "README.md has a C block with a main()" $?

cc=${CC:-cc}
# shellcheck disable=SC2086 # CC may have arguments
bounded $cc -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -I"$top/include" "$dir/example.c" -o "$dir/example" \
	-L"$build/engine" -lfarcall -Wl,-rpath,"$build/engine" -pthread
[ $rc -eq 0 ]
ok "it builds" $?

if command -v g++ >/dev/null; then
	bounded g++ -x c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I"$top/include" -fsyntax-only "$dir/example.c"
	[ $rc -eq 0 ]
	ok "it is valid C++17" $?
else
	skip "it is valid C++17" "g++"
fi

bounded "$farcall" run -n 2 -- "$dir/example"
[ $rc -eq 0 ] && [ "$(cat "$dir/out")" = "$(sed -n 's,.*/\* \(f32.*\) \*/.*,\1,p' "$dir/example.c")" ] && [ ! -s "$dir/err" ]
ok "it runs under farcall run -n 2, and prints once what it says" $?

[ "$(wc -l <"$top/README.md")" -lt 150 ]
ok "README.md has less than 150 lines" $?

# On two hosts, as nic/TWO_HOSTS.md has it: the environment alone differs.
bounded "$farcall" key "$dir/group.key"
interface() { at "$1" ip addr add "10.81.0.$2/24" dev far0; }
veth "it runs on two hosts by the environment alone"
export FAR_KEY_FILE="$dir/group.key" MASTER_ADDR=10.81.0.1 MASTER_PORT=29500 WORLD_SIZE=2
at "$b" env RANK=1 "$dir/example" >"$dir/second" 2>&1 &
others=$!
bounded nsenter -t "$a" -n env RANK=0 "$dir/example"
first=$rc
wait "$others" && [ "$first" -eq 0 ] && [ ! -s "$dir/second" ] && [ ! -s "$dir/err" ] &&
	[ "$(cat "$dir/out")" = "$(sed -n 's,.*/\* \(f32.*\) \*/.*,\1,p' "$dir/example.c")" ]
ok "it runs on two hosts by the environment alone" $?
others=

finish

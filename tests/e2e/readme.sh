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

finish

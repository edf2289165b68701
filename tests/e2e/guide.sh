#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The guide: every program in its pages builds without a warning, every command runs, and prints what is shown.
#
# In a page, a block of C or C++ begins with its file's name; blocks of sh run in order in one directory, and a block of text
# behind one is what it prints, with … for anything. Blocks of sh that begin with "# host N" run side by side, each in a
# network namespace with the address 10.80.0.N.
# usage: guide.sh FARCALL SOURCE_TOP BUILD_TOP
set -u
farcall=$(realpath "$1")
top=$2
build=$3
. "$(dirname "$0")/cases.sh"
export FAR_LOG=warning # a join that takes long on a busy machine is no error
. "$(dirname "$0")/veth.sh"
interface() { at "$1" ip address add 10.80.0.$2/24 dev far0; }

# What the commands use, as if it were installed.
mkdir "$dir/bin"
ln -s "$farcall" "$dir/bin/farcall"
compiler() { # name, standard, command
	words=
	for word in $3; do # perhaps behind ccache
		words="$words $(command -v "$word")"
	done
	printf '#!/bin/sh\nexec%s -std=%s -O1 -Wall -Wextra -Wpedantic -Werror "$@"\n' "$words" "$2" >"$dir/bin/$1"
	chmod +x "$dir/bin/$1"
}
compiler cc c11 "${CC:-cc}"
compiler c++ c++17 "${CXX:-c++}"
package() { # name, directory of its library, what it requires
	cat >"$dir/bin/$1.pc" <<-END
		Name: $1
		Description: the build tree
		Version: 0
		Requires: $3
		Cflags: -I$top/include
		Libs: -L$build/$2 -l$1 -Wl,-rpath,$build/$2
	END
}
package farcall engine ''
package farcall-ops apps/libops farcall
package farcall-train apps/libtrain farcall-ops
export PATH="$dir/bin:$PATH" PKG_CONFIG_PATH="$dir/bin"

# Splits a page into NUMBER.KIND files, and writes the programs to their files.
split() { # page, directory
	awk -v dir="$2" '
		/^```(c|cpp|sh|text)$/ { to = sprintf("%s/%02d.%s", dir, ++n, substr($0, 4)); first = 1; printf "" >to; next }
		/^```/ { to = ""; next }
		to { if (first && $0 ~ /^\/\* [a-z_]*\.cc? \*\/$/) { to = dir "/" $2 } first = 0; print >to }
	' "$1"
}

shown() { # what is shown, output
	python3 - "$1" "$2" <<'PYTHON'
import re, sys
shown, out = (open(name, encoding="utf-8").read() for name in sys.argv[1:3])
sys.exit(re.fullmatch(".*".join(re.escape(part) for part in shown.rstrip("\n").split("…")), out.rstrip("\n"), re.S) is None)
PYTHON
}

pages=$(sed -n '/^| page |/,/^$/s/^| \[[^]]*\](\([^)]*\)).*/\1/p' "$top/README.md")
[ "$(echo "$pages" | wc -l)" -eq 11 ]
ok "README.md has the eleven pages of the guide" $?

for page in $pages; do
	name=$(basename "$page" .md)
	work=$dir/$name
	mkdir "$work"
	split "$top/$page" "$work"
	hosts=
	for block in "$work"/*.sh; do
		[ -s "$block" ] || continue
		case $(head -n 1 "$block") in
		"# host "*)
			hosts="$hosts $block"
			continue
			;;
		esac
		bounded env -C "$work" sh -eu "$block"
		status=$rc
		text=$(printf '%s/%02d.text' "$work" $(($(basename "$block" .sh | sed 's/^0//') + 1)))
		# A floor is refused while something else is running.
		if [ "$status" -eq 0 ]; then [ ! -e "$text" ] || shown "$text" "$dir/out"; else says 'something else is running on these cores'; fi
		ok "$name: $(head -n 1 "$block")" $?
	done
	if [ -n "$hosts" ]; then
		veth "$name: two hosts" || continue
		set -- $hosts
		at "$b" env -C "$work" sh -eu "$2" >"$dir/second" 2>&1 &
		others=$!
		bounded nsenter -t "$a" -n env -C "$work" sh -eu "$1"
		first=$rc
		wait "$others"
		[ "$first" -eq 0 ] && [ $? -eq 0 ] && has out '^logistic regression, mode async, 1 worker,'
		ok "$name: two hosts with these addresses" $?
		others=
	fi
	[ "$(wc -l <"$top/$page")" -le 100 ]
	ok "$name: has at most 100 lines" $?
done

# Every page is reached from the one before it, and names only what the headers have.
for page in $pages; do
	sed '/^```/,/^```/d' "$top/$page" | grep -o '](\([^)]*\))' | sed 's/^](//; s/)$//' | while read -r link; do
		[ -e "$(dirname "$top/$page")/${link%%#*}" ] || echo "$page: no $link"
	done
done >"$dir/err"
[ ! -s "$dir/err" ]
ok "the links of the pages lead somewhere" $?
# Variables of the environment are in SETTINGS.md, which is compared with the source below.
sed -n 's/^| `\(FAR_[A-Z_]*\)` | [^|0-9 ][^|]*|[^|]*|$/s,\\b\1\\b,,g/p' "$top/engine/SETTINGS.md" >"$dir/variables.sed"
mkdir "$dir/pages"
for page in $pages; do
	sed -f "$dir/variables.sed" "$top/$page" >"$dir/pages/$(basename "$page")"
	grep -q 'far_\|FAR_' "$dir/pages/$(basename "$page")" || rm "$dir/pages/$(basename "$page")"
done
bounded python3 "$(dirname "$0")/example_names.py" "$top/include/farcall" "$dir"/pages/*
[ $rc -eq 0 ]
ok "the pages name what the headers have" $?

bounded python3 "$(dirname "$0")/settings.py" "$top"
[ $rc -eq 0 ]
ok "SETTINGS.md: the tables of variables and limits are those of the source" $?
for change in 's/^| `FAR_NIC` .*//' 's/`FAR_MEMORY_MAX` |/`FAR_MEMORY_MOST` |/' 's/^| `FAR_DICT_MAX` .*//' 's/| 16 | arguments/| 17 | arguments/' \
	's/^| `calls` | 16384/| `calls` | 16385/'; do
	bounded python3 "$(dirname "$0")/settings.py" "$top" "$change"
	[ $rc -eq 1 ]
	ok "SETTINGS.md: $change is found" $?
done

finish

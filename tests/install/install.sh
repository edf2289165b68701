#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What `meson install` leaves: an application outside the tree builds against it, statically and shared, in C11 and
# C++17, and the library shows nothing but its interface.
# usage: install.sh BUILD_TOP SOURCE_TOP
set -u
build=$1
source=$2/tests/install
. "$(dirname "$0")/../e2e/cases.sh"

bounded env DESTDIR="$dir/root" meson install -C "$build" --no-rebuild
[ $rc -eq 0 ]
ok "meson install" $?

# pkg-config gives the paths below the DESTDIR: the sysroot is put before them.
pc=$(find "$dir/root" -name farcall.pc)
export PKG_CONFIG_LIBDIR="${pc%/*}" PKG_CONFIG_SYSROOT_DIR="$dir/root"
lib=$(dirname "$PKG_CONFIG_LIBDIR")
farcall=$(find "$dir/root" -path '*/bin/farcall')
[ -n "$pc" ] && bounded pkg-config --modversion farcall && "$farcall" --version >"$dir/err" &&
	[ "farcall $(cat "$dir/out")" = "$(cat "$dir/err")" ]
ok "pkg-config finds it, with the version of the program" $?

for header in agent farcall future memory message rpc status value version; do
	find "$dir/root" -path "*/include/farcall/$header.h" | grep -q . || echo "$header.h is missing"
done >"$dir/out"
[ ! -s "$dir/out" ] && ! find "$dir/root" -name '*.h' | grep -qv -e '/include/farcall/' -e '/doc/farcall/examples/'
ok "the public headers, and no other but those of the examples" $?

for header in "$2"/include/farcall/*.h; do
	echo "#include <farcall/$(basename "$header")>"
	echo "int use_$(basename "$header" .h)(void);"
done >"$dir/each"
flags="-Wall -Wextra -Wpedantic -Wshadow -Werror -O1"
cflags=$(pkg-config --cflags farcall)
mkdir "$dir/alone"
for header in "$2"/include/farcall/*.h; do
	echo "#include <farcall/${header##*/}>" >"$dir/alone/${header##*/}.c"
done
for lang in c:gcc:c11 c:clang:c11 c++:g++:c++17 c++:clang++:c++17; do
	name=${lang%%:*}
	std=${lang##*:}
	compiler=${lang#*:}
	compiler=${compiler%:*}
	if ! command -v "$compiler" >/dev/null; then
		skip "headers and application, $compiler" "$compiler (package ${compiler%++})"
		continue
	fi
	bounded "$compiler" -x "$name" -std=$std $flags $cflags -fsyntax-only "$dir"/alone/*
	[ $rc -eq 0 ] && [ ! -s "$dir/err" ]
	ok "$compiler: every header alone" $?
	for macro in FAR_ARGS FAR_LIST FAR_DICT; do
		for n in 16 17 48; do
			[ $macro = FAR_DICT ] && item='FAR_ENTRY(&, &)' || item='&'
			items=$(seq $n | sed "s/.*/$item/" | paste -sd , -)
			printf '%s\n' '#include <farcall/farcall.h>' 'void take(const struct far_val *of, size_t n);' \
				'void take_one(struct far_val v);' 'void use(void);' \
				"void use(void) { $([ $macro = FAR_ARGS ] && echo take || echo take_one)($macro($items)); }" >"$dir/items"
			bounded "$compiler" -x "$name" -std=$std $flags $cflags -fsyntax-only "$dir/items"
			if [ $n -eq 16 ]; then
				[ $rc -eq 0 ]
			else
				[ $rc -ne 0 ] && says FAR_ARGS_FAR_LIST_and_FAR_DICT_take_16_items_at_most
			fi
			ok "$compiler: $macro of $n items" $?
		done
	done
	[ "$name" = c ] && program=hello.c || program=headers.cc
	for how in shared static; do
		if [ $how = shared ]; then
			libs="$(pkg-config --libs farcall) -Wl,-rpath,$lib"
		else
			libs="-L$lib -Wl,-Bstatic -lfarcall -Wl,-Bdynamic $(pkg-config --static --libs-only-other farcall) -lsodium"
		fi
		# shellcheck disable=SC2046,SC2086 # words of a command
		bounded "$compiler" -std=$std $flags $cflags "$source/$program" -o "$dir/app" $libs
		[ $rc -eq 0 ]
		ok "$compiler, $how: $program builds" $?
		readelf -d "$dir/app" >"$dir/out" 2>"$dir/err"
		[ "$(grep -c 'NEEDED.*libfarcall\.so\.' "$dir/out")" -eq "$([ $how = shared ] && echo 1 || echo 0)" ]
		ok "$compiler, $how: is the requested one" $?
		if [ $program = hello.c ]; then
			bounded "$farcall" run -n 2 -- sh -c 'exec "$0" "member$RANK"' "$dir/app"
			[ $rc -eq 0 ] && [ "$(cat "$dir/out")" = "hello, worker number 0" ] &&
				says '[1] hello, worker number 1'
		else
			bounded "$farcall" run -n 1 -- "$dir/app"
			[ $rc -eq 0 ] && [ "$(cat "$dir/out")" = 3.5 ]
		fi
		ok "$compiler, $how: $program runs" $?
		rm -f "$dir/app"
	done
done

# Memory: with and without jemalloc, which a program brings; beside another malloc: a jemalloc of the application's own,
# and ASan's.
plain() { pkg-config --libs farcall; }
static_plain() { echo "-L$lib -Wl,-Bstatic -lfarcall -Wl,-Bdynamic $(pkg-config --static --libs-only-other farcall) -lsodium"; }
with_jemalloc() { pkg-config --libs farcall-jemalloc; }
static_jemalloc() { echo "-L$lib -Wl,-u,far_jemalloc -lfarcall-jemalloc $(static_plain) -lm"; }
for how in plain static_plain with_jemalloc static_jemalloc; do
	case $how in *jemalloc) allocator="^jemalloc 5" ;; *) allocator="^page runs$" ;; esac
	if [ "$how" != "${how%jemalloc}" ] && ! pkg-config --exists farcall-jemalloc; then
		skip "memory, $how" "jemalloc (package libjemalloc-dev, when the build is configured)"
		continue
	fi
	for with in gcc:-O1 gcc:-ljemalloc clang:-O1 "gcc:-fsanitize=address,undefined -g" "clang:-fsanitize=address,undefined -g"; do
		if [ "$with" = gcc:-ljemalloc ] && ! pkg-config --exists farcall-jemalloc; then
			skip "memory, $how, beside the application's own jemalloc" "jemalloc (package libjemalloc-dev)"
			continue
		fi
		if ! command -v "${with%%:*}" >/dev/null; then
			skip "memory, $how, $with" "${with%%:*}"
			continue
		fi
		# shellcheck disable=SC2046,SC2086 # words of a command
		bounded "${with%%:*}" -std=c11 -Wall -Wextra -Werror ${with#*:} $(pkg-config --cflags farcall) \
			"$source/memory.c" -o "$dir/app" $($how) ${with#*:} "-Wl,-rpath,$lib" &&
			[ $rc -eq 0 ] && bounded "$farcall" run -n 1 -- "$dir/app" && [ $rc -eq 0 ] && has out "$allocator"
		ok "memory, $how, $with" $?
		rm -f "$dir/app"
	done
done
nm -a "$lib/libfarcall.so" >"$dir/out"
! has out 'je_\|jemalloc'
ok "the shared library holds no jemalloc" $?

readelf -d "$lib/libfarcall.so" >"$dir/out"
has out 'SONAME.*\[libfarcall\.so\.[0-9]*\]'
ok "the shared library has a soname" $?
nm -D --defined-only "$lib/libfarcall.so" | awk '{print $3}' | sed 's/@.*//' | grep -v '^FARCALL_' >"$dir/out"
[ -s "$dir/out" ] && ! grep -v '^far_' "$dir/out" >"$dir/err"
ok "it exports far_* and nothing else" $?
sort -u "$dir/out" >"$dir/exported"

nm -D --defined-only "$lib/libfarcall-ops.so" | awk '{print $3}' | sed 's/@.*//' | grep -v '^FARCALL_' | sort -u >"$dir/ops"
[ -s "$dir/ops" ] && ! grep -v -e '^far_op_' -e '^far_ops_module$' "$dir/ops" >"$dir/err"
ok "libfarcall-ops exports far_op_*, far_ops_module and nothing else" $?
sed -i '/^far_ops_module$/d' "$dir/ops" # no function
readelf -d "$lib/libfarcall-ops.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v '^lib[cm]\.so\.' >"$dir/err"
[ ! -s "$dir/err" ]
ok "libfarcall-ops needs the C library alone" $?

nm -D --defined-only "$lib/libfarcall-train.so" | awk '{print $3}' | sed 's/@.*//' | grep -v '^FARCALL_' | sort -u >"$dir/train"
[ -s "$dir/train" ] && ! grep -Ev '^far_((pool|var|tape|grads|optimizer|module|train|context|compressor|dist_optimizer|remote_module)_|(rref_)?backward$)' "$dir/train" >"$dir/err"
ok "libfarcall-train exports its own names and nothing else" $?
# shellcheck disable=SC2046 # words of a command
bounded cc -std=c11 -Wall -Wextra -Werror $(pkg-config --cflags farcall-train) "$2/apps/examples/digits.c" -o "$dir/app" \
	$(pkg-config --libs farcall-train) "-Wl,-rpath,$lib" && [ $rc -eq 0 ] && bounded "$dir/app" && [ $rc -eq 2 ] &&
	says "DIGITS.CSV is missing"
ok "a program builds with pkg-config's farcall-train, and runs" $?
rm -f "$dir/app"

nm -D --defined-only "$lib/libfarcall-ps.so" | awk '{print $3}' | sed 's/@.*//' | grep -v '^FARCALL_' | sort -u >"$dir/ps"
[ -s "$dir/ps" ] && ! grep -v '^far_ps_' "$dir/ps" >"$dir/err"
ok "libfarcall-ps exports far_ps_* and nothing else" $?
# shellcheck disable=SC2046 # words of a command
bounded cc -std=c11 -Wall -Wextra -Werror $(pkg-config --cflags farcall-ps) "$2/apps/examples/tables.c" -o "$dir/app" \
	$(pkg-config --libs farcall-ps) "-Wl,-rpath,$lib" && [ $rc -eq 0 ] &&
	bounded "$farcall" run -n 3 -- "$dir/app" && [ $rc -eq 0 ] && has out 'user 7: -0.05 -0.05 ROW'
ok "a program builds with pkg-config's farcall-ps, and runs" $?
rm -f "$dir/app"

# The static library exports the same. A program that defines all names which the engine has inside links and runs.
nm -g --defined-only "$lib/libfarcall.a" | awk 'NF == 3 { print $3 }' >"$dir/static"
sort "$dir/static" | diff - "$dir/exported" >"$dir/err" && [ -s "$dir/static" ] && ! grep -v '^far_' "$dir/static" >>"$dir/err"
ok "the static library exports the same names, far_* alone" $?
nm -g --defined-only "$build/engine/libfarcall-internal.a" | awk 'NF == 3 && $3 ~ /^[A-Za-z_0-9]+$/ && $3 !~ /^far_/ { print "int " $3 ";" }' |
	sort -u >"$dir/names.c"
# shellcheck disable=SC2046 # words of a command
bounded cc -std=c11 -fno-builtin $(pkg-config --cflags farcall) "$source/hello.c" "$dir/names.c" -o "$dir/app" $(static_plain)
[ $rc -eq 0 ] && [ "$(wc -l <"$dir/names.c")" -gt 500 ]
ok "a program with names of the engine's links the static library" $?
bounded "$farcall" run -n 2 -- sh -c 'exec "$0" "member$RANK"' "$dir/app"
[ $rc -eq 0 ] && [ "$(cat "$dir/out")" = "hello, worker number 0" ] && says '[1] hello, worker number 1'
ok "a program with names of the engine's runs" $?
rm -f "$dir/app"

# Every function that a header declares is there.
sed -n 's/^[a-z].*[ *]\(far_[a-z0-9_]*\)(.*/\1/p' "$2"/include/farcall/*.h | sort -u >"$dir/declared"
grep -h '^static inline' "$2"/include/farcall/*.h | sed -n 's/.*[ *]\(far_[a-z0-9_]*\)(.*/\1/p' | sort -u >"$dir/inline"
grep '^typedef' -h "$2"/include/farcall/*.h | sed -n 's/.*[ *]\(far_[a-z0-9_]*\)(.*/\1/p' | sort -u >>"$dir/inline"
sort -u "$dir/exported" "$dir/ops" "$dir/train" "$dir/ps" >"$dir/both"
sort -u "$dir/inline" | comm -23 "$dir/declared" - | comm -23 - "$dir/both" >"$dir/err"
[ -s "$dir/declared" ] && [ ! -s "$dir/err" ]
ok "every function that the headers declare is exported" $?

# Manual pages: one for each function, none for anything else; all are formatted without a warning and can be indexed.
man=$(dirname "$(find "$dir/root" -type d -name man3)")
grep -h '^static inline' "$2"/include/farcall/*.h | sed -n 's/.*[ *]\(far_[a-z0-9_]*\)(.*/\1/p' | sort -u >"$dir/inline"
for page in "$man"/man3/*.3; do basename "$page" .3; done | sort >"$dir/pages"
comm -23 "$dir/both" "$dir/pages" >"$dir/err"
[ -s "$dir/pages" ] && [ ! -s "$dir/err" ]
ok "every exported function has a manual page" $?
sort -u "$dir/both" "$dir/inline" | comm -13 - "$dir/pages" >"$dir/err"
[ ! -s "$dir/err" ]
ok "every manual page of section 3 is of a function" $?
for header in "$2"/include/farcall/*.h; do
	header=$(basename "$header" .h)
	[ "$header" = farcall ] || [ -s "$man/man7/farcall_$header.h.7" ] || echo "farcall_$header.h.7 is missing"
done >"$dir/err"
for command in $("$farcall" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p') perf-latency perf-ps perf-sim perf-sim-goodput; do
	[ -s "$man/man1/farcall-$command.1" ] || echo "farcall-$command.1 is missing"
done >>"$dir/err"
[ ! -s "$dir/err" ]
ok "every header and command has a manual page" $?
# The C++ header: its classes, with their members, and nothing that is inside.
for word in call_with async_with to_here_async class_builder co_await ranked_view; do
	grep -q "$word" "$man/man7/farcall.hpp.7" || echo "farcall.hpp.7 lacks $word"
done >"$dir/err" 2>&1
for word in detail:: promise_ await_ far_rref_free type_of; do
	! grep -q "$word" "$man/man7/farcall.hpp.7" || echo "farcall.hpp.7 has $word"
done >>"$dir/err"
[ ! -s "$dir/err" ]
ok "the manual page of the C++ header" $?
for command in lexgrog groff man cmake zsh; do
	command -v $command >/dev/null || echo "$command"
done >"$dir/missing"
if grep -q 'lexgrog\|groff\|man' "$dir/missing"; then
	skip "manual pages, formatted" "man-db (packages man-db and groff-base)"
else
	bounded groff -K utf8 -m man -w w -T utf8 -z "$man"/man[137]/*
	[ $rc -eq 0 ] && [ ! -s "$dir/out" ] && [ ! -s "$dir/err" ]
	ok "the manual pages have no error for groff" $?
	bounded sh -c 'find "$1" -type f | xargs -P 2 -n 32 lexgrog' sh "$man"
	[ $rc -eq 0 ] && [ "$(wc -l <"$dir/out")" -eq "$(find "$man" -type f | wc -l)" ]
	ok "the manual pages can be indexed" $?
	printf '.TH x 1\n.SH NAME\nx without a dash\n' >"$dir/wrong.1"
	printf '.TH x 1\n.SH NAME\n.B\nx \\- y\n\\[nowhere]\n' >"$dir/odd.1"
	! lexgrog "$dir/wrong.1" >"$dir/out" 2>"$dir/err" && groff -m man -w w -T utf8 -z "$dir/odd.1" 2>"$dir/err" &&
		[ -s "$dir/err" ]
	ok "both find a wrong page" $?
	bounded env MANPAGER=cat MANWIDTH=80 man -M "$man" far_rpc_sync
	tr -s ' ' <"$dir/out" >"$dir/text"
	[ $rc -eq 0 ] && grep -q '^ #include <farcall/rpc.h>' "$dir/text" && grep -q 'uint64_t timeout_ns;' "$dir/text" &&
		grep -q 'UNKNOWN_WORKER' "$dir/text"
	ok "man far_rpc_sync: the header, the options, the errors" $?
	bounded env MANPAGER=cat MANWIDTH=80 man -M "$man" farcall run
	[ $rc -eq 0 ] && has out '--workers'
	ok "man farcall run" $?
fi

# Completion: what the shells make of a beginning.
completion=$(find "$dir/root" -path '*/bash-completion/completions/farcall')
complete_bash() { # words
	bash --norc -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _farcall
		printf "%s\n" "${COMPREPLY[@]}"' bash "$completion" "$@" >"$dir/out" 2>"$dir/err"
}
expect_bash() { # expected, words
	expected=$1
	shift
	complete_bash "$@"
	[ "$(sort -u "$dir/out" | tr '\n' ' ')" = "$expected " ] && [ ! -s "$dir/err" ]
	ok "bash completes '$*'" $?
}
expect_bash "train" farcall tra
expect_bash "tables top train" farcall t
expect_bash "--interval" farcall top --i
expect_bash "perf pserver" farcall p
expect_bash "--optimizer" farcall train --opt
expect_bash "goodput" farcall perf sim go
expect_bash "--bytes" farcall perf latency --nic udp --by
expect_bash "readelf" farcall run -n 2 -- readel
for command in train "perf rate" "perf sim mix" run; do
	# shellcheck disable=SC2086 # words of a command
	"$farcall" $command --help | sed -n 's/^  .\{4\}\(--[a-z0-9-]*\).*/\1/p' | sort >"$dir/options"
	# shellcheck disable=SC2086
	complete_bash farcall $command --
	[ "$(wc -l <"$dir/options")" -gt 3 ] && sort "$dir/out" | diff "$dir/options" - >"$dir/err"
	ok "bash completes every option of farcall $command" $?
done
if grep -q zsh "$dir/missing"; then
	skip "completion of zsh" "zsh"
else
	cat >"$dir/setup.zsh" <<END
fpath=($(dirname "$(find "$dir/root" -name _farcall)") \$fpath)
autoload -U compinit
compinit -D -u
farcall() { print -r -- "<got>\$*</got>" }
print "<ready>"
END
	cat >"$dir/complete.zsh" <<'END'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "source $1"
zpty -r shell text $'*<ready>*'
zpty -n -w shell "$2"$'\t\n'
zpty -r shell text $'*<got>*</got>*'
print -r -- ${${text##*<got>}%%</got>*}
END
	for line in "tra:train" "train --opti:train --optimizer" "perf sim go:perf sim goodput" "perf latency --by:perf latency --bytes"; do
		bounded env TERM=dumb zsh -f "$dir/complete.zsh" "$dir/setup.zsh" "farcall ${line%%:*}"
		[ $rc -eq 0 ] && [ "$(sed 's/ *$//' "$dir/out")" = "${line#*:}" ]
		ok "zsh completes 'farcall ${line%%:*}'" $?
	done
fi

# CMake finds the package, and builds an application with each library.
if grep -q cmake "$dir/missing"; then
	skip "the package of CMake" "cmake"
else
	mkdir "$dir/cmake"
	cat >"$dir/cmake/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.18)
project(app C)
find_package(Farcall $("$farcall" --version | sed 's/.* //') REQUIRED COMPONENTS ops)
foreach(kind farcall farcall-static)
  add_executable(app-\${kind} $source/hello.c)
  target_link_libraries(app-\${kind} Farcall::\${kind})
endforeach()
add_executable(tensors tensors.c)
target_link_libraries(tensors Farcall::ops Farcall::farcall)
END
	cat >"$dir/cmake/tensors.c" <<'END'
#include <farcall/ops.h>
int main(void)
{
	float a[2] = {1, 2}, b[2] = {3, 4};
	struct far_tensor x = far_tensor_1d(FAR_F32, a, 2), y = far_tensor_1d(FAR_F32, b, 2);
	return far_op_add(&x, &y, &y, NULL) || b[0] != 4 || b[1] != 6;
}
END
	bounded cmake -S "$dir/cmake" -B "$dir/cmake/build" -DFarcall_DIR="$lib/cmake/Farcall"
	[ $rc -eq 0 ] && bounded cmake --build "$dir/cmake/build" && [ $rc -eq 0 ]
	ok "CMake builds an application with find_package(Farcall)" $?
	for kind in farcall farcall-static; do
		bounded "$farcall" run -n 2 -- sh -c 'exec "$0" "member$RANK"' "$dir/cmake/build/app-$kind"
		[ $rc -eq 0 ] && [ "$(cat "$dir/out")" = "hello, worker number 0" ]
		ok "CMake: the application with $kind runs" $?
	done
	bounded "$dir/cmake/build/tensors"
	[ $rc -eq 0 ]
	ok "CMake: the application with ops runs" $?
	for wrong in 's/COMPONENTS ops/COMPONENTS none/' 's/Farcall [0-9.]*/Farcall 99.0/'; do
		mkdir "$dir/cmake/wrong"
		sed "$wrong" "$dir/cmake/CMakeLists.txt" >"$dir/cmake/wrong/CMakeLists.txt"
		bounded cmake -S "$dir/cmake/wrong" -B "$dir/cmake/wrong/build" -DFarcall_DIR="$lib/cmake/Farcall"
		[ $rc -ne 0 ] && has err 'no component none\|requested version "99.0"'
		ok "CMake refuses what is not there: $wrong" $?
		rm -r "$dir/cmake/wrong"
	done
fi

doc=$(dirname "$(find "$dir/root" -path '*/doc/farcall/LICENSE')")
sed -n '/^| page |/,/^$/s/^| \[[^]]*\](\([^)]*\)).*/\1/p' "$2/README.md" >"$dir/pages"
for file in LICENSE README.md CHANGELOG.md SECURITY.md nic/SETUP.md $(cat "$dir/pages"); do
	cmp "$2/$file" "$doc/$file" || echo "$file"
done >"$dir/err" 2>&1
[ "$(wc -l <"$dir/pages")" -eq 11 ] && [ ! -s "$dir/err" ]
ok "README, licence, SETUP and the guide are installed" $?

# The packages of Debian: each installed file is in one of them, each pattern has a file, version and soname agree.
cat >"$dir/packages.py" <<'END'
import pathlib, re, sys
top, root, version, soname = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]
prefix = next(root.rglob("bin/farcall")).parent.parent
files = ["usr/" + str(p.relative_to(prefix)) for p in prefix.rglob("*") if not p.is_dir()]
patterns = {}
for path in [*(top / "debian").glob("*.install"), top / "debian/not-installed"]:
    for line in path.read_text().splitlines():
        patterns.setdefault(line.split()[0], []).append(path.name)
holds = lambda pattern, file: re.fullmatch(re.escape(pattern).replace(r"\*", "[^/]*") + "(/.*)?", file)
for file in files:
    of = [p for p in patterns if holds(p, file)]
    if len(of) != 1:
        print(f"{file}: in {len(of)} packages: {' '.join(of)}")
for pattern in patterns:
    if "nic-" not in pattern and not any(holds(pattern, f) for f in files):
        print(f"{pattern}: no such file")
control = (top / "debian/control").read_text()
packages = set(re.findall(r"^Package: (\S+)$", control, re.M))
named = {n[:-len(".install")] for names in patterns.values() for n in names if n.endswith(".install")}
if packages != named:
    print("packages and lists of files differ:", packages ^ named)
if not (top / "debian/changelog").read_text().startswith(f"farcall ({version})"):
    print("debian/changelog has another version than", version)
if "libfarcall" + soname not in packages or "libfarcall-ops" + soname not in packages:
    print("the packages of the libraries do not carry the soname's number", soname)
END
soname=$(readelf -d "$lib/libfarcall.so" | sed -n 's/.*SONAME.*\[libfarcall\.so\.\([0-9]*\)\].*/\1/p')
version=$("$farcall" --version | sed 's/.* //')
bounded python3 "$dir/packages.py" "$2" "$dir/root" "$version" "$soname"
[ $rc -eq 0 ] && [ ! -s "$dir/out" ] && [ ! -s "$dir/err" ]
ok "debian/: every installed file is in one package; version and soname agree" $?
cp -r "$2/debian" "$dir/debian"
sed -i '/man3/d' "$dir/debian/libfarcall-dev.install"
bounded python3 "$dir/packages.py" "$dir" "$dir/root" 9.9 0
[ $rc -eq 0 ] && has out 'far_rpc_sync\.3: in 0 packages' && has out 'another version' && has out "soname's number"
ok "debian/: what is missing is found" $?

# Another prefix must compile little: no command of the compiler names it.
prefix=$(meson introspect "$build" --buildoptions | python3 -c 'import json, sys
print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
grep -n -e "$prefix/\(lib\|share\|bin\)" "$build/compile_commands.json" >"$dir/err"
[ -n "$prefix" ] && [ ! -s "$dir/err" ] && grep -q "\"$prefix/" "$build/nic/module_dir.h"
ok "the prefix is in one file, and in no command of the compiler" $?

finish

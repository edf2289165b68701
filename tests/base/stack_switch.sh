#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Switching stacks: test_stack_switch.c by each compiler, without and with optimisation, by machine code and by ucontext, for
# this machine or, emulated, for arm64. There the fibers of whole agents run too.
# usage: stack_switch.sh host|arm64 SOURCE-DIRECTORY CACHE-DIRECTORY
set -u
. "$(dirname "$0")/../e2e/cases.sh"
machine=$1
top=$2
cache=$3

# flows NAME LAUNCHER COMPILER FLAGS...
flows() {
	name=$1
	launcher=$2
	shift 2
	bounded "$@" -std=c11 -D_GNU_SOURCE -g -Wall -Wextra -Wpedantic -Werror -frounding-math -pthread -I"$top/engine" \
		"$top/tests/unit/base/test_stack_switch.c" "$top/engine/base/stack_switch.c" "$top/engine/base/must.c" \
		-o "$dir/flows" -lm
	if [ "$rc" -eq 0 ]; then
		# shellcheck disable=SC2086 # the launcher's words
		bounded $launcher "$dir/flows"
	fi
	test "$rc" -eq 0
	ok "$name" $?
}

compilers=
[ "$machine" != host ] || compilers="gcc clang"
for cc in $compilers; do
	if ! command -v "$cc" >/dev/null; then
		skip "flows by $cc" "$cc is not installed"
		continue
	fi
	for o in -O0 -O2; do
		flows "$cc $o" "" "$cc" "$o"
		flows "$cc $o, ucontext" "" "$cc" "$o" -DFAR_SWITCH_UCONTEXT
	done
	flows "$cc -O2 -flto -fPIC" "" "$cc" -O2 -flto -fPIC
	flows "$cc, AddressSanitizer" "" "$cc" -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
	flows "$cc, ThreadSanitizer" "setarch -R" "$cc" -O1 -fsanitize=thread
done

cross=aarch64-linux-gnu-gcc
if [ "$machine" = host ]; then
	:
elif command -v "$cross" >/dev/null && command -v qemu-aarch64 >/dev/null; then
	for o in -O0 -O2; do
		flows "arm64 $o" qemu-aarch64 "$cross" "$o" -static
		flows "arm64 $o, branch protection" qemu-aarch64 "$cross" "$o" -static -mbranch-protection=standard
	done
	flows "arm64, ucontext" qemu-aarch64 "$cross" -O2 -static -DFAR_SWITCH_UCONTEXT
	guard_s=600 # some 40 s of a processor
	# The whole engine, whose fibers go on on other threads: nothing thread-local may be kept across a wait.
	sodium=$(sh "$(dirname "$0")/arm64_sodium.sh" "$cache" 2>"$dir/err") || rc=$?
	# Without the modules, which need libraries of their own: etcd, jemalloc, metrics over HTTP.
	features=$(ls "$top"/engine/features/*/*.c | grep -v '/metrics/http\.c$')
	# shellcheck disable=SC2086 # words
	[ "$rc" -ne 0 ] || bounded "$cross" -O2 -static -std=c11 -D_GNU_SOURCE -fno-strict-aliasing -pthread -I"$top/engine" -I"$top" \
		-I"$top/include" -I"$cache/../../.." -idirafter "$sodium/usr/include" "$top"/engine/[a-df-ik-z]*/*.c $features \
		"$top"/nic/*.c \
		"$top"/nic/shm/*.c "$top"/nic/udp/*.c "$top"/nic/lossy/*.c \
		"$top/tests/e2e/api_fiber_threads.c" -o "$dir/agents" "$sodium/usr/lib/aarch64-linux-gnu/libsodium.a" -lm
	[ "$rc" -ne 0 ] || FAR_NIC=shm FAR_RUNTIME_DIR="$dir" bounded qemu-aarch64 "$dir/agents"
	test "$rc" -eq 0
	ok "fibers of two agents on arm64" $?
else
	skip "flows on arm64" "gcc-aarch64-linux-gnu, libc6-dev-arm64-cross or qemu-user is not installed"
fi
finish

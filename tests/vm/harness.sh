#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Plans that fail, die or never end are failures of vm.sh, with the machine's log; nothing is left of the machines.
# usage: harness.sh BUILD
set -u
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
# shellcheck source=tests/e2e/cases.sh
. "$here/../e2e/cases.sh"
# shellcheck disable=SC2034 # cases.sh's
guard_s=1500
build=$1
export TMPDIR="$dir"

case $build$here in
*[!A-Za-z0-9_./+-]*)
	skip "what vm.sh makes of plans that fail" "paths of letters, digits and _./+-"
	finish
	;;
esac

mkdir "$dir/a path" "$dir/a path/tests"
cp -r "$here" "$dir/a path/tests/vm"
bounded sh "$dir/a path/tests/vm/vm.sh" --build "$build" broken nothing
[ "$rc" -eq 77 ] && has out '^SKIP: vm: missing right: paths of letters' && has out '^0 passed, 0 failed, 1 skipped$'
ok "a path with a space is a skip" $?

vm() { bounded sh "$here/vm.sh" --build "$build" "$@"; }
# name, patterns that out must have; and that nothing is left, a machine or its files
refused() {
	name=$1
	shift
	status=0
	[ "$rc" -eq 1 ] || status=1
	for pattern; do
		has out "$pattern" || status=1
	done
	none_left "$dir/farcall-vm" || status=1
	[ -z "$(find "$dir" -name 'farcall-vm.*')" ] || status=1
	ok "$name" $status
}

vm broken fails + broken found + broken nothing + broken status + broken panics
refused "a case that fails" '^PASS broken fails: what holds$' '^FAIL broken fails: what does not$' 'err: said before' \
	'^4 passed, 3 failed, 0 skipped$'
refused "what a sanitizer finds, unasked" '^FAIL broken found: what the sanitizers reported$' 'signed integer overflow'
refused "a plan without cases" '^FAIL vm: .*the plan broken nothing has no case'
refused "a plan's exit status" '^FAIL vm: .*the plan broken status ended with status 9 in machine A'
refused "a kernel's panic" '^FAIL vm: .*machine A ended before its plan$' '^@@ UP'
vm --limit 20 broken hangs
refused "a plan that never ends" '^FAIL vm: machine A has run for more than 20 s; machine A ended before its plan$'
vm --pair --limit 200 broken leaves
refused "a machine that leaves the other alone" "^FAIL A: both machines are at 'here'\$" 'machine B is gone' \
	'machine B ended before its plan'
! has out 'never reached'
ok "who waits for it goes no further" $?
vm --nic no-such-card broken nothing
refused "a card that QEMU does not know" '^FAIL vm: machine A ended before its plan$' "'no-such-card' is not a valid device model name"
bounded sh "$here/vm.sh" --build "$build" no-such-plan
test "$rc" -eq 2 && says "there is no plan"
ok "a plan that is not there" $?
finish

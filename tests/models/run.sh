#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Checks the Promela models with spin: each model as the code is must hold, each broken variant must be rejected.
# One line per case; the last is 'N passed, N failed, N skipped'. Needs the packages spin and gcc.
# usage: run.sh [MODEL]    (only that one; FAR_MODELS_KEEP=1 keeps trails of what was rejected, and says where)
set -u
export LC_ALL=C

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
only=${1:-}
passed=0
failed=0
skipped=0
guard_s=150 # for one case; none takes longer than 20 s on an idle core
memory_mb=2500
depth=100000 # steps; the longest path here has a few thousand
table=18 # log2 of the slots at first; pan enlarges it. Its own choice, 24, takes longer to clear than most models run

finish() {
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" -eq 0 ]
	exit
}

for tool in spin cc; do
	if ! command -v "$tool" >/dev/null 2>&1; then
		package=$tool
		[ "$tool" != cc ] || package=gcc
		echo "SKIP: models: missing: package $package"
		skipped=1
		finish
	fi
done

dir=$(mktemp -d "${TMPDIR:-/tmp}/farcall-models.XXXXXX")
if [ -z "${FAR_MODELS_KEEP:-}" ]; then
	trap 'rm -rf "$dir"' EXIT
else
	echo "kept: $dir (one directory per case; read a trail there as README.md says)"
fi
trap 'exit 130' INT
trap 'exit 143' TERM

# A model is compiled for longer than it runs: what compiles fastest costs least.
compile="cc -O0"
! command -v tcc >/dev/null 2>&1 || compile=tcc

# Leaves its verdict in $verdict: holds, rejected, or what went wrong.
check() { # model, -D options...
	model=$1
	shift
	at=$dir/$(echo "$model$*" | tr -c 'A-Za-z0-9=\n' '_')
	mkdir "$at" || return
	cd "$at" || return
	verdict=broken
	spin -a "$@" "$here/$model.pml" >log 2>&1 || return
	# shellcheck disable=SC2086 # words
	$compile -w -DSAFETY -DMEMLIM=$memory_mb -o pan pan.c >log 2>&1 || return
	timeout -k 3 "$guard_s" ./pan -m$depth -w$table >log 2>&1 || {
		verdict="not finished in $guard_s s"
		return
	}
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' log)
	# What was not searched to the end has shown nothing.
	if grep -q '^pan:1: \(assertion violated\|invalid end state\)' log; then
		verdict=rejected
	elif grep -q 'max search depth too small\|out of memory\|reached -DMEMLIM\|Search not completed' log; then
		verdict="not searched to the end"
	elif grep -q 'errors: 0$' log; then
		verdict=holds
	fi
}

expect() { # holds or rejected, model, -D options...
	wanted=$1
	shift
	[ -z "$only" ] || [ "$only" = "$1" ] || return
	states=
	check "$@"
	cd "$here" || exit 1
	if [ "$verdict" = "$wanted" ]; then
		passed=$((passed + 1))
		echo "PASS $* ($verdict, ${states:-?} states)"
	else
		failed=$((failed + 1))
		echo "FAIL $* (must be: $wanted; is: $verdict)"
		tail -n 30 "$at/log" | sed 's/^/  /'
	fi
	[ -n "${FAR_MODELS_KEEP:-}" ] || rm -rf "$at"
}

rejected() { # model, "options of all", variants... (a variant is one or more options, joined by +)
	of=$1
	base=$2
	shift 2
	for variant in "$@"; do
		# shellcheck disable=SC2046,SC2086 # words of a command
		expect rejected "$of" $base $(echo "$variant" | sed 's/+/ -D/g; s/^/-D/')
	done
}

expect holds future
rejected future "" DOUBLE_COMPLETION NO_CAS SLEEP_ON_REREAD WAKE_BY_STORE RESULT_AFTER_DONE DROP_RECYCLES DROP_BY_STORE DROPPED_IS_IGNORED \
	WAKE_IGNORES_WAITERS

expect holds listener
rejected listener "" PUSH_BEFORE_LISTENED LATE_ONE_DRAINS NO_CLOSED_MARK DRAIN_WITHOUT_EXCHANGE CLAIM_BY_LOAD \
	LISTENED_BY_STORE DONE_BY_STORE PUSH_BY_STORE RESULT_AFTER_DONE NO_CLAIM

expect holds watch
expect holds watch -DSTORE_AND_LOOK -DLOOK_FENCE
rejected watch "" FIRE_BY_LOAD NO_CLOSED_MARK FILL_BY_STORE REMOVE_BY_STORE NO_SLOT_REFERENCE NO_FIRED_MARK \
	STORE_AND_LOOK

expect holds pool
rejected pool "" NO_TAG

expect holds queue
rejected queue "" NO_ARM_FENCE NO_FLUSH_FENCE NO_SECOND_LOOK CLEAR_AFTER_LOOK

expect holds doorbell
expect holds doorbell -DRUNG_BY_STORE
rejected doorbell "" NO_FLUSH_FENCE NO_SWEEP_FENCE NO_ARM_FENCE NO_OWN_RING CLEAR_AFTER_LOOK NO_SECOND_LOOK \
	ASLEEP_NOT_STORED RUNG_FIRST RUNG_CLEARED_LAST
rejected doorbell "-DRUNG_BY_STORE" NO_BELL_FENCE

expect holds sleep
expect holds sleep -DNO_ARM_FENCE
expect holds sleep -DNO_SLEEP_FENCE
rejected sleep "" NO_ARM_FENCE+NO_SLEEP_FENCE NO_FLUSH_FENCE NO_NOTIFY_FENCE SLEEP_WITHOUT_PASS ASLEEP_AFTER_PASS \
	MAIL_AFTER_WAKE
expect holds sleep -DCOLD
rejected sleep "-DCOLD" NO_ARM_FENCE+NO_SLEEP_FENCE NO_BELL_FENCE NO_SWEEP_FENCE NO_NOTIFY_FENCE SLEEP_WITHOUT_PASS \
	MAIL_AFTER_WAKE

expect holds progress
expect holds progress -DPLACES=1
expect holds progress -DTHREADS=2 -DPARKS=2
rejected progress "" RELEASE_IGNORES_SLEEPERS ADD_WITHOUT_LOOK STATE_READ_LATE WAKE_NOT_PASSED_ON RELEASE_IS_RELAXED
rejected progress "-DTHREADS=2 -DPARKS=2" RELEASE_IGNORES_PARKED PARK_WITHOUT_LOOK PARK_IS_RELAXED

expect holds poller -DSUBMITTERS=0
expect holds poller -DCALLERS=0
expect holds poller -DUNASKED=0
rejected poller "-DSUBMITTERS=0" NO_ARM_FENCE+NO_SLEEP_FENCE NO_FLUSH_FENCE CLEAR_WITHOUT_TOKEN NO_REKICK KICK_ONCE \
	NO_DISARM_MARK RELEASE_IGNORES_PARKED
rejected poller "-DCALLERS=0" NO_NOTIFY_FENCE
expect holds poller -DNO_POLLER -DCALLERS=0 -DSUBMITTERS=2 -DUNASKED=0
rejected poller "-DNO_POLLER -DCALLERS=0 -DSUBMITTERS=2 -DUNASKED=0" NO_NOTIFY_FENCE LEAVE_WITHOUT_LOOK
expect holds poller -DNAP_FOREVER -DCALLERS=0 -DSUBMITTERS=2 -DUNASKED=0
rejected poller "-DNAP_FOREVER -DCALLERS=0 -DSUBMITTERS=2 -DUNASKED=0" NO_CALL CALL_BEFORE_RELEASE CLEAR_BEFORE_NAP \
	LEAVE_WITHOUT_LOOK

expect holds stop
expect holds stop -DHOLDER_STAYS
rejected stop "" STOP_WITHOUT_WAKE
rejected stop "-DHOLDER_STAYS" STOP_ONCE STOP_WITHOUT_UNPARK

expect holds handshake
rejected handshake "" NO_TAG NO_LABEL NO_RECEIVER NO_NONCE NO_COOKIE NO_TIME NO_FLOOR FLOOR_OF_ITS_COOKIE \
	FLOOR_INCLUDED CHALLENGE_AGAIN ONE_CHALLENGE NO_PADDING REACH=1 REACH=2 REACH=3 REACH=4
expect holds handshake -DENDS -DTIMES=1
rejected handshake "-DENDS -DTIMES=1" NO_TAG_OF_RESET NO_RECEIVER NO_CONNECTION NO_NUMBER REACH=5

finish

#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The folders of the engine depend one way: by the symbols of the built objects, and by the headers that sources
# include.
#
# usage: layers.sh ENGINE-DIRECTORY LIBRARY COMPILER...
#
# Checks itself first: it reports a forbidden reference in objects that it compiles, and a forbidden include.
set -eu

engine=$1
library=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Folder, and the folders below it.
cat >"$work/below" <<'END'
base
memory base
sync memory base
value sync memory base
transport value sync memory base
core transport value sync memory base
features core transport value sync memory base
control transport value sync memory base
builtin features core transport value sync memory base
agent features control builtin core transport value sync memory base
api agent features control builtin core transport value sync memory base
END

# Exceptions: from, to, what (a symbol or a header; a trailing * stands for anything), why.
cat >"$work/exceptions" <<'END'
memory sync future_inline a buffer ends what it holds: a future
memory sync future_recycle likewise
memory value tree_fini likewise, a tree of values
memory sync sync/future.h for these three
memory value value/tree.h likewise
builtin api far_* the built-in functions are handlers as an application's are, over the public interface
builtin agent agent/agent.h gathers are kept with the agent
agent api message_reply_buffer given to shards: where an application wants a reply
agent api plugins_end a step of the stop: the plugins of an agent
agent api plugins_receive a step of start: the function that loads plugins which peers send
agent api api/plugin.h for both
agent api profile_env_* steps of start and stop: the file that FAR_PROFILE names
agent api store_free_rank a step of start: looks for a free rank in the store, as an application would
agent api members_end a step of stop: ends the thread that runs callbacks about members
agent api members_free likewise
agent api members_on_change wakes that thread
agent api members_thread_is_this whose callbacks must not end the agent
END

# Prints FROM TO SYMBOL OBJECT of each reference between folders. The name of an object (core_call.c.o) begins with its
# path below the engine. The records are those of nm -A -P: ARCHIVE[OBJECT]: SYMBOL TYPE ...
symbols() {
	nm -A -P "$@" 2>/dev/null | sed 's/^[^ ]*\[\([^]]*\)\]:/\1/; s/^\([^ ]*\): /\1 /; s/^[^ ]*\///' | awk '
		{
			folder = $1
			sub(/_.*/, "", folder)
			if ($3 ~ /^[TDBRVWC]$/) home[$2] = folder
			if ($3 == "U") uses[folder " " $2] = $1
		}
		END {
			for (u in uses) {
				split(u, part, " ")
				if (part[2] in home && home[part[2]] != part[1])
					print part[1], home[part[2]], part[2], uses[u]
			}
		}'
}

includes() { # ROOT
	(cd "$1" && find . -name '*.[ch]' | while read -r file; do
		sed -n 's/^#include "\([a-z]*\)\/\(.*\)".*/\1 \1\/\2/p' "$file" | while read -r to header; do
			from=${file#./}
			echo "${from%%/*} $to $header ${file#./}"
		done
	done)
}

# Of lines FROM TO WHAT WHERE, those that no rule allows.
forbidden() {
	awk -v below="$work/below" -v exceptions="$work/exceptions" '
		BEGIN {
			while ((getline line < below) > 0) {
				n = split(line, part, " ")
				known[part[1]] = 1
				for (i = 2; i <= n; i++) allowed[part[1], part[i]] = 1
			}
			while ((getline line < exceptions) > 0) {
				split(line, part, " ")
				if (part[3] ~ /\*$/) prefix[part[1], part[2]] = substr(part[3], 1, length(part[3]) - 1)
				else except[part[1], part[2], part[3]] = 1
			}
		}
		!($1 in known) || !($2 in known) || $1 == $2 || ($1, $2) in allowed || ($1, $2, $3) in except { next }
		($1, $2) in prefix && index($3, prefix[$1, $2]) == 1 { next }
		{ print "layers.sh: engine/" $1 " (" $4 ") names " $3 " of engine/" $2 }' | LC_ALL=C sort
}

fail() {
	echo "layers.sh: $*" >&2
	exit 1
}

# ---- itself ----

mkdir "$work/objects" "$work/tree" "$work/tree/core"
plant() { # OBJECT SOURCE COMPILER...
	object=$1
	echo "$2" >"$work/planted.c"
	shift 2
	"$@" -c -o "$work/objects/$object" "$work/planted.c" || fail "cannot compile $object"
}
plant core_planted.c.o 'void planted_feature(void); void planted_core(void);
void planted_core(void) { planted_feature(); }' "$@"
plant features_planted.c.o 'void planted_feature(void); void planted_feature(void) {}' "$@"
plant control_planted.c.o 'void planted_core(void); void planted_control(void);
void planted_control(void) { planted_core(); }' "$@"
plant builtin_planted.c.o 'void far_planted(void); void built(void); void built(void) { far_planted(); }' "$@"
plant api_planted.c.o 'void far_planted(void); void far_planted(void) {}' "$@"
symbols "$work"/objects/*.o >"$work/planted"
[ -s "$work/planted" ] || { echo "layers.sh: skipped: nm does not read the objects of $1"; exit 77; }
forbidden <"$work/planted" >"$work/reported"
grep -q "engine/core (core_planted.c.o) names planted_feature of engine/features" "$work/reported" ||
	fail "a planted reference from core to a feature was not reported"
grep -q "engine/control (control_planted.c.o) names planted_core of engine/core" "$work/reported" ||
	fail "a planted reference from control to core was not reported"
[ "$(wc -l <"$work/reported")" -eq 2 ] || fail "an exception was reported: $(cat "$work/reported")"
echo '#include "features/planted.h"' >"$work/tree/core/planted.c"
[ "$(includes "$work/tree" | forbidden | wc -l)" -eq 1 ] || fail "a planted include was not reported"

# ---- the engine ----

symbols "$library" >"$work/used"
[ "$(wc -l <"$work/used")" -gt 100 ] || fail "found no references between the objects of $library"
includes "$engine" >>"$work/used"
forbidden <"$work/used" >"$work/reported"
if [ -s "$work/reported" ]; then
	cat "$work/reported" >&2
	fail "FAILED: the folders above depend on ones that they must not: $(wc -l <"$work/reported") references"
fi
# An exception that nothing needs any more is taken out of the list.
while read -r from to what why; do
	case $what in
	*\*) pattern="^$from $to ${what%\*}" ;;
	*) pattern="^$from $to $what " ;;
	esac
	grep -q "$pattern" "$work/used" || fail "nothing needs the exception: $from $to $what ($why)"
done <"$work/exceptions"
echo "layers.sh: $(wc -l <"$work/used") references between folders, all of them downwards, but for" \
	"$(wc -l <"$work/exceptions") exceptions"

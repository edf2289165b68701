#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# fast_path_sources of engine/meson.build, which are compiled without the fast path, are all that have a guard of it.
# usage: fast_path_sources.sh ENGINE SOURCE...
set -eu
engine=$1
shift
guards='FAR_FAST_PATH|agent_fast_shard|agent_fast_session|fast_session|fast_may_reply_to|fast_reply_to|fast_send'
there=$(cd "$engine" && grep -rlE --include='*.c' "$guards" . | sed 's/^..//' | sort)
listed=$(for source; do
	echo "${source##*/engine/}"
done | sort)
[ "$there" != "$listed" ] || exit 0
printf 'sources with a guard:\n%s\nfast_path_sources:\n%s\n' "$there" "$listed" >&2
exit 1

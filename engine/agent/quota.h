/* SPDX-License-Identifier: BSD-3-Clause */
/** Idle policy of a worker under a cgroup CPU quota. Any thread, at start. */
#ifndef FAR_AGENT_QUOTA_H
#define FAR_AGENT_QUOTA_H

#include <farcall/agent.h>
#include <stdbool.h>
#include <stddef.h>

#define QUOTA_TEXT_MAX 320 /* bytes of a warning with its NUL */

/** Idle policy under a quota. */
struct quota_verdict {
	enum far_idle idle;        /* FAR_IDLE_BUSY only with a CPU for each shard */
	bool scarce;               /* less than a CPU for each shard: spinning would use up the quota */
	char text[QUOTA_TEXT_MAX]; /* warning with the quota and the remedy; "": none */
};
/** Policy for a quota of `milli` thousandths of a CPU (UINT64_MAX: none). */
void quota_evaluate(uint64_t milli, enum far_idle idle, unsigned shards, struct quota_verdict *out);

/** Policy for the quota of this process, which is read now; prints the warning once per process. */
enum far_idle quota_apply(enum far_idle idle, unsigned shards, bool *scarce);

#endif

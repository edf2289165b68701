/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FAR_AGENT_QUOTA_H
#define FAR_AGENT_QUOTA_H

#include <farcall/agent.h>
#include <stdbool.h>
#include <stddef.h>

#define QUOTA_TEXT_MAX 320 /* bytes of a warning with its NUL */

/** What a quota of `milli` thousandths of a CPU (UINT64_MAX: none) means for a worker. */
struct quota_verdict {
	enum far_idle idle;        /* how it idles: FAR_IDLE_BUSY only with a CPU for each shard */
	bool scarce;               /* less than a CPU for each shard: spinning would spend what the work needs */
	char text[QUOTA_TEXT_MAX]; /* a warning with the quota and the remedy; "": none is due */
};
void quota_judge(uint64_t milli, enum far_idle idle, unsigned shards, struct quota_verdict *out);

/** The same with the quota of this process, which is read now; prints the warning, once in a process. Any thread. */
enum far_idle quota_heed(enum far_idle idle, unsigned shards, bool *scarce);

#endif

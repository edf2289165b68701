/* SPDX-License-Identifier: BSD-3-Clause */
/* Idle policy under a cgroup CPU quota. Any thread, at start. The kernel stops a group that has used its share of a
 * period until the period ends, up to 100 ms later: a shard that polls without work delays the next calls by that. */
#include "agent/quota.h"

#include "base/cgroup.h"
#include "base/log.h"

#include <stdatomic.h>
#include <stdio.h>

void quota_evaluate(uint64_t milli, enum far_idle idle, unsigned shards, struct quota_verdict *out)
{
	*out = (struct quota_verdict){.idle = idle};
	if (milli / 1000 >= shards)
		return;
	out->scarce = true;
	out->idle = FAR_IDLE_ADAPTIVE;
	/* No warning for one adaptive shard on part of a CPU, which is usual in a small container. */
	if (idle != FAR_IDLE_BUSY && shards == 1)
		return;
	snprintf(out->text, sizeof out->text,
		 "the cgroup's quota is %g CPUs for %u polling shard%s: %s; for full speed raise the quota to at least "
		 "1 CPU for each shard (docker: --cpus %u)%s",
		 (double)milli / 1000, shards, shards == 1 ? "" : "s",
		 idle == FAR_IDLE_BUSY ? "there is no busy polling, idle shards sleep soon" : "idle shards sleep soon",
		 shards, shards == 1 ? "" : ", or take fewer shards");
}

enum far_idle quota_apply(enum far_idle idle, unsigned shards, bool *scarce)
{
	static atomic_bool warned; /* relaxed: it orders no data */
	struct quota_verdict v;
	quota_evaluate(cgroup_cpu_milli(CGROUP_SELF, CGROUP_ROOT), idle, shards, &v);
	if (v.text[0] && !atomic_exchange_explicit(&warned, true, memory_order_relaxed))
		log_line(FAR_LOG_WARNING, "%s", v.text);
	*scarce = v.scarce;
	return v.idle;
}

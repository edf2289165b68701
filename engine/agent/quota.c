/* SPDX-License-Identifier: BSD-3-Clause */
/* Polling under a CPU quota: the kernel stops a group that has used its share of a period, all of it, until the period
 * ends, up to 100 ms later. A core that polls for nothing brings that upon the calls that come next. */
#include "agent/quota.h"

#include "base/cgroup.h"

#include <stdatomic.h>
#include <stdio.h>

void quota_judge(uint64_t milli, enum far_idle idle, unsigned shards, struct quota_verdict *out)
{
	*out = (struct quota_verdict){.idle = idle};
	if (milli / 1000 >= shards)
		return;
	out->scarce = true;
	out->idle = FAR_IDLE_ADAPTIVE;
	/* One adaptive shard on part of a CPU is an ordinary small container. */
	if (idle != FAR_IDLE_BUSY && shards == 1)
		return;
	snprintf(out->text, sizeof out->text,
		 "the cgroup's quota is %g CPUs for %u polling shard%s: %s; for full speed raise the quota to at least "
		 "1 CPU for each shard (docker: --cpus %u)%s",
		 (double)milli / 1000, shards, shards == 1 ? "" : "s",
		 idle == FAR_IDLE_BUSY ? "there is no busy polling, idle shards sleep soon" : "idle shards sleep soon",
		 shards, shards == 1 ? "" : ", or take fewer shards");
}

enum far_idle quota_heed(enum far_idle idle, unsigned shards, bool *scarce)
{
	static atomic_bool told; /* relaxed: a flag alone */
	struct quota_verdict v;
	quota_judge(cgroup_cpu_milli(CGROUP_SELF, CGROUP_ROOT), idle, shards, &v);
	if (v.text[0] && !atomic_exchange_explicit(&told, true, memory_order_relaxed))
		fprintf(stderr, "farcall: %s\n", v.text);
	*scarce = v.scarce;
	return v.idle;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What a CPU quota changes: the verdict, and how a shard idles under it. The test's thread. */
#include "agent/quota.h"
#include "core/idle.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

#define NONE UINT64_MAX

static struct quota_verdict judged(uint64_t milli, enum far_idle idle, unsigned shards)
{
	struct quota_verdict v;
	memset(&v, 0xa5, sizeof v);
	quota_evaluate(milli, idle, shards, &v);
	return v;
}

static void expect_verdict(struct quota_verdict v, enum far_idle idle, bool scarce, bool warns)
{
	cr_expect_eq(v.idle, idle);
	cr_expect_eq(v.scarce, scarce);
	cr_expect_eq(v.text[0] != '\0', warns, "\"%s\"", v.text);
}

Test(quota, none_and_enough_change_nothing)
{
	static const uint64_t quotas[] = {NONE, 1000, 1001, 16000};
	for (size_t i = 0; i < sizeof quotas / sizeof *quotas; i++) {
		expect_verdict(judged(quotas[i], FAR_IDLE_BUSY, 1), FAR_IDLE_BUSY, false, false);
		expect_verdict(judged(quotas[i], FAR_IDLE_ADAPTIVE, 1), FAR_IDLE_ADAPTIVE, false, false);
	}
	expect_verdict(judged(16000, FAR_IDLE_BUSY, 16), FAR_IDLE_BUSY, false, false);
	expect_verdict(judged(NONE, FAR_IDLE_BUSY, 16), FAR_IDLE_BUSY, false, false);
}

Test(quota, less_than_a_cpu_ends_busy_polling)
{
	static const uint64_t quotas[] = {1, 10, 500, 999};
	for (size_t i = 0; i < sizeof quotas / sizeof *quotas; i++) {
		expect_verdict(judged(quotas[i], FAR_IDLE_BUSY, 1), FAR_IDLE_ADAPTIVE, true, true);
		expect_verdict(judged(quotas[i], FAR_IDLE_ADAPTIVE, 1), FAR_IDLE_ADAPTIVE, true, false);
	}
}

Test(quota, more_shards_than_cpus)
{
	expect_verdict(judged(1999, FAR_IDLE_BUSY, 2), FAR_IDLE_ADAPTIVE, true, true);
	expect_verdict(judged(1999, FAR_IDLE_ADAPTIVE, 2), FAR_IDLE_ADAPTIVE, true, true);
	expect_verdict(judged(2000, FAR_IDLE_ADAPTIVE, 2), FAR_IDLE_ADAPTIVE, false, false);
	expect_verdict(judged(500, FAR_IDLE_ADAPTIVE, 16), FAR_IDLE_ADAPTIVE, true, true);
}

Test(quota, the_warning_names_quota_and_remedy)
{
	struct quota_verdict v = judged(505, FAR_IDLE_BUSY, 1);
	cr_expect(strstr(v.text, "0.505 CPUs for 1 polling shard:"), "%s", v.text);
	cr_expect(strstr(v.text, "no busy polling"), "%s", v.text);
	cr_expect(strstr(v.text, "--cpus 1)"), "%s", v.text);
	v = judged(1500, FAR_IDLE_ADAPTIVE, 16);
	cr_expect(strstr(v.text, "1.5 CPUs for 16 polling shards:"), "%s", v.text);
	cr_expect(strstr(v.text, "--cpus 16), or take fewer shards"), "%s", v.text);
	cr_expect_not(strstr(v.text, "busy polling"), "%s", v.text);
	cr_expect_lt(strlen(v.text), sizeof v.text - 1, "cut off");
	v = judged(1, FAR_IDLE_BUSY, 16);
	cr_expect(strstr(v.text, "0.001 CPUs"), "%s", v.text);
	cr_expect_lt(strlen(v.text), sizeof v.text - 1, "cut off");
}

/* Steps of an idler until it sleeps, each 100 ns after the last; `most` when it does not. */
static unsigned steps_to_sleep(bool awaiting, unsigned most)
{
	struct idler idler = {0};
	unsigned n = 0;
	while (n < most) {
		n++;
		now_ns += 100;
		if (idler_step(shard, &idler, awaiting))
			break;
	}
	return n;
}

Test(quota, a_shard_under_it_sleeps_soon, .init = shard_setup, .fini = shard_teardown)
{
	unsigned usual = steps_to_sleep(false, 100000), waiter = steps_to_sleep(true, 100000);
	cr_expect_lt(usual, waiter);
	cr_expect_lt(waiter, 100000);
	shard->config.cpu_scarce = true;
	unsigned scarce = steps_to_sleep(false, 100000);
	cr_expect_leq(scarce * 3, usual, "%u steps under a quota, %u without", scarce, usual);
	cr_expect_eq(steps_to_sleep(true, 100000), scarce, "a thread that waits for an answer spins no longer");
	cr_expect_geq((uint64_t)scarce * 100, FAR_SPIN_SCARCE_NS, "an answer that comes at once is still polled for");
	shard->config.cpu_scarce = false;
	shard->config.idle = FAR_IDLE_BUSY;
	cr_expect_eq(steps_to_sleep(false, 100000), 100000, "busy polling never sleeps");
}

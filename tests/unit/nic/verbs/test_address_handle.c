/* SPDX-License-Identifier: BSD-3-Clause */
/** Address handles: which destinations share one, what is resolved, and when they are destroyed. The test's thread. */
#include "verbs_fixture.h"

/* To 127.1.0.1 + n. */
static void connect_elsewhere(struct verbs_port *p, unsigned n, int expected)
{
	struct nic_addr addr;
	struct verbs_blob b = p->blob;
	verbs_port_ops.address(&p->base, &addr);
	b.gid[13] = 1;
	b.gid[14] = (uint8_t)((n + 1) >> 8);
	b.gid[15] = (uint8_t)(n + 1);
	memcpy(addr.blob, &b, sizeof b);
	cr_assert_eq(verbs_port_ops.connect(&p->base, &(struct nic_connect){0, &addr, 0, NULL, 0, 0, NULL}, &err),
		     expected, "%s", err.text);
}

/* Of several that wait for the thread, it makes no handle for those that were dropped, and one for those alike. */
Test(verbs_address_handle, asked_and_dropped)
{
	struct verbs_port *p = fixture_open("dscp=off", 1);
	fake_verbs.ah_delay_ms = 100;
	connect_elsewhere(p, 0, 0); /* keeps the thread busy */
	while (p->resolver.first)   /* it has begun */
		usleep(1000);
	for (unsigned i = 1; i < 6; i++)
		connect_elsewhere(p, i, 0);
	for (unsigned i = 1; i < 5; i++)
		verbs_port_ops.drop(&p->base, i);
	connect_elsewhere(p, 5, 0);
	cr_assert(fixture_until(p, &ups, 3));
	cr_assert_eq(fake_verbs.ahs, 2);
	fixture_step(p);
	cr_assert_eq(p->ah_sets_n, 2);
	fixture_close(p);
}

/* A neighbour that is slow to answer keeps nobody waiting but the place. */
Test(verbs_address_handle, slow_neighbour)
{
	struct verbs_port *p = fixture_open("dscp=off", 1);
	fake_verbs.ah_delay_ms = 300;
	fixture_connect_self(p, 0);
	fixture_step(p);
	fixture_connect_self(p, 0); /* shares the question */
	cr_assert(fixture_until(p, &ups, 2));
	cr_assert_eq(fake_verbs.ahs, 1);
	/* One is dropped before it is there. */
	verbs_port_ops.drop(&p->base, 0);
	verbs_port_ops.drop(&p->base, 1);
	for (unsigned i = 0; i < p->ah_sets_n; i++)
		p->ah_sets[i]->made = 0;
	fixture_connect_self(p, 0);
	verbs_port_ops.drop(&p->base, 2);
	fake_verbs.ah_delay_ms = 0;
	fixture_connect_self(p, 0);
	cr_assert(fixture_until(p, &ups, 3));
	cr_assert(ups == 3 && fails == 0);
	fixture_close(p);
}

Test(verbs_address_handle, neighbour_that_is_not_there)
{
	struct verbs_port *p = fixture_open(NULL, 1);
	fake_verbs.ah_error = ETIMEDOUT;
	fixture_connect_self(p, 0);
	cr_assert(fixture_until(p, &fails, 1));
	cr_assert(strstr(failed_text, "127.0.0.1") && strstr(failed_text, "no host replies"), "%s", failed_text);
	fake_verbs.ah_error = 0;
	fixture_connect_self(p, 0);
	cr_assert(fixture_until(p, &ups, 1)); /* it is resolved again */
	fixture_step(p);
	cr_assert_eq(p->ah_sets_n, 1);
	fixture_close(p);
}

/* Those that nobody uses are destroyed after a while, and there is a bound. */
Test(verbs_address_handle, idle_and_too_many)
{
	struct verbs_port *p = fixture_open("dscp=off", 1);
	for (unsigned i = 0; i < VERBS_AH_SETS_MAX; i++)
		connect_elsewhere(p, i, 0);
	connect_elsewhere(p, VERBS_AH_SETS_MAX, -ENOSPC);
	cr_assert(strstr(err.text, "4096 address handles"), "%s", err.text);
	cr_assert(fixture_until(p, &ups, VERBS_AH_SETS_MAX));
	cr_assert_eq(fake_verbs.ahs, VERBS_AH_SETS_MAX);
	for (uint32_t i = 0; i < 10; i++)
		verbs_port_ops.drop(&p->base, i);
	fixture_step(p);
	cr_assert_eq(fake_verbs.ahs, VERBS_AH_SETS_MAX); /* not yet: the device may be sending */
	uint64_t now = verbs_now(), at = verbs_ah_sets_sweep(p, now);
	cr_assert(at > now && at <= now + VERBS_AH_IDLE_NS);
	verbs_ah_sets_sweep(p, now + VERBS_AH_IDLE_NS);
	cr_assert_eq(fake_verbs.ahs, VERBS_AH_SETS_MAX - 10);
	connect_elsewhere(p, VERBS_AH_SETS_MAX, 0);
	fixture_close(p);
}

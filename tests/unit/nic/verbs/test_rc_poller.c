/* SPDX-License-Identifier: BSD-3-Clause */
/** A poller that only sends, or only receives, processes its connections all the same. The test's thread. */
#include "verbs_conns.h"

/* A queue that does nothing but send still takes the packets of its broken connections back. */
static void only_flushes(void)
{
	struct verbs_port *a = open_one(args_of("")), *b = open_one(args_of(""));
	uint32_t to = fixture_dest(a, b, 0);
	cr_assert(gets_there(a, to, b, 1));
	fake_verbs_break_all(IBV_QPT_RC);
	for (unsigned i = 0; i < VERBS_TX_RING; i++)
		cr_assert_eq(fixture_commit(a, to, i, 100, 0), 0);
	for (unsigned i = 0; i < 500; i++)
		turn(); /* nobody receives at `a` */
	cr_assert_eq(a->queues[0]->tx_free_n, VERBS_TX_RING);
	cr_assert(gets_there(a, to, b, 2));
	for (unsigned i = 0; i < PATIENCE && a->queues[0]->tx_free_n < VERBS_TX_RING; i++)
		turn();
	cr_assert_eq(a->queues[0]->tx_free_n, VERBS_TX_RING);
	close_all();
}

Test(verbs_rc_poller, only_flushes)
{
	each_kind(only_flushes);
}

/* A holder that has no more to send only receives: what waits leaves all the same. */
static void only_receives(void)
{
	uint64_t got[16] = {0};
	unsigned n = 0;
	struct verbs_port *a = open_one(args_of("")), *b = open_one(args_of(""));
	uint32_t to = fixture_dest(a, b, 0);
	fixture_commit(a, to, 8, 100, 0);
	fixture_flush(a);
	for (unsigned i = 0; i < PATIENCE && !n; i++, usleep(200)) {
		fixture_step(a);
		fixture_take(a, 0, got);
		fixture_step(b);
		n = fixture_take(b, 0, got);
	}
	cr_assert(n == 1 && got[0] == 8);
	close_all();
}

Test(verbs_rc_poller, only_receives)
{
	each_kind(only_receives);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** The states of a connection: set up from both ends at once, failed, and begun again. The test's thread. */
#include "verbs_conns.h"

/* Both ends begin at once: all arrives, by one connection, or by two where both were ready before that was seen. */
static void crossed(void)
{
	struct verbs_port *a = open_one(args_of("")), *b = open_one(args_of(""));
	uint32_t to_b = fixture_dest(a, b, 0), to_a = fixture_dest(b, a, 0);
	uint64_t got[16];
	unsigned at_a = 0, at_b = 0;
	fixture_commit(a, to_b, 1, 100, 0);
	fixture_commit(b, to_a, 2, 100, 0);
	for (unsigned i = 0; i < PATIENCE && !(at_a && at_b); i++) {
		turn();
		at_b += fixture_take(b, 0, got);
		at_a += fixture_take(a, 0, got);
	}
	cr_assert(at_a == 1 && at_b == 1);
	cr_assert(live(a) >= 1 && live(a) <= 2 && live(b) >= 1 && live(b) <= 2);
	close_all();
}

Test(verbs_rc_connect, crossed)
{
	each_kind(crossed);
}

/* A failure drops what waits; later packets start another attempt. */
static void fails_then_works(void)
{
	struct verbs_port *a = open_one(args_of("")), *b = open_one(args_of(""));
	uint32_t to = fixture_dest(a, b, 0);
	for (unsigned how = 0; how < 4; how++) {
		uint64_t dropped = fixture_stats(a).tx_dropped;
		fake_cm.addr_error = how == 0;
		fake_cm.connect_error = how == 1 ? ECONNREFUSED : 0;
		fake_verbs.qp_error = how == 2 ? ENOMEM : 0;
		fake_cm.silent = how == 3;
		fixture_commit(a, to, 1, 100, 0);
		if (how == 3) { /* its time is over at once */
			for (unsigned i = 0; i < PATIENCE && !fake_cm.connects; i++)
				turn();
			for (unsigned i = 0; i < a->queues[0]->rc->conns_n; i++)
				if (a->queues[0]->rc->conns[i].deadline)
					a->queues[0]->rc->conns[i].deadline = 1;
		}
		for (unsigned i = 0; i < PATIENCE && fixture_stats(a).tx_dropped == dropped; i++)
			turn();
		cr_assert_eq(fixture_stats(a).tx_dropped, dropped + 1, "%u", how);
		fake_cm.addr_error = fake_cm.silent = false;
		fake_cm.connect_error = fake_verbs.qp_error = 0;
		cr_assert(gets_there(a, to, b, 2), "%u", how);
		/* Both ends are broken; the next round begins anew. */
		fake_verbs_break_all(IBV_QPT_RC);
		uint64_t got[16];
		for (unsigned i = 0; i < PATIENCE && (a->rc->conns_n || b->rc->conns_n); i++) {
			if (i == 0) {
				fixture_commit(a, to, 3, 100, 0);
				a->queues[0]->rc->bound = 0; /* not to be made again meanwhile */
			}
			turn();
			fixture_take(a, 0, got);
			fixture_take(b, 0, got);
		}
		a->queues[0]->rc->bound = VERBS_CONNS;
		cr_assert(a->rc->conns_n == 0 && b->rc->conns_n == 0);
		cr_assert(gets_there(a, to, b, 4), "%u", how);
		fake_verbs_break_all(IBV_QPT_RC);
		fixture_commit(a, to, 3, 100, 0);
		a->queues[0]->rc->bound = 0;
		for (unsigned i = 0; i < PATIENCE && (a->rc->conns_n || a->queues[0]->rc->wanted_first); i++) {
			turn();
			fixture_take(a, 0, got);
			fixture_take(b, 0, got);
		}
		a->queues[0]->rc->bound = VERBS_CONNS;
		fake_cm.connects = 0;
	}
	close_all();
}

Test(verbs_rc_connect, asked_for_again)
{
	each_kind(fails_then_works);
}

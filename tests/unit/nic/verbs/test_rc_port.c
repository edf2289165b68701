/* SPDX-License-Identifier: BSD-3-Clause */
/** Connect requests of unexpected peers, and a device that goes. The test's thread. */
#include "verbs_conns.h"

/* Names are keys: who does not know them is refused, and words that cannot be are. */
Test(verbs_rc_port, unexpected_peers)
{
	struct verbs_port *a = open_one(RC), *b = open_one(RC);
	struct verbs_blob blob;
	struct nic_addr addr;
	uint64_t got[16];
	verbs_port_ops.address(&b->base, &addr);
	memcpy(&blob, addr.blob, sizeof blob);
	blob.queue[0].qkey ^= 1;
	memcpy(addr.blob, &blob, sizeof blob);
	cr_assert_eq(verbs_port_ops.connect(&a->base, &(struct nic_connect){0, &addr, 0, NULL, 0, 0, NULL}, &err), 0,
		     "%s", err.text);
	cr_assert(fixture_until(a, &ups, ups + 1));
	verbs_rc_queue_ops.attach(&a->queues[0]->base, last_up);
	fixture_commit(a, last_up, 1, 100, 0);
	for (unsigned i = 0; i < PATIENCE && !fixture_stats(a).tx_dropped; i++)
		turn();
	cr_assert(fixture_stats(a).tx_dropped == 1 && fake_cm.rejects == 1 && fake_cm.accepts == 0);
	cr_assert_eq(fixture_take(b, 0, got), 0);
	cr_assert(live(a) == 0 && live(b) == 0);
	/* Places that are gone leave nothing behind. */
	verbs_rc_queue_ops.detach(&a->queues[0]->base, last_up);
	verbs_port_ops.drop(&a->base, last_up);
	for (unsigned i = 0; i < PATIENCE && a->rc->unreferenced; i++)
		turn();
	cr_assert_eq(a->rc->unreferenced, 0);
	close_all();
}

/* The device goes while connections are used and made. */
static void removed(void)
{
	struct verbs_port *a = open_one(args_of("")), *b = open_one(args_of(""));
	uint32_t to = fixture_dest(a, b, 0);
	cr_assert(gets_there(a, to, b, 1));
	fixture_commit(a, to, 2, 100, 0);
	verbs_release_device(a);
	for (unsigned i = 0; i < PATIENCE && a->on.context; i++)
		turn();
	cr_assert(!a->on.context, "it was let go of");
	cr_assert_eq(a->queues[0]->tx_free_n, VERBS_TX_RING);
	cr_assert_eq(fixture_commit(a, to, 3, 100, 0), 0);
	struct nic_addr addr;
	verbs_port_ops.address(&b->base, &addr);
	cr_assert_eq(verbs_port_ops.reach(&a->base, &addr, &err), -ENODEV);
	close_all();
}

Test(verbs_rc_port, removed)
{
	each_kind(removed);
}

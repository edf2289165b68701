/* SPDX-License-Identifier: BSD-3-Clause */
/** Raw packets beside those of the engine, and a device that takes them in part. The test's thread. */
#include "verbs_self.h"

static int full_error; /* of every fourth that is posted */

static int takes_three(struct ibv_send_wr *wr)
{
	return wr->wr_id % 4 == 3 ? full_error : 0;
}

static unsigned raw_take(uint64_t *last, unsigned want)
{
	unsigned n = 0;
	for (unsigned i = 0; i < 30000 && n < want; i++) {
		unsigned some = verbs_raw_ops.rx(&p->queues[0]->base, 64, last);
		n += some;
		if (!some)
			usleep(1000);
	}
	return n;
}

/* Beside packets of the engine's, in one post each way, for as long as one likes. */
Test(verbs_raw, raw_packets)
{
	uint64_t last = 0, number = 1;
	open_self(NULL);
	struct nic_queue *q = &p->queues[0]->base;
	cr_assert_eq(q->ops->raw, &verbs_raw_ops);
	for (unsigned round = 0; round < 100; round++) {
		unsigned n = 1 + round % 20, oneways = fake_verbs.oneways, recv_posts = fake_verbs.recv_posts;
		cr_assert_eq(q->ops->raw->tx(q, self, number, n, 16 + round), n);
		cr_assert_eq(fake_verbs.oneways, oneways + 1);
		number += n;
		cr_assert_eq(raw_take(&last, n), n);
		cr_assert_eq(last, number - 1);
		cr_assert_gt(fake_verbs.recv_posts, recv_posts);
		if (round % 10 == 0)
			goes_round(round);
	}
	cr_assert_eq(fake_verbs.signalled, (unsigned)(number - 1 + 10) / VERBS_SIGNAL_EVERY);
	/* What is no raw packet is lost here. */
	cr_assert_eq(fixture_commit(p, self, 7, 100, 0), 0);
	fixture_flush(p);
	cr_assert_eq(q->ops->raw->tx(q, self, number, 1, 16), 1);
	cr_assert_eq(raw_take(&last, 1), 1);
	cr_assert_eq(last, number);
	goes_round(8);
	/* Too small, too large, nowhere. */
	cr_assert_eq(q->ops->raw->tx(q, self, 1, 1, 15), 0);
	cr_assert_eq(q->ops->raw->tx(q, self, 1, 1, (unsigned)q->ops->tx_bytes_max(q, self) + 1), 0);
	cr_assert_eq(q->ops->raw->tx(q, self + 1, 1, 1, 16), 0);
	cr_assert_eq(q->ops->raw->tx(q, UINT32_MAX, 1, 1, 16), 0);
	cr_assert_eq(q->ops->raw->tx(&p->queues[1]->base, self, 1, 1, 16), 0, "another queue's");
	fixture_close(p);
}

/* The device takes some of a burst, or breaks: nothing is lost of the rings. */
Test(verbs_raw, raw_packets_that_the_device_does_not_take)
{
	uint64_t last = 0;
	open_self(NULL);
	struct nic_queue *q = &p->queues[0]->base;
	full_error = ENOMEM;
	fake_verbs.post_send = takes_three;
	cr_assert_eq(q->ops->raw->tx(q, self, 1, 10, 16), 3);
	cr_assert_eq(q->ops->raw->tx(q, self, 4, 10, 16), 0);
	fake_verbs.post_send = NULL;
	cr_assert_eq(raw_take(&last, 3), 3);
	cr_assert_eq(last, 3);
	cr_assert_eq(p->queues[0]->tx_free_n, VERBS_TX_RING - 3);
	for (uint64_t i = 0; i < 3 * VERBS_TX_RING; i += 10) {
		cr_assert_eq(q->ops->raw->tx(q, self, i, 10, 16), 10);
		cr_assert_eq(raw_take(&last, 10), 10);
	}
	full_error = EIO;
	fake_verbs.post_send = takes_three;
	cr_assert_lt(q->ops->raw->tx(q, self, 1, 10, 16), 4);
	cr_assert_eq(fixture_state(p, 0), VERBS_BROKEN);
	cr_assert_eq(q->ops->raw->tx(q, self, 1, 10, 16), 0);
	cr_assert_eq(q->ops->raw->rx(q, 10, &last), 0);
	fake_verbs.post_send = NULL;
	is_repaired(0);
	goes_round(1);
	fixture_close(p);
}

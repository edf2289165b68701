/* SPDX-License-Identifier: BSD-3-Clause */
/** A queue pair in the error state: what is lost, and that nothing else is. The test's thread. */
#include "verbs_self.h"

static void breaks_and_mends(void)
{
	cr_assert_eq(fixture_state(p, 0), VERBS_BROKEN);
	/* Meanwhile what is sent is lost, and counted. */
	uint64_t dropped = fixture_stats(p).tx_dropped;
	for (uint64_t i = 0; i < 4 * VERBS_TX_RING; i++) {
		int error = fixture_commit(p, self, i, 50, 0);
		cr_assert(error == 0 || error == -EAGAIN);
	}
	fixture_flush(p);
	cr_assert(fixture_stats(p).tx_dropped > dropped);
	is_repaired(0);
	comes_behind(9);
	goes_round(10);
	for (uint64_t i = 0; i < 2 * p->queues[0]->rx_n; i++) /* all buffers are there */
		goes_round(i);
}

Test(verbs_recovery, send_is_refused)
{
	open_self(NULL);
	refusal = EINVAL;
	accepted = 2;
	fake_verbs.post_send = refuse_after;
	for (uint64_t i = 0; i < 5; i++)
		cr_assert_eq(fixture_commit(p, self, i, 100, 0), 0);
	fixture_flush(p);
	fake_verbs.post_send = NULL;
	cr_assert_eq(fixture_stats(p).tx_dropped, 3);
	breaks_and_mends();
	fixture_close(p);
}

static int refuse_buffer(struct ibv_recv_wr *wr)
{
	return EIO;
}

Test(verbs_recovery, buffers_are_refused)
{
	uint64_t got[32];
	open_self(NULL);
	goes_round(1);
	fake_verbs.post_recv = refuse_buffer;
	cr_assert_eq(fixture_take(p, 0, got), 0);
	fake_verbs.post_recv = NULL;
	breaks_and_mends();
	fixture_close(p);
}

/* The device gives up: all that was posted comes back, in this generation and after it. */
Test(verbs_recovery, error_state)
{
	uint64_t got[32];
	open_self("rx_slots=100");
	for (unsigned round = 0; round < 3; round++) {
		goes_round(1);
		fake_verbs_break(p->queues[0]->qp->qp_num);
		fixture_commit(p, self, 1, 100, 0);
		fixture_flush(p);
		for (unsigned i = 0; i < 10 && fixture_state(p, 0) == VERBS_RUNNING; i++)
			cr_assert_eq(fixture_take(p, 0, got), 0);
		breaks_and_mends();
	}
	cr_assert_eq(p->queues[0]->epoch, 3);
	cr_assert_eq(fixture_state(p, 1), VERBS_RUNNING); /* the other queue is none the worse */
	fixture_close(p);
}

/* What is readable when the pair is repaired stays so until the next recv(). */
Test(verbs_recovery, a_burst_outlives_a_repair)
{
	struct nic_pkt pkts[64];
	uint8_t before[3][200];
	unsigned oneways;
	open_self("rx_slots=64");
	one_burst(3, 200, 3, pkts, &oneways);
	for (unsigned i = 0; i < 3; i++)
		memcpy(before[i], pkts[i].body, 200);
	verbs_queue_broken(p->queues[0]);
	while (fixture_state(p, 0) == VERBS_BROKEN)
		fixture_step(p);
	for (unsigned i = 0; i < 200; i++) { /* commit looks at the state too */
		fixture_commit(p, self, i, 200, 0);
		fixture_flush(p);
	}
	cr_assert_eq(fixture_state(p, 0), VERBS_RUNNING);
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(memcmp(before[i], pkts[i].body, 200), 0);
	unsigned posted = 0;
	for (unsigned i = 0; i < 64; i++)
		posted += p->queues[0]->rx_posted[i];
	cr_assert_eq(posted, 61);
	fixture_close(p);
}

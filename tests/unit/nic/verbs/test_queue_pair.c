/* SPDX-License-Identifier: BSD-3-Clause */
/** The queue pair of a queue: its inline size, its states, and what is freed of a queue that did not open.
 * The test's thread. */
#include "verbs_self.h"

#include "nic/verbs/bulk.h"

static void teardown(void)
{
	if (p)
		fixture_close(p);
	p = NULL;
}

TestSuite(verbs_queue_pair, .fini = teardown);

/* A device refuses what it does not have, so smaller and smaller sizes are tried, and none at last. */
Test(verbs_queue_pair, inline_size_by_trial)
{
	static const unsigned sizes[] = {1000, 256, 255, 64, 33, 31, 0};
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		fake_verbs.inline_max = sizes[i];
		p = fixture_open("bulk=off", 1);
		cr_assert_eq(p->queues[0]->inline_max, sizes[i], "the device reports what it has");
		teardown();
	}
}

/* As it runs, and from the error state: packets go round again. */
Test(verbs_queue_pair, starts_from_any_state)
{
	struct nic_pkt pkts[16];
	open_self("bulk=off");
	struct verbs_queue *q = p->queues[0];
	for (uint64_t round = 0; round < 3; round++) {
		unsigned resets = fake_verbs.resets;
		goes_round(round);
		if (round)
			fake_verbs_break(q->qp->qp_num);
		atomic_store(&q->state, VERBS_BROKEN);
		cr_assert_eq(verbs_qp_start(q), 0);
		cr_assert_eq(fake_verbs.resets, resets + 1);
		atomic_store(&q->state, VERBS_RECOVERED);
		verbs_queue_ops.recv(&q->base, pkts, 16);
		cr_assert_eq(fixture_state(p, 0), VERBS_RUNNING);
		comes_behind(100 + round);
	}
}

Test(verbs_queue_pair, closed_twice)
{
	p = fixture_open("bulk=off", 2);
	struct verbs_queue *q = p->queues[1];
	verbs_qp_close(q);
	cr_assert(!q->qp && !q->mr && !q->rx_cq && !q->tx_cq && !q->channel);
	cr_assert(fake_verbs.qps == 1 && fake_verbs.cqs == 2 && fake_verbs.mrs == 1 && fake_verbs.channels == 1);
	verbs_qp_close(q);
	cr_assert_eq(fake_verbs.qps, 1u);
}

/* Of each step that the device refuses the error names queue and remedy, and what was made before is freed. */
Test(verbs_queue_pair, refused_step_by_step)
{
	p = fixture_open("bulk=off", 2);
	struct verbs_queue *q = p->queues[1];
	verbs_qp_close(q);
	fake_verbs.cq_error = EMFILE;
	cr_assert_eq(verbs_qp_open(q, &err), -EMFILE);
	cr_assert(strstr(err.text, "gives queue 1 no completion queue") && strstr(err.text, "1000 in total"), "%s",
		  err.text);
	verbs_qp_close(q);
	fake_verbs.cq_error = 0;
	fake_verbs.qp_error = ENOSPC;
	cr_assert_eq(verbs_qp_open(q, &err), -ENOSPC);
	cr_assert(strstr(err.text, "gives queue 1 no queue pair") && strstr(err.text, "fewer shards"), "%s", err.text);
	verbs_qp_close(q);
	fake_verbs.qp_error = 0;
	fake_verbs.reg_error = EPERM;
	cr_assert_lt(verbs_qp_open(q, &err), 0);
	cr_assert(strstr(err.text, "fake0"), "%s", err.text);
	verbs_qp_close(q);
	fake_verbs.reg_error = 0;
	cr_assert(fake_verbs.qps == 1 && fake_verbs.cqs == 2 && fake_verbs.mrs == 1 && fake_verbs.channels == 1);
	cr_assert_eq(verbs_qp_open(q, &err), 0, "%s", err.text);
}

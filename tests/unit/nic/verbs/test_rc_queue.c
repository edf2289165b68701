/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets over connections: both directions, to oneself, and over a broken pipe. The test's thread. */
#include "verbs_conns.h"

#include <signal.h>

static void both_ways(void)
{
	struct nic_caps caps;
	struct verbs_port *a = open_one(args_of("")), *b = open_one(args_of(""));
	verbs_port_ops.caps(&a->base, &caps);
	cr_assert(!caps.reliable && !caps.connected && !caps.ordered && caps.wake);
	uint32_t to_b = fixture_dest(a, b, 0), to_a = fixture_dest(b, a, 0);
	cr_assert(gets_there(a, to_b, b, 1));
	cr_assert(gets_there(b, to_a, a, 2));
	cr_assert_eq(fake_cm.connects, 1, "the answer takes the same connection");
	cr_assert(live(a) == 1 && live(b) == 1);
	/* Full ones and empty ones; of bursts all are let go of. */
	uint64_t got[16];
	for (uint64_t round = 0; round < 100; round++) {
		cr_assert_eq(fixture_commit(a, to_b, round, a->mtu, 0), 0);
		for (unsigned i = 0; i < 15; i++)
			cr_assert_eq(fixture_commit(a, to_b, round, 30, 0), 0);
		fixture_flush(a);
		cr_assert_eq(fixture_take(b, 0, got), 16);
		cr_assert_eq(got[0], round);
	}
	turn();
	cr_assert_eq(a->queues[0]->tx_free_n, VERBS_TX_RING);
	cr_assert_eq(fixture_commit(a, to_b, 0, a->mtu + 1u, 0), -EMSGSIZE);
	/* The empty packet that begins a connection is nobody's; others are. */
	struct nic_tx tx;
	struct nic_pkt pkt;
	cr_assert_eq(verbs_rc_queue_ops.tx_reserve(&a->queues[0]->base, to_b, 0, &tx), 0);
	cr_assert_eq(verbs_rc_queue_ops.tx_commit(&a->queues[0]->base, &tx), 0);
	fixture_flush(a);
	cr_assert_eq(verbs_rc_queue_ops.recv(&b->queues[0]->base, &pkt, 1), 1);
	cr_assert(pkt.body_len == 0 && !pkt.body);
	close_all();
}

Test(verbs_rc_queue, both_ways)
{
	each_kind(both_ways);
}

static int pipe_breaks(struct ibv_send_wr *wr)
{
	raise(SIGPIPE);
	return 0;
}

/* siw sends in the call, and its socket may be closed: who calls is not killed, and has no signal left over. */
Test(verbs_rc_queue, broken_pipe)
{
	sigset_t set;
	fake_verbs.transport = IBV_TRANSPORT_IWARP;
	fake_verbs.limits.vendor_id = VERBS_VENDOR_SIW;
	struct verbs_port *a = open_one("fake0"), *b = open_one("fake0");
	uint32_t to = fixture_dest(a, b, 0);
	fake_verbs.post_send = pipe_breaks;
	cr_assert(gets_there(a, to, b, 1));
	fake_verbs.post_send = NULL;
	sigpending(&set);
	cr_assert(!sigismember(&set, SIGPIPE));
	pthread_sigmask(SIG_BLOCK, NULL, &set);
	cr_assert(!sigismember(&set, SIGPIPE));
	close_all();
}

static void self(void)
{
	struct verbs_port *a = open_one(args_of(",connections=2"));
	uint32_t to = fixture_dest(a, a, 0);
	for (uint64_t i = 0; i < 10; i++)
		cr_assert(gets_there(a, to, a, i));
	close_all();
}

Test(verbs_rc_queue, to_oneself)
{
	each_kind(self);
}

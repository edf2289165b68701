/* SPDX-License-Identifier: BSD-3-Clause */
/** A queue of the transport: attached peers, room for messages, sleep, and the end of a connection. The test's thread.
 */
#include "base/limits.h"
#include "transport/message.h"
#include "transport/port.h"
#include "transport/queue.h"
#include "transport_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>

static uint32_t at_0, at_1;
static struct nic_queue *q0, *q1;

TestSuite(transport_queue, .init = fixture_init, .fini = fixture_fini);

static void begin(void)
{
	fixture_two(&at_0, &at_1);
	q0 = fixture.ends[0].q;
	q1 = fixture.ends[1].q;
}

static void turns(unsigned n)
{
	while (n-- > 0)
		fixture_turn();
}

static bool lose_all(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	return false;
}

/* A connection is attached once. */
Test(transport_queue, attached_once)
{
	struct nic_tx tx;
	begin();
	cr_assert_eq(q0->ops->attach(q0, at_0), -EINVAL);
	cr_assert_eq(q0->ops->attach(q0, at_0 + 1), -EINVAL);
	cr_assert_eq(q0->ops->attach(q0, FAR_TRANSPORT_PEERS_MAX), -EINVAL);
	cr_assert_eq(q0->ops->attach(q0, UINT32_MAX), -EINVAL);
	cr_assert_eq(q0->ops->tx_reserve(q0, UINT32_MAX, 1, &tx), -EPIPE);
	cr_assert_eq(q0->ops->tx_reserve(q0, at_0, 1, &tx), 0);
	q0->ops->detach(q0, at_0);
	cr_assert_eq(q0->ops->tx_commit(q0, &tx), -EPIPE, "it ended meanwhile");
	q0->ops->tx_cancel(q0, &tx);
	cr_assert_eq(q0->ops->tx_reserve(q0, at_0, 1, &tx), -EPIPE);
	cr_assert_eq(q0->ops->tx_room(q0, at_0), 0u);
	cr_assert_eq(q0->ops->attach(q0, at_0), -EINVAL);
	q0->ops->detach(q0, at_0);
}

/* Messages come before the engine has attached the peer. Expect them kept, in order. */
Test(transport_queue, what_came_before_is_kept)
{
	end_open(0, 1);
	end_open(1, 1);
	q0 = fixture.ends[0].q;
	q1 = fixture.ends[1].q;
	cr_assert_eq(fixture_connect(0, 0, 1, 0, 10000 * FIXTURE_MS), 0);
	cr_assert(fixture_until(&fixture.ends[0].ups, 1, 1000) && fixture_until(&fixture.ends[1].ups, 1, 1000));
	cr_assert_eq(q0->ops->attach(q0, fixture.ends[0].up), 0);
	for (uint64_t i = 0; i < 5; i++)
		cr_assert_eq(fixture_send(0, fixture.ends[0].up, i, i * 3000), 0);
	turns(50);
	cr_assert_eq(fixture.ends[1].got, 0u);
	cr_assert_eq(q1->ops->attach(q1, fixture.ends[1].up), 0);
	turns(50);
	cr_assert(fixture.ends[1].got == 5 && !fixture.ends[1].bad);
}

/* Messages that are not acknowledged. Expect so many, and so many bytes of them; what is cancelled takes no room. */
Test(transport_queue, room_is_bounded)
{
	struct nic_tx tx;
	begin();
	cr_assert_eq(q0->ops->tx_bytes_max(q0, at_0), TRANSPORT_BODY_MAX);
	cr_assert_eq(q0->ops->tx_reserve(q0, at_0, TRANSPORT_BODY_MAX + 1, &tx), -EMSGSIZE);
	cr_assert_eq(q0->ops->tx_zero_copy(q0, at_0, &tx, TRANSPORT_BODY_MAX + 1, NULL, &tx), -EMSGSIZE);
	cr_assert_eq(q0->ops->tx_room(q0, at_0), FAR_TRANSPORT_SLOTS);
	fixture.fabric.hook = lose_all;
	for (unsigned i = 0; i < FAR_TRANSPORT_SLOTS; i++) {
		cr_assert_eq(q0->ops->tx_room(q0, at_0), FAR_TRANSPORT_SLOTS - i);
		cr_assert_eq(q0->ops->tx_reserve(q0, at_0, 8, &tx), 0);
		q0->ops->tx_cancel(q0, &tx);
		cr_assert_eq(fixture_send(0, at_0, i, 8), 0, "%u", i);
	}
	cr_assert_eq(q0->ops->tx_reserve(q0, at_0, 8, &tx), -EAGAIN);
	cr_assert_eq(q0->ops->tx_zero_copy(q0, at_0, &tx, 8, NULL, &tx), -EAGAIN);
	fixture.fabric.hook = NULL;
	for (unsigned i = 0; i < 3000 && fixture.ends[1].got < FAR_TRANSPORT_SLOTS; i++)
		fixture_turn();
	cr_assert(fixture.ends[1].got == FAR_TRANSPORT_SLOTS && !fixture.ends[1].bad);
	turns(50);
	cr_assert_eq(q0->ops->tx_room(q0, at_0), FAR_TRANSPORT_SLOTS);
	fixture.fabric.hook = lose_all;
	const uint64_t half = TRANSPORT_BODY_MAX / 2;
	for (uint64_t bytes = half; bytes <= FAR_TRANSPORT_OUT_BYTES; bytes += half) {
		cr_assert_eq(q0->ops->tx_reserve(q0, at_0, half, &tx), 0);
		cr_assert_eq(q0->ops->tx_commit(q0, &tx), 0);
	}
	cr_assert_eq(q0->ops->tx_reserve(q0, at_0, half, &tx), -ENOBUFS);
	cr_assert_eq(fixture_send(0, at_0, 0, 8), 0, "small ones fit");
}

/* A queue goes to sleep. Expect what it owes acknowledged first, and, where the driver below cannot wake it, its peer
 * to kick it. */
Test(transport_queue, a_peer_that_sleeps_is_kicked)
{
	for (unsigned wakes = 0; wakes < 2; wakes++) {
		fixture_init();
		fixture.fabric.wake = wakes;
		begin();
		turns(100);
		cr_assert_eq(fixture_send(0, at_0, 0, 8), 0);
		q0->ops->flush(q0);
		cr_assert_eq(fixture_take(1, 0), 1u);
		q1->ops->arm(q1);
		fixture_take(0, 0);
		cr_assert_eq(q0->ops->tx_room(q0, at_0), FAR_TRANSPORT_SLOTS, "it was acknowledged");
		uint64_t kicks = fixture.fabric.kicks;
		cr_assert_eq(fixture_send(0, at_0, 1, 8), 0);
		q0->ops->flush(q0);
		cr_assert_eq(fixture.fabric.kicks - kicks, wakes ? 0u : 1u);
		q1->ops->disarm(q1);
		turns(100);
		kicks = fixture.fabric.kicks;
		cr_assert_eq(fixture_send(0, at_0, 2, 8), 0);
		q0->ops->flush(q0);
		cr_assert_eq(fixture.fabric.kicks, kicks, "it is awake");
		fixture_fini();
	}
}

/* A connection ends twice. Expect one report, of the first reason. */
Test(transport_queue, an_end_is_reported_once)
{
	begin();
	struct transport_queue *q = (struct transport_queue *)q0;
	transport_peer_dead(q, q->peers[at_0], -ESTALE);
	transport_peer_dead(q, q->peers[at_0], -ETIMEDOUT);
	turns(10);
	cr_assert_eq(fixture.ends[0].downs, 1u);
	cr_assert_eq(fixture.ends[0].error, -ESTALE);
}

/* The last of a connection goes. Expect nothing of it in any list of the queue, and its peer to hear of it. */
Test(transport_queue, the_end_leaves_nothing)
{
	begin();
	const struct transport_queue *q = (struct transport_queue *)q0;
	for (uint64_t i = 0; i < 100; i++)
		cr_assert_eq(fixture_send(0, at_0, i, i % 3 ? 100 : 300000), 0);
	q0->ops->detach(q0, at_0);
	fixture.ends[0].port->ops->drop(fixture.ends[0].port, at_0);
	cr_assert(fixture_until(&fixture.ends[1].downs, 1, 100));
	cr_assert_eq(fixture.ends[1].error, -ECONNRESET);
	turns(10);
	cr_assert_null(q->peers[at_0]);
	cr_assert_null(q->backlog_first);
	cr_assert_eq(q->acks_n + q->kicks_n + q->awake_n + q->actives_n, 0u);
	cr_assert_eq(q->rings_n, 0u);
}

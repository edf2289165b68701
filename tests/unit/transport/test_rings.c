/* SPDX-License-Identifier: BSD-3-Clause */
/** Sets of what is under way pass from one peer to the next: a session closes in the midst of its messages, without its
 * peer being found dead, and the next peer takes its set. The test's thread. */
#include "transport_fixture.h"

#include "transport/peer.h"
#include "transport/queue.h"
#include "transport/rings.h"
#include "transport/wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(transport_rings, .init = fixture_init, .fini = fixture_fini);

enum { LONE = 100, LARGER = 8192, LONG = 1 << 20 };

static uint32_t to_1, to_2, from_0; /* at end 0, at end 0, at end 2 */
static bool mute[FIXTURE_ENDS];     /* nothing that it sends arrives */

static struct transport_queue *queue_of(unsigned e)
{
	return (struct transport_queue *)fixture.ends[e].q;
}

static bool unless_mute(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	return !mute[from];
}

static void turns(unsigned n)
{
	while (n-- > 0)
		fixture_turn();
}

/* End 0 is connected to ends 1 and 2, and nothing is under way. */
static void begin(void)
{
	uint32_t ignored;
	memset(mute, 0, sizeof mute);
	fixture.fabric.hook = unless_mute;
	for (unsigned e = 0; e < 3; e++)
		end_open(e, 1);
	fixture_pair(0, 1, &to_1, &ignored);
	fixture_pair(0, 2, &to_2, &from_0);
	turns(500);
	cr_assert_eq(queue_of(0)->rings_n, 0);
}

/* One packet each. */
static void send_lone(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		cr_assert_eq(fixture_send(0, to_2, i, LONE), 0);
		fixture.ends[0].q->ops->flush(fixture.ends[0].q);
	}
}

static void send_larger(unsigned n, uint64_t len)
{
	for (unsigned i = 0; i < n; i++)
		cr_assert_eq(fixture_send(0, to_2, i, len), 0);
	fixture.ends[0].q->ops->flush(fixture.ends[0].q);
}

/* Ends the session with end 2 as the control thread does when the worker is gone. */
static void close_2(unsigned between)
{
	struct transport_peer *p = queue_of(0)->peers[to_2];
	cr_assert(!p->dead);
	fixture.ends[0].q->ops->detach(fixture.ends[0].q, to_2);
	turns(between);
	cr_assert(!p->dead);
	fixture.ends[0].port->ops->drop(fixture.ends[0].port, to_2);
	turns(2);
	cr_assert_null(queue_of(0)->peers[to_2]);
	cr_assert_eq(queue_of(0)->rings_n, 0);
}

/* The next peer takes `set`, and its ordered messages leave: one beyond a small one's length, and a long one. */
static void next_peer(const struct transport_rings *set)
{
	cr_assert_eq(queue_of(0)->rings_free, set);
	cr_assert(transport_rings_are_new(set));
	cr_assert_eq(fixture_send(0, to_1, 0, LARGER), 0);
	cr_assert_eq(queue_of(0)->peers[to_1]->rings, set);
	for (uint64_t seq = 1; seq < 6; seq++)
		cr_assert_eq(fixture_send(0, to_1, seq, seq % 2 ? LONE : LONG), 0);
	turns(2000);
	cr_assert_eq(fixture.ends[1].got, 6);
	cr_assert(!fixture.ends[1].bad);
}

/* The window is full and small messages wait. Expect those dropped that were never sent. */
Test(transport_rings, small_ones_waited)
{
	for (unsigned between = 0; between <= 500; between += 250) {
		begin();
		mute[2] = true;
		send_lone(FAR_TRANSPORT_WINDOW + 50);
		const struct transport_rings *set = queue_of(0)->peers[to_2]->rings;
		cr_assert_eq(queue_of(0)->peers[to_2]->next - queue_of(0)->peers[to_2]->una, FAR_TRANSPORT_WINDOW);
		cr_assert_gt(set->small_n, set->small_sent);
		close_2(between);
		next_peer(set);
		fixture_fini();
		fixture_init();
	}
}

/* Larger ones are numbered in part, and others wait for them. */
Test(transport_rings, larger_ones_waited)
{
	for (unsigned between = 0; between <= 500; between += 250) {
		begin();
		mute[2] = true;
		send_larger(6, LONG);
		send_lone(20);
		const struct transport_rings *set = queue_of(0)->peers[to_2]->rings;
		cr_assert(set->bulk_next && set->bulk_open && set->bulk_strict && set->flying);
		turns(between);
		close_2(between);
		next_peer(set);
		fixture_fini();
		fixture_init();
	}
}

/* Messages are there in part, ahead of their turn, and whole before the engine attached. */
static unsigned dropped_n;
static bool lose_some(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	return from != 2 || bytes[1] != WIRE_MESSAGE || dropped_n++ % 3 != 1;
}

Test(transport_rings, some_had_come)
{
	begin();
	fixture.fabric.hook = lose_some;
	for (uint64_t seq = 0; seq < 9; seq++)
		cr_assert_eq(fixture_send(2, from_0, seq, seq % 3 ? LONE : LONG), 0);
	const struct transport_peer *p = queue_of(0)->peers[to_2];
	for (unsigned i = 0; i < 1000 && !(p->early_n && p->begun_n); i++)
		fixture_turn();
	cr_assert(p->early_n && p->begun_n);
	const struct transport_rings *set = p->rings;
	close_2(0);
	fixture.fabric.hook = NULL;
	cr_assert_eq(queue_of(0)->in_bytes, 0);
	next_peer(set);
}

/* A peer that was found dead leaves no more behind. */
Test(transport_rings, found_dead)
{
	begin();
	mute[2] = true;
	send_lone(FAR_TRANSPORT_WINDOW + 50);
	send_larger(6, LONG);
	const struct transport_rings *set = queue_of(0)->peers[to_2]->rings;
	cr_assert(fixture_until(&fixture.ends[0].downs, 1, 20000));
	fixture.ends[0].q->ops->detach(fixture.ends[0].q, to_2);
	fixture.ends[0].port->ops->drop(fixture.ends[0].port, to_2);
	turns(2);
	next_peer(set);
}

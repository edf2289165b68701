/* SPDX-License-Identifier: BSD-3-Clause */
/** Ring sets pass from one peer to the next: when nothing is in flight, and when a session closes in the midst of its
 * messages, without its peer being found dead, and the next peer takes its set. The test's thread. */
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

/* ---- many peers in turn ---- */

enum { PEERS = 3 * TRANSPORT_RINGS_FEW, TOGETHER = 4 };

static uint32_t at[2][PEERS];

static unsigned take(unsigned e)
{
	struct nic_queue *q = fixture.ends[e].q;
	struct nic_pkt pkts[16];
	unsigned n = q->ops->recv(q, pkts, 16);
	for (unsigned i = 0; i < n; i++)
		if (pkts[i].cookie)
			q->ops->release(q, pkts[i].peer, pkts[i].cookie);
	return n;
}

static void connect_in_turn(unsigned n)
{
	end_open(0, 1);
	end_open(1, 1);
	for (unsigned i = 0; i < n; i++)
		fixture_pair(0, 1, &at[0][i], &at[1][i]);
	turns(500);
	cr_assert_eq(queue_of(0)->rings_n, 0);
}

/* TOGETHER of `n` peers at a time get a message and answer it. No time passes, so no timer scan. */
static void call_in_turn(unsigned n)
{
	for (unsigned i = 0; i < n; i += TOGETHER)
		for (unsigned e = 0; e < 2; e++) {
			for (unsigned k = i; k < i + TOGETHER; k++)
				cr_assert_eq(fixture_send(e, at[e][k], 0, LONE), 0);
			fixture.ends[e].q->ops->flush(fixture.ends[e].q);
			cr_assert_eq(take(1 - e), TOGETHER);
		}
}

/* Expect that a set without anything under way is taken from a peer that was called a while ago. */
Test(transport_rings, few_sets_for_many_peers)
{
	connect_in_turn(PEERS);
	uint64_t scanned = queue_of(0)->scanned_at;
	call_in_turn(PEERS);
	cr_assert_eq(queue_of(0)->scanned_at, scanned);
	cr_assert_leq(queue_of(0)->rings_n, TRANSPORT_RINGS_FEW);
	cr_assert_leq(queue_of(0)->rings_carved, TRANSPORT_RINGS_FEW + TOGETHER);
	cr_assert_null(queue_of(0)->peers[at[0][PEERS - 2 * TRANSPORT_RINGS_AGO]]->rings);
	turns(500);
	cr_assert_eq(queue_of(0)->rings_n, 0);
}

/* Expect that peers keep their sets while these are few, but for the one that was taken last. */
Test(transport_rings, few_peers_keep_their_sets)
{
	enum { N = TRANSPORT_RINGS_FEW, KEPT = N - (N / TOGETHER - 1) };
	connect_in_turn(N);
	call_in_turn(N);
	cr_assert_eq(queue_of(0)->rings_n, KEPT);
	cr_assert_not_null(queue_of(0)->peers[at[0][0]]->rings);
}

/* Expect that a peer whose packet is not acknowledged keeps its set, however many take one after it. */
Test(transport_rings, unacknowledged_ones_keep_their_sets)
{
	connect_in_turn(PEERS);
	mute[0] = true;
	fixture.fabric.hook = unless_mute;
	for (unsigned i = 0; i < PEERS; i++)
		cr_assert_eq(fixture_send(0, at[0][i], 0, LONE), 0);
	fixture.ends[0].q->ops->flush(fixture.ends[0].q);
	cr_assert_eq(queue_of(0)->rings_n, PEERS);
	for (unsigned i = 0; i < PEERS; i++)
		cr_assert_eq(queue_of(0)->peers[at[0][i]]->rings->peer, queue_of(0)->peers[at[0][i]]);
	mute[0] = false;
	unsigned got = 0;
	for (unsigned i = 0; i < 2000 && got < PEERS; i++) {
		got += take(1);
		take(0);
		fixture.now += FIXTURE_MS / 10;
	}
	cr_assert_eq(got, PEERS);
}

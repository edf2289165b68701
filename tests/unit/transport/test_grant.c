/* SPDX-License-Identifier: BSD-3-Clause */
/** Grants: who gets them, what becomes of those that are lost, what a peer that takes or gives wrong ones meets.
 * The test's thread. */
#include "delay_line.h"
#include "transport/grant.h"
#include "transport/message.h"
#include "transport/queue.h"
#include "transport/wire.h"

#include "base/must.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { LONG = 4 << 20, SHORT = 20000, SEEN = 256 };

static uint32_t at_0, at_1;
static struct {
	uint64_t seqs[SEEN]; /* as they came at end 1 */
	unsigned n;
} got;

static struct transport_queue *transport_of(unsigned e)
{
	return (struct transport_queue *)fixture.ends[e].q;
}

static int commit(unsigned e, uint32_t peer, uint64_t seq, uint64_t len, enum nic_order order)
{
	struct nic_queue *q = fixture.ends[e].q;
	struct nic_tx tx;
	int error = q->ops->tx_reserve(q, peer, len, &tx);
	if (error)
		return error;
	fixture_fill(&tx, seq, len);
	tx.order = (uint8_t)order;
	return q->ops->tx_commit(q, &tx);
}

/* What is granted and not here, counted anew. */
static void audit(unsigned e)
{
	const struct transport_grants *g = &transport_of(e)->grants;
	uint64_t out = 0;
	uint32_t n = 0;
	for (const struct transport_message *m = g->first; m; m = m->in_next, n++)
		out += !m->stalled && m->granted > m->done ? m->granted - m->done : 0;
	cr_assert_eq(g->out, out);
	cr_assert_eq(g->n, n);
	cr_assert_leq(out, FAR_TRANSPORT_GRANT_BYTES_MAX + FAR_TRANSPORT_GRANT_BYTES_MAX / FAR_TRANSPORT_GRANT_SHARE);
}

static void nothing_left(unsigned e)
{
	const struct transport_grants *g = &transport_of(e)->grants;
	cr_assert(g->out == 0 && g->n == 0 && g->senders_n == 0 && !g->first && !g->last && !g->timed);
	cr_assert_eq(transport_of(e)->in_bytes, 0);
}

/* What comes at end 1 is noted in any order. */
static void take(void)
{
	struct nic_pkt pkts[16];
	struct nic_queue *q = fixture.ends[1].q;
	unsigned n = q->ops->recv(q, pkts, 16);
	for (unsigned i = 0; i < n; i++) {
		uint64_t seq;
		memcpy(&seq, pkts[i].head, sizeof seq);
		cr_assert(fixture_is(&pkts[i], seq) && got.n < SEEN);
		got.seqs[got.n++] = seq;
		if (pkts[i].cookie)
			q->ops->release(q, pkts[i].peer, pkts[i].cookie);
	}
	q->ops->flush(q);
	audit(1);
}

/* fixture_turn(), but for end 1. */
static void turn(void)
{
	take();
	fixture.ends[1].queues = 0;
	fixture_turn();
	fixture.ends[1].queues = 1;
}

static bool until(unsigned n, uint64_t within_ns)
{
	uint64_t end = fixture.now + within_ns;
	while (got.n < n && fixture.now < end)
		turn();
	return got.n >= n;
}

static void begin(uint64_t delay_ns)
{
	memset(&got, 0, sizeof got);
	line_init(delay_ns);
	fixture_two(&at_0, &at_1);
	line_run(FIXTURE_MS);
}

static unsigned came_at(uint64_t seq)
{
	unsigned i = 0;
	while (i < got.n && got.seqs[i] != seq)
		i++;
	return i;
}

/* Behind a long one that may be passed come shorter ones. Expect them before its end, the shortest first. */
Test(transport_grant, shortest_first)
{
	begin(5000);
	cr_assert_eq(commit(0, at_0, 0, LONG, NIC_ORDER_NONE), 0);
	for (unsigned i = 0; i < 50; i++)
		turn();
	for (uint64_t i = 1; i <= 3; i++)
		cr_assert_eq(commit(0, at_0, i, (4 - i) * 100000, NIC_ORDER_NONE), 0);
	cr_assert(until(4, 1000 * FIXTURE_MS));
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(got.seqs[i], 3 - i, "%u: %u", i, (unsigned)got.seqs[i]);
	nothing_left(1);
	line_fini();
}

/* The same of two peers. Expect the short one to come long before the long one's end. */
Test(transport_grant, across_peers)
{
	uint32_t at_2, ignored;
	begin(5000);
	end_open(2, 1);
	fixture_pair(2, 1, &at_2, &ignored);
	cr_assert_eq(commit(0, at_0, 0, 2 * LONG, NIC_ORDER_NONE), 0);
	for (unsigned i = 0; i < 200; i++)
		turn();
	for (uint64_t i = 1; i <= 20; i++) {
		cr_assert_eq(commit(2, at_2, i, SHORT, NIC_ORDER_NONE), 0);
		for (unsigned k = 0; k < 100 && came_at(i) == got.n; k++)
			turn();
		cr_assert_lt(came_at(i), got.n, "%u", (unsigned)i);
		cr_assert(i > 5 || came_at(0) == got.n);
	}
	cr_assert(until(21, 1000 * FIXTURE_MS));
	nothing_left(1);
	line_fini();
}

/* Two peers with shorter ones without end. Expect the long one to come none the less. */
Test(transport_grant, oldest_has_its_share)
{
	uint32_t at_2, at_3, ignored;
	begin(5000);
	end_open(2, 1);
	end_open(3, 1);
	fixture_pair(2, 1, &at_2, &ignored);
	fixture_pair(3, 1, &at_3, &ignored);
	cr_assert_eq(commit(0, at_0, 0, LONG, NIC_ORDER_NONE), 0);
	fixture.ends[0].q->ops->flush(fixture.ends[0].q);
	uint64_t seq = 1;
	for (unsigned i = 0; i < 50000 && came_at(0) == got.n; i++) {
		for (unsigned e = 2; e <= 3; e++)
			while (transport_of(e)->peers[e == 2 ? at_2 : at_3]->out_n < 4)
				cr_assert_eq(commit(e, e == 2 ? at_2 : at_3, seq++, 300000, NIC_ORDER_NONE), 0);
		turn();
		if (got.n == SEEN)
			got.n = 0;
	}
	cr_assert_lt(came_at(0), got.n);
	line_fini();
}

static unsigned lost_n;
static uint64_t deaf_until;

static bool lose_grants(unsigned from, const struct wire_message *head)
{
	if (from != 1 || head->kind != WIRE_ACK || fixture.now >= deaf_until)
		return false;
	lost_n++;
	return true;
}

/* No acknowledgement, so no grant, arrives for a while, at different moments of a message. Expect it to come soon
 * after.
 */
Test(transport_grant, lost)
{
	for (unsigned turns = 0; turns < 200; turns += 13) {
		begin(20000);
		line.lose = lose_grants;
		lost_n = 0;
		cr_assert_eq(commit(0, at_0, 0, 1 << 20, NIC_ORDER_NONE), 0);
		for (unsigned i = 0; i < turns; i++)
			turn();
		deaf_until = fixture.now + 3 * FIXTURE_MS;
		cr_assert(until(1, 40 * FIXTURE_MS), "after %u turns", turns);
		nothing_left(1);
		line_fini();
	}
}

/* Every grant but those that are said again is lost. Expect them to be said again. */
Test(transport_grant, said_again)
{
	begin(20000);
	line.lose = lose_grants;
	deaf_until = fixture.now + 2 * FIXTURE_MS;
	cr_assert_eq(commit(0, at_0, 0, 1 << 20, NIC_ORDER_NONE), 0);
	cr_assert(until(1, 40 * FIXTURE_MS));
	cr_assert(lost_n > 0);
	cr_assert_geq(line_stats(1).grant_retransmits, 1);
	line_fini();
}

/* Losses, repeats and overtaking both ways. */
Test(transport_grant, everything_happens)
{
	for (uint64_t seed = 1; seed <= 10; seed++) {
		begin(10000);
		line.seed = seed;
		line.drop = 20;
		line.repeat = 20;
		line.jitter_ns = 8000;
		for (uint64_t i = 0; i < 12; i++)
			cr_assert_eq(
				commit(0, at_0, i, (i * 7919 + seed * 104729) % 400000 + 1, (enum nic_order)(i % 3)),
				0);
		cr_assert(until(12, 4000 * FIXTURE_MS), "seed %u: %u", (unsigned)seed, got.n);
		bool came[12] = {false};
		for (unsigned i = 0; i < 12; i++) {
			cr_assert(got.seqs[i] < 12 && !came[got.seqs[i]]);
			came[got.seqs[i]] = true;
		}
		nothing_left(1);
		cr_assert_eq(fixture.ends[0].downs + fixture.ends[1].downs, 0);
		line_fini();
	}
}

static bool silent_0(unsigned from, const struct wire_message *head)
{
	return from == 0;
}

/* A sender falls silent while it has grants; another one goes on. Expect it not to be held up, and nothing to be left
 * when the silent one is found dead. */
Test(transport_grant, sender_dies)
{
	uint32_t at_2, ignored;
	begin(5000);
	end_open(2, 1);
	fixture_pair(2, 1, &at_2, &ignored);
	cr_assert_eq(commit(0, at_0, 0, LONG, NIC_ORDER_NONE), 0);
	for (unsigned i = 0; i < 60; i++)
		turn();
	cr_assert_gt(transport_of(1)->grants.out, 0);
	line.lose = silent_0;
	cr_assert_eq(commit(2, at_2, 1, LONG, NIC_ORDER_NONE), 0);
	cr_assert(until(1, 50 * FIXTURE_MS));
	cr_assert_eq(got.seqs[0], 1);
	cr_assert_eq(fixture.ends[1].downs, 0);
	fixture.step_ns = 100000;
	for (unsigned i = 0; i < 100000 && !fixture.ends[1].downs; i++)
		turn();
	cr_assert_eq(fixture.ends[1].downs, 1);
	fixture.ends[1].q->ops->detach(fixture.ends[1].q, fixture.ends[1].down);
	nothing_left(1);
	line_fini();
}

/* The engine lets go of a peer that has grants. */
Test(transport_grant, detached)
{
	begin(5000);
	cr_assert_eq(commit(0, at_0, 0, LONG, NIC_ORDER_NONE), 0);
	for (unsigned i = 0; i < 60; i++)
		turn();
	cr_assert_gt(transport_of(1)->grants.out, 0);
	fixture.ends[1].q->ops->detach(fixture.ends[1].q, at_1);
	nothing_left(1);
	line_fini();
}

/* ---- what cannot be ---- */

static void alter_none(struct wire_grant *g, uint32_t *len)
{
}

static void alter_beyond(struct wire_grant *g, uint32_t *len)
{
	g->offset = le32_of(LONG + 1);
}

static void alter_cut(struct wire_grant *g, uint32_t *len)
{
	*len -= 1;
}

static void alter_many(struct wire_grant *g, uint32_t *len)
{
	for (unsigned i = 1; i <= FAR_TRANSPORT_OPEN_MAX; i++)
		g[i] = (struct wire_grant){le32_of(12345), le32_of(1), le32_of(0)};
	*len = TRANSPORT_HEAD_BYTES + (FAR_TRANSPORT_OPEN_MAX + 1) * (uint32_t)sizeof *g;
}

static void alter_unknown(struct wire_grant *g, uint32_t *len)
{
	g->first = le32_of(le32_get(g->first) + 100000);
	g->offset = le32_of(UINT32_MAX);
}

static void alter_back(struct wire_grant *g, uint32_t *len)
{
	g->offset = le32_of(0);
}

static struct {
	void (*alter)(struct wire_grant *g, uint32_t *len);
	unsigned times;
} altered;

static bool on_grant(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	if (from != 1 || bytes[1] != WIRE_ACK || *len <= TRANSPORT_HEAD_BYTES || !altered.times)
		return true;
	altered.times--;
	altered.alter((struct wire_grant *)(void *)(bytes + TRANSPORT_HEAD_BYTES), len);
	return true;
}

/* Expect a grant that no receiver gives to end the connection, and one that is old to change nothing. */
Test(transport_grant, hostile_grants)
{
	static const struct {
		void (*alter)(struct wire_grant *g, uint32_t *len);
		unsigned downs;
	} cases[] = {{alter_none, 0}, {alter_beyond, 1},  {alter_cut, 1},
		     {alter_many, 1}, {alter_unknown, 0}, {alter_back, 0}};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		memset(&got, 0, sizeof got);
		fixture_init();
		fixture.fabric.crc = true;
		fixture.fabric.hook = on_grant;
		altered.alter = cases[i].alter;
		altered.times = 1;
		fixture_two(&at_0, &at_1);
		cr_assert_eq(commit(0, at_0, 0, LONG, NIC_ORDER_NONE), 0);
		for (unsigned k = 0; k < 3000 && !fixture.ends[0].downs && !got.n; k++)
			turn();
		cr_assert_eq(altered.times, 0);
		cr_assert_eq(fixture.ends[0].downs, cases[i].downs, "case %u", i);
		cr_assert_eq(got.n, 1 - cases[i].downs, "case %u", i);
		fixture_fini();
	}
}

static bool claim(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	struct wire_message *h = (struct wire_message *)(void *)bytes;
	if (from == 1 && h->kind == WIRE_ACK && *len > TRANSPORT_HEAD_BYTES) { /* end 0 believes that it may send all */
		struct wire_grant *g = (struct wire_grant *)(void *)(bytes + TRANSPORT_HEAD_BYTES);
		g->offset = le32_of(LONG);
	}
	return true;
}

/* Nothing more is granted, and the sender goes on all the same. Expect the end of the connection. */
Test(transport_grant, beyond_grants)
{
	fixture_init();
	fixture.fabric.crc = true;
	fixture_two(&at_0, &at_1);
	fixture.fabric.hook = claim;
	cr_assert_eq(commit(0, at_0, 0, LONG, NIC_ORDER_NONE), 0);
	for (unsigned k = 0; k < 20 && !transport_of(1)->grants.out; k++)
		fixture_turn();
	cr_assert_gt(transport_of(1)->grants.out, 0);
	transport_of(1)->grants.out += UINT64_C(1) << 40;
	for (unsigned k = 0; k < 1000 && !fixture.ends[1].downs; k++)
		fixture_turn();
	cr_assert_eq(fixture.ends[1].downs, 1);
	cr_assert_eq(fixture.ends[1].error, -EPROTO);
	transport_of(1)->grants.out -= UINT64_C(1) << 40; /* debug builds count when a port closes */
	fixture_fini();
}

/* A path that holds next to nothing, and the most of a message that is granted and not here, or sent without a grant.
 * Expect a window of each where packets wait in rings of one sender, and the minima elsewhere. */
Test(transport_grant, pair_rings)
{
	for (unsigned i = 0; i < 2; i++) {
		uint64_t out = 0, unscheduled = 0;
		memset(&got, 0, sizeof got);
		line_init(5000);
		fixture.fabric.pair_rings = i;
		fixture_two(&at_0, &at_1);
		struct transport_grants *g = &transport_of(1)->grants;
		struct transport_peer *p = transport_of(0)->peers[at_0];
		uint64_t without = i ? FAR_TRANSPORT_UNSCHEDULED_BYTES_MAX : FAR_TRANSPORT_UNSCHEDULED_BYTES;
		cr_assert_eq(p->unscheduled_bytes, without);
		cr_assert_eq(commit(0, at_0, 0, LONG, NIC_ORDER_NONE), 0);
		cr_assert(until(1, 1000 * FIXTURE_MS));
		g->rtt_ns = 100;
		g->rtt_at = fixture.now;
		for (unsigned k = 0; k < 50; k++) /* the last acknowledgement comes */
			turn();
		p->unscheduled_bytes = 0;
		cr_assert_eq(commit(0, at_0, 1, LONG, NIC_ORDER_NONE), 0);
		for (uint64_t end = fixture.now + 1000 * FIXTURE_MS; got.n < 2 && fixture.now < end;) {
			turn();
			out = g->out > out ? g->out : out;
			unscheduled = p->unscheduled_bytes > unscheduled ? p->unscheduled_bytes : unscheduled;
		}
		cr_assert_eq(got.n, 2);
		cr_assert_eq(g->rtt_ns, 100);
		/* The oldest message has a share beside. */
		uint64_t most = i ? FAR_TRANSPORT_WINDOW_BYTES : FAR_TRANSPORT_GRANT_BYTES_MIN;
		cr_assert(out > most / 2 && out <= most + most / FAR_TRANSPORT_GRANT_SHARE, "%u: %" PRIu64, i, out);
		cr_assert_eq(unscheduled, without, "%u: %" PRIu64, i, unscheduled);
		nothing_left(1);
		line_fini();
	}
}

static uint32_t sent_unscheduled, sent_window;

static bool set_window(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	struct wire_ack *h = (struct wire_ack *)(void *)bytes;
	if (from == 1 && h->kind == WIRE_ACK) {
		h->unscheduled_bytes = le32_of(sent_unscheduled);
		h->window = le32_of(sent_window);
	}
	return true;
}

/* Windows that were never said, and absurd ones. Expect messages to come all the same. */
Test(transport_grant, any_window)
{
	static const uint32_t numbers[] = {0, 1, 2, 5, UINT32_MAX};
	for (unsigned i = 0; i < 25; i++) {
		fixture_init();
		fixture.fabric.crc = true;
		fixture.fabric.hook = set_window;
		sent_unscheduled = numbers[i % 5];
		sent_window = numbers[i / 5];
		memset(&got, 0, sizeof got);
		fixture_two(&at_0, &at_1);
		for (uint64_t k = 0; k < 10; k++)
			cr_assert_eq(commit(0, at_0, k, k % 2 ? 60000 : 100, NIC_ORDER_NONE), 0);
		cr_assert(until(10, 5000 * FIXTURE_MS), "%u, %u: %u", sent_unscheduled, sent_window, got.n);
		nothing_left(1);
		fixture_fini();
	}
}

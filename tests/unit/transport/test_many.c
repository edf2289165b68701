/* SPDX-License-Identifier: BSD-3-Clause */
/* Tens of thousands of connections of one queue: what each costs while nothing is under way, that all of them work,
 * and that what they had under way goes back to where it came from. The test's thread. */
#include "transport_fixture.h"

#include "core/session.h"
#include "core/shard.h"
#include "transport/connection.h"
#include "transport/mail.h"
#include "transport/message.h"
#include "transport/peer.h"
#include "transport/port.h"
#include "transport/queue.h"
#include "transport/recv.h"
#include "transport/rings.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

TestSuite(transport_many, .init = fixture_init, .fini = fixture_fini, .timeout = 300);

#ifdef UNDER_SANITIZER /* which makes each call slow, and finds nothing more in more of them */
enum { MANY = 5000, CALLS = 15000, DEPTH = 400, LARGE_EVERY = 97, LARGE = 20000 };
#else
enum { MANY = 20000, CALLS = 60000, DEPTH = 400, LARGE_EVERY = 97, LARGE = 20000 };
#endif

static uint32_t at[2][MANY];
static int32_t index_of[2][FAR_TRANSPORT_PEERS_MAX];
static uint64_t seed;

static uint32_t chance(uint32_t below)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)((seed >> 33) % below);
}

static struct transport_queue *queue_of(unsigned e)
{
	return (struct transport_queue *)fixture.ends[e].q;
}

static struct transport_port *port_of(unsigned e)
{
	return (struct transport_port *)fixture.ends[e].port;
}

static void connect_many(unsigned n)
{
	end_open(0, 1);
	end_open(1, 1);
	memset(index_of, 0xff, sizeof index_of);
	for (unsigned i = 0; i < n; i++) {
		fixture_pair(0, 1, &at[0][i], &at[1][i]);
		for (unsigned e = 0; e < 2; e++) {
			cr_assert_eq(index_of[e][at[e][i]], -1, "two connections have one number");
			index_of[e][at[e][i]] = (int32_t)i;
		}
	}
}

/* Until nobody has anything to do any more; the time-outs that may come meanwhile included. */
static void settle(void)
{
	for (unsigned turn = 0; turn < 400; turn++)
		fixture_turn();
}

static void expect_idle(unsigned n)
{
	for (unsigned e = 0; e < 2; e++) {
		const struct transport_queue *q = queue_of(e);
		cr_assert_eq(q->rings_n, 0u, "end %u: %u sets are taken", e, q->rings_n);
		cr_assert_eq(q->delayed_n, 0u, "end %u: %u are owed something", e, q->delayed_n);
		cr_assert_eq(q->actives_n, 0u, "end %u: %u peers are active", e, q->actives_n);
		cr_assert_eq(q->in_bytes, 0u);
		cr_assert_null(q->backlog_first);
		cr_assert_null(port_of(e)->setups);
		unsigned used = 0, carved = q->carved;
		for (const struct transport_message *m = q->out_free; m; m = m->next)
			used++;
		cr_assert_eq(used, carved, "end %u: %u of %u messages are free", e, used, carved);
		used = 0;
		for (const struct transport_rings *r = q->rings_free; r; r = r->next_free) {
			used++;
			for (unsigned i = 0; i < FAR_TRANSPORT_WINDOW; i++)
				cr_assert_null(r->arrived[i].message);
		}
		cr_assert_eq(used, q->rings_carved);
		for (unsigned i = 0; i < n; i++) {
			const struct transport_peer *p = port_of(e)->peers[at[e][i]];
			cr_assert(p->state == TRANSPORT_UP && !p->rings && !p->setup && !p->paths_made && !p->dead);
			cr_assert(p->out_n == 0 && p->out_bytes == 0 && p->ready_n == 0 && p->early_n == 0 && !p->owed);
		}
	}
}

/* More peers sleep than are kicked in a burst. Expect that all of them are, by the flush and not before. */
Test(transport_many, kicks_wait_for_the_flush)
{
	enum { SLEEPERS = 50 };
	static_assert(SLEEPERS > TRANSPORT_BURST && SLEEPERS <= FAR_TRANSPORT_AWAKE_MAX,
		      "more than a burst, all of them woken");
	struct nic_pkt pkts[16];
	fixture.fabric.wake = false;
	connect_many(SLEEPERS);
	struct nic_queue *q0 = fixture.ends[0].q, *q1 = fixture.ends[1].q;
	for (unsigned e = 0; e < 2; e++)
		for (unsigned i = 0; i < SLEEPERS; i++)
			cr_assert_eq(fixture_send(e, at[e][i], 0, 8), 0);
	settle();
	q1->ops->arm(q1);
	for (unsigned i = 0; i < 10; i++)
		q0->ops->recv(q0, pkts, 16);
	uint64_t kicks = fixture.fabric.kicks;
	for (unsigned i = 0; i < SLEEPERS; i++) {
		cr_assert(port_of(0)->peers[at[0][i]]->remote_asleep, "%u", i);
		cr_assert_eq(fixture_send(0, at[0][i], 1, 8), 0);
	}
	cr_assert_eq(fixture.fabric.kicks, kicks);
	q0->ops->flush(q0);
	cr_assert_eq(fixture.fabric.kicks, kicks + SLEEPERS);
	q0->ops->flush(q0);
	cr_assert_eq(fixture.fabric.kicks, kicks + SLEEPERS);
	q1->ops->disarm(q1);
}

/* ---- calls ---- */

struct word {
	uint32_t connection, number;
	uint64_t len;
};

static uint32_t called[MANY], answered[MANY], served[MANY];
static unsigned under_way, done;

static void say(unsigned e, uint32_t connection, uint32_t number, uint64_t len)
{
	struct nic_queue *q = fixture.ends[e].q;
	struct word w = {connection, number, len};
	struct nic_tx tx;
	cr_assert_eq(q->ops->tx_reserve(q, at[e][connection], len, &tx), 0);
	memset(tx.head, 0, FIXTURE_HEAD);
	memcpy(tx.head, &w, sizeof w);
	memset(tx.body, (int)(connection ^ number), len);
	cr_assert_eq(q->ops->tx_commit(q, &tx), 0);
}

static struct word heard(unsigned e, const struct nic_pkt *pkt)
{
	struct word w;
	memcpy(&w, pkt->head, sizeof w);
	cr_assert_lt(w.connection, (uint32_t)MANY);
	cr_assert_eq(index_of[e][pkt->peer], (int32_t)w.connection, "it came by another connection");
	cr_assert_eq(pkt->body_len, w.len);
	for (uint64_t i = 0; i < w.len; i++)
		cr_assert_eq(pkt->body[i], (uint8_t)(w.connection ^ w.number));
	return w;
}

static void take(unsigned e)
{
	struct nic_queue *q = fixture.ends[e].q;
	struct nic_pkt pkts[16];
	unsigned n = q->ops->recv(q, pkts, 16);
	for (unsigned i = 0; i < n; i++) {
		struct word w = heard(e, &pkts[i]);
		uint32_t *last = e ? served : answered;
		cr_assert_eq(w.number, ++last[w.connection], "not the one that is due");
		if (e) {
			say(1, w.connection, w.number, w.len);
		} else {
			under_way--;
			done++;
		}
		if (pkts[i].cookie)
			q->ops->release(q, pkts[i].peer, pkts[i].cookie);
	}
	q->ops->flush(q);
}

static int no_event(void *ctx, const struct nic_event *ev)
{
	cr_assert_fail("event %d: %s", (int)ev->type, ev->text ? ev->text : "");
	return 0;
}

static void calls(unsigned n, unsigned depth, unsigned of)
{
	unsigned begun = 0;
	done = 0;
	for (unsigned turn = 0; done < n; turn++) {
		cr_assert_lt(turn, 40 * n + 100000, "%u of %u calls were answered", done, n);
		for (; begun < n && under_way < depth; begun++, under_way++) {
			uint32_t i = chance(of);
			uint64_t len = chance(LARGE_EVERY) ? chance(200) : LARGE;
			say(0, i, ++called[i], len);
		}
		fixture.ends[0].q->ops->flush(fixture.ends[0].q);
		for (unsigned e = 0; e < 2; e++) {
			fixture.ends[e].port->ops->step(fixture.ends[e].port, fixture.now, no_event, NULL);
			take(e);
		}
		fixture.now += 20000;
	}
	cr_assert_eq(under_way, 0u);
}

static void forget_calls(void)
{
	memset(called, 0, sizeof called);
	memset(answered, 0, sizeof answered);
	memset(served, 0, sizeof served);
	under_way = 0;
	seed = 7;
}

/* ---- */

/* 20 000 connections of one queue come up, call at random, through a network that loses, repeats, overtakes and
 * damages. Expect each call to be answered once and in order by its own connection, all state to be back where it came
 * from, and no set to have been made that was not needed. */
Test(transport_many, all_work_and_leave_nothing)
{
	forget_calls();
	connect_many(MANY);
	settle();
	expect_idle(MANY);
	calls(CALLS, 1, MANY);
	settle();
	expect_idle(MANY);
	fixture.fabric.drop = 10;
	fixture.fabric.repeat = 10;
	fixture.fabric.overtake = 10;
	fixture.fabric.damage = 5;
	calls(CALLS, DEPTH, MANY);
	settle();
	expect_idle(MANY);
	/* A set for each that was busy at once, on average three times longer than its call. */
	for (unsigned e = 0; e < 2; e++)
		cr_assert_lt(queue_of(e)->rings_carved, 20 * DEPTH, "end %u: %u sets", e, queue_of(e)->rings_carved);
}

/* Expect what is left of a connection that has nothing under way, by the allocator's count and in the structures, to be
 * 576 bytes at most, with the session of a shard above it. */
Test(transport_many, each_is_small)
{
	connect_many(200);
	settle();
	size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
	for (unsigned i = 200; i < 2200; i++)
		fixture_pair(0, 1, &at[0][i], &at[1][i]);
	settle();
	expect_idle(2200);
	size_t link = (mallinfo2().uordblks + mallinfo2().hblkhd - before) / 2000 / 2;
	/* Entries of tables that are there from the beginning, and become memory as they are used: of the port, the
	 * queue's two, who came to us (half of it is free); of the shard. */
	size_t tables = 3 * sizeof(void *) + 2 * sizeof(uint32_t) + 2 * sizeof(uint32_t);
	cr_log_info("link %zu, session %zu, tables %zu", link, sizeof(struct session), tables);
	cr_assert_leq(link + sizeof(struct session) + tables, 576u, "%zu bytes", link);
}

/* A peer's set goes to the next one as soon as nothing of it is under way. Expect few sets for calls one after the
 * other, however many connections they go to. */
Test(transport_many, sets_go_round)
{
	forget_calls();
	connect_many(3000);
	settle();
	unsigned carved = queue_of(0)->rings_carved;
	calls(3000, 1, 3000);
	cr_assert_leq(queue_of(0)->rings_carved, carved + 16);
	settle();
	expect_idle(3000);
}

/* Many send one message each. Expect them to be looked at no more while they are only owed an acknowledgement, and each
 * to get it when it is due, and not twice, or with what is sent there in between. */
Test(transport_many, owed_without_a_look)
{
	enum { N = 30, RETRANSMIT = 10 };
	forget_calls();
	connect_many(N);
	settle();
	fixture.step_ns = 4000;
	const struct transport_queue *q = queue_of(1);
	for (unsigned i = 0; i < N; i++)
		cr_assert_eq(fixture_send(0, at[0][i], 0, 8), 0);
	uint64_t until = fixture.now + FAR_TRANSPORT_ACK_NS + 30 * fixture.step_ns;
	bool put_away = false, spoken = false;
	while (fixture.now < until) {
		fixture_turn();
		put_away |= q->actives_n == 0 && q->delayed_n == N;
		for (unsigned i = 0; put_away && !spoken && i < RETRANSMIT; i++)
			cr_assert_eq(fixture_send(1, at[1][i], 0, 8), 0);
		spoken |= put_away;
	}
	cr_assert(put_away);
	cr_assert_eq(q->delayed_n, 0u);
	for (unsigned i = 0; i < N; i++) {
		const struct transport_peer *p = port_of(1)->peers[at[1][i]], *sender = port_of(0)->peers[at[0][i]];
		cr_assert(!p->owed && sender->una == sender->next, "%u", i);
	}
	cr_assert_eq(atomic_load(&queue_of(0)->resent), 0u);
	settle();
	expect_idle(N);
}

/* Connections end, and others begin in their places, while messages are under way. Expect the places to be used again,
 * those who came to us to be found, and nothing to be left of the ends. */
Test(transport_many, ends_and_beginnings)
{
	enum { N = 500 };
	forget_calls();
	connect_many(N);
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = round; i < N; i += 3) {
			for (unsigned k = 0; k < 5; k++)
				fixture_send(0, at[0][i], k, k * 700);
			fixture.ends[0].port->ops->drop(fixture.ends[0].port, at[0][i]);
		}
		settle();
		for (unsigned i = round; i < N; i += 3) {
			fixture.ends[1].port->ops->drop(fixture.ends[1].port, at[1][i]);
			index_of[0][at[0][i]] = index_of[1][at[1][i]] = -1;
		}
		settle();
		for (unsigned i = round; i < N; i += 3) {
			fixture_pair(0, 1, &at[0][i], &at[1][i]);
			cr_assert_lt(at[0][i], (uint32_t)N, "a place that was free");
			cr_assert_lt(at[1][i], (uint32_t)N);
			index_of[0][at[0][i]] = index_of[1][at[1][i]] = (int32_t)i;
			called[i] = answered[i] = served[i] = 0;
		}
		settle();
		expect_idle(N);
		cr_assert_eq(queue_of(0)->open_n, (uint32_t)N);
		calls(2000, 50, N);
		settle();
		expect_idle(N);
	}
	for (unsigned i = 0; i < N; i++) {
		const struct transport_peer *p = port_of(1)->peers[at[1][i]];
		cr_assert_eq(transport_accepted_find(port_of(1), p->remote_id, p->remote_token), p);
	}
}

/* The board that orders and news go by. Expect each bit that was set to be taken once. */
Test(transport_many, boards)
{
	static struct transport_peer_set board;
	static bool set[FAR_TRANSPORT_PEERS_MAX];
	seed = 3;
	for (unsigned round = 0; round < 300; round++) {
		unsigned n = 0, taken = 0;
		cr_assert_not(transport_peer_set_any(&board));
		for (unsigned i = 0; i < 1 + chance(400); i++) {
			uint32_t bit = chance(FAR_TRANSPORT_PEERS_MAX);
			cr_assert_eq(transport_peer_set_add(&board, bit), n == 0);
			n += !set[bit];
			set[bit] = true;
		}
		for (uint32_t bit; (bit = transport_peer_set_take(&board)) != UINT32_MAX; taken++) {
			cr_assert(set[bit]);
			set[bit] = false;
		}
		cr_assert_eq(taken, n);
	}
}

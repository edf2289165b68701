/* SPDX-License-Identifier: BSD-3-Clause */
/** The audit of the transport: it finds nothing while messages go both ways, and names whatever is planted.
 * The test's thread. */
#include "audit_fixture.h"

#include "transport/grant.h"
#include "transport/onesided.h"
#include "transport/send.h"

TestSuite(transport_audit, .init = fixture_init, .fini = fixture_fini);

/* Losses both ways, all lengths, a session that ends in the midst of it: nothing is found at any moment. */
Test(transport_audit, nothing_while_all_goes_well)
{
	begin();
	fixture.fabric.drop = 50;
	fixture.fabric.repeat = 20;
	fixture.fabric.overtake = 100;
	fixture.fabric.full_every = 11;
	uint64_t sent[2] = {0};
	for (unsigned turn = 0; turn < 20000 && fixture.ends[0].got + fixture.ends[1].got < 1000; turn++) {
		for (unsigned e = 0; e < 2; e++)
			if (sent[e] < 500 && fixture_send(e, e ? at_1 : at_0, sent[e],
							  sent[e] % 17 == 0 ? 300000 : sent[e] * 131 % 5000) == 0)
				sent[e]++;
		fixture_turn();
		expect_clean();
	}
	cr_assert(fixture.ends[0].got + fixture.ends[1].got == 1000 && !fixture.ends[0].bad && !fixture.ends[1].bad);
	for (unsigned i = 0; i < 20; i++)
		cr_assert_eq(fixture_send(0, at_0, 500 + i, 300000), 0);
	for (unsigned i = 0; i < 5; i++)
		fixture_turn();
	fixture.ends[0].q->ops->detach(fixture.ends[0].q, at_0);
	expect_clean();
	fixture.ends[0].port->ops->drop(fixture.ends[0].port, at_0);
	for (unsigned i = 0; i < 200; i++) {
		fixture_turn();
		expect_clean();
	}
}

Test(transport_audit, grants)
{
	begin_in();
	struct transport_grants *g = &q->grants;
	cr_assert(g->n >= 1);
	PLANT(p->dead, true, "it is dead, and messages of it are granted");
	PLANT(g->n, g->n + 1, "messages of the list of grants");
	PLANT(g->n, g->n + 1, "messages that are granted, of all peers");
	PLANT(g->senders_n, 2, "peers that send messages that are granted");
	PLANT(g->out, g->out + 1, "bytes granted that have not come");
	PLANT(g->last, NULL, "the list of grants ends elsewhere");
	PLANT(g->first->begun, false, "the list of grants has a message that has not begun");
	struct transport_message none = {.len = 0};
	PLANT(g->timed, &none, "a message is timed that is not in the list");
	g->chosen[FAR_TRANSPORT_GRANTED_MAX - 1] = &none;
	PLANT(g->chosen_n, FAR_TRANSPORT_GRANTED_MAX, "a message is chosen for grants");
	PLANT(g->chosen_n, FAR_TRANSPORT_GRANTED_MAX + 1, "a message is chosen for grants");
}

Test(transport_audit, lists_and_timers)
{
	begin_out();
	PLANT(p->active, false, "nobody looks at the time");
	PLANT(q->actives_n, 0, "active peers");
	PLANT(p->active_at, 7, "has another's place among them");
	PLANT(p->backlogged, !p->backlogged, "peers of the backlog");
	q->acks[0] = q->kicks[0] = p;
	PLANT(q->acks_n, 1, "peers that are to be acknowledged");
	PLANT(p->ack_now, true, "peers that are to be acknowledged");
	PLANT(q->kicks_n, 1, "peers that are to be kicked");
	PLANT(p->kick, true, "peers that are to be kicked");
	PLANT(q->failed_over_n, 1, "peers that go by other paths");
	PLANT(p->failed_over, true, "peers that go by other paths");
	PLANT(p->secondary, 2, "a path that it does not have");
	PLANT(p->current_path, 1, "a path that it does not have");
	PLANT(p->queue, NULL, "it is another queue's");
	PLANT(q->rings_n, q->rings_n + 1, "sets that are taken");
	PLANT(q->rings_carved, q->rings_carved + 1, "sets that were ever used");
	PLANT(r->peer, NULL, "its set is another's");
	PLANT(p->rings, NULL, "something is under way, and it has no set");
	struct transport_peer gone = {.index = 5};
	q->batch.bytes = NULL;
	PLANT(q->batch.peer, &gone, "whose peer is gone");
}

/* The idle end of two: sets that are free, what is owed. */
Test(transport_audit, free_sets)
{
	begin();
	cr_assert_eq(fixture_send(0, at_0, 0, LONE), 0);
	for (unsigned i = 0; i < 500; i++)
		fixture_turn();
	q = (struct transport_queue *)fixture.ends[0].q;
	p = q->peers[at_0];
	r = q->rings_free;
	cr_assert(r && !p->rings && !p->active);
	expect_clean();
	static struct transport_message stray;
	PLANT(r->small_sent, r->small_sent - 1, "a free set is not as a new one");
	PLANT(r->flying, 1, "a free set is not as a new one");
	PLANT(r->out_next, &stray, "a free set is not as a new one");
	PLANT(r->bulk_next, &stray, "a free set is not as a new one");
	PLANT(r->bulk_open, 1, "a free set is not as a new one");
	PLANT(r->bulk_strict, 1, "a free set is not as a new one");
	PLANT(r->unordered_n, 1, "a free set is not as a new one");
	PLANT(r->held_first, &stray, "a free set is not as a new one");
	PLANT(r->assembling[0], &stray, "a free set is not as a new one");
	PLANT(r->arrived[3].message, &stray, "a free set is not as a new one");
	PLANT(r->resent, true, "a free set is not as a new one");
	PLANT(r->keep_until, 1, "a free set is not as a new one");
	PLANT(r->peer, p, "a free set has a peer");
	PLANT(q->rings_free, NULL, "sets that were ever used");
	PLANT(q->out_free, q->out_free->next, "messages to be sent that were ever used");
	PLANT(p->owed, 1, "an acknowledgement is owed, and nobody sends it");
	PLANT(p->out_n, 1, "something is under way, and it has no set");
	PLANT(p->out_bytes, 1, "something is under way, and it has no set");
	PLANT(p->fragments, true, "something is under way, and it has no set");
	q->delayed[q->delayed_first % FAR_TRANSPORT_PEERS_MAX] = (struct transport_delayed_ack){p, 2};
	q->delayed[(q->delayed_first + 1) % FAR_TRANSPORT_PEERS_MAX] = (struct transport_delayed_ack){p, 1};
	PLANT(q->delayed_n, 2, "not in the order of time");
}

Test(transport_audit, what_is_read_or_exposed)
{
	begin_in();
	struct transport_onesided_table *o = &q->onesided;
	static struct transport_message stray;
	PLANT(o->n, 1, "entries of what is exposed or read: counted");
	PLANT(o->exposed_n, 1, "entries of what is exposed: counted");
	PLANT(o->entry[3].state, TRANSPORT_ONESIDED_READING, "entries of what is exposed or read: counted");
	PLANT(o->entry[3].state, TRANSPORT_ONESIDED_READING, "has no memory");
	PLANT(o->entry[3].state, TRANSPORT_ONESIDED_EXPOSED, "what is exposed is not its message's");
	PLANT(o->entry[3].owner, &stray, "a free entry of what is exposed or read has memory");
	PLANT(o->reading[2].message, &stray, "an entry of what is read is of another message");
	stray.onesided = 3;
	stray.transfer = TRANSPORT_RX_READING;
	o->reading[2].message = &stray;
	o->reading[2].out = 1;
	expect_found("reads of a message that are under way");
	o->reading[2].message = NULL;
	o->reading[2].out = 0;
	expect_clean();
}

/* A packet of several messages is handed up one by one, and acknowledged long before the last of them. */
Test(transport_audit, a_batch_that_is_taken_slowly)
{
	enum { N = 10 };
	struct nic_pkt pkt;
	begin();
	for (unsigned i = 0; i < N; i++)
		cr_assert_eq(fixture_send(0, at_0, i, 8), 0);
	struct nic_queue *there = fixture.ends[1].q;
	fixture.ends[0].q->ops->flush(fixture.ends[0].q);
	for (unsigned i = 0; i < N; i++) {
		cr_assert(there->ops->recv(there, &pkt, 1) == 1 && fixture_is(&pkt, i));
		for (unsigned k = 0; k < 400; k++, fixture.now += 100000)
			cr_assert_eq(there->ops->recv(there, &pkt, 0), 0);
		expect_clean();
	}
	cr_assert_eq(((struct transport_queue *)there)->peers[at_1]->owed, 0);
}

/* An acknowledgement is due while the backlog is full, and the driver below takes nothing. */
Test(transport_audit, an_acknowledgement_that_finds_no_room)
{
	begin();
	q = (struct transport_queue *)fixture.ends[0].q;
	p = q->peers[at_0];
	cr_assert(!p->active && !p->owed);
	fixture.fabric.full_every = 1;
	q->acks_n = TRANSPORT_BURST;
	transport_ack_soon(q, p);
	q->acks_n = 0;
	cr_assert(p->owed);
	expect_clean();
	fixture.fabric.full_every = 0;
	for (unsigned i = 0; i < 100; i++)
		fixture_turn();
	cr_assert_eq(p->owed, 0);
}

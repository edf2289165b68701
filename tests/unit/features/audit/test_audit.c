/* SPDX-License-Identifier: BSD-3-Clause */
/** The walk over a shard: content with what is right in every state, and it finds each count that is not.
 * The test's thread. */
#include "core/packet.h"
#include "core/reply.h"
#include "core/session.h"
#include "core/shard.h"
#include "shard_audit_fixture.h"

TestSuite(audit, .init = setup, .fini = teardown);

static uint64_t left(void)
{
	struct audit_level l;
	audit_level_read(shard, &l);
	return l.calls + l.waiting + l.deferred + l.fibers + l.paused + l.rendezvous_in + l.rendezvous_out + l.oneways;
}

Test(audit, calls_in_every_state)
{
	static struct result r[3]; /* one ends with the session */
	fine("new");
	cr_assert_eq(left(), 0);
	union packet_head first = called(&r[0], 1000000), second = called(&r[1], 1000000);
	cr_assert_eq(call(&r[2], 5000000000, NULL, 0), 0);
	fine("three under way");
	cr_assert_eq(left(), 3);
	answer(second, PACKET_REPLY, 0, 0, "");
	fine("one answered");
	advance(2000000);
	fine("one ended, and awaits its answer");
	cr_assert_eq(left(), 2);
	answer(first, PACKET_REPLY, 0, 0, "");
	fine("that came");
	cr_assert_eq(left(), 1);
	cr_assert_eq(r[2].n, 0);
}

Test(audit, a_leaked_slot)
{
	static struct result r; /* it ends with the session */
	called(&r, 1000000);
	shard->sessions[PEER].calls_active--;
	finds(": calls: counted 0, found 1");
	finds("calls of all sessions: counted 0, found 1");
	shard->sessions[PEER].calls_active += 2;
	finds(": calls: counted 2, found 1");
	finds("calls of all sessions: counted 2, found 1");
	shard->sessions[PEER].calls_active--;
	fine("as it was");
	struct call *first = shard->calls_free;
	shard->calls_free = &shard->calls[0];
	finds("call slot 0 is in the list of free ones and taken");
	shard->calls_free = first;
}

Test(audit, a_slot_that_no_list_has)
{
	static struct result r[2];
	union packet_head a = called(&r[0], 1000000), b = called(&r[1], 1000000);
	answer(a, PACKET_REPLY, 0, 0, "");
	answer(b, PACKET_REPLY, 0, 0, "");
	fine("both free");
	struct call *first = shard->calls_free;
	shard->calls_free = NULL;
	finds("free call slots: counted 2, found 0");
	shard->calls_free = first;
}

Test(audit, open_requests)
{
	put_request(MSG_DEFER, 1, NULL, 0);
	put_request(MSG_DEFER, 2, NULL, 0);
	passes(2);
	fine("two open");
	cr_assert_eq(left(), 2);
	shard->sessions[PEER].open_n++;
	finds("open requests: counted 3, found 2");
	shard->sessions[PEER].open_n--;
	counter_add(&shard->counters.requests_active, 1);
	finds("records of open requests: counted 3, found 2");
	counter_add(&shard->counters.requests_active, (uint64_t)-1);
	far_deferred_reply(kept[0], NULL, 0);
	far_deferred_reply(kept[1], NULL, 0);
	passes(2);
	fine("answered");
	cr_assert_eq(left(), 0);
}

Test(audit, grants)
{
	struct rendezvous_lane *l = &rendezvous_peer_of(shard, &shard->sessions[PEER])->in[1];
	announce(PACKET_REQUEST, MSG_ECHO, 9, 1, 1, TOTAL);
	passes(1);
	expect_grant(1, 1, TOTAL);
	fine("announced");
	cr_assert_eq(left(), 1);
	l->accepted = TOTAL + 1;
	finds("more of a rendezvous message has come than there is");
	l->granted = false;
	l->accepted = 1;
	finds("a rendezvous message has come that was not granted");
	l->accepted = 0;
	l->granted = true;
	put_about(PACKET_ABORT, 1, 1, 0, 0);
	passes(1);
	fine("given up");
	cr_assert_eq(left(), 0);
}

/* The other end is this shard's own session with somebody else, as if it were the peer's with us. */
Test(audit, both_ends)
{
	struct rendezvous_peer *here = rendezvous_peer_of(shard, &shard->sessions[PEER]);
	struct rendezvous_peer *there = rendezvous_peer_of(shard, &shard->sessions[OTHER]);
	struct shard other = *shard;
	struct session sessions[2] = {shard->sessions[OTHER], shard->sessions[OTHER]};
	other.sessions = sessions;
	other.world = 2;
	found_n = 0;
	audit_pair(shard, 0, &other, PEER, on_found, NULL);
	cr_assert_eq(found_n, 0, "%s", found);
	here->oneways_sent = 3;
	there->oneways_received = 3;
	audit_pair(shard, 0, &other, PEER, on_found, NULL);
	cr_assert_eq(found_n, 0, "%s", found);
	there->oneways_received = 2;
	audit_pair(shard, 0, &other, PEER, on_found, NULL);
	cr_assert(found_n == 1 && strstr(found, "one-way messages that the peer has received: counted 3, found 2"),
		  "%s", found);
	there->oneways_received = 3;
	here->oneways_acked = 1;
	audit_pair(shard, 0, &other, PEER, on_found, NULL);
	cr_assert(found_n == 2 && strstr(found, "credits that the peer has returned: counted 1, found 0"), "%s", found);
	here->oneways_sent = here->oneways_acked = there->oneways_received = 0;
	static struct result r;
	union packet_head h = called(&r, 1000000);
	found_n = 0;
	audit_pair(shard, 0, &other, PEER, on_found, NULL);
	cr_assert(found_n == 1 && strstr(found, "awaits an answer of worker 1, which has no such request"), "%s",
		  found);
	answer(h, PACKET_REPLY, 0, 0, "");
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** The part of the audit that checks sessions: each count of a session, and each remainder of one that has ended, is
 * found. The test's thread. */
#include "core/packet.h"
#include "core/reply.h"
#include "core/session.h"
#include "features/faults/fault.h"
#include "features/references/rref.h"
#include "shard_audit_fixture.h"

TestSuite(audit_session, .init = setup, .fini = teardown);

Test(audit_session, windows)
{
	struct rendezvous_peer *p = rendezvous_peer_of(shard, &shard->sessions[PEER]);
	fine("nothing sent");
	p->oneways_acked++;
	finds("more one-way messages are acknowledged than were sent");
	p->oneways_acked--;
	p->oneways_sent = FAR_ONEWAYS_WINDOW + 1;
	finds("more one-way messages are out than the window takes");
	p->oneways_sent = 0;
	p->oneways_received = FAR_ONEWAYS_BATCH;
	finds("was not acknowledged");
	p->oneways_received = 0;
	p->packets_sent = FAR_RENDEZVOUS_PACKETS + 1;
	finds("more fragments are out");
	p->packets_sent = 0;
}

Test(audit_session, lists_of_sessions)
{
	struct session *se = &shard->sessions[PEER];
	struct rendezvous_peer *p = rendezvous_peer_of(shard, se);
	struct shard_counters *c = &shard->counters;
	fine("as it is");
	PLANT(se->waiting_n, 1, "calls that wait for it: counted 1, found 0");
	PLANT(se->backpressured, SESSION_BACKPRESSURED, "its answers are kept and it is not blocked");
	PLANT(se->paused_n, 1, "requests are paused nowhere");
	se->draining = true;
	finds("are to be sent, and there are none");
	se->draining = false;
	PLANT(se->unsent_mails, 1u << MAIL_DETACHED, "sessions that may not open again yet: counted 0, found 1");
	PLANT(se->unsent_mails, 1u << MAIL_CONNECT, "sessions with mail for the control thread");
	se->has_rendezvous = false;
	finds("its flag of fragments is wrong");
	se->has_rendezvous = true;
	PLANT(se->q, NULL, "what its peer sends is another session's");
	PLANT(p->session, NULL, "what is kept of its fragments is another session's");
	PLANT(p->queue_tail, NULL, "ends elsewhere");
	PLANT(p->ready_tail, NULL, "ends elsewhere");
	PLANT(p->oneways_tail, NULL, "ends elsewhere");
	PLANT(p->oneways_n, 1, "one-way messages that arrive in fragments");
	PLANT(p->out[0].aborting, true, "and nobody sees to them");
	PLANT(p->listed, true, "peers whose fragments are seen to");
	PLANT(p->oneways_sent, 1, "sends that are begun and not ended: counted 0, found 1");
	PLANT(p->packets_sent, 1, "sends that are begun and not ended: counted 0, found 1");
	PLANT(shard->backpressured_n, 1, "sessions that wait for room: counted 1, found 0");
	PLANT(shard->undetached_n, 1, "sessions that may not open again yet: counted 1, found 0");
	PLANT(fault_shard(shard)->delayed_calls_n, 1, "calls that are held back");
	PLANT(shard->queues[0].peers, 0, "sessions of a queue");
	PLANT(c->rendezvous_active, 1, "rendezvous messages in flight: counted 1, found 0");
	PLANT(c->sends_ended, c->sends_ended + 1, "sends that are begun and not ended");
	put_request(MSG_DEFER, 1, NULL, 0);
	passes(2);
	PLANT(se->open->gone, true, "an open request is another session's, or gone");
	far_deferred_reply(kept[0], NULL, 0);
	passes(2);
}

/* The next session in a slot finds what the former one left behind. */
Test(audit_session, sessions_that_ended)
{
	static struct paused_requests paused;
	static struct rref_fork fork;
	static struct rref_pins pins;
	struct session *se = &shard->sessions[PEER];
	struct rendezvous_peer *p = rendezvous_peer_of(shard, se);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	passes(2);
	cr_assert_eq(se->state, SESSION_DEAD);
	fine("ended");
	PLANT(se->calls_max, 1, "and has calls or credits");
	PLANT(se->calls_active, 1, "and has calls or credits");
	PLANT(se->open_n, 1, "and has open requests or answers");
	PLANT(se->backpressured, SESSION_HELD, "and has open requests or answers");
	PLANT(se->paused, &paused, "and has paused requests");
	PLANT(se->retry_caller, (struct retry_caller *)(void *)&paused, "and has calls that may be repeated");
	PLANT(se->retry_callee, (struct retry_callee *)(void *)&paused, "and has calls that may be repeated");
	PLANT(se->rref_forks, &fork, "its peer has forks");
	PLANT(se->rref_pins, &pins, "results wait for its peer");
	PLANT(p->held_n, 1, "and has fragments or one-way messages");
	PLANT(p->oneways_n, 1, "and has fragments or one-way messages");
	PLANT(p->oneways_sent, p->oneways_sent + 1, "and awaits acknowledgements");
	PLANT(p->packets_sent, p->packets_sent + 1, "and awaits acknowledgements");
	PLANT(p->in[2].open, true, "and has a rendezvous message that arrives");
}

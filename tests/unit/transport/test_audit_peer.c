/* SPDX-License-Identifier: BSD-3-Clause */
/** The audit of a peer: it names whatever is planted in one. The test's thread. */
#include "audit_fixture.h"
#include "transport/audit_peer.h"

TestSuite(transport_audit_peer, .init = fixture_init, .fini = fixture_fini);

Test(transport_audit_peer, what_is_sent)
{
	begin_out();
	PLANT(p->out_n, p->out_n + 1, "messages to be sent or acknowledged: counted");
	PLANT(p->out_bytes, p->out_bytes - 1, "bytes of bodies to be sent or acknowledged");
	PLANT(r->flying, r->flying + 8, "bytes in flight");
	PLANT(r->small_sent, r->small_sent - 1, "small messages that wait");
	PLANT(r->small_n, r->small_n + 1, "small messages that wait");
	PLANT(r->out_last, r->out_next, "the list of small messages ends elsewhere");
	PLANT(r->out_next, r->out_next->next, "messages to be sent or acknowledged");
	PLANT(r->bulk_strict, r->bulk_strict - 1, "larger messages that keep an order");
	PLANT(r->bulk_open, r->bulk_open + 1, "larger messages that are numbered in part");
	PLANT(r->bulk_last, r->bulk_next, "the list of larger messages ends elsewhere");
	PLANT(r->bulk_last->after, r->small_n + 1, "waits for more small ones than there were");
	cr_assert(r->bulk_next->done && r->bulk_next->order != NIC_ORDER_NONE);
	PLANT(r->bulk_next->after, r->small_n, "a larger message has begun before small ones");
	PLANT(r->bulk_next->done, r->bulk_next->len, "a larger message waits, and all of it is numbered");
	PLANT(r->bulk_next->charged, 1, "charged with other bytes");
	PLANT(r->out_next->zero_copy, true, "a zero-copy message has no owner");
	PLANT(r->bulk_next->onesided, 1, "an exposed message is not the owner");
	PLANT(r->sent[p->una % FAR_TRANSPORT_WINDOW].message, NULL, "a packet that is not acknowledged has no message");
	PLANT(p->next, p->next + FAR_TRANSPORT_WINDOW, "more packets are unacknowledged");
	PLANT(p->window, FAR_TRANSPORT_WINDOW + 1, "its window is beyond");
	PLANT(q->carved, q->carved + 1, "messages to be sent that were ever used");
}

Test(transport_audit_peer, what_has_come)
{
	begin_in();
	struct transport_message *m = q->grants.first;
	PLANT(p->early_n, p->early_n - 1, "packets before their turn");
	PLANT(r->unordered_n, r->unordered_n + 1, "packets that wait for one that they may not pass");
	PLANT(p->begun_n, p->begun_n + 1, "messages that have begun: counted");
	PLANT(m->early, m->early + 1, "bytes of a message before their turn");
	PLANT(m->granted, m->len + 1, "more of a message came or was granted than there is");
	PLANT(m->peer, NULL, "a message that is not whole is of another peer");
	PLANT(m->transfer, TRANSPORT_RX_READING, "a message that is read has no entry");
	PLANT(q->in_bytes, q->in_bytes + 1, "bytes of messages that arrived");
	PLANT(q->handed_bytes, 1, "bytes of messages that arrived");
	PLANT(m->charged, m->charged - 1, "bytes of messages that arrived");
	PLANT(p->ready_n, 1, "complete messages that are to be delivered");
	PLANT(q->ready_last, &m->next, "the list of complete messages ends elsewhere");
	PLANT(r->held_last, &m->next, "the list of messages that wait for their session ends elsewhere");
	PLANT(r->arrived[p->rx_next % FAR_TRANSPORT_WINDOW].message, &transport_handed_up,
	      "the packet that is due has come");
	PLANT(q->free_n, q->free_n + 1, "free messages of those that arrive");
}

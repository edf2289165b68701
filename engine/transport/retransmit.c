/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Retransmission and tail loss probes. Poller.
 *
 * A retransmitted packet keeps its number and bytes. If the path MTU has shrunk below it, it is sent in fragments, one
 * packet at a time, since the receiver accepts fragments of its next packet only.
 */
#include "transport/retransmit.h"

#include "base/probe.h"
#include "transport/rings.h"
#include "transport/send.h"

#include <errno.h>

bool transport_mtu_shrunk(struct transport_peer *p)
{
	uint64_t most = p->via->ops->tx_bytes_max(p->via->lower, p->lower_peer);
	if (most >= TRANSPORT_HEAD_BYTES + p->payload_max || most < TRANSPORT_PACKET_MIN)
		return false;
	p->payload_max = (uint32_t)most - TRANSPORT_HEAD_BYTES;
	return true;
}

void transport_retransmit_fragments(struct transport_queue *q, struct transport_peer *p, const struct transport_sent *e,
				    uint32_t number)
{
	for (uint32_t at = 0; at < e->len;) {
		uint32_t left = e->len - at, len = left < p->payload_max ? left : p->payload_max;
		if (transport_put_fragment(q, p, e, number, at, len))
			return;
		at += len;
	}
}

void transport_ack_bits_forget(struct transport_peer *p)
{
	for (uint32_t number = p->una; number != p->next; number++) {
		struct transport_sent *e = &p->rings->sent[number % FAR_TRANSPORT_WINDOW];
		if (e->arrived)
			p->rings->flying += e->len;
		e->arrived = false;
	}
}

/* Returns true if enough packets sent after this one have arrived, or a probe, which was sent much later. */
static bool lost(struct transport_peer *p, const struct transport_sent *e)
{
	const struct transport_rings *r = p->rings;
	uint32_t arrived = e->priority == TRANSPORT_PRIORITY_URGENT ? r->order_arrived : r->below_arrived[e->priority];
	if ((int32_t)(arrived - e->order) >= (int32_t)p->path.reorder)
		return true;
	if (!r->probe_out || e->priority < r->probe_priority || (int32_t)(r->order_arrived - r->probe_order) < 0 ||
	    (int32_t)(r->probe_order - e->order) <= 0)
		return false;
	/* Those that waited for the probe have waited too long: lower the threshold. */
	if (p->path.reorder > FAR_TRANSPORT_REORDER &&
	    (int32_t)(r->order_arrived - e->order) >= (int32_t)FAR_TRANSPORT_REORDER)
		p->path.reorder--;
	return true;
}

/* A packet without any news may wait in the network behind traffic of higher priority. */
static void make_urgent(struct transport_sent *e)
{
	if (e->priority < TRANSPORT_PRIORITY_URGENT - 1)
		e->priority = TRANSPORT_PRIORITY_URGENT - 1;
}

void transport_tail_probe(struct transport_queue *q, struct transport_peer *p)
{
	uint32_t number = p->next - p->una <= TRANSPORT_BITMAP ? p->next - 1 : p->una + TRANSPORT_BITMAP;
	struct transport_rings *r = p->rings;
	while (number != p->una && r->sent[number % FAR_TRANSPORT_WINDOW].arrived)
		number--;
	struct transport_sent *e = &r->sent[number % FAR_TRANSPORT_WINDOW];
	if (transport_put_retransmit(q, p, e, number))
		return;
	e->order = ++r->order;
	e->retransmit |= TRANSPORT_RETRANSMIT_TIMEOUT;
	r->resent = true;
	r->probe_out = true;
	r->probe_order = e->order;
	r->probe_number = number;
	r->probe_priority = e->priority;
	counter_bump(&q->tail_loss_probes);
}

void transport_retransmit(struct transport_queue *q, struct transport_peer *p, bool all)
{
	if (p->una == p->next)
		return;
	if (p->wide && p->via->ops->tx_bytes_max(p->via->lower, p->lower_peer) < TRANSPORT_WIDE_PATH)
		p->wide = false; /* what is in flight is retransmitted unchanged, IP fragments it */
	uint32_t end = p->next - p->una <= TRANSPORT_BITMAP ? p->next : p->una + TRANSPORT_BITMAP + 1;
	/* Granted packets have the lowest priority and may wait in the network for long. So only the first of them is
	 * retransmitted; the probe that follows its ACK shows which others are lost. Not on a path so slow that there
	 * are no probes: each packet would need a time-out of its own. */
	struct transport_rtt calm = p->rings->rtt;
	calm.backoff = 0;
	bool first_asks = all && rtt_probe(&calm, q->now) != 0;
	for (uint32_t number = p->una; number != end; number++) {
		struct transport_sent *e = &p->rings->sent[number % FAR_TRANSPORT_WINDOW];
		if (e->arrived || !(all || lost(p, e)))
			continue;
		if (first_asks && number != p->una && e->priority <= TRANSPORT_PRIORITY_GRANTED_MAX)
			continue;
		if (all)
			make_urgent(e);
		int error = transport_put_retransmit(q, p, e, number);
		if (error == -EMSGSIZE && (e->lines || (e->last && e->message->next))) {
			transport_peer_dead(q, p, error); /* below the smallest path MTU */
			return;
		}
		if (error == -EMSGSIZE) {
			transport_mtu_shrunk(p);
			if (number == p->una)
				transport_retransmit_fragments(q, p, e, number);
		} else if (error) {
			return;
		}
		e->order = ++p->rings->order;
		p->rings->resent = true;
		e->retransmit |= all ? TRANSPORT_RETRANSMIT_TIMEOUT : TRANSPORT_RETRANSMIT_LOSS;
		PROBE(retransmit, p->remote_id, number, e->len, all);
		counter_bump(&q->resent);
		/* A silent peer is sent one packet at a time. */
		if (all && p->rings->resends > 1)
			return;
	}
}

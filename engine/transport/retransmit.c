/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Retransmission and tail loss probes. Poller.
 *
 * A retransmitted packet keeps its number and bytes. If the path MTU has shrunk below it, it is sent in fragments, one
 * packet at a time, since the receiver accepts fragments of its next packet only.
 */
#include "transport/port.h"

#include <errno.h>

bool link_narrower(struct link_peer *p)
{
	uint64_t most = p->via->ops->tx_bytes_max(p->via->lower, p->lower_peer);
	if (most >= LINK_HEAD + p->payload_max || most < LINK_PACKET_MIN)
		return false;
	p->payload_max = (uint32_t)most - LINK_HEAD;
	return true;
}

void link_resend_pieces(struct link_queue *q, struct link_peer *p, const struct link_sent *e, uint32_t number)
{
	for (uint32_t at = 0; at < e->len;) {
		uint32_t left = e->len - at, len = left < p->payload_max ? left : p->payload_max;
		if (link_put_piece(q, p, e, number, at, len))
			return;
		at += len;
	}
}

void link_doubt(struct link_peer *p)
{
	for (uint32_t number = p->una; number != p->next; number++) {
		struct link_sent *e = &p->rings->sent[number % FAR_LINK_WINDOW];
		if (e->arrived)
			p->rings->flying += e->len;
		e->arrived = false;
	}
}

/* Returns true if enough packets sent after this one have arrived, or a probe, which was sent much later. */
static bool lost(struct link_peer *p, const struct link_sent *e)
{
	const struct link_rings *r = p->rings;
	uint32_t arrived = e->priority == LINK_URGENT ? r->order_arrived : r->below_arrived[e->priority];
	if ((int32_t)(arrived - e->order) >= (int32_t)p->path.reorder)
		return true;
	if (!r->probe_out || e->priority < r->probe_priority || (int32_t)(r->order_arrived - r->probe_order) < 0 ||
	    (int32_t)(r->probe_order - e->order) <= 0)
		return false;
	/* Those that waited for the probe have waited too long: lower the threshold. */
	if (p->path.reorder > FAR_LINK_REORDER && (int32_t)(r->order_arrived - e->order) >= (int32_t)FAR_LINK_REORDER)
		p->path.reorder--;
	return true;
}

/* A packet without any news may wait in the network behind traffic of higher priority. */
static void make_urgent(struct link_sent *e)
{
	if (e->priority < LINK_URGENT - 1)
		e->priority = LINK_URGENT - 1;
}

void link_probe(struct link_queue *q, struct link_peer *p)
{
	uint32_t number = p->next - p->una <= LINK_BITMAP ? p->next - 1 : p->una + LINK_BITMAP;
	struct link_rings *r = p->rings;
	while (number != p->una && r->sent[number % FAR_LINK_WINDOW].arrived)
		number--;
	struct link_sent *e = &r->sent[number % FAR_LINK_WINDOW];
	if (link_put_again(q, p, e, number))
		return;
	e->order = ++r->order;
	e->retransmit |= LINK_BY_TIME;
	r->resent = true;
	r->probe_out = true;
	r->probe_order = e->order;
	r->probe_number = number;
	r->probe_priority = e->priority;
	counter_bump(&q->probes);
}

void link_resend(struct link_queue *q, struct link_peer *p, bool all)
{
	if (p->una == p->next)
		return;
	uint32_t end = p->next - p->una <= LINK_BITMAP ? p->next : p->una + LINK_BITMAP + 1;
	/* Granted packets have the lowest priority and may wait in the network for long. So only the first of them is
	 * retransmitted; the probe that follows its ACK shows which others are lost. Not on a path so slow that there
	 * are no probes: each packet would need a time-out of its own. */
	struct link_rtt calm = p->rings->rtt;
	calm.backoff = 0;
	bool first_asks = all && rtt_probe(&calm, q->now) != 0;
	for (uint32_t number = p->una; number != end; number++) {
		struct link_sent *e = &p->rings->sent[number % FAR_LINK_WINDOW];
		if (e->arrived || !(all || lost(p, e)))
			continue;
		if (first_asks && number != p->una && e->priority <= LINK_GRANTED)
			continue;
		if (all)
			make_urgent(e);
		int error = link_put_again(q, p, e, number);
		if (error == -EMSGSIZE && e->last && e->message->next) {
			link_peer_dead(q, p, error); /* below the smallest path MTU */
			return;
		}
		if (error == -EMSGSIZE) {
			link_narrower(p);
			if (number == p->una)
				link_resend_pieces(q, p, e, number);
		} else if (error) {
			return;
		}
		e->order = ++p->rings->order;
		p->rings->resent = true;
		e->retransmit |= all ? LINK_BY_TIME : LINK_BY_EVIDENCE;
		counter_bump(&q->resent);
		/* A silent peer is sent one packet at a time. */
		if (all && p->rings->resends > 1)
			return;
	}
}

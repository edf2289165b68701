/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Scheduling of larger messages at the sender, and grants received. Poller.
 *
 * Up to FAR_TRANSPORT_OPEN_MAX messages of a peer are sent at once, each up to its grant. The next packet is of the
 * message with the fewest bytes left, or, now and then, of the oldest. An ordered message begins when all those that it
 * must not pass have their packet numbers, since the receiver processes packets by number.
 */
#include "transport/schedule.h"

#include "base/mutant.h"
#include "transport/expose.h"
#include "transport/rings.h"
#include "transport/send.h"

#include <errno.h>

bool transport_ring_room(struct transport_queue *via, uint32_t payload_max)
{
	uint32_t bytes = TRANSPORT_HEAD_BYTES + payload_max;
	uint32_t most = via->ring_most > 2 * bytes ? via->ring_most : 2 * bytes;
	uint64_t waiting = via->ops->tx_waiting(via->lower, most - bytes);
	if (waiting + bytes > most) {
		via->ring_watched = true;
		return false;
	}
	if (via->ring_watched && waiting == 0) {
		via->ring_most = 2 * most < FAR_TRANSPORT_RING_BYTES_MAX ? 2 * most : FAR_TRANSPORT_RING_BYTES_MAX;
		via->ring_n = 0;
	} else if (++via->ring_n == FAR_TRANSPORT_RING_PACKETS) {
		via->ring_most -= via->ring_most / 16;
		via->ring_n = 0;
	}
	via->ring_watched = false;
	return true;
}

/* Returns true if a message may get its first packet number. `strict`: a message before it in the list is ordered. */
static bool may_begin(const struct transport_peer *p, const struct transport_message *m, bool strict)
{
	if (m->transfer == TRANSPORT_TX_EXPOSING ||
	    (m->len > p->payload_max && p->rings->bulk_open >= FAR_TRANSPORT_OPEN_MAX))
		return false;
	if (m->order == NIC_ORDER_NONE)
		return true;
	if (m->order == NIC_ORDER_ALL ? m != p->rings->bulk_next : strict)
		return false;
	return MUTANT(BULK_EARLY) || (int32_t)(p->rings->small_sent - m->after) >= 0;
}

static inline uint32_t left_of(const struct transport_message *m)
{
	return m->len - m->done;
}

struct transport_message *transport_bulk_pick(const struct transport_peer *p)
{
	bool strict = false, oldest = p->rings->bulk_turn % FAR_TRANSPORT_GRANT_SHARE == 0;
	struct transport_message *best = NULL, *m = p->rings->bulk_next;
	for (unsigned n = 0; m && n < FAR_TRANSPORT_SCAN_MAX; n++, m = m->next) {
		bool may = m->done ? m->done < m->granted : may_begin(p, m, strict);
		strict |= m->order != NIC_ORDER_NONE;
		if (may && (!best || left_of(m) < left_of(best)))
			best = m;
		if (best && oldest)
			break;
	}
	return best;
}

/* Fewest bytes left of a message of this peer. 0: none may send, so that the peer leaves the backlog. */
static uint32_t least_left(const struct transport_peer *p)
{
	const struct transport_message *m = p->rings->bulk_next && !p->dead ? transport_bulk_pick(p) : NULL;
	return m ? left_of(m) : 0;
}

struct transport_peer *transport_backlog_take(struct transport_queue *q, bool shortest)
{
	struct transport_peer *best = q->backlog_first, *best_before = NULL, *before = best,
			      *p = best->rings->next_backlog;
	if (shortest && p) {
		uint32_t least = least_left(best);
		for (unsigned n = 1; p && n < FAR_TRANSPORT_SCAN_MAX; n++, before = p, p = p->rings->next_backlog) {
			uint32_t left = least_left(p);
			if (left >= least)
				continue;
			least = left;
			best = p;
			best_before = before;
		}
	}
	*(best_before ? &best_before->rings->next_backlog : &q->backlog_first) = best->rings->next_backlog;
	if (q->backlog_last == best)
		q->backlog_last = best_before;
	best->backlogged = false;
	return best;
}

void transport_bulk_done(struct transport_peer *p, struct transport_message *m)
{
	struct transport_message **at = &p->rings->bulk_next, *before = NULL;
	while (*at != m) {
		before = *at;
		at = &before->next;
	}
	*at = m->next;
	if (p->rings->bulk_last == m)
		p->rings->bulk_last = before;
	m->next = NULL;
	p->rings->bulk_open--;
	p->rings->bulk_strict -= m->order != NIC_ORDER_NONE;
}

void transport_bulk_numbered(struct transport_peer *p, unsigned order)
{
	if (!p->rings->bulk_out) {
		p->rings->bulk_out = true;
		p->rings->small_last = p->next - 1;
		p->rings->strict_end = p->next;
	}
	p->rings->bulk_end = p->next + 1;
	if (order != NIC_ORDER_NONE)
		p->rings->strict_end = p->next + 1;
}

unsigned transport_bulk_unordered(struct transport_peer *p, const struct transport_message *m,
				  const struct transport_message *end, uint32_t *offset)
{
	if ((int32_t)(p->rings->bulk_end - p->una) <= 0) {
		p->rings->bulk_out = false;
		return 0;
	}
	bool stream = (int32_t)(p->rings->strict_end - p->una) <= 0;
	for (;; m = m->next) {
		if (m->order != NIC_ORDER_NONE && !(m->order == NIC_ORDER_STREAM && stream))
			return 0;
		if (m == end)
			break;
	}
	uint32_t before = (int32_t)(p->rings->small_last - p->una) >= 0 ? p->rings->small_last : p->una - 1;
	*offset = p->next - before;
	return WIRE_UNORDERED;
}

/* Processes one grant. A grant of a message that is sent completely is old. false: protocol error. */
static bool granted(struct transport_queue *q, struct transport_peer *p, const struct wire_grant *g)
{
	uint32_t first = le32_get(g->first), offset = le32_get(g->offset), priority = le32_get(g->priority);
	bool here = priority & WIRE_READ_DONE;
	struct transport_message *m = p->rings ? p->rings->bulk_next : NULL;
	if (here && !p->bulk)
		return false;
	priority &= ~WIRE_READ_DONE;
	for (unsigned n = 0; m && n < FAR_TRANSPORT_SCAN_MAX; n++, m = m->next) {
		if (m->done == 0 || m->first != first)
			continue;
		if (offset > m->len || !transport_offer_granted(q, m, offset, here))
			return false;
		offset += here;
		if (offset > m->granted)
			m->granted = offset;
		if (offset == m->granted)
			m->priority = priority < TRANSPORT_PRIORITY_GRANTED_MAX ? (uint8_t)priority
										: TRANSPORT_PRIORITY_GRANTED_MAX;
		break;
	}
	return true;
}

uint8_t transport_bulk_priority(uint32_t len)
{
	return len <= FAR_TRANSPORT_MEDIUM_BYTES ? TRANSPORT_PRIORITY_URGENT - 1
	       : len <= FAR_TRANSPORT_LONG_BYTES ? TRANSPORT_PRIORITY_URGENT - 2
						 : TRANSPORT_PRIORITY_URGENT - 3;
}

void transport_bulk_window(struct transport_peer *p, uint32_t packets)
{
	if (packets == 0)
		return;
	uint32_t window = packets < FAR_TRANSPORT_WINDOW ? packets : FAR_TRANSPORT_WINDOW;
	uint32_t small = window / (FAR_TRANSPORT_WINDOW / FAR_TRANSPORT_SMALL_PACKETS);
	p->window = (uint16_t)window;
	p->window_bulk = (uint16_t)(window > 1 ? window - (small ? small : 1) : 1);
}

void transport_grants_receive(struct transport_queue *q, struct transport_peer *p, const struct wire_ack *h,
			      const uint8_t *body, uint64_t len)
{
	uint32_t unscheduled_bytes = le32_get(h->unscheduled_bytes);
	transport_bulk_window(p, le32_get(h->window));
	if (unscheduled_bytes)
		p->unscheduled_bytes = unscheduled_bytes < FAR_TRANSPORT_UNSCHEDULED_BYTES_MAX
					       ? unscheduled_bytes
					       : FAR_TRANSPORT_UNSCHEDULED_BYTES_MAX;
	if (len % sizeof(struct wire_grant) || len > FAR_TRANSPORT_OPEN_MAX * sizeof(struct wire_grant)) {
		counter_bump(&q->malformed);
		transport_peer_dead(q, p, -EPROTO);
		return;
	}
	for (struct wire_grant g; len; len -= sizeof g, body += sizeof g) {
		memcpy(&g, body, sizeof g);
		if (granted(q, p, &g))
			continue;
		counter_bump(&q->malformed);
		transport_peer_dead(q, p, -EPROTO);
		return;
	}
	if (p->rings && p->rings->bulk_next)
		transport_backlog_add(q, p);
}

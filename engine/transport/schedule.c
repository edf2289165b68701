/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Scheduling of larger messages at the sender, and grants received. Poller.
 *
 * Up to FAR_LINK_OPEN messages of a peer are sent at once, each up to its grant. The next packet is of the message with
 * the fewest bytes left, or, now and then, of the oldest. An ordered message begins when all those that it must not
 * pass have their packet numbers, since the receiver processes packets by number.
 */
#include "transport/port.h"

#include "base/mutant.h"

#include <errno.h>
#include <string.h>

bool link_ring_room(struct link_queue *via, uint32_t payload_max)
{
	uint32_t bytes = LINK_HEAD + payload_max;
	uint32_t most = via->ring_most > 2 * bytes ? via->ring_most : 2 * bytes;
	uint64_t waiting = via->ops->tx_waiting(via->lower, most - bytes);
	if (waiting + bytes > most) {
		via->ring_watched = true;
		return false;
	}
	if (via->ring_watched && waiting == 0) {
		via->ring_most = 2 * most < FAR_LINK_RING_BYTES_MAX ? 2 * most : FAR_LINK_RING_BYTES_MAX;
		via->ring_n = 0;
	} else if (++via->ring_n == FAR_LINK_RING_PACKETS) {
		via->ring_most -= via->ring_most / 16;
		via->ring_n = 0;
	}
	via->ring_watched = false;
	return true;
}

/* Returns true if a message may get its first packet number. `strict`: a message before it in the list is ordered. */
static bool may_begin(const struct link_peer *p, const struct link_message *m, bool strict)
{
	if (m->transfer == LINK_OUT_WAITS || (m->len > p->payload_max && p->rings->bulk_open >= FAR_LINK_OPEN))
		return false;
	if (m->order == NIC_ORDER_NONE)
		return true;
	if (m->order == NIC_ORDER_ALL ? m != p->rings->bulk_next : strict)
		return false;
	return MUTANT(BULK_EARLY) || (int32_t)(p->rings->small_sent - m->after) >= 0;
}

static inline uint32_t left_of(const struct link_message *m)
{
	return m->len - m->done;
}

struct link_message *link_bulk_pick(const struct link_peer *p)
{
	bool strict = false, oldest = p->rings->bulk_turn % FAR_LINK_GRANT_SHARE == 0;
	struct link_message *best = NULL, *m = p->rings->bulk_next;
	for (unsigned n = 0; m && n < FAR_LINK_LOOK; n++, m = m->next) {
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
static uint32_t least_left(const struct link_peer *p)
{
	const struct link_message *m = p->rings->bulk_next && !p->dead ? link_bulk_pick(p) : NULL;
	return m ? left_of(m) : 0;
}

struct link_peer *link_backlog_take(struct link_queue *q, bool shortest)
{
	struct link_peer *best = q->backlog_first, *best_before = NULL, *before = best, *p = best->rings->next_backlog;
	if (shortest && p) {
		uint32_t least = least_left(best);
		for (unsigned n = 1; p && n < FAR_LINK_LOOK; n++, before = p, p = p->rings->next_backlog) {
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

void link_bulk_done(struct link_peer *p, struct link_message *m)
{
	struct link_message **at = &p->rings->bulk_next, *before = NULL;
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

void link_bulk_note(struct link_peer *p, unsigned order)
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

unsigned link_bulk_loosen(struct link_peer *p, const struct link_message *m, const struct link_message *end,
			  uint32_t *offset)
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
	return WIRE_LOOSE;
}

/* Processes one grant. A grant of a message that is sent completely is old. false: protocol error. */
static bool granted(struct link_queue *q, struct link_peer *p, const struct wire_grant *g)
{
	uint32_t first = be32_get(g->first), offset = be32_get(g->offset), priority = be32_get(g->priority);
	bool here = priority & WIRE_HERE;
	struct link_message *m = p->rings ? p->rings->bulk_next : NULL;
	if (here && !p->bulk)
		return false;
	priority &= ~WIRE_HERE;
	for (unsigned n = 0; m && n < FAR_LINK_LOOK; n++, m = m->next) {
		if (m->done == 0 || m->first != first)
			continue;
		if (offset > m->len || !link_offer_granted(q, m, offset, here))
			return false;
		offset += here;
		if (offset > m->granted)
			m->granted = offset;
		if (offset == m->granted)
			m->priority = priority < LINK_GRANTED ? (uint8_t)priority : LINK_GRANTED;
		break;
	}
	return true;
}

uint8_t link_bulk_priority(uint32_t len)
{
	return len <= FAR_LINK_MEDIUM_BYTES ? LINK_URGENT - 1
	       : len <= FAR_LINK_LONG_BYTES ? LINK_URGENT - 2
					    : LINK_URGENT - 3;
}

void link_bulk_window(struct link_peer *p, uint32_t packets)
{
	if (packets == 0)
		return;
	uint32_t window = packets < FAR_LINK_WINDOW ? packets : FAR_LINK_WINDOW;
	uint32_t small = window / (FAR_LINK_WINDOW / FAR_LINK_SMALL_PACKETS);
	p->window = (uint16_t)window;
	p->window_bulk = (uint16_t)(window > 1 ? window - (small ? small : 1) : 1);
}

void link_bulk_told(struct link_queue *q, struct link_peer *p, const struct wire_head *h, const uint8_t *body,
		    uint64_t len)
{
	uint32_t unasked = be32_get(h->length);
	link_bulk_window(p, be32_get(h->offset));
	if (unasked)
		p->unasked = unasked < FAR_LINK_UNASKED_MAX ? unasked : FAR_LINK_UNASKED_MAX;
	if (len % sizeof(struct wire_grant) || len > FAR_LINK_OPEN * sizeof(struct wire_grant)) {
		counter_bump(&q->malformed);
		link_peer_dead(q, p, -EPROTO);
		return;
	}
	for (struct wire_grant g; len; len -= sizeof g, body += sizeof g) {
		memcpy(&g, body, sizeof g);
		if (granted(q, p, &g))
			continue;
		counter_bump(&q->malformed);
		link_peer_dead(q, p, -EPROTO);
		return;
	}
	if (p->rings && p->rings->bulk_next)
		link_backlog_add(q, p);
}

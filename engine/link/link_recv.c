/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What arrives. A packet that is due and is a whole message goes up from where it lies, when it lies aligned. All
 * others are copied to their place in their message, and go up in order when what was missing has come.
 *
 * Whom a packet is from is told by the token in it: its number finds the peer, the rest of its bits, and the port's
 * identity, are what a stranger would have to guess. What has no token of ours and belongs to a set-up goes to the
 * control core; anything else is dropped and counted.
 */
#include "link/link_port.h"

#include "base/crc32c.h"

#include <errno.h>
#include <string.h>

/* Empty passes, and others, between two readings of the clock. */
#define LULL_PASSES 8u
#define BUSY_PASSES 64u

/* ---- acknowledgements ---- */

/* The driver below may have moved us on by itself: what is narrower goes in pieces, one packet at a time. */
static void send_due_pieces(struct link_queue *q, struct link_peer *p)
{
	if (p->una != p->next && p->rings->sent[p->una % FAR_LINK_WINDOW].len > p->payload_max) {
		p->resends = 2; /* this one only */
		link_resend(q, p, true);
		p->resends = 0;
	}
}

static inline void advance_una(struct link_peer *p, uint32_t ack)
{
	uint32_t una = p->una;
	do {
		struct link_sent *e = &p->rings->sent[una % FAR_LINK_WINDOW];
		if (__builtin_expect(!e->arrived, 1)) {
			p->flying -= e->len;
			if ((int32_t)(e->order - p->order_arrived) > 0)
				p->order_arrived = e->order;
		}
		if (e->last) {
			struct link_message *m = e->message;
			p->out_first = m->next;
			p->out_n--;
			link_message_out_free(p, m);
		}
	} while (++una != ack);
	p->una = una;
	p->resend_at = 0;
	p->resends = 0;
}

__attribute__((noinline)) static void take_bits(struct link_queue *q, struct link_peer *p, uint64_t bits)
{
	uint32_t flying = p->next - p->una;
	for (uint32_t i = 1; bits && i < flying && i <= 64; i++, bits >>= 1) {
		struct link_sent *e = &p->rings->sent[(p->una + i) % FAR_LINK_WINDOW];
		if (!(bits & 1) || e->arrived)
			continue;
		e->arrived = true;
		p->flying -= e->len;
		if ((int32_t)(e->order - p->order_arrived) > 0)
			p->order_arrived = e->order;
	}
	link_resend(q, p, false);
	link_backlog_add(q, p);
}

static inline void take_ack(struct link_queue *q, struct link_peer *p, uint32_t ack, uint64_t bits)
{
	uint32_t step = ack - p->una;
	if (step) {
		if (__builtin_expect(step > p->next - p->una, 0))
			return; /* an old one, or of packets that were never sent */
		advance_una(p, ack);
		if (__builtin_expect(p->out_next != NULL, 0))
			link_backlog_add(q, p);
		if (__builtin_expect(p->una != p->next, 0))
			send_due_pieces(q, p);
	}
	if (__builtin_expect(bits != 0, 0))
		take_bits(q, p, bits);
}

/* ---- whole messages ---- */

static void deliver(struct link_queue *q, struct link_peer *p, struct link_message *m)
{
	m->next = NULL;
	if (p->attached) {
		*q->ready_last = m;
		q->ready_last = &m->next;
		p->ready_n++;
	} else {
		*p->held_last = m;
		p->held_last = &m->next;
	}
}

static unsigned hand_up(struct link_queue *q, struct nic_pkt *pkts, unsigned max)
{
	unsigned n = 0;
	for (; n < max && q->ready_first; n++) {
		struct link_message *m = q->ready_first;
		struct link_peer *p = m->peer;
		q->ready_first = m->next;
		p->ready_n--;
		if (p->loop)
			p->out_n--;
		pkts[n] = (struct nic_pkt){.head = (const uint8_t *)&m->head,
					   .body = m->len ? m->body : NULL,
					   .body_len = m->len,
					   .cookie = m->buf ? (uint64_t)(uintptr_t)m : 0,
					   .peer = p->index};
		if (!m->buf) {
			m->next = q->burst;
			q->burst = m;
		}
	}
	if (!q->ready_first)
		q->ready_last = &q->ready_first;
	return n;
}

void link_release(struct nic_queue *nq, uint32_t peer, uint64_t cookie)
{
	(void)peer;
	if (cookie)
		link_message_in_free((struct link_queue *)nq, (struct link_message *)(uintptr_t)cookie);
}

/* ---- messages that are not whole, or not due ---- */

static inline void head_read(const struct wire_head *h, struct shm_head *out)
{
	uint64_t time = be64_get(h->time);
	out->type = h->type;
	out->flags = h->flags;
	out->fn = be16_get(h->fn);
	out->call = be32_get(h->call);
	out->gen = be32_get(h->gen);
	out->tlv_bytes = be32_get(h->tlv_bytes);
	out->time_low = (uint32_t)time;
	out->time_high = (uint32_t)(time >> 32);
	out->reserved = be32_get(h->reserved);
}

/* It has our token and says what cannot be. */
static void broken(struct link_queue *q, struct link_peer *p)
{
	counter_bump(&q->malformed);
	link_peer_dead(q, p, -EPROTO);
}

static struct link_message *assembling(struct link_peer *p, uint32_t first)
{
	for (unsigned i = 0; i < FAR_LINK_ASSEMBLIES; i++)
		if (p->assembling[i] && p->assembling[i]->first == first)
			return p->assembling[i];
	return NULL;
}

/* Gives up what came before its turn, so that what is due has memory. The sender sends it again. */
static void early_forget(struct link_queue *q, struct link_peer *p)
{
	for (uint32_t i = 0; i < FAR_LINK_WINDOW; i++) {
		struct link_message *m = p->rings->arrived[i].message;
		p->rings->arrived[i].message = NULL;
		bool part = false;
		for (unsigned k = 0; m && k < FAR_LINK_ASSEMBLIES; k++)
			part |= p->assembling[k] == m;
		if (m && !part)
			link_message_in_free(q, m);
	}
	for (unsigned k = 0; k < FAR_LINK_ASSEMBLIES; k++)
		if (p->assembling[k] && p->assembling[k] != p->due_message) {
			link_message_in_free(q, p->assembling[k]);
			p->assembling[k] = NULL;
		}
	p->early_n = 0;
}

/* Memory for a message of which this is the first packet that came; NULL: none now. */
static struct link_message *message_begin(struct link_queue *q, struct link_peer *p, uint32_t first, uint32_t length,
					  bool whole, bool due)
{
	unsigned used = 0, at = FAR_LINK_ASSEMBLIES;
	for (unsigned i = 0; i < FAR_LINK_ASSEMBLIES; i++) {
		if (p->assembling[i])
			used++;
		else
			at = i;
	}
	if (!whole && used >= FAR_LINK_ASSEMBLIES - (due ? 0 : 1))
		return NULL;
	struct link_message *m = link_message_in(q, p, length, due);
	if (!m && due && p->early_n) {
		early_forget(q, p);
		return message_begin(q, p, first, length, whole, due);
	}
	if (!m)
		return NULL;
	m->first = first;
	if (!whole)
		p->assembling[at] = m;
	return m;
}

static void message_end(struct link_queue *q, struct link_peer *p, struct link_message *m)
{
	for (unsigned i = 0; i < FAR_LINK_ASSEMBLIES; i++)
		if (p->assembling[i] == m)
			p->assembling[i] = NULL;
	p->due_message = NULL;
	deliver(q, p, m);
}

/* Takes in order what has arrived; false: it does not fit together. */
static bool advance_rx(struct link_queue *q, struct link_peer *p)
{
	struct link_arrived *a;
	while ((a = &p->rings->arrived[p->rx_next % FAR_LINK_WINDOW])->message) {
		struct link_message *m = a->message;
		/* More than is missing may come: pieces of the packet came before it. */
		if ((p->due_message && p->due_message != m) || a->offset > m->done || a->offset + a->len < m->done)
			return false;
		a->message = NULL;
		p->early_n--;
		p->rx_next++;
		m->done = a->offset + a->len;
		p->due_message = m;
		if (m->done == m->len)
			message_end(q, p, m);
	}
	return true;
}

struct fragment {
	uint32_t number, first, length, offset, len;
	const uint8_t *bytes;
};

static bool fragment_sane(const struct fragment *f, bool piece)
{
	uint64_t end = (uint64_t)f->offset + f->len;
	if (f->length > LINK_BODY_MAX || end > f->length || (f->len == 0 && f->length != 0))
		return false;
	/* Each packet before it has a byte at least. */
	if (f->number - f->first > f->offset)
		return false;
	return piece || (f->offset == 0) == (f->number == f->first);
}

static void fragment_put(struct link_message *m, const struct wire_head *h, const struct fragment *f)
{
	if (f->offset == 0)
		head_read(h, &m->head);
	if (f->len)
		memcpy(m->body + f->offset, f->bytes, f->len);
}

/* A part of the packet that is due; its parts are taken in order. */
static void take_piece(struct link_queue *q, struct link_peer *p, const struct wire_head *h, const struct fragment *f)
{
	struct link_message *m = assembling(p, f->first);
	link_ack_soon(q, p);
	if (f->number != p->rx_next)
		return;
	if (!m && f->offset == 0 && !(m = message_begin(q, p, f->first, f->length, false, true)))
		return;
	if (!m)
		return; /* what is before it was lost */
	if (m->len != f->length || (p->due_message && p->due_message != m)) {
		broken(q, p);
		return;
	}
	if (f->offset > m->done)
		return;
	fragment_put(m, h, f);
	if (f->offset + f->len > m->done)
		m->done = f->offset + f->len;
	p->due_message = m;
	if (h->marks & WIRE_MORE)
		return;
	p->rx_next++;
	if (m->done == m->len)
		message_end(q, p, m);
	if (!advance_rx(q, p))
		broken(q, p);
}

__attribute__((noinline)) static void take_fragment(struct link_queue *q, struct link_peer *p,
						    const struct wire_head *h, const struct fragment *f)
{
	uint32_t ahead = f->number - p->rx_next;
	struct link_arrived *a = &p->rings->arrived[f->number % FAR_LINK_WINDOW];
	bool piece = h->marks & WIRE_PIECE;
	if (ahead >= FAR_LINK_WINDOW || (ahead && a->message)) {
		if ((int32_t)ahead >= (int32_t)FAR_LINK_WINDOW) { /* beyond any window */
			broken(q, p);
			return;
		}
		counter_bump(&q->duplicates);
		link_ack_soon(q, p);
		return;
	}
	if (!fragment_sane(f, piece)) {
		broken(q, p);
		return;
	}
	if (piece) {
		take_piece(q, p, h, f);
		return;
	}
	bool whole = f->len == f->length;
	struct link_message *m = whole && !p->due_message ? NULL : assembling(p, f->first);
	if (!m && !(m = message_begin(q, p, f->first, f->length, whole, ahead == 0))) {
		link_ack_soon(q, p); /* no memory: it comes again, and hears that we live */
		return;
	}
	if (m->len != f->length) {
		broken(q, p);
		return;
	}
	fragment_put(m, h, f);
	*a = (struct link_arrived){m, f->offset, f->len};
	p->early_n++;
	p->owed++;
	if (ahead)
		link_ack_soon(q, p);
	else if (!advance_rx(q, p))
		broken(q, p);
}

/* ---- packets ---- */

/* To the control core; it is sent again when that has no room. */
__attribute__((noinline)) static void mail(struct link_queue *q, const struct nic_pkt *lp)
{
	if (lp->body_len <= LINK_MAIL_BYTES && link_mail_put(&q->mail, lp->body, (uint32_t)lp->body_len))
		link_port_signal(q->port);
	else
		counter_bump(&q->refused);
}

/* Everything but messages and acknowledgements of a connection. */
__attribute__((noinline)) static void take_other(struct link_queue *q, struct link_peer *p, const struct wire_head *h,
						 const struct nic_pkt *lp)
{
	switch (h->kind) {
	case WIRE_HELLO:
	case WIRE_WELCOME:
	case WIRE_REFUSED:
	case WIRE_WRONG_QUEUE:
		mail(q, lp);
		return;
	case WIRE_PING:
		if (!p) {
			mail(q, lp);
			return;
		}
		p->heard = true;
		link_ack_soon(q, p);
		return;
	case WIRE_RESET:
	case WIRE_BYE:
		if (p)
			link_peer_dead(q, p, h->kind == WIRE_BYE ? -ECONNRESET : -ESTALE);
		else
			mail(q, lp);
		return;
	case WIRE_MESSAGE:
	case WIRE_ACK:
		counter_bump(&q->refused);
		return;
	default:
		counter_bump(&q->malformed);
	}
}

static void confirm(struct link_queue *q, struct link_peer *p)
{
	p->confirmed = true;
	link_news_post(q, p, LINK_NEWS_CONFIRMED);
	link_backlog_add(q, p);
}

/* A whole message that is due: `pkt` is filled; false: it could not lie where it is, and there was no room. */
static inline bool hand_in_place(struct link_queue *q, struct link_peer *p, const struct wire_head *h,
				 const struct nic_pkt *lp, struct nic_pkt *pkt, unsigned n, bool *kept)
{
	const uint8_t *body = lp->body + LINK_HEAD;
	uint32_t len = (uint32_t)lp->body_len - LINK_HEAD;
	if (len == 0) {
		body = NULL;
	} else if ((uintptr_t)body & (len > FAR_LINE_PAYLOAD ? 63 : 31)) {
		if (len > LINK_SCRATCH_BYTES - q->scratch_used)
			return false;
		uint8_t *at = q->scratch + q->scratch_used;
		memcpy(at, body, len);
		q->scratch_used += (len + 63) & ~63u;
		body = at;
	} else if (lp->cookie) {
		q->given[q->given_n].peer = lp->peer;
		q->given[q->given_n++].cookie = lp->cookie;
		*kept = true;
	}
	head_read(h, &q->heads[n]);
	pkt->head = (const uint8_t *)&q->heads[n];
	pkt->body = body;
	pkt->body_len = len;
	pkt->cookie = 0;
	pkt->peer = p->index;
	return true;
}

static inline struct link_peer *peer_of(const struct link_queue *q, const struct wire_head *h)
{
	uint64_t token = be64_get(h->token);
	struct link_peer *p = q->peers[LINK_INDEX(token)];
	return p && p->started && p->token == token && be64_get(h->incarnation) == q->id && !p->loop ? p : NULL;
}

static bool crc_fits(const struct wire_head *h, const struct nic_pkt *lp)
{
	struct wire_head zeroed = *h;
	zeroed.crc = be32_of(0);
	uint32_t crc = crc32c(0, &zeroed, sizeof zeroed);
	return crc32c(crc, lp->body + LINK_HEAD, lp->body_len - LINK_HEAD) == be32_get(h->crc);
}

/* Many that came and were not acknowledged, or large ones: their sender may be out of window. */
static inline void ack_many(struct link_queue *q, struct link_peer *p, uint32_t bytes)
{
	p->owed_bytes += bytes;
	if (__builtin_expect(p->owed >= FAR_LINK_ACK_EVERY || p->owed_bytes >= FAR_LINK_ACK_BYTES, 0))
		link_ack_soon(q, p);
}

/* 1 when `pkt` was filled, the n-th of the burst. */
static inline unsigned take(struct link_queue *q, const struct nic_pkt *lp, struct nic_pkt *pkt, unsigned n, bool *kept)
{
	struct wire_head h;
	if (__builtin_expect(!lp->body || lp->body_len < LINK_HEAD || lp->body_len > UINT32_MAX, 0)) {
		counter_bump(&q->malformed);
		return 0;
	}
	memcpy(&h, lp->body, sizeof h);
	if (__builtin_expect(h.version != WIRE_VERSION, 0)) {
		counter_bump(&q->malformed);
		return 0;
	}
	if (q->crc && __builtin_expect(!crc_fits(&h, lp), 0)) {
		counter_bump(&q->crc_errors);
		return 0;
	}
	struct link_peer *p = peer_of(q, &h);
	if (__builtin_expect(!p || h.kind > WIRE_ACK || h.kind == 0, 0)) {
		take_other(q, p, &h, lp);
		return 0;
	}
	if (__builtin_expect(p->dead || p->detached, 0))
		return 0;
	p->heard = true;
	p->asleep_there = h.marks & WIRE_ASLEEP;
	if (__builtin_expect(!p->confirmed, 0))
		confirm(q, p);
	take_ack(q, p, be32_get(h.ack), be64_get(h.ack_bits));
	/* It went to sleep before it saw what is under way. */
	if (__builtin_expect(p->asleep_there && p->una != p->next, 0))
		link_kick(q, p);
	if (h.kind == WIRE_ACK)
		return 0;
	struct fragment f = {be32_get(h.packet),
			     be32_get(h.first),
			     be32_get(h.length),
			     be32_get(h.offset),
			     (uint32_t)lp->body_len - LINK_HEAD,
			     lp->body + LINK_HEAD};
	if (__builtin_expect(f.number == p->rx_next && f.first == f.number && f.len == f.length && f.offset == 0 &&
				     !p->early_n && !p->ready_n && p->attached && !p->due_message &&
				     !(h.marks & WIRE_PIECE) && f.len <= LINK_BODY_MAX,
			     1) &&
	    hand_in_place(q, p, &h, lp, pkt, n, kept)) {
		p->rx_next++;
		p->owed++;
		if (__builtin_expect(!p->active, 0))
			link_peer_activate(q, p);
		ack_many(q, p, f.len);
		return 1;
	}
	take_fragment(q, p, &h, &f);
	if (!p->active)
		link_peer_activate(q, p);
	ack_many(q, p, f.len);
	return 0;
}

/* What the burst before was lent. */
static inline void give_back(struct link_queue *q)
{
	for (uint32_t i = 0; i < q->given_n; i++)
		q->ops->release(q->lower, q->given[i].peer, q->given[i].cookie);
	q->given_n = 0;
	q->scratch_used = 0;
	while (__builtin_expect(q->burst != NULL, 0)) {
		struct link_message *m = q->burst;
		q->burst = m->next;
		link_message_in_free(q, m);
	}
}

unsigned link_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max)
{
	struct link_queue *q = (struct link_queue *)nq;
	struct nic_pkt lower[LINK_BURST];
	unsigned n = 0, got = 0;
	bool unflushed = q->unflushed; /* the caller's, who may have more for the same flush */
	if (__builtin_expect(link_board_any(&q->orders), 0))
		link_orders_serve(q);
	give_back(q);
	if (__builtin_expect(q->ready_first != NULL, 0))
		n = hand_up(q, pkts, max);
	if (n < max) {
		unsigned room = max - n < LINK_BURST ? max - n : LINK_BURST;
		got = q->ops->recv(q->lower, lower, room);
		for (unsigned i = 0; i < got; i++) {
			bool kept = false;
			n += take(q, &lower[i], &pkts[n], i, &kept);
			if (lower[i].cookie && !kept)
				q->ops->release(q->lower, lower[i].peer, lower[i].cookie);
		}
		if (__builtin_expect(q->ready_first != NULL, 0))
			n += hand_up(q, pkts + n, max - n);
	}
	if (__builtin_expect(q->acks_n, 0))
		link_send_acks(q);
	if (q->actives_n && (q->look || ++q->passes >= (got ? BUSY_PASSES : LULL_PASSES)))
		link_timers_run(q);
	if (__builtin_expect((q->unflushed && (!unflushed || n == 0)) || (q->backlog_first && got), 0))
		link_flush(nq);
	/* Nothing for the caller, who is about to sleep, and there may be more below, which nobody wakes for again. */
	if (__builtin_expect(q->armed && got && n == 0 && max, 0))
		q->ops->wake(q->lower);
	return n;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory of messages. Poller.
 *
 * Received messages are charged to their queue. A message in order may use all of FAR_TRANSPORT_IN_BYTES, one out of
 * order half of it. Without memory the packet is not acknowledged, and its sender retransmits it: nothing is lost.
 *
 * No deadlock is possible. The memory belongs to messages that the engine holds, which it releases whatever the peers
 * do; to complete ones, which the engine's next recv() takes; and to incomplete ones, which got all of their memory
 * with their first packet and wait for their senders only, which retransmit or are found DOWN.
 */
#include "transport/message.h"

#include "memory/budget.h"
#include "transport/assemble.h"
#include "transport/expose.h"
#include "transport/read.h"
#include "transport/rings.h"

#define FREE_MAX 256u /* messages that a queue keeps for itself, warm in its cache */

/* Takes an unused message of the segments, which hold as many as all connections may have in flight or reserved. */
__attribute__((noinline)) static struct transport_message *carve(struct transport_queue *q)
{
	uint32_t n = TRANSPORT_SEGMENT_PEERS * TRANSPORT_MESSAGES, i = q->carved / n;
	struct transport_segment *s =
		i < FAR_TRANSPORT_PEERS_MAX / TRANSPORT_SEGMENT_PEERS ? transport_segment_at(q, i) : NULL;
	if (!s)
		return NULL;
	budget_force(sizeof s->messages[0]);
	return &s->messages[q->carved++ % n];
}

static inline __attribute__((always_inline)) struct transport_message *out_take(struct transport_queue *q, uint32_t len)
{
	struct transport_message *m = q->out_free;
	if (__builtin_expect(m != NULL, 1))
		q->out_free = m->next;
	else if (!(m = carve(q)))
		return NULL;
	m->next = NULL;
	m->len = len;
	m->done = 0;
	return m;
}

struct transport_message *transport_message_zero_copy(struct transport_queue *q, struct transport_peer *p,
						      const void *body, uint32_t len, struct far_buf *owner)
{
	struct transport_message *m = out_take(q, len);
	if (!m)
		return NULL;
	buf_ref(owner);
	m->buf = owner;
	m->zero_copy = true;
	m->body = (uint8_t *)(uintptr_t)body;
	m->charged = len;
	p->out_bytes += len;
	return m;
}

struct transport_message *transport_message_out(struct transport_queue *q, struct transport_peer *p, uint32_t len)
{
	struct transport_message *m = out_take(q, len);
	if (__builtin_expect(!m, 0))
		return NULL;
	m->body = m->room;
	if (__builtin_expect(len <= sizeof m->room, 1))
		return m;
	m->buf = buf_alloc(len);
	if (!m->buf) {
		transport_message_out_free(q, p, m);
		return NULL;
	}
	m->body = buf_data(m->buf);
	m->charged = len;
	p->out_bytes += len;
	return m;
}

static void body_drop(struct transport_message *m)
{
	buf_unref(m->buf);
	m->buf = NULL;
	m->charged = 0;
}

void transport_message_out_drop(struct transport_peer *p, struct transport_message *m)
{
	if (p)
		p->out_bytes -= m->charged;
	if (m->onesided)
		transport_offer_end(p->queue, m);
	m->transfer = TRANSPORT_TX_UNDECIDED;
	m->zero_copy = m->borrowed = false;
	body_drop(m);
}

static struct transport_message *in_take(struct transport_queue *q)
{
	struct transport_message *m = q->free;
	if (m) {
		q->free = m->next;
		q->free_n--;
		return m;
	}
	struct far_buf *own = buf_alloc(sizeof *m);
	if (!own)
		return NULL;
	m = buf_data(own);
	m->own = own;
	m->buf = NULL;
	return m;
}

/* Receive placement. Called last, when nothing else can fail: a placed message must be received there. */
static bool is_placed(const struct transport_queue *q, const struct transport_peer *p,
		      const struct wire_message *begins, struct transport_message *m)
{
	struct nic_placement place;
	if (!q->place || !p->attached)
		return false;
	if (!q->place(q->place_ctx, p->index, begins->call, m->len, &place))
		return false;
	m->body = place.at;
	m->buf = place.owner;
	return true;
}

struct transport_message *transport_message_in(struct transport_queue *q, struct transport_peer *p, uint32_t len,
					       bool due, const struct wire_message *begins)
{
	uint32_t charge = len + (uint32_t)sizeof(struct transport_message);
	uint64_t most = due ? FAR_TRANSPORT_IN_BYTES : FAR_TRANSPORT_IN_BYTES / 2;
	struct transport_message *m = q->in_bytes + charge <= most ? in_take(q) : NULL;
	if (!m)
		return NULL;
	m->next = NULL;
	m->peer = p;
	m->len = len;
	m->done = 0;
	m->body = m->room;
	if (len > sizeof m->room && !(begins && is_placed(q, p, begins, m))) {
		m->buf = buf_alloc(len);
		if (!m->buf) {
			m->next = q->free;
			q->free = m;
			q->free_n++;
			return NULL;
		}
		m->body = buf_data(m->buf);
	}
	m->charged = charge;
	m->granted = 0;
	m->priority = 0;
	m->transfer = TRANSPORT_RX_PACKETS;
	m->onesided = 0;
	m->begun = m->stalled = m->unordered = m->unordered_bulk = false;
	m->early = 0;
	q->in_bytes += charge;
	return m;
}

void transport_message_in_free(struct transport_queue *q, struct transport_message *m)
{
	if (!m->own) { /* loopback: a sent message */
		transport_message_out_free(q, m->peer, m);
		return;
	}
	q->in_bytes -= m->charged;
	if (m->onesided)
		transport_read_drop(q, m);
	if (m->buf)
		body_drop(m);
	if (q->free_n >= FREE_MAX) {
		buf_unref(m->own);
		return;
	}
	m->next = q->free;
	q->free = m;
	q->free_n++;
}

void transport_messages_in_free(struct transport_queue *q, struct transport_message *m)
{
	while (m) {
		struct transport_message *next = m->next;
		transport_message_in_free(q, m);
		m = next;
	}
}

static void drop_ready(struct transport_queue *q, struct transport_peer *p)
{
	struct transport_message **at = &q->ready_first;
	while (p->ready_n) {
		struct transport_message *m = *at;
		if (m->peer != p) {
			at = &m->next;
			continue;
		}
		*at = m->next;
		p->ready_n--;
		transport_message_in_free(q, m);
	}
	for (at = &q->ready_first; *at; at = &(*at)->next)
		;
	q->ready_last = at;
}

static void out_free_all(struct transport_queue *q, struct transport_peer *p, struct transport_message *m)
{
	while (m) {
		struct transport_message *next = m->next;
		transport_message_out_free(q, p, m);
		m = next;
	}
}

static void drop_out(struct transport_queue *q, struct transport_peer *p)
{
	struct transport_rings *r = p->rings;
	for (uint32_t number = p->una; number != p->next; number++) {
		const struct transport_sent *e = &r->sent[number % FAR_TRANSPORT_WINDOW];
		if (e->last) /* lines are free with the lane */
			out_free_all(q, p, e->message);
	}
	out_free_all(q, p, r->out_next);
	out_free_all(q, p, r->bulk_next);
	p->out_n = 0;
	p->una = p->next;
}

/* Several packets may refer to a message: the last one frees it. */
static void drop_in(struct transport_queue *q, struct transport_peer *p)
{
	for (unsigned i = 0; i < FAR_TRANSPORT_ASSEMBLIES; i++) {
		struct transport_message *m = p->rings->assembling[i];
		p->rings->assembling[i] = NULL;
		for (unsigned k = 0; m && k < FAR_TRANSPORT_WINDOW; k++)
			if (p->rings->arrived[k].message == m)
				p->rings->arrived[k].message = NULL;
		if (!m)
			continue;
		transport_grants_end(q, m);
		transport_message_in_free(q, m);
	}
	for (unsigned k = 0; k < FAR_TRANSPORT_WINDOW; k++) {
		struct transport_message *m = p->rings->arrived[k].message;
		p->rings->arrived[k].message = NULL;
		if (m != &transport_handed_up)
			transport_messages_in_free(q, m);
	}
	p->early_n = 0;
	p->fragments = false;
}

void transport_messages_drop(struct transport_queue *q, struct transport_peer *p)
{
	if (q->batch.peer == p)
		transport_batch_end(q);
	drop_ready(q, p);
	p->out_n = 0; /* loopback */
	if (!p->rings)
		return;
	transport_messages_in_free(q, p->rings->held_first);
	drop_out(q, p);
	drop_in(q, p);
	transport_rings_renew(q, p);
}

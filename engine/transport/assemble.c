/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Reassembly of messages that cannot be delivered in place: incomplete, out of order, or not expected by the engine
 * yet. Their bytes are copied. They are delivered in order once what was missing has arrived, or, if they are
 * unordered, once they are complete. Poller.
 */
#include "transport/assemble.h"

#include "base/mutant.h"
#include "transport/placement.h"
#include "transport/read.h"
#include "transport/rings.h"
#include "transport/send.h"

#include <errno.h>

struct transport_message transport_handed_up;

static void deliver(struct transport_queue *q, struct transport_peer *p, struct transport_message *m)
{
	m->next = NULL;
	if (p->attached) {
		*q->ready_last = m;
		q->ready_last = &m->next;
		p->ready_n++;
	} else {
		*p->rings->held_last = m;
		p->rings->held_last = &m->next;
	}
}

uint64_t transport_ack_bits(const struct transport_peer *p)
{
	uint64_t bits = 0;
	for (uint32_t i = 0; i < TRANSPORT_BITMAP; i++)
		if (p->rings->arrived[(p->rx_next + 1 + i) % FAR_TRANSPORT_WINDOW].message)
			bits |= UINT64_C(1) << i;
	return bits;
}

void transport_protocol_error(struct transport_queue *q, struct transport_peer *p)
{
	counter_bump(&q->malformed);
	transport_peer_dead(q, p, -EPROTO);
}

static struct transport_message *assembling(struct transport_peer *p, uint32_t first)
{
	for (unsigned i = 0; i < FAR_TRANSPORT_ASSEMBLIES; i++)
		if (p->rings->assembling[i] && p->rings->assembling[i]->first == first)
			return p->rings->assembling[i];
	return NULL;
}

/* Drops packets that arrived out of order, so that the one expected next gets memory; the sender retransmits them. The
 * entries of delivered messages stay, or those would be delivered again. false: there was nothing to drop. */
static bool early_forget(struct transport_queue *q, struct transport_peer *p)
{
	uint32_t handed_up = 0, before = p->early_n;
	for (uint32_t i = 0; i < FAR_TRANSPORT_WINDOW; i++) {
		struct transport_message *m = p->rings->arrived[i].message;
		if (m == &transport_handed_up) {
			handed_up++;
			continue;
		}
		p->rings->arrived[i].message = NULL;
		bool part = false;
		for (unsigned k = 0; m && k < FAR_TRANSPORT_ASSEMBLIES; k++)
			part |= p->rings->assembling[k] == m;
		if (!part)
			transport_messages_in_free(q, m);
	}
	for (unsigned k = 0; k < FAR_TRANSPORT_ASSEMBLIES; k++) {
		struct transport_message *m = p->rings->assembling[k];
		if (m && m->begun) {
			m->early = 0;
		} else if (m) {
			transport_message_in_free(q, m);
			p->rings->assembling[k] = NULL;
		}
	}
	p->early_n = handed_up;
	p->rings->unordered_n = 0;
	p->fragments = false;
	return handed_up < before;
}

/* Allocates a message whose first packet has arrived. NULL: no memory now. `begins`: head of its first packet, if that
 * is the packet expected next: the message then stays until it is complete or the peer ends, which receive placement
 * requires. */
static struct transport_message *message_begin(struct transport_queue *q, struct transport_peer *p, uint32_t first,
					       uint32_t length, bool whole, bool due, const struct wire_message *begins)
{
	unsigned early = 0, at = FAR_TRANSPORT_ASSEMBLIES;
	for (unsigned i = 0; i < FAR_TRANSPORT_ASSEMBLIES; i++) {
		if (p->rings->assembling[i])
			early += !p->rings->assembling[i]->begun;
		else
			at = i;
	}
	if (!whole && (at == FAR_TRANSPORT_ASSEMBLIES ||
		       (!due && early >= FAR_TRANSPORT_ASSEMBLIES - FAR_TRANSPORT_OPEN_MAX - 1)))
		return NULL;
	struct transport_message *m = transport_message_in(q, p, length, due, begins);
	if (!m && due && p->early_n && early_forget(q, p))
		return message_begin(q, p, first, length, whole, due, begins);
	if (!m)
		return NULL;
	m->first = first;
	if (!whole)
		p->rings->assembling[at] = m;
	return m;
}

static void message_end(struct transport_queue *q, struct transport_peer *p, struct transport_message *m)
{
	for (unsigned i = 0; i < FAR_TRANSPORT_ASSEMBLIES; i++)
		if (p->rings->assembling[i] == m)
			p->rings->assembling[i] = NULL;
	transport_grants_end(q, m);
	deliver(q, p, m);
}

static void deliver_all(struct transport_queue *q, struct transport_peer *p, struct transport_message *m)
{
	while (m) {
		struct transport_message *next = m->next;
		deliver(q, p, m);
		m = next;
	}
}

/* Checks that the bytes in order and the packets out of order cover the whole message: each packet begins where the one
 * before ends, or inside bytes that arrived as fragments. */
static bool covered(const struct transport_peer *p, const struct transport_message *m)
{
	uint32_t at = m->done;
	for (uint32_t i = 0; i < FAR_TRANSPORT_WINDOW; i++) {
		const struct transport_received *a = &p->rings->arrived[(p->rx_next + i) % FAR_TRANSPORT_WINDOW];
		if (a->message != m)
			continue;
		if (a->offset > at || a->offset + a->len < at)
			return false;
		at = a->offset + a->len;
	}
	return at == m->len;
}

/* Returns true if an unordered message is complete: `end` bytes in order, the rest out of order. */
static bool has_come(const struct transport_message *m, uint32_t end)
{
	return m->unordered_bulk && m->early >= m->len - end;
}

/* Delivers an unordered message that is complete. The entries of its packets are marked as delivered until rx_next
 * reaches them. false: protocol error, its packets do not fit together. */
static bool hand_up_whole(struct transport_queue *q, struct transport_peer *p, struct transport_message *m)
{
	if (!covered(p, m))
		return false;
	for (uint32_t i = 0; i < FAR_TRANSPORT_WINDOW; i++) {
		struct transport_received *a = &p->rings->arrived[(p->rx_next + i) % FAR_TRANSPORT_WINDOW];
		if (a->message != m)
			continue;
		a->message = &transport_handed_up;
		if (MUTANT(EAGER_FORGOTTEN)) {
			a->message = NULL;
			p->early_n--;
		}
	}
	transport_grants_progress(q, m, m->len);
	message_end(q, p, m);
	return true;
}

/* The packet expected next has arrived; the message is in order up to `end`. Packets of several incomplete messages may
 * alternate, at most FAR_TRANSPORT_OPEN_MAX at a time, and complete ones lie between them. false: protocol error. */
static bool packet_end(struct transport_queue *q, struct transport_peer *p, struct transport_message *m, uint32_t end)
{
	p->rx_next++;
	p->fragments = false;
	if (end != m->len && has_come(m, end)) {
		transport_grants_progress(q, m, end);
		return hand_up_whole(q, p, m);
	}
	if (end != m->len && !m->begun && !transport_grants_begin(q, m))
		return false;
	if (end != m->len) /* the first one may be short: the next ones are probably as long as ours may be */
		transport_placement_expect(q, m, m->done ? end - m->done : p->payload_max);
	transport_grants_progress(q, m, end);
	if (end == m->len)
		message_end(q, p, m);
	return true;
}

/* Returns true if the packet that unordered packet `number` may not pass is delivered. */
static bool may_go_up(const struct transport_peer *p, uint32_t number, uint32_t offset)
{
	uint32_t before = number - offset;
	return (int32_t)(before - p->rx_next) < 0 ||
	       p->rings->arrived[before % FAR_TRANSPORT_WINDOW].message == &transport_handed_up;
}

/* Delivers the messages of an unordered packet; its entry is marked as delivered until rx_next reaches it. */
static void hand_up_early(struct transport_queue *q, struct transport_peer *p, struct transport_received *a)
{
	deliver_all(q, p, a->message);
	a->message = &transport_handed_up;
	if (MUTANT(UNORDERED_FORGOTTEN)) {
		a->message = NULL;
		p->early_n--;
	}
}

/* Delivers unordered packets whose barrier is delivered now. */
static void unordered_run(struct transport_queue *q, struct transport_peer *p)
{
	for (uint32_t i = 1; p->rings->unordered_n && i < FAR_TRANSPORT_WINDOW; i++) {
		struct transport_received *a = &p->rings->arrived[(p->rx_next + i) % FAR_TRANSPORT_WINDOW];
		if (!a->message || !a->message->unordered || !may_go_up(p, p->rx_next + i, a->offset))
			continue;
		a->message->unordered = false;
		p->rings->unordered_n--;
		hand_up_early(q, p, a);
	}
}

/* Advances rx_next over all packets that have arrived. false: protocol error. */
static bool advance_rx(struct transport_queue *q, struct transport_peer *p)
{
	struct transport_received *a;
	while ((a = &p->rings->arrived[p->rx_next % FAR_TRANSPORT_WINDOW])->message) {
		struct transport_message *m = a->message;
		uint32_t end = a->offset + a->len;
		bool whole = m->next || m->unordered;
		/* It may overlap: fragments of this packet may have arrived before it. */
		if (!whole && m != &transport_handed_up && (a->offset > m->done || end < m->done))
			return false;
		a->message = NULL;
		p->early_n--;
		if (m == &transport_handed_up) {
			p->rx_next++;
		} else if (whole) {
			p->rx_next++;
			p->rings->unordered_n -= m->unordered;
			m->unordered = false;
			deliver_all(q, p, m);
		} else {
			m->early -= a->len;
			if (!packet_end(q, p, m, end))
				return false;
		}
	}
	if (p->rings->unordered_n)
		unordered_run(q, p);
	return true;
}

static bool span_valid(const struct transport_span *f, bool piece)
{
	uint64_t end = (uint64_t)f->offset + f->len;
	if (f->length > TRANSPORT_BODY_MAX || end > f->length || (f->len == 0 && f->length != 0))
		return false;
	if ((int32_t)(f->number - f->first) < 0)
		return false;
	return piece || (f->offset == 0) == (f->number == f->first);
}

static void fragment_put(struct transport_message *m, const struct wire_message *h, const struct transport_span *f)
{
	if (f->offset == 0)
		memcpy(&m->head, h->call, sizeof m->head);
	if (f->len && f->bytes != m->body + f->offset)
		memcpy(m->body + f->offset, f->bytes, f->len);
}

/* Processes a fragment of the packet expected next. Fragments are accepted in order only. */
static void take_fragment(struct transport_queue *q, struct transport_peer *p, const struct wire_message *h,
			  const struct transport_span *f)
{
	struct transport_message *m = assembling(p, f->first);
	transport_ack_soon(q, p);
	/* Dropped if it is of another packet, follows a lost one, or finds no memory. */
	if (f->number == p->rx_next && !m && f->offset == 0)
		m = message_begin(q, p, f->first, f->length, false, true, h);
	if (f->number != p->rx_next || !m) {
		counter_bump(&q->no_memory);
		return;
	}
	if (m->len != f->length || m->transfer == TRANSPORT_RX_READING || (f->first != f->number && !m->begun)) {
		transport_protocol_error(q, p);
		return;
	}
	if (f->offset > m->done) {
		counter_bump(&q->no_memory);
		return;
	}
	fragment_put(m, h, f);
	if (f->offset + f->len > m->done)
		transport_grants_progress(q, m, f->offset + f->len);
	p->fragments = true;
	if (!(h->flags & WIRE_MORE) && (!packet_end(q, p, m, m->done) || !advance_rx(q, p)))
		transport_protocol_error(q, p);
}

/* Copies the messages of a packet, linked by `next`. NULL: no memory, or `malformed`. */
static struct transport_message *batch_copy(struct transport_queue *q, struct transport_peer *p,
					    const struct wire_message *h, const struct transport_span *f, bool due,
					    bool *malformed)
{
	struct transport_batch b = {p, f->bytes, f->length, f->len};
	struct transport_message *first = NULL, **last = &first, *m;
	struct wire_call head;
	uint32_t len = f->length;
	int more;
	memcpy(&head, h->call, sizeof head);
	do {
		m = message_begin(q, p, f->number, len, true, due, NULL);
		if (m) {
			m->head = head;
			memcpy(m->body, b.bytes + b.at - len, len);
			*last = m;
			last = &m->next;
		}
		more = m ? transport_batch_next(&b, head.bytes, &len) : 0;
	} while (more > 0);
	*malformed = more < 0;
	if (m && more == 0)
		return first;
	transport_messages_in_free(q, first);
	return NULL;
}

/* A packet that arrived before arrives again. If this one is a retransmission and the first was not, the next ACK
 * reports it as spurious. Duplicates made by the network have no RETRANSMIT mark. */
static void note_duplicate(struct transport_peer *p, const struct wire_message *h, uint32_t number)
{
	if (p->duplicate || (h->flags & (WIRE_RETRANSMIT | WIRE_FRAGMENT)) != WIRE_RETRANSMIT ||
	    (int32_t)(number - p->retransmitted_first) < 0)
		return;
	for (uint32_t i = 0; i < p->rings->retransmitted_n && i < TRANSPORT_RETRANSMITTED_KEPT; i++)
		if (p->rings->retransmitted[i] == number)
			return;
	p->duplicate = WIRE_DUPLICATE | ((int32_t)(number - p->rx_acked) >= 0 ? WIRE_UNACKED : 0);
	p->duplicate_number = number;
}

static void note_retransmitted(struct transport_peer *p, const struct wire_message *h, uint32_t number)
{
	if (h->flags & WIRE_RETRANSMIT)
		p->rings->retransmitted[p->rings->retransmitted_n++ % TRANSPORT_RETRANSMITTED_KEPT] = number;
}

/* Processes a packet of several messages that cannot be delivered in place. */
static void take_batch(struct transport_queue *q, struct transport_peer *p, const struct wire_message *h,
		       const struct transport_span *f, uint32_t ahead)
{
	bool malformed, kept = false;
	struct transport_message *m = batch_copy(q, p, h, f, ahead == 0, &malformed);
	if (malformed || (m && !ahead && p->fragments)) {
		transport_messages_in_free(q, m);
		transport_protocol_error(q, p);
		return;
	}
	if (!m)
		counter_bump(&q->no_memory);
	if (m) {
		note_retransmitted(p, h, f->number);
		p->rings->arrived[f->number % FAR_TRANSPORT_WINDOW] = (struct transport_received){m, 0, f->len};
		p->early_n++;
		for (; m; m = m->next)
			p->owed++;
		kept = true;
	}
	if (ahead || !kept)
		transport_ack_soon(q, p);
	else if (!advance_rx(q, p))
		transport_protocol_error(q, p);
}

/* Processes an unordered packet of small messages that is out of order: delivered once its barrier is. */
static void take_unordered(struct transport_queue *q, struct transport_peer *p, const struct wire_message *h,
			   const struct transport_span *f)
{
	struct transport_received *a = &p->rings->arrived[f->number % FAR_TRANSPORT_WINDOW];
	bool malformed;
	struct transport_message *m = batch_copy(q, p, h, f, false, &malformed);
	if (malformed) {
		transport_protocol_error(q, p);
		return;
	}
	if (!m) {
		counter_bump(&q->no_memory);
		transport_ack_soon(q, p);
		return;
	}
	note_retransmitted(p, h, f->number);
	*a = (struct transport_received){m, f->offset, f->len};
	p->early_n++;
	for (; m; m = m->next)
		p->owed++;
	if (may_go_up(p, f->number, f->offset)) {
		hand_up_early(q, p, a);
		unordered_run(q, p);
	} else {
		a->message->unordered = true;
		p->rings->unordered_n++;
		transport_ack_soon(q, p);
	}
}

static bool unordered_valid(const struct transport_span *f, unsigned flags)
{
	if (f->offset - 1 >= FAR_TRANSPORT_WINDOW || f->number != f->first || flags & WIRE_FRAGMENT)
		return false;
	return flags & WIRE_BATCH ? transport_batch_valid(f, flags)
				  : f->len == f->length && f->length <= TRANSPORT_BODY_MAX;
}

/* Returns true for a WIRE_UNORDERED packet of small messages; false: of a larger one. */
static bool is_small_unordered(const struct transport_span *f)
{
	return f->number == f->first && f->offset != 0;
}

static void take_any(struct transport_queue *q, struct transport_peer *p, const struct wire_message *h,
		     const struct transport_span *f, uint32_t ahead);

/* Removes the key of an exposed message from the packet's bytes. false: protocol error, it cannot have one. */
static bool key_strip(const struct transport_peer *p, const struct wire_message *h, struct transport_span *f)
{
	if (!p->bulk || f->number != f->first || f->offset != 0 || h->flags & (WIRE_BATCH | WIRE_FRAGMENT) ||
	    f->len <= sizeof(struct wire_key))
		return false;
	f->len -= (uint32_t)sizeof(struct wire_key);
	return f->len < f->length && f->length > TRANSPORT_INLINE_BYTES;
}

void transport_reassemble(struct transport_queue *q, struct transport_peer *p, const struct wire_message *h,
			  const struct transport_span *came)
{
	struct transport_span stripped = *came;
	const struct transport_span *f = &stripped;
	uint32_t ahead = f->number - p->rx_next;
	if (__builtin_expect(h->lane_phase & WIRE_EXPOSED, 0) && !key_strip(p, h, &stripped)) {
		transport_protocol_error(q, p);
		return;
	}
	transport_rings_need(q, p);
	const struct transport_received *a = &p->rings->arrived[f->number % FAR_TRANSPORT_WINDOW];
	if (ahead >= FAR_TRANSPORT_WINDOW || (ahead && a->message)) {
		if ((int32_t)ahead >= (int32_t)FAR_TRANSPORT_WINDOW) { /* outside of the window */
			transport_protocol_error(q, p);
			return;
		}
		counter_bump(&q->duplicates);
		note_duplicate(p, h, f->number);
		transport_ack_soon(q, p);
		return;
	}
	if (!(h->flags & WIRE_UNORDERED)) {
		take_any(q, p, h, f, ahead);
	} else if (is_small_unordered(f) ? !unordered_valid(f, h->flags) : h->flags & (WIRE_BATCH | WIRE_FRAGMENT)) {
		transport_protocol_error(q, p);
	} else if (!is_small_unordered(f)) {
		take_any(q, p, h, f, ahead);
	} else if (ahead) {
		take_unordered(q, p, h, f);
	} else {
		struct transport_span due = *f;
		due.offset = 0;
		take_any(q, p, h, &due, ahead);
	}
}

static void take_any(struct transport_queue *q, struct transport_peer *p, const struct wire_message *h,
		     const struct transport_span *f, uint32_t ahead)
{
	struct transport_received *a = &p->rings->arrived[f->number % FAR_TRANSPORT_WINDOW];
	bool piece = h->flags & WIRE_FRAGMENT;
	if (h->flags & WIRE_BATCH && transport_batch_valid(f, h->flags)) {
		take_batch(q, p, h, f, ahead);
		return;
	}
	if (h->flags & WIRE_BATCH || !span_valid(f, piece)) {
		transport_protocol_error(q, p);
		return;
	}
	if (piece) {
		take_fragment(q, p, h, f);
		return;
	}
	bool whole = f->len == f->length;
	struct transport_message *m = whole && !p->fragments ? NULL : assembling(p, f->first);
	if (!m)
		m = message_begin(q, p, f->first, f->length, whole, ahead == 0,
				  !ahead && !whole && f->offset == 0 ? h : NULL);
	if (!m) {
		counter_bump(&q->no_memory);
		transport_ack_soon(q, p); /* it is retransmitted; the ACK shows that this end is alive */
		return;
	}
	if (m->len != f->length || m->transfer == TRANSPORT_RX_READING ||
	    (f->offset >= FAR_TRANSPORT_UNSCHEDULED_BYTES_MAX && f->offset >= m->granted)) {
		transport_protocol_error(q, p);
		return;
	}
	note_retransmitted(p, h, f->number);
	fragment_put(m, h, f);
	if (h->lane_phase & WIRE_EXPOSED && m->early == 0)
		transport_read_begin(q, m, f->bytes + f->len);
	*a = (struct transport_received){m, f->offset, f->len};
	m->early += f->len;
	m->unordered_bulk |= (h->flags & WIRE_UNORDERED) != 0;
	p->early_n++;
	p->owed++;
	bool whole_early = ahead && has_come(m, m->done);
	if (whole_early ? !hand_up_whole(q, p, m) : !ahead && !advance_rx(q, p)) {
		transport_protocol_error(q, p);
		return;
	}
	if (whole_early && p->rings->unordered_n) /* their barrier may be a packet of this message */
		unordered_run(q, p);
	if (ahead)
		transport_ack_soon(q, p);
}

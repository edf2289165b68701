/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Reassembly of messages that cannot be delivered in place: incomplete, out of order, or not expected by the engine
 * yet. Their bytes are copied. They are delivered in order once what was missing has arrived, or, if they are
 * unordered, once they are complete. Poller.
 */
#include "transport/assemble.h"

#include "base/mutant.h"

#include <errno.h>
#include <string.h>

struct link_message link_handed_up;

static void deliver(struct link_queue *q, struct link_peer *p, struct link_message *m)
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

uint64_t link_ack_bits(const struct link_peer *p)
{
	uint64_t bits = 0;
	for (uint32_t i = 0; i < LINK_BITMAP; i++)
		if (p->rings->arrived[(p->rx_next + 1 + i) % FAR_LINK_WINDOW].message)
			bits |= UINT64_C(1) << i;
	return bits;
}

void link_broken(struct link_queue *q, struct link_peer *p)
{
	counter_bump(&q->malformed);
	link_peer_dead(q, p, -EPROTO);
}

static struct link_message *assembling(struct link_peer *p, uint32_t first)
{
	for (unsigned i = 0; i < FAR_LINK_ASSEMBLIES; i++)
		if (p->rings->assembling[i] && p->rings->assembling[i]->first == first)
			return p->rings->assembling[i];
	return NULL;
}

/* Drops packets that arrived out of order, so that the one expected next gets memory; the sender retransmits them. The
 * entries of delivered messages stay, or those would be delivered again. false: there was nothing to drop. */
static bool early_forget(struct link_queue *q, struct link_peer *p)
{
	uint32_t handed_up = 0, before = p->early_n;
	for (uint32_t i = 0; i < FAR_LINK_WINDOW; i++) {
		struct link_message *m = p->rings->arrived[i].message;
		if (m == &link_handed_up) {
			handed_up++;
			continue;
		}
		p->rings->arrived[i].message = NULL;
		bool part = false;
		for (unsigned k = 0; m && k < FAR_LINK_ASSEMBLIES; k++)
			part |= p->rings->assembling[k] == m;
		if (!part)
			link_messages_in_free(q, m);
	}
	for (unsigned k = 0; k < FAR_LINK_ASSEMBLIES; k++) {
		struct link_message *m = p->rings->assembling[k];
		if (m && m->begun) {
			m->early = 0;
		} else if (m) {
			link_message_in_free(q, m);
			p->rings->assembling[k] = NULL;
		}
	}
	p->early_n = handed_up;
	p->rings->loose_n = 0;
	p->fragments = false;
	return handed_up < before;
}

/* Allocates a message whose first packet has arrived. NULL: no memory now. `begins`: head of its first packet, if that
 * is the packet expected next: the message then stays until it is complete or the peer ends, which receive placement
 * requires. */
static struct link_message *message_begin(struct link_queue *q, struct link_peer *p, uint32_t first, uint32_t length,
					  bool whole, bool due, const struct wire_head *begins)
{
	unsigned early = 0, at = FAR_LINK_ASSEMBLIES;
	for (unsigned i = 0; i < FAR_LINK_ASSEMBLIES; i++) {
		if (p->rings->assembling[i])
			early += !p->rings->assembling[i]->begun;
		else
			at = i;
	}
	if (!whole && (at == FAR_LINK_ASSEMBLIES || (!due && early >= FAR_LINK_ASSEMBLIES - FAR_LINK_OPEN - 1)))
		return NULL;
	struct link_message *m = link_message_in(q, p, length, due, begins);
	if (!m && due && p->early_n && early_forget(q, p))
		return message_begin(q, p, first, length, whole, due, begins);
	if (!m)
		return NULL;
	m->first = first;
	if (!whole)
		p->rings->assembling[at] = m;
	return m;
}

static void message_end(struct link_queue *q, struct link_peer *p, struct link_message *m)
{
	for (unsigned i = 0; i < FAR_LINK_ASSEMBLIES; i++)
		if (p->rings->assembling[i] == m)
			p->rings->assembling[i] = NULL;
	link_grants_end(q, m);
	deliver(q, p, m);
}

static void deliver_all(struct link_queue *q, struct link_peer *p, struct link_message *m)
{
	while (m) {
		struct link_message *next = m->next;
		deliver(q, p, m);
		m = next;
	}
}

/* Checks that the bytes in order and the packets out of order cover the whole message: each packet begins where the one
 * before ends, or inside bytes that arrived as fragments. */
static bool covered(const struct link_peer *p, const struct link_message *m)
{
	uint32_t at = m->done;
	for (uint32_t i = 0; i < FAR_LINK_WINDOW; i++) {
		const struct link_arrived *a = &p->rings->arrived[(p->rx_next + i) % FAR_LINK_WINDOW];
		if (a->message != m)
			continue;
		if (a->offset > at || a->offset + a->len < at)
			return false;
		at = a->offset + a->len;
	}
	return at == m->len;
}

/* Returns true if an unordered message is complete: `end` bytes in order, the rest out of order. */
static bool has_come(const struct link_message *m, uint32_t end)
{
	return m->unbound && m->early >= m->len - end;
}

/* Delivers an unordered message that is complete. The entries of its packets are marked as delivered until rx_next
 * reaches them. false: protocol error, its packets do not fit together. */
static bool hand_up_whole(struct link_queue *q, struct link_peer *p, struct link_message *m)
{
	if (!covered(p, m))
		return false;
	for (uint32_t i = 0; i < FAR_LINK_WINDOW; i++) {
		struct link_arrived *a = &p->rings->arrived[(p->rx_next + i) % FAR_LINK_WINDOW];
		if (a->message != m)
			continue;
		a->message = &link_handed_up;
		if (MUTANT(WHOLE_FORGOTTEN)) {
			a->message = NULL;
			p->early_n--;
		}
	}
	link_grants_progress(q, m, m->len);
	message_end(q, p, m);
	return true;
}

/* The packet expected next has arrived; the message is in order up to `end`. Packets of several incomplete messages may
 * alternate, at most FAR_LINK_OPEN at a time, and complete ones lie between them. false: protocol error. */
static bool packet_end(struct link_queue *q, struct link_peer *p, struct link_message *m, uint32_t end)
{
	p->rx_next++;
	p->fragments = false;
	if (end != m->len && has_come(m, end)) {
		link_grants_progress(q, m, end);
		return hand_up_whole(q, p, m);
	}
	if (end != m->len && !m->begun && !link_grants_begin(q, m))
		return false;
	link_grants_progress(q, m, end);
	if (end == m->len)
		message_end(q, p, m);
	return true;
}

/* Returns true if the packet that unordered packet `number` may not pass is delivered. */
static bool may_go_up(const struct link_peer *p, uint32_t number, uint32_t offset)
{
	uint32_t before = number - offset;
	return (int32_t)(before - p->rx_next) < 0 ||
	       p->rings->arrived[before % FAR_LINK_WINDOW].message == &link_handed_up;
}

/* Delivers the messages of an unordered packet; its entry is marked as delivered until rx_next reaches it. */
static void hand_up_early(struct link_queue *q, struct link_peer *p, struct link_arrived *a)
{
	deliver_all(q, p, a->message);
	a->message = &link_handed_up;
	if (MUTANT(LOOSE_FORGOTTEN)) {
		a->message = NULL;
		p->early_n--;
	}
}

/* Delivers unordered packets whose barrier is delivered now. */
static void unordered_run(struct link_queue *q, struct link_peer *p)
{
	for (uint32_t i = 1; p->rings->loose_n && i < FAR_LINK_WINDOW; i++) {
		struct link_arrived *a = &p->rings->arrived[(p->rx_next + i) % FAR_LINK_WINDOW];
		if (!a->message || !a->message->unordered || !may_go_up(p, p->rx_next + i, a->offset))
			continue;
		a->message->unordered = false;
		p->rings->loose_n--;
		hand_up_early(q, p, a);
	}
}

/* Advances rx_next over all packets that have arrived. false: protocol error. */
static bool advance_rx(struct link_queue *q, struct link_peer *p)
{
	struct link_arrived *a;
	while ((a = &p->rings->arrived[p->rx_next % FAR_LINK_WINDOW])->message) {
		struct link_message *m = a->message;
		uint32_t end = a->offset + a->len;
		bool whole = m->next || m->unordered;
		/* It may overlap: fragments of this packet may have arrived before it. */
		if (!whole && m != &link_handed_up && (a->offset > m->done || end < m->done))
			return false;
		a->message = NULL;
		p->early_n--;
		if (m == &link_handed_up) {
			p->rx_next++;
		} else if (whole) {
			p->rx_next++;
			p->rings->loose_n -= m->unordered;
			m->unordered = false;
			deliver_all(q, p, m);
		} else {
			m->early -= a->len;
			if (!packet_end(q, p, m, end))
				return false;
		}
	}
	if (p->rings->loose_n)
		unordered_run(q, p);
	return true;
}

static bool span_valid(const struct link_fragment *f, bool piece)
{
	uint64_t end = (uint64_t)f->offset + f->len;
	if (f->length > LINK_BODY_MAX || end > f->length || (f->len == 0 && f->length != 0))
		return false;
	if ((int32_t)(f->number - f->first) < 0)
		return false;
	return piece || (f->offset == 0) == (f->number == f->first);
}

static void fragment_put(struct link_message *m, const struct wire_head *h, const struct link_fragment *f)
{
	if (f->offset == 0)
		link_head_read(h, &m->head);
	if (f->len)
		memcpy(m->body + f->offset, f->bytes, f->len);
}

/* Processes a fragment of the packet expected next. Fragments are accepted in order only. */
static void take_fragment(struct link_queue *q, struct link_peer *p, const struct wire_head *h,
			  const struct link_fragment *f)
{
	struct link_message *m = assembling(p, f->first);
	link_ack_soon(q, p);
	/* Dropped if it is of another packet, follows a lost one, or finds no memory. */
	if (f->number == p->rx_next && !m && f->offset == 0)
		m = message_begin(q, p, f->first, f->length, false, true, h);
	if (f->number != p->rx_next || !m) {
		counter_bump(&q->no_memory);
		return;
	}
	if (m->len != f->length || m->transfer == LINK_IN_READ || (f->first != f->number && !m->begun)) {
		link_broken(q, p);
		return;
	}
	if (f->offset > m->done) {
		counter_bump(&q->no_memory);
		return;
	}
	fragment_put(m, h, f);
	if (f->offset + f->len > m->done)
		link_grants_progress(q, m, f->offset + f->len);
	p->fragments = true;
	if (!(h->marks & WIRE_MORE) && (!packet_end(q, p, m, m->done) || !advance_rx(q, p)))
		link_broken(q, p);
}

/* Copies the messages of a packet, linked by `next`. NULL: no memory, or `malformed`. */
static struct link_message *batch_copy(struct link_queue *q, struct link_peer *p, const struct wire_head *h,
				       const struct link_fragment *f, bool due, bool *malformed)
{
	struct link_batch b = {p, f->bytes, f->length, f->len};
	struct link_message *first = NULL, **last = &first, *m;
	struct shm_head head;
	uint32_t len = f->length;
	int more;
	link_head_read(h, &head);
	do {
		m = message_begin(q, p, f->number, len, true, due, NULL);
		if (m) {
			m->head = head;
			memcpy(m->body, b.bytes + b.at - len, len);
			*last = m;
			last = &m->next;
		}
		more = m ? link_batch_next(&b, &head, &len) : 0;
	} while (more > 0);
	*malformed = more < 0;
	if (m && more == 0)
		return first;
	link_messages_in_free(q, first);
	return NULL;
}

/* A packet that arrived before arrives again. If this one is a retransmission and the first was not, the next ACK
 * reports it as spurious. Duplicates made by the network have no AGAIN mark. */
static void note_duplicate(struct link_peer *p, const struct wire_head *h, uint32_t number)
{
	if (p->duplicate || (h->marks & (WIRE_AGAIN | WIRE_PIECE)) != WIRE_AGAIN ||
	    (int32_t)(number - p->again_first) < 0)
		return;
	for (uint32_t i = 0; i < p->rings->again_n && i < LINK_AGAIN_KEPT; i++)
		if (p->rings->retransmitted[i] == number)
			return;
	p->duplicate = WIRE_TWICE | ((int32_t)(number - p->rx_acked) >= 0 ? WIRE_UNTOLD : 0);
	p->twice_number = number;
}

static void note_retransmitted(struct link_peer *p, const struct wire_head *h, uint32_t number)
{
	if (h->marks & WIRE_AGAIN)
		p->rings->retransmitted[p->rings->again_n++ % LINK_AGAIN_KEPT] = number;
}

/* Processes a packet of several messages that cannot be delivered in place. */
static void take_batch(struct link_queue *q, struct link_peer *p, const struct wire_head *h,
		       const struct link_fragment *f, uint32_t ahead)
{
	bool malformed, kept = false;
	struct link_message *m = batch_copy(q, p, h, f, ahead == 0, &malformed);
	if (malformed || (m && !ahead && p->fragments)) {
		link_messages_in_free(q, m);
		link_broken(q, p);
		return;
	}
	if (!m)
		counter_bump(&q->no_memory);
	if (m) {
		note_retransmitted(p, h, f->number);
		p->rings->arrived[f->number % FAR_LINK_WINDOW] = (struct link_arrived){m, 0, f->len};
		p->early_n++;
		for (; m; m = m->next)
			p->owed++;
		kept = true;
	}
	if (ahead || !kept)
		link_ack_soon(q, p);
	else if (!advance_rx(q, p))
		link_broken(q, p);
}

/* Processes an unordered packet of small messages that is out of order: delivered once its barrier is. */
static void take_unordered(struct link_queue *q, struct link_peer *p, const struct wire_head *h,
			   const struct link_fragment *f)
{
	struct link_arrived *a = &p->rings->arrived[f->number % FAR_LINK_WINDOW];
	bool malformed;
	struct link_message *m = batch_copy(q, p, h, f, false, &malformed);
	if (malformed) {
		link_broken(q, p);
		return;
	}
	if (!m) {
		counter_bump(&q->no_memory);
		link_ack_soon(q, p);
		return;
	}
	note_retransmitted(p, h, f->number);
	*a = (struct link_arrived){m, f->offset, f->len};
	p->early_n++;
	for (; m; m = m->next)
		p->owed++;
	if (may_go_up(p, f->number, f->offset)) {
		hand_up_early(q, p, a);
		unordered_run(q, p);
	} else {
		a->message->unordered = true;
		p->rings->loose_n++;
		link_ack_soon(q, p);
	}
}

static bool unordered_valid(const struct link_fragment *f, unsigned marks)
{
	if (f->offset - 1 >= FAR_LINK_WINDOW || f->number != f->first || marks & WIRE_PIECE)
		return false;
	return marks & WIRE_BATCH ? link_batch_sane(f, marks) : f->len == f->length && f->length <= LINK_BODY_MAX;
}

/* Returns true for a WIRE_LOOSE packet of small messages; false: of a larger one. */
static bool is_small_unordered(const struct link_fragment *f)
{
	return f->number == f->first && f->offset != 0;
}

static void take_any(struct link_queue *q, struct link_peer *p, const struct wire_head *h,
		     const struct link_fragment *f, uint32_t ahead);

/* Removes the key of an exposed message from the packet's bytes. false: protocol error, it cannot have one. */
static bool key_strip(const struct link_peer *p, const struct wire_head *h, struct link_fragment *f)
{
	if (!p->bulk || f->number != f->first || f->offset != 0 || h->marks & (WIRE_BATCH | WIRE_PIECE) ||
	    f->len <= sizeof(struct wire_key))
		return false;
	f->len -= (uint32_t)sizeof(struct wire_key);
	return f->len < f->length && f->length > LINK_ROOM;
}

void link_assemble(struct link_queue *q, struct link_peer *p, const struct wire_head *h,
		   const struct link_fragment *came)
{
	struct link_fragment stripped = *came;
	const struct link_fragment *f = &stripped;
	uint32_t ahead = f->number - p->rx_next;
	if (__builtin_expect(h->lane_phase & WIRE_EXPOSED, 0) && !key_strip(p, h, &stripped)) {
		link_broken(q, p);
		return;
	}
	link_rings_need(q, p);
	const struct link_arrived *a = &p->rings->arrived[f->number % FAR_LINK_WINDOW];
	if (ahead >= FAR_LINK_WINDOW || (ahead && a->message)) {
		if ((int32_t)ahead >= (int32_t)FAR_LINK_WINDOW) { /* outside of the window */
			link_broken(q, p);
			return;
		}
		counter_bump(&q->duplicates);
		note_duplicate(p, h, f->number);
		link_ack_soon(q, p);
		return;
	}
	if (!(h->marks & WIRE_LOOSE)) {
		take_any(q, p, h, f, ahead);
	} else if (is_small_unordered(f) ? !unordered_valid(f, h->marks) : h->marks & (WIRE_BATCH | WIRE_PIECE)) {
		link_broken(q, p);
	} else if (!is_small_unordered(f)) {
		take_any(q, p, h, f, ahead);
	} else if (ahead) {
		take_unordered(q, p, h, f);
	} else {
		struct link_fragment due = *f;
		due.offset = 0;
		take_any(q, p, h, &due, ahead);
	}
}

static void take_any(struct link_queue *q, struct link_peer *p, const struct wire_head *h,
		     const struct link_fragment *f, uint32_t ahead)
{
	struct link_arrived *a = &p->rings->arrived[f->number % FAR_LINK_WINDOW];
	bool piece = h->marks & WIRE_PIECE;
	if (h->marks & WIRE_BATCH && link_batch_sane(f, h->marks)) {
		take_batch(q, p, h, f, ahead);
		return;
	}
	if (h->marks & WIRE_BATCH || !span_valid(f, piece)) {
		link_broken(q, p);
		return;
	}
	if (piece) {
		take_fragment(q, p, h, f);
		return;
	}
	bool whole = f->len == f->length;
	struct link_message *m = whole && !p->fragments ? NULL : assembling(p, f->first);
	if (!m)
		m = message_begin(q, p, f->first, f->length, whole, ahead == 0,
				  !ahead && !whole && f->offset == 0 ? h : NULL);
	if (!m) {
		counter_bump(&q->no_memory);
		link_ack_soon(q, p); /* it is retransmitted; the ACK shows that this end is alive */
		return;
	}
	if (m->len != f->length || m->transfer == LINK_IN_READ ||
	    (f->offset >= FAR_LINK_UNASKED_MAX && f->offset >= m->granted)) {
		link_broken(q, p);
		return;
	}
	note_retransmitted(p, h, f->number);
	fragment_put(m, h, f);
	if (h->lane_phase & WIRE_EXPOSED && m->early == 0)
		link_read_begin(q, m, f->bytes + f->len);
	*a = (struct link_arrived){m, f->offset, f->len};
	m->early += f->len;
	m->unbound |= (h->marks & WIRE_LOOSE) != 0;
	p->early_n++;
	p->owed++;
	bool whole_early = ahead && has_come(m, m->done);
	if (whole_early ? !hand_up_whole(q, p, m) : !ahead && !advance_rx(q, p)) {
		link_broken(q, p);
		return;
	}
	if (whole_early && p->rings->loose_n) /* their barrier may be a packet of this message */
		unordered_run(q, p);
	if (ahead)
		link_ack_soon(q, p);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Messages that are not whole yet, or not due, or find the engine not ready for them: their bytes are copied to their
 * place, and they go up in order when what was missing has come; or, where no order binds them, when they are whole.
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

/* It has our token and says what cannot be. */
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

/* Gives up what came before its turn, so that what is due has memory. The sender sends it again. What went up is not
 * forgotten: it would go up once more. False: there was nothing else. */
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

/* Memory for a message of which this is the first packet that came; NULL: none now. `begins`: the head of its first
 * packet, whose turn it is; such a message stays until it is whole or the peer goes, so the engine may have it where it
 * wants it. */
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

/* Do the packets that came before their turn, and what came in turn, cover all of a message: each begins where the one
 * before ends, or within a piece of it. */
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

/* May a message go up of which all bytes below `end` came in turn. */
static bool has_come(const struct link_message *m, uint32_t end)
{
	return m->unbound && m->early >= m->len - end;
}

/* All bytes of a message have come, some before their turn, and nothing keeps it: it goes up. The places of its packets
 * say so until their turn comes. false: they do not fit together. */
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

/* The packet that is due has come, up to `end` of its message. So many are not whole at a time; between their packets
 * there may be others that are. */
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

/* Has the one that packet `number` may not pass gone up. */
static bool may_go_up(const struct link_peer *p, uint32_t number, uint32_t offset)
{
	uint32_t before = number - offset;
	return (int32_t)(before - p->rx_next) < 0 ||
	       p->rings->arrived[before % FAR_LINK_WINDOW].message == &link_handed_up;
}

/* Before its turn; its place says so, until that comes. */
static void hand_up_early(struct link_queue *q, struct link_peer *p, struct link_arrived *a)
{
	deliver_all(q, p, a->message);
	a->message = &link_handed_up;
	if (MUTANT(LOOSE_FORGOTTEN)) {
		a->message = NULL;
		p->early_n--;
	}
}

/* Those that waited for one that has gone up. */
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

/* Takes in order what has arrived; false: it does not fit together. */
static bool advance_rx(struct link_queue *q, struct link_peer *p)
{
	struct link_arrived *a;
	while ((a = &p->rings->arrived[p->rx_next % FAR_LINK_WINDOW])->message) {
		struct link_message *m = a->message;
		uint32_t end = a->offset + a->len;
		bool whole = m->next || m->unordered;
		/* More than is missing may come: pieces of the packet came before it. */
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

/* A part of the packet that is due; its parts are taken in order. */
static void take_fragment(struct link_queue *q, struct link_peer *p, const struct wire_head *h,
			  const struct link_fragment *f)
{
	struct link_message *m = assembling(p, f->first);
	link_ack_soon(q, p);
	/* Of another packet, or what is before it was lost, or there is no memory. */
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

/* The whole messages of a packet, copied, by `next`; NULL: no memory, or, with `malformed`, no such packet. */
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

/* Of a packet that is there: was it sent again for nothing? Not when the first one was lost, and only the copy came
 * twice; and what the network repeats is not marked. */
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

/* One of several messages that cannot be handed up from where it lies. */
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

/* A WIRE_LOOSE packet before its turn: it goes up when the one that it may not pass has. */
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

/* A WIRE_LOOSE packet of small messages, not of a larger one. */
static bool is_small_unordered(const struct link_fragment *f)
{
	return f->number == f->first && f->offset != 0;
}

static void take_any(struct link_queue *q, struct link_peer *p, const struct wire_head *h,
		     const struct link_fragment *f, uint32_t ahead);

/* The key behind the bytes of a message's first packet is none of them. false: there can be none. */
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
		if ((int32_t)ahead >= (int32_t)FAR_LINK_WINDOW) { /* beyond any window */
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
		link_ack_soon(q, p); /* it comes again, and its sender hears that we live */
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
	if (whole_early && p->rings->loose_n) /* whose sender has them wait for a packet of this one */
		unordered_run(q, p);
	if (ahead)
		link_ack_soon(q, p);
}

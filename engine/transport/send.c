/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Sending: turns messages into packets while the window is open. Poller.
 *
 * The window is FAR_TRANSPORT_WINDOW packets and FAR_TRANSPORT_WINDOW_BYTES in flight. A committed message waits in a
 * list of its peer, and the peer in the backlog of its queue, until the flush, so that consecutive small messages share
 * a packet; or longer, while the window is closed or the driver below is full. Every packet carries an acknowledgement.
 */
#include "transport/send.h"

#include "transport/assemble.h"
#include "transport/expose.h"
#include "transport/lane.h"
#include "transport/packet.h"
#include "transport/retransmit.h"
#include "transport/rings.h"
#include "transport/schedule.h"

#include <errno.h>

/* Bytes of the backlog that one flush sends: some 25 us of copying, then the shard receives again. */
#define PUMP_BYTES (256u << 10)
#define TURN_BYTES (64u << 10) /* of them, to one peer at a time */
/* Bytes of a packet from which on the driver below sends them from the message. */
#define REFER_BYTES 1024u

/* ---- one packet ---- */

__attribute__((noinline)) void transport_awake_add(struct transport_queue *q, struct transport_peer *p)
{
	if (q->asleep_flag || q->awake_n == FAR_TRANSPORT_AWAKE_MAX)
		return;
	p->sleep_sent = false;
	q->awake[q->awake_n++] = p;
}

/* A packet of a message: its number; offset and length of its bytes, with WIRE_UNORDERED see there. */
struct packet {
	uint32_t number, offset, len;
	unsigned flags;    /* enum wire_flag */
	unsigned priority; /* [0, NIC_PRIORITY_MAX] */
};

/* Sends one packet of a message. 0 or -errno of the driver below. */
static inline __attribute__((always_inline)) int put(struct transport_queue *q, struct transport_peer *p,
						     const struct transport_message *m, struct packet k)
{
	struct transport_queue *via = p->via;
	struct nic_tx tx;
	int error = via->ops->tx_reserve(via->lower, p->lower_peer, TRANSPORT_HEAD_BYTES + k.len, &tx);
	if (__builtin_expect(error, 0))
		return error;
	message_write(q, p, tx.body, message_text(m), k.number, k.offset, k.flags);
	const uint8_t *bytes =
		m->body + (k.flags & WIRE_UNORDERED && k.priority == TRANSPORT_PRIORITY_URGENT ? 0 : k.offset);
	tx.priority = (uint8_t)k.priority;
	/* The acknowledgement of a retransmission's original may free the message before the flush. */
	if (k.len >= REFER_BYTES && via->ops->tx_refer && via == q && !(k.flags & WIRE_RETRANSMIT)) {
		via->ops->tx_refer(via->lower, &tx, bytes, k.len);
		return commit_tail(via, p, &tx, 0, bytes, k.len);
	}
	if (k.len)
		memcpy(tx.body + TRANSPORT_HEAD_BYTES, bytes, k.len);
	return commit(via, p, &tx, k.len);
}

/* Sends the first packet of an exposed message: the key follows the bytes. */
static int put_offer(struct transport_queue *q, struct transport_peer *p, const struct transport_message *m,
		     uint32_t number, uint32_t len, unsigned flags, unsigned priority)
{
	struct transport_queue *via = p->via;
	struct nic_tx tx;
	uint32_t all = len + (uint32_t)sizeof(struct wire_key);
	int error = via->ops->tx_reserve(via->lower, p->lower_peer, TRANSPORT_HEAD_BYTES + all, &tx);
	if (error)
		return error;
	message_write(q, p, tx.body, message_text(m), number, 0, flags);
	((struct wire_head *)(void *)tx.body)->lane_phase = WIRE_EXPOSED;
	memcpy(tx.body + TRANSPORT_HEAD_BYTES, m->body, len);
	transport_offer_write(q, m, tx.body + TRANSPORT_HEAD_BYTES + len);
	tx.priority = (uint8_t)priority;
	return commit(via, p, &tx, all);
}

/* Sends all messages from `m` on in one packet of `len` bytes behind the head. */
static int put_batch(struct transport_queue *q, struct transport_peer *p, const struct transport_message *m,
		     uint32_t number, uint32_t offset, uint32_t len, unsigned flags)
{
	struct transport_queue *via = p->via;
	struct nic_tx tx;
	int error = via->ops->tx_reserve(via->lower, p->lower_peer, TRANSPORT_HEAD_BYTES + len, &tx);
	if (__builtin_expect(error, 0))
		return error;
	message_write(q, p, tx.body, message_text(m), number, offset, flags | WIRE_BATCH);
	uint8_t *bytes = tx.body + TRANSPORT_HEAD_BYTES;
	body_write(bytes, m->body, m->len);
	uint32_t end = m->len;
	while ((m = m->next)) {
		uint32_t sub = transport_batch_sub(end), at = transport_batch_body(sub, m->len);
		if (sub != end)
			memset(bytes + end, 0, sub - end);
		sub_write(bytes + sub, m->head.bytes, m->len);
		if (at != sub + sizeof(struct wire_sub))
			memset(bytes + sub + sizeof(struct wire_sub), 0, at - sub - sizeof(struct wire_sub));
		body_write(bytes + at, m->body, m->len);
		end = at + m->len;
	}
	tx.priority = TRANSPORT_PRIORITY_URGENT;
	return commit(via, p, &tx, len);
}

static int put_ack(struct transport_queue *q, struct transport_peer *p, uint32_t path, unsigned flags)
{
	struct transport_queue *via = p->via;
	struct nic_tx tx;
	uint32_t len = transport_grants_bytes(p);
	int error = via->ops->tx_reserve(via->lower, p->lower_peer, TRANSPORT_HEAD_BYTES + len, &tx);
	if (error)
		return error;
	struct wire_ack *h = (struct wire_ack *)(void *)tx.body;
	head_write(q, p, (struct wire_head *)(void *)tx.body, WIRE_ACK, flags);
	memset(tx.body + sizeof(struct wire_head), 0, sizeof *h - sizeof(struct wire_head));
	h->packet = le32_of(p->next);
	h->ack = le32_of(p->rx_next);
	h->ack_bits = ack_bits_of(p);
	h->path = le32_of(path);
	h->duplicate = le32_of(p->duplicate ? p->duplicate_number : 0);
	transport_grants_write(q, p, h, tx.body + TRANSPORT_HEAD_BYTES);
	tx.priority = TRANSPORT_PRIORITY_URGENT;
	return commit(via, p, &tx, len);
}

int transport_send_ack(struct transport_queue *q, struct transport_peer *p)
{
	int error = put_ack(q, p, 0, p->duplicate | (p->rx_acked == p->rx_next ? WIRE_RETRANSMIT : 0u));
	if (!error)
		p->duplicate = 0;
	if (!error && p->sleep_sent)
		transport_awake_add(q, p);
	return error;
}

void transport_send_answer(struct transport_queue *q, struct transport_peer *p, uint32_t path)
{
	put_ack(q, p, path, WIRE_RETRANSMIT);
}

/* ---- acknowledgements at the end of a burst ---- */

void transport_ack_soon(struct transport_queue *q, struct transport_peer *p)
{
	if (!p->owed)
		p->owed = 1;
	if (p->ack_now)
		return;
	if (q->acks_n == TRANSPORT_BURST) {
		if (transport_send_ack(q, p) && !p->active)
			transport_peer_activate(q, p); /* the driver below is full: later */
		return;
	}
	p->ack_now = true;
	q->acks[q->acks_n++] = p;
}

void transport_send_acks(struct transport_queue *q)
{
	for (uint32_t i = 0; i < q->acks_n; i++) {
		struct transport_peer *p = q->acks[i];
		p->ack_now = false;
		if (p->owed && p->started && !p->dead && transport_send_ack(q, p) && !p->active)
			transport_peer_activate(q, p); /* the driver below is full: later */
	}
	q->acks_n = 0;
}

/* ---- messages ---- */

static inline void backlog_append(struct transport_queue *q, struct transport_peer *p)
{
	p->backlogged = true;
	p->rings->next_backlog = NULL;
	if (q->backlog_last)
		q->backlog_last->rings->next_backlog = p;
	else
		q->backlog_first = p;
	q->backlog_last = p;
}

void transport_backlog_add(struct transport_queue *q, struct transport_peer *p)
{
	if (p->backlogged || !transport_has_unsent(p) || !p->confirmed || p->dead)
		return;
	backlog_append(q, p);
	q->stalled = true;
}

/* Finds the messages from `first` on that fit one packet. Returns the last, their number, and their bytes with padding.
 */
static inline struct transport_message *gather(const struct transport_peer *p, struct transport_message *first,
					       uint32_t *n, uint32_t *len)
{
	uint32_t most = batch_max(p), end = first->len;
	struct transport_message *last = first, *m;
	while ((m = last->next) && m->len < most) {
		uint32_t at = transport_batch_body(transport_batch_sub(end), m->len);
		if (at + m->len > most)
			break;
		end = at + m->len;
		last = m;
		++*n;
	}
	*len = end;
	return last;
}

/* Records the packet just sent under the next number: `len` bytes of `m` from m->done on. `last`: up to its end. */
static inline void sent_record(struct transport_queue *q, struct transport_peer *p, struct transport_message *m,
			       uint32_t len, bool last, unsigned priority)
{
	packet_sent(q, p,
		    (struct transport_sent){
			    .message = m, .offset = m->done, .len = len, .last = last, .priority = (uint8_t)priority});
}

static inline void small_sent(struct transport_peer *p, const struct transport_message *m,
			      struct transport_message *end, uint32_t n, uint32_t len)
{
	struct transport_rings *r = p->rings;
	r->out_next = end->next;
	end->next = NULL;
	r->small_sent += n;
	if (__builtin_expect(r->bulk_out, 0))
		r->small_last = m->first;
	if (__builtin_expect(r->bulk_next != NULL, 0))
		r->small_bytes += TRANSPORT_HEAD_BYTES + len;
}

/* A small message exceeds the path MTU, which has shrunk: it gets a number, and leaves in fragments once that is the
 * oldest. */
__attribute__((noinline)) static void send_wide(struct transport_queue *q, struct transport_peer *p,
						struct transport_message *m)
{
	uint32_t number = p->next;
	m->first = number;
	sent_record(q, p, m, m->len, true, TRANSPORT_PRIORITY_URGENT);
	small_sent(p, m, m, 1, m->len);
	if (p->una == number)
		transport_retransmit_fragments(q, p, &p->rings->sent[number % FAR_TRANSPORT_WINDOW], number);
}

/* Results of send_small() and send_bulk() besides 0 and -errno of the driver below: window closed; ring below too full
 * for larger messages. */
enum { SHUT = 1, FULL };

/* Sends a packet of the first list. */
static inline int send_small(struct transport_queue *q, struct transport_peer *p)
{
	struct transport_message *m = p->rings->out_next, *end = m;
	uint32_t len = m->len, n = 1;
	if (m->next && len < batch_max(p))
		end = gather(p, m, &n, &len);
	if (__builtin_expect(!window_open(p, len, false), 0))
		return SHUT;
	if (__builtin_expect(len > p->payload_max, 0)) {
		send_wide(q, p, m);
		return 0;
	}
	m->first = p->next;
	uint32_t offset = 0;
	unsigned flags = __builtin_expect(p->rings->bulk_out, 0) ? transport_bulk_unordered(p, m, end, &offset) : 0;
	int error;
	if (end == m) {
		error = put(q, p, m, (struct packet){p->next, offset, len, flags, TRANSPORT_PRIORITY_URGENT});
	} else {
		struct transport_message *behind = end->next;
		end->next = NULL;
		error = put_batch(q, p, m, p->next, offset, len, flags);
		end->next = behind;
	}
	if (__builtin_expect(!error, 1)) {
		sent_record(q, p, m, len, true, TRANSPORT_PRIORITY_URGENT);
		if (__builtin_expect(flags, 0))
			p->rings->sent[m->first % FAR_TRANSPORT_WINDOW].offset = offset;
		small_sent(p, m, end, n, len);
	}
	return error;
}

/* Sends a packet of the second list. */
static int send_bulk(struct transport_queue *q, struct transport_peer *p)
{
	struct transport_message *m;
	do {
		m = transport_bulk_pick(p);
	} while (m && p->bulk && m->done == 0 && transport_offer(q, p, m));
	if (!m)
		return SHUT;
	bool offer = m->done == 0 && transport_offered(m);
	uint32_t most = p->payload_max - (offer ? (uint32_t)sizeof(struct wire_key) : 0);
	uint32_t left = m->len - m->done, len = left < most ? left : most;
	/* The first packet cannot be expected, and is copied: it has what is over. */
	if (m->done == 0 && p->via->ops->tx_refer && !offer && left % most)
		len = left % most;
	if (!window_open(p, len, true))
		return SHUT;
	if (p->via->ops->tx_waiting && !transport_ring_room(p->via, p->payload_max)) {
		q->ring_full = true;
		return FULL;
	}
	if (m->done == 0) {
		m->first = p->next;
		m->priority = transport_bulk_priority(m->len);
	}
	unsigned priority = m->priority;
	int error = offer ? put_offer(q, p, m, p->next, len, transport_bulk_flags(m), priority)
			  : put(q, p, m, (struct packet){p->next, m->done, len, transport_bulk_flags(m), priority});
	if (error)
		return error;
	transport_bulk_numbered(p, m->order);
	sent_record(q, p, m, len, len == left, priority);
	p->rings->bulk_turn++;
	p->rings->small_bytes = 0;
	if (m->done == 0) /* a message that is unscheduled altogether does not wait for grants of others */
		m->granted =
			(p->rings->bulk_open++ && m->len > p->unscheduled_bytes) || offer ? 0 : p->unscheduled_bytes;
	if (offer)
		m->transfer = TRANSPORT_TX_ANNOUNCED;
	m->done += len;
	if (len == left)
		transport_bulk_done(p, m);
	return 0;
}

static inline int send_next(struct transport_queue *q, struct transport_peer *p)
{
	const struct transport_rings *r = p->rings;
	if (__builtin_expect(r->bulk_next != NULL, 0) &&
	    (!r->out_next || r->small_bytes >= FAR_TRANSPORT_SMALL_SHARE)) {
		int error = send_bulk(q, p);
		if ((error != SHUT && error != FULL) || !r->out_next)
			return error;
	}
	return send_small(q, p);
}

static inline void append(struct transport_message **first, struct transport_message **last,
			  struct transport_message *m)
{
	if (*first)
		(*last)->next = m;
	else
		*first = m;
	*last = m;
}

static void deliver_here(struct transport_queue *q, struct transport_peer *p, struct transport_message *m)
{
	m->peer = p;
	*q->ready_last = m;
	q->ready_last = &m->next;
	p->ready_n++;
	p->out_n++;
}

/* A peer without ring set: idle so far, dead, or loopback, which needs none. */
__attribute__((noinline)) static void send_unusual(struct transport_queue *q, struct transport_peer *p,
						   struct transport_message *m)
{
	if (p->dead) {
		transport_message_out_free(q, p, m);
	} else if (p->loop) {
		deliver_here(q, p, m);
	} else {
		transport_rings_take(q, p);
		transport_send(q, p, m);
	}
}

void transport_send(struct transport_queue *q, struct transport_peer *p, struct transport_message *m)
{
	m->next = NULL;
	struct transport_rings *r = p->rings;
	if (__builtin_expect(!r || p->dead, 0)) {
		send_unusual(q, p, m);
		return;
	}
	/* Small messages pass larger ones, as far as their order allows. */
	if (__builtin_expect(m->len <= FAR_TRANSPORT_SMALL_BYTES && m->len <= p->payload_max &&
				     (!r->bulk_next || m->order == NIC_ORDER_NONE ||
				      (m->order == NIC_ORDER_STREAM && !r->bulk_strict)),
			     1)) {
		append(&r->out_next, &r->out_last, m);
		r->small_n++;
	} else {
		append(&r->bulk_next, &r->bulk_last, m);
		m->after = r->small_n;
		r->bulk_strict += m->order != NIC_ORDER_NONE;
	}
	p->out_n++;
	if (!p->backlogged && p->confirmed)
		backlog_append(q, p);
}

/* Sends messages of one peer, `most` bytes at most. true: the peer has more to send and may. */
static bool pump(struct transport_queue *q, struct transport_peer *p, uint32_t most, bool small_only, uint32_t *left)
{
	uint32_t sent = 0;
	const struct transport_rings *r = p->rings;
	while ((r->out_next || (!small_only && r->bulk_next)) && !p->dead) {
		if (sent >= most || *left == 0)
			return true;
		uint32_t before = r->flying;
		int error = send_next(q, p);
		if (error == -EMSGSIZE && transport_mtu_shrunk(p))
			continue;
		/* SHUT: the ACK that opens the window puts the peer back. Otherwise the driver below is full or has no
		 * route now. */
		if (error)
			return error != SHUT;
		uint32_t bytes = r->flying - before + TRANSPORT_HEAD_BYTES;
		sent += bytes;
		*left -= bytes < *left ? bytes : *left;
	}
	return false;
}

/* The usual case at low load: the backlog is one small message. false: not so, or not sent. */
static inline bool send_lone(struct transport_queue *q)
{
	struct transport_peer *p = q->backlog_first;
	const struct transport_rings *r = p->rings;
	struct transport_message *m = r->out_next;
	if (r->next_backlog || r->bulk_next || r->bulk_out || !m || m->next || m->len > p->payload_max ||
	    !window_open(p, m->len, false) || p->dead)
		return false;
	m->first = p->next;
	if (__builtin_expect(put(q, p, m, (struct packet){p->next, 0, m->len, 0, TRANSPORT_PRIORITY_URGENT}), 0))
		return false;
	sent_record(q, p, m, m->len, true, TRANSPORT_PRIORITY_URGENT);
	small_sent(p, m, m, 1, m->len);
	q->backlog_first = q->backlog_last = NULL;
	p->backlogged = q->stalled = false;
	return true;
}

/* Sends small messages of all peers first. Then larger ones, of the peer with the fewest bytes left; once that makes no
 * progress, of each peer in turn, until a whole round makes none. */
static void send_backlog(struct transport_queue *q)
{
	uint32_t left = PUMP_BYTES;
	struct transport_peer *p, *stuck = NULL;
	bool shortest = true;
	for (p = q->backlog_first; p && left; p = p->rings->next_backlog)
		pump(q, p, PUMP_BYTES, true, &left);
	left = PUMP_BYTES;
	q->ring_full = false;
	while ((p = q->backlog_first) && left && p != stuck && !q->ring_full) {
		uint32_t before = left;
		bool first = !shortest || q->backlog_turn % FAR_TRANSPORT_GRANT_SHARE == 0;
		p = transport_backlog_take(q, !first);
		bool more = pump(q, p, TURN_BYTES, false, &left);
		if (more && first && q->ring_full && left == before) { /* it keeps its turn */
			p->backlogged = true;
			p->rings->next_backlog = q->backlog_first;
			q->backlog_first = p;
			if (!q->backlog_last)
				q->backlog_last = p;
		} else if (more) {
			transport_backlog_add(q, p);
		}
		q->backlog_turn += left != before;
		if (left != before)
			stuck = NULL;
		else if (p->backlogged && !stuck)
			stuck = p;
		shortest &= left != before || !p->backlogged;
	}
	q->stalled = q->backlog_first != NULL;
	q->ring_watched &= q->ring_full; /* a ring for which there was nothing to send is not empty by its own speed */
}

int transport_put_retransmit(struct transport_queue *q, struct transport_peer *p, const struct transport_sent *e,
			     uint32_t number)
{
	if (e->lines)
		return transport_lane_put(q, p, e->line, e->lines, number, e->len, WIRE_RETRANSMIT);
	unsigned flags = WIRE_RETRANSMIT | transport_sent_flags(e);
	if (e->last && e->message->next)
		return put_batch(q, p, e->message, number, e->offset, e->len, flags);
	if (e->len > p->payload_max)
		return -EMSGSIZE;
	/* Without the key if that does not fit any more or is withdrawn: the message continues in packets. */
	if (e->offset == 0 && transport_offered(e->message) && e->len + sizeof(struct wire_key) <= p->payload_max)
		return put_offer(q, p, e->message, number, e->len, flags, e->priority);
	return put(q, p, e->message, (struct packet){number, e->offset, e->len, flags, e->priority});
}

int transport_put_fragment(struct transport_queue *q, struct transport_peer *p, const struct transport_sent *e,
			   uint32_t number, uint32_t at, uint32_t len)
{
	unsigned flags = WIRE_RETRANSMIT | WIRE_FRAGMENT | (at + len < e->len ? WIRE_MORE : 0u);
	uint32_t from = transport_sent_unordered(e) ? 0 : e->offset;
	return put(q, p, e->message, (struct packet){number, from + at, len, flags, e->priority});
}

void transport_flush(struct nic_queue *nq)
{
	struct transport_queue *q = (struct transport_queue *)nq;
	if (q->base.lanes.dirty_n)
		transport_lanes_flush(q);
	if (q->backlog_first && !send_lone(q))
		send_backlog(q);
	if (q->unflushed) {
		q->unflushed = false;
		q->ops->flush(q->lower);
	}
	if (__builtin_expect(q->failed_over_n | q->kicks_n, 0))
		transport_flush_rest(q);
}

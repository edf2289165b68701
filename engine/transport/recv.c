/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Receiving: checks packets, processes acknowledgements, delivers messages. Poller.
 *
 * A packet in order that is a complete message is delivered in place if it is aligned; so are the messages of a packet
 * of several, as many in one recv() as the caller has room for. assemble.c copies all others.
 *
 * The token in a packet names its connection: its index finds the peer; its other bits and the identity of the port are
 * what an attacker off the path would have to guess. Set-up packets without a valid token go to the control thread. All
 * others are dropped and counted.
 */
#include "transport/recv.h"

#include "base/crc32c.h"
#include "base/mutant.h"
#include "transport/assemble.h"
#include "transport/control.h"
#include "transport/expose.h"
#include "transport/lane.h"
#include "transport/path.h"
#include "transport/placement.h"
#include "transport/port.h"
#include "transport/retransmit.h"
#include "transport/rings.h"
#include "transport/schedule.h"
#include "transport/send.h"
#include "transport/sibling.h"
#include "transport/timer.h"

#include <errno.h>

/* Calls of recv() between two readings of the clock: without packets, and with. */
#define LULL_PASSES 8u
#define BUSY_PASSES 64u

/* ---- acknowledgements ---- */

/* The path MTU may have shrunk: the oldest packet, if it is too large, leaves in fragments, one packet at a time. */
static void send_due_pieces(struct transport_queue *q, struct transport_peer *p)
{
	if (p->una != p->next && p->rings->sent[p->una % FAR_TRANSPORT_WINDOW].len > p->payload_max) {
		p->rings->resends = 2; /* this one only */
		transport_retransmit(q, p, true);
		p->rings->resends = 0;
	}
}

/* Packets of higher priority should have arrived before it, too. */
__attribute__((cold, noinline)) static void order_note_below(struct transport_rings *r, const struct transport_sent *e)
{
	for (unsigned i = e->priority; i < TRANSPORT_PRIORITY_URGENT; i++)
		if ((int32_t)(e->order - r->below_arrived[i]) > 0)
			r->below_arrived[i] = e->order;
}

static inline void order_note(struct transport_rings *r, const struct transport_sent *e)
{
	if ((int32_t)(e->order - r->order_arrived) > 0)
		r->order_arrived = e->order;
	if (__builtin_expect(e->priority != TRANSPORT_PRIORITY_URGENT, 0))
		order_note_below(r, e);
}

static inline void advance_una(struct transport_queue *q, struct transport_peer *p, uint32_t ack)
{
	struct transport_rings *r = p->rings;
	uint32_t una = p->una;
	if (__builtin_expect(r->rtt.watch & (RTT_TIMING | RTT_LATE | RTT_BACKED), 0))
		transport_timing_ack(q, p, ack);
	do {
		struct transport_sent *e = &r->sent[una % FAR_TRANSPORT_WINDOW];
		if (__builtin_expect(!e->arrived, 1)) {
			r->flying -= e->len;
			order_note(r, e);
		}
		transport_lane_free(r, e);
		for (struct transport_message *m = e->last ? e->message : NULL, *next; m; m = next) {
			next = m->next;
			p->out_n--;
			transport_message_out_free(q, p, m);
		}
	} while (++una != ack);
	p->una = una;
	r->resend_at = 0;
	r->resends = 0;
}

__attribute__((noinline)) static void take_bits(struct transport_queue *q, struct transport_peer *p, uint64_t bits)
{
	uint32_t flying = p->next - p->una;
	for (uint32_t i = 1; bits && i < flying && i <= TRANSPORT_BITMAP; i++, bits >>= 1) {
		struct transport_sent *e =
			&p->rings->sent[(p->una + i - (MUTANT(SACK_SHIFTED) ? 1u : 0u)) % FAR_TRANSPORT_WINDOW];
		if (!(bits & 1) || e->arrived)
			continue;
		if (p->rings->rtt.watch & (RTT_TIMING | RTT_LATE))
			transport_timing_arrived(q, p, p->una + i);
		e->arrived = true;
		p->rings->flying -= e->len;
		order_note(p->rings, e);
	}
	transport_retransmit(q, p, false);
	transport_backlog_add(q, p);
}

static inline void take_ack(struct transport_queue *q, struct transport_peer *p, uint32_t ack, uint64_t bits)
{
	uint32_t step = ack - p->una;
	if (step) {
		if (__builtin_expect(step > p->next - p->una, 0)) {
			if ((int32_t)step > 0) /* it acknowledges packets that were never sent; else it is an old ACK */
				counter_bump(&q->malformed);
			return;
		}
		advance_una(q, p, ack);
		if (__builtin_expect(transport_has_unsent(p), 0))
			transport_backlog_add(q, p);
		if (__builtin_expect(p->una != p->next, 0))
			send_due_pieces(q, p);
	}
	if (__builtin_expect(bits != 0, 0))
		take_bits(q, p, bits);
}

/* ---- complete messages ---- */

/* Loopback: the caller owns the message now, and may keep it after the peer has ended. */
static void hand_up_own(struct transport_peer *p, struct transport_message *m)
{
	p->out_n--;
	p->out_bytes -= m->charged;
	m->charged = 0;
	m->peer = NULL;
}

static unsigned hand_up(struct transport_queue *q, struct nic_pkt *pkts, unsigned max)
{
	unsigned n = 0;
	for (; n < max && q->ready_first; n++) {
		struct transport_message *m = q->ready_first;
		struct transport_peer *p = m->peer;
		q->ready_first = m->next;
		p->ready_n--;
		if (p->loop)
			hand_up_own(p, m);
		else if (m->buf)
			q->handed_bytes += m->charged;
		pkts[n] = (struct nic_pkt){.head = m->head.bytes,
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

void transport_release(struct nic_queue *nq, uint32_t peer, uint64_t cookie)
{
	struct transport_queue *q = (struct transport_queue *)nq;
	struct transport_message *m = (struct transport_message *)(uintptr_t)cookie;
	(void)peer;
	if (!m)
		return;
	q->handed_bytes -= m->own ? m->charged : 0;
	transport_message_in_free(q, m);
}

/* ---- packets ---- */

static void confirm(struct transport_queue *q, struct transport_peer *p)
{
	p->confirmed = true;
	p->special = p->current_path != 0;
	transport_report_post(q, p, TRANSPORT_REPORT_CONFIRMED);
	transport_paths_verify(p); /* it requires `confirmed` */
	transport_backlog_add(q, p);
}

__attribute__((noinline)) static void receive_flags(struct transport_queue *q, struct transport_peer *p,
						    const struct transport_queue *via, const union wire_packet *h)
{
	if (p->via != via)
		transport_path_observed(q, p);
	if (!p->confirmed)
		confirm(q, p);
	if (h->head.flags & WIRE_DUPLICATE && h->head.kind == WIRE_ACK)
		transport_sent_duplicate(q, p, le32_get(h->ack.duplicate), h->head.flags & WIRE_UNACKED);
	/* The first ACK of these packets may have been lost: this one is no RTT sample. */
	if (h->head.flags & WIRE_RETRANSMIT && p->rings) {
		p->rings->rtt.watch &= (uint8_t) ~(RTT_TIMING | RTT_LATE);
		p->rings->rtt.late_known = false;
	}
}

/* Acknowledges early when many packets or bytes are not acknowledged: the sender may be out of window. */
static inline void ack_many(struct transport_queue *q, struct transport_peer *p, uint32_t bytes)
{
	p->owed_bytes += bytes;
	if (__builtin_expect(p->owed >= p->ack_every || p->owed_bytes >= FAR_TRANSPORT_ACK_BYTES, 0))
		transport_ack_soon(q, p);
}

static inline void give(struct transport_queue *q, const struct nic_pkt *lp)
{
	if (!lp->cookie)
		return;
	q->given[q->given_n].peer = lp->peer;
	q->given[q->given_n++].cookie = lp->cookie;
}

enum lies { LIES_NOWHERE, LIES_BELOW, LIES_HERE };

/* Delivers a complete message in order, whose head is in q->lines[lines_n]: fills `pkt`. LIES_NOWHERE: its bytes are
 * not aligned, and there is no room for a copy; `pkt` is not filled. */
static inline enum lies hand_in_place(struct transport_queue *q, const struct transport_peer *p, const uint8_t *body,
				      uint32_t len, struct nic_pkt *pkt)
{
	struct nic_line *line = &q->lines[q->lines_n];
	uint8_t *behind = line->bytes + sizeof(struct wire_call);
	enum lies where = LIES_HERE;
	if (__builtin_expect(len == FAR_LINE_PAYLOAD, 1)) {
		memcpy(behind, body, FAR_LINE_PAYLOAD);
		body = behind;
	} else if (len <= FAR_LINE_PAYLOAD) {
		if (len)
			memcpy(behind, body, len);
		body = len ? behind : NULL;
	} else if ((uintptr_t)body & 63) {
		if (len > TRANSPORT_SCRATCH_BYTES - q->scratch_used)
			return LIES_NOWHERE;
		uint8_t *at = q->scratch + q->scratch_used;
		memcpy(at, body, len);
		q->scratch_used += (len + 63) & ~63u;
		body = at;
	} else {
		where = LIES_BELOW;
		q->below = true;
	}
	q->lines_n++;
	pkt->head = line->bytes;
	pkt->body = body;
	pkt->body_len = len;
	pkt->cookie = 0;
	pkt->peer = p->index;
	return where;
}

/* Delivers more messages of q->batch, up to `max`. Returns their number. */
__attribute__((noinline)) static unsigned hand_batch(struct transport_queue *q, struct nic_pkt *pkts, unsigned max)
{
	struct transport_batch *b = &q->batch;
	struct transport_peer *p = b->peer;
	unsigned n = 0;
	while (n < max && q->lines_n < TRANSPORT_BURST) {
		uint32_t len, before = b->at;
		int more = p->dead ? 0 : transport_batch_next(b, q->lines[q->lines_n].bytes, &len);
		if (more <= 0) {
			if (more < 0)
				transport_protocol_error(q, p);
			transport_batch_end(q);
			break;
		}
		if (!hand_in_place(q, p, b->bytes + b->at - len, len, &pkts[n])) {
			b->at = before; /* retried by the next recv(), which has room */
			break;
		}
		n++;
	}
	p->owed += n;
	if (__builtin_expect(!p->active, 0)) /* a timer scan may have deactivated it since its first messages */
		transport_peer_activate(q, p);
	ack_many(q, p, 0);
	return n;
}

void transport_batch_end(struct transport_queue *q)
{
	give(q, &q->lower_pkts[q->lower_at - 1]);
	q->batch.peer = NULL;
}

/* Delivers the first message of a packet in order of complete messages, in place. false: not possible. */
static inline bool hand_now(struct transport_queue *q, struct transport_peer *p, const struct wire_message *h,
			    const struct transport_span *f, const struct nic_pkt *lp, struct nic_pkt *pkt, bool *kept)
{
	bool batch = h->flags & WIRE_BATCH;
	unsigned odd = h->flags & (WIRE_FRAGMENT | WIRE_RETRANSMIT | WIRE_UNORDERED);
	if (__builtin_expect(f->number != p->rx_next || f->first != f->number || p->early_n || p->ready_n ||
				     !p->attached || p->fragments || f->len > TRANSPORT_BODY_MAX ||
				     (odd ? odd != WIRE_UNORDERED || f->offset - batch > FAR_TRANSPORT_WINDOW - batch
					  : f->offset != 0),
			     0))
		return false;
	if (__builtin_expect(batch ? !transport_batch_valid(f, h->flags) : f->len != f->length, 0))
		return false;
	memcpy(q->lines[q->lines_n].bytes, h->call, sizeof h->call);
	enum lies where = hand_in_place(q, p, f->bytes, f->length, pkt);
	*kept = where && (batch || where == LIES_BELOW);
	if (batch && where)
		q->batch = (struct transport_batch){p, f->bytes, f->length, f->len};
	else if (where == LIES_BELOW)
		give(q, lp);
	return where;
}

static inline struct transport_peer *peer_of(const struct transport_queue *q, const struct wire_head *h)
{
	uint64_t token = le64_get(h->token);
	struct transport_peer *p = q->peers[TRANSPORT_INDEX(token)];
	bool ours =
		p && ((p->token == token && le64_get(h->incarnation) == q->id) || MUTANT(OLD_INCARNATION_ACCEPTED) ||
		      (MUTANT(STALE_DOWN) && (h->kind == WIRE_CLOSE || h->kind == WIRE_RESET)));
	return ours && p->started && !p->loop ? p : NULL;
}

static bool crc_fits(const struct transport_queue *q, const struct wire_head *h, const struct nic_pkt *lp)
{
	struct wire_head zeroed = *h;
	zeroed.crc = le32_of(0);
	uint32_t crc = crc32c(0, &zeroed, sizeof zeroed), in = (uint32_t)lp->body_len;
	if (transport_placed(q, lp))
		in = TRANSPORT_HEAD_BYTES;
	crc = crc32c(crc, lp->body + sizeof zeroed, in - sizeof zeroed);
	return crc32c(crc, lp->head, lp->body_len - in) == le32_get(h->crc);
}

static bool is_sibling(const struct transport_queue *q, uint64_t id)
{
	for (uint32_t i = 0; i < q->siblings_n; i++)
		if (q->siblings[i]->id == id)
			return true;
	return false;
}

/* True for a packet that may lack a CRC: from a peer that agreed on that for this path, or, only to be counted, of no
 * connection. */
static inline bool may_be_bare(const struct transport_queue *q, const struct transport_peer *p,
			       const struct wire_head *h)
{
	return le32_get(h->crc) == 0 && h->kind <= WIRE_ACK &&
	       (p ? p->agreed : q->unchecked || !is_sibling(q, le64_get(h->incarnation)));
}

/* True if a MESSAGE or ACK has zeros where the tag of a control packet lies. A control packet that was captured, and
 * whose kind was changed, has not. */
static inline bool tag_is_zero(const union wire_packet *h)
{
	static_assert(offsetof(struct wire_message, zero) == offsetof(struct wire_control, tag), "");
	static_assert(sizeof(h->message.zero) == sizeof(((struct wire_control *)0)->tag), "");
	uint64_t word[2];
	memcpy(word, h->message.zero, sizeof word);
	return !(word[0] | word[1]);
}

/* Processes the head of a MESSAGE or ACK. */
static inline __attribute__((always_inline)) void take_head(struct transport_queue *q,
							    const struct transport_queue *via, struct transport_peer *p,
							    const union wire_packet *h)
{
	p->heard = true;
	p->remote_asleep = h->head.flags & WIRE_ASLEEP;
	if (__builtin_expect(p->special || h->head.flags & (WIRE_DUPLICATE | WIRE_RETRANSMIT), 0))
		receive_flags(q, p, via, h);
	take_ack(q, p, le32_get(h->message.ack),
		 le64_get(h->message.ack_bits)); /* struct wire_ack has them there, too */
	/* It went to sleep before it received what is in flight. */
	if (__builtin_expect(p->remote_asleep && (p->una != p->next || (p->begun_n && transport_grants_open(p))), 0))
		transport_kick(q, p);
}

static inline struct transport_span fragment_of(const struct transport_queue *q, const struct wire_message *h,
						const struct nic_pkt *lp)
{
	return (struct transport_span){le32_get(h->packet),
				       le32_get(h->first),
				       le32_get(h->length),
				       le32_get(h->offset),
				       (uint32_t)lp->body_len - TRANSPORT_HEAD_BYTES,
				       __builtin_expect(transport_placed(q, lp), 0) ? lp->head
										    : lp->body + TRANSPORT_HEAD_BYTES};
}

/* Processes the body of an ACK. */
static void receive_grants(struct transport_queue *q, struct transport_peer *p, const struct wire_ack *h,
			   const struct nic_pkt *lp)
{
	if (__builtin_expect(p->probed_paths, 0))
		transport_path_confirmed(p, le32_get(h->path));
	transport_grants_receive(q, p, h, lp->body + TRANSPORT_HEAD_BYTES, lp->body_len - TRANSPORT_HEAD_BYTES);
}

void transport_receive_elsewhere(struct transport_queue *q, struct transport_queue *via, struct transport_peer *p,
				 const union wire_packet *h, const struct nic_pkt *lp)
{
	p->special |= p->secondary != 0;
	take_head(q, via, p, h);
	/* ASLEEP refers to the sending port. If the path in use can only be woken by kicks, assume that it sleeps. */
	p->remote_asleep |= p->current_path && p->via->ops->kick;
	p->rx_elsewhere = true;
	if (h->head.kind == WIRE_ACK) {
		receive_grants(q, p, &h->ack, lp);
		if (!p->active && !p->dead) /* the timer scan resets `failed_over` */
			transport_peer_activate(q, p);
		return;
	}
	/* An earlier packet is not delivered completely: drop this one, the sender retransmits. */
	if (q->batch.peer == p) {
		counter_bump(&q->no_memory);
		return;
	}
	struct transport_span f = fragment_of(via, &h->message, lp);
	transport_reassemble(q, p, &h->message, &f);
	if (!p->active)
		transport_peer_activate(q, p);
	ack_many(q, p, f.len);
}

/* Processes a packet that names no connection of this queue, or is no MESSAGE or ACK. */
__attribute__((noinline)) static void take_rest(struct transport_queue *q, struct transport_peer *p,
						const union wire_packet *h, const struct nic_pkt *lp)
{
	uint64_t id = le64_get(h->head.incarnation);
	for (uint32_t i = 0; !p && id != q->id && i < q->siblings_n; i++)
		if (q->siblings[i]->id == id) {
			transport_sibling_receive(q->siblings[i], q, peer_of(q->siblings[i], &h->head), h, lp);
			return;
		}
	transport_receive_control(q, p, &h->head, lp);
}

__attribute__((cold, noinline)) static void take_headless(struct transport_queue *q, const struct nic_pkt *lp)
{
	if (lp->peer == NIC_PEER_BULK && q->ops->bulk)
		transport_receive_onesided(q, lp);
	else
		counter_bump(&q->malformed);
}

/* Processes a packet. Returns 1 if `pkt` was filled. `pkt` NULL: copy all messages. */
static inline __attribute__((always_inline)) unsigned take(struct transport_queue *q, const struct nic_pkt *lp,
							   struct nic_pkt *pkt, bool *kept)
{
	union wire_packet h;
	if (__builtin_expect(!lp->body || lp->body_len < TRANSPORT_HEAD_BYTES || lp->body_len > UINT32_MAX, 0)) {
		take_headless(q, lp);
		return 0;
	}
	memcpy(&h, lp->body, sizeof h);
	if (__builtin_expect(h.head.version != WIRE_VERSION, 0)) {
		counter_bump(&q->malformed);
		return 0;
	}
	struct transport_peer *p = peer_of(q, &h.head);
	if (q->crc && !may_be_bare(q, p, &h.head) && __builtin_expect(!crc_fits(q, &h.head, lp), 0) &&
	    !MUTANT(CHECKSUM_IGNORED)) {
		counter_bump(&q->crc_errors);
		return 0;
	}
	if (__builtin_expect(h.head.kind <= WIRE_ACK && !tag_is_zero(&h), 0)) {
		counter_bump(&q->malformed);
		return 0;
	}
	if (__builtin_expect(!p || h.head.kind > WIRE_ACK || h.head.kind == 0, 0)) {
		take_rest(q, p, &h, lp);
		return 0;
	}
	if (__builtin_expect(p->dead || p->detached, 0)) {
		counter_bump(&q->closed_connection_drops);
		return 0;
	}
	take_head(q, q, p, &h);
	if (h.head.kind == WIRE_ACK) {
		receive_grants(q, p, &h.ack, lp);
		return 0;
	}
	struct transport_span f = fragment_of(q, &h.message, lp);
	if (pkt && __builtin_expect(hand_now(q, p, &h.message, &f, lp, pkt, kept), 1)) {
		p->rx_next++;
		p->owed++;
		if (__builtin_expect(!p->active, 0))
			transport_peer_activate(q, p);
		ack_many(q, p, f.len);
		return 1;
	}
	if (MUTANT(DEDUP_SKIPPED) && (int32_t)(f.number - p->rx_next) < 0 && f.first == f.number)
		f.number = f.first = --p->rx_next;
	transport_reassemble(q, p, &h.message, &f);
	if (!p->active)
		transport_peer_activate(q, p);
	ack_many(q, p, f.len);
	return 0;
}

__attribute__((noinline)) unsigned transport_recv_copied(struct transport_queue *q)
{
	unsigned n = q->ops->recv(q->lower, q->lower_pkts, TRANSPORT_BURST);
	q->now = q->lower_n = q->lower_at = 0; /* `now` is of the last recv() */
	for (const struct nic_pkt *lp = q->lower_pkts; lp < q->lower_pkts + n; lp++) {
		bool kept;
		take(q, lp, NULL, &kept);
		if (lp->cookie)
			q->ops->release(q->lower, lp->peer, lp->cookie);
	}
	if (q->grants.due)
		transport_grants_run(q);
	if (q->acks_n)
		transport_send_acks(q);
	return n;
}

/* Releases the packets and copies of the last burst. */
static inline void give_back(struct transport_queue *q)
{
	for (uint32_t i = 0; i < q->given_n; i++)
		q->ops->release(q->lower, q->given[i].peer, q->given[i].cookie);
	q->given_n = 0;
	q->scratch_used = 0;
	q->lines_n = 0;
	q->below = false;
	while (__builtin_expect(q->burst != NULL, 0)) {
		struct transport_message *m = q->burst;
		q->burst = m->next;
		transport_message_in_free(q, m);
	}
}

/* `got`: number of packets processed. */
static inline unsigned take_all(struct transport_queue *q, struct nic_pkt *pkts, unsigned max, unsigned *got)
{
	unsigned n = q->batch.peer ? hand_batch(q, pkts, max) : 0;
	if (__builtin_expect(q->batch.peer != NULL, 0))
		return n;
	/* recv() below ends the validity of its last burst: only when all of that is processed and delivered. */
	if (q->lower_at == q->lower_n && q->lines_n == 0) {
		uint32_t most = max - n < TRANSPORT_BURST ? max - n : TRANSPORT_BURST;
		q->lower_at = 0;
		if (__builtin_expect(q->expected != NULL, 0))
			most = transport_placement_offer(q, most);
		q->lower_n = q->ops->recv(q->lower, q->lower_pkts, most);
		if (__builtin_expect(q->placed, 0))
			transport_placement_check(q);
	}
	while (q->lower_at < q->lower_n && n < max && q->lines_n < TRANSPORT_BURST) {
		const struct nic_pkt *lp = &q->lower_pkts[q->lower_at++];
		bool kept = false;
		n += take(q, lp, &pkts[n], &kept);
		if (lp->cookie && !kept)
			q->ops->release(q->lower, lp->peer, lp->cookie);
		++*got;
		if (q->batch.peer)
			n += hand_batch(q, pkts + n, max - n);
		if (q->batch.peer)
			break;
	}
	if (__builtin_expect(q->placed, 0)) {
		transport_placement_leave(q);
		q->placed = false;
	}
	return n;
}

unsigned transport_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max)
{
	struct transport_queue *q = (struct transport_queue *)nq;
	unsigned n = 0, got = 0;
	q->now = 0;
	bool unflushed = q->unflushed; /* commits of the caller, who will flush them */
	if (__builtin_expect(transport_peer_set_any(&q->orders), 0))
		transport_orders_run(q);
	give_back(q);
	uint32_t failed_over_n = q->failed_over_n;
	if (__builtin_expect(failed_over_n, 0) && !q->batch.peer)
		transport_siblings_poll(q);
	if (__builtin_expect(q->ready_first != NULL, 0))
		n = hand_up(q, pkts, max);
	if (n < max) {
		n += take_all(q, pkts + n, max - n, &got);
		if (__builtin_expect(q->ready_first != NULL, 0))
			n += hand_up(q, pkts + n, max - n);
	}
	if (__builtin_expect(q->grants.due, 0))
		transport_grants_run(q);
	if (__builtin_expect(q->acks_n, 0))
		transport_send_acks(q);
	if ((q->actives_n | q->delayed_n) && (q->look || ++q->passes >= (got ? BUSY_PASSES : LULL_PASSES)))
		transport_timers_run(q);
	if (__builtin_expect((q->unflushed && (!unflushed || n == 0)) || (q->stalled && got) || failed_over_n, 0))
		transport_flush(nq);
	/* No message for a caller that is about to sleep, but there may be more packets below: no wake-up follows. */
	if (__builtin_expect(q->armed && got && n == 0 && max, 0))
		q->ops->wake(q->lower);
	q->base.drained = q->lower->drained && transport_all_taken(q) && !failed_over_n;
	return n;
}

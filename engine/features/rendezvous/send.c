/* SPDX-License-Identifier: BSD-3-Clause */
/** Sends messages in fragments. Shard thread. */
#include "features/rendezvous/rendezvous.h"

#include "base/must.h"
#include "base/rref.h"
#include "core/call.h"
#include "core/context.h"
#include "core/feature.h"
#include "core/packet.h"
#include "core/reply.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"
#include "core/tlv.h"
#include "value/registry.h"

#include <errno.h>
#include <farcall/message.h>
#include <string.h>

/* ---- queue ---- */

static void disown(struct shard *s, struct rendezvous_out *o)
{
	struct rendezvous_peer *p = o->peer;
	timer_disarm(&s->wheel, &o->timer.timer);
	o->peer = NULL;
	counter_add(&s->counters.rendezvous_active, (uint64_t)-1);
	counter_add(&s->counters.sends_ended, 1);
	if (o->referred) {
		rendezvous_lend(p, o);
		return;
	}
	if (o->zero_copy) {
		o->next = rendezvous_of(s)->zero_copy;
		rendezvous_of(s)->zero_copy = o;
		s->poll_due |= FEATURE_BIT(FEATURE_RENDEZVOUS);
		return;
	}
	rendezvous_out_drop(s, o);
}

static void on_timer(struct shard *s, struct shard_timer *t);

void rendezvous_send(struct shard *s, struct session *se, struct rendezvous_out *o)
{
	struct rendezvous_peer *p = rendezvous_peer_of(s, se);
	rendezvous_out_ref(o);
	o->peer = p;
	o->next = NULL;
	o->timer.fn = on_timer;
	o->sent = 0;
	o->granted = false;
	o->part = 0;
	o->part_at = 0;
	*p->queue_tail = o;
	p->queue_tail = &o->next;
	counter_add(&s->counters.rendezvous_active, 1);
	counter_add(&s->counters.sends_begun, 1);
	if (o->head.type == PACKET_ONEWAY && o->deadline != TIME_NEVER)
		timer_arm(&s->wheel, &o->timer.timer, o->deadline);
	rendezvous_list(s, p);
}

void rendezvous_reply(struct shard *s, struct session *se, const struct packet_reply *h, struct far_buf *buf,
		      size_t len, struct far_buf *tlv)
{
	char text[FAR_ERR_TEXT_MAX];
	if (se->state != SESSION_UP)
		return;
	struct rendezvous_out *o = rendezvous_out_new();
	if (!o) {
		size_t text_len = answer_no_memory(text, sizeof *o);
		answer_error(s, se, h->slot, h->generation,
			     &(struct answer_failure){FAR_RESOURCE, FAR_EXECUTED_YES, 0, text, text_len});
		return;
	}
	buf_ref(buf);
	o->copy = buf;
	o->parts[0] = (struct far_part){buf_data(buf), len};
	o->parts_n = 1;
	o->total = len;
	o->head.reply = *h;
	rendezvous_out_fields(o, tlv);
	o->deadline = TIME_NEVER;
	rendezvous_send(s, se, o);
	rendezvous_out_unref(o);
}

static void unqueue(struct rendezvous_peer *p, struct rendezvous_out *o)
{
	struct rendezvous_out **at = &p->queue;
	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	if (!*at)
		p->queue_tail = at;
}

/* Takes a message out of the queue or its lane. An announced lane still sends its last packet. */
static void abandon(struct shard *s, struct rendezvous_out *o, bool announced)
{
	struct rendezvous_peer *p = o->peer;
	if (announced) {
		p->out[o->lane].out = NULL;
		p->out[o->lane].aborting = true;
	} else {
		unqueue(p, o);
	}
	if (p->oneway == o) {
		p->oneway = NULL;
		counter_add(&s->counters.oneways_dropped, 1);
		if (!announced) /* else it counts until the announcement is acknowledged */
			counter_add(&s->counters.sends_ended, 1);
	}
	disown(s, o);
	rendezvous_list(s, p);
}

static bool is_announced(const struct rendezvous_out *o)
{
	return o->peer->out[o->lane].out == o;
}

static void on_timer(struct shard *s, struct shard_timer *t)
{
	struct rendezvous_out *o = (struct rendezvous_out *)(void *)t;
	abandon(s, o, is_announced(o));
}

/* ---- announcing ---- */

static bool packets_room(const struct rendezvous_peer *p)
{
	return p->packets_sent - p->packets_acked < FAR_RENDEZVOUS_PACKETS;
}

static void unit_sent(struct shard *s, struct rendezvous_peer *p)
{
	p->packets_sent++;
	counter_add(&s->counters.sends_begun, 1);
}

/* A typed request: the callee's number of the function, or the hashes as a part of their own. */
static void name_function(struct shard *s, struct session *se, struct rendezvous_out *o, struct packet_request *h)
{
	if (h->type != PACKET_REQUEST || !(h->flags & PACKET_TYPED))
		return;
	uint32_t fn = session_functions(s, se)[h->handler];
	if (fn) {
		h->handler = (uint16_t)(fn - 1);
		return;
	}
	const struct function *f = registry_at(s->registry, h->handler);
	o->hash = (struct packet_hash){f->signature.name_hash, f->signature.canonical_hash};
	h->flags |= PACKET_HASHED;
	h->handler = 0;
}

/* What follows the message's own parts: the hash, the fields. Returns how many. */
static unsigned tail_of(const struct rendezvous_out *o, bool hashed, struct far_part tail[2])
{
	unsigned n = 0;
	if (hashed)
		tail[n++] = (struct far_part){&o->hash, sizeof o->hash};
	if (o->tlv)
		tail[n++] = (struct far_part){tlv_block_in(o->tlv)->data, tlv_block_in(o->tlv)->bytes};
	return n;
}

/* The parts that are not empty, and the tail; 0: they are too many. */
static unsigned offered_parts(const struct rendezvous_out *o, const struct far_part *tail, unsigned tail_n,
			      struct packet_part *parts)
{
	unsigned n = 0;
	for (unsigned i = 0; i < o->parts_n + tail_n; i++) {
		const struct far_part *part = i < o->parts_n ? &o->parts[i] : &tail[i - o->parts_n];
		if (part->len && n == FAR_PULL_PARTS_MAX)
			return 0;
		if (part->len)
			parts[n++] = (struct packet_part){(uintptr_t)part->data, part->len};
	}
	return n;
}

/* Offers the message, if the receiver can read or pull it. */
static void offer(struct shard *s, const struct session *se, struct rendezvous_out *o, struct packet_rendezvous *h,
		  const struct far_part *tail, unsigned tail_n, struct packet_announced *a)
{
	o->offered = o->referred = !tail_n && rendezvous_refer(o->peer, o, a);
	if (o->referred) {
		h->flags |= PACKET_REFERRED;
		return;
	}
	if (h->total < FAR_PULL_BYTES_MIN || !se->q->ops->pull || !se->q->ops->peer_pulls(se->q, se->peer))
		return;
	unsigned n = offered_parts(o, tail, tail_n, a->parts);
	if (!n || !rendezvous_source_take(o))
		return;
	o->offer.from = rref_incarnation(s->config.rank, s->config.incarnation);
	o->offer.to = se->incarnation;
	atomic_store_explicit(&o->offer.tag, packet_offer_tag(h->lane, h->epoch, s->config.index, se->shard),
			      memory_order_relaxed); /* published by the packet */
	rendezvous_source_give(o);
	o->offered = true;
	a->parts_n = n;
	a->offer = (uintptr_t)&o->offer;
}

static int send_announcement(struct shard *s, struct session *se, struct rendezvous_out *o,
			     const struct packet_rendezvous *rendezvous, const struct packet_announced *a)
{
	union packet_head h = {.rendezvous = *rendezvous};
	int error = answer_packet(s, se, &h, a, packet_announced_bytes(a->parts_n));
	if (error == -ENOBUFS && a->parts_n) { /* without them: a line needs no bulk memory */
		h.flags &= (uint8_t)~PACKET_REFERRED;
		o->referred = false;
		error = answer_packet(s, se, &h, a, sizeof a->head);
	}
	o->referred &= !error;
	return error;
}

static int announce(struct shard *s, struct rendezvous_peer *p, struct rendezvous_out *o, unsigned lane)
{
	struct packet_announced a = {.head = o->head};
	uint64_t now = clock_now(s->config.clock), left = TIME_NEVER;
	name_function(s, p->session, o, &a.head.request);
	bool hashed = a.head.type == PACKET_REQUEST && a.head.flags & PACKET_HASHED;
	struct far_part tail[2];
	unsigned tail_n = tail_of(o, hashed, tail);
	size_t tail_bytes = 0;
	for (unsigned i = 0; i < tail_n; i++)
		tail_bytes += tail[i].len;
	if (o->tlv) {
		a.head.flags |= PACKET_TLV;
		a.head.call.tlv_bytes = tlv_block_in(o->tlv)->bytes;
	}
	struct packet_rendezvous h = {.type = PACKET_RENDEZVOUS,
				      .lane = lane,
				      .epoch = p->out[lane].epoch + 1,
				      .total = o->total + tail_bytes};
	if (o->deadline != TIME_NEVER)
		left = o->deadline > now ? o->deadline - now : 1;
	if (a.head.type != PACKET_REPLY)
		a.head.request.time_left = left;
	offer(s, p->session, o, &h, tail, tail_n, &a);
	int error = send_announcement(s, p->session, o, &h, &a);
	if (error)
		return error;
	memcpy(o->parts + o->parts_n, tail, tail_n * sizeof *tail);
	o->parts_n += tail_n;
	o->total += tail_bytes;
	unit_sent(s, p);
	p->out[lane].out = o;
	p->out[lane].epoch++;
	o->lane = lane;
	o->epoch = h.epoch;
	if (o->head.type == PACKET_ONEWAY)
		p->oneways_sent++;
	return 0;
}

static unsigned free_lane(const struct rendezvous_peer *p)
{
	unsigned lane = 0;
	while (lane < FAR_RENDEZVOUS_LANES && (p->out[lane].out || p->out[lane].aborting))
		lane++;
	return lane;
}

unsigned rendezvous_announce(struct shard *s, struct rendezvous_peer *p)
{
	unsigned n = 0, lane;
	for (lane = 0; lane < FAR_RENDEZVOUS_LANES && packets_room(p); lane++)
		if (p->out[lane].aborting) {
			union packet_head h = {
				.lane = {.type = PACKET_ABORT, .lane = lane, .epoch = p->out[lane].epoch}};
			if (answer_packet(s, p->session, &h, NULL, 0))
				return n;
			unit_sent(s, p);
			p->out[lane].aborting = false;
			n++;
		}
	while (p->queue && packets_room(p) && (lane = free_lane(p)) < FAR_RENDEZVOUS_LANES) {
		struct rendezvous_out *o = p->queue;
		if (o->head.type == PACKET_ONEWAY && p->oneways_sent - p->oneways_acked >= FAR_ONEWAYS_WINDOW)
			break;
		if (announce(s, p, o, lane))
			break;
		p->queue = o->next;
		if (!p->queue)
			p->queue_tail = &p->queue;
		n++;
	}
	return n;
}

/* ---- fragments ---- */

static void gather(const struct session *se, struct rendezvous_out *o, uint8_t *at, uint64_t len)
{
	while (len) {
		const struct far_part *part = &o->parts[o->part];
		size_t n = part->len - o->part_at;
		if (n > len)
			n = len;
		if (n)
			session_copy(se, at, (const uint8_t *)part->data + o->part_at, n);
		at += n;
		len -= n;
		o->part_at += n;
		if (o->part_at == part->len && len) {
			o->part++;
			o->part_at = 0;
		}
	}
}

static bool read_parts(const struct session *se, struct rendezvous_out *o, uint8_t *at, uint64_t len)
{
	if (!rendezvous_source_take(o))
		return false;
	gather(se, o, at, len);
	rendezvous_source_give(o);
	return true;
}

static void sent_all(struct shard *s, struct rendezvous_peer *p, struct rendezvous_out *o)
{
	p->out[o->lane].out = NULL;
	counter_add(&s->counters.rendezvous_sent, 1);
	if (o->head.type == PACKET_REQUEST)
		call_request_sent(s, o->head.call.slot, o->head.call.generation);
	else if (o->head.type == PACKET_REPLY)
		counter_add(&s->counters.replies_sent, 1);
	else
		p->oneway = NULL;
	disown(s, o);
}

/* The bytes of one part that are next, `*len` at most and so many then; NULL: they are to be copied, and `*len` ends
 * where such begin. */
static const uint8_t *zero_copy_next(struct rendezvous_out *o, uint64_t *len)
{
	uint64_t short_ones = 0;
	while (o->part < o->parts_n && o->part_at == o->parts[o->part].len) {
		o->part++;
		o->part_at = 0;
	}
	size_t at = o->part_at;
	for (unsigned i = o->part; short_ones < *len; i++, at = 0) {
		size_t left = o->parts[i].len - at;
		if (left >= FAR_ZERO_COPY_BYTES_MIN && short_ones) {
			*len = short_ones;
			return NULL;
		}
		if (left >= FAR_ZERO_COPY_BYTES_MIN) {
			*len = left < *len ? left : *len;
			return (const uint8_t *)o->parts[i].data + at;
		}
		short_ones += left;
	}
	return NULL;
}

/* Room for the next `*len` bytes, or fewer, with them. 0; -ECANCELED: the parts are gone; or the queue's. */
static int chunk_reserve(const struct session *se, struct rendezvous_out *o, uint64_t *len, struct nic_tx *tx)
{
	bool zero_copy = se->q->ops->tx_zero_copy && (o->copy || o->released);
	const uint8_t *at = zero_copy ? zero_copy_next(o, len) : NULL;
	if (at) {
		int error = se->q->ops->tx_zero_copy(se->q, se->peer, at, *len, o->copy ? o->copy : o->self, tx);
		if (!error)
			o->part_at += *len;
		o->zero_copy |= !error && !o->copy;
		return error;
	}
	int error = se->q->ops->tx_reserve(se->q, se->peer, *len, tx);
	if (error || read_parts(se, o, tx->body, *len))
		return error;
	se->q->ops->tx_cancel(se->q, tx);
	return -ECANCELED;
}

/* 0, or why not now. */
static int send_chunk(struct shard *s, struct rendezvous_peer *p, struct rendezvous_out *o)
{
	struct session *se = p->session;
	uint64_t len = o->total - o->sent;
	struct nic_tx tx;
	if (len > FAR_CHUNK_BYTES)
		len = FAR_CHUNK_BYTES;
	int error = chunk_reserve(se, o, &len, &tx);
	if (error == -ECANCELED) {
		abandon(s, o, true);
		return 0;
	}
	if (error)
		return error;
	union packet_head *h = packet_at(tx.head);
	packet_begin(h, PACKET_DATA, 0, o->lane, p->out[o->lane].epoch);
	h->data.zero = 0;
	h->data.offset = o->sent;
	tx.order = NIC_ORDER_STREAM;
	if (unlikely(session_commit(s, se, &tx))) { /* only a peer that gives no slots back brings this about */
		se->q->ops->tx_cancel(se->q, &tx);
		answer_no_room(s, se);
		abandon(s, o, true);
		return 0;
	}
	unit_sent(s, p);
	session_count_sent(s, se, len);
	o->sent += len;
	if (o->sent == o->total)
		sent_all(s, p, o);
	return 0;
}

bool rendezvous_send_one(struct shard *s, struct rendezvous_peer *p)
{
	if (!packets_room(p))
		return false;
	for (unsigned i = 0; i < FAR_RENDEZVOUS_LANES; i++) {
		unsigned lane = p->turn++ % FAR_RENDEZVOUS_LANES;
		struct rendezvous_out *o = p->out[lane].out;
		if (!o || !o->granted)
			continue;
		int error = send_chunk(s, p, o);
		if (error == -ENOBUFS)
			s->send_stalled = true; /* memory that the peer returns wakes no thread */
		return error == 0;
	}
	return false;
}

/* ---- packets of the receiver ---- */

bool rendezvous_packets_acked(struct shard *s, struct rendezvous_peer *p, uint64_t done)
{
	if (done < p->packets_acked || done > p->packets_sent)
		return false;
	counter_add(&s->counters.sends_ended, done - p->packets_acked);
	p->packets_acked = done;
	rendezvous_list(s, p);
	return true;
}

bool rendezvous_on_grant(struct shard *s, struct rendezvous_peer *p, const struct packet_grant *h)
{
	if (h->lane >= FAR_RENDEZVOUS_LANES)
		return false;
	struct rendezvous_out *o = p->out[h->lane].out;
	if (!o || p->out[h->lane].epoch != h->epoch) { /* it crossed the last packet, or ends a view */
		if (!(h->flags & PACKET_KEPT))
			rendezvous_referred_end(s, p, h->lane, h->epoch);
		return true;
	}
	if (o->granted || h->granted != o->total || (h->flags & PACKET_PULLED && !o->offered))
		return false;
	o->referred &= (h->flags & PACKET_PULLED) && (h->flags & PACKET_KEPT);
	if (h->flags & PACKET_PULLED) {
		session_count_sent(s, p->session, o->total);
		sent_all(s, p, o);
		return true;
	}
	o->granted = true;
	rendezvous_list(s, p);
	return true;
}

bool rendezvous_on_refuse(struct shard *s, struct rendezvous_peer *p, const struct packet_lane *h)
{
	if (h->lane >= FAR_RENDEZVOUS_LANES)
		return false;
	struct rendezvous_out *o = p->out[h->lane].out;
	if (!o || p->out[h->lane].epoch != h->epoch) {
		rendezvous_referred_end(s, p, h->lane, h->epoch);
		return true;
	}
	if (o->head.type == PACKET_REQUEST) /* the call has its answer, or gets it */
		call_request_sent(s, o->head.call.slot, o->head.call.generation);
	o->referred = false;
	abandon(s, o, true);
	return true;
}

bool rendezvous_out_of_call(struct shard *s, struct rendezvous_peer *p, uint32_t slot, uint32_t gen,
			    enum packet_type type, enum call_progress *progress)
{
	struct rendezvous_out *o = p->queue;
	while (o && (o->head.type != type || o->head.call.slot != slot || o->head.call.generation != gen))
		o = o->next;
	bool announced = !o;
	for (unsigned lane = 0; !o && lane < FAR_RENDEZVOUS_LANES; lane++) {
		o = p->out[lane].out;
		if (o && (o->head.type != type || o->head.call.slot != slot || o->head.call.generation != gen))
			o = NULL;
	}
	if (!o || (type == PACKET_REPLY && announced)) /* an announced answer is on its way, and counts */
		return false;
	*progress = !announced ? CALL_NOT_BEGUN : o->offered ? CALL_OFFERED : CALL_PART_SENT;
	abandon(s, o, announced);
	return true;
}

enum call_progress rendezvous_detach(struct shard *s, struct session *se, struct call *c)
{
	enum call_progress progress;
	uint32_t slot = c->slot;
	c->state = CALL_SENT;
	if (rendezvous_out_of_call(s, se->rendezvous, slot, c->gen, PACKET_REQUEST, &progress))
		return progress;
	rendezvous_in_of_call(s, se->rendezvous, slot, c->gen);
	return CALL_PART_RECEIVED;
}

void rendezvous_out_close(struct shard *s, struct rendezvous_peer *p)
{
	while (p->queue)
		abandon(s, p->queue, false);
	for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++) {
		if (p->out[lane].out)
			abandon(s, p->out[lane].out, true);
		p->out[lane].aborting = false;
	}
	rendezvous_lent_close(s, p);
	counter_add(&s->counters.sends_ended, p->packets_sent - p->packets_acked);
	p->packets_acked = p->packets_sent;
}

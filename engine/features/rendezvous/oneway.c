/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Sends and receives one-way messages. Shard thread, but for oneway_new() and oneway_free() (any thread).
 *
 * No packet answers a one-way message, so these have a window of their own, which the receiver reopens by a CREDIT for
 * every FAR_ONEWAYS_BATCH messages, or on request. A message that finds the window full waits in order in a bounded
 * queue.
 */
#include "features/rendezvous/rendezvous.h"

#include "base/must.h"
#include "base/mutant.h"
#include "core/call.h"
#include "core/context.h"
#include "core/dispatch.h"
#include "core/packet.h"
#include "core/reply.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/tlv.h"

#include <errno.h>
#include <string.h>

struct oneway *oneway_new(const struct call_start *start, struct rendezvous_out *rendezvous)
{
	struct far_buf *self = buf_alloc(sizeof(struct oneway) + (rendezvous ? 0 : start->len));
	if (!self)
		return NULL;
	struct oneway *oneway = buf_data(self);
	oneway->next = NULL;
	oneway->self = self;
	oneway->rendezvous = rendezvous;
	oneway->deadline = start->deadline;
	oneway->len = start->len;
	oneway->fn = start->fn;
	oneway->extra.tlv = start->extra ? start->extra->tlv : NULL;
	if (oneway->extra.tlv)
		buf_ref(oneway->extra.tlv);
	if (rendezvous)
		rendezvous_out_ref(rendezvous);
	else if (start->write)
		start->write(start->data, oneway->bytes, start->len, NULL);
	else if (start->len)
		memcpy(oneway->bytes, start->data, start->len);
	return oneway;
}

void oneway_free(struct oneway *oneway)
{
	if (oneway->rendezvous)
		rendezvous_out_unref(oneway->rendezvous);
	buf_unref(oneway->extra.tlv);
	buf_unref(oneway->self);
}

/* ---- sending ---- */

static bool window_open(const struct rendezvous_peer *p)
{
	return p->oneways_sent - p->oneways_acked < FAR_ONEWAYS_WINDOW + (MUTANT(ONEWAY_WINDOW) ? 1u : 0u);
}

static int send_oneway(struct shard *s, struct rendezvous_peer *p, const struct call_start *start)
{
	struct session *se = p->session;
	struct nic_tx tx;
	const struct tlv_block *fields = start->extra && start->extra->tlv ? tlv_block_in(start->extra->tlv) : NULL;
	int error = se->q->ops->tx_reserve(se->q, se->peer, start->len + (fields ? fields->bytes : 0), &tx);
	if (error)
		return error == -ENOBUFS ? -EAGAIN : error;
	union packet_head *h = packet_at(tx.head);
	packet_begin(h, PACKET_ONEWAY, fields ? PACKET_TLV : 0, 0, 0);
	h->oneway.handler = start->fn;
	h->oneway.time_left = start->left;
	if (start->write)
		start->write(start->data, tx.body, start->len, session_copier(se, start->len));
	else
		session_copy(se, tx.body, start->data, start->len);
	call_write_trailer(s, h, 0, fields, (uint8_t *)tx.body + start->len);
	tx.order = NIC_ORDER_STREAM;
	if (session_commit(s, se, &tx)) {
		se->q->ops->tx_cancel(se->q, &tx);
		return -EAGAIN;
	}
	p->oneways_sent++;
	counter_add(&s->counters.oneways_sent, 1);
	session_count_sent(s, se, start->len);
	return 0;
}

int oneway_send_now(struct shard *s, const struct call_start *start)
{
	struct session *se = &s->sessions[session_index(s, start->worker, start->shard)];
	if (s->stopped)
		return -ESHUTDOWN;
	if (session_is_dead(s, se))
		return -EPIPE;
	if (se->state != SESSION_UP) /* it waits for the set-up */
		return -EAGAIN;
	if (start->len > se->message_max)
		return -EMSGSIZE;
	struct rendezvous_peer *p = rendezvous_peer_of(s, se);
	/* Others before it: those that were handed over, and those that wait. */
	if (start->len > se->eager_max || submit_peek(&s->submit) ||
	    atomic_load_explicit(&s->oneways_queued[se->index], memory_order_relaxed) || p->oneway || !window_open(p))
		return -EAGAIN;
	int error = send_oneway(s, p, start);
	if (!error)
		counter_add(&s->counters.sends_begun, 1);
	return error;
}

static void unqueued(struct shard *s, struct session *se, struct oneway *oneway)
{
	const char *outer = s->context.handler;
	atomic_fetch_sub_explicit(&s->oneways_queued[se->index], 1, memory_order_relaxed);
	s->context.handler = "a release callback";
	oneway_free(oneway);
	s->context.handler = outer;
}

static struct oneway *next_oneway(struct rendezvous_peer *p)
{
	struct oneway *oneway = p->oneways;
	p->oneways = oneway->next;
	if (!p->oneways)
		p->oneways_tail = &p->oneways;
	return oneway;
}

static void drop(struct shard *s, struct session *se, struct oneway *oneway)
{
	counter_add(&s->counters.oneways_dropped, 1);
	counter_add(&s->counters.sends_ended, 1);
	unqueued(s, se, oneway);
}

static void enqueue(struct shard *s, struct rendezvous_peer *p, struct oneway *oneway)
{
	*p->oneways_tail = oneway;
	p->oneways_tail = &oneway->next;
	rendezvous_list(s, p);
}

void oneway_enqueue(struct shard *s, uint32_t worker, uint32_t shard, struct oneway *oneway)
{
	struct session *se = &s->sessions[session_index(s, worker, shard)];
	struct oneway **at = &se->oneways_early;
	oneway->next = NULL;
	counter_add(&s->counters.sends_begun, 1);
	if (session_is_dead(s, se)) {
		drop(s, se, oneway);
		return;
	}
	switch (se->state) {
	case SESSION_UP:
		enqueue(s, rendezvous_peer_of(s, se), oneway);
		return;
	default: /* at most FAR_ONEWAYS_QUEUED_MAX */
		while (*at)
			at = &(*at)->next;
		*at = oneway;
		if (se->state == SESSION_CLOSED) {
			se->worker = worker;
			se->shard = shard;
			session_connect(s, se);
		}
	}
}

void oneway_session_settled(struct shard *s, struct session *se)
{
	while (se->oneways_early) {
		struct oneway *oneway = se->oneways_early;
		se->oneways_early = oneway->next;
		if (se->state != SESSION_UP) {
			drop(s, se, oneway);
			continue;
		}
		oneway->next = NULL;
		enqueue(s, rendezvous_peer_of(s, se), oneway);
	}
}

static void begin_rendezvous(struct shard *s, struct rendezvous_peer *p, const struct oneway *oneway)
{
	struct rendezvous_out *o = oneway->rendezvous;
	o->head = (union packet_head){.oneway = {.type = PACKET_ONEWAY, .handler = oneway->fn}};
	o->deadline = oneway->deadline;
	p->oneway = o;
	rendezvous_out_fields(o, oneway->extra.tlv);
	counter_add(&s->counters.oneways_sent, 1);
	rendezvous_send(s, p->session, o);
}

unsigned oneway_send_queued(struct shard *s, struct rendezvous_peer *p)
{
	unsigned n = 0;
	while (p->oneways && !p->oneway && window_open(p) && n < FAR_BURST) {
		struct oneway *oneway = p->oneways;
		uint64_t now = oneway->deadline == TIME_NEVER ? 0 : clock_now(s->config.clock);
		struct call_start start = {.fn = oneway->fn,
					   .left = oneway->deadline == TIME_NEVER ? TIME_NEVER : oneway->deadline - now,
					   .data = oneway->bytes,
					   .len = oneway->len,
					   .extra = &oneway->extra};
		n++;
		if (oneway->deadline <= now) {
			drop(s, p->session, next_oneway(p));
			continue;
		}
		if (oneway->rendezvous) {
			begin_rendezvous(s, p, oneway);
		} else if (send_oneway(s, p, &start)) {
			s->send_stalled = true;
			return n - 1;
		}
		unqueued(s, p->session, next_oneway(p));
	}
	return n;
}

void oneway_close(struct shard *s, struct rendezvous_peer *p)
{
	while (p->oneways)
		drop(s, p->session, next_oneway(p));
	uint64_t lost = p->oneways_sent - p->oneways_acked;
	counter_add(&s->counters.sends_ended, lost);
	p->oneways_acked = p->oneways_sent;
}

/* ---- receiving ---- */

void oneway_send_credit(struct shard *s, struct rendezvous_peer *p, unsigned flags)
{
	struct packet_acked acked = {p->packets_received};
	union packet_head h = {
		.credit = {.type = PACKET_CREDIT, .flags = (uint8_t)flags, .oneways = p->oneways_received}};
	p->oneways_reported = p->oneways_received;
	p->packets_reported = p->packets_received;
	if (answer_packet(s, p->session, &h, &acked, sizeof acked))
		answer_no_room(s, p->session);
}

void oneway_received(struct shard *s, struct rendezvous_peer *p)
{
	p->oneways_received++;
	counter_add(&s->counters.oneways_received, 1);
	if (p->oneways_received - p->oneways_reported >= FAR_ONEWAYS_BATCH && !MUTANT(CREDIT_LOST))
		oneway_send_credit(s, p, 0);
}

void oneway_on_packet(struct shard *s, struct session *se, const union packet_head *h, const struct nic_pkt *pkt)
{
	struct rendezvous_peer *p = rendezvous_peer_of(s, se);
	if (h->flags & (PACKET_TYPED | PACKET_RETRY)) {
		counter_add(&s->counters.packets_dropped, 1);
		session_protocol_error(s, se);
		return;
	}
	if (unlikely(p->oneways_n)) /* a rendezvous one that was sent before */
		rendezvous_finish_oneways(s, p);
	if (unlikely(s->shown))
		dispatch_shown(s, se, h, pkt->body, pkt->body_len, 0);
	else
		dispatch(s, se, h, pkt->body, pkt->body_len, 0);
	oneway_received(s, p);
}

/* ---- acknowledgements ---- */

bool oneway_on_credit(struct shard *s, struct rendezvous_peer *p, const struct packet_credit *h, uint64_t packets)
{
	if (h->oneways < p->oneways_acked || h->oneways > p->oneways_sent)
		return false;
	counter_add(&s->counters.sends_ended, h->oneways - p->oneways_acked);
	p->oneways_acked = h->oneways;
	if (h->flags & PACKET_REQUESTED)
		p->credit_requested = false;
	return rendezvous_packets_acked(s, p, packets);
}

void oneway_request_credit(struct shard *s, struct rendezvous_peer *p)
{
	union packet_head h = {.type = PACKET_CREDIT_REQUEST};
	if (!p->credit_requested)
		p->credit_requested = answer_packet(s, p->session, &h, NULL, 0) == 0;
}

void oneway_request_credit_all(struct shard *s)
{
	atomic_store_explicit(&s->acks_requested, false, memory_order_relaxed);
	for (struct session *se = s->known; se; se = se->next_known) {
		struct rendezvous_peer *p = se->rendezvous;
		if (se->state == SESSION_UP && p &&
		    (p->oneways_sent != p->oneways_acked || p->packets_sent != p->packets_acked))
			oneway_request_credit(s, p);
	}
}

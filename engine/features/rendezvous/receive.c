/* SPDX-License-Identifier: BSD-3-Clause */
/** Receives messages in fragments; checks what the sender wrote before it uses any of it. Shard thread. */
#include "features/references/rref.h"
#include "features/rendezvous/rendezvous.h"

#include "base/must.h"
#include "base/mutant.h"
#include "base/rref.h"
#include "core/call.h"
#include "core/context.h"
#include "core/dispatch.h"
#include "core/packet.h"
#include "core/queues.h"
#include "core/reply.h"
#include "core/request.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"
#include "core/tlv.h"
#include "memory/budget.h"

#include <errno.h>
#include <farcall/message.h>
#include <stdio.h>
#include <string.h>

/* ---- memory ---- */

static const struct message_handler *handler_of(const struct shard *s, const union packet_head *h)
{
	return h->flags & PACKET_TYPED ? NULL : registry_message(s->registry, h->request.handler);
}

/* Memory of the application, if it has a placement for the message; else NULL. */
static uint8_t *placed(struct shard *s, struct rendezvous_peer *p, const struct rendezvous_lane *lane,
		       struct rendezvous_in *in)
{
	const char *outer = s->context.handler;
	uint8_t *at = NULL;
	if (lane->head.call.tlv_bytes) /* the application's memory has no room for fields */
		return NULL;
	s->context.handler = "a placement";
	if (lane->head.type == PACKET_REPLY) {
		at = call_place(s, lane->head.call.slot, lane->total);
	} else {
		const struct message_handler *m = handler_of(s, &lane->head);
		in->placed = m ? atomic_load_explicit(&m->placement, memory_order_acquire) : NULL;
		if (in->placed)
			at = in->placed->get_buffer(
				(struct far_to){(int32_t)p->session->worker, (int32_t)p->session->shard},
				lane->head.request.handler, lane->total, in->placed->user);
		if (!at)
			in->placed = NULL;
	}
	s->context.handler = outer;
	return at;
}

static void in_free(struct shard *s, struct rendezvous_in *in)
{
	timer_disarm(&s->wheel, &in->timer.timer);
	in->peer->oneways_n -= in->head.type == PACKET_ONEWAY;
	in->peer = NULL;
	in->next = rendezvous_of(s)->free;
	rendezvous_of(s)->free = in;
	counter_add(&s->counters.rendezvous_active, (uint64_t)-1);
}

static void abandon_memory(struct shard *s, const struct rendezvous_in *in)
{
	const char *outer = s->context.handler;
	s->context.handler = "a placement";
	if (in->placed)
		in->placed->abandon(in->at, in->placed->user);
	s->context.handler = outer;
	buf_unref(in->buf);
}

/* The message is not wanted any more: its memory goes, its fragments will be dropped. */
static void in_drop(struct shard *s, struct rendezvous_in *in)
{
	struct rendezvous_peer *p = in->peer;
	struct rendezvous_in memory = *in;
	for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++)
		if (p->in[lane].in == in)
			p->in[lane].in = NULL;
	for (unsigned i = 0; i < p->held_n; i++) {
		struct rendezvous_held *held = &p->held[(p->held_first + i) % FAR_RENDEZVOUS_PACKETS];
		if (held->in == in)
			held->in = NULL;
	}
	for (struct rendezvous_in **at = &p->ready; in->ready && *at; at = &(*at)->next)
		if (*at == in) {
			*at = in->next;
			if (!*at)
				p->ready_tail = at;
			break;
		}
	in_free(s, in);
	abandon_memory(s, &memory);
}

/* ---- lanes ---- */

void rendezvous_grant(struct shard *s, struct rendezvous_peer *p, unsigned lane)
{
	p->in[lane].granted = true;
	rendezvous_send_control(s, p, lane, PACKET_GRANT, 0);
}

/* Refuses the lane's message: notifies its sender, and ends the request or the call. Executed NO; of a reply YES. */
static void lane_refuse(struct shard *s, struct rendezvous_peer *p, unsigned lane, enum far_status status,
			const char *text)
{
	struct rendezvous_lane *l = &p->in[lane];
	struct completion o = {
		.status = status, .executed = FAR_EXECUTED_YES, .origin = -1, .data = text, .len = strlen(text)};
	l->waiting = false;
	if (l->in)
		in_drop(s, l->in);
	if (l->open)
		rendezvous_send_control(s, p, lane, PACKET_REFUSE, 0);
	if (l->head.type == PACKET_REQUEST)
		answer_error(s, p->session, l->head.call.slot, l->head.call.generation,
			     &(struct answer_failure){status, FAR_EXECUTED_NO, 0, text, strlen(text)});
	else if (l->head.type == PACKET_REPLY)
		call_complete_rendezvous(s, p->session, &l->head.reply, &o);
	else
		counter_add(&s->counters.oneways_dropped, 1);
}

static bool lane_expired(struct shard *s, const struct rendezvous_lane *l)
{
	uint64_t left = l->head.request.time_left;
	return l->head.type != PACKET_REPLY && left != UINT64_MAX && clock_now(s->config.clock) - l->arrived >= left;
}

static void on_timer(struct shard *s, struct shard_timer *t);

/* Gives the lane memory for its whole message; without a free record it waits for one. */
static void lane_admit(struct shard *s, struct rendezvous_peer *p, unsigned lane)
{
	struct rendezvous_lane *l = &p->in[lane];
	struct rendezvous_in *in = rendezvous_of(s)->free;
	l->waiting = !in;
	if (!in) {
		rendezvous_list(s, p);
		return;
	}
	if (lane_expired(s, l)) {
		lane_refuse(s, p, lane, FAR_TIMEOUT, "the deadline passed before the message was received");
		return;
	}
	rendezvous_of(s)->free = in->next;
	*in = (struct rendezvous_in){
		.timer.fn = on_timer, .peer = p, .head = l->head, .total = l->total, .arrived = l->arrived};
	counter_add(&s->counters.rendezvous_active, 1);
	p->oneways_n += l->head.type == PACKET_ONEWAY;
	l->in = in;
	in->at = placed(s, p, l, in);
	if (!in->at && rendezvous_view(s, p, lane, in))
		in->at = (uint8_t *)(uintptr_t)in->view; /* read only */
	if (!in->at && (in->buf = queues_buf(s, l->total)))
		in->at = buf_data(in->buf);
	if (!in->at) {
		char text[FAR_ERR_TEXT_MAX], why[BUDGET_TEXT_MAX];
		budget_text(why, sizeof why, l->total);
		snprintf(text, sizeof text, "worker \"%s\" has no memory for a message of %llu bytes: %s",
			 s->config.name, (unsigned long long)l->total, why);
		lane_refuse(s, p, lane, FAR_RESOURCE, text);
		return;
	}
	uint64_t left = l->head.request.time_left;
	if (l->head.type != PACKET_REPLY && left != UINT64_MAX)
		timer_arm(&s->wheel, &in->timer.timer, time_after(l->arrived, left));
	if (l->parts_n)
		rendezvous_list(s, p);
	else
		rendezvous_grant(s, p, lane);
}

/* Refused at once, before anything is reserved: true. */
static bool refused_early(struct shard *s, struct rendezvous_peer *p, unsigned lane)
{
	struct rendezvous_lane *l = &p->in[lane];
	char text[FAR_ERR_TEXT_MAX];
	uint64_t limit = s->config.message_bytes_max;
	if (limit && l->total > limit + sizeof(struct packet_hash) + l->head.call.tlv_bytes) {
		snprintf(text, sizeof text,
			 "a message of %llu bytes; worker \"%s\" takes %llu at most (its max_message_bytes)",
			 (unsigned long long)l->total, s->config.name, (unsigned long long)limit);
		lane_refuse(s, p, lane, FAR_TOO_LARGE, text);
		return true;
	}
	if (l->head.type == PACKET_REPLY || l->head.flags & PACKET_TYPED ||
	    (l->head.request.handler >= RREF_CALL && l->head.request.handler <= RREF_LAST) || handler_of(s, &l->head))
		return false;
	snprintf(text, sizeof text, "worker \"%s\" has no handler for message %u", s->config.name,
		 l->head.request.handler);
	lane_refuse(s, p, lane, FAR_NO_FUNCTION, text);
	return true;
}

/* Dropped fragments use up the sender's window, too. */
static void report_packets(struct shard *s, struct rendezvous_peer *p)
{
	if (p->session->state == SESSION_UP && p->packets_received - p->packets_reported >= FAR_RENDEZVOUS_BATCH)
		oneway_send_credit(s, p, 0);
}

static bool announcement_fits(const struct rendezvous_peer *p, const struct packet_rendezvous *h,
			      const struct nic_pkt *pkt, struct packet_announced *a)
{
	const union packet_head *body = &a->head;
	if (pkt->body_len < sizeof *body || pkt->body_len > sizeof *a)
		return false;
	memcpy(a, pkt->body, pkt->body_len);
	return rendezvous_offer_fits(a, pkt->body_len, h->total) && (a->parts_n || !(h->flags & PACKET_REFERRED)) &&
	       h->lane < FAR_RENDEZVOUS_LANES && !p->in[h->lane].open && h->total > 0 &&
	       h->total <= FAR_MSG_BYTES_MAX + sizeof(struct packet_hash) + FAR_TLV_BYTES_MAX &&
	       tlv_head_fits(body, h->total) && !(body->flags & PACKET_RETRY) &&
	       (body->type == PACKET_REQUEST || body->type == PACKET_REPLY ||
		(body->type == PACKET_ONEWAY && !(body->flags & PACKET_TYPED)));
}

bool rendezvous_on_announce(struct shard *s, struct rendezvous_peer *p, const struct packet_rendezvous *h,
			    const struct nic_pkt *pkt)
{
	struct packet_announced a = {.parts_n = 0};
	if (!announcement_fits(p, h, pkt, &a))
		return false;
	const union packet_head body = a.head;
	struct rendezvous_lane *l = &p->in[h->lane];
	*l = (struct rendezvous_lane){.open = true,
				      .epoch = h->epoch,
				      .head = body,
				      .total = h->total,
				      .arrived = clock_now(s->config.clock)};
	rendezvous_offered(s, p->session, l, h, &a);
	p->packets_received++;
	if (body.type == PACKET_ONEWAY)
		oneway_received(s, p);
	if (body.type == PACKET_REPLY && !call_await_rendezvous(s, p->session, &body.reply)) {
		rendezvous_send_control(s, p, h->lane, PACKET_REFUSE, 0);
		return true;
	}
	if (!refused_early(s, p, h->lane))
		lane_admit(s, p, h->lane);
	report_packets(s, p);
	return true;
}

bool rendezvous_on_abort(struct shard *s, struct rendezvous_peer *p, const struct packet_lane *h)
{
	struct rendezvous_lane *l = h->lane < FAR_RENDEZVOUS_LANES ? &p->in[h->lane] : NULL;
	if (!l || !(l->open || l->pulled) || l->epoch != h->epoch)
		return false;
	p->packets_received++;
	report_packets(s, p);
	if (l->pulled) { /* it crossed the end */
		l->pulled = false;
		return true;
	}
	if (l->referred && !l->granted && !l->refused) /* its sender holds the parts until we have read them */
		rendezvous_send_control(s, p, h->lane, PACKET_REFUSE, 0);
	l->open = false;
	if (!l->in && !l->waiting)
		return true;
	if (l->head.type == PACKET_REPLY) {
		lane_refuse(s, p, h->lane, FAR_REMOTE, "the callee gave the answer up while it was being sent");
		return true;
	}
	if (l->head.type == PACKET_ONEWAY)
		counter_add(&s->counters.oneways_dropped, 1);
	else
		answer_cancelled(s, p->session, FAR_EXECUTED_NO, l->head.call.slot, l->head.call.generation);
	l->waiting = false;
	if (l->in)
		in_drop(s, l->in);
	return true;
}

/* ---- complete messages ---- */

/* Copies a scattered request to one piece: its session holds requests back, or shows them, since it was announced.
 * false: it was refused. */
static bool in_gather(struct shard *s, struct session *se, struct rendezvous_in *whole)
{
	const struct values_scattered *from = values_scattered_of(whole->at);
	struct far_buf *buf = queues_buf(s, whole->total);
	if (!buf) {
		char text[FAR_ERR_TEXT_MAX];
		size_t len = answer_no_memory(text, whole->total);
		answer_error(s, se, whole->head.call.slot, whole->head.call.generation,
			     &(struct answer_failure){FAR_RESOURCE, FAR_EXECUTED_NO, 0, text, len});
		return false;
	}
	uint8_t *at = buf_data(buf);
	for (unsigned i = 0; i < from->n; at += from->part[i++].len)
		memcpy(at, from->part[i].at, from->part[i].len);
	buf_unref(whole->buf);
	whole->buf = buf;
	whole->at = buf_data(buf);
	whole->scattered = false;
	return true;
}

static void run(struct shard *s, struct rendezvous_in *in)
{
	static const char late[] = "the deadline passed before the handler was started";
	struct rendezvous_in whole = *in;
	struct session *se = in->peer->session;
	uint64_t left = whole.head.request.time_left, waited = clock_now(s->config.clock) - whole.arrived;
	in_free(s, in);
	if (left != UINT64_MAX && waited >= left) {
		if (whole.head.type == PACKET_REQUEST)
			answer_error(s, se, whole.head.call.slot, whole.head.call.generation,
				     &(struct answer_failure){FAR_TIMEOUT, FAR_EXECUTED_NO, 0, late, sizeof late - 1});
		else
			counter_add(&s->counters.oneways_dropped, 1);
		abandon_memory(s, &whole);
		return;
	}
	if (whole.scattered && se->backpressured && !in_gather(s, se, &whole)) {
		abandon_memory(s, &whole);
		return;
	}
	struct private_body body = {.at = whole.at, .buf = whole.buf, .scattered = whole.scattered}, *outer = s->body;
	s->body = &body;
	if (whole.scattered)
		whole.head.flags |= PACKET_HASHED; /* no fast path: run_typed_slow() looks at the body */
	dispatch_checked(s, se, &whole.head, whole.at, whole.total, waited);
	s->body = outer;
	if (body.refused)
		abandon_memory(s, &whole);
	else
		buf_unref(whole.buf);
}

void rendezvous_complete(struct shard *s, struct rendezvous_in *in)
{
	struct rendezvous_peer *p = in->peer;
	counter_add(&s->counters.rendezvous_received, 1);
	if (in->head.type == PACKET_REPLY) {
		struct rendezvous_in whole = *in;
		struct completion o = {.status = FAR_OK,
				       .executed = FAR_EXECUTED_YES,
				       .origin = (int16_t)p->session->worker,
				       .data = whole.at,
				       .len = whole.total - whole.head.call.tlv_bytes,
				       .buf = whole.buf};
		in_free(s, in);
		s->answer_fields = whole.head.call.tlv_bytes ? whole.at + o.len : NULL;
		s->answer_fields_bytes = whole.head.call.tlv_bytes;
		call_complete_rendezvous(s, p->session, &whole.head.reply, &o);
		s->answer_fields = NULL;
		buf_unref(whole.buf);
		return;
	}
	if (in->head.type == PACKET_REQUEST &&
	    p->session->backpressured & SESSION_BACKPRESSURED) { /* as small ones are paused */
		in->ready = true;
		in->next = NULL;
		*p->ready_tail = in;
		p->ready_tail = &in->next;
		rendezvous_list(s, p);
		return;
	}
	run(s, in);
}

/* ---- fragments ---- */

/* A fragment that was placed on arrival is there. */
static void in_copy(struct rendezvous_in *in, const struct rendezvous_held *f)
{
	if (f->body == in->at + f->offset)
		in->given_n -= f->len;
	else
		memcpy(in->at + f->offset, f->body, f->len);
	in->copied += f->len;
}

/* false: the sender has another fragment on its way into memory that is complete. */
static bool put(struct shard *s, struct rendezvous_peer *p, const struct rendezvous_held *f)
{
	const struct session *se = p->session;
	struct rendezvous_in *in = f->in;
	if (in)
		in_copy(in, f);
	if (f->cookie)
		se->q->ops->release(se->q, se->peer, f->cookie);
	p->packets_received++;
	if (!in)
		return true;
	if (in->copied == in->total && in->given_n)
		return false;
	if (in->copied == in->total) {
		if (p->in[f->lane].in == in)
			p->in[f->lane].in = NULL;
		rendezvous_complete(s, in);
	}
	return true;
}

/* Engine memory alone, which the driver holds a reference of while it writes. Each byte is given a destination once,
 * and all fragments with one are received before the message is complete: so nothing writes to a delivered message. */
bool rendezvous_place(struct rendezvous_peer *p, const struct packet_data *h, uint64_t len, struct nic_placement *out)
{
	const struct rendezvous_lane *l = h->lane < FAR_RENDEZVOUS_LANES ? &p->in[h->lane] : NULL;
	uint64_t offset = h->offset;
	if (!l || !l->granted || !l->open || l->epoch != h->epoch || !l->in || !l->in->buf || offset < l->accepted ||
	    offset > l->total || len > l->total - offset || offset < l->in->given)
		return false;
	buf_ref(l->in->buf);
	*out = (struct nic_placement){l->in->at + offset, l->in->buf};
	l->in->given = offset + len;
	l->in->given_n += len;
	return true;
}

bool rendezvous_on_data(struct shard *s, struct rendezvous_peer *p, const struct packet_data *h,
			const struct nic_pkt *pkt, bool *held)
{
	struct rendezvous_lane *l = h->lane < FAR_RENDEZVOUS_LANES ? &p->in[h->lane] : NULL;
	if (!l || !l->granted || !l->open || l->epoch != h->epoch || h->offset != l->accepted || pkt->body_len == 0 ||
	    pkt->body_len > l->total - l->accepted || p->held_n == FAR_RENDEZVOUS_PACKETS)
		return false;
	struct rendezvous_held f = {l->in, h->lane, l->accepted, pkt->body_len, pkt->cookie, pkt->body};
	l->accepted += pkt->body_len;
	if (l->accepted == l->total)
		l->open = false;
	*held = pkt->cookie != 0 && f.in;
	if (*held) {
		p->held[(p->held_first + p->held_n++) % FAR_RENDEZVOUS_PACKETS] = f;
		rendezvous_list(s, p);
		return true;
	}
	f.cookie = 0; /* the receiving pass releases it */
	if (!put(s, p, &f))
		return false;
	report_packets(s, p);
	return true;
}

bool rendezvous_copy_one(struct shard *s, struct rendezvous_peer *p)
{
	if (!p->held_n)
		return false;
	struct rendezvous_held f = p->held[p->held_first];
	p->held_first = (p->held_first + 1) % FAR_RENDEZVOUS_PACKETS;
	p->held_n--;
	if (!put(s, p, &f)) {
		counter_add(&s->counters.packets_dropped, 1);
		session_protocol_error(s, p->session);
	}
	report_packets(s, p);
	return true;
}

void rendezvous_finish_oneways(struct shard *s, struct rendezvous_peer *p)
{
	for (unsigned n = p->held_n; n && p->oneways_n; n--)
		rendezvous_copy_one(s, p);
}

unsigned rendezvous_admit(struct shard *s, struct rendezvous_peer *p)
{
	unsigned n = 0;
	for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++)
		if (p->in[lane].waiting && (rendezvous_of(s)->free || lane_expired(s, &p->in[lane]))) {
			if (rendezvous_of(s)->free) {
				lane_admit(s, p, lane);
			} else {
				p->in[lane].waiting = false;
				lane_refuse(s, p, lane, FAR_TIMEOUT,
					    "the deadline passed before the message was received");
			}
			n++;
		}
	while (p->ready && !(p->session->backpressured & SESSION_BACKPRESSURED)) {
		struct rendezvous_in *in = p->ready;
		p->ready = in->next;
		if (!p->ready)
			p->ready_tail = &p->ready;
		in->ready = false;
		run(s, in);
		n++;
	}
	return n;
}

/* ---- not wanted any more ---- */

bool rendezvous_in_cancel(struct shard *s, struct rendezvous_peer *p, uint32_t slot, uint32_t gen)
{
	for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++) {
		struct rendezvous_lane *l = &p->in[lane];
		if (l->waiting && l->head.type == PACKET_REQUEST && l->head.call.slot == slot &&
		    l->head.call.generation == gen) {
			l->waiting = false; /* its sender aborts it */
			return true;
		}
	}
	for (unsigned i = 0; i < FAR_RENDEZVOUS_IN_MAX; i++) {
		struct rendezvous_in *in = &rendezvous_of(s)->ins[i];
		if (in->peer == p && in->head.type == PACKET_REQUEST && in->head.call.slot == slot &&
		    in->head.call.generation == gen) {
			in_drop(s, in);
			return true;
		}
	}
	return false;
}

bool rendezvous_in_of_call(struct shard *s, struct rendezvous_peer *p, uint32_t slot, uint32_t gen)
{
	for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++) {
		struct rendezvous_lane *l = &p->in[lane];
		if (l->head.type != PACKET_REPLY || l->head.call.slot != slot || l->head.call.generation != gen ||
		    (!l->waiting && !l->in))
			continue;
		l->waiting = false;
		if (l->in)
			in_drop(s, l->in);
		if (l->open)
			rendezvous_send_control(s, p, lane, PACKET_REFUSE, 0);
		return true;
	}
	for (unsigned i = 0; i < FAR_RENDEZVOUS_IN_MAX; i++) { /* its last fragment is there and not copied yet */
		struct rendezvous_in *in = &rendezvous_of(s)->ins[i];
		if (in->peer == p && in->head.type == PACKET_REPLY && in->head.call.slot == slot &&
		    in->head.call.generation == gen) {
			in_drop(s, in);
			return true;
		}
	}
	return false;
}

static void on_timer(struct shard *s, struct shard_timer *t)
{
	struct rendezvous_in *in = (struct rendezvous_in *)(void *)t;
	struct rendezvous_peer *p = in->peer;
	union packet_head h = in->head;
	for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++)
		if (p->in[lane].in == in && p->in[lane].open)
			rendezvous_send_control(s, p, lane, PACKET_REFUSE, 0);
	in_drop(s, in);
	if (h.type == PACKET_REQUEST)
		answer_cancelled(s, p->session, FAR_EXECUTED_NO, h.call.slot, h.call.generation);
	else
		counter_add(&s->counters.oneways_dropped, 1);
}

void rendezvous_in_close(struct shard *s, struct rendezvous_peer *p)
{
	const struct session *se = p->session;
	for (; p->held_n; p->held_n--) {
		se->q->ops->release(se->q, se->peer, p->held[p->held_first].cookie);
		p->held_first = (p->held_first + 1) % FAR_RENDEZVOUS_PACKETS;
	}
	for (unsigned i = 0; i < FAR_RENDEZVOUS_IN_MAX; i++)
		if (rendezvous_of(s)->ins[i].peer == p) {
			counter_add(&s->counters.oneways_dropped, rendezvous_of(s)->ins[i].head.type == PACKET_ONEWAY);
			in_drop(s, &rendezvous_of(s)->ins[i]);
		}
	for (unsigned lane = 0; lane < FAR_RENDEZVOUS_LANES; lane++)
		p->in[lane] = (struct rendezvous_lane){0};
	rendezvous_views_close(p);
}

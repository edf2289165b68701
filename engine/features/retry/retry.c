/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Retries calls until they are answered, and runs each once. Shard thread.
 *
 * The caller numbers such calls per session (`seq`) and keeps a copy of each; a request carries its number and the
 * lowest number that has not ended (`floor`), never FAR_RETRY_WINDOW or more apart. The callee keeps an entry for each
 * number from the floor on: RUNNING, or ANSWERED with the answer itself. A number with an entry is not run again: a
 * repeat gets no answer while it runs, and the same answer afterwards. Calls below the floor have ended at the caller:
 * their entries are gone, and a late repeat is dropped. So the window bounds the memory of both sides, and
 * FAR_RETRY_BYTES the kept answers: an answer beyond that is sent once, and a repeat gets RESOURCE, executed YES.
 *
 * Repeats come on top of the ring slots that calls are counted by, so they are sent only while the ring has room to
 * spare for all that is counted (tx_room), and later otherwise.
 */
#include "features/features.h"

#include "base/must.h"
#include "base/mutant.h"
#include "core/call.h"
#include "core/deferred.h"
#include "core/dispatch.h"
#include "core/feature.h"
#include "core/packet.h"
#include "core/queues.h"
#include "core/reply.h"
#include "core/request.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"
#include "core/tlv.h"
#include "features/faults/fault.h"

#include <errno.h>
#include <string.h>

/* ---- the caller's side ---- */

/* A call that may be sent again, and its request's bytes. */
struct retry {
	struct shard_timer timer;
	struct far_buf *buf; /* its memory */
	struct session *session;
	uint32_t slot, gen;
	uint64_t seq, wait_ns;
	uint16_t fn;
	uint8_t typed;       /* as call_start.typed */
	struct far_buf *tlv; /* as call_extra.tlv */
	bool ended;
	size_t len;
	alignas(64) uint8_t bytes[];
};

struct retry_caller {
	struct far_buf *buf;
	uint64_t next, floor;
	struct retry *at[FAR_RETRY_WINDOW];
};

static struct retry_caller *caller_of(struct session *se)
{
	if (unlikely(!se->retry_caller)) {
		struct far_buf *buf = buf_alloc(sizeof(struct retry_caller));
		if (!buf)
			return NULL;
		struct retry_caller *w = buf_data(buf);
		memset(w, 0, sizeof *w);
		w->buf = buf;
		w->next = w->floor = 1;
		se->retry_caller = w;
	}
	return se->retry_caller;
}

static void resend(struct shard *s, struct retry *r)
{
	struct session *se = r->session;
	const struct call *c = &s->calls[r->slot];
	struct packet_retry repeat = {.seq = r->seq, .floor = se->retry_caller->floor};
	uint32_t fn = r->fn;
	unsigned flags = PACKET_RETRY;
	size_t trailer = 0;
	const struct tlv_block *fields = r->tlv ? tlv_block_in(r->tlv) : NULL;
	if (r->typed) {
		flags |= r->typed;
		fn = session_functions(s, se)[r->fn] - 1u;
		if (fn == UINT32_MAX) {
			flags |= PACKET_HASHED;
			trailer = sizeof(struct packet_hash);
			fn = 0;
		}
	}
	if (fields) {
		flags |= PACKET_TLV;
		trailer += fields->bytes;
	}
	uint64_t now = clock_now(s->config.clock), left = TIME_NEVER;
	if (c->timer.at != TIME_NEVER) {
		if (c->timer.at <= now) /* it is about to end, and would be refused as not run */
			return;
		left = c->timer.at - now;
	}
	struct nic_tx tx;
	if (se->q->ops->tx_reserve(se->q, se->peer, r->len + trailer + sizeof repeat, &tx))
		return;
	union packet_head *h = packet_at(tx.head);
	packet_begin(h, PACKET_REQUEST, flags, r->slot, r->gen);
	h->request.handler = (uint16_t)fn;
	h->request.time_left = left;
	session_copy(se, tx.body, r->bytes, r->len);
	call_write_trailer(s, h, r->fn, fields, tx.body + r->len);
	memcpy(tx.body + r->len + trailer, &repeat, sizeof repeat);
	tx.order = NIC_ORDER_NONE;
	if (session_commit(s, se, &tx)) {
		se->q->ops->tx_cancel(se->q, &tx);
		return;
	}
	counter_add(&s->counters.calls_retried, 1);
}

static void on_retry(struct shard *s, struct shard_timer *t)
{
	struct retry *r = (struct retry *)(void *)t;
	struct session *se = r->session;
	if (se->state != SESSION_UP)
		return;
	/* A repeat takes none of the slots that are counted: it goes when there are more. */
	if (se->q->ops->tx_room(se->q, se->peer) > SHARD_RING_SLOTS) {
		if (r->ended) /* its last packet may be lost */
			answer_cancel(s, se, r->slot, r->gen, PACKET_RETRY);
		else
			resend(s, r);
	}
	r->wait_ns += r->wait_ns / 2;
	if (r->wait_ns > FAR_RETRY_NS_MAX)
		r->wait_ns = FAR_RETRY_NS_MAX;
	timer_arm(&s->wheel, &r->timer.timer, time_after(clock_now(s->config.clock), r->wait_ns));
}

static int keep(const struct shard *s, struct session *se, const struct call_start *start, void **out,
		struct packet_retry *trailer)
{
	struct retry_caller *w = caller_of(se);
	if (unlikely(!w))
		return -ENOMEM;
	if (unlikely(w->next - w->floor >= s->config.limits.retry_window))
		return -EAGAIN;
	struct far_buf *buf = buf_alloc(sizeof(struct retry) + start->len);
	if (unlikely(!buf))
		return -ENOMEM;
	struct retry *r = buf_data(buf);
	memset(r, 0, sizeof *r);
	r->buf = buf;
	r->session = se;
	r->seq = w->next;
	r->fn = start->fn;
	r->typed = start->typed;
	r->wait_ns = start->retry_ns;
	if (start->extra && (r->tlv = start->extra->tlv))
		buf_ref(r->tlv);
	r->len = start->len;
	if (start->write)
		start->write(start->data, r->bytes, start->len, NULL);
	else
		copy_body(r->bytes, start->data, start->len);
	*trailer = (struct packet_retry){.seq = r->seq, .floor = w->floor};
	*out = r;
	return 0;
}

static void abandon(void *copy)
{
	struct retry *r = copy;
	if (!r)
		return;
	buf_unref(r->tlv);
	buf_unref(r->buf);
}

static void sent(struct shard *s, void *copy, struct call *c)
{
	struct retry *r = copy;
	struct retry_caller *w = r->session->retry_caller;
	uint32_t copy_slot = (uint32_t)(r->seq % FAR_RETRY_WINDOW);
	w->at[copy_slot] = r;
	w->next++;
	c->retry = 1;
	c->features |= FEATURE_BIT(FEATURE_RETRY);
	s->call_copies[c->slot] = copy_slot;
	r->slot = c->slot;
	r->gen = c->gen;
	r->timer.fn = on_retry;
	timer_arm(&s->wheel, &r->timer.timer, time_after(clock_now(s->config.clock), r->wait_ns));
}

/* It waits for nothing but the peer's last packet, which a repeated cancel requests. */
static void ended(struct shard *s, struct call *c)
{
	if (c->retry)
		s->sessions[c->session].retry_caller->at[s->call_copies[c->slot]]->ended = true;
}

static void over(struct shard *s, struct call *c)
{
	struct retry_caller *w = s->sessions[c->session].retry_caller;
	uint32_t index = s->call_copies[c->slot];
	struct retry *r = w->at[index];
	timer_disarm(&s->wheel, &r->timer.timer);
	abandon(r);
	w->at[index] = NULL;
	while (w->floor < w->next && !w->at[w->floor % FAR_RETRY_WINDOW])
		w->floor++;
}

/* ---- the callee's side ---- */

enum entry_state {
	ENTRY_NONE,
	ENTRY_RUNNING,
	ENTRY_ANSWERED,
	ENTRY_CANCELLED, /* its caller no longer waits */
	ENTRY_LOST       /* answered, and the answer is not kept */
};

struct retry_entry {
	uint64_t seq;
	uint32_t call, gen;
	uint8_t state; /* enum entry_state */
	uint8_t status, executed;
	bool hashed, rrefs;
	int32_t code;
	const struct function *fn;
	struct far_buf *buf, *tlv; /* tlv: as request_extra.tlv */
	size_t len;
};

struct retry_callee {
	struct far_buf *buf;
	uint64_t floor;
	size_t kept_bytes;
	struct retry_entry at[FAR_RETRY_WINDOW];
};

static struct retry_callee *callee_of(struct session *se)
{
	if (unlikely(!se->retry_callee)) {
		struct far_buf *buf = buf_alloc(sizeof(struct retry_callee));
		if (!buf)
			return NULL;
		struct retry_callee *w = buf_data(buf);
		memset(w, 0, sizeof *w);
		w->buf = buf;
		w->floor = 1;
		se->retry_callee = w;
	}
	return se->retry_callee;
}

static void entry_clear(struct retry_callee *w, struct retry_entry *e)
{
	if (e->buf)
		w->kept_bytes -= e->len;
	buf_unref(e->buf);
	buf_unref(e->tlv);
	e->buf = e->tlv = NULL;
	e->state = ENTRY_NONE;
}

/* Nothing below the floor will be repeated. A running one keeps running; its answer finds no entry. */
static void floor_raise(struct retry_callee *w, uint64_t floor)
{
	uint64_t to = floor - w->floor > FAR_RETRY_WINDOW ? w->floor + FAR_RETRY_WINDOW : floor;
	for (uint64_t seq = w->floor; seq < to; seq++)
		entry_clear(w, &w->at[seq % FAR_RETRY_WINDOW]);
	w->floor = floor;
}

/* Sends the same answer once more. Without room now, the next repeat does. */
static void answer_again(struct shard *s, struct session *se, const struct retry_entry *e)
{
	static const char lost[] = "the call ran, but its answer is not kept any more";
	if (e->state == ENTRY_RUNNING || se->q->ops->tx_room(se->q, se->peer) <= SHARD_RING_SLOTS ||
	    se->backpressured & SESSION_BACKPRESSURED)
		return;
	if (e->state == ENTRY_CANCELLED) {
		answer_cancelled(s, se, FAR_EXECUTED_MAYBE, e->call, e->gen);
		return;
	}
	if (e->state == ENTRY_LOST) {
		answer_error(s, se, e->call, e->gen,
			     &(struct answer_failure){FAR_RESOURCE, FAR_EXECUTED_YES, 0, lost, sizeof lost - 1});
		return;
	}
	struct request_extra extra = {e->tlv};
	struct far_deferred d = {.extra = e->tlv ? &extra : NULL,
				 .call = e->call,
				 .gen = e->gen,
				 .fn = e->fn,
				 .hashed = e->hashed,
				 .rrefs = e->rrefs,
				 .status = e->status,
				 .executed = e->executed,
				 .code = e->code,
				 .buf = e->buf,
				 .len = e->len};
	answer_send_record(s, se, &d, PACKET_RETRY);
}

__attribute__((cold)) static bool malformed(struct far_req *req)
{
	static const char text[] = "malformed request: its number among those that may be repeated";
	counter_add(&req->shard->counters.packets_dropped, 1);
	dispatch_error(req, FAR_PROTOCOL, FAR_EXECUTED_NO, 0, text, sizeof text - 1);
	return false;
}

static bool admit(struct far_req *req, const uint8_t *body, uint64_t *len)
{
	struct shard *s = req->shard;
	struct session *se = req->session;
	struct packet_retry h;
	if (unlikely(fault_shard(s)->admits))
		return fault_admit(req);
	if (unlikely(*len < sizeof h))
		return malformed(req);
	*len -= sizeof h;
	memcpy(&h, body + *len, sizeof h);
	if (unlikely(h.floor == 0 || h.seq < h.floor || h.seq - h.floor >= FAR_RETRY_WINDOW))
		return malformed(req);
	/* Without memory the request gets no answer: after NOT EXECUTED a repeat that is under way must not run. It is
	 * sent again. */
	struct retry_callee *w = callee_of(se);
	if (unlikely(!w))
		return false;
	if (h.floor > w->floor)
		floor_raise(w, h.floor);
	if (unlikely(h.seq >= w->floor && h.seq - w->floor >= FAR_RETRY_WINDOW)) /* it spoke of a lower floor before */
		return malformed(req);
	struct retry_entry *e = &w->at[h.seq % FAR_RETRY_WINDOW];
	if ((h.seq < w->floor || e->state != ENTRY_NONE) && !MUTANT(RETRY_RUN_AGAIN)) {
		counter_add(&s->counters.requests_duplicate, 1);
		if (h.seq >= w->floor && e->call == req->call && e->gen == req->gen)
			answer_again(s, se, e);
		return false;
	}
	struct far_deferred *d = deferred_alloc(s, se, req->call, req->gen, NULL, false);
	if (unlikely(!d))
		return false;
	*e = (struct retry_entry){.seq = h.seq, .call = req->call, .gen = req->gen, .state = ENTRY_RUNNING};
	d->owned = true;
	d->retry_seq = h.seq;
	d->features |= FEATURE_BIT(FEATURE_RETRY);
	deferred_record(req, d);
	return true;
}

static bool seen(const struct session *se, const uint8_t *body, uint64_t len)
{
	const struct retry_callee *w = se->retry_callee;
	struct packet_retry h;
	if (!w || len < sizeof h)
		return false;
	memcpy(&h, body + len - sizeof h, sizeof h);
	if (h.floor == 0 || h.seq < h.floor)
		return false; /* to be refused as malformed */
	const struct retry_entry *e = &w->at[h.seq % FAR_RETRY_WINDOW];
	return h.seq < w->floor || (e->state != ENTRY_NONE && e->seq == h.seq);
}

static void answered(struct shard *s, struct far_deferred *d)
{
	if (!d->retry_seq)
		return;
	struct retry_callee *w = s->sessions[d->session].retry_callee;
	struct retry_entry *e = w ? &w->at[d->retry_seq % FAR_RETRY_WINDOW] : NULL;
	if (!e || e->seq != d->retry_seq || e->state != ENTRY_RUNNING)
		return;
	if (d->gone) {
		e->state = ENTRY_CANCELLED;
		return;
	}
	e->status = d->status;
	e->executed = d->executed;
	e->code = d->code;
	e->fn = d->fn;
	e->hashed = d->hashed;
	e->rrefs = d->rrefs;
	e->len = d->len;
	if (d->len > FAR_RETRY_BYTES - w->kept_bytes) {
		e->state = ENTRY_LOST;
		return;
	}
	e->state = ENTRY_ANSWERED;
	if (d->extra && (e->tlv = d->extra->tlv))
		buf_ref(e->tlv);
	if (d->buf) {
		e->buf = d->buf;
		buf_ref(e->buf);
		w->kept_bytes += e->len;
	}
}

static void gone(struct shard *s, struct far_deferred *d)
{
	answered(s, d);
	d->retry_seq = 0; /* a number of this session: the next one begins anew */
	d->features &= (uint8_t)~FEATURE_BIT(FEATURE_RETRY);
}

/* Its calls have been given back. */
static void session_down(struct shard *s, struct session *se)
{
	(void)s;
	struct retry_callee *w = se->retry_callee;
	if (w) {
		for (uint32_t i = 0; i < FAR_RETRY_WINDOW; i++)
			entry_clear(w, &w->at[i]);
		buf_unref(w->buf);
		se->retry_callee = NULL;
	}
	if (se->retry_caller) {
		buf_unref(se->retry_caller->buf);
		se->retry_caller = NULL;
	}
}

const struct shard_feature retry_feature = {
	.name = "retry",
	.session_down = session_down,
	.call_ended = ended,
	.call_over = over,
	.record_gone = gone,
	.record_over = answered,
	.only = {.call_keep = keep,
		 .call_abandon = abandon,
		 .call_sent = sent,
		 .request_admit = admit,
		 .request_seen = seen},
};

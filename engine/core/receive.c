/* SPDX-License-Identifier: BSD-3-Clause */
/** Receives packets: small plain ones from lanes by the fast path, all others by the general code. Shard thread. */
#include "core/receive.h"

#include "base/must.h"
#include "core/call.h"
#include "core/context.h"
#include "core/deferred.h"
#include "core/dispatch.h"
#include "core/fast.h"
#include "core/feature.h"
#include "core/loop.h"
#include "core/packet.h"
#include "core/plan.h"
#include "core/queues.h"
#include "core/reply.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/tlv.h"
#include "sync/future.h"
#include "value/registry.h"

#include <farcall/message.h>
#include <string.h>

/* Bytes of a message after which the answers of the burst so far are sent. */
#define ANSWER_AT_ONCE 16384u

/* A packet with fields of type, length and value. true: it is done with: malformed, or an answer. */
static __attribute__((noinline, cold)) bool receive_fields(struct shard *s, struct session *se,
							   const union packet_head *h, const struct nic_pkt *pkt)
{
	static const char text[] = "the request has malformed fields: its tlv_bytes and its flag TLV do not fit";
	bool answers = h->type == PACKET_REPLY || h->type == PACKET_ERROR;
	if (!tlv_head_fits(h, pkt->body_len)) {
		counter_add(&s->counters.packets_dropped, 1);
		if (h->type == PACKET_REQUEST)
			answer_error(s, se, h->call.slot, h->call.generation,
				     &(struct answer_failure){FAR_PROTOCOL, FAR_EXECUTED_NO, 0, text, sizeof text - 1});
		return true;
	}
	if (!answers)
		return false;
	session_count_received(s, se, pkt->body_len);
	uint64_t len = pkt->body_len - h->call.tlv_bytes;
	s->answer_fields = (const uint8_t *)pkt->body + len;
	s->answer_fields_bytes = h->call.tlv_bytes;
	call_on_answer(s, se, h, pkt->body, len);
	s->answer_fields = NULL;
	return true;
}

static __attribute__((always_inline)) inline void receive_one(struct shard *s, const struct shard_queue *sq,
							      const struct nic_pkt *pkt)
{
	union packet_head h;
	uint32_t session = sq->peer_session[pkt->peer];
	struct session *se = session ? &s->sessions[session - 1] : NULL;

	if (unlikely(!pkt->head)) {
		counter_add(&s->counters.packets_dropped, 1);
		if (se)
			session_protocol_error(s, se);
		return;
	}
	memcpy(&h, pkt->head, sizeof h);
	if (unlikely(!se || se->state != SESSION_UP)) {
		counter_add(&s->counters.packets_dropped, 1);
		goto release;
	}
	if (unlikely(h.call.tlv_bytes || h.flags & PACKET_TLV) && receive_fields(s, se, &h, pkt))
		goto release;
	session_count_received(s, se, pkt->body_len);
	switch (h.type) {
	case PACKET_REQUEST:
		if (unlikely(se->backpressured))
			answer_pause_request(s, se, &h, pkt);
		else
			dispatch(s, se, &h, pkt->body, pkt->body_len, 0);
		break;
	case PACKET_REPLY:
	case PACKET_ERROR:
	case PACKET_CANCELLED:
		call_on_answer(s, se, &h, pkt->body, pkt->body_len);
		break;
	case PACKET_CANCEL:
		/* A call that may be sent again is answered in any case: its answer may have been lost. */
		if (deferred_cancel(s, se, h.call.slot, h.call.generation) ||
		    (h.flags & PACKET_RETRY && se->q->ops->tx_room(se->q, se->peer) > SHARD_RING_SLOTS))
			answer_cancelled(s, se, FAR_EXECUTED_MAYBE, h.call.slot, h.call.generation);
		break;
	default:
		if (s->hooks.packet(s, se, &h, pkt))
			return;
	}
release:
	if (pkt->cookie) {
		sq->ops->release(sq->q, pkt->peer, pkt->cookie);
		/* The answer to a rendezvous message does not wait for those behind it. */
		if (pkt->body_len >= ANSWER_AT_ONCE)
			sq->ops->flush(sq->q);
	}
}

/* ---- lanes ---- */

/* With at most so many lanes, a pass checks each before it begins to receive. */
#define QUIET_LANES_MAX 4u

/* What the counters get at the end of a burst of one session. */
struct burst {
	struct session *session; /* NULL: none yet, all others are 0 */
	uint32_t lines;          /* received by the fast path: requests and replies */
	uint32_t completed;      /* calls, by these replies */
	uint32_t bytes;          /* of the bodies */
};

static inline void burst_end(struct shard *s, const struct burst *b)
{
	struct session *se = b->session;
	uint64_t requests = b->lines - b->completed;
	if (unlikely(!se))
		return;
	/* By turns with atomics: side by side they become vectors, three times as many instructions. */
	session_count(&se->counters.requests, requests);
	counter_add(&s->counters.requests_received, requests);
	session_count(&se->counters.bytes_received, b->bytes);
	counter_add(&s->counters.bytes_received, b->bytes);
	session_count(&se->counters.calls_ended, b->completed);
	counter_add(&s->counters.calls_completed, b->completed);
	counter_add(&s->counters.calls_ended, b->completed);
	counter_add_last(&s->counters.calls_returned, b->completed); /* pairs with outstanding() */
}

__attribute__((noinline)) static void burst_next(struct shard *s, struct burst *b, struct session *se)
{
	burst_end(s, b);
	*b = (struct burst){se, 0, 0, 0};
}

static inline void burst_of(struct shard *s, struct burst *b, struct session *se)
{
	if (b->session == se)
		return;
	if (likely(!b->session))
		b->session = se;
	else
		burst_next(s, b, se);
}

/* Ends the measurement of the call that the line at rx_next answers, a plain reply. false: it is no such line. */
__attribute__((noinline, cold)) static bool sample_ends(struct shard *s, const struct nic_lane *l, uint32_t word)
{
	const struct nic_line *line = l->rx_next;
	uint32_t len = word & (LANE_LEN_MASK | LANE_BULK);
	uint64_t id = fast_id(line);
	struct call *c = &s->calls[(uint32_t)id];
	if (len > FAR_LINE_PAYLOAD || !l->user || fast_word(line) != FAST_WORD(PACKET_REPLY, 0, 0) ||
	    (uint32_t)id >= s->calls_used || c->id != id || !c->sampled)
		return false;
	call_sample_end(s, c);
	return true;
}

/* The general code receives the line at rx_next. */
__attribute__((noinline)) static void receive_line(struct shard *s, const struct shard_queue *sq, struct nic_lane *l,
						   uint32_t word)
{
	struct nic_line *line = l->rx_next;
	const struct session *se = l->user;
	uint32_t len = word & (LANE_LEN_MASK | LANE_BULK);
	struct nic_pkt pkt;
	if (likely(len <= FAR_LINE_PAYLOAD && se)) {
		lane_take(l);
		pkt.head = line->bytes;
		pkt.body = len ? fast_body(line) : NULL;
		pkt.body_len = len;
		pkt.cookie = 0;
		pkt.peer = se->peer;
	} else if (!sq->ops->recv_lane(sq->q, l, &pkt, 1)) {
		return;
	} else {
		l->taken--; /* receive_lane() counts it */
	}
	receive_one(s, sq, &pkt);
}

/* Frees the slot of a call that was answered. */
static inline void fast_end(struct shard *s, struct session *se, struct call *c)
{
	c->what &= CALL_KEPT; /* CALL_FREE */
	/* gen++, but as the whole word that fast_send() loads: a wider load waits until a store has left the core. */
	c->id += UINT64_C(1) << 32;
	c->next = s->calls_free;
	s->calls_free = c;
	se->calls_active--;
}

/* A reply of a call that far_msg_send() or an asynchronous typed call began. false: the general code receives it. */
static inline __attribute__((always_inline)) bool receive_reply(struct shard *s, struct session *se, struct nic_lane *l,
								uint64_t id, const uint8_t *body, uint32_t len)
{
	uint32_t slot = (uint32_t)id;
	struct call *c = &s->calls[slot];
	if (unlikely(slot >= s->calls_used || c->id != id || c->timer.at_prev || c->session != se->index))
		return false;
	uint32_t what = c->what & ~(CALL_KEPT | UINT16_MAX);
	if (what == CALL_WHAT(0, CALL_SENT, CALL_PLAIN)) {
		far_msg_done_fn *done = (far_msg_done_fn *)c->app;
		void *user = c->user;
		lane_take(l);
		fast_end(s, se, c);
		s->context.handler = "a completion callback";
		done(FAR_OK, len ? body : NULL, len, NULL, user);
		s->context.handler = NULL; /* a pass is never inside of one */
		return true;
	}
	if (likely(what == CALL_WHAT(0, CALL_SENT, CALL_FUTURE | CALL_TYPED))) {
		struct far_future *f = c->user;
		memcpy(f->bytes, body, FAR_LINE_PAYLOAD);
		lane_take(l);
		fast_end(s, se, c);
		future_complete_line(f, len);
		return true;
	}
	if ((what & ~(CALL_TYPED << 24)) == CALL_WHAT(0, CALL_SENT, CALL_LINE)) {
		call_line_fn *take = (call_line_fn *)c->app;
		void *user = c->user;
		uint8_t line[FAR_LINE_PAYLOAD];
		memcpy(line, body, sizeof line);
		lane_take(l);
		fast_end(s, se, c);
		take(user, line, len);
		return true;
	}
	return false;
}

/* All that both kinds have, but the shard. */
static inline void begin_request(struct far_req *req, struct session *se, uint64_t id, uint64_t left)
{
	req->session = se;
	req->record = NULL;
	memcpy(&req->call, &id, sizeof id);
	memcpy(&req->from, &se->worker, 8); /* and the shard */
	req->time_left = left;
	req->deadline = 0;
	req->plain = 0;
}

/* A request of an inline message handler. */
static inline __attribute__((always_inline)) bool receive_message(struct shard *s, struct session *se,
								  struct nic_lane *l, struct nic_line *line,
								  uint32_t word, uint32_t len)
{
	const uint8_t *body = fast_body(line);
	uint64_t id = fast_id(line), left = fast_time(line);
	const struct message_handler *m = registry_message(s->registry, word >> 16);
	struct far_req req;
	if (unlikely(!m || m->kind != FAR_KIND_INLINE || left == 0))
		return false;
	lane_take(l);
	req.shard = s;
	begin_request(&req, se, id, left);
	req.fn = NULL;
	req.name = m->name;
	s->context.handler = m->name;
	m->fn(&req, len ? body : NULL, len, m->user);
	s->context.handler = NULL; /* a pass is never inside of one */
	if (unlikely(req.answer != ANSWER_SENT))
		dispatch_settle(&req, FAR_OK);
	return true;
}

/* Learns how requests of a function come. false: not as receive_typed() takes them. */
__attribute__((noinline)) static bool learn_plan(const struct shard *s, struct line_plan *plan, uint32_t word,
						 uint64_t desc0, uint64_t desc1, uint32_t len)
{
	const uint64_t desc[2] = {desc0, desc1};
	bool method = word & FAST_WORD(0, PACKET_METHOD | PACKET_NAMED, 0);
	uint32_t flags = PACKET_TYPED | (method ? PACKET_METHOD | PACKET_NAMED : 0),
		 tail = method ? sizeof(uint32_t) : 0;
	if ((word & UINT16_MAX) != FAST_WORD(PACKET_REQUEST, flags, 0))
		return false;
	const struct function *fn = registry_at(s->registry, word >> 16);
	if (!fn || (method ? !fn->method || fn->makes || fn->run_kind != FAR_KIND_INLINE : fn->kind != FAR_KIND_INLINE))
		return false;
	line_learn_payload(&plan->form, desc, len - tail, plan->args); /* below 0 it is no form's length */
	plan_check(&plan->form, &fn->signature);
	plan->fn = fn;
	plan->tail = tail;
	plan->word = 0;
	if (!plan->form.n)
		return false;
	plan->form.len = (uint8_t)(plan->form.len + tail);
	plan->word = word;
	return true;
}

/* A request of an inline typed handler or method whose arguments have a form of line.h. Not inline: the other kinds
 * need few registers. */
__attribute__((noinline)) static bool receive_typed(struct shard *s, struct nic_lane *l, struct nic_line *line,
						    uint32_t word, uint32_t len)
{
	struct session *se = l->user;
	uint8_t *body = fast_body(line);
	uint64_t id = fast_id(line), left = fast_time(line);
	struct line_plan *plan = &s->plans[(word >> 16) % SHARD_PLANS];
	struct far_req req;
	req.shard = s; /* not beside the session: together they become a vector */
	/* Each read once: a peer may write them. */
	uint64_t desc0 = *(fast_word64 *)(const void *)body, desc1 = *(fast_word64 *)(const void *)(body + 8);
	if (unlikely(left == 0 || ((!FACTOR(PLANS) || plan->word != word || !line_is(&plan->form, desc0, desc1, len)) &&
				   !learn_plan(s, plan, word, desc0, desc1, len))))
		return false;
	const struct function *fn = plan->fn;
	if (plan->tail) {
		uint32_t object;
		memcpy(&object, body + len - sizeof object, sizeof object);
		if (unlikely(!s->hooks.object_find(s, se, fn, object)))
			return false;
	}
	unsigned n = plan->form.n, i = 0;
	do /* a plan has one at least */
		plan->args[i].u.t.data = body + plan->form.arg[i].at;
	while (++i < n);
	lane_take(l);
	begin_request(&req, se, id, left);
	req.fn = fn;
	req.name = fn->signature.name;
	s->context.handler = req.name;
	enum far_status status = fn->fn(&req, plan->args, n, fn->user);
	s->context.handler = NULL; /* a pass is never inside of one */
	if (likely(req.answer == ANSWER_SCRATCH && fast_may_reply_to(se)))
		fast_reply_to(s, se, id, req.scratch, req.len);
	else
		dispatch_settle(&req, status);
	return true;
}

/* Receives `line`, the one at rx_next. false: the general code does. Fields are read once: a peer may write them. */
static inline __attribute__((always_inline)) bool receive_fast(struct shard *s, struct nic_lane *l,
							       struct nic_line *line, uint32_t word, struct burst *b)
{
	struct session *se = l->user;
	uint32_t len = word & (LANE_LEN_MASK | LANE_BULK), what = fast_word(line);
	if (unlikely(len > FAR_LINE_PAYLOAD || !fast_plain(line) || !se))
		return false;
	if (what == FAST_WORD(PACKET_REPLY, 0, 0)) {
		if (unlikely(!receive_reply(s, se, l, fast_id(line), fast_body(line), len)))
			return false;
		b->completed++;
		b->bytes += len;
		return true;
	}
	if (unlikely(se->backpressured))
		return false;
	if ((what & UINT16_MAX) == FAST_WORD(PACKET_REQUEST, 0, 0)) {
		if (unlikely(!receive_message(s, se, l, line, what, len)))
			return false;
	} else if (unlikely(!receive_typed(s, l, line, what, len))) {
		return false;
	}
	b->bytes += len;
	s->now_pass--; /* the handler may have taken long: the next one's calls read the clock again */
	return true;
}

/* Receives the lines of a lane; the first one has `word`. */
static inline __attribute__((always_inline)) unsigned receive_lane(struct shard *s, const struct shard_queue *sq,
								   struct nic_lane *l, uint32_t word, unsigned max)
{
	struct burst b = {l->user, 0, 0, 0};
	struct nic_line *line = l->rx_next;
	unsigned n = 0, general = 0;
	lane_prefetch_burst(l, word);
	do {
		if (unlikely(!FAR_FAST_PATH || !receive_fast(s, l, line, word, &b))) {
			if (unlikely(s->latency.open_n) && sample_ends(s, l, word))
				continue; /* by the fast path, now that the call is as others */
			receive_line(s, sq, l, word);
			general++;
		}
		if (++n == max)
			break;
		line = l->rx_next;
		word = atomic_load_explicit(&line->word, memory_order_acquire);
	} while (lane_published(l, word));
	b.lines = n - general;
	l->taken += n;
	l->used = true;
	burst_end(s, &b);
	return n;
}

static unsigned receive_lanes(struct shard *s, const struct shard_queue *sq)
{
	struct nic_lanes *lanes = &sq->q->lanes;
	unsigned cold = 0, n = 0;
	/* A burst of its own, so that neither starves the other. */
	if (unlikely(lanes->cold_n)) {
		struct nic_pkt pkts[FAR_BURST];
		cold = sq->ops->recv_cold(sq->q, pkts, FAR_BURST);
		for (unsigned i = 0; i < cold; i++)
			receive_one(s, sq, &pkts[i]);
	}
	/* The start rotates: a busy peer must not take the whole burst each time. */
	uint32_t count = lanes->hot_n, at = lanes->first < count ? lanes->first : 0;
	lanes->first = at + 1;
	for (uint32_t i = 0; i < count && n < FAR_BURST; i++) {
		struct nic_lane *l = lanes->hot[at];
		if (unlikely(l->taken >= LANE_GIVE_BACK)) /* all that were taken are done with */
			lane_give_back(l);
		uint32_t word = lane_word(l);
		if (lane_published(l, word))
			n += receive_lane(s, sq, l, word, FAR_BURST - n);
		if (++at == count)
			at = 0;
	}
	if (n + cold) /* answers do not wait for the rest of the pass */
		shard_flush(s);
	return n + cold;
}

/* ---- packets ---- */

/* The line as which a driver laid a packet out, head and body; NULL: none. An empty packet has no body that says so: of
 * these a reply, whose head alone is read, at a line's place. */
static inline struct nic_line *line_of(const struct nic_pkt *pkt)
{
	struct nic_line *line = (struct nic_line *)((uintptr_t)pkt->head - offsetof(struct nic_line, bytes));
	if (!pkt->head || (pkt->body_len && pkt->body != pkt->head + sizeof(union packet_head)))
		return NULL;
	bool empty_reply =
		(uintptr_t)line % alignof(struct nic_line) == 0 && fast_word(line) == FAST_WORD(PACKET_REPLY, 0, 0);
	return pkt->body_len || empty_reply ? line : NULL;
}

/* A small packet that a driver laid out as a line, head and body, by the fast path. false: the general code receives
 * it.
 */
static inline bool receive_as_line(struct shard *s, const struct shard_queue *sq, const struct nic_pkt *pkt,
				   struct burst *b)
{
	uint32_t session = sq->peer_session[pkt->peer];
	struct nic_line *line = line_of(pkt);
	if (!FAR_FAST_PATH || unlikely(!line || pkt->body_len > FAR_LINE_PAYLOAD || pkt->cookie || !session))
		return false;
	struct session *se = &s->sessions[session - 1];
	burst_of(s, b, se);
	struct nic_lane lane; /* what lane_take() changes, short of the end of a ring */
	lane.rx_next = line;
	lane.user = se;
	lane.rx_left = 2;
	if (unlikely(se->state != SESSION_UP || !receive_fast(s, &lane, line, (uint32_t)pkt->body_len, b)))
		return false;
	b->lines++;
	return true;
}

/* True if another burst is received before the answers leave. A callee takes what the last system call has read, since
 * another one may find nothing. A caller takes half of its answers, so that it works while the callee does, by further
 * system calls where needed: otherwise the requests would travel in ever smaller packets. */
static bool another_burst(const struct shard *s, const struct shard_queue *sq, const struct nic_pkt *last,
			  unsigned taken)
{
	uint32_t session = sq->peer_session[last->peer];
	unsigned calls = session ? s->sessions[session - 1].calls_active : 0;
	return calls == 0 ? !sq->q->drained : taken < calls / 2;
}

unsigned receive_queue(struct shard *s, const struct shard_queue *sq)
{
	shard_own(s);
	struct nic_pkt pkts[FAR_BURST];
	unsigned n, all = 0, left = sq->bursts;
	struct burst b = {NULL, 0, 0, 0};
	do {
		n = sq->ops->recv(sq->q, pkts, FAR_BURST);
		for (unsigned i = 0; i < n; i++)
			if (!receive_as_line(s, sq, &pkts[i], &b))
				receive_one(s, sq, &pkts[i]);
		all += n;
	} while (unlikely(n == FAR_BURST) && --left && another_burst(s, sq, &pkts[n - 1], all));
	burst_end(s, &b);
	return all;
}

/* True if receive_lanes() would find nothing to do; not looked for among many lanes. */
static inline bool lanes_are_quiet(const struct nic_lanes *lanes)
{
	if (lanes->cold_n || lanes->hot_n > QUIET_LANES_MAX)
		return false;
	for (uint32_t i = 0; i < lanes->hot_n; i++)
		if (lanes->hot[i]->taken >= LANE_GIVE_BACK || !lane_empty(lanes->hot[i]))
			return false;
	return true;
}

unsigned receive_first(struct shard *s)
{
	shard_own(s);
	const struct shard_queue *sq = &s->queues[0];
	if (unlikely(!sq->q->lanes.hot))
		return receive_queue(s, sq);
	return FACTOR(QUIET) && lanes_are_quiet(&sq->q->lanes) ? 0 : receive_lanes(s, sq);
}

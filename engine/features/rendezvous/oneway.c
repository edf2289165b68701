/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Sends and receives one-way messages. Shard thread, but for post_new() and post_free() (any thread).
 *
 * No packet answers a one-way message, so these have a window of their own, which the receiver reopens by a CREDIT for
 * every FAR_POSTS_BATCH messages, or on request. A message that finds the window full waits in order in a bounded
 * queue.
 */
#include "features/rendezvous/rendezvous.h"

#include "base/must.h"
#include "base/mutant.h"

#include <errno.h>
#include <string.h>

struct post *post_new(const struct call_start *start, struct large_out *large)
{
	struct far_buf *self = buf_alloc(sizeof(struct post) + (large ? 0 : start->len));
	if (!self)
		return NULL;
	struct post *post = buf_data(self);
	post->next = NULL;
	post->self = self;
	post->large = large;
	post->deadline = start->deadline;
	post->len = start->len;
	post->fn = start->fn;
	if (large)
		large_out_ref(large);
	else if (start->write)
		start->write(start->data, post->bytes, start->len);
	else if (start->len)
		memcpy(post->bytes, start->data, start->len);
	return post;
}

void post_free(struct post *post)
{
	if (post->large)
		large_out_unref(post->large);
	buf_unref(post->self);
}

/* ---- sending ---- */

static bool window_open(const struct large_peer *p)
{
	return p->posts_sent - p->posts_acked < FAR_POSTS_WINDOW + (MUTANT(ONEWAY_WINDOW) ? 1u : 0u);
}

static int send_post(struct shard *s, struct large_peer *p, const struct call_start *start)
{
	const struct session *se = p->session;
	struct nic_tx tx;
	int error = se->q->ops->tx_reserve(se->q, se->peer, start->len, &tx);
	if (error)
		return error == -ENOBUFS ? -EAGAIN : error;
	struct shm_head *h = head_at(tx.head);
	*h = (struct shm_head){.type = HEAD_ONEWAY,
			       .fn = start->fn,
			       .time_low = (uint32_t)start->left,
			       .time_high = (uint32_t)(start->left >> 32)};
	if (start->write)
		start->write(start->data, tx.body, start->len);
	else
		copy_body(tx.body, start->data, start->len);
	tx.order = NIC_ORDER_STREAM;
	if (session_commit(s, se, &tx)) {
		se->q->ops->tx_cancel(se->q, &tx);
		return -EAGAIN;
	}
	p->posts_sent++;
	counter_add(&s->counters.posts_sent, 1);
	counter_add(&s->counters.bytes_sent, start->len);
	return 0;
}

int post_now(struct shard *s, const struct call_start *start)
{
	struct session *se = &s->sessions[session_index(s, start->worker, start->shard)];
	if (s->stopped)
		return -ESHUTDOWN;
	if (se->state == SESSION_DEAD)
		return -EPIPE;
	if (se->state != SESSION_UP) /* it waits for the set-up */
		return -EAGAIN;
	if (start->len > se->message_max)
		return -EMSGSIZE;
	struct large_peer *p = large_of(s, se);
	/* Others before it: those that were handed over, and those that wait. */
	if (start->len > se->whole_max || submit_peek(&s->submit) ||
	    atomic_load_explicit(&s->posts_queued[se->index], memory_order_relaxed) || p->post || !window_open(p))
		return -EAGAIN;
	int error = send_post(s, p, start);
	if (!error)
		counter_add(&s->counters.sends_begun, 1);
	return error;
}

static void unqueued(struct shard *s, struct session *se, struct post *post)
{
	const char *outer = s->context.handler;
	atomic_fetch_sub_explicit(&s->posts_queued[se->index], 1, memory_order_relaxed);
	s->context.handler = "a release callback";
	post_free(post);
	s->context.handler = outer;
}

static struct post *next_post(struct large_peer *p)
{
	struct post *post = p->posts;
	p->posts = post->next;
	if (!p->posts)
		p->posts_tail = &p->posts;
	return post;
}

static void drop(struct shard *s, struct session *se, struct post *post)
{
	counter_add(&s->counters.posts_dropped, 1);
	counter_add(&s->counters.sends_ended, 1);
	unqueued(s, se, post);
}

static void enqueue(struct shard *s, struct large_peer *p, struct post *post)
{
	*p->posts_tail = post;
	p->posts_tail = &post->next;
	large_list(s, p);
}

void post_queue(struct shard *s, uint32_t worker, uint32_t shard, struct post *post)
{
	struct session *se = &s->sessions[session_index(s, worker, shard)];
	struct post **at = &se->posts_early;
	post->next = NULL;
	counter_add(&s->counters.sends_begun, 1);
	switch (se->state) {
	case SESSION_UP:
		enqueue(s, large_of(s, se), post);
		return;
	case SESSION_DEAD:
		drop(s, se, post);
		return;
	default: /* at most FAR_POSTS_QUEUED_MAX */
		while (*at)
			at = &(*at)->next;
		*at = post;
		if (se->state == SESSION_CLOSED) {
			se->worker = worker;
			se->shard = shard;
			session_connect(s, se);
		}
	}
}

void post_early(struct shard *s, struct session *se)
{
	while (se->posts_early) {
		struct post *post = se->posts_early;
		se->posts_early = post->next;
		if (se->state != SESSION_UP) {
			drop(s, se, post);
			continue;
		}
		post->next = NULL;
		enqueue(s, large_of(s, se), post);
	}
}

static void begin_large(struct shard *s, struct large_peer *p, const struct post *post)
{
	struct large_out *o = post->large;
	o->kind = LARGE_ONEWAY;
	o->head = (struct shm_head){.fn = post->fn};
	o->deadline = post->deadline;
	p->post = o;
	counter_add(&s->counters.posts_sent, 1);
	large_send(s, p->session, o);
}

unsigned post_send_queued(struct shard *s, struct large_peer *p)
{
	unsigned n = 0;
	while (p->posts && !p->post && window_open(p) && n < FAR_BURST) {
		struct post *post = p->posts;
		uint64_t now = post->deadline == TIME_NEVER ? 0 : clock_now(s->config.clock);
		struct call_start start = {.fn = post->fn,
					   .left = post->deadline == TIME_NEVER ? TIME_NEVER : post->deadline - now,
					   .data = post->bytes,
					   .len = post->len};
		n++;
		if (post->deadline <= now) {
			drop(s, p->session, next_post(p));
			continue;
		}
		if (post->large) {
			begin_large(s, p, post);
		} else if (send_post(s, p, &start)) {
			s->send_stalled = true;
			return n - 1;
		}
		unqueued(s, p->session, next_post(p));
	}
	return n;
}

void post_close(struct shard *s, struct large_peer *p)
{
	while (p->posts)
		drop(s, p->session, next_post(p));
	uint64_t lost = p->posts_sent - p->posts_acked;
	counter_add(&s->counters.sends_ended, lost);
	p->posts_acked = p->posts_sent;
}

/* ---- receiving ---- */

void post_credit(struct shard *s, struct large_peer *p, unsigned flags)
{
	struct head_units units = {p->units_received};
	struct shm_head h = {.type = HEAD_CREDIT,
			     .flags = (uint8_t)flags,
			     .time_low = (uint32_t)p->posts_received,
			     .time_high = (uint32_t)(p->posts_received >> 32)};
	p->posts_told = p->posts_received;
	p->units_told = p->units_received;
	if (answer_packet(s, p->session, &h, &units, sizeof units))
		answer_no_room(s, p->session);
}

void post_received(struct shard *s, struct large_peer *p)
{
	p->posts_received++;
	counter_add(&s->counters.posts_received, 1);
	if (p->posts_received - p->posts_told >= FAR_POSTS_BATCH && !MUTANT(CREDIT_LOST))
		post_credit(s, p, 0);
}

void post_on_packet(struct shard *s, struct session *se, const struct shm_head *h, const struct nic_pkt *pkt)
{
	struct large_peer *p = large_of(s, se);
	if (h->flags & (HEAD_TYPED | HEAD_RETRY)) {
		counter_add(&s->counters.packets_dropped, 1);
		session_poisoned(s, se);
		return;
	}
	if (unlikely(p->oneways_n)) /* a long one that was sent before */
		large_finish_oneways(s, p);
	dispatch(s, se, h, pkt->body, pkt->body_len, 0);
	post_received(s, p);
}

/* ---- acknowledgements ---- */

bool post_on_credit(struct shard *s, struct large_peer *p, const struct shm_head *h, uint64_t units)
{
	uint64_t acked = head_time(h);
	if (acked < p->posts_acked || acked > p->posts_sent)
		return false;
	counter_add(&s->counters.sends_ended, acked - p->posts_acked);
	p->posts_acked = acked;
	if (h->flags & HEAD_ASKED)
		p->asked = false;
	return large_units_acked(s, p, units);
}

void post_ask(struct shard *s, struct large_peer *p)
{
	struct shm_head h = {.type = HEAD_ASK};
	if (!p->asked)
		p->asked = answer_packet(s, p->session, &h, NULL, 0) == 0;
}

void post_ask_all(struct shard *s)
{
	atomic_store_explicit(&s->ask, false, memory_order_relaxed);
	for (struct session *se = s->known; se; se = se->next_known) {
		struct large_peer *p = se->large;
		if (se->state == SESSION_UP && p &&
		    (p->posts_sent != p->posts_acked || p->units_sent != p->units_acked))
			post_ask(s, p);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages with a reply: far_msg_send() and far_msg_call(). Application threads and handlers; completions on the
 * shard. */
#include "agent/agent.h"
#include "api/fast.h"
#include "api/parts.h"
#include "api/recv_buf.h"
#include "base/error.h"
#include "base/must.h"
#include "core/context.h"
#include "core/idle.h"
#include "core/loop.h"
#include "core/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLY_TOO_LARGE "the reply has %zu bytes, the buffer %zu"

/* ---- with a completion callback ---- */

__attribute__((cold)) static enum far_status send_refused(struct far_err *err)
{
	return err_set(err, FAR_INVALID, "far_msg_send needs a callback and an id in [0, %d)", FAR_MSG_HANDLERS_MAX);
}

static void send_done(void *user, const struct completion *o)
{
	far_msg_done_fn *done = (far_msg_done_fn *)o->app;
	if (likely(o->status == FAR_OK)) {
		done(FAR_OK, o->data, o->len, NULL, user);
		return;
	}
	struct far_err err;
	err_set(&err, o->status, "%.*s", (int)o->len, o->len ? (const char *)o->data : "");
	err.executed = o->executed;
	err.code = o->code;
	snprintf(err.origin, sizeof err.origin, "%s",
		 o->origin >= 0 ? AGENT_NAME(o->agent, o->origin) : o->agent->name);
	done(o->status, NULL, 0, &err, user);
}

/* Record of a far_msg_send() with a receive buffer. At the start of its own buffer `self`. */
struct recv_buf_send {
	struct far_buf *self;
	far_msg_done_fn *done;
	void *user;
	struct far_recv_buf recv_buf;
};

static void recv_buf_send_done(void *user, const struct completion *o)
{
	struct recv_buf_send *is = user;
	struct completion result = *o;
	char text[128];
	result.app = (void (*)(void))is->done;
	if (o->status == FAR_OK && o->len > is->recv_buf.cap) {
		result.status = FAR_TOO_LARGE;
		result.data = text;
		result.len = (size_t)snprintf(text, sizeof text, REPLY_TOO_LARGE, o->len, is->recv_buf.cap);
	} else if (o->status == FAR_OK) {
		if (o->len && o->data != is->recv_buf.data)
			memcpy(is->recv_buf.data, o->data, o->len);
		result.data = is->recv_buf.data;
	}
	send_done(is->user, &result);
	buf_unref(is->self);
}

__attribute__((noinline, cold)) static enum far_status
send_recv_buf(struct shard *s, struct call_start *start, const struct far_recv_buf *recv_buf, struct far_err *err)
{
	struct far_buf *self = buf_alloc(sizeof(struct recv_buf_send));
	if (!self)
		return err_set(err, FAR_RESOURCE, "no memory for the call");
	struct recv_buf_send *is = buf_data(self);
	*is = (struct recv_buf_send){self, (far_msg_done_fn *)start->app, start->user, *recv_buf};
	start->done = recv_buf_send_done;
	start->user = is;
	enum far_status status = agent_start(s, start, err);
	if (status)
		buf_unref(self);
	return status;
}

/* A request as the application makes it. */
struct message_call {
	struct far_agent *agent;
	struct far_to to;
	uint16_t id;
	struct far_part part;
	const struct far_call_opts *opts; /* NULL: the defaults */
};

__attribute__((noinline)) static enum far_status send_general(const struct message_call *c, far_msg_done_fn *done,
							      void *user, struct far_err *err)
{
	if (unlikely(c->part.len > FAR_MSG_EAGER_MAX))
		return far_msg_send_parts(c->agent, c->to, c->id, &c->part, 1, NULL, NULL, c->opts, done, user, err);
	struct call_route route;
	enum far_status status = agent_route(c->agent, c->to, c->opts, c->id, &route, err);
	if (unlikely(status))
		return status;
	if (unlikely(!done || c->id >= FAR_MSG_HANDLERS_MAX))
		return send_refused(err);
	struct call_extra seen;
	struct call_start start = {.worker = (uint32_t)c->to.worker,
				   .shard = route.shard,
				   .fn = c->id,
				   .typed = 0,
				   .done = send_done,
				   .user = user,
				   .app = (void (*)(void))done,
				   .data = c->part.data,
				   .len = c->part.len,
				   .write = NULL,
				   CALL_START_REST};
	agent_set_deadline(c->agent, route.via, c->opts, &start);
	agent_show(&start, &seen, FAR_CALL_MESSAGE, NULL, NULL, 0);
	if (unlikely(recv_buf_given(c->opts)))
		return send_recv_buf(route.via, &start, &c->opts->recv_buf, err);
	return agent_start(route.via, &start, err);
}

enum far_status far_msg_send(struct far_agent *a, struct far_to to, uint16_t id, const void *data, size_t len,
			     const struct far_call_opts *opts, far_msg_done_fn *done, void *user, struct far_err *err)
{
	struct shard *s;
	struct fast_call call = {.done = send_done, .user = user, .app = (void (*)(void))done};
	struct session *se = NULL;
	if (likely(len <= FAR_LINE_PAYLOAD && !opts && done && id < FAR_MSG_HANDLERS_MAX &&
		   (s = agent_fast_shard(a, &call.left))))
		se = agent_fast_session(a, s, to, &(uint64_t){id});
	if (unlikely(!se))
		return send_general(&(struct message_call){a, to, id, {data, len}, opts}, done, user, err);
	call.what = FAST_WHAT(id, CALL_PLAIN);
	call.word = FAST_WORD(PACKET_REQUEST, 0, id);
	fast_take(s, se, &call);
	fast_copy(fast_body(call.line), data, len);
	fast_send(s, se, &call, len);
	return FAR_OK;
}

enum far_status far_msg_send_parts(struct far_agent *a, struct far_to to, uint16_t id, const struct far_part *parts,
				   size_t n, far_msg_release_fn *release, void *release_user,
				   const struct far_call_opts *opts, far_msg_done_fn *done, void *user,
				   struct far_err *err)
{
	struct parts p = {parts, n};
	struct call_extra seen;
	struct call_start start = {.fn = id, .done = send_done, .user = user, .app = (void (*)(void))done};
	struct call_route route;
	enum far_status status = agent_route(a, to, opts, id, &route, err);
	if (!status && (!done || id >= FAR_MSG_HANDLERS_MAX))
		status = send_refused(err);
	if (!status) {
		start.worker = (uint32_t)to.worker;
		start.shard = route.shard;
		status = parts_start(route.via, &start, &p, release ? PARTS_RELEASED : PARTS_COPIED, err);
	}
	if (!status) {
		agent_set_deadline(a, route.via, opts, &start);
		agent_show(&start, &seen, FAR_CALL_MESSAGE, NULL, NULL, 0);
		status = recv_buf_given(opts) ? send_recv_buf(route.via, &start, &opts->recv_buf, err)
					      : agent_start(route.via, &start, err);
	}
	parts_end(&start, release, release_user);
	return status;
}

/* ---- waiting ---- */

/* A call whose thread holds the shard until completion. On that thread's stack, since the shard cannot complete it
 * later.
 */
struct held_call {
	bool done;
	void *reply;
	size_t cap, len;
	struct completion completion; /* without its data */
	char text[FAR_ERR_TEXT_MAX];
};

static void held_done(void *user, const struct completion *o)
{
	struct held_call *h = user;
	h->completion = *o;
	h->len = o->len;
	if (likely(o->status == FAR_OK)) {
		if (likely(o->len <= h->cap) && o->len && likely(o->data != h->reply))
			memcpy(h->reply, o->data, o->len);
	} else {
		size_t n = o->len < sizeof h->text ? o->len : sizeof h->text - 1;
		if (n)
			memcpy(h->text, o->data, n);
		h->text[n] = '\0';
	}
	h->done = true;
}

/* A call of the general path, which has a time-out of its own. */
struct held_general {
	struct held_call h;
	uint64_t left;
};

static void held_done_general(void *user, const struct completion *o)
{
	struct held_general *g = user;
	held_done(&g->h, o);
	if (unlikely(o->status == FAR_TIMEOUT))
		agent_add_duration(g->h.text, g->left);
}

static enum far_status too_small(size_t len, size_t cap, size_t *reply_len, struct far_err *err)
{
	if (reply_len)
		*reply_len = len;
	err_set(err, FAR_TOO_LARGE, REPLY_TOO_LARGE, len, cap);
	if (err)
		err->executed = FAR_EXECUTED_YES;
	return FAR_TOO_LARGE;
}

/* The usual completion: of the fast path. */
static void held_done_plain(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	struct held_call *h = user;
	(void)err;
	h->completion.status = status;
	h->len = len;
	if (likely(len <= h->cap))
		fast_copy(h->reply, data, len);
	h->done = true;
}

static enum far_status wait_held(struct shard *s, const struct session *se, struct held_call *h, size_t *reply_len,
				 struct far_err *err)
{
	const struct far_agent *a = s->config.agent;
	struct idler idler = {0};
	while (!h->done)
		agent_fast_poll(s, se, &idler);
	if (likely(h->completion.status == FAR_OK)) {
		if (unlikely(h->len > h->cap))
			return too_small(h->len, h->cap, reply_len, err);
		if (reply_len)
			*reply_len = h->len;
		return FAR_OK;
	}
	err_set(err, h->completion.status, "%s", h->text);
	if (err) {
		/* Of a call of the fast path: it had the default. */
		if (h->completion.status == FAR_TIMEOUT)
			agent_add_duration(err->text, atomic_load_explicit(&a->rpc_timeout_ns, memory_order_relaxed));
		err->executed = h->completion.executed;
		err->code = h->completion.code;
		snprintf(err->origin, sizeof err->origin, "%s",
			 h->completion.origin >= 0 ? AGENT_NAME(a, h->completion.origin) : a->name);
	}
	return h->completion.status;
}

static enum far_status call_held(struct shard *s, struct call_start *start, void *reply, size_t cap, size_t *reply_len,
				 struct far_err *err)
{
	struct held_general g;
	g.h.done = false;
	g.h.reply = reply;
	g.h.cap = cap;
	g.left = start->left;
	start->done = held_done_general;
	start->user = &g;
	enum far_status status = agent_start_waiting(s, start, err);
	if (unlikely(status))
		return status;
	shard_flush(s);
	return wait_held(s, &s->sessions[session_index(s, start->worker, start->shard)], &g.h, reply_len, err);
}

static enum far_status call_handed(struct shard *s, struct call_start *start, void *reply, size_t cap,
				   size_t *reply_len, struct far_err *err)
{
	struct far_future *f = future_alloc_handed(s);
	if (!f)
		return agent_no_future(err);
	enum far_status status = agent_call_and_wait(s, start, f, err);
	if (!status)
		status = agent_result(f, NULL, err);
	if (!status) {
		if (future_len(f) > cap) {
			status = too_small(future_len(f), cap, reply_len, err);
		} else {
			if (future_len(f))
				memcpy(reply, future_bytes(f), future_len(f));
			if (reply_len)
				*reply_len = future_len(f);
		}
	}
	buf_unref(&f->head);
	return status;
}

static enum far_status call_and_wait(struct shard *s, struct call_start *start, void *reply, size_t cap,
				     size_t *reply_len, struct far_err *err)
{
	if (unlikely(shard_serving()))
		return call_handed(s, start, reply, cap, reply_len, err);
	if (shard_held(s))
		return call_held(s, start, reply, cap, reply_len, err);
	if (s->config.progress == FAR_PROGRESS_SHARED && shard_enter(s)) {
		enum far_status status = call_held(s, start, reply, cap, reply_len, err);
		shard_leave(s);
		return status;
	}
	return call_handed(s, start, reply, cap, reply_len, err);
}

__attribute__((noinline)) static enum far_status call_general(const struct message_call *c, void *reply, size_t cap,
							      size_t *reply_len, struct far_err *err)
{
	if (unlikely(c->part.len > FAR_MSG_EAGER_MAX || recv_buf_given(c->opts)))
		return far_msg_call_parts(c->agent, c->to, c->id, &c->part, 1, c->opts, reply, cap, reply_len, err);
	struct call_route route;
	enum far_status status = agent_route(c->agent, c->to, c->opts, c->id, &route, err);
	if (likely(!status))
		status = agent_may_wait("far_msg_call", err);
	if (unlikely(status))
		return status;
	if (unlikely(c->id >= FAR_MSG_HANDLERS_MAX))
		return err_set(err, FAR_INVALID, "message ids are in [0, %d)", FAR_MSG_HANDLERS_MAX);
	struct call_extra seen;
	struct call_start start = {.worker = (uint32_t)c->to.worker,
				   .shard = route.shard,
				   .fn = c->id,
				   .typed = 0,
				   .done = NULL, /* and the next two: set by the kind of wait */
				   .user = NULL,
				   .app = NULL,
				   .data = c->part.data,
				   .len = c->part.len,
				   .write = NULL,
				   CALL_START_REST};
	agent_set_deadline(c->agent, route.via, c->opts, &start);
	agent_show(&start, &seen, FAR_CALL_MESSAGE, NULL, NULL, 0);
	return call_and_wait(route.via, &start, reply, cap, reply_len, err);
}

enum far_status far_msg_call(struct far_agent *a, struct far_to to, uint16_t id, const void *data, size_t len,
			     const struct far_call_opts *opts, void *reply, size_t cap, size_t *reply_len,
			     struct far_err *err)
{
	struct held_call h;
	struct shard *s;
	struct fast_call call = {.done = held_done, .user = &h, .app = (void (*)(void))held_done_plain};
	struct session *se = NULL;
	if (likely(len <= FAR_LINE_PAYLOAD && !opts && id < FAR_MSG_HANDLERS_MAX &&
		   (s = agent_fast_shard(a, &call.left)) && agent_may_wait_fast(s)))
		se = agent_fast_session(a, s, to, &(uint64_t){id});
	if (unlikely(!se))
		return call_general(&(struct message_call){a, to, id, {data, len}, opts}, reply, cap, reply_len, err);
	h.done = false;
	h.reply = reply;
	h.cap = cap;
	call.what = FAST_WHAT(id, CALL_PLAIN);
	call.word = FAST_WORD(PACKET_REQUEST, 0, id);
	fast_take(s, se, &call);
	fast_copy(fast_body(call.line), data, len);
	fast_send(s, se, &call, len);
	shard_flush(s);
	return wait_held(s, se, &h, reply_len, err);
}

enum far_status far_msg_call_parts(struct far_agent *a, struct far_to to, uint16_t id, const struct far_part *parts,
				   size_t n, const struct far_call_opts *opts, void *reply, size_t cap,
				   size_t *reply_len, struct far_err *err)
{
	struct parts p = {parts, n};
	struct call_extra seen;
	struct call_start start = {.fn = id};
	struct call_route route;
	enum far_status status = agent_route(a, to, opts, id, &route, err);
	if (!status)
		status = agent_may_wait("far_msg_call", err);
	if (status)
		return status;
	if (id >= FAR_MSG_HANDLERS_MAX)
		return err_set(err, FAR_INVALID, "message ids are in [0, %d)", FAR_MSG_HANDLERS_MAX);
	if (recv_buf_given(opts))
		return err_set(err, FAR_INVALID,
			       "far_msg_call has a buffer for the reply: leave opts->recv_buf empty, and pass `reply`");
	start.worker = (uint32_t)to.worker;
	start.shard = route.shard;
	status = parts_start(route.via, &start, &p, PARTS_BORROWED, err);
	if (status)
		return status;
	agent_set_deadline(a, route.via, opts, &start);
	agent_show(&start, &seen, FAR_CALL_MESSAGE, NULL, NULL, 0);
	status = call_and_wait(route.via, &start, reply, cap, reply_len, err);
	/* The wait can end before the call if no thread polls. Revoke the parts: they are the caller's again. */
	if (start.ready)
		rendezvous_out_revoke(rendezvous_out_in(start.ready));
	parts_end(&start, NULL, NULL);
	return status;
}

/* ---- placement of rendezvous replies ---- */

void *message_reply_buffer(call_done_fn *done, void *user, size_t len)
{
	intercept_inner(&done, &user);
	if (done == held_done) {
		const struct held_call *h = user;
		return len <= h->cap ? h->reply : NULL;
	}
	if (done == recv_buf_send_done) {
		const struct recv_buf_send *is = user;
		return len <= is->recv_buf.cap ? is->recv_buf.data : NULL;
	}
	return NULL;
}

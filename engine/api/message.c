/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages, the caller's side. */
#include "api/agent.h"
#include "base/error.h"
#include "base/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- with a completion callback ---- */

static void send_done(void *user, const struct outcome *o)
{
	far_msg_done_fn *done = (far_msg_done_fn *)o->app;
	if (likely(o->status == FAR_OK)) {
		done(user, FAR_OK, o->data, o->len, NULL);
		return;
	}
	struct far_err err;
	err_set(&err, o->status, "%.*s", (int)o->len, o->len ? (const char *)o->data : "");
	err.executed = o->executed;
	err.code = o->code;
	snprintf(err.origin, sizeof err.origin, "%s",
		 o->origin >= 0 ? o->agent->members[o->origin].name : o->agent->name);
	done(user, o->status, NULL, 0, &err);
}

enum far_status far_msg_send(struct far_agent *a, struct far_to to, uint16_t id, const void *data, size_t len,
			     const struct far_call_opts *opts, far_msg_done_fn *done, void *user, struct far_err *err)
{
	struct route route;
	enum far_status status = agent_route(a, to, opts, id, &route, err);
	if (unlikely(status))
		return status;
	if (unlikely(!done || id >= FAR_MSG_HANDLERS_MAX))
		return err_set(err, FAR_INVALID, "far_msg_send needs a callback and an id in [0, %d)",
			       FAR_MSG_HANDLERS_MAX);
	struct call_start start = {.worker = (uint32_t)to.worker,
				   .shard = route.shard,
				   .fn = id,
				   .done = send_done,
				   .user = user,
				   .app = (void (*)(void))done,
				   .data = data,
				   .len = len};
	agent_set_deadline(a, route.via, opts, &start);
	return agent_start(route.via, &start, err);
}

/* ---- waiting ---- */

/* On the caller's stack: the thread holds the shard from start to completion, so nobody else can come to see it late.
 */
struct held_call {
	bool done;
	void *reply;
	size_t cap, len;
	struct outcome outcome; /* without its bytes */
	char text[FAR_ERR_TEXT_MAX];
};

static void held_done(void *user, const struct outcome *o)
{
	struct held_call *h = user;
	h->outcome = *o;
	h->len = o->len;
	if (likely(o->status == FAR_OK)) {
		if (likely(o->len <= h->cap) && o->len)
			memcpy(h->reply, o->data, o->len);
	} else {
		size_t n = o->len < sizeof h->text ? o->len : sizeof h->text - 1;
		if (n)
			memcpy(h->text, o->data, n);
		h->text[n] = '\0';
	}
	h->done = true;
}

static enum far_status too_small(size_t len, size_t cap, size_t *reply_len, struct far_err *err)
{
	if (reply_len)
		*reply_len = len;
	err_set(err, FAR_TOO_LARGE, "the reply has %zu bytes, the buffer %zu", len, cap);
	if (err)
		err->executed = FAR_EXECUTED_YES;
	return FAR_TOO_LARGE;
}

static enum far_status call_held(struct shard *s, struct call_start *start, void *reply, size_t cap, size_t *reply_len,
				 struct far_err *err)
{
	const struct far_agent *a = s->config.agent;
	struct held_call h;
	h.done = false;
	h.reply = reply;
	h.cap = cap;
	start->done = held_done;
	start->user = &h;
	enum far_status status = agent_start_waiting(s, start, err);
	if (unlikely(status))
		return status;
	s->ops->flush(s->q);
	struct idler idler = {0};
	while (!h.done) {
		if (shard_pass(s))
			idler = (struct idler){0};
		else if (unlikely(idler_step(s, &idler, true)))
			shard_sleep(s, TIME_NEVER); /* the call's own deadline is a timer */
	}
	if (likely(h.outcome.status == FAR_OK)) {
		if (unlikely(h.len > cap))
			return too_small(h.len, cap, reply_len, err);
		if (reply_len)
			*reply_len = h.len;
		return FAR_OK;
	}
	err_set(err, h.outcome.status, "%s", h.text);
	if (err) {
		err->executed = h.outcome.executed;
		err->code = h.outcome.code;
		snprintf(err->origin, sizeof err->origin, "%s",
			 h.outcome.origin >= 0 ? a->members[h.outcome.origin].name : a->name);
	}
	return h.outcome.status;
}

static enum far_status call_handed(struct shard *s, struct call_start *start, void *reply, size_t cap,
				   size_t *reply_len, struct far_err *err)
{
	struct far_future *f = future_alloc(s);
	if (!f)
		return err_set(err, FAR_RESOURCE, "%u futures are alive; free some with far_future_free",
			       FAR_FUTURES_MAX);
	enum far_status status = agent_call_and_wait(s, start, f, err);
	if (!status)
		status = agent_result(f, NULL, err);
	if (!status) {
		if (f->len > cap) {
			status = too_small(f->len, cap, reply_len, err);
		} else {
			if (f->len)
				memcpy(reply, future_bytes(f), f->len);
			if (reply_len)
				*reply_len = f->len;
		}
	}
	buf_unref(&f->head);
	return status;
}

enum far_status far_msg_call(struct far_agent *a, struct far_to to, uint16_t id, const void *data, size_t len,
			     const struct far_call_opts *opts, void *reply, size_t cap, size_t *reply_len,
			     struct far_err *err)
{
	struct route route;
	enum far_status status = agent_route(a, to, opts, id, &route, err);
	if (likely(!status))
		status = agent_may_wait("far_msg_call", err);
	if (unlikely(status))
		return status;
	if (unlikely(id >= FAR_MSG_HANDLERS_MAX))
		return err_set(err, FAR_INVALID, "message ids are in [0, %d)", FAR_MSG_HANDLERS_MAX);
	struct shard *s = route.via;
	struct call_start start = {
		.worker = (uint32_t)to.worker, .shard = route.shard, .fn = id, .data = data, .len = len};
	agent_set_deadline(a, s, opts, &start);
	if (unlikely(shard_serving()))
		return call_handed(s, &start, reply, cap, reply_len, err);
	if (shard_held(s))
		return call_held(s, &start, reply, cap, reply_len, err);
	if (a->driver == FAR_DRIVER_SHARED && shard_enter(s)) {
		status = call_held(s, &start, reply, cap, reply_len, err);
		shard_leave(s);
		return status;
	}
	return call_handed(s, &start, reply, cap, reply_len, err);
}

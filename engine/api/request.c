/* SPDX-License-Identifier: BSD-3-Clause */
/** Answers requests at the callee: in the handler on its thread, or deferred from any thread. */
#include "core/request.h"
#include "agent/agent.h"
#include "base/error.h"
#include "base/must.h"
#include "core/blocking.h"
#include "core/context.h"
#include "core/deferred.h"
#include "core/dispatch.h"
#include "core/fast.h"
#include "core/fiber.h"
#include "core/queues.h"
#include "core/reply.h"
#include "core/shard.h"
#include "core/timer.h"
#include "features/references/rref.h"
#include "value/encoding.h"
#include "value/line.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- in the handler ---- */

/* Room for a rendezvous reply, in a buffer. */
__attribute__((noinline, cold)) static enum far_status room_large(struct far_req *req, size_t len, void **at)
{
	req->len = len;
	req->buf = req->record ? buf_alloc(len) : queues_buf(req->shard, len);
	if (!req->buf)
		return FAR_RESOURCE; /* before the limit: the caller's default limit, half of its memory, is as large */
	if (len > dispatch_limit(req)) {
		buf_unref(req->buf);
		req->buf = NULL;
		return FAR_TOO_LARGE;
	}
	req->answer = req->record ? ANSWER_BUFFER : ANSWER_RENDEZVOUS;
	*at = buf_data(req->buf);
	return FAR_OK;
}

/* Room for a reply of `len` bytes: in the request's scratch line if it fits, else in the transmit slot, else in a
 * buffer. */
static enum far_status room(struct far_req *req, size_t len, void **at)
{
	if (unlikely(req->answer != ANSWER_NONE))
		return FAR_INVALID;
	if (unlikely(len > (req->record ? 0 : req->session->eager_max)) && len > FAR_LINE_PAYLOAD)
		return room_large(req, len, at);
	req->len = len;
	if (likely(len <= FAR_LINE_PAYLOAD)) {
		req->answer = ANSWER_SCRATCH;
		*at = req->scratch;
		return FAR_OK;
	}
	if (!req->record && !req->session->backpressured &&
	    req->session->q->ops->tx_reserve(req->session->q, req->session->peer, len, &req->tx) == 0) {
		req->answer = ANSWER_RESERVED;
		*at = req->tx.body;
		return FAR_OK;
	}
	req->buf = buf_alloc(len);
	if (!req->buf)
		return FAR_RESOURCE;
	req->answer = ANSWER_BUFFER;
	*at = buf_data(req->buf);
	return FAR_OK;
}

enum far_status far_reply_alloc(struct far_req *req, size_t len, void **data)
{
	return req->fn ? FAR_INVALID : room(req, len, data);
}

__attribute__((noinline)) static enum far_status reply_alloc(struct far_req *req, const void *data, size_t len)
{
	void *at;
	enum far_status status = far_reply_alloc(req, len, &at);
	if (likely(!status) && req->answer == ANSWER_RESERVED)
		session_copy(req->session, at, data, len);
	else if (!status && len)
		memcpy(at, data, len);
	return status;
}

__attribute__((noinline)) static enum far_status reply_general(struct far_req *req, const void *data, size_t len)
{
	if (req->fn || req->answer != ANSWER_NONE || len > FAR_LINE_PAYLOAD || req->record ||
	    answer_now(req, data, len))
		return reply_alloc(req, data, len);
	req->answer = ANSWER_SENT;
	return FAR_OK;
}

enum far_status far_reply(struct far_req *req, const void *data, size_t len)
{
	uint64_t id;
	if (unlikely(req->fn || req->plain || len > FAR_LINE_PAYLOAD || req->record ||
		     !fast_may_reply_to(req->session)))
		return reply_general(req, data, len);
	memcpy(&id, &req->call, sizeof id);
	fast_reply_to(req->shard, req->session, id, data, len);
	req->answer = ANSWER_SENT;
	return FAR_OK;
}

/* Answers with a value that holds references: through a deferred record, which forks them when it is sent. */
__attribute__((noinline, cold)) static enum far_status return_rrefs(struct far_req *req, const struct far_val *value,
								    struct values_plan *plan)
{
	struct far_deferred *d;
	enum far_status status = far_defer(req, &d);
	if (status)
		return status;
	rref_answer_value(d, value, plan);
	deferred_finish(d);
	req->answer = ANSWER_SENT;
	return FAR_OK;
}

/* The handler learns it as well as the caller. */
__attribute__((noinline, cold)) static enum far_status wrong_result(struct far_req *req, enum far_type type)
{
	far_fail(req, FAR_SIGNATURE, 0, "%s returned a %s, which its signature does not allow", req->fn->signature.text,
		 far_type_name(type));
	return FAR_SIGNATURE;
}

enum far_status far_return(struct far_req *req, const struct far_val *value)
{
	struct far_val none = far_none();
	void *at;
	if (!value)
		value = &none;
	if (unlikely(!req->fn || req->answer != ANSWER_NONE))
		return FAR_INVALID;
	if (unlikely(!signature_result_fits(&req->fn->signature, value)))
		return wrong_result(req, (enum far_type)value->type);
	struct far_err err;
	struct values_plan plan;
	size_t len = values_size(value, 1, &plan, &err);
	if (unlikely(len == SIZE_MAX)) {
		far_fail(req, err.status, 0, "%s: the result: %s", req->name, err.text);
		return err.status;
	}
	if (unlikely(req->record != NULL) && req->record->extra)
		intercept_return(req->record, value);
	if (unlikely(plan.rrefs))
		return return_rrefs(req, value, &plan);
	enum far_status status = room(req, len, &at);
	if (likely(!status))
		values_write_by(value, 1, &plan, at,
				req->answer == ANSWER_RESERVED ? session_copier(req->session, len) : NULL);
	return status;
}

__attribute__((noinline)) static enum far_status
return_tensor_general(struct far_req *req, enum far_dtype dtype, unsigned ndim, const uint64_t *shape, void **data)
{
	size_t offset;
	void *at;
	if (!req->fn || req->answer != ANSWER_NONE)
		return FAR_INVALID;
	const struct signature_set *set = &req->fn->signature.result;
	const struct far_val form = {.type = FAR_TYPE_TENSOR, .u.t = {.dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim}};
	if (!(set->types >> FAR_TYPE_TENSOR & 1) && !(set->tensor && signature_takes_tensor(*set, &form)))
		return wrong_result(req, FAR_TYPE_TENSOR);
	size_t len = values_tensor_size(dtype, ndim, shape, &offset);
	if (unlikely(len == SIZE_MAX))
		return FAR_TOO_LARGE;
	enum far_status status = room(req, len, &at);
	if (unlikely(status))
		return status;
	values_tensor_write(dtype, ndim, shape, at, len);
	*data = (uint8_t *)at + offset;
	return FAR_OK;
}

enum far_status far_return_tensor(struct far_req *req, enum far_dtype dtype, unsigned ndim, const uint64_t *shape,
				  void **data)
{
	size_t offset;
	if (unlikely(!req->fn || req->answer != ANSWER_NONE ||
		     !(req->fn->signature.result.types >> FAR_TYPE_TENSOR & 1) || ndim != 1 ||
		     !line_put_one(req->scratch, (unsigned)dtype, shape[0], &offset, &req->len)))
		return return_tensor_general(req, dtype, ndim, shape, data);
	req->answer = ANSWER_SCRATCH;
	*data = req->scratch + offset;
	return FAR_OK;
}

enum far_status far_fail(struct far_req *req, enum far_status status, int32_t code, const char *format, ...)
{
	char text[FAR_ERR_TEXT_MAX];
	va_list args;
	if (req->answer != ANSWER_NONE)
		return FAR_INVALID;
	va_start(args, format);
	int n = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (status <= FAR_OK || status >= FAR_STATUS_COUNT)
		status = FAR_REMOTE;
	dispatch_error(req, status, FAR_EXECUTED_YES, code, text, n < 0 ? 0 : (size_t)n);
	return FAR_OK;
}

struct far_to far_req_from(const struct far_req *req)
{
	return (struct far_to){(int32_t)req->from, (int32_t)req->from_shard};
}

unsigned far_req_shard(const struct far_req *req)
{
	return req->shard->config.index;
}

struct far_agent *far_req_agent(const struct far_req *req)
{
	return req->shard->config.agent;
}

uint64_t far_req_time_left_ns(const struct far_req *req)
{
	if (likely(!req->deadline))
		return req->time_left;
	if (req->deadline == TIME_NEVER)
		return FAR_FOREVER;
	uint64_t now = clock_now(req->shard->config.clock);
	return now < req->deadline ? req->deadline - now : 0;
}

bool far_req_cancelled(const struct far_req *req)
{
	return req->record && atomic_load_explicit(&req->record->state, memory_order_acquire) == DEFERRED_GONE;
}

/* The buffer with the body of a typed request, if data[0, len) is in it; else NULL. */
static struct far_buf *buf_with(const struct far_req *req, const void *data, size_t len)
{
	const struct fiber *fb = shard_in_fiber();
	struct kept_body body = {0};
	if (!req->fn || req->scattered)
		return NULL; /* the bytes may be the sender's */
	if (fb && &fb->req == req)
		fiber_body(fb, &body);
	else if (shard_request() == req)
		blocking_body(req, &body);
	size_t at = (uintptr_t)data - (uintptr_t)body.at;
	return at <= body.len && len <= body.len - at ? body.buf : NULL;
}

enum far_status far_req_keep(const struct far_req *req, const struct far_val *v, struct far_val *out,
			     struct far_err *err)
{
	struct far_buf *buf = NULL;
	if (v->type == FAR_TYPE_TENSOR && !v->by_ref && !v->u.t.strides)
		buf = buf_with(req, v->u.t.data, far_tensor_bytes(&v->u.t));
	else if (v->type == FAR_TYPE_BYTES)
		buf = buf_with(req, v->u.s.data, v->u.s.len);
	if (!buf)
		return far_val_dup(v, out, err);
	buf_ref(buf);
	*out = *v;
	out->kw = NULL;
	out->own = buf;
	return FAR_OK;
}

/* ---- later, from any thread ---- */

enum far_status far_defer(struct far_req *req, struct far_deferred **out)
{
	struct shard *s = req->shard;
	if (req->answer != ANSWER_NONE)
		return FAR_INVALID;
	if (req->record) { /* a fiber or blocking handler: has a record */
		*out = req->record;
		dispatch_detach(req);
		req->answer = ANSWER_DEFERRED;
		return FAR_OK;
	}
	struct far_buf *held = NULL;
	if (unlikely(s->rrefs->calling != NULL) && object_keep(s, &held))
		return FAR_RESOURCE;
	struct far_deferred *d = deferred_alloc(s, req->session, req->call, req->gen, req->fn, req->hashed);
	if (!d) {
		struct values_arena arena = {.held = held};
		tree_release_memory(&arena);
		return FAR_RESOURCE;
	}
	d->held = held;
	if (unlikely(held != NULL))
		d->features |= FEATURE_BIT(FEATURE_REFERENCES);
	d->owned = true;
	if (req->time_left != FAR_FOREVER)
		timer_arm(&s->wheel, &d->timer.timer, time_after(clock_now(s->config.clock), req->time_left));
	req->answer = ANSWER_DEFERRED;
	*out = d;
	return FAR_OK;
}

enum far_status far_deferred_reply(struct far_deferred *d, const void *data, size_t len)
{
	void *at = deferred_room(d, len);
	if (at && len)
		memcpy(at, data, len);
	return deferred_finish(d);
}

/* The application learns the error as well as the caller. */
static enum far_status fail_both(struct far_deferred *d, const struct far_err *err)
{
	deferred_error(d, err->status, FAR_EXECUTED_YES, 0, err->text, strlen(err->text));
	enum far_status status = deferred_finish(d);
	return status ? status : err->status;
}

enum far_status far_deferred_return(struct far_deferred *d, const struct far_val *value)
{
	struct far_val none = far_none();
	if (!value)
		value = &none;
	struct far_err err;
	struct values_plan plan;
	size_t len = d->fn ? values_size(value, 1, &plan, &err) : SIZE_MAX;
	if (!d->fn) {
		static const char text[] = "far_deferred_return answers typed calls; use far_deferred_reply";
		deferred_error(d, FAR_INVALID, FAR_EXECUTED_YES, 0, text, sizeof text - 1);
	} else if (!signature_result_fits(&d->fn->signature, value)) {
		err_set(&err, FAR_SIGNATURE, "%s returned a %s, which its signature does not allow",
			d->fn->signature.text, far_type_name((enum far_type)value->type));
		return fail_both(d, &err);
	} else if (len == SIZE_MAX) {
		return fail_both(d, &err);
	} else {
		if (unlikely(d->extra != NULL))
			intercept_return(d, value);
		void *at = plan.rrefs ? NULL : deferred_room(d, len);
		if (plan.rrefs)
			rref_answer_value(d, value, &plan);
		else if (at)
			values_write(value, 1, &plan, at);
	}
	return deferred_finish(d);
}

enum far_status far_deferred_fail(struct far_deferred *d, enum far_status status, int32_t code, const char *format, ...)
{
	char text[FAR_ERR_TEXT_MAX];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (status <= FAR_OK || status >= FAR_STATUS_COUNT)
		status = FAR_REMOTE;
	deferred_error(d, status, FAR_EXECUTED_YES, code, text,
		       n < 0                     ? 0
		       : (size_t)n < sizeof text ? (size_t)n
						 : sizeof text - 1);
	return deferred_finish(d);
}

static void future_answers(struct far_future *f, void *user)
{
	struct far_deferred *d = user;
	struct far_val v;
	struct far_err err;
	enum far_status status = far_future_value(f, &v, &err);
	if (status)
		far_deferred_fail(d, status, err.code, "%s", err.text);
	else
		far_deferred_return(d, &v);
	if (!status)
		far_val_fini(&v);
}

enum far_status far_return_future(struct far_req *req, struct far_future *f)
{
	struct far_deferred *d;
	struct far_err err;
	enum far_status status = f ? far_defer(req, &d) : FAR_INVALID;
	if (status)
		return status;
	status = far_future_on_done(f, future_answers, d, &err);
	if (status)
		far_deferred_fail(d, status, 0, "%s", err.text);
	return status;
}

void far_deferred_drop(struct far_deferred *d)
{
	static const char text[] = "the callee dropped the request without an answer";
	deferred_error(d, FAR_REMOTE, FAR_EXECUTED_YES, 0, text, sizeof text - 1);
	deferred_finish(d);
}

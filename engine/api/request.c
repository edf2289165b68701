/* SPDX-License-Identifier: BSD-3-Clause */
/** The callee's side: answering a request, in its handler or later. */
#include "api/agent.h"
#include "base/error.h"
#include "base/must.h"
#include "wire/values.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- in the handler ---- */

/* Room for an answer of `len` bytes: a small one is gathered aside and copied into its line, a large one is written
 * where it leaves. */
static enum far_status room(struct far_req *req, size_t len, void **at)
{
	struct shard *s = req->shard;
	if (unlikely(req->answer != ANSWER_NONE))
		return FAR_INVALID;
	if (unlikely(len > FAR_MSG_BYTES_MAX))
		return FAR_TOO_LARGE;
	req->len = len;
	if (likely(len <= FAR_LINE_PAYLOAD)) {
		req->answer = ANSWER_SCRATCH;
		*at = req->scratch;
		return FAR_OK;
	}
	if (!req->session->blocked && s->ops->tx_reserve(s->q, req->session->peer, len, &req->tx) == 0) {
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

enum far_status far_reply(struct far_req *req, const void *data, size_t len)
{
	if (likely(!req->fn && req->answer == ANSWER_NONE && len <= FAR_LINE_PAYLOAD && !answer_now(req, data, len))) {
		req->answer = ANSWER_SENT;
		return FAR_OK;
	}
	void *at;
	enum far_status status = far_reply_alloc(req, len, &at);
	if (likely(!status) && len)
		memcpy(at, data, len);
	return status;
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
		return far_fail(req, FAR_SIGNATURE, 0, "%s returned a %s, which its signature does not allow",
				req->fn->signature.text, far_type_name((enum far_type)value->type));
	struct far_err err;
	size_t len = values_size(value, 1, &err);
	if (unlikely(len == SIZE_MAX))
		return far_fail(req, err.status, 0, "%s: the result: %s", req->name, err.text);
	enum far_status status = room(req, len, &at);
	if (likely(!status))
		values_write(value, 1, at, len);
	return status;
}

enum far_status far_return_tensor(struct far_req *req, enum far_dtype dtype, unsigned ndim, const uint64_t *shape,
				  void **data)
{
	size_t offset, len = values_tensor_size(dtype, ndim, shape, &offset);
	void *at;
	if (unlikely(!req->fn || req->answer != ANSWER_NONE || !(req->fn->signature.result >> FAR_TYPE_TENSOR & 1)))
		return FAR_INVALID;
	if (unlikely(len == SIZE_MAX))
		return FAR_TOO_LARGE;
	enum far_status status = room(req, len, &at);
	if (unlikely(status))
		return status;
	values_tensor_write(dtype, ndim, shape, at, len);
	*data = (uint8_t *)at + offset;
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
	answer_error(req->shard, req->session, req->call, req->gen, status, FAR_EXECUTED_YES, code, text,
		     n < 0 ? 0 : (size_t)n);
	req->answer = ANSWER_SENT;
	return FAR_OK;
}

struct far_to far_req_from(const struct far_req *req)
{
	return (struct far_to){(int32_t)req->session->worker, 0};
}

struct far_agent *far_req_agent(const struct far_req *req)
{
	return req->shard->config.agent;
}

uint64_t far_req_time_left(const struct far_req *req)
{
	return req->time_left;
}

/* ---- later, from any thread ---- */

enum far_status far_defer(struct far_req *req, struct far_deferred **out)
{
	struct shard *s = req->shard;
	if (req->answer != ANSWER_NONE)
		return FAR_INVALID;
	struct far_deferred *d = deferred_alloc(s, req->session, req->call, req->gen, req->fn, req->hashed);
	if (!d)
		return FAR_RESOURCE;
	d->owned = true;
	if (req->time_left != FAR_FOREVER)
		timer_arm(&s->wheel, &d->timer, time_after(clock_now(s->config.clock), req->time_left));
	req->answer = ANSWER_DEFERRED;
	*out = d;
	return FAR_OK;
}

/* Hands the record, its answer filled in, to the shard. */
static enum far_status finish(struct far_deferred *d)
{
	struct shard *s = d->shard;
	enum far_status status =
		(enum far_status)d->status == FAR_TOO_LARGE || (enum far_status)d->status == FAR_RESOURCE
			? (enum far_status)d->status
			: FAR_OK;
	atomic_fetch_add_explicit(&s->visitors, 1, memory_order_acquire);
	if (atomic_exchange_explicit(&d->state, DEFERRED_ANSWERED, memory_order_acq_rel) == DEFERRED_GONE)
		status = FAR_CANCELLED;
	struct far_deferred *head = atomic_load_explicit(&s->answers, memory_order_relaxed);
	do
		d->next = head;
	while (!atomic_compare_exchange_weak_explicit(&s->answers, &head, d, memory_order_release,
						      memory_order_relaxed));
	shard_nudge(s);
	atomic_fetch_sub_explicit(&s->visitors, 1, memory_order_release); /* pairs with fini_keeper */
	return status;
}

static void set_error(struct far_deferred *d, enum far_status status, int32_t code, const char *text, size_t len)
{
	d->status = (uint8_t)status;
	d->executed = FAR_EXECUTED_YES;
	d->code = code;
	d->len = 0;
	if (len && (d->buf = buf_alloc(len))) {
		memcpy(buf_data(d->buf), text, len);
		d->len = len;
	}
}

/* Where the bytes of the answer go; NULL: an error was set instead. */
static void *deferred_room(struct far_deferred *d, size_t len)
{
	static const char large[] = "the answer is larger than a message can be",
			  none[] = "the callee has no memory for "
				   "the answer";
	if (len > FAR_MSG_BYTES_MAX) {
		set_error(d, FAR_TOO_LARGE, 0, large, sizeof large - 1);
		return NULL;
	}
	d->buf = buf_alloc(len ? len : 1);
	if (!d->buf) {
		set_error(d, FAR_RESOURCE, 0, none, sizeof none - 1);
		return NULL;
	}
	d->len = len;
	return buf_data(d->buf);
}

enum far_status far_deferred_reply(struct far_deferred *d, const void *data, size_t len)
{
	void *at = deferred_room(d, len);
	if (at && len)
		memcpy(at, data, len);
	return finish(d);
}

enum far_status far_deferred_return(struct far_deferred *d, const struct far_val *value)
{
	struct far_val none = far_none();
	if (!value)
		value = &none;
	struct far_err err;
	size_t len = d->fn ? values_size(value, 1, &err) : SIZE_MAX;
	if (!d->fn) {
		static const char text[] = "far_deferred_return answers typed calls; use far_deferred_reply";
		set_error(d, FAR_INVALID, 0, text, sizeof text - 1);
	} else if (!signature_result_fits(&d->fn->signature, value)) {
		static const char text[] = "the result does not fit the function's signature";
		set_error(d, FAR_SIGNATURE, 0, text, sizeof text - 1);
	} else if (len == SIZE_MAX) {
		set_error(d, err.status, 0, err.text, strlen(err.text));
	} else {
		void *at = deferred_room(d, len);
		if (at)
			values_write(value, 1, at, len);
	}
	return finish(d);
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
	set_error(d, status, code, text, n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
	return finish(d);
}

void far_deferred_drop(struct far_deferred *d)
{
	static const char text[] = "the callee dropped the request without an answer";
	set_error(d, FAR_REMOTE, 0, text, sizeof text - 1);
	finish(d);
}

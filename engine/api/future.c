/* SPDX-License-Identifier: BSD-3-Clause */
/** Futures as the application sees them: results, waits. */
#include "api/agent.h"
#include "base/error.h"
#include "base/must.h"
#include "wire/values.h"

#include <stdio.h>
#include <string.h>

/* A failed future's bytes: the origin's name and the text, each with its NUL. The future may outlive the agent that
 * knows ranks. */
struct failure {
	char origin[FAR_NAME_MAX];
	char text[FAR_ERR_TEXT_MAX];
};

void agent_complete(struct far_future *f, const struct outcome *o)
{
	if (likely(o->status == FAR_OK)) {
		future_complete(f, o);
		return;
	}
	const struct far_agent *a = f->shard->config.agent;
	struct outcome with_origin = *o;
	struct failure failure;
	size_t n = o->len < sizeof failure.text ? o->len : sizeof failure.text - 1;
	snprintf(failure.origin, sizeof failure.origin, "%s",
		 o->origin >= 0 && o->origin < a->world ? a->members[o->origin].name : a->name);
	if (n)
		memcpy(failure.text, o->data, n);
	failure.text[n] = '\0';
	with_origin.data = &failure;
	with_origin.len = offsetof(struct failure, text) + n + 1;
	future_complete(f, &with_origin);
}

static enum far_status failed(const struct far_future *f, struct far_err *err)
{
	enum far_status status = (enum far_status)f->status;
	if (!err)
		return status;
	err->status = status;
	err->executed = (enum far_executed)f->executed;
	err->code = f->code;
	/* Without memory for the answer, or for the failure's bytes, only the class is left. */
	const struct failure *failure = f->len ? future_bytes(f) : NULL;
	const char *text = status == FAR_RESOURCE ? "no memory to keep the answer: finish values, or raise the bound, "
						    "FAR_MEMORY_MAX or far_memory_limit()"
						  : far_status_text(status);
	snprintf(err->origin, sizeof err->origin, "%s", failure ? failure->origin : "");
	snprintf(err->text, sizeof err->text, "%s", failure ? failure->text : text);
	return status;
}

/* Reads the value. 1: it has bytes, which lie in the future or its buffer; 0: it has none; −1: `err` says why. */
static int read_value(struct far_future *f, struct far_val *out, enum far_status *status, struct far_err *err)
{
	size_t n;
	*status = (enum far_status)f->status;
	if (unlikely(*status != FAR_OK)) {
		failed(f, err);
		return -1;
	}
	if (!out)
		return 0;
	if (unlikely(values_read(future_bytes(f), f->len, out, 1, &n, NULL, 0) || n != 1)) {
		*status = err_set(err, FAR_PROTOCOL, "the answer is malformed");
		if (err)
			err->executed = FAR_EXECUTED_YES;
		return -1;
	}
	return out->type >= FAR_TYPE_STRING;
}

enum far_status agent_result(struct far_future *f, struct far_val *out, struct far_err *err)
{
	enum far_status status;
	/* A value with bytes keeps the memory they lie in. */
	if (read_value(f, out, &status, err) == 1) {
		out->own = f->buf ? f->buf : &f->head;
		buf_ref(out->own);
	}
	return status;
}

enum far_status agent_result_last(struct far_future *f, struct far_val *out, struct far_err *err)
{
	enum far_status status;
	int bytes = read_value(f, out, &status, err);
	if (bytes == 1 && !f->buf) { /* our reference becomes the value's */
		out->own = &f->head;
		return status;
	}
	if (bytes == 1) {
		out->own = f->buf;
		f->buf = NULL;
	}
	buf_unref(&f->head);
	return status;
}

bool far_future_done(const struct far_future *f)
{
	return future_done(f);
}

static enum far_status pending(struct far_err *err)
{
	err_set(err, FAR_PENDING, "the call is still pending; it goes on");
	if (err)
		err->executed = FAR_EXECUTED_MAYBE;
	return FAR_PENDING;
}

enum far_status far_future_value(struct far_future *f, struct far_val *out, struct far_err *err)
{
	if (!future_done(f))
		return pending(err);
	return agent_result(f, out, err);
}

static enum far_status wait_one(struct far_future *f, uint64_t until, struct far_err *err)
{
	if (likely(future_done(f)))
		return FAR_OK;
	enum far_status status = agent_may_wait("far_future_wait", err);
	if (unlikely(status))
		return status;
	int error = shard_wait(f->shard, f, until);
	if (unlikely(error))
		return agent_wait_error(error, err);
	return future_done(f) ? FAR_OK : pending(err);
}

static uint64_t wait_limit(uint64_t timeout_ns)
{
	return timeout_ns == 0 || timeout_ns == FAR_FOREVER ? TIME_NEVER
							    : time_after(clock_now(&clock_monotonic), timeout_ns);
}

enum far_status far_future_wait(struct far_future *f, uint64_t timeout_ns, struct far_val *out, struct far_err *err)
{
	enum far_status status = wait_one(f, future_done(f) ? 0 : wait_limit(timeout_ns), err);
	return status ? status : agent_result(f, out, err);
}

enum far_status far_future_wait_all(struct far_future *const *f, size_t n, uint64_t timeout_ns, struct far_err *err)
{
	uint64_t until = wait_limit(timeout_ns);
	for (size_t i = 0; i < n; i++)
		if (future_done(f[i]) && f[i]->status != FAR_OK)
			return agent_result(f[i], NULL, err);
	for (size_t i = 0; i < n; i++) {
		enum far_status status = wait_one(f[i], until, err);
		if (!status)
			status = agent_result(f[i], NULL, err);
		if (status)
			return status;
	}
	return FAR_OK;
}

enum far_status far_future_cancel(struct far_future *f, struct far_err *err)
{
	struct shard *s = f->shard;
	if (future_done(f))
		return FAR_OK;
	if (!s)
		return err_set(err, FAR_INVALID, "this future is not a call's");
	if (shard_held(s)) {
		call_cancel(s, agent_done_future, f);
		return FAR_OK;
	}
	return call_post_cancel(s, agent_done_future, f) ? err_set(err, FAR_RESOURCE, "no memory to cancel the call")
							 : FAR_OK;
}

void far_future_free(struct far_future *f)
{
	if (f)
		buf_unref(&f->head);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Futures: reading results, waits, cancelling. Any thread. */
#include "api/recv_buf.h"
#include "base/error.h"
#include "base/must.h"
#include "core/call.h"
#include "core/call_cancel.h"
#include "core/shard.h"
#include "memory/budget.h"
#include "value/encoding.h"
#include "value/line.h"
#include "value/tree.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum far_status agent_pack(const struct far_val *v, struct packed *p, struct far_err *err)
{
	struct far_val none = far_none();
	if (!v)
		v = &none;
	struct values_plan plan;
	p->len = values_size(v, 1, &plan, err);
	if (p->len == SIZE_MAX)
		return err->status;
	p->tree = plan.rrefs > 0;
	if (unlikely(p->tree)) {
		struct far_val copy;
		enum far_status status = far_val_dup(v, &copy, err);
		p->buf = status ? NULL : copy.own;
		return status;
	}
	p->buf = p->len > FUTURE_INLINE ? buf_alloc(p->len) : NULL;
	if (p->len > FUTURE_INLINE && !p->buf)
		return err_set(err, FAR_RESOURCE, "no memory for a value of %zu bytes", p->len);
	values_write(v, 1, &plan, p->buf ? buf_data(p->buf) : p->bytes);
	return FAR_OK;
}

void agent_complete_value(struct future_listener *l, struct far_future *f, const struct packed *p)
{
	struct completion o = {
		.status = FAR_OK, .executed = FAR_EXECUTED_YES, .data = p->buf ? NULL : p->bytes, .len = p->len};
	if (unlikely(p->tree))
		o.code = FUTURE_TREE;
	future_complete_in(l, f, &o, p->buf);
}

static enum far_status failed(const struct far_future *f, struct far_err *err)
{
	enum far_status status = (enum far_status)f->status;
	if (!err)
		return status;
	err->status = status;
	err->executed = (enum far_executed)f->executed;
	err->code = f->code;
	/* There is only a status if memory for the reply or the failure was short, or the future was dropped. */
	const struct failure *failure = future_len(f) ? future_bytes(f) : NULL;
	char none[FAR_ERR_TEXT_MAX], why[BUDGET_TEXT_MAX];
	if (status == FAR_RESOURCE && !failure) { /* the code is the requested size in MiB: future_complete() */
		budget_text(why, sizeof why, (uint64_t)f->code << 20);
		snprintf(none, sizeof none, "no memory for the reply: %s", why);
		err->code = 0;
	}
	const char *text = status == FAR_RESOURCE ? none
			   : status == FAR_CANCELLED
				   ? "the last reference of the future was freed before it was completed"
				   : far_status_text(status);
	snprintf(err->origin, sizeof err->origin, "%s", failure ? failure->origin : "");
	snprintf(err->text, sizeof err->text, "%s", failure ? failure->text : text);
	return status;
}

/* Reads a value that holds others, or an object of a custom type: it owns memory besides the payload. */
static int read_tree(struct far_future *f, struct far_val *out, enum far_status *status, struct far_err *err)
{
	*status = tree_read(future_bytes(f), future_len(f), f->buf ? f->buf : &f->head, out, err);
	if (*status && err)
		err->executed = FAR_EXECUTED_YES;
	return *status ? -1 : 0;
}

/* Reads the value. 1: its bytes are in the future or its buffer; 0: it has none, or owns them; −1: failed, `err` is
 * filled. */
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
	if (unlikely(f->code == FUTURE_DECODED)) {
		memcpy(out, future_bytes(f), sizeof *out);
		return 0;
	}
	if (unlikely(f->code == FUTURE_TREE)) {
		*out = tree_root(f->buf);
		return 1;
	}
	int error = values_read(future_bytes(f), future_len(f), out, 1, &n, NULL);
	if (unlikely(error == -ENOMEM))
		return read_tree(f, out, status, err);
	if (unlikely(error || n != 1)) {
		*status = err_set(err, FAR_PROTOCOL, "the reply is malformed");
		if (err)
			err->executed = FAR_EXECUTED_YES;
		return -1;
	}
	return out->type >= FAR_TYPE_STRING;
}

enum far_status agent_result(struct far_future *f, struct far_val *out, struct far_err *err)
{
	enum far_status status;
	/* The value takes a reference to the memory of its bytes. */
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
	if (bytes == 1 && !f->buf) { /* the caller's reference moves to the value */
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
	return f && future_done(f);
}

enum far_status agent_pending(const struct far_future *f, struct far_err *err)
{
	if (future_state(f) & FUTURE_UNBOUNDED)
		return err_set(err, FAR_PENDING, "the future is still pending: the application has not completed it");
	err_set(err, FAR_PENDING, "the call is still pending; it goes on");
	if (err)
		err->executed = FAR_EXECUTED_MAYBE;
	return FAR_PENDING;
}

/* Out of line: agent_check_futures() on the fast path would store the future in memory. */
__attribute__((noinline, cold)) static enum far_status no_future(const char *what, struct far_err *err)
{
	struct far_future *none = NULL;
	return agent_check_futures(what, &none, 1, err);
}

enum far_status far_future_value(struct far_future *f, struct far_val *out, struct far_err *err)
{
	if (unlikely(!f))
		return no_future("far_future_value", err);
	uint32_t state = future_state(f);
	if (unlikely(!(state & FUTURE_LINE))) {
		if (!(state & FUTURE_DONE))
			return agent_pending(f, err);
		if (f->status != FAR_OK || f->buf || f->code)
			return agent_result(f, out, err);
	}
	if (likely(out && line_get_one(f->bytes, f->len, out))) {
		out->own = &f->head;
		/* With one reference no other thread can give it away meanwhile. */
		if (likely(atomic_load_explicit(&f->head.refs, memory_order_acquire) == 1 &&
			   (state & (FUTURE_CALL | FUTURE_LISTENED)) == FUTURE_CALL))
			atomic_store_explicit(&f->head.refs, 2, memory_order_relaxed);
		else
			buf_ref(out->own);
		return FAR_OK;
	}
	return agent_result(f, out, err);
}

enum far_status far_future_wait(struct far_future *f, uint64_t timeout_ns, struct far_val *out, struct far_err *err)
{
	if (unlikely(!f))
		return no_future("far_future_wait", err);
	uint32_t state = future_state(f);
	if (unlikely(!(state & FUTURE_DONE))) {
		enum far_status status = agent_may_wait("far_future_wait", err);
		if (unlikely(status))
			return status;
		int error = agent_wait_future(f, agent_wait_limit(timeout_ns, state & FUTURE_UNBOUNDED));
		if (unlikely(error))
			return agent_wait_error(error, FAR_EXECUTED_MAYBE, err);
		if (unlikely(!future_done(f)))
			return agent_pending(f, err);
	}
	return agent_result(f, out, err);
}

struct far_future *far_future_ref(struct far_future *f)
{
	if (f)
		buf_ref(&f->head);
	return f;
}

enum far_status far_future_cancel(struct far_future *f, struct far_err *err)
{
	if (unlikely(!f))
		return no_future("far_future_cancel", err);
	uint32_t state = future_state(f);
	if (state & FUTURE_DONE)
		return FAR_OK;
	if (state & (FUTURE_MANUAL | FUTURE_DERIVED))
		return err_set(err, FAR_INVALID,
			       "far_future_cancel: the future is not that of a call; cancel the calls that "
			       "it waits for");
	struct shard *s = f->shard;
	/* By a task, on the shard's own thread too: callbacks of the call must not run inside this function. The shard
	 * takes tasks after the calls handed over before. */
	return call_submit_cancel(s, f) ? err_set(err, FAR_RESOURCE, "no memory to cancel the call") : FAR_OK;
}

void far_future_free(struct far_future *f)
{
	if (!f)
		return;
	const struct shard_context *top = shard_context_top();
	if (likely(top && top->shard && top->shard == f->shard) && future_cache_give(&top->shard->futures, f))
		return;
	if (unlikely((atomic_load_explicit(&f->state, memory_order_acquire) & (FUTURE_FANOUT | FUTURE_DONE)) ==
		     FUTURE_FANOUT))
		fanout_release(f);
	buf_unref(&f->head);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Continuations, collections and user-made futures. Any thread; callbacks run on the thread that completes the parent.
 */
#include "agent/agent.h"
#include "base/error.h"
#include "base/must.h"
#include "core/flow.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- callbacks ---- */

/* A callback of a parent. At the start of its own buffer `self`. Either `then` and `child`, or `done`. */
struct continuation {
	struct future_listener listener;
	struct far_buf *self;
	far_then_fn *then;
	far_done_fn *done;
	void *user;
	struct far_future *child; /* a reference */
	bool flows;
	struct flow flow; /* that registered it */
};
static_assert(sizeof(struct continuation) <= 1u << BUF_CLASS_MIN, "a callback fits the smallest buffer");

void agent_run_then(struct future_listener *l, far_then_fn *fn, void *user, struct far_future *parent,
		    struct far_future *child)
{
	struct far_val out = far_none();
	struct packed packed;
	struct far_err err;
	memset(&err, 0, sizeof err);
	enum far_status status = fn(parent, &out, &err, user);
	if (likely(!status))
		status = agent_pack(&out, &packed, &err);
	far_val_fini(&out);
	if (likely(!status)) {
		agent_complete_value(l, child, &packed);
		return;
	}
	if ((unsigned)status >= FAR_STATUS_COUNT) {
		err_set(&err, FAR_INVALID, "the callback returned %d, which is not a status", (int)status);
		status = FAR_INVALID;
	}
	err.status = status;
	if (!err.text[0])
		snprintf(err.text, sizeof err.text, "the callback failed: %s", far_status_text(status));
	agent_complete_error(l, child, &err);
}

static void run(struct future_listener *l, struct continuation *c, struct far_future *parent)
{
	if (c->child) {
		agent_run_then(l, c->then, c->user, parent, c->child);
		buf_unref(&c->child->head);
	} else {
		c->done(parent, c->user);
	}
}

static void on_parent(struct future_listener *l, struct far_future *parent)
{
	struct continuation *c = (struct continuation *)(void *)l;
	struct flow_frame frame;
	if (unlikely(c->flows)) {
		flow_enter(&frame, &c->flow);
		flow_drop(&c->flow);
		run(l, c, parent);
		flow_leave(&frame);
	} else {
		run(l, c, parent);
	}
	buf_unref(c->self);
}

static struct continuation *continuation_alloc(void *user, struct far_err *err)
{
	struct far_buf *buf = buf_alloc(sizeof(struct continuation));
	if (!buf) {
		err_set(err, FAR_RESOURCE, "no memory for another callback");
		return NULL;
	}
	struct continuation *c = buf_data(buf);
	*c = (struct continuation){.listener.fn = on_parent, .self = buf, .user = user, .flows = flow_used()};
	if (unlikely(c->flows))
		flow_capture(&c->flow);
	return c;
}

/* A future that its parents f[0, n) complete, not the application. */
static struct far_future *derived_alloc(struct far_future *const *f, size_t n, bool any)
{
	struct far_future *derived = future_alloc(agent_common_shard(f, n));
	if (derived)
		future_mark(derived, FUTURE_DERIVED | (agent_unbounded(f, n, any) ? FUTURE_UNBOUNDED : 0));
	return derived;
}

enum far_status far_future_then(struct far_future *parent, far_then_fn *fn, void *user, struct far_future **child,
				struct far_err *err)
{
	enum far_status status = agent_check_futures("far_future_then", &parent, 1, err);
	if (status)
		return status;
	if (!fn || !child)
		return err_set(
			err, FAR_INVALID,
			"far_future_then: the callback and `child` must not be NULL (far_future_on_done needs no "
			"child)");
	struct continuation *c = continuation_alloc(user, err);
	if (!c)
		return FAR_RESOURCE;
	struct far_future *made = derived_alloc(&parent, 1, false);
	if (!made) {
		flow_drop(&c->flow);
		buf_unref(c->self);
		return agent_no_future(err);
	}
	c->then = fn;
	c->child = made;
	buf_ref(&made->head);
	*child = made;
	future_listen(parent, &c->listener);
	return FAR_OK;
}

enum far_status far_future_on_done(struct far_future *f, far_done_fn *fn, void *user, struct far_err *err)
{
	enum far_status status = agent_check_futures("far_future_on_done", &f, 1, err);
	if (status)
		return status;
	if (!fn)
		return err_set(err, FAR_INVALID, "far_future_on_done: the callback must not be NULL");
	struct continuation *c = continuation_alloc(user, err);
	if (!c)
		return FAR_RESOURCE;
	c->done = fn;
	future_listen(f, &c->listener);
	return FAR_OK;
}

/* ---- collections ---- */

struct collection;

struct member {
	struct future_listener listener;
	struct collection *of;
	struct far_future *failed; /* the future listened to, if it failed: a reference; else NULL */
};

struct collection {
	struct far_buf *self;
	struct far_future *out; /* a reference */
	_Atomic size_t left;    /* members that are not done, plus 1 until all listen */
	bool any;               /* complete with the first member */
	size_t n;
	struct member members[];
};

/* Completes with the error of the first failed member, or with none. */
static void complete_all(struct future_listener *l, struct collection *c)
{
	struct far_future *first = NULL;
	for (size_t i = c->n; i--;)
		if (c->members[i].failed)
			first = c->members[i].failed;
	if (first) {
		struct far_err err;
		agent_result(first, NULL, &err);
		agent_complete_error(l, c->out, &err);
	} else {
		struct packed none;
		agent_pack(NULL, &none, NULL);
		agent_complete_value(l, c->out, &none);
	}
	for (size_t i = 0; i < c->n; i++)
		if (c->members[i].failed)
			buf_unref(&c->members[i].failed->head);
}

static void count_down(struct future_listener *l, struct collection *c)
{
	if (atomic_fetch_sub_explicit(&c->left, 1, memory_order_acq_rel) != 1)
		return;
	if (!c->any)
		complete_all(l, c);
	buf_unref(&c->out->head);
	buf_unref(c->self);
}

static void on_member(struct future_listener *l, struct far_future *f)
{
	struct member *m = (struct member *)(void *)l;
	struct collection *c = m->of;
	if (c->any) {
		if (future_claim(c->out)) {
			struct far_val index = far_int(m - c->members);
			struct packed packed;
			agent_pack(&index, &packed, NULL);
			agent_complete_value(l, c->out, &packed);
		}
	} else if (f->status != FAR_OK) {
		buf_ref(&f->head);
		m->failed = f;
	}
	count_down(l, c);
}

static enum far_status collect(const char *what, struct far_future *const *f, size_t n, bool any,
			       struct far_future **out, struct far_err *err)
{
	enum far_status status = agent_check_futures(what, f, n, err);
	if (status)
		return status;
	if (!out || (any && n == 0))
		return err_set(err, FAR_INVALID,
			       any ? "%s: at least one future, and `out` not NULL"
				   : "%s: `out`, for the future, must not be NULL",
			       what);
	struct far_buf *buf =
		n > FAR_FUTURES_MAX ? NULL : buf_alloc(sizeof(struct collection) + n * sizeof(struct member));
	if (!buf)
		return err_set(err, FAR_RESOURCE, "%s: no memory for a collection of %zu futures", what, n);
	struct far_future *made = derived_alloc(f, n, any);
	if (!made) {
		buf_unref(buf);
		return agent_no_future(err);
	}
	struct collection *c = buf_data(buf);
	*c = (struct collection){.self = buf, .out = made, .any = any, .n = n};
	atomic_store_explicit(&c->left, n + 1, memory_order_relaxed);
	buf_ref(&made->head);
	for (size_t i = 0; i < n; i++)
		c->members[i] = (struct member){.listener.fn = on_member, .of = c};
	for (size_t i = 0; i < n; i++)
		future_listen(f[i], &c->members[i].listener);
	count_down(NULL, c);
	*out = made;
	return FAR_OK;
}

enum far_status far_future_collect(struct far_future *const *f, size_t n, struct far_future **out, struct far_err *err)
{
	return collect("far_future_collect", f, n, false, out, err);
}

enum far_status far_future_collect_any(struct far_future *const *f, size_t n, struct far_future **out,
				       struct far_err *err)
{
	return collect("far_future_collect_any", f, n, true, out, err);
}

/* ---- user-made ---- */

enum far_status far_future_create(struct far_future **out, struct far_err *err)
{
	if (!out)
		return err_set(err, FAR_INVALID, "far_future_create: `out`, for the future, must not be NULL");
	struct far_future *f = future_alloc(NULL);
	if (!f)
		return agent_no_future(err);
	future_mark(f, FUTURE_MANUAL | FUTURE_UNBOUNDED);
	*out = f;
	return FAR_OK;
}

/* Claims the completion for the calling thread. */
static enum far_status claim(struct far_future *f, const char *what, struct far_err *err)
{
	if (!(future_state(f) & FUTURE_MANUAL))
		return err_set(
			err, FAR_INVALID,
			"%s: the application completes user-made futures only, not calls, children or collections",
			what);
	if (!future_claim(f))
		return err_set(err, FAR_INVALID, "%s: the future is already completed", what);
	return FAR_OK;
}

enum far_status far_future_set_value(struct far_future *f, const struct far_val *value, struct far_err *err)
{
	static const char what[] = "far_future_set_value";
	struct far_err own;
	struct packed packed;
	if (!err)
		err = &own;
	enum far_status status = agent_check_futures(what, &f, 1, err);
	if (status || (status = agent_pack(value, &packed, err)))
		return status;
	status = claim(f, what, err);
	if (status) {
		buf_unref(packed.buf);
		return status;
	}
	/* Callbacks may free the last other reference. */
	buf_ref(&f->head);
	agent_complete_value(NULL, f, &packed);
	buf_unref(&f->head);
	return FAR_OK;
}

/* Completes it with an error, for one of several racing threads. */
static enum far_status set_error(const char *what, struct far_future *f, const struct far_err *err)
{
	if (claim(f, what, NULL))
		return FAR_INVALID;
	buf_ref(&f->head);
	agent_complete_error(NULL, f, err);
	buf_unref(&f->head);
	return FAR_OK;
}

enum far_status far_future_pass_error(struct far_future *f, const struct far_err *err)
{
	struct far_err copy;
	if (!f || !err || err->status == FAR_OK || (unsigned)err->status >= FAR_STATUS_COUNT)
		return FAR_INVALID;
	copy = *err;
	copy.text[sizeof copy.text - 1] = copy.origin[sizeof copy.origin - 1] = '\0';
	return set_error("far_future_pass_error", f, &copy);
}

enum far_status far_future_set_error(struct far_future *f, enum far_status status, int32_t code, const char *format,
				     ...)
{
	struct far_err err;
	va_list args;
	if (!f || status == FAR_OK || (unsigned)status >= FAR_STATUS_COUNT)
		return FAR_INVALID;
	if (format) {
		va_start(args, format);
		err_setv(&err, status, format, args);
		va_end(args);
	} else {
		err_set(&err, status, "%s", far_status_text(status));
	}
	err.code = code;
	return set_error("far_future_set_error", f, &err);
}

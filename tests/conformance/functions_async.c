/* SPDX-License-Identifier: BSD-3-Clause */
/** Handlers that answer after they have returned: when another call ends, from its callback.
 * Handlers: shard threads, fibers and threads of the agent. */
#include "functions.h"

#include <stdlib.h>

static void answer_failed(struct far_deferred *d, enum far_status status, const struct far_err *e)
{
	far_deferred_fail(d, status, e->code, "%s", e->text);
}

/* Answers with what the future has. */
static void pass_on(struct far_future *f, void *user)
{
	struct far_val v;
	struct far_err e;
	enum far_status status = far_future_value(f, &v, &e);
	if (status) {
		answer_failed(user, status, &e);
		return;
	}
	far_deferred_return(user, &v);
	far_val_fini(&v);
}

/* The request is answered with what `f` will have; NULL: with the error. */
static enum far_status answer_by(struct far_req *req, struct far_future *f, enum far_status status,
				 const struct far_err *e)
{
	struct far_deferred *d;
	if (status)
		return fail_with(req, status, e);
	status = far_defer(req, &d);
	if (!status) {
		status = far_future_on_done(f, pass_on, d, NULL);
		if (status)
			far_deferred_drop(d);
		status = FAR_OK;
	}
	far_future_free(f);
	return status;
}

HANDLER(async_op_add)
{
	struct far_future *f = NULL;
	struct far_err e;
	enum far_status status = far_rpc_async(far_req_agent(req), args[0].u.s.data, "c::op_add",
					       FAR_ARGS(args[1], args[2]), NULL, &f, &e);
	return answer_by(req, f, status, &e);
}

HANDLER(async_add)
{
	struct far_future *f = NULL;
	struct far_err e;
	enum far_status status =
		far_rpc_async(far_req_agent(req), args[0].u.s.data, "c::add", FAR_ARGS(args[1], args[2]), NULL, &f, &e);
	return answer_by(req, f, status, &e);
}

/* What is to be added once the first sum is there. */
struct addend {
	struct far_val value;
	struct far_future *made; /* to complete, or NULL */
};

static struct addend *addend_new(const struct far_val *v)
{
	struct addend *a = calloc(1, sizeof *a);
	if (a && far_val_dup(v, &a->value, NULL)) {
		free(a);
		a = NULL;
	}
	return a;
}

static void addend_free(struct addend *a)
{
	far_val_fini(&a->value);
	free(a);
}

static enum far_status add_more(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	struct addend *a = user;
	struct far_val v;
	struct sum s;
	enum far_status status = far_future_value(parent, &v, e);
	if (!status) {
		status = sum_of(&s, &v, &a->value);
		if (!status)
			status = far_val_dup(&s.value, out, e);
		sum_fini(&s);
		far_val_fini(&v);
	}
	addend_free(a);
	return status;
}

/* then(): what `fn` of another worker makes of `call`, and the addend here. */
static enum far_status add_after(struct far_req *req, const char *to, const char *fn, const struct far_val *call,
				 size_t n, const struct far_val *addend)
{
	struct far_future *f = NULL, *child = NULL;
	struct far_err e;
	struct addend *c = addend_new(addend);
	if (!c)
		return far_fail(req, FAR_RESOURCE, 0, "no memory");
	enum far_status status = far_rpc_async(far_req_agent(req), to, fn, call, n, NULL, &f, &e);
	if (!status)
		status = far_future_then(f, add_more, c, &child, &e);
	if (status)
		addend_free(c);
	far_future_free(f);
	return answer_by(req, child, status, &e);
}

/* a + b by another worker, then c here. */
HANDLER(async_add_chained)
{
	return add_after(req, args[0].u.s.data, "c::add", FAR_ARGS(args[1], args[2]), &args[3]);
}

static void complete_made(struct far_future *f, void *user)
{
	struct addend *a = user;
	struct far_future *made = a->made;
	struct far_val v = {0};
	if (add_more(f, &v, NULL, a))
		far_future_set_error(made, FAR_REMOTE, 0, "no sum");
	else
		far_future_set_value(made, &v, NULL);
	far_val_fini(&v);
	far_future_free(made);
}

/* The same by a future of the handler's own. */
HANDLER(async_add_ctor)
{
	struct far_future *f = NULL, *made = NULL;
	struct far_err e;
	struct addend *c = addend_new(&args[3]);
	if (!c)
		return far_fail(req, FAR_RESOURCE, 0, "no memory");
	enum far_status status = far_future_create(&made, &e);
	if (!status)
		status = far_rpc_async(far_req_agent(req), args[0].u.s.data, "c::add", FAR_ARGS(args[1], args[2]), NULL,
				       &f, &e);
	if (status) {
		far_future_free(made);
		addend_free(c);
		return fail_with(req, status, &e);
	}
	c->made = far_future_ref(made);
	status = far_future_on_done(f, complete_made, c, &e);
	far_future_free(f);
	return answer_by(req, made, status, &e);
}

/* An asynchronous function of another worker's, which calls that worker; then c here. It cannot wait for it: the kind
 * is inline. */
HANDLER(async_add_nested)
{
	return add_after(req, args[0].u.s.data, "c::async_add", FAR_ARGS(args[0], args[1], args[2]), &args[3]);
}

/* Methods without an object: one that has no state, and one whose state is the class's. */
HANDLER(async_static_add)
{
	return user ? far_fail(req, FAR_REMOTE, 0, "a static method has no state")
		    : async_add_chained(req, args, n, NULL);
}

HANDLER(async_class_add)
{
	const int64_t *class = user;
	return class && *class == 1000 ? async_add_ctor(req, args, n, NULL)
				       : far_fail(req, FAR_REMOTE, 0, "a method of the class needs the class");
}

/* ---- many ---- */

static enum far_status plus(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	struct far_val v;
	enum far_status status = far_future_value(parent, &v, e);
	if (!status)
		*out = far_int(v.u.i + (int64_t)(intptr_t)user);
	return status;
}

/* x + 0 by another worker, then `step` so many times. */
HANDLER(async_multi_chained)
{
	struct far_future *f = NULL, *next = NULL;
	struct far_err e;
	enum far_status status =
		far_rpc_async(far_req_agent(req), args[0].u.s.data, "far::add", FAR_ARGS(args[1], 0), NULL, &f, &e);
	for (int64_t i = 0; i < args[2].u.i && !status; i++) {
		status = far_future_then(f, plus, (void *)(intptr_t)args[3].u.i, &next, &e);
		far_future_free(f);
		f = status ? NULL : next;
	}
	return answer_by(req, f, status, &e);
}

enum { FANOUT_MAX = 32 };

struct fanned {
	struct far_deferred *d;
	struct far_future *f[FANOUT_MAX];
	size_t n;
};

static void answer_all(struct far_future *all, void *user)
{
	struct fanned *x = user;
	struct far_val items[FANOUT_MAX], v;
	struct far_err e;
	enum far_status status = far_future_value(all, NULL, &e);
	for (size_t i = 0; i < x->n && !status; i++)
		status = far_future_value(x->f[i], &items[i], &e);
	v = far_list(items, x->n);
	if (status)
		answer_failed(x->d, status, &e);
	else
		far_deferred_return(x->d, &v);
	for (size_t i = 0; i < x->n; i++)
		far_future_free(x->f[i]);
	free(x);
}

/* x + i · step for each i, by calls that are under way at once. */
HANDLER(async_multi_fanout)
{
	struct fanned *x = calloc(1, sizeof *x);
	struct far_future *all = NULL;
	struct far_err e;
	enum far_status status = x && args[2].u.i <= FANOUT_MAX ? far_defer(req, &x->d) : FAR_RESOURCE;
	if (status) {
		free(x);
		return far_fail(req, status, 0, "not that many");
	}
	for (int64_t i = 0; i < args[2].u.i && !status; i++) {
		status = far_rpc_async(far_req_agent(req), args[0].u.s.data, "far::add",
				       FAR_ARGS(args[1], i * args[3].u.i), NULL, &x->f[i], &e);
		x->n += !status;
	}
	if (!status)
		status = far_future_collect(x->f, x->n, &all, &e);
	if (!status)
		status = far_future_on_done(all, answer_all, x, &e);
	far_future_free(all);
	if (!status)
		return FAR_OK;
	answer_failed(x->d, status, &e);
	for (size_t i = 0; i < x->n; i++)
		far_future_free(x->f[i]);
	free(x);
	return FAR_OK;
}

/* ---- errors ---- */

HANDLER(async_raise)
{
	return far_fail(req, FAR_REMOTE, 5, "Expected error");
}

/* Of the deferred answer. */
HANDLER(async_raise_later)
{
	struct far_deferred *d;
	if (far_defer(req, &d))
		return FAR_RESOURCE;
	far_deferred_fail(d, FAR_REMOTE, 5, "Expected error");
	return FAR_OK;
}

/* Neither an answer nor anything that promises one. */
HANDLER(async_no_answer)
{
	return FAR_OK;
}

/* A promise that is given up. */
HANDLER(async_other_type)
{
	struct far_deferred *d;
	if (far_defer(req, &d))
		return FAR_RESOURCE;
	far_deferred_drop(d);
	return FAR_OK;
}

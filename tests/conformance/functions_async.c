/* SPDX-License-Identifier: BSD-3-Clause */
/** Handlers that answer after they have returned: when another call ends, from its callback. */
#include "functions.h"

#include <pthread.h>
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

/* then(): a + b by another worker, then c here. */
HANDLER(async_add_chained)
{
	struct far_future *f = NULL, *child = NULL;
	struct far_err e;
	struct addend *c = addend_new(&args[3]);
	if (!c)
		return far_fail(req, FAR_RESOURCE, 0, "no memory");
	enum far_status status =
		far_rpc_async(far_req_agent(req), args[0].u.s.data, "c::add", FAR_ARGS(args[1], args[2]), NULL, &f, &e);
	if (!status)
		status = far_future_then(f, add_more, c, &child, &e);
	if (status)
		addend_free(c);
	far_future_free(f);
	return answer_by(req, child, status, &e);
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

/* An asynchronous function of another worker's, and this worker's call of it. */
HANDLER(async_add_nested)
{
	struct far_val ab;
	struct far_err e;
	const char *me = conform_name(functions_rank(req));
	enum far_status status = far_rpc_sync(far_req_agent(req), args[0].u.s.data, "c::async_add",
					      FAR_ARGS(me, args[1], args[2]), NULL, &ab, &e);
	if (status)
		return fail_with(req, status, &e);
	status = answer_sum(req, &ab, &args[3]);
	far_val_fini(&ab);
	return status;
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
	(void)req;
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

/* ---- k requests that are answered at once ---- */

static struct {
	pthread_mutex_t lock;
	struct far_deferred *open[WORLD * 4];
	int64_t n;
} batch = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* When the k-th has come all get k. */
HANDLER(batched)
{
	struct far_deferred *d, *ready[WORLD * 4];
	int64_t k = args[0].u.i, got = 0;
	if (k > WORLD * 4 || far_defer(req, &d))
		return FAR_RESOURCE;
	pthread_mutex_lock(&batch.lock);
	batch.open[batch.n++] = d;
	if (batch.n == k) {
		got = batch.n;
		batch.n = 0;
		for (int64_t i = 0; i < got; i++)
			ready[i] = batch.open[i];
	}
	pthread_mutex_unlock(&batch.lock);
	struct far_val v = far_int(got);
	for (int64_t i = 0; i < got; i++)
		far_deferred_return(ready[i], &v);
	return FAR_OK;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * far::rref_call: calls a function of this worker with a value of this shard as its first argument. Shard thread.
 *
 * An inline function runs at once, if the value is there, and reads the value itself. Every other one is called by this
 * worker, with a copy, once the value is there.
 */
#include "builtin/rref_call.h"

#include "agent/agent.h"
#include "base/error.h"
#include "base/must.h"
#include "core/deferred.h"
#include "core/dispatch.h"
#include "core/request.h"
#include "core/shard.h"
#include "features/references/rref.h"
#include "value/registry.h"

#include <string.h>

/* A request that waits for its value, or for the answer of the function. In a buffer. */
struct pending {
	struct far_buf *buf;
	struct far_agent *agent;
	struct far_deferred *answer;
	struct far_rref *rref; /* a reference */
	struct far_val args;   /* a copy: the name of the function and the list */
	uint64_t deadline;     /* TIME_NEVER: none */
};

static void pending_free(struct pending *p)
{
	far_rref_free(p->rref);
	far_val_fini(&p->args);
	buf_unref(p->buf);
}

static void fail(struct pending *p, const struct far_err *err)
{
	deferred_error(p->answer, err->status, err->executed, err->code, err->text, strlen(err->text));
	deferred_finish(p->answer);
}

static void on_answer(struct far_future *f, void *user)
{
	struct pending *p = user;
	struct far_val v;
	struct far_err err;
	if (far_future_value(f, &v, &err)) {
		fail(p, &err);
	} else {
		far_deferred_return(p->answer, &v);
		far_val_fini(&v);
	}
	pending_free(p);
}

/* The arguments of the function: the value, then the list's items. */
static size_t arguments(const struct far_val *value, const struct far_val *list, struct far_val *args)
{
	args[0] = *value;
	args[0].kw = NULL;
	if (list->u.list.n)
		memcpy(args + 1, list->u.list.items, list->u.list.n * sizeof *args);
	return list->u.list.n + 1;
}

static enum far_status call(struct pending *p, const struct far_val *value, struct far_err *err)
{
	const struct far_val *parts = p->args.u.list.items;
	uint64_t now = clock_now(p->agent->clock);
	struct far_call_opts opts = {.timeout_ns = p->deadline == TIME_NEVER ? FAR_FOREVER
						   : p->deadline > now       ? p->deadline - now
									     : 1};
	struct far_val args[FAR_ARGS_MAX];
	struct far_future *f;
	size_t n = arguments(value, &parts[1], args);
	enum far_status status =
		far_rpc_async_unchecked(p->agent, p->agent->name, parts[0].u.s.data, args, n, &opts, &f, err);
	if (status)
		return status;
	status = far_future_on_done(f, on_answer, p, err);
	far_future_free(f);
	return status;
}

static void on_value(struct far_future *f, void *user)
{
	struct pending *p = user;
	struct far_val v;
	struct far_err err;
	(void)f;
	enum far_status status = far_rref_local_value(p->rref, 0, &v, &err);
	if (!status) {
		status = call(p, &v, &err);
		far_val_fini(&v);
	}
	if (!status)
		return;
	err.executed = FAR_EXECUTED_NO;
	fail(p, &err);
	pending_free(p);
}

static enum far_status refuse(struct far_req *req, const struct far_err *err)
{
	dispatch_error(req, err->status, FAR_EXECUTED_NO, 0, err->text, strlen(err->text));
	return FAR_OK;
}

/* FAR_PENDING: the function is not inline. */
static enum far_status run_here(struct far_req *req, const struct far_val *value, const struct far_val *given)
{
	struct far_val args[FAR_ARGS_MAX], converted[FAR_ARGS_MAX];
	const char *name = given[1].u.s.data;
	const struct function *fn = registry_find(req->shard->registry, name);
	struct far_err err;
	if (!fn) {
		err_set(&err, FAR_NO_FUNCTION, "worker \"%s\" has no function %.128s; register it there",
			req->shard->config.name, name);
		return refuse(req, &err);
	}
	if (registry_resolve(fn, args, arguments(value, &given[2], args), &fn, converted, &err))
		return refuse(req, &err);
	if (fn->kind != FAR_KIND_INLINE)
		return FAR_PENDING;
	req->fn = fn;
	req->name = fn->signature.name;
	req->shard->context.handler = req->name;
	return fn->fn(req, converted, fn->signature.params_n, fn->user);
}

static enum far_status defer(struct far_req *req, struct rref_record *r, const struct far_val *given)
{
	struct far_buf *buf = buf_alloc(sizeof(struct pending));
	struct far_val parts = far_list(&given[1], 2);
	struct far_err err = {0};
	if (!buf)
		return far_fail(req, FAR_RESOURCE, 0, "no memory for a call with a value");
	struct pending *p = buf_data(buf);
	*p = (struct pending){.buf = buf, .agent = far_req_agent(req), .deadline = TIME_NEVER};
	enum far_status status = far_val_dup(&parts, &p->args, &err);
	if (!status && req->time_left != FAR_FOREVER)
		p->deadline = time_after(clock_now(p->agent->clock), req->time_left);
	if (!status)
		status = far_defer(req, &p->answer);
	if (status) {
		pending_free(p);
		return far_fail(req, status, 0, "no room for a call with a value: %s", err.text);
	}
	p->rref = far_rref_ref(&r->rref);
	status = far_future_on_done(r->value, on_value, p, &err);
	if (status) {
		fail(p, &err);
		pending_free(p);
	}
	return FAR_OK;
}

static enum far_status rref_call(struct far_req *req, const struct far_val *given, size_t n, void *user)
{
	struct rref_record *r = rref_as_record(given[0].u.rref);
	struct far_val value;
	struct far_err err;
	(void)n, (void)user;
	if (!r) {
		err_set(&err, FAR_INVALID, "the value of the reference is not on this shard of worker \"%s\"",
			req->shard->config.name);
		return refuse(req, &err);
	}
	if (given[2].u.list.n >= FAR_ARGS_MAX) {
		err_set(&err, FAR_BAD_ARGS, "%zu arguments; %d are the maximum, with the value", given[2].u.list.n + 1,
			FAR_ARGS_MAX);
		return refuse(req, &err);
	}
	if (r->settled && !r->status && !far_rref_local_value(&r->rref, 0, &value, &err)) {
		enum far_status status = run_here(req, &value, given);
		far_val_fini(&value);
		if (status != FAR_PENDING)
			return status;
	}
	return defer(req, r, given);
}

const struct far_function rref_call_function = {"far::rref_call(rref value, str function, List args) -> Any",
						FAR_KIND_INLINE, rref_call, NULL};

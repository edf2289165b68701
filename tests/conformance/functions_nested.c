/* SPDX-License-Identifier: BSD-3-Clause */
/** Handlers that call others. Handlers: shard threads, fibers and threads of the agent. */
#include "functions.h"

#include <stdlib.h>
#include <string.h>

int functions_rank(struct far_req *req)
{
	struct far_worker_info self;
	far_worker_self(far_req_agent(req), &self);
	return self.rank;
}

enum far_status fail_with(struct far_req *req, enum far_status status, const struct far_err *e)
{
	return far_fail(req, status, e->code, "%s", e->text);
}

enum far_status answer_with(struct far_req *req, struct far_val *v)
{
	enum far_status status = far_return(req, v);
	far_val_fini(v);
	return status;
}

/* a + b, by another worker. */
HANDLER(nested_rpc)
{
	struct far_val v;
	struct far_err e;
	enum far_status status =
		far_rpc_sync(far_req_agent(req), args[0].u.s.data, "c::add", FAR_ARGS(args[1], args[2]), NULL, &v, &e);
	return status ? fail_with(req, status, &e) : answer_with(req, &v);
}

/* Waits `ms`, then calls the next worker without waiting for the answer, `ttl` times in all; each call is counted by
 * the worker that runs it. */
HANDLER(multi_layer)
{
	struct far_future *f;
	struct far_err e;
	int32_t to = (int32_t)args[0].u.i;
	functions_count();
	if (args[2].u.i > 0) {
		enum far_status status = functions_park((uint64_t)args[2].u.i * FAR_MS);
		if (status)
			return far_fail(req, status, 0, "the wait was ended");
	}
	if (args[1].u.i > 0) {
		enum far_status status =
			far_rpc_async_to(far_req_agent(req), (struct far_to){to, -1}, "c::multi_layer",
					 FAR_ARGS((to + 1) % WORLD, args[1].u.i - 1, args[2].u.i), NULL, &f, &e);
		if (status)
			return fail_with(req, status, &e);
		far_future_free(f);
	}
	return far_return(req, NULL);
}

HANDLER(future_in_rpc)
{
	struct far_future *f;
	struct far_val v;
	struct far_err e;
	enum far_status status =
		far_rpc_async(far_req_agent(req), args[0].u.s.data, "c::add", FAR_ARGS(args[1], args[2]), NULL, &f, &e);
	if (status)
		return fail_with(req, status, &e);
	status = far_future_wait(f, 0, &v, &e);
	far_future_free(f);
	return status ? fail_with(req, status, &e) : answer_with(req, &v);
}

/* Its sum with itself. */
static enum far_status twice(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	struct far_val v;
	struct sum s;
	enum far_status status = far_future_value(parent, &v, e);
	if (status)
		return status;
	status = sum_of(&s, &v, &v);
	if (!status)
		status = far_val_dup(&s.value, out, e);
	sum_fini(&s);
	far_val_fini(&v);
	return status;
}

HANDLER(callback_in_rpc)
{
	struct far_future *f, *child;
	struct far_val v;
	struct far_err e;
	enum far_status status =
		far_rpc_async(far_req_agent(req), args[0].u.s.data, "c::add", FAR_ARGS(args[1], args[2]), NULL, &f, &e);
	if (status)
		return fail_with(req, status, &e);
	status = far_future_then(f, twice, NULL, &child, &e);
	far_future_free(f);
	if (status)
		return fail_with(req, status, &e);
	status = far_future_wait(child, 0, &v, &e);
	far_future_free(child);
	return status ? fail_with(req, status, &e) : answer_with(req, &v);
}

/* What another worker's function raises, and what no worker has. */
HANDLER(nested_raise)
{
	struct far_err e;
	enum far_status status =
		far_rpc_sync(far_req_agent(req), args[0].u.s.data, "c::raise", FAR_ARGS(args[1]), NULL, NULL, &e);
	return status ? fail_with(req, status, &e) : far_return(req, NULL);
}

HANDLER(nested_nothing)
{
	struct far_err e;
	enum far_status status = far_rpc_sync(far_req_agent(req), args[0].u.s.data, "c::nonexisting_function",
					      FAR_NOARGS, NULL, NULL, &e);
	return status ? fail_with(req, status, &e) : far_return(req, NULL);
}

/* A call that is given so little time, and a fetch. */
HANDLER(nested_within)
{
	struct far_call_opts opts = {.timeout_ns = (uint64_t)args[1].u.i * FAR_MS};
	struct far_val v;
	struct far_err e;
	enum far_status status = far_rpc_sync(far_req_agent(req), args[0].u.s.data, "c::slow_add",
					      FAR_ARGS(1, 2, args[2].u.i), &opts, &v, &e);
	return status ? fail_with(req, status, &e) : answer_with(req, &v);
}

HANDLER(to_here_within)
{
	struct far_val v;
	struct far_err e;
	enum far_status status = far_rref_to_here(args[0].u.rref, (uint64_t)args[1].u.i * FAR_MS, &v, &e);
	return status ? fail_with(req, status, &e) : answer_with(req, &v);
}

/* A future is nothing that can be sent: no type of value is one. */
HANDLER(return_future)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_COUNT;
	return far_return(req, &v);
}

/* x · x, of n × n. */
HANDLER(heavy)
{
	const struct far_tensor *x = &args[0].u.t;
	uint64_t k = x->shape[0];
	const float *in = x->data;
	void *data;
	if (x->dtype != FAR_F32 || x->ndim != 2 || x->shape[1] != k)
		return far_fail(req, FAR_BAD_ARGS, 0, "a square of floats, please");
	float *out = calloc(k * k + 1, sizeof *out);
	if (!out)
		return FAR_RESOURCE;
	for (uint64_t i = 0; i < k; i++)
		for (uint64_t j = 0; j < k; j++)
			for (uint64_t m = 0; m < k; m++)
				out[i * k + m] += in[i * k + j] * in[j * k + m];
	enum far_status status = far_return_tensor(req, FAR_F32, 2, x->shape, &data);
	if (!status)
		memcpy(data, out, k * k * sizeof *out);
	free(out);
	return status;
}

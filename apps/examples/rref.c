/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Remote references: a value stays on its owner, and messages carry references to it.
 * Main thread of each worker; handlers run on shard threads.
 *
 *	farcall run -n 3 -- ./rref
 */
#include "args.h"

#include <farcall/farcall.h>

#define ROWS 1000

/* ---- registered functions ---- */

/* Runs on the owner: far_remote() keeps its result there. */
static enum far_status table(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	void *data;
	uint64_t rows = (uint64_t)args[0].u.i;
	(void)n, (void)user;
	if (args[0].u.i < 1)
		return far_fail(req, FAR_BAD_ARGS, 0, "a table of %lld rows", (long long)args[0].u.i);
	enum far_status status = far_return_tensor(req, FAR_F64, 1, &rows, &data);
	for (uint64_t i = 0; i < rows && !status; i++)
		((double *)data)[i] = (double)i;
	return status;
}

static double sum_of(const struct far_val *v)
{
	double sum = 0;
	for (size_t i = 0; i < far_tensor_count(&v->u.t); i++)
		sum += ((const double *)v->u.t.data)[i];
	return sum;
}

/* Any holder of a reference may fetch the value. It comes directly from the owner, not from the worker that passed the
 * reference on. A fiber, because the fetch waits: the shard serves other requests meanwhile. */
static enum far_status sum_there(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v, sum;
	struct far_err err;
	(void)n, (void)user;
	enum far_status status = far_rref_to_here(args[0].u.rref, 0, &v, &err);
	if (status)
		return far_fail(req, status, err.code, "%s", err.text);
	sum = far_float(sum_of(&v));
	far_val_fini(&v);
	return far_return(req, &sum);
}

/* On the owner: the value itself, without a copy. */
static enum far_status sum_local(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v, sum;
	struct far_err err;
	(void)n, (void)user;
	enum far_status status = far_rref_local_value(args[0].u.rref, 0, &v, &err);
	if (status)
		return far_fail(req, status, err.code, "%s", err.text);
	sum = far_float(sum_of(&v));
	far_val_fini(&v);
	return far_return(req, &sum);
}

static const struct far_function functions[] = {
	{"demo::table(int rows) -> Tensor", FAR_KIND_INLINE, table, NULL},
	{"demo::sum_there(rref values) -> float", FAR_KIND_FIBER, sum_there, NULL},
	{"demo::sum_local(rref values) -> float", FAR_KIND_FIBER, sum_local, NULL},
};

/* ---- worker0 ---- */

static enum far_status share(struct far_agent *agent, struct far_rref *r, struct far_err *err)
{
	struct far_val out;
	enum far_status status = far_rref_to_here(r, 0, &out, err);
	if (status)
		return status;
	printf("fetched by worker0: %zu values, their sum is %.0f\n", far_tensor_count(&out.u.t), sum_of(&out));
	far_val_fini(&out);
	status = far_rpc_sync(agent, "worker2", "demo::sum_there", FAR_ARGS(r), NULL, &out, err);
	if (status)
		return status;
	printf("fetched by worker2: their sum is %.0f\n", out.u.f);
	status = far_rpc_sync(agent, "worker1", "demo::sum_local", FAR_ARGS(r), NULL, &out, err);
	if (!status)
		printf("by their owner, without a copy: %.0f\n", out.u.f);
	return status;
}

static enum far_status work(struct far_agent *agent, struct far_err *err)
{
	struct far_rref *r, *failed;
	/* Returns at once, possibly before the value was made. Later uses wait for it. */
	enum far_status status = far_remote(agent, "worker1", "demo::table", FAR_ARGS(ROWS), NULL, &r, err);
	if (status)
		return status;
	printf("a table on %s, ours: %s\n", far_rref_owner_name(r), far_rref_is_owner(r) ? "yes" : "no");
	status = share(agent, r, err);
	/* After the last holder's far_rref_free() the owner frees the value. */
	far_rref_free(r);
	if (status)
		return status;
	/* An error of the function is kept like a value: fetching returns it. */
	status = far_remote(agent, "worker2", "demo::table", FAR_ARGS(-1), NULL, &failed, err);
	if (status)
		return status;
	if (far_rref_to_here(failed, 0, NULL, err))
		printf("a failed one: %s from %s: %s\n", far_status_name(err->status), err->origin, err->text);
	far_rref_free(failed);
	return FAR_OK;
}

int main(int argc, char **argv)
{
	struct far_opts opts = {.functions = functions, .functions_n = sizeof functions / sizeof *functions};
	struct far_agent *agent;
	struct far_err err = {0};
	args_read(argc, argv, "farcall run -n 3 -- ", "Values that stay on their owner, by reference.", NULL, 0);
	if (far_init_rpc("worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err))
		return far_err_print(stderr, &err);
	enum far_status status = far_self(agent).worker == 0 ? work(agent, &err) : far_serve(agent, 0, &err);
	if (status)
		far_err_print(stderr, &err);
	/* Prints references that are still held, with their holders, on stderr. */
	if (far_shutdown(agent, 0, &err))
		return far_err_print(stderr, &err);
	return status;
}

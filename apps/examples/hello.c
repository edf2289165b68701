/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A group, a synchronous call, asynchronous calls, and errors.
 * Main thread of each worker; handlers run on shard threads.
 *
 *	farcall run -n 3 -- ./hello
 */
#include "args.h"

#include <farcall/farcall.h>

#define CALLS 3

/* ---- registered functions ---- */

/* `args` match the signature below, so the handler does not check their types. far_return() copies its value. */
static enum far_status greet(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_worker_info self;
	struct far_val answer;
	char text[2 * FAR_NAME_MAX + 32];
	(void)n, (void)user;
	far_worker_self(far_req_agent(req), &self);
	snprintf(text, sizeof text, "hello %s, this is %s", (const char *)args[0].u.s.data, self.name);
	answer = far_str(text);
	return far_return(req, &answer);
}

static enum far_status root(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val answer;
	(void)n, (void)user;
	if (args[0].u.i < 0)
		return far_fail(req, FAR_REMOTE, 33, "%lld has no root", (long long)args[0].u.i);
	int64_t x = 0;
	while ((x + 1) * (x + 1) <= args[0].u.i)
		x++;
	answer = far_int(x);
	return far_return(req, &answer);
}

/* Both neither wait nor compute for long, so they run inline where the request arrives, the cheapest kind. A function
 * that waits is FAR_KIND_FIBER. */
static const struct far_function functions[] = {
	{"demo::greet(str who) -> str", FAR_KIND_INLINE, greet, NULL},
	{"demo::root(int x) -> int", FAR_KIND_INLINE, root, NULL},
};

/* ---- worker0 ---- */

/* Calls and waits for the result. */
static enum far_status sync_call(struct far_agent *agent, struct far_err *err)
{
	struct far_val out;
	enum far_status status = far_rpc_sync(agent, "worker1", "demo::greet", FAR_ARGS("worker0"), NULL, &out, err);
	if (status)
		return status;
	printf("sync: %s\n", (const char *)out.u.s.data);
	far_val_fini(&out); /* the result belongs to the caller */
	return FAR_OK;
}

/* Starts all calls, then waits for their results. */
static enum far_status async_calls(struct far_agent *agent, struct far_err *err)
{
	struct far_future *f[CALLS] = {NULL};
	enum far_status status = FAR_OK;
	for (int i = 0; i < CALLS && !status; i++) {
		const char *to = i % 2 ? "worker2" : "worker1";
		status = far_rpc_async(agent, to, "demo::root", FAR_ARGS(100 * (i + 1)), NULL, &f[i], err);
	}
	for (int i = 0; i < CALLS && !status; i++) {
		struct far_val out;
		status = far_future_wait(f[i], 0, &out, err);
		if (!status)
			printf("async: the root of %d is %lld\n", 100 * (i + 1), (long long)out.u.i);
	}
	for (int i = 0; i < CALLS; i++)
		far_future_free(f[i]); /* NULL is allowed */
	return status;
}

/* An error has a class, a code, a text, the worker where it arose, and whether the function ran. */
static void errors(struct far_agent *agent)
{
	struct far_err err;
	if (far_rpc_sync(agent, "worker2", "demo::root", FAR_ARGS(-4), NULL, NULL, &err))
		printf("error: %s from %s, code %d, executed %s: %s\n", far_status_name(err.status), err.origin,
		       err.code, far_executed_name(err.executed), err.text);
	/* Arguments that do not match the signature fail here, before anything is sent. */
	if (far_rpc_sync(agent, "worker2", "demo::root", FAR_ARGS("four"), NULL, NULL, &err))
		printf("error: %s, executed %s\n", far_status_name(err.status), far_executed_name(err.executed));
	if (far_rpc_sync(agent, "worker9", "demo::root", FAR_ARGS(4), NULL, NULL, &err))
		printf("error: %s, executed %s\n", far_status_name(err.status), far_executed_name(err.executed));
}

int main(int argc, char **argv)
{
	struct far_opts opts = {.functions = functions, .functions_n = sizeof functions / sizeof *functions};
	struct far_agent *agent;
	struct far_err err = {0};
	args_read(argc, argv, "farcall run -n 3 -- ", "A group, calls, and errors.", NULL, 0);
	/* Rank, size and store address come from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: farcall run sets them.
	 */
	if (far_init_rpc("worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err))
		return far_err_print(stderr, &err);
	enum far_status status = FAR_OK;
	if (far_world_size(agent) < 3) {
		fprintf(stderr, "hello: give it three workers: farcall run -n 3 -- ./hello\n");
		status = FAR_INVALID;
	} else if (far_self(agent).worker == 0) {
		printf("a group of %d\n", far_world_size(agent));
		status = sync_call(agent, &err);
		if (!status)
			status = async_calls(agent, &err);
		if (status)
			far_err_print(stderr, &err);
		errors(agent);
	} else {
		status = far_serve(agent, 0, &err); /* until worker0 leaves */
	}
	if (far_shutdown(agent, 0, &err))
		return far_err_print(stderr, &err);
	return status;
}

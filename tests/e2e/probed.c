/* SPDX-License-Identifier: BSD-3-Clause */
/** Two agents in one process, for those that look at its static probes: 20 calls that end well, 5 that fail, and one so
 * slow that shards sleep meanwhile. Main thread of each process; handlers on shard threads. */
#include "api_together.h"
#include "handlers.h"

enum { WELL = 20, BADLY = 5 };

static enum far_status refuse(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, FAR_INVALID, 0, "refused");
}

static enum far_status rest(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_future *never;
	CHECK_STATUS(far_future_create(&never, NULL), FAR_OK, NULL);
	CHECK(far_future_wait(never, 300 * FAR_MS, NULL, NULL) != FAR_OK);
	far_future_free(never);
	return far_return(req, NULL);
}

static const struct far_function functions[] = {
	{"p::echo(int x) -> int", FAR_KIND_INLINE, handler_echo, NULL},
	{"p::refuse() -> none", FAR_KIND_FIBER, refuse, NULL},
	{"p::rest() -> none", FAR_KIND_FIBER, rest, NULL},
};

int main(void)
{
	struct together t[2];
	struct far_err err;
	struct far_val v;
	together_begin(t, 2, &(struct far_opts){.functions = functions, .functions_n = 3, .nic = "shm"});
	for (int i = 0; i < WELL; i++) {
		CHECK_STATUS(far_rpc_sync(t[0].agent, "worker1", "p::echo", FAR_ARGS(i), NULL, &v, &err), FAR_OK, &err);
		CHECK(v.u.i == i);
	}
	for (int i = 0; i < BADLY; i++)
		CHECK(far_rpc_sync(t[0].agent, "worker1", "p::refuse", FAR_NOARGS, NULL, &v, &err) == FAR_INVALID);
	CHECK_STATUS(far_rpc_sync(t[0].agent, "worker1", "p::rest", FAR_NOARGS, NULL, &v, &err), FAR_OK, &err);
	together_all(t, 2, together_leave);
	return 0;
}

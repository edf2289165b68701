/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 2 */
/** Handlers that wait: on fibers, and on worker threads. */
#include "check.h"

#include <stdatomic.h>

enum { DEPTH = 64 };

static struct far_agent *agent;
static int rank;

/* Calls the other worker one level less deep, and adds one to what it says. */
static enum far_status descend(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_err err;
	struct far_val below = {0}, v;
	(void)n;
	if (args[0].u.i == 0) {
		v = far_int(0);
		return far_return(req, &v);
	}
	enum far_status status = far_rpc_sync(far_req_agent(req), check_name(1 - rank), user, FAR_ARGS(args[0].u.i - 1),
					      NULL, &below, &err);
	if (status)
		return far_fail(req, status, 0, "level %d: %s", (int)args[0].u.i, err.text);
	v = far_int(below.u.i + 1);
	return far_return(req, &v);
}

int main(void)
{
	const struct far_function functions[] = {
		{"test::fiber(int depth) -> int", FAR_KIND_FIBER, descend, (void *)(uintptr_t) "test::fiber"},
		{"test::blocking(int depth) -> int", FAR_KIND_BLOCKING, descend, (void *)(uintptr_t) "test::blocking"},
	};
	struct far_opts opts = {.functions = functions, .functions_n = 2, .blocking_threads = 2};
	struct far_err err;
	struct far_val out = {0};
	rank = check_rank();
	agent = check_join(&opts);
	if (rank == 0) {
		for (int i = 0; i < 100; i++) {
			CHECK_STATUS(far_rpc_sync(agent, "worker1", "test::fiber", FAR_ARGS(DEPTH), NULL, &out, &err),
				     FAR_OK, &err);
			CHECK(out.u.i == DEPTH);
		}
		CHECK_STATUS(far_rpc_sync(agent, "worker1", "test::blocking", FAR_ARGS(3), NULL, &out, &err), FAR_OK,
			     &err);
		CHECK(out.u.i == 3);
	}
	check_leave(agent);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** An agent in an event loop: its descriptor, and what far_agent_poll() does. The test's thread is the loop. */
#include "handlers.h"
#include "open_files.h"
#include "own_agent.h"

#include <poll.h>

static struct far_agent *a;

static enum far_status polls(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int((int64_t)far_agent_poll(far_req_agent(req)));
	return far_return(req, &v);
}

static void setup(void)
{
	static const struct far_function functions[] = {
		{"t::twice(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL},
		{"t::polls() -> int", FAR_KIND_INLINE, polls, NULL},
		{"t::blocking(int a) -> int", FAR_KIND_BLOCKING, handler_twice, NULL}};
	own_dir_make();
	a = own_begin(&(struct far_opts){.progress = FAR_PROGRESS_CALLER, .functions = functions, .functions_n = 3});
}

static void teardown(void)
{
	own_end(a);
	own_dir_remove();
}

TestSuite(agent_poll, .init = setup, .fini = teardown);

static bool readable(int ms)
{
	struct pollfd p = {.fd = far_agent_fd(a), .events = POLLIN};
	return poll(&p, 1, ms) == 1;
}

/* Polls as a loop does, whenever the descriptor is readable, until the future is done. */
static void loop_until(struct far_future *f)
{
	while (!far_future_done(f)) {
		cr_assert(readable(20000), "the descriptor does not become readable");
		far_agent_poll(a);
	}
}

static int64_t call(const char *function, const struct far_val *args, size_t n)
{
	struct far_future *f;
	struct far_val v;
	cr_assert_eq(far_rpc_async(a, "w0", function, args, n, NULL, &f, &err), FAR_OK, "%s", err.text);
	loop_until(f);
	cr_assert_eq(far_future_value(f, &v, &err), FAR_OK, "%s", err.text);
	far_future_free(f);
	return v.u.i;
}

Test(agent_poll, a_loop_runs_the_calls)
{
	cr_assert_eq(call("t::twice", FAR_ARGS(4)), 8);
	cr_assert_eq(call("t::blocking", FAR_ARGS(5)), 10, "a thread wakes the loop");
	cr_assert_eq(call("t::polls", NULL, 0), 0, "not within a handler");
}

/* Expect a loop that sleeps while nothing is to do, and the deadline of a call to wake it. */
Test(agent_poll, sleeps_until_a_deadline)
{
	static const struct far_function never = {"t::never() -> none", FAR_KIND_FIBER, handler_never, NULL};
	const struct far_call_opts opts = {.timeout_ns = 30 * FAR_MS};
	struct far_future *f;
	unsigned quiet = 0;
	for (unsigned polls_left = 100000; polls_left && quiet < 2; polls_left--) {
		quiet = readable(0) ? 0 : quiet + 1;
		far_agent_poll(a);
	}
	cr_assert_eq(quiet, 2u, "it never sleeps");
	cr_assert_eq(far_register_function(a, &never, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_rpc_async(a, "w0", "t::never", NULL, 0, &opts, &f, &err), FAR_OK, "%s", err.text);
	loop_until(f);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_TIMEOUT);
	far_future_free(f);
}

/* A thread that waits polls, too; others keep their poller. */
Test(agent_poll, waits_and_other_agents)
{
	struct far_val v;
	cr_assert_eq(far_rpc_sync(a, "w0", "t::twice", FAR_ARGS(3), NULL, &v, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(v.u.i, 6);
	cr_assert_eq(far_rpc_sync(a, "w0", "t::polls", FAR_ARGS(), NULL, &v, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(v.u.i, 0);
	own_end(a);
	unsigned before = open_files();
	a = own_begin(NULL);
	cr_assert(far_agent_fd(a) == -1 && far_agent_poll(a) == 0);
	cr_assert(far_agent_fd(NULL) == -1 && far_agent_poll(NULL) == 0);
	own_end(a);
	a = own_begin(&(struct far_opts){.progress = FAR_PROGRESS_CALLER});
	cr_assert_geq(far_agent_fd(a), 0);
	own_end(a);
	cr_assert_eq(open_files(), before, "descriptors are left");
	a = own_begin(NULL);
}

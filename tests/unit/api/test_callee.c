/* SPDX-License-Identifier: BSD-3-Clause */
/** Handles of workers and of functions there. The test's thread, and fibers of agents that it steps. */
#include "agents_fixture.h"
#include "handlers.h"

#include <string.h>

static const struct far_function functions[] = {{"t::twice(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL},
						{"t::echo(Any a) -> Any", FAR_KIND_INLINE, handler_echo, NULL}};

static struct far_worker w1;
static struct far_callee *twice;

static void setup(void)
{
	const struct far_opts opts = {.functions = functions, .functions_n = 2};
	agents_begin(2, &opts);
	cr_assert_eq(far_worker_find(agents[0], "w1", &w1, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_callee_find(&w1, "t::twice", &twice, &err), FAR_OK, "%s", err.text);
}

static void teardown(void)
{
	far_callee_free(twice);
	agents_end();
}

TestSuite(api_callee, .init = setup, .fini = teardown);

Test(api_callee, a_worker_that_is_not_there)
{
	struct far_worker w;
	struct far_callee *c = NULL;
	cr_assert(w1.agent == agents[0] && w1.to.worker == 1 && w1.to.shard == -1);
	cr_assert_eq(far_worker_find(agents[0], "w7", &w, &err), FAR_UNKNOWN_WORKER);
	cr_assert(strstr(err.text, "w7"), "%s", err.text);
	cr_assert_eq(far_worker_find(NULL, "w1", &w, &err), FAR_INVALID);
	cr_assert_eq(far_worker_find(agents[0], "w1", NULL, &err), FAR_INVALID);
	w = w1;
	w.to.worker = 2;
	cr_assert_neq(far_callee_find(&w, "t::twice", &c, &err), FAR_OK);
	cr_assert_null(c);
}

Test(api_callee, a_function_that_is_not_there)
{
	struct far_callee *c = NULL;
	cr_assert_eq(far_callee_find(&w1, "t::thrice", &c, &err), FAR_NO_FUNCTION);
	cr_assert(strstr(err.text, "t::thrice"), "%s", err.text);
	cr_assert_eq(far_callee_find(NULL, "t::twice", &c, &err), FAR_INVALID);
	cr_assert_eq(far_callee_find(&w1, "t::twice", NULL, &err), FAR_INVALID);
	cr_assert_null(c);
	far_callee_free(NULL);
}

static void call_sync(void)
{
	for (int i = 0; i < 3; i++) { /* the first one teaches the function's number */
		struct far_val out;
		cr_assert_eq(far_callee_rpc_sync(twice, FAR_ARGS(20 + i), NULL, &out, &err), FAR_OK, "%s", err.text);
		cr_assert_eq(out.u.i, 40 + 2 * i);
	}
	cr_assert_eq(far_callee_rpc_sync(twice, FAR_ARGS("x"), NULL, NULL, &err), FAR_BAD_ARGS);
	cr_assert(strstr(err.text, "t::twice"), "%s", err.text);
	cr_assert_eq(far_callee_rpc_sync(NULL, FAR_ARGS(1), NULL, NULL, &err), FAR_INVALID);
}

Test(api_callee, calls_that_are_waited_for)
{
	agents_run(0, call_sync);
}

Test(api_callee, calls_that_are_not_waited_for)
{
	struct far_future *f[3];
	const struct far_call_opts opts = {.timeout_ns = FAR_SEC};
	for (int i = 0; i < 3; i++)
		cr_assert_eq(far_callee_rpc_async(twice, FAR_ARGS(i), i == 1 ? &opts : NULL, &f[i], &err), FAR_OK);
	for (int i = 0; i < 3; i++) {
		struct far_val out;
		agents_until(f[i]);
		cr_assert_eq(far_future_value(f[i], &out, &err), FAR_OK, "%s", err.text);
		cr_assert_eq(out.u.i, 2 * i);
		far_future_free(f[i]);
	}
	cr_assert_eq(far_callee_rpc_async(NULL, FAR_ARGS(1), NULL, &f[0], &err), FAR_INVALID);
}

/* An overload is registered after the callee was found. Expect the arguments to select it. */
static enum far_status text_twice(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_str("two texts");
	return far_return(req, &v);
}

static void call_overload(void)
{
	struct far_val out;
	cr_assert_eq(far_callee_rpc_sync(twice, FAR_ARGS("x"), NULL, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.type, FAR_TYPE_STRING);
	cr_assert_str_eq(out.u.s.data, "two texts");
	far_val_fini(&out);
	cr_assert_eq(far_callee_rpc_sync(twice, FAR_ARGS(4), NULL, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 8);
}

Test(api_callee, later_overloads)
{
	const struct far_function f = {"t::twice(str a) -> str", FAR_KIND_INLINE, text_twice, NULL};
	agents_run(0, call_sync);
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(far_register_function(agents[i], &f, &err), FAR_OK, "%s", err.text);
	agents_run(0, call_overload);
}

/* Another incarnation of the worker has taken its place. Expect each use of the old handle refused, unsent. */
static void call_lost(void)
{
	cr_assert_eq(far_callee_rpc_sync(twice, FAR_ARGS(1), NULL, NULL, &err), FAR_PEER_LOST);
	cr_assert(strstr(err.text, "worker \"w1\" is another incarnation"), "%s", err.text);
	cr_assert(strstr(err.text, "call far_worker_find again"), "%s", err.text);
	cr_assert_eq(err.executed, FAR_EXECUTED_NO);
}

Test(api_callee, another_incarnation)
{
	struct ctl_member *m = (struct ctl_member *)(uintptr_t)&agents[0]->members[1];
	uint64_t sent = atomic_load(&agents[0]->shards[0]->counters.calls_sent);
	struct far_future *f;
	struct far_callee *c = NULL;
	uint64_t was = atomic_fetch_add(&m->incarnation, 1);
	agents_run(0, call_lost);
	cr_assert_eq(far_callee_rpc_async(twice, FAR_ARGS(1), NULL, &f, &err), FAR_PEER_LOST);
	cr_assert_eq(far_callee_find(&w1, "t::twice", &c, &err), FAR_PEER_LOST);
	cr_assert_null(c);
	cr_assert_eq(atomic_load(&agents[0]->shards[0]->counters.calls_sent), sent);
	atomic_store(&m->incarnation, was);
	agents_run(0, call_sync);
}

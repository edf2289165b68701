/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls of functions that the callee alone has. The test's thread, and fibers of agents that it steps. */
#include "agents_fixture.h"
#include "handlers.h"

#include <string.h>

static enum far_status text_of(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_str("a text");
	return far_return(req, &v);
}

static void setup(void)
{
	static const struct far_function functions[] = {
		{"t::twice(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL},
		{"t::twice(str a) -> str", FAR_KIND_INLINE, text_of, NULL}};
	agents_begin(2, NULL);
	for (size_t i = 0; i < 2; i++)
		cr_assert_eq(far_register_function(agents[1], &functions[i], &err), FAR_OK, "%s", err.text);
}

TestSuite(api_unchecked, .init = setup, .fini = agents_end);

static void calls(void)
{
	struct far_val out;
	cr_assert_eq(far_rpc_sync(agents[0], "w1", "t::twice", FAR_ARGS(4), NULL, &out, &err), FAR_NO_FUNCTION,
		     "it is not registered here");
	cr_assert_eq(far_rpc_sync_unchecked(agents[0], "w1", "t::twice", FAR_ARGS(4), NULL, &out, &err), FAR_OK, "%s",
		     err.text);
	cr_assert_eq(out.u.i, 8);
	cr_assert_eq(far_rpc_sync_unchecked(agents[0], "w1", "t::twice", FAR_ARGS("x"), NULL, &out, &err), FAR_OK, "%s",
		     err.text);
	cr_assert_str_eq(out.u.s.data, "a text");
	far_val_fini(&out);
	/* The callee refuses. */
	cr_assert_eq(far_rpc_sync_unchecked(agents[0], "w1", "t::twice", FAR_ARGS(1.5, 2), NULL, &out, &err),
		     FAR_BAD_ARGS);
	cr_assert_str_eq(err.origin, "w1");
	cr_assert_eq(far_rpc_sync_unchecked(agents[0], "w1", "t::none", NULL, 0, NULL, &out, &err), FAR_NO_FUNCTION);
	cr_assert(strstr(err.text, "\"w1\" has no such function"), "%s", err.text);
	cr_assert_str_eq(err.origin, "w1");
}

Test(api_unchecked, the_callee_chooses_the_overload)
{
	agents_run(0, calls);
}

static void made(void)
{
	struct far_rref *r;
	struct far_val out;
	cr_assert_eq(far_remote_unchecked(agents[0], "w1", "t::twice", FAR_ARGS(5), NULL, &r, &err), FAR_OK, "%s",
		     err.text);
	cr_assert_eq(far_rref_to_here(r, 0, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 10);
	cr_assert(far_rref_may_be(r, FAR_TYPE_STRING), "its type is not known here");
	far_rref_free(r);
}

Test(api_unchecked, results_that_stay_there)
{
	agents_run(0, made);
	struct far_future *f;
	struct far_val out;
	cr_assert_eq(far_rpc_async_unchecked(agents[0], "w1", "t::twice", FAR_ARGS(6), NULL, &f, &err), FAR_OK);
	agents_until(f);
	cr_assert_eq(far_future_value(f, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 12);
	far_future_free(f);
}

/* Expect each refused here, before anything is sent, and named. */
static void refused(void)
{
	char name[2000];
	struct far_val many[FAR_ARGS_MAX + 1];
	struct far_future *f;
	uint64_t sent = atomic_load(&agents[0]->shards[0]->counters.calls_sent);
	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	for (size_t i = 0; i < FAR_ARGS_MAX + 1; i++)
		many[i] = far_int(1);
	cr_assert_eq(far_rpc_sync_unchecked(agents[0], "w9", "t::twice", FAR_ARGS(1), NULL, NULL, &err),
		     FAR_UNKNOWN_WORKER);
	cr_assert_eq(far_rpc_sync_unchecked(agents[0], "w1", name, FAR_ARGS(1), NULL, NULL, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "a name of at most"), "%s", err.text);
	cr_assert_eq(far_rpc_sync_unchecked(agents[0], "w1", NULL, FAR_ARGS(1), NULL, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_rpc_sync_unchecked(agents[0], "w1", "t::twice", many, FAR_ARGS_MAX + 1, NULL, NULL, &err),
		     FAR_INVALID);
	cr_assert_eq(far_rpc_sync_unchecked(agents[0], "w1", "t::twice", FAR_ARGS(1, FAR_KW("b", 2)), NULL, NULL, &err),
		     FAR_BAD_ARGS);
	cr_assert(strstr(err.text, "argument 2 has the keyword 'b'"), "%s", err.text);
	cr_assert(strstr(err.text, "pass it by position"), "%s", err.text);
	cr_assert_neq(far_rpc_sync_unchecked(agents[0], "w1", "t::twice(int", FAR_ARGS(1), NULL, NULL, &err), FAR_OK);
	cr_assert_neq(far_rpc_sync_unchecked(agents[0], "w1", " t::twice", FAR_ARGS(1), NULL, NULL, &err), FAR_OK);
	cr_assert_neq(far_rpc_sync_unchecked(agents[0], "w1", "", NULL, 0, NULL, NULL, &err), FAR_OK);
	cr_assert_eq(far_rpc_async_unchecked(agents[0], "w1", "t::twice", FAR_ARGS(1), NULL, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_remote_unchecked(agents[0], "w1", "t::twice", FAR_ARGS(1), NULL, NULL, &err), FAR_INVALID);
	cr_assert_eq(atomic_load(&agents[0]->shards[0]->counters.calls_sent), sent);
	cr_assert_eq(far_rpc_async_unchecked(agents[0], "w1", "t::twice", many, FAR_ARGS_MAX, NULL, &f, &err), FAR_OK,
		     "as many as there may be: %s", err.text);
	far_future_free(f);
}

Test(api_unchecked, what_cannot_be_sent)
{
	agents_run(0, refused);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Making, fetching and passing on of references. The test's thread, and fibers of agents that it steps. */
#include "agents_fixture.h"
#include "handlers.h"

#include <string.h>

static void setup(void)
{
	static const struct far_function functions[] = {
		{"t::twice(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL},
		{"t::fetch(rref r) -> Any", FAR_KIND_FIBER, handler_fetch, NULL},
		{"t::never() -> int", FAR_KIND_FIBER, handler_never, NULL}};
	const struct far_opts opts = {.functions = functions, .functions_n = 3};
	agents_begin(3, &opts);
}

TestSuite(api_rref, .init = setup, .fini = agents_end);

static struct far_rref *make(const char *to)
{
	struct far_rref *r;
	cr_assert_eq(far_remote(agents[0], to, "t::twice", FAR_ARGS(21), NULL, &r, &err), FAR_OK, "%s", err.text);
	return r;
}

static void fetches(void)
{
	const char *const owners[] = {"w1", "w0"};
	for (unsigned i = 0; i < 2; i++) {
		struct far_rref *r = make(owners[i]);
		struct far_val out;
		for (unsigned again = 0; again < 2; again++) {
			cr_assert_eq(far_rref_to_here(r, 0, &out, &err), FAR_OK, "%s", err.text);
			cr_assert_eq(out.u.i, 42);
		}
		cr_assert_eq(far_rref_to_here(r, 0, NULL, &err), FAR_OK, "no value wanted");
		enum far_status status = far_rref_local_value(r, 0, &out, &err);
		cr_assert_eq(status, i ? FAR_OK : FAR_INVALID);
		if (!i)
			cr_assert(strstr(err.text,
					 "on worker \"w0\" (rank 0): its owner is worker \"w1\" (rank 1); call it "
					 "there, or far_rref_to_here"),
				  "%s", err.text);
		far_rref_free(r);
	}
}

Test(api_rref, fetched_from_others_and_from_itself)
{
	agents_run(0, fetches);
}

/* Passed on to a third worker, which fetches from the owner; the handle is freed at once. */
Test(api_rref, passed_on)
{
	struct far_rref *r = make("w1");
	struct far_future *f;
	struct far_val out;
	cr_assert_eq(far_rpc_async(agents[0], "w2", "t::fetch", FAR_ARGS(r), NULL, &f, &err), FAR_OK, "%s", err.text);
	far_rref_free(r);
	agents_until(f);
	cr_assert_eq(far_future_value(f, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 42);
	far_future_free(f);
	for (unsigned i = 0; i < 2000; i++)
		agents_turn();
	for (unsigned i = 0; i < 3; i++) {
		struct far_rref_counts c;
		far_rref_counts_read(agents[i], &c);
		cr_assert(c.owned + c.held + c.forks + c.pending == 0, "worker %u", i);
	}
}

/* A reference whose making failed, as an argument. Expect its error, and nothing sent. */
Test(api_rref, a_failed_one_is_not_passed_on)
{
	struct far_rref *r;
	struct far_future *f;
	const struct far_call_opts opts = {.timeout_ns = FAR_MS};
	cr_assert_eq(far_remote(agents[0], "w1", "t::never", NULL, 0, &opts, &r, &err), FAR_OK);
	cr_assert_eq(far_rref_future(r, &f, &err), FAR_OK);
	agents_pass(2 * FAR_MS);
	agents_until(f);
	far_future_free(f);
	uint64_t sent = atomic_load(&agents[0]->shards[0]->counters.calls_sent);
	cr_assert_eq(far_rpc_async(agents[0], "w2", "t::fetch", FAR_ARGS(r), NULL, &f, &err), FAR_TIMEOUT);
	cr_assert_eq(atomic_load(&agents[0]->shards[0]->counters.calls_sent), sent);
	far_rref_free(r);
}

/* The owner's value is not there yet. Expect the fetch to wait for it, up to its deadline. */
Test(api_rref, a_fetch_has_a_deadline)
{
	struct far_rref *r;
	struct far_future *f;
	cr_assert_eq(far_remote(agents[0], "w1", "t::never", NULL, 0, NULL, &r, &err), FAR_OK);
	cr_assert_eq(far_rref_to_here_async(r, 3 * FAR_MS, &f, &err), FAR_OK);
	for (unsigned i = 0; i < 1000; i++)
		agents_turn();
	cr_assert_not(far_future_done(f));
	agents_pass(3 * FAR_MS);
	agents_until(f);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_TIMEOUT);
	far_future_free(f);
	far_rref_free(r);
}

Test(api_rref, bad_input)
{
	char buffer[8];
	struct far_rref *r = NULL;
	struct far_future *f = NULL;
	const struct far_call_opts opts = {.recv_buf = {buffer, sizeof buffer}};
	cr_assert_eq(far_remote(agents[0], "w1", "t::twice", FAR_ARGS(1), &opts, &r, &err), FAR_UNSUPPORTED);
	cr_assert(strstr(err.text, "leave opts->recv_buf empty"), "%s", err.text);
	cr_assert_eq(far_remote(agents[0], "w1", "t::twice", FAR_ARGS(1), NULL, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_remote(agents[0], "w1", "t::none", FAR_ARGS(1), NULL, &r, &err), FAR_NO_FUNCTION);
	cr_assert_eq(far_remote(agents[0], "w9", "t::twice", FAR_ARGS(1), NULL, &r, &err), FAR_UNKNOWN_WORKER);
	cr_assert_eq(far_remote(agents[0], "w1", "t::twice", FAR_ARGS("x"), NULL, &r, &err), FAR_BAD_ARGS);
	cr_assert_eq(far_rref_to_here_async(NULL, 0, &f, &err), FAR_INVALID);
	cr_assert_eq(far_rref_to_here(NULL, 0, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_rref_local_value(NULL, 0, NULL, &err), FAR_INVALID);
	cr_assert(!r && !f);
	r = make("w1");
	cr_assert_eq(far_rref_to_here_async(r, 0, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_rref_to_here(r, 0, NULL, &err), FAR_WOULD_DEADLOCK, "not on a fiber");
	far_rref_free(r);
}

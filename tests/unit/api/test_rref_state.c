/* SPDX-License-Identifier: BSD-3-Clause */
/** The state of references: owner, confirmation, failure, text, counts. The test's thread, and fibers of agents that it
 * steps. */
#include "agents_fixture.h"
#include "handlers.h"

#include <string.h>

static enum far_status fail(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, FAR_DENIED, 9, "no %s", "entry");
}

static struct far_rref *r;

static void setup(void)
{
	static const struct far_function functions[] = {
		{"t::twice(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL},
		{"t::fail() -> int", FAR_KIND_INLINE, fail, NULL},
		{"t::never() -> int", FAR_KIND_FIBER, handler_never, NULL}};
	const struct far_opts opts = {.functions = functions, .functions_n = 3};
	agents_begin(2, &opts);
}

static void teardown(void)
{
	far_rref_free(r);
	agents_end();
}

TestSuite(api_rref_state, .init = setup, .fini = teardown);

static void turns(void)
{
	for (unsigned i = 0; i < 300; i++)
		agents_turn();
}

static void make(const char *function, const struct far_val *args, size_t n, uint64_t timeout_ns)
{
	const struct far_call_opts opts = {.timeout_ns = timeout_ns};
	cr_assert_eq(far_remote(agents[0], "w1", function, args, n, &opts, &r, &err), FAR_OK, "%s", err.text);
}

Test(api_rref_state, pending_and_then_confirmed)
{
	struct far_rref_counts c;
	struct far_future *f;
	char text[FAR_RREF_TEXT_MAX], want[FAR_RREF_TEXT_MAX + 64];
	make("t::twice", FAR_ARGS(1), 0);
	cr_assert_eq(far_rref_status(r, &err), FAR_PENDING);
	snprintf(want, sizeof want, "the owner of %s has not confirmed it yet", far_rref_text(r, text, sizeof text));
	cr_assert_str_eq(err.text, want);
	cr_assert_not(far_rref_confirmed_by_owner(r));
	far_rref_counts_read(agents[0], &c);
	cr_assert(c.unconfirmed == 1 && c.owned == 0);
	cr_assert_eq(far_rref_future(r, &f, &err), FAR_OK);
	cr_assert_not(far_future_done(f));
	agents_until(f);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_OK);
	far_future_free(f);
	cr_assert_eq(far_rref_status(r, &err), FAR_OK);
	far_rref_counts_read(agents[0], &c);
	cr_assert(c.held == 1 && c.unconfirmed == 0);
	far_rref_counts_read(agents[1], &c);
	cr_assert(c.owned == 1 && c.forks == 1 && c.held == 0);
	cr_assert_eq(far_rref_wait(r, 1, &err), FAR_OK, "nothing is waited for");
}

Test(api_rref_state, owner_and_text)
{
	char text[FAR_RREF_TEXT_MAX], same[FAR_RREF_TEXT_MAX];
	struct far_rref *other;
	make("t::twice", FAR_ARGS(1), 0);
	cr_assert(far_rref_owner(r).worker == 1 && far_rref_owner(r).shard == 0);
	cr_assert_str_eq(far_rref_owner_name(r), "w1");
	cr_assert_not(far_rref_is_owner(r));
	cr_assert(strstr(far_rref_text(r, text, sizeof text), "created_on=0"), "%s", text);
	cr_assert(strstr(text, "owner=1"), "%s", text);
	cr_assert_str_eq(far_rref_text(r, same, 10), "RRef(crea", "it is cut");
	cr_assert(far_rref_may_be(r, FAR_TYPE_INT) && !far_rref_may_be(r, FAR_TYPE_STRING));
	cr_assert_not(far_rref_may_be(r, FAR_TYPE_COUNT));
	cr_assert_eq(far_remote(agents[0], "w0", "t::twice", FAR_ARGS(1), NULL, &other, &err), FAR_OK);
	cr_assert(far_rref_same(r, r) && !far_rref_same(r, other));
	cr_assert(far_rref_is_owner(other));
	turns();
	far_rref_free(other);
	cr_assert_eq(far_remote(agents[0], "w1", "t::twice", FAR_ARGS(1), NULL, &other, &err), FAR_OK);
	cr_assert_not(far_rref_same(r, other), "another value of the same owner");
	turns();
	far_rref_free(other);
}

/* The function fails. Expect its reference confirmed, for the error is stored as a value is. */
static void fetch_error(void)
{
	cr_assert_eq(far_rref_wait(r, 0, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_rref_to_here(r, 0, NULL, &err), FAR_DENIED);
	cr_assert_str_eq(err.text, "no entry");
	cr_assert_eq(err.code, 9);
}

Test(api_rref_state, a_function_that_fails)
{
	make("t::fail", NULL, 0, 0);
	agents_run(0, fetch_error);
}

/* The deadline of the making passes. Expect the reference failed, whichever way it is asked for. */
Test(api_rref_state, a_making_that_is_late)
{
	struct far_future *f;
	make("t::never", NULL, 0, FAR_MS);
	cr_assert_eq(far_rref_future(r, &f, &err), FAR_OK);
	turns();
	cr_assert_eq(far_rref_status(r, &err), FAR_PENDING);
	agents_pass(2 * FAR_MS);
	agents_until(f);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_TIMEOUT);
	far_future_free(f);
	cr_assert_eq(far_rref_status(r, &err), FAR_TIMEOUT);
	cr_assert_eq(err.executed, FAR_EXECUTED_MAYBE, "of the function");
	cr_assert_not(far_rref_confirmed_by_owner(r));
	cr_assert_eq(far_rref_wait(r, 0, &err), FAR_TIMEOUT);
	struct far_future *fetched = NULL;
	cr_assert_eq(far_rref_to_here_async(r, 0, &fetched, &err), FAR_TIMEOUT);
	cr_assert_eq(err.executed, FAR_EXECUTED_NO, "of the fetch");
	cr_assert_null(fetched);
}

Test(api_rref_state, without_a_reference)
{
	struct far_future *f = NULL;
	char text[32];
	cr_assert_not(far_rref_is_owner(NULL));
	cr_assert(far_rref_owner(NULL).worker == -1 && far_rref_owner(NULL).shard == -1);
	cr_assert_str_eq(far_rref_owner_name(NULL), "");
	cr_assert_not(far_rref_confirmed_by_owner(NULL));
	cr_assert_eq(far_rref_status(NULL, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "far_rref_status"), "%s", err.text);
	cr_assert_eq(far_rref_wait(NULL, 0, &err), FAR_INVALID);
	cr_assert_eq(far_rref_future(NULL, &f, &err), FAR_INVALID);
	cr_assert_null(f);
	cr_assert_not(far_rref_may_be(NULL, FAR_TYPE_INT));
	cr_assert_str_eq(far_rref_text(NULL, text, sizeof text), "RRef(NULL)");
	cr_assert_not(far_rref_same(NULL, NULL));
	cr_assert_null(far_rref_ref(NULL));
	far_rref_free(NULL);
}

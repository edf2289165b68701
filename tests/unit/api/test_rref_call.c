/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions on the values of references. The test's thread, and fibers of agents that it steps. */
#include "agents_fixture.h"
#include "handlers.h"

#include <string.h>

static enum far_status sum(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(args[0].u.i + args[1].u.i);
	return far_return(req, &v);
}

static struct far_rref *r; /* to 40, at w1 */

static void setup(void)
{
	static const struct far_function functions[] = {
		{"t::twice(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL},
		{"t::sum(int a, int b) -> int", FAR_KIND_INLINE, sum, NULL}};
	agents_begin(2, NULL);
	for (size_t i = 0; i < 2; i++)
		cr_assert_eq(far_register_function(agents[1], &functions[i], &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_remote_unchecked(agents[0], "w1", "t::twice", FAR_ARGS(20), NULL, &r, &err), FAR_OK);
}

static void teardown(void)
{
	far_rref_free(r);
	agents_end();
}

TestSuite(api_rref_call, .init = setup, .fini = teardown);

static void calls(void)
{
	struct far_val out;
	cr_assert_eq(far_rref_call(r, "t::sum", FAR_ARGS(2), NULL, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 42);
	cr_assert_eq(far_rref_call(r, "t::twice", NULL, 0, NULL, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 80, "the value is the first argument");
	/* The result stays with the owner, as a value of its own. */
	struct far_rref *made;
	cr_assert_eq(far_rref_call_remote(r, "t::twice", NULL, 0, NULL, &made, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_rref_to_here(made, 0, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 80);
	cr_assert_eq(far_rref_owner(made).worker, 1);
	cr_assert_not(far_rref_same(made, r));
	far_rref_free(made);
	/* Errors are those of the owner. */
	cr_assert_eq(far_rref_call(r, "t::none", NULL, 0, NULL, NULL, &err), FAR_NO_FUNCTION);
	cr_assert_str_eq(err.origin, "w1");
	cr_assert_eq(err.executed, FAR_EXECUTED_NO);
	cr_assert_eq(far_rref_call(r, "t::sum", FAR_ARGS("x"), NULL, NULL, &err), FAR_BAD_ARGS);
}

Test(api_rref_call, the_value_is_the_first_argument)
{
	agents_run(0, calls);
}

Test(api_rref_call, as_a_future)
{
	struct far_future *f;
	struct far_val out;
	/* The reference may be given back while the call is under way. */
	cr_assert_eq(far_rref_call_async(r, "t::sum", FAR_ARGS(-40), NULL, &f, &err), FAR_OK, "%s", err.text);
	far_rref_free(r);
	r = NULL;
	agents_until(f);
	cr_assert_eq(far_future_value(f, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 0);
	far_future_free(f);
}

/* Expect each refused here, and the reference usable. */
Test(api_rref_call, bad_input)
{
	struct far_val many[FAR_ARGS_MAX];
	struct far_future *f = NULL;
	struct far_rref *made = NULL;
	for (size_t i = 0; i < FAR_ARGS_MAX; i++)
		many[i] = far_int(1);
	cr_assert_eq(far_rref_call_async(r, "t::sum", many, FAR_ARGS_MAX, NULL, &f, &err), FAR_BAD_ARGS);
	cr_assert(strstr(err.text, "t::sum: 17 arguments; 16 are the maximum, with the value"), "%s", err.text);
	cr_assert_eq(far_rref_call_async(r, "t::sum", FAR_ARGS(FAR_KW("b", 2)), NULL, &f, &err), FAR_BAD_ARGS);
	cr_assert(strstr(err.text, "argument 2 has the keyword 'b'"), "%s", err.text);
	cr_assert_eq(far_rref_call_async(NULL, "t::sum", NULL, 0, NULL, &f, &err), FAR_INVALID);
	cr_assert_eq(far_rref_call_async(r, NULL, NULL, 0, NULL, &f, &err), FAR_INVALID);
	cr_assert_eq(far_rref_call_async(r, "t::sum", NULL, 0, NULL, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_rref_call_remote(r, "t::sum", NULL, 0, NULL, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_rref_call(r, "t::sum", NULL, 0, NULL, NULL, &err), FAR_WOULD_DEADLOCK, "not on a fiber");
	cr_assert(!f && !made);
	cr_assert_eq(far_rref_call_async(r, "t::sum", many, FAR_ARGS_MAX - 1, NULL, &f, &err), FAR_OK, "%s", err.text);
	agents_until(f);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_BAD_ARGS, "the owner's");
	far_future_free(f);
	agents_run(0, calls);
}

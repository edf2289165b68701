/* SPDX-License-Identifier: BSD-3-Clause */
/** What interceptors see of requests at the callee: fields in, handler, answer out, in that order. The test's thread,
 * which steps two agents. */
#include "agents_fixture.h"
#include "handlers.h"

#include <farcall/intercept.h>
#include <string.h>

enum { TYPE = 300 };

static unsigned ids[2];
static char order[32], seen_field[8], reply_field[8];
static bool refuses;
static struct far_deferred *open_request;
static int64_t result;

static void note(char c)
{
	size_t n = strlen(order);
	cr_assert_lt(n + 1, sizeof order);
	order[n] = c;
}

static enum far_status call_out(const struct far_call_info *call, struct far_tlv_out *out, void **cookie,
				struct far_err *e, void *user)
{
	return far_tlv_put(out, TYPE, "ask", 4);
}

static void reply_in(const struct far_call_info *call, const struct far_tlv_in *in, const struct far_err *e,
		     void *cookie, void *user)
{
	const void *value;
	size_t len;
	reply_field[0] = '\0';
	if (far_tlv_find(in, TYPE, &value, &len) && len < sizeof reply_field)
		memcpy(reply_field, value, len);
}

static enum far_status request_in(const struct far_call_info *call, const struct far_tlv_in *in, void **cookie,
				  struct far_err *e, void *user)
{
	const void *value;
	size_t len;
	note('i');
	if (call->agent != agents[1])
		return FAR_OK;
	cr_assert(call->from.worker == 0 && call->to.worker == 1);
	cr_assert(far_tlv_find(in, TYPE, &value, &len) && len == 4);
	memcpy(seen_field, value, len);
	*cookie = seen_field;
	if (refuses) {
		snprintf(e->text, sizeof e->text, "no ticket");
		return FAR_DENIED;
	}
	return FAR_OK;
}

static void request_end(const struct far_call_info *call, enum far_status status, void *cookie, void *user)
{
	note('e');
	cr_assert_eq(cookie, seen_field);
}

static void reply_out(const struct far_call_info *call, const struct far_val *value, const struct far_err *e,
		      struct far_tlv_out *out, void *cookie, void *user)
{
	note('o');
	cr_assert_eq(cookie, seen_field);
	result = value && value->type == FAR_TYPE_INT ? value->u.i : -1;
	far_tlv_put(out, TYPE, "given", 6);
}

static void request_over(void *cookie, void *user)
{
	note('x');
	cr_assert_eq(cookie, seen_field);
}

static enum far_status run(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	note('h');
	return handler_twice(req, args, n, user);
}

static enum far_status fail(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	note('h');
	return far_fail(req, FAR_BUSY, 0, "full");
}

static enum far_status later(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	note('h');
	return far_defer(req, &open_request);
}

static void setup(void)
{
	static const struct far_function functions[] = {{"t::run(int a) -> int", FAR_KIND_INLINE, run, NULL},
							{"t::in_fiber(int a) -> int", FAR_KIND_FIBER, run, NULL},
							{"t::fail() -> int", FAR_KIND_INLINE, fail, NULL},
							{"t::later() -> int", FAR_KIND_INLINE, later, NULL}};
	const struct far_opts opts = {.functions = functions, .functions_n = 4};
	agents_begin(2, &opts);
	const struct far_interceptor caller = {.name = "caller",
					       .tlv_first = TYPE,
					       .tlv_last = TYPE,
					       .call_out = call_out,
					       .reply_in = reply_in,
					       .request_in = request_in,
					       .request_end = request_end,
					       .reply_out = reply_out,
					       .request_over = request_over};
	cr_assert_eq(far_interceptor_add(&caller, &ids[0], &err), FAR_OK, "%s", err.text);
	memset(order, 0, sizeof order);
}

TestSuite(intercept_callee, .init = setup, .fini = agents_end);

static struct far_future *begin(const char *function, const struct far_val *args, size_t n)
{
	struct far_future *f;
	cr_assert_eq(far_rpc_async(agents[0], "w1", function, args, n, NULL, &f, &err), FAR_OK, "%s", err.text);
	return f;
}

static enum far_status end(struct far_future *f, struct far_val *out)
{
	agents_until(f);
	for (unsigned i = 0; i < 100; i++)
		agents_turn();
	enum far_status status = far_future_value(f, out, &err);
	far_future_free(f);
	return status;
}

static void expect_order(const char *want)
{
	cr_assert_str_eq(order, want);
	memset(order, 0, sizeof order);
}

/* Expect the field of the request before the handler, and one in the answer, whichever kind of handler. */
Test(intercept_callee, around_the_handler)
{
	const char *const functions[] = {"t::run", "t::in_fiber"};
	for (unsigned i = 0; i < 2; i++) {
		struct far_val out;
		result = 0;
		cr_assert_eq(end(begin(functions[i], FAR_ARGS(21)), &out), FAR_OK, "%s", err.text);
		cr_assert(out.u.i == 42 && result == 42);
		cr_assert_str_eq(seen_field, "ask");
		cr_assert_str_eq(reply_field, "given");
		cr_assert(strcmp(order, "ihoex") == 0 || strcmp(order, "iheox") == 0, "%s", order);
		memset(order, 0, sizeof order);
	}
}

/* Expect a refused request not run, with the interceptor's error, and nothing more about it. */
Test(intercept_callee, a_refusal_runs_nothing)
{
	refuses = true;
	cr_assert_eq(end(begin("t::run", FAR_ARGS(21)), NULL), FAR_DENIED);
	cr_assert(strstr(err.text, "no ticket"), "%s", err.text);
	cr_assert_eq(err.executed, FAR_EXECUTED_NO);
	cr_assert_str_eq(err.origin, "w1");
	expect_order("i");
	refuses = false;
}

Test(intercept_callee, errors_of_the_handler)
{
	cr_assert_eq(end(begin("t::fail", NULL, 0), NULL), FAR_BUSY);
	cr_assert_str_eq(err.text, "full");
	cr_assert_eq(result, -1, "there is no value");
	cr_assert_str_eq(reply_field, "given", "an error has fields, too");
	expect_order("iheox");
}

/* Answered later. Expect the end of the handler first, and the answer when it is given. */
Test(intercept_callee, deferred_answers)
{
	struct far_val out, v = far_int(5);
	struct far_future *f = begin("t::later", NULL, 0);
	for (unsigned i = 0; i < 20000 && !open_request; i++)
		agents_turn();
	cr_assert_not_null(open_request);
	expect_order("ihe");
	cr_assert_eq(far_deferred_return(open_request, &v), FAR_OK);
	cr_assert_eq(end(f, &out), FAR_OK, "%s", err.text);
	cr_assert_eq(result, 5);
	expect_order("ox");
}

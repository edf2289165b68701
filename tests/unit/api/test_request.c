/* SPDX-License-Identifier: BSD-3-Clause */
/** Answers of handlers: values, errors, deferred ones, those of futures, and arguments that are kept. The test's
 * thread, and fibers of agents that it steps. */
#include "agents_fixture.h"

#include <string.h>

static struct far_deferred *open_request;
static struct far_future *gate;
static struct far_val kept;
static enum far_status seen; /* by the handler */

static enum far_status wrong(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_str("no int");
	seen = far_return(req, &v);
	return seen;
}

static enum far_status twice(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(1);
	struct far_deferred *d;
	cr_assert_eq(far_return(req, &v), FAR_OK);
	cr_assert_eq(far_return(req, &v), FAR_INVALID);
	cr_assert_eq(far_fail(req, FAR_DENIED, 0, "no"), FAR_INVALID);
	cr_assert_eq(far_defer(req, &d), FAR_INVALID);
	cr_assert_eq(far_return_future(req, gate), FAR_INVALID);
	return FAR_OK;
}

static enum far_status odd_error(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, (enum far_status)args[0].u.i, 5, "an error of %d", 7);
}

static enum far_status later(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_defer(req, &open_request);
}

static enum far_status of_future(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	cr_assert_eq(far_return_future(req, NULL), FAR_INVALID);
	return far_return_future(req, gate);
}

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	seen = far_req_keep(req, &args[0], &kept, &err);
	return far_return(req, NULL);
}

static enum far_status tensor(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	uint64_t shape[] = {2, (uint64_t)args[0].u.i};
	void *at;
	seen = far_return_tensor(req, FAR_F32, args[0].u.i > 4 ? 2 : 1, shape + (args[0].u.i <= 4), &at);
	if (seen)
		return seen;
	for (uint64_t i = 0; i < shape[1] * (args[0].u.i > 4 ? 2 : 1); i++)
		((float *)at)[i] = (float)i;
	return FAR_OK;
}

static enum far_status about(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	cr_assert_eq(far_req_agent(req), agents[1]);
	cr_assert(far_req_from(req).worker == 0 && far_req_from(req).shard == 0 && far_req_shard(req) == 0);
	cr_assert_not(far_req_cancelled(req));
	struct far_val v = far_int((int64_t)far_req_time_left_ns(req));
	return far_return(req, &v);
}

static void setup(void)
{
	static const struct far_function functions[] = {
		{"t::wrong() -> int", FAR_KIND_INLINE, wrong, NULL},
		{"t::twice() -> int", FAR_KIND_INLINE, twice, NULL},
		{"t::odd_error(int status) -> int", FAR_KIND_INLINE, odd_error, NULL},
		{"t::later() -> int", FAR_KIND_INLINE, later, NULL},
		{"t::of_future() -> int", FAR_KIND_INLINE, of_future, NULL},
		{"t::keep(Any a) -> none", FAR_KIND_INLINE, keep, NULL},
		{"t::keep_in_fiber(Any a) -> none", FAR_KIND_FIBER, keep, NULL},
		{"t::tensor(int n) -> Tensor", FAR_KIND_INLINE, tensor, NULL},
		{"t::about() -> int", FAR_KIND_INLINE, about, NULL},
		{"t::about_in_fiber() -> int", FAR_KIND_FIBER, about, NULL}};
	const struct far_opts opts = {.functions = functions, .functions_n = sizeof functions / sizeof *functions};
	agents_begin(2, &opts);
	open_request = NULL;
	cr_assert_eq(far_future_create(&gate, &err), FAR_OK);
}

static void teardown(void)
{
	far_future_free(gate);
	agents_end();
}

TestSuite(api_request, .init = setup, .fini = teardown);

static struct far_future *begin(const char *function, const struct far_val *args, size_t n)
{
	struct far_future *f;
	cr_assert_eq(far_rpc_async(agents[0], "w1", function, args, n, NULL, &f, &err), FAR_OK, "%s", err.text);
	return f;
}

static enum far_status end(struct far_future *f, struct far_val *out)
{
	agents_until(f);
	enum far_status status = far_future_value(f, out, &err);
	far_future_free(f);
	return status;
}

static void until_open(void)
{
	for (unsigned left = 20000; left && !open_request; left--)
		agents_turn();
	cr_assert_not_null(open_request);
}

Test(api_request, a_result_of_another_type)
{
	cr_assert_eq(end(begin("t::wrong", NULL, 0), NULL), FAR_SIGNATURE);
	cr_assert(strstr(err.text, "t::wrong()->int returned a string, which its signature does not allow"), "%s",
		  err.text);
	cr_assert_eq(err.executed, FAR_EXECUTED_YES);
	cr_assert_eq(seen, FAR_SIGNATURE, "the handler learns it too");
}

Test(api_request, one_answer_only)
{
	struct far_val out;
	cr_assert_eq(end(begin("t::twice", NULL, 0), &out), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 1);
}

/* A status that is no error. Expect REMOTE in its place. */
Test(api_request, errors)
{
	static const int64_t odd[] = {FAR_OK, -1, FAR_STATUS_COUNT, 1000};
	for (size_t i = 0; i < 4; i++)
		cr_assert_eq(end(begin("t::odd_error", FAR_ARGS(odd[i])), NULL), FAR_REMOTE);
	cr_assert_eq(end(begin("t::odd_error", FAR_ARGS((int64_t)FAR_DENIED)), NULL), FAR_DENIED);
	cr_assert_str_eq(err.text, "an error of 7");
	cr_assert(err.code == 5 && err.executed == FAR_EXECUTED_YES);
	cr_assert_str_eq(err.origin, "w1");
}

Test(api_request, answered_later)
{
	struct far_val out, v = far_int(5), text = far_str("x");
	struct far_future *f = begin("t::later", NULL, 0);
	until_open();
	cr_assert_eq(far_deferred_return(open_request, &v), FAR_OK);
	cr_assert_eq(end(f, &out), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 5);
	open_request = NULL;
	f = begin("t::later", NULL, 0);
	until_open();
	cr_assert_eq(far_deferred_return(open_request, &text), FAR_SIGNATURE, "the application learns it too");
	cr_assert_eq(end(f, NULL), FAR_SIGNATURE);
	cr_assert(strstr(err.text, "returned a string"), "%s", err.text);
	open_request = NULL;
	f = begin("t::later", NULL, 0);
	until_open();
	cr_assert_eq(far_deferred_fail(open_request, FAR_STATUS_COUNT, -2, "%s", "no luck"), FAR_OK);
	cr_assert_eq(end(f, NULL), FAR_REMOTE);
	cr_assert(strcmp(err.text, "no luck") == 0 && err.code == -2);
	open_request = NULL;
	f = begin("t::later", NULL, 0);
	until_open();
	far_deferred_drop(open_request);
	cr_assert_eq(end(f, NULL), FAR_REMOTE);
	cr_assert(strstr(err.text, "dropped the request without an answer"), "%s", err.text);
}

/* Answered with a future: its value, or its error with class, code and text. */
Test(api_request, answered_with_a_future)
{
	struct far_val out, v = far_int(9);
	struct far_future *f = begin("t::of_future", NULL, 0);
	for (unsigned i = 0; i < 1000; i++)
		agents_turn();
	cr_assert_not(far_future_done(f));
	cr_assert_eq(far_future_set_value(gate, &v, &err), FAR_OK);
	cr_assert_eq(end(f, &out), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 9);
	far_future_free(gate);
	cr_assert_eq(far_future_create(&gate, &err), FAR_OK);
	far_future_set_error(gate, FAR_DENIED, 3, "closed");
	cr_assert_eq(end(begin("t::of_future", NULL, 0), NULL), FAR_DENIED);
	cr_assert(strcmp(err.text, "closed") == 0 && err.code == 3);
}

/* Kept arguments. Expect them readable after the request, whichever kind of handler kept them. */
Test(api_request, arguments_are_kept)
{
	static uint8_t bytes[5000];
	memset(bytes, 7, sizeof bytes);
	const char *const functions[] = {"t::keep", "t::keep_in_fiber"};
	const struct far_val values[] = {far_bytes(bytes, sizeof bytes), far_str("a text"), far_int(4)};
	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = 0; i < 3; i++) {
			kept = far_none();
			cr_assert_eq(end(begin(functions[k], &values[i], 1), NULL), FAR_OK, "%s", err.text);
			cr_assert_eq(seen, FAR_OK);
			cr_assert_eq(kept.type, values[i].type);
			if (i == 0)
				cr_assert(kept.own && memcmp(kept.u.s.data, bytes, sizeof bytes) == 0);
			if (i == 1)
				cr_assert_str_eq(kept.u.s.data, "a text");
			cr_assert_null(kept.kw);
			far_val_fini(&kept);
		}
}

/* A tensor that is written in place: of one dimension, and of two. */
Test(api_request, a_tensor_in_place)
{
	for (int64_t n = 4; n <= 5000; n += 4996) {
		struct far_val out;
		cr_assert_eq(end(begin("t::tensor", FAR_ARGS(n)), &out), FAR_OK, "%s", err.text);
		cr_assert(out.type == FAR_TYPE_TENSOR && out.u.t.ndim == (n > 4 ? 2 : 1));
		uint64_t count = (uint64_t)n * (n > 4 ? 2 : 1);
		cr_assert_eq(far_tensor_bytes(&out.u.t), 4 * count);
		cr_assert_eq(((const float *)out.u.t.data)[count - 1], (float)(count - 1));
		far_val_fini(&out);
	}
}

/* The time left of a request is what its caller has, less the way to the handler. */
Test(api_request, what_a_handler_may_ask)
{
	const char *const functions[] = {"t::about", "t::about_in_fiber"};
	const struct far_call_opts opts = {.timeout_ns = 500 * FAR_MS}, forever = {.timeout_ns = FAR_FOREVER};
	for (unsigned i = 0; i < 2; i++) {
		struct far_future *f;
		struct far_val out;
		cr_assert_eq(end(begin(functions[i], NULL, 0), NULL), FAR_OK); /* the session is there */
		cr_assert_eq(far_rpc_async(agents[0], "w1", functions[i], NULL, 0, &opts, &f, &err), FAR_OK);
		cr_assert_eq(end(f, &out), FAR_OK, "%s", err.text);
		cr_assert(out.u.i <= (int64_t)(500 * FAR_MS) && out.u.i > (int64_t)(400 * FAR_MS), "%lld",
			  (long long)out.u.i);
		cr_assert_eq(far_rpc_async(agents[0], "w1", functions[i], NULL, 0, &forever, &f, &err), FAR_OK);
		cr_assert_eq(end(f, &out), FAR_OK);
		cr_assert_eq((uint64_t)out.u.i, FAR_FOREVER);
	}
}

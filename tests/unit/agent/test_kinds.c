/* SPDX-License-Identifier: BSD-3-Clause */
/** Fiber pools and threads are made with the first handler that needs them; who may wait. The test's thread. */
#include "handlers.h"
#include "own_agent.h"

TestSuite(kinds, .init = own_dir_make, .fini = own_dir_remove);

static enum far_status add(struct far_agent *a, const char *signature, enum far_kind kind)
{
	const struct far_function f = {signature, kind, handler_twice, NULL};
	return far_register_function(a, &f, &err);
}

static struct far_metrics metrics_of(struct far_agent *a)
{
	struct far_metrics m;
	cr_assert_eq(far_metrics_read(a, &m, &err), FAR_OK);
	return m;
}

Test(kinds, with_the_first_handler)
{
	struct far_val out;
	struct far_agent *a = own_begin(&(struct far_opts){.shards = 2, .fibers = 4, .blocking_threads = 1});
	cr_assert_eq(add(a, "t::inline(int a) -> int", FAR_KIND_INLINE), FAR_OK);
	cr_assert_eq(metrics_of(a).fibers_max, 0u);
	cr_assert_null(a->blocking);
	cr_assert_eq(add(a, "t::fiber(int a) -> int", FAR_KIND_FIBER), FAR_OK);
	cr_assert_eq(metrics_of(a).fibers_max, 8u, "each shard has a pool");
	cr_assert_eq(add(a, "t::blocking(int a) -> int", FAR_KIND_BLOCKING), FAR_OK);
	struct blocking_pool *pool = a->blocking;
	cr_assert_not_null(pool);
	cr_assert_eq(add(a, "t::more(int a) -> int", FAR_KIND_BLOCKING), FAR_OK);
	cr_assert_eq(a->blocking, pool);
	cr_assert_eq(far_rpc_sync(a, "w0", "t::blocking", FAR_ARGS(4), NULL, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 8);
	cr_assert_eq(metrics_of(a).threads, 1u);
	cr_assert_eq(far_rpc_sync(a, "w0", "t::fiber", FAR_ARGS(5), NULL, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 10);
	own_end(a);
}

static enum far_status method(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	return far_return(req, NULL);
}

static void reply(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

/* Those of the options are there when the agent has joined: of a message, and of a method. */
Test(kinds, of_the_options)
{
	static const struct far_function make[] = {{"t::C() -> t::C", FAR_KIND_INLINE, handler_twice, NULL}};
	static const struct far_method methods[] = {{"m() -> none", FAR_KIND_FIBER, method, NULL}};
	static const struct far_class cls = {
		.name = "t::C", .constructors = make, .constructors_n = 1, .methods = methods, .methods_n = 1};
	static const struct far_msg_handler message = {.id = 3, .kind = FAR_KIND_BLOCKING, .fn = reply};
	struct far_agent *a;
	a = own_begin(&(struct far_opts){.fibers = 4, .classes = &cls, .classes_n = 1});
	cr_assert_eq(metrics_of(a).fibers_max, 4u);
	cr_assert_null(a->blocking);
	own_end(a);
	a = own_begin(&(struct far_opts){.messages = &message, .messages_n = 1});
	cr_assert_eq(metrics_of(a).fibers_max, 0u);
	cr_assert_not_null(a->blocking);
	own_end(a);
}

static enum far_status waits(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val out;
	struct far_err e;
	enum far_status status = far_rpc_sync(far_req_agent(req), "w0", "far::identity", FAR_ARGS(1), NULL, &out, &e);
	return status ? far_fail(req, status, 0, "%s", e.text) : far_return(req, &out);
}

/* A handler that runs on the shard must not wait for it. Expect the handler named, and the remedy; a fiber may. */
Test(kinds, who_may_wait)
{
	static const struct far_function functions[] = {{"t::inline() -> int", FAR_KIND_INLINE, waits, NULL},
							{"t::fiber() -> int", FAR_KIND_FIBER, waits, NULL}};
	struct far_agent *a = own_begin(&(struct far_opts){.functions = functions, .functions_n = 2});
	struct far_val out;
	cr_assert_eq(far_rpc_sync(a, "w0", "t::inline", FAR_ARGS(), NULL, &out, &err), FAR_WOULD_DEADLOCK);
	cr_assert(strstr(err.text, "would wait inside t::inline"), "%s", err.text);
	cr_assert(strstr(err.text, "register the handler as FAR_KIND_FIBER"), "%s", err.text);
	cr_assert_eq(far_rpc_sync(a, "w0", "t::fiber", FAR_ARGS(), NULL, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 1);
	own_end(a);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Objects: methods, types, the object itself on its owner. The test's thread, and fibers of agents that it steps. */
#include "agents_fixture.h"

#include <farcall/object.h>
#include <string.h>

struct counter {
	int64_t n;
};

static struct counter counters[4];
static unsigned made_n, destroyed_n;

static enum far_status make(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	if (args[0].u.i < 0)
		return far_fail(req, FAR_DENIED, 6, "no counter below 0");
	struct counter *c = &counters[made_n++ % 4];
	c->n = args[0].u.i;
	return far_return_object(req, c);
}

static enum far_status add(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	struct counter *c = object;
	struct far_val v = far_int(c->n += args[0].u.i);
	return far_return(req, &v);
}

static void destroy(void *object, void *user)
{
	destroyed_n++;
}

static struct far_rref *r;

static void setup(void)
{
	static const struct far_function constructor = {"t::Counter(int start=0) -> t::Counter", FAR_KIND_INLINE, make,
							NULL};
	static const struct far_method method = {"add(int by=1) -> int", FAR_KIND_INLINE, add, NULL};
	static const struct far_class cls = {.name = "t::Counter",
					     .constructors = &constructor,
					     .constructors_n = 1,
					     .methods = &method,
					     .methods_n = 1,
					     .destroy = destroy};
	const struct far_opts opts = {.classes = &cls, .classes_n = 1};
	made_n = destroyed_n = 0;
	agents_begin(2, &opts);
	cr_assert_eq(far_remote(agents[0], "w1", "t::Counter", FAR_ARGS(5), NULL, &r, &err), FAR_OK, "%s", err.text);
}

static void teardown(void)
{
	far_rref_free(r);
	agents_end();
	cr_expect_eq(destroyed_n, made_n);
}

TestSuite(api_object, .init = setup, .fini = teardown);

static void methods(void)
{
	struct far_val out;
	/* The first one may arrive before the object was made, the others are calls of an object with a short name. */
	for (int i = 1; i <= 3; i++) {
		cr_assert_eq(far_rref_rpc_sync(r, "add", FAR_ARGS(2), NULL, &out, &err), FAR_OK, "%s", err.text);
		cr_assert_eq(out.u.i, 5 + 2 * i);
	}
	cr_assert_eq(far_rref_rpc_sync(r, "add", NULL, 0, NULL, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 12);
	cr_assert_eq(far_rref_rpc_sync(r, "sub", NULL, 0, NULL, &out, &err), FAR_NO_FUNCTION);
	cr_assert_str_eq(err.text, "t::Counter has no method 'sub'");
	cr_assert_eq(far_rref_rpc_sync(r, "add", FAR_ARGS("x"), NULL, &out, &err), FAR_BAD_ARGS);
	cr_assert_eq(far_rref_rpc_sync(NULL, "add", NULL, 0, NULL, &out, &err), FAR_INVALID);
	cr_assert_eq(far_rref_rpc_sync(r, NULL, NULL, 0, NULL, &out, &err), FAR_INVALID);
}

Test(api_object, methods_run_at_the_owner)
{
	agents_run(0, methods);
	cr_assert_eq(counters[0].n, 12);
	struct far_future *f;
	struct far_val out;
	cr_assert_eq(far_rref_rpc_async(r, "add", FAR_ARGS(1), NULL, &f, &err), FAR_OK, "%s", err.text);
	far_rref_free(r); /* while the call is under way */
	r = NULL;
	agents_until(f);
	cr_assert_eq(far_future_value(f, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 13);
	far_future_free(f);
	for (unsigned i = 0; i < 500; i++)
		agents_turn();
	cr_assert_eq(destroyed_n, 1u);
}

/* The result of a method stays at the owner. */
static void method_remote(void)
{
	struct far_rref *sum;
	struct far_val out;
	cr_assert_eq(far_rref_remote(r, "add", FAR_ARGS(7), NULL, &sum, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_rref_to_here(sum, 0, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 12);
	far_rref_free(sum);
	cr_assert_eq(far_rref_rpc_async(r, "add", NULL, 0, NULL, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_rref_to_here(r, 0, &out, &err), FAR_UNSUPPORTED, "it cannot be copied");
}

Test(api_object, results_that_stay_there)
{
	agents_run(0, method_remote);
}

static void types(void)
{
	const char *name = NULL, *again = NULL;
	struct far_rref *number;
	struct far_val out;
	void *object;
	cr_assert_eq(far_rref_type(r, 0, &name, &err), FAR_OK, "%s", err.text);
	cr_assert_str_eq(name, "t::Counter");
	cr_assert_eq(far_rref_type(r, 0, &again, &err), FAR_OK);
	cr_assert_eq(again, name, "it is kept with the handle");
	cr_assert_str_eq(far_rref_class(r), "t::Counter");
	cr_assert_eq(far_rref_object(r, "t::Counter", 0, &object, &err), FAR_INVALID, "it is another worker's");
	cr_assert_eq(far_remote(agents[0], "w1", "far::identity", FAR_ARGS(1), NULL, &number, &err), FAR_OK);
	cr_assert_eq(far_rref_type(number, 0, &name, &err), FAR_OK, "%s", err.text);
	cr_assert_str_eq(name, "int");
	cr_assert_null(far_rref_class(number));
	cr_assert_eq(far_rref_rpc_sync(number, "add", NULL, 0, NULL, &out, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "is not a reference to an object: it has no method 'add'"), "%s", err.text);
	far_rref_free(number);
	cr_assert_eq(far_rref_type(NULL, 0, &name, &err), FAR_INVALID);
	cr_assert_eq(far_rref_type(r, 0, NULL, &err), FAR_INVALID);
	cr_assert_null(far_rref_class(NULL));
}

Test(api_object, types_of_references)
{
	agents_run(0, types);
	struct far_future *f;
	struct far_val out;
	cr_assert_eq(far_rref_type_async(r, 0, &f, &err), FAR_OK);
	cr_assert(far_future_done(f), "its name is known");
	cr_assert_eq(far_future_value(f, &out, &err), FAR_OK);
	cr_assert_str_eq(out.u.s.data, "t::Counter");
	far_val_fini(&out);
	far_future_free(f);
}

static void on_owner(void)
{
	struct far_rref *own;
	void *object = NULL;
	cr_assert_eq(far_remote(agents[0], "w0", "t::Counter", FAR_ARGS(70), NULL, &own, &err), FAR_OK);
	cr_assert_eq(far_rref_object(own, "t::Counter", 0, &object, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(((struct counter *)object)->n, 70);
	cr_assert_eq(far_rref_object(own, NULL, 0, &object, &err), FAR_OK, "of any class");
	object = NULL;
	cr_assert_eq(far_rref_object(own, "t::Other", 0, &object, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "is a reference to a t::Counter, not to an object of t::Other"), "%s", err.text);
	cr_assert_null(object);
	far_rref_free(own);
}

Test(api_object, the_object_itself)
{
	agents_run(0, on_owner);
}

/* The constructor fails. Expect each method call to end with its error. */
static void failed(void)
{
	struct far_rref *none;
	cr_assert_eq(far_remote(agents[0], "w1", "t::Counter", FAR_ARGS(-1), NULL, &none, &err), FAR_OK);
	for (unsigned i = 0; i < 2; i++) {
		cr_assert_eq(far_rref_rpc_sync(none, "add", NULL, 0, NULL, NULL, &err), FAR_DENIED);
		cr_assert_str_eq(err.text, "no counter below 0");
		cr_assert(err.code == 6 && err.executed == FAR_EXECUTED_NO, "of the method");
	}
	far_rref_free(none);
}

Test(api_object, a_constructor_that_fails)
{
	agents_run(0, failed);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** References to values and objects that are there already, used here and by the other worker; their state as a future.
 * Main thread of each process; handlers on shard threads; threads that it starts. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { VALUES = 200 };

static struct far_agent *agent;
static struct far_err err;
static _Atomic int alive;

struct counter {
	int n;
};

static enum far_status make(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct counter *c = malloc(sizeof *c);
	CHECK(c);
	c->n = 0;
	atomic_fetch_add(&alive, 1);
	return far_return_object(req, c);
}

static enum far_status add(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	struct counter *c = object;
	return far_return_int(req, c->n += (int)args[0].u.i);
}

static void destroy(void *object, void *user)
{
	atomic_fetch_sub(&alive, 1);
	free(object);
}

/* The other worker: fetches the value of the reference, or calls its method. */
static enum far_status fetch(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v;
	struct far_err e;
	enum far_status status = far_rref_to_here(args[0].u.rref, 0, &v, &e);
	if (status)
		return far_fail(req, status, 0, "%s", e.text);
	status = far_return(req, &v);
	far_val_fini(&v);
	return status;
}

static enum far_status bump(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v;
	struct far_err e;
	enum far_status status = far_rref_rpc_sync(args[0].u.rref, "add", FAR_ARGS(10), NULL, &v, &e);
	return status ? far_fail(req, status, 0, "%s", e.text) : far_return(req, &v);
}

/* In a handler, on the thread that holds the shard. */
static enum far_status give(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_rref *r;
	struct far_err e;
	CHECK_STATUS(far_rref_of(far_req_agent(req), &args[0], &r, &e), FAR_OK, &e);
	enum far_status status = far_return_rref(req, r);
	far_rref_free(r);
	return status;
}

static const struct far_function constructor = {"t::Counter() -> t::Counter", FAR_KIND_INLINE, make, NULL, 0};
static const struct far_method method = {"add(int by) -> int", FAR_KIND_INLINE, add, NULL};
static const struct far_class counter_class = {.name = "t::Counter",
					       .constructors = &constructor,
					       .constructors_n = 1,
					       .methods = &method,
					       .methods_n = 1,
					       .destroy = destroy};
static const struct far_function table[] = {{"t::fetch(rref r) -> Any", FAR_KIND_FIBER, fetch, NULL, 0},
					    {"t::bump(rref r) -> int", FAR_KIND_FIBER, bump, NULL, 0},
					    {"t::give(Any x) -> rref", FAR_KIND_INLINE, give, NULL, 0}};

static struct far_rref *of(const struct far_val *v)
{
	struct far_rref *r;
	CHECK_STATUS(far_rref_of(agent, v, &r, &err), FAR_OK, &err);
	CHECK(far_rref_is_owner(r) && far_rref_may_be(r, (enum far_type)v->type));
	return r;
}

static struct far_val fetched_there(struct far_rref *r)
{
	struct far_val v;
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::fetch", FAR_ARGS(r), NULL, &v, &err), FAR_OK, &err);
	return v;
}

/* Passed on at once, before the owner's record may be there. */
static void *values(void *arg)
{
	int64_t first = (int64_t)(intptr_t)arg;
	struct far_err e;
	for (int64_t i = first; i < first + VALUES; i++) {
		struct far_val v = far_int(i), out;
		struct far_rref *r;
		CHECK_STATUS(far_rref_of(agent, &v, &r, &e), FAR_OK, &e);
		CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::fetch", FAR_ARGS(r), NULL, &out, &e), FAR_OK, &e);
		CHECK(out.type == FAR_TYPE_INT && out.u.i == i);
		far_rref_free(r);
	}
	return NULL;
}

static void kinds(void)
{
	char text[3000];
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = 0;
	const double data[] = {1, 2, 3};
	struct far_tensor t = far_tensor_1d(FAR_F64, data, 3);
	struct far_val v = far_str(text), out, copy;
	struct far_rref *r = of(&v);
	out = fetched_there(r);
	CHECK(out.u.s.len == sizeof text - 1);
	far_val_fini(&out);
	CHECK_STATUS(far_rref_local_value(r, 0, &out, &err), FAR_OK, &err);
	CHECK(strcmp(out.u.s.data, text) == 0);
	far_val_fini(&out);
	far_rref_free(r);
	/* Memory that the value owns is shared; the value may be finished before the reference. */
	v = far_tensor_val(&t);
	CHECK_STATUS(far_val_dup(&v, &copy, &err), FAR_OK, &err);
	r = of(&copy);
	const void *bytes = copy.u.t.data;
	far_val_fini(&copy);
	CHECK_STATUS(far_rref_local_value(r, 0, &out, &err), FAR_OK, &err);
	CHECK(out.u.t.data == bytes && ((const double *)bytes)[2] == 3);
	far_val_fini(&out);
	out = fetched_there(r);
	CHECK(out.u.t.shape[0] == 3 && ((const double *)out.u.t.data)[1] == 2);
	far_val_fini(&out);
	/* A list that holds a reference. */
	struct far_val items[] = {far_int(1), far_rref_val(r)}, list = far_list(items, 2);
	struct far_rref *outer = of(&list);
	far_rref_free(r);
	CHECK_STATUS(far_rref_local_value(outer, 0, &out, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_to_here(out.u.list.items[1].u.rref, 0, &copy, &err), FAR_OK, &err);
	CHECK(copy.u.t.data == bytes);
	far_val_fini(&copy);
	far_val_fini(&out);
	far_rref_free(outer);
	CHECK_STATUS(far_rref_of(agent, NULL, &r, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_rref_of(NULL, &v, &r, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::give", FAR_ARGS("theirs"), NULL, &v, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_to_here(v.u.rref, 0, &out, &err), FAR_OK, &err);
	CHECK(strcmp(out.u.s.data, "theirs") == 0);
	far_val_fini(&out);
	far_val_fini(&v);
}

static void objects(void)
{
	struct counter *c = malloc(sizeof *c);
	struct far_rref *r;
	struct far_val v;
	void *object;
	CHECK(c);
	c->n = 5;
	CHECK_STATUS(far_rref_of_object(agent, "t::Nothing", c, &r, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "t::Nothing");
	atomic_fetch_add(&alive, 1);
	CHECK_STATUS(far_rref_of_object(agent, "t::Counter", c, &r, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_rpc_sync(r, "add", FAR_ARGS(1), NULL, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 6);
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::bump", FAR_ARGS(r), NULL, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 16 && c->n == 16);
	CHECK_STATUS(far_rref_object(r, "t::Counter", 0, &object, &err), FAR_OK, &err);
	CHECK(object == c && atomic_load(&alive) == 1);
	far_rref_free(r);
	CHECK_STATUS(far_rref_flush(agent, 0, &err), FAR_OK, &err);
	for (int i = 0; i < 10000 && atomic_load(&alive); i++)
		usleep(1000);
	CHECK(atomic_load(&alive) == 0);
}

static void futures(void)
{
	struct far_val v = far_int(3);
	struct far_rref *r = of(&v), *bad;
	struct far_future *f;
	CHECK_STATUS(far_rref_future(r, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, &v, &err), FAR_OK, &err);
	CHECK(v.type == FAR_TYPE_NONE && far_rref_confirmed_by_owner(r));
	far_future_free(f);
	far_rref_free(r);
	/* One that is freed while its future is pending. */
	CHECK_STATUS(far_remote(agent, "worker1", "far::identity", FAR_ARGS(1), NULL, &r, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_future(r, &f, &err), FAR_OK, &err);
	far_rref_free(r);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_OK, &err);
	far_future_free(f);
	CHECK_STATUS(far_remote_unchecked(agent, "worker1", "t::nothing", FAR_NOARGS, NULL, &bad, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_future(bad, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_NO_FUNCTION, &err);
	far_future_free(f);
	far_rref_free(bad);
	CHECK_STATUS(far_rref_future(NULL, &f, &err), FAR_INVALID, &err);
}

int main(void)
{
	const struct far_opts opts = {.functions = table,
				      .functions_n = 3,
				      .classes = &counter_class,
				      .classes_n = 1,
				      .leaks = FAR_LEAKS_FAIL};
	agent = check_join(&opts);
	if (check_rank() == 0) {
		pthread_t threads[2];
		for (intptr_t i = 0; i < 2; i++)
			CHECK(pthread_create(&threads[i], NULL, values, (void *)(i * 1000)) == 0);
		for (int i = 0; i < 2; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
		kinds();
		objects();
		futures();
	} else {
		CHECK_STATUS(far_serve(agent, 0, &err), FAR_OK, &err);
	}
	check_leave(agent);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions on values of references: of every kind, on values that are made later, that failed, that nobody knows.
 * Main thread of each process; handlers on shard threads. */
#include "check.h"

static struct far_agent *agent;
static struct far_err err;
static struct far_deferred *late; /* worker1, shard thread: the value that is not made yet */
static const void *seen;          /* worker1, shard thread: memory of the last tensor that t::first got */

static enum far_status make(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	void *data;
	enum far_status status = far_return_tensor(req, FAR_F64, 1, &(uint64_t){(uint64_t)args[0].u.i}, &data);
	for (int64_t i = 0; !status && i < args[0].u.i; i++)
		((double *)data)[i] = (double)i;
	return status;
}

static enum far_status make_late(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_defer(req, &late);
}

static enum far_status finish(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *d = late;
	late = NULL;
	if (args[0].type == FAR_TYPE_NONE)
		far_deferred_fail(d, FAR_REMOTE, 7, "no value today");
	else
		far_deferred_return(d, &args[0]);
	return far_return_none(req);
}

/* Two calls see the same memory: no copy was made. */
static enum far_status first(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct far_tensor *t = far_val_tensor(&args[0]);
	bool same = seen == t->data;
	seen = t->data;
	return far_return_bool(req, same);
}

static enum far_status at(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct far_tensor *t = far_val_tensor(&args[0]);
	if ((uint64_t)args[1].u.i >= t->shape[0])
		return far_fail(req, FAR_REMOTE, 42, "%d is beyond the end", (int)args[1].u.i);
	return far_return_float(req, ((const double *)t->data)[args[1].u.i]);
}

/* A value, a reference and a default. */
static enum far_status add(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val x;
	struct far_err e;
	enum far_status status = far_rref_to_here(args[1].u.rref, 0, &x, &e);
	return status ? far_fail(req, status, 0, "%s", e.text) : far_return_int(req, args[0].u.i + x.u.i + args[2].u.i);
}

static enum far_status text(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_return_str(req, "a text");
}

static const struct far_function table[] = {
	{"t::make(int n) -> Tensor", FAR_KIND_INLINE, make, NULL, 0},
	{"t::late() -> Any", FAR_KIND_INLINE, make_late, NULL, 0},
	{"t::finish(Any x) -> none", FAR_KIND_INLINE, finish, NULL, 0},
	{"t::first(Tensor x) -> bool", FAR_KIND_INLINE, first, NULL, 0},
	{"t::at(Tensor x, int i) -> float", FAR_KIND_INLINE, at, NULL, 0},
	{"t::fiber_at(Tensor x, int i) -> float", FAR_KIND_FIBER, at, NULL, 0},
	{"t::blocking_at(Tensor x, int i) -> float", FAR_KIND_BLOCKING, at, NULL, 0},
	{"t::add(int x, rref y, int z=100) -> int", FAR_KIND_FIBER, add, NULL, 0},
	{"t::kind(str x) -> str", FAR_KIND_INLINE, text, NULL, 0},
	{"t::kind(Tensor x) -> str", FAR_KIND_FIBER, text, NULL, 0},
};

static struct far_rref *remote(const char *function, const struct far_val *args, size_t n)
{
	struct far_rref *r;
	CHECK_STATUS(far_remote_unchecked(agent, "worker1", function, args, n, NULL, &r, &err), FAR_OK, &err);
	return r;
}

static void kinds(void)
{
	static const char *const functions[] = {"t::at", "t::fiber_at", "t::blocking_at"};
	struct far_rref *r = remote("t::make", FAR_ARGS(1000)), *kept;
	struct far_future *f;
	struct far_val v;
	for (size_t i = 0; i < 3; i++) {
		CHECK_STATUS(far_rref_call(r, functions[i], FAR_ARGS(7), NULL, &v, &err), FAR_OK, &err);
		CHECK(v.type == FAR_TYPE_FLOAT && v.u.f == 7);
		CHECK_STATUS(far_rref_call(r, functions[i], FAR_ARGS(1000), NULL, &v, &err), FAR_REMOTE, &err);
		CHECK(err.code == 42 && strcmp(err.origin, "worker1") == 0);
		CHECK_TEXT(&err, "1000 is beyond the end");
	}
	CHECK_STATUS(far_rref_call(r, "t::first", FAR_NOARGS, NULL, NULL, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_call(r, "t::first", FAR_NOARGS, NULL, &v, &err), FAR_OK, &err);
	CHECK(v.u.b);
	CHECK_STATUS(far_rref_call(r, "t::kind", FAR_NOARGS, NULL, &v, &err), FAR_OK, &err);
	CHECK(strcmp(v.u.s.data, "a text") == 0);
	far_val_fini(&v);
	/* The reference may be freed at once. */
	CHECK_STATUS(far_rref_call_async(r, "t::fiber_at", FAR_ARGS(9), NULL, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_call_remote(r, "t::at", FAR_ARGS(11), NULL, &kept, &err), FAR_OK, &err);
	far_rref_free(r);
	CHECK_STATUS(far_future_wait(f, 0, &v, &err), FAR_OK, &err);
	CHECK(v.u.f == 9);
	far_future_free(f);
	CHECK(far_rref_owner(kept).worker == 1);
	CHECK_STATUS(far_rref_to_here(kept, 0, &v, &err), FAR_OK, &err);
	CHECK(v.u.f == 11);
	far_rref_free(kept);
}

static void finished(const struct far_val *v)
{
	CHECK_STATUS(far_rpc_sync_unchecked(agent, "worker1", "t::finish", v, 1, NULL, NULL, &err), FAR_OK, &err);
}

/* Calls that arrive before the value is made, and a reference among the arguments. */
static void values_made_later(void)
{
	struct far_rref *r = remote("t::late", FAR_NOARGS), *other;
	struct far_future *f, *failed;
	struct far_val three = far_int(3), v;
	CHECK_STATUS(far_rref_of(agent, &three, &other, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_call_async(r, "t::add", FAR_ARGS(other), NULL, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_call_async(r, "t::at", FAR_ARGS(0), NULL, &failed, &err), FAR_OK, &err);
	const struct far_call_opts soon = {.timeout_ns = 50 * FAR_MS};
	CHECK_STATUS(far_rref_call(r, "t::add", FAR_ARGS(other), &soon, NULL, &err), FAR_TIMEOUT, &err);
	CHECK(!far_future_done(f));
	v = far_int(1000);
	finished(&v);
	CHECK_STATUS(far_future_wait(f, 0, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 1103);
	CHECK_STATUS(far_future_wait(failed, 0, NULL, &err), FAR_BAD_ARGS, &err);
	CHECK(err.executed == FAR_EXECUTED_NO);
	far_future_free(f);
	far_future_free(failed);
	/* On the owner of the value itself. */
	CHECK_STATUS(far_rref_call(other, "far::identity", FAR_NOARGS, NULL, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 3);
	far_rref_free(other);
	far_rref_free(r);
}

static void refused(struct far_rref *r, const char *function, const struct far_val *args, size_t n,
		    enum far_status status, const char *text)
{
	struct far_val out;
	CHECK_STATUS(far_rref_call(r, function, args, n, NULL, &out, &err), status, &err);
	CHECK_TEXT(&err, text);
	CHECK(err.executed == FAR_EXECUTED_NO);
}

static void errors(void)
{
	struct far_rref *r = remote("t::make", FAR_ARGS(3)), *failed = remote("t::late", FAR_NOARGS);
	struct far_val none = far_none(), many[FAR_ARGS_MAX] = {0};
	struct far_future *f;
	for (size_t i = 0; i < FAR_ARGS_MAX; i++)
		many[i] = far_int(1);
	refused(r, "t::nothing", FAR_NOARGS, FAR_NO_FUNCTION, "t::nothing");
	refused(r, "t::at", FAR_ARGS("x"), FAR_BAD_ARGS, "argument 2");
	refused(r, "t::at", FAR_NOARGS, FAR_BAD_ARGS, "takes 2 arguments, 1 given");
	refused(r, "t::at", many, FAR_ARGS_MAX, FAR_BAD_ARGS, "with the value");
	refused(r, "t::at", FAR_ARGS(FAR_KW("i", 1)), FAR_BAD_ARGS, "by position");
	refused(NULL, "t::at", FAR_NOARGS, FAR_INVALID, "NULL");
	CHECK_STATUS(far_rref_call_async(r, "t::at", FAR_ARGS(1), NULL, NULL, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_rref_call_remote(r, "t::at", FAR_ARGS(1), NULL, NULL, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_rref_call_async(failed, "t::kind", FAR_NOARGS, NULL, &f, &err), FAR_OK, &err);
	finished(&none);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_REMOTE, &err);
	CHECK(err.code == 7 && err.executed == FAR_EXECUTED_NO);
	CHECK_TEXT(&err, "no value today");
	far_future_free(f);
	refused(failed, "t::kind", FAR_NOARGS, FAR_REMOTE, "no value today");
	far_rref_free(failed);
	far_rref_free(r);
}

int main(void)
{
	struct far_opts opts = {.leaks = FAR_LEAKS_FAIL};
	if (check_rank() == 1) {
		opts.functions = table;
		opts.functions_n = sizeof table / sizeof *table;
	}
	agent = check_join(&opts);
	if (check_rank() == 0) {
		kinds();
		values_made_later();
		errors();
	} else {
		CHECK_STATUS(far_serve(agent, 0, &err), FAR_OK, &err);
	}
	check_leave(agent);
	return 0;
}

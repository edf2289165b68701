/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions that the callee alone has registered: overloads, conversions and defaults are chosen there, and so are the
 * errors. Main thread of each process; handlers on shard threads. */
#include "check.h"

static struct far_agent *agent;
static struct far_err err;

/* All arguments, as a list behind the name of the overload. */
static enum far_status echo(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val items[FAR_ARGS_MAX + 1] = {far_str(user)};
	memcpy(items + 1, args, n * sizeof *args);
	struct far_val list = far_list(items, n + 1);
	return far_return(req, &list);
}

static enum far_status sum(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val x;
	struct far_err e;
	enum far_status status = far_rref_local_value(args[0].u.rref, 0, &x, &e);
	return status ? far_fail(req, status, 0, "%s", e.text) : far_return_float(req, x.u.f + args[1].u.f);
}

static enum far_status number(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_return_float(req, args[0].u.f / 2);
}

static char one[] = "one", two[] = "two", texts[] = "texts";
static const struct far_function table[] = {
	{"t::scale(Tensor x, float by=2) -> List", FAR_KIND_INLINE, echo, one, 0},
	{"t::either(int a) -> List", FAR_KIND_FIBER, echo, one, 0},
	{"t::either(int a, bool b) -> List", FAR_KIND_BLOCKING, echo, two, 0},
	{"t::either(str a, str b=\"c\") -> List", FAR_KIND_INLINE, echo, texts, 0},
	{"t::number(float x) -> float", FAR_KIND_INLINE, number, NULL, 0},
	{"t::sum(rref a, float b) -> float", FAR_KIND_FIBER, sum, NULL, 0},
};

static struct far_val call(const char *function, const struct far_val *args, size_t n)
{
	struct far_val out;
	CHECK_STATUS(far_rpc_sync_unchecked(agent, "worker1", function, args, n, NULL, &out, &err), FAR_OK, &err);
	return out;
}

static bool is_text(const struct far_val *v, const char *text)
{
	return v->type == FAR_TYPE_STRING && strcmp(v->u.s.data, text) == 0;
}

static void overloads(void)
{
	struct far_val v = call("t::either", FAR_ARGS(7));
	CHECK(v.u.list.n == 2 && is_text(&v.u.list.items[0], one) && v.u.list.items[1].u.i == 7);
	far_val_fini(&v);
	v = call("t::either", FAR_ARGS(7, 1)); /* 1 is taken for a bool */
	CHECK(v.u.list.n == 3 && is_text(&v.u.list.items[0], two) && v.u.list.items[2].type == FAR_TYPE_BOOL &&
	      v.u.list.items[2].u.b);
	far_val_fini(&v);
	v = call("t::either", FAR_ARGS("a")); /* a default that only the callee knows */
	CHECK(v.u.list.n == 3 && is_text(&v.u.list.items[0], texts) && is_text(&v.u.list.items[2], "c"));
	far_val_fini(&v);
	const float data[] = {1, 2, 3};
	struct far_tensor x = far_tensor_1d(FAR_F32, data, 3);
	v = call("t::scale", FAR_ARGS(&x));
	CHECK(v.u.list.n == 3 && v.u.list.items[2].u.f == 2 && v.u.list.items[1].u.t.shape[0] == 3);
	far_val_fini(&v);
	v = call("t::scale", FAR_ARGS(&x, 3)); /* an int for a float */
	CHECK(v.u.list.items[2].type == FAR_TYPE_FLOAT && v.u.list.items[2].u.f == 3);
	far_val_fini(&v);
}

static void refused(const char *function, const struct far_val *args, size_t n, enum far_status status,
		    enum far_executed executed, const char *text)
{
	struct far_val out;
	CHECK_STATUS(far_rpc_sync_unchecked(agent, "worker1", function, args, n, NULL, &out, &err), status, &err);
	CHECK_TEXT(&err, text);
	CHECK(err.executed == executed);
}

static void errors(void)
{
	char name[200];
	memset(name, 'a', sizeof name - 1);
	name[sizeof name - 1] = 0;
	refused("t::nothing", FAR_ARGS(1), FAR_NO_FUNCTION, FAR_EXECUTED_NO, "no such function");
	refused("t::scale", FAR_ARGS("x"), FAR_BAD_ARGS, FAR_EXECUTED_NO, "argument 1 (x) is a string, wanted Tensor");
	CHECK(strcmp(err.origin, "worker1") == 0);
	refused("t::scale", FAR_NOARGS, FAR_BAD_ARGS, FAR_EXECUTED_NO, "takes 1 to 2 arguments, 0 given");
	refused("t::either", FAR_ARGS(2.5), FAR_BAD_ARGS, FAR_EXECUTED_NO, "fit none of its overloads");
	refused("t::scale", FAR_ARGS(FAR_KW("x", 1)), FAR_BAD_ARGS, FAR_EXECUTED_NO, "by position");
	refused("t::scale(Tensor x", FAR_ARGS(1), FAR_INVALID, FAR_EXECUTED_NO, "");
	refused("t::scale(Any q, ", FAR_ARGS(1), FAR_INVALID, FAR_EXECUTED_NO, "");
	refused(name, FAR_ARGS(1), FAR_INVALID, FAR_EXECUTED_NO, "at most");
	CHECK_STATUS(far_rpc_sync_unchecked(agent, "nobody", "t::number", FAR_ARGS(1), NULL, NULL, &err),
		     FAR_UNKNOWN_WORKER, &err);
	CHECK_STATUS(far_rpc_async_unchecked(agent, "worker1", "t::number", FAR_ARGS(1), NULL, NULL, &err), FAR_INVALID,
		     &err);
}

static void references(void)
{
	struct far_rref *r, *bad;
	struct far_future *f;
	struct far_val v;
	CHECK_STATUS(far_remote_unchecked(agent, "worker1", "t::number", FAR_ARGS(9), NULL, &r, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_to_here(r, 0, &v, &err), FAR_OK, &err);
	CHECK(v.type == FAR_TYPE_FLOAT && v.u.f == 4.5);
	CHECK_STATUS(far_rpc_async_unchecked(agent, "worker1", "t::sum", FAR_ARGS(r, 2), NULL, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, &v, &err), FAR_OK, &err);
	CHECK(v.u.f == 6.5);
	far_future_free(f);
	/* References among arguments that do not fit are given back. */
	refused("t::number", FAR_ARGS(r), FAR_BAD_ARGS, FAR_EXECUTED_NO, "a reference");
	CHECK_STATUS(far_remote_unchecked(agent, "worker1", "t::number", FAR_ARGS("x"), NULL, &bad, &err), FAR_OK,
		     &err);
	CHECK_STATUS(far_rref_wait(bad, 0, &err), FAR_BAD_ARGS, &err);
	CHECK_STATUS(far_rref_to_here(bad, 0, NULL, &err), FAR_BAD_ARGS, &err);
	far_rref_free(bad);
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
		overloads();
		errors();
		references();
	} else {
		CHECK_STATUS(far_serve(agent, 0, &err), FAR_OK, &err);
	}
	check_leave(agent);
	return 0;
}

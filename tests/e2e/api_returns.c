/* SPDX-License-Identifier: BSD-3-Clause */
/** Answers in short forms, of a wrong type, and by a future; arguments that FAR_ARGS takes and refuses. Two workers.
 * Main thread of each process; handlers on shard threads. */
#include "check.h"

static struct far_agent *agent;
static struct far_err err;
static struct far_future *kept; /* on rank 1: a user-made future */
static enum far_status refusal; /* on rank 1: what the last wrong answer returned */

FAR_HANDLER(none)
{
	return far_return_none(req);
}

FAR_HANDLER(a_bool)
{
	return far_return_bool(req, !args[0].u.b);
}

FAR_HANDLER(an_int)
{
	return far_return_int(req, -args[0].u.i);
}

FAR_HANDLER(a_float)
{
	return far_return_float(req, args[0].u.f / 2);
}

FAR_HANDLER(a_str)
{
	return far_return_str(req, args[0].u.s.data);
}

FAR_HANDLER(bytes)
{
	return far_return_bytes(req, args[0].u.s.data, args[0].u.s.len - 1);
}

FAR_HANDLER(an_rref)
{
	return far_return_rref(req, args[0].u.rref);
}

FAR_HANDLER(wrong)
{
	void *data;
	uint64_t one = 1;
	refusal = args[0].u.b ? far_return_tensor(req, FAR_F32, 1, &one, &data) : far_return_str(req, "no int");
	CHECK(far_return_int(req, 1) == FAR_INVALID); /* answered already */
	return refusal;
}

FAR_HANDLER(wrong_later)
{
	struct far_deferred *d;
	struct far_val v = far_str("no int");
	CHECK(far_defer(req, &d) == FAR_OK);
	refusal = far_deferred_return(d, &v);
	return FAR_OK;
}

FAR_HANDLER(last_refusal)
{
	return far_return_int(req, refusal);
}

/* Calls rank 0, and answers with its future: no wait in an inline handler. */
FAR_HANDLER(relay)
{
	struct far_future *f;
	struct far_err why;
	CHECK(far_return_future(req, NULL) == FAR_INVALID);
	CHECK_STATUS(far_rpc_async(far_req_agent(req), "worker0", "t::root", FAR_ARGS(args[0]), NULL, &f, &why), FAR_OK,
		     &why);
	enum far_status status = far_return_future(req, f);
	far_future_free(f);
	return status;
}

FAR_HANDLER(root)
{
	if (args[0].u.i < 0)
		return far_fail(req, FAR_REMOTE, 33, "%d has no root", (int)args[0].u.i);
	return far_return_int(req, args[0].u.i / 2);
}

FAR_HANDLER(wait_for_set)
{
	CHECK(far_future_create(&kept, NULL) == FAR_OK);
	return far_return_future(req, kept);
}

/* Completes the future, whose request gets a value of the wrong type if this is no int; then it answers at once. */
FAR_HANDLER(set)
{
	CHECK(far_future_set_value(kept, &args[0], NULL) == FAR_OK);
	enum far_status status = far_return_future(req, kept);
	far_future_free(kept);
	return status;
}

static const struct far_function table[] = {
	{"t::none() -> none", FAR_KIND_INLINE, none, NULL},
	{"t::bool(bool b) -> bool", FAR_KIND_INLINE, a_bool, NULL},
	{"t::int(int i) -> int", FAR_KIND_INLINE, an_int, NULL},
	{"t::float(float f) -> float", FAR_KIND_INLINE, a_float, NULL},
	{"t::str(str s) -> str", FAR_KIND_INLINE, a_str, NULL},
	{"t::bytes(bytes s) -> bytes", FAR_KIND_INLINE, bytes, NULL},
	{"t::rref(rref r) -> rref", FAR_KIND_INLINE, an_rref, NULL},
	{"t::wrong(bool tensor) -> int", FAR_KIND_INLINE, wrong, NULL},
	{"t::wrong_fiber(bool tensor) -> int", FAR_KIND_FIBER, wrong, NULL},
	{"t::wrong_later() -> int", FAR_KIND_INLINE, wrong_later, NULL},
	{"t::refusal() -> int", FAR_KIND_INLINE, last_refusal, NULL},
	{"t::relay(int x) -> int", FAR_KIND_INLINE, relay, NULL},
	{"t::relay_fiber(int x) -> int", FAR_KIND_FIBER, relay, NULL},
	{"t::root(int x) -> int", FAR_KIND_INLINE, root, NULL},
	{"t::wait_for_set() -> int", FAR_KIND_INLINE, wait_for_set, NULL},
	{"t::set(Any x) -> Any", FAR_KIND_INLINE, set, NULL},
	{"t::any(Any x) -> none", FAR_KIND_INLINE, none, NULL},
};

#define CALL(status, out, function, ...)                                                                               \
	CHECK_STATUS(far_rpc_sync(agent, "worker1", function, __VA_ARGS__, NULL, out, &err), status, &err)

static void short_forms(void)
{
	struct far_val out;
	struct far_rref *r;
	CALL(FAR_OK, &out, "t::none", FAR_ARGS());
	CHECK(out.type == FAR_TYPE_NONE);
	CALL(FAR_OK, &out, "t::bool", FAR_ARGS(far_bool(false)));
	CHECK(out.type == FAR_TYPE_BOOL && out.u.b);
	CALL(FAR_OK, &out, "t::int", FAR_ARGS(7));
	CHECK(out.type == FAR_TYPE_INT && out.u.i == -7);
	CALL(FAR_OK, &out, "t::float", FAR_ARGS(7.0));
	CHECK(out.type == FAR_TYPE_FLOAT && out.u.f == 3.5);
	CALL(FAR_OK, &out, "t::str", FAR_ARGS("text"));
	CHECK(out.type == FAR_TYPE_STRING && strcmp(out.u.s.data, "text") == 0);
	far_val_fini(&out);
	CALL(FAR_OK, &out, "t::bytes", FAR_ARGS(far_bytes("abc", 3)));
	CHECK(out.type == FAR_TYPE_BYTES && out.u.s.len == 2 && memcmp(out.u.s.data, "ab", 2) == 0);
	far_val_fini(&out);
	CHECK_STATUS(far_remote(agent, "worker1", "t::int", FAR_ARGS(1), NULL, &r, &err), FAR_OK, &err);
	CALL(FAR_OK, &out, "t::rref", FAR_ARGS(r));
	CHECK(out.type == FAR_TYPE_RREF && far_rref_same(out.u.rref, r));
	far_val_fini(&out);
	far_rref_free(r);
}

/* The handler learns a wrong type from far_return*(), the caller from its call. */
static void wrong_types(void)
{
	struct far_val out;
	const char *const functions[] = {"t::wrong", "t::wrong_fiber"};
	for (int i = 0; i < 4; i++) {
		CALL(FAR_SIGNATURE, NULL, functions[i / 2], FAR_ARGS(far_bool(i % 2)));
		CHECK_TEXT(&err, i % 2 ? "returned a tensor" : "returned a str");
		CHECK(err.executed == FAR_EXECUTED_YES);
		CALL(FAR_OK, &out, "t::refusal", FAR_ARGS());
		CHECK(out.u.i == FAR_SIGNATURE);
	}
	CALL(FAR_SIGNATURE, NULL, "t::wrong_later", FAR_ARGS());
	CHECK_TEXT(&err, "returned a str");
	CALL(FAR_OK, &out, "t::refusal", FAR_ARGS());
	CHECK(out.u.i == FAR_SIGNATURE);
}

static void futures(void)
{
	const char *const functions[] = {"t::relay", "t::relay_fiber"};
	struct far_future *f;
	struct far_val out;
	for (int i = 0; i < 2; i++) {
		CALL(FAR_OK, &out, functions[i], FAR_ARGS(10));
		CHECK(out.u.i == 5);
		CALL(FAR_REMOTE, NULL, functions[i], FAR_ARGS(-10));
		CHECK(err.code == 33 && strcmp(err.origin, "worker1") == 0);
		CHECK_TEXT(&err, "-10 has no root");
	}
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(far_rpc_async(agent, "worker1", "t::wait_for_set", FAR_ARGS(), NULL, &f, &err), FAR_OK,
			     &err);
		if (i == 0)
			CALL(FAR_OK, &out, "t::set", FAR_ARGS(12));
		else
			CALL(FAR_OK, &out, "t::set", FAR_ARGS("no int"));
		far_val_fini(&out);
		CHECK_STATUS(far_future_wait(f, 0, &out, &err), i ? FAR_SIGNATURE : FAR_OK, &err);
		CHECK(i || out.u.i == 12);
		far_future_free(f);
	}
}

static void arguments(void)
{
	struct far_val out;
	CALL(FAR_OK, &out, "t::int", FAR_ARGS((uint64_t)INT64_MAX));
	CHECK(out.u.i == -INT64_MAX);
	CALL(FAR_BAD_ARGS, NULL, "t::int", FAR_ARGS((uint64_t)INT64_MAX + 1));
	CHECK_TEXT(&err, "argument 1 (i) is 9223372036854775808, beyond the largest int 9223372036854775807");
	CALL(FAR_BAD_ARGS, NULL, "t::any", FAR_ARGS(UINT64_MAX));
	CHECK_TEXT(&err, "18446744073709551615");
	CALL(FAR_INVALID, NULL, "t::any", FAR_ARGS(FAR_LIST(1, UINT64_MAX)));
	CHECK_TEXT(&err, "18446744073709551615 is beyond the largest int");
	CALL(FAR_INVALID, NULL, "t::any", FAR_ARGS(FAR_DICT(FAR_ENTRY("n", UINT64_MAX))));
	CHECK_TEXT(&err, "18446744073709551615 is beyond the largest int");
	CALL(FAR_OK, &out, "t::any", FAR_ARGS(FAR_LIST()));
	CALL(FAR_OK, &out, "t::any", FAR_ARGS(FAR_DICT()));
}

int main(void)
{
	const struct far_opts opts = {.functions = table, .functions_n = sizeof table / sizeof *table};
	agent = check_join(&opts);
	if (strcmp(getenv("RANK"), "0") == 0) {
		short_forms();
		wrong_types();
		futures();
		arguments();
	} else {
		CHECK_STATUS(far_serve(agent, 0, &err), FAR_OK, &err);
	}
	check_leave(agent);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 2. Main thread of each process; handlers on shard threads. */
/** The typed calls: rank 0 calls, rank 1 answers. */
#include "check.h"

static enum far_status give_back(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	CHECK(n == 1);
	return far_return(req, &args[0]);
}

static enum far_status describe(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	char text[256];
	CHECK(n == 5);
	snprintf(text, sizeof text, "%d %lld %g %s %zu", args[0].u.b, (long long)args[1].u.i, args[2].u.f,
		 (const char *)args[3].u.s.data, far_tensor_count(&args[4].u.t));
	struct far_val s = far_str(text);
	return far_return(req, &s);
}

static enum far_status failing(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, (enum far_status)args[0].u.i, (int32_t)args[1].u.i, "%.*s", (int)args[2].u.s.len,
			(const char *)args[2].u.s.data);
}

static unsigned busy_ran;

static enum far_status return_busy(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	busy_ran++;
	return FAR_BUSY;
}

static enum far_status busy_count(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(busy_ran);
	return far_return(req, &v);
}

static enum far_status iota(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	uint64_t shape[2] = {(uint64_t)args[0].u.i, 3};
	void *data;
	enum far_status status = far_return_tensor(req, FAR_F64, 2, shape, &data);
	for (uint64_t i = 0; !status && i < shape[0] * 3; i++)
		((double *)data)[i] = (double)i;
	return status;
}

static struct far_agent *agent;
static struct far_err err;

static enum far_status call(const char *to, const char *fn, const struct far_val *args, size_t n, struct far_val *out)
{
	*out = far_none();
	return far_rpc_sync(agent, to, fn, args, n, NULL, out, &err);
}

static void same(const struct far_val *a, const struct far_val *b)
{
	CHECK(a->type == b->type);
	switch (a->type) {
	case FAR_TYPE_BOOL:
		CHECK(a->u.b == b->u.b);
		break;
	case FAR_TYPE_INT:
		CHECK(a->u.i == b->u.i);
		break;
	case FAR_TYPE_FLOAT:
		CHECK(memcmp(&a->u.f, &b->u.f, sizeof a->u.f) == 0);
		break;
	case FAR_TYPE_STRING:
	case FAR_TYPE_BYTES:
		CHECK(a->u.s.len == b->u.s.len);
		CHECK(a->u.s.len == 0 || memcmp(a->u.s.data, b->u.s.data, a->u.s.len) == 0);
		CHECK(a->type == FAR_TYPE_BYTES || ((const char *)b->u.s.data)[b->u.s.len] == '\0');
		break;
	case FAR_TYPE_TENSOR:
		CHECK(a->u.t.dtype == b->u.t.dtype && a->u.t.ndim == b->u.t.ndim);
		CHECK(memcmp(a->u.t.shape, b->u.t.shape, a->u.t.ndim * sizeof a->u.t.shape[0]) == 0);
		CHECK(far_tensor_bytes(&a->u.t) == 0 ||
		      memcmp(a->u.t.data, b->u.t.data, far_tensor_bytes(&a->u.t)) == 0);
		CHECK((uintptr_t)b->u.t.data % far_dtype_size((enum far_dtype)b->u.t.dtype) == 0);
		break;
	default:
		break;
	}
}

static void values(const char *to)
{
	static uint8_t bytes[200000];
	struct far_val v[64];
	size_t n = 0;
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(i % 2);
	v[n++] = far_none();
	v[n++] = far_bool(true);
	v[n++] = far_bool(false);
	v[n++] = far_int(0);
	v[n++] = far_int(INT64_MIN);
	v[n++] = far_int(INT64_MAX);
	v[n++] = far_float(-0.0);
	v[n++] = far_float(1.0 / 3.0);
	v[n++] = far_float(__builtin_inf());
	v[n++] = far_float(__builtin_nan(""));
	v[n++] = far_str("");
	v[n++] = far_str("gr\xc3\xbc\xc3\x9f dich");
	v[n++] = far_bytes(NULL, 0);
	v[n++] = far_bytes("a\0b", 3);
	v[n++] = far_bytes(bytes, sizeof bytes);
	for (int d = FAR_F32; d < FAR_DTYPE_COUNT; d++) {
		static uint64_t aligned[1000];
		struct far_tensor t = far_tensor_1d((enum far_dtype)d, aligned, 0);
		v[n++] = far_tensor_val(&t);
		t.shape[0] = 3;
		v[n++] = far_tensor_val(&t);
		t = far_tensor_2d((enum far_dtype)d, aligned, 10, 100);
		v[n++] = far_tensor_val(&t);
		t.ndim = 0;
		v[n++] = far_tensor_val(&t);
	}
	for (size_t i = 0; i < n; i++) {
		struct far_val out;
		CHECK_STATUS(call(to, "t::echo", &v[i], 1, &out), FAR_OK, &err);
		same(&v[i], &out);
		far_val_fini(&out);
	}
}

static void builtins(const char *to)
{
	float x[] = {1, 2, 3}, y[] = {10, 20, 30};
	struct far_tensor t = far_tensor_1d(FAR_F32, x, 3), u = far_tensor_1d(FAR_F32, y, 3);
	struct far_val out;
	CHECK_STATUS(call(to, "far::add", FAR_ARGS(&t, &u), &out), FAR_OK, &err);
	CHECK(out.u.t.ndim == 1 && out.u.t.shape[0] == 3 && ((const float *)out.u.t.data)[2] == 33.0f);
	far_val_fini(&out);
	CHECK_STATUS(call(to, "far::mul", FAR_ARGS(&t, 3), &out), FAR_OK, &err);
	CHECK(((const float *)out.u.t.data)[2] == 9.0f);
	far_val_fini(&out);
	CHECK_STATUS(call(to, "far::sub", FAR_ARGS(7, 9), &out), FAR_OK, &err);
	CHECK(out.type == FAR_TYPE_INT && out.u.i == -2);
	/* Shapes that do not go together are the callee's to find. */
	u.shape[0] = 2;
	CHECK_STATUS(call(to, "far::add", FAR_ARGS(&t, &u), &out), FAR_BAD_ARGS, &err);
	CHECK(err.executed == FAR_EXECUTED_YES);
	CHECK_STATUS(call(to, "t::iota", FAR_ARGS(50000), &out), FAR_OK, &err);
	CHECK(out.u.t.shape[0] == 50000 && ((const double *)out.u.t.data)[149999] == 149999.0);
	far_val_fini(&out);
	CHECK_STATUS(call(to, "t::iota", FAR_ARGS(0), &out), FAR_OK, &err);
	CHECK(far_tensor_count(&out.u.t) == 0);
	far_val_fini(&out);
	CHECK_STATUS(call(to, "t::iota", FAR_ARGS(10000000), &out), FAR_TOO_LARGE, &err);
	CHECK_STATUS(call(to, "t::describe", FAR_ARGS(far_bool(true), -5, 2, "txt", &t), &out), FAR_OK, &err);
	CHECK(strcmp(out.u.s.data, "1 -5 2 txt 3") == 0);
	far_val_fini(&out);
}

/* Nothing of these leaves the caller. */
static void mistakes(void)
{
	struct far_counters before, after;
	struct far_val out, kw = far_int(1);
	static uint8_t large[FAR_MSG_EAGER_MAX];
	kw.kw = "no_such";
	far_counters_read(agent, &before);
	CHECK_STATUS(call("worker1", "t::nothing", FAR_NOARGS, &out), FAR_NO_FUNCTION, &err);
	CHECK_TEXT(&err, "t::nothing");
	CHECK_STATUS(call("worker1", NULL, FAR_NOARGS, &out), FAR_NO_FUNCTION, &err);
	CHECK_STATUS(call("worker1", "t::echo", FAR_NOARGS, &out), FAR_BAD_ARGS, &err);
	CHECK_STATUS(call("worker1", "t::iota", FAR_ARGS(1, 2), &out), FAR_BAD_ARGS, &err);
	CHECK_STATUS(call("worker1", "t::iota", FAR_ARGS("seven"), &out), FAR_BAD_ARGS, &err);
	CHECK_TEXT(&err, "t::iota");
	CHECK_STATUS(call("worker1", "t::iota", FAR_ARGS(1.5), &out), FAR_BAD_ARGS, &err);
	CHECK_STATUS(call("worker1", "t::echo", FAR_ARGS(kw), &out), FAR_BAD_ARGS, &err);
	CHECK_STATUS(call("worker1", "t::echo", FAR_ARGS(far_bytes(large, sizeof large)), &out), FAR_TOO_LARGE, &err);
	CHECK_STATUS(call("nobody", "t::echo", FAR_ARGS(1), &out), FAR_UNKNOWN_WORKER, &err);
	CHECK_TEXT(&err, "\"nobody\"");
	CHECK_STATUS(call(NULL, "t::echo", FAR_ARGS(1), &out), FAR_UNKNOWN_WORKER, &err);
	CHECK_STATUS(far_rpc_sync_to(agent, (struct far_to){9, -1}, "t::echo", FAR_ARGS(1), NULL, &out, &err),
		     FAR_UNKNOWN_WORKER, &err);
	CHECK(err.executed == FAR_EXECUTED_NO);
	far_counters_read(agent, &after);
	CHECK(after.calls_sent == before.calls_sent);
	CHECK_STATUS(far_rpc_sync(agent, "nobody", "t::echo", FAR_ARGS(1), NULL, NULL, NULL), FAR_UNKNOWN_WORKER, &err);
}

static void errors(void)
{
	struct far_val out;
	static const char odd[] = "100%s of\nit \x01\x7f\xff\xfe \"quoted\"";
	CHECK_STATUS(call("worker1", "t::fail", FAR_ARGS(FAR_DENIED, -99, odd), &out), FAR_DENIED, &err);
	CHECK(err.status == FAR_DENIED);
	CHECK(err.code == -99);
	CHECK(strcmp(err.text, odd) == 0);
	CHECK(strcmp(err.origin, "worker1") == 0);
	CHECK(err.executed == FAR_EXECUTED_YES);
	CHECK_STATUS(call("worker1", "t::fail", FAR_ARGS(FAR_OK, INT32_MIN, ""), &out), FAR_REMOTE, &err);
	CHECK(err.code == INT32_MIN);
	char text[1000];
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	CHECK_STATUS(call("worker1", "t::fail", FAR_ARGS(FAR_REMOTE, 0, text), &out), FAR_REMOTE, &err);
	CHECK(strlen(err.text) == FAR_ERR_TEXT_MAX - 1);
	/* Registered here only; registered there with another signature. */
	CHECK_STATUS(call("worker1", "t::only0", FAR_NOARGS, &out), FAR_NO_FUNCTION, &err);
	CHECK_TEXT(&err, "worker1");
	CHECK(strcmp(err.origin, "worker1") == 0 && err.executed == FAR_EXECUTED_NO);
	CHECK_STATUS(call("worker1", "t::differs", FAR_ARGS(1), &out), FAR_SIGNATURE, &err);
	CHECK_TEXT(&err, "t::differs(float");
	CHECK(err.executed == FAR_EXECUTED_NO);
	/* A handler's BUSY is its answer, not back-pressure: it runs once. */
	CHECK_STATUS(call("worker1", "t::busy", FAR_NOARGS, &out), FAR_BUSY, &err);
	CHECK(err.executed == FAR_EXECUTED_YES);
	CHECK_STATUS(call("worker1", "t::busy_count", FAR_NOARGS, &out), FAR_OK, &err);
	CHECK(out.u.i == 1);
}

static void workers(void)
{
	struct far_worker_info self, byname, byrank;
	far_worker_self(agent, &self);
	CHECK(self.rank == 0 && strcmp(self.name, "worker0") == 0 && self.alive && self.shards == 1);
	CHECK_STATUS(far_worker_by_name(agent, "worker1", &byname, &err), FAR_OK, &err);
	CHECK_STATUS(far_worker_by_rank(agent, 1, &byrank, &err), FAR_OK, &err);
	CHECK(byname.rank == 1 && strcmp(byrank.name, "worker1") == 0);
	CHECK(byname.incarnation == byrank.incarnation && byname.incarnation != self.incarnation);
	CHECK(strcmp(byname.nic, check_nic()) == 0 && byname.nic_why[0] && byname.nic_address[0]);
	CHECK(strcmp(self.nic, "shm") == 0);
	CHECK(far_world_size(agent) == 2);
	CHECK_STATUS(far_worker_by_name(agent, "worker2", &byname, &err), FAR_UNKNOWN_WORKER, &err);
	CHECK_TEXT(&err, "worker2");
	CHECK_STATUS(far_worker_by_rank(agent, 2, &byname, &err), FAR_UNKNOWN_WORKER, &err);
	CHECK_STATUS(far_worker_by_rank(agent, -1, &byname, &err), FAR_UNKNOWN_WORKER, &err);
	CHECK(far_rpc_timeout_ns(agent) == 30 * FAR_SEC);
	CHECK(far_set_rpc_timeout_ns(agent, 0) == FAR_OK && far_rpc_timeout_ns(agent) == FAR_RPC_TIMEOUT_NS);
	CHECK(far_set_rpc_timeout_ns(agent, 40 * FAR_SEC) == FAR_OK);
	CHECK(far_rpc_timeout_ns(agent) == 40 * FAR_SEC);
}

/* Futures freed before and after they are complete; wait-all; the same future waited for twice. */
static void futures(void)
{
	struct far_future *f[50];
	struct far_val out;
	for (int round = 0; round < 150; round++) {
		CHECK_STATUS(far_rpc_async(agent, "worker1", "t::echo", FAR_ARGS("x"), NULL, &f[0], &err), FAR_OK,
			     &err);
		far_future_free(f[0]);
	}
	for (int i = 0; i < 50; i++)
		CHECK_STATUS(
			far_rpc_async(agent, i % 2 ? "worker1" : "worker0", "t::echo", FAR_ARGS(i), NULL, &f[i], &err),
			FAR_OK, &err);
	CHECK_STATUS(far_future_wait_all(f, 50, 0, &err), FAR_OK, &err);
	for (int i = 0; i < 50; i++) {
		CHECK(far_future_done(f[i]));
		CHECK_STATUS(far_future_value(f[i], &out, &err), FAR_OK, &err);
		CHECK(out.u.i == i);
		CHECK_STATUS(far_future_wait(f[i], 1, &out, &err), FAR_OK, &err);
		far_future_free(f[i]);
	}
	CHECK_STATUS(far_rpc_async(agent, "worker1", "t::echo", FAR_ARGS(1), NULL, &f[0], &err), FAR_OK, &err);
	CHECK_STATUS(far_rpc_async(agent, "worker1", "t::only0", FAR_NOARGS, NULL, &f[1], &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait_all(f, 2, 0, &err), FAR_NO_FUNCTION, &err);
	CHECK_STATUS(far_future_wait(f[1], 0, NULL, &err), FAR_NO_FUNCTION, &err);
	CHECK_STATUS(far_future_wait_all(NULL, 0, 0, &err), FAR_OK, &err);
	far_future_free(f[0]);
	far_future_free(f[1]);
}

int main(void)
{
	static const struct far_function table[] = {
		{"t::echo(Any x) -> Any", FAR_KIND_INLINE, give_back, NULL},
		{"t::describe(bool b, int i, float f, str s, Tensor t) -> str", FAR_KIND_INLINE, describe, NULL},
		{"t::fail(int status, int code, str text) -> none", FAR_KIND_INLINE, failing, NULL},
		{"t::busy() -> none", FAR_KIND_INLINE, return_busy, NULL},
		{"t::busy_count() -> int", FAR_KIND_INLINE, busy_count, NULL},
		{"t::iota(int rows) -> Tensor", FAR_KIND_INLINE, iota, NULL},
		{"t::differs(int x) -> Any", FAR_KIND_INLINE, give_back, NULL},
		{"t::only0() -> none", FAR_KIND_INLINE, return_busy, NULL},
	};
	static const struct far_function other = {"t::differs(float x) -> Any", FAR_KIND_INLINE, give_back, NULL};
	struct far_opts opts = {.functions = table,
				.functions_n = 8,
				.rpc_timeout_ns = 30 * FAR_SEC,
				.max_message_bytes = FAR_MSG_EAGER_MAX};
	struct far_function there[7];
	int rank = check_rank();
	if (rank == 1) {
		/* Another order, another signature, and one less. */
		for (int i = 0; i < 6; i++)
			there[i] = table[5 - i];
		there[6] = other;
		opts.functions = there;
		opts.functions_n = 7;
	}
	agent = check_join(&opts);
	struct far_val kept = far_none();
	struct far_future *left = NULL, *never_read = NULL;
	if (rank == 0) {
		struct far_counters c;
		values("worker1");
		values("worker0");
		builtins("worker1");
		builtins("worker0");
		mistakes();
		errors();
		workers();
		futures();
		CHECK_STATUS(
			call("worker1", "t::echo", FAR_ARGS("kept beyond the end, and longer than a line is"), &kept),
			FAR_OK, &err);
		CHECK_STATUS(
			far_rpc_async(agent, "worker1", "t::fail", FAR_ARGS(FAR_REMOTE, 7, "late"), NULL, &left, &err),
			FAR_OK, &err);
		CHECK_STATUS(far_rpc_async(agent, "worker1", "t::echo", FAR_ARGS(5), NULL, &never_read, &err), FAR_OK,
			     &err);
		CHECK_STATUS(far_future_wait(left, 0, NULL, &err), FAR_REMOTE, &err);
		CHECK_STATUS(far_future_wait(never_read, 0, NULL, &err), FAR_OK, &err);
		far_counters_read(agent, &c);
		CHECK(c.calls_active == 0 && c.packets_dropped == 0);
		CHECK(c.calls_sent == c.calls_completed + c.calls_failed);
	}
	check_leave(agent);
	if (rank == 0) {
		/* Results outlive the agent. */
		CHECK(strcmp(kept.u.s.data, "kept beyond the end, and longer than a line is") == 0);
		far_val_fini(&kept);
		CHECK_STATUS(far_future_wait(left, 0, NULL, &err), FAR_REMOTE, &err);
		CHECK(err.code == 7 && strcmp(err.text, "late") == 0 && strcmp(err.origin, "worker1") == 0);
		far_future_free(left);
		far_future_free(never_read);
	}
	return 0;
}

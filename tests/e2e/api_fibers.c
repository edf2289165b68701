/* SPDX-License-Identifier: BSD-3-Clause */
/** Handlers that wait, on fibers: for one another, 64 deep; for themselves; in every sort of wait; and where a wait is
 * refused. Main thread of each process; handlers on shard threads. */
#include "agent/agent.h"
#include "api_gate.h"
#include "core/context.h"
#include "core/request.h"

enum { DEPTH = 64, MSG_FIBER = 1, MSG_BLOCKING, MSG_WAITS_INLINE, MSG_ECHO, FIBERS = 12 };

static struct far_agent *agent;
static struct far_err err;
static const char *me, *other;
static bool few_fibers;

/* ---- one another ---- */

/* Calls the other worker one level less deep, and adds one to what it says. */
static enum far_status descend(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_err e;
	struct far_val below = {0}, v;
	if (args[0].u.i == 0) {
		v = far_int(0);
		return far_return(req, &v);
	}
	enum far_status status =
		far_rpc_sync(far_req_agent(req), other, user, FAR_ARGS(args[0].u.i - 1), NULL, &below, &e);
	if (status)
		return far_fail(req, status, 0, "level %d: %s", (int)args[0].u.i, e.text);
	v = far_int(below.u.i + 1);
	return far_return(req, &v);
}

static void descend_message(struct far_req *req, const void *data, size_t len, void *user)
{
	struct far_err e;
	int32_t level, below = -1;
	size_t got = 0;
	CHECK(len == sizeof level);
	memcpy(&level, data, sizeof level);
	if (level-- > 0) {
		enum far_status status = far_msg_call(far_req_agent(req), far_req_from(req), (uint16_t)(uintptr_t)user,
						      &level, sizeof level, NULL, &below, sizeof below, &got, &e);
		if (status || got != sizeof below) {
			far_fail(req, status, 0, "level %d: %s", level, e.text);
			return;
		}
	}
	below++;
	far_reply(req, &below, sizeof below);
}

static int64_t message(uint16_t id, int32_t depth)
{
	int32_t reply = -1;
	size_t len = 0;
	CHECK_STATUS(far_msg_call(agent, (struct far_to){1, -1}, id, &depth, sizeof depth, NULL, &reply, sizeof reply,
				  &len, &err),
		     FAR_OK, &err);
	return len == sizeof reply ? reply : -1;
}

/* One shard on each side, no thread of a pool: only what parks leaves room for the next level. */
static void one_another(void)
{
	/* Two that never yield take turns by time slices where cores are few. */
	int rounds = drive_mode->idle == FAR_IDLE_BUSY ? 3 : 50;
	for (int i = 0; i < rounds; i++) {
		CHECK(query(agent, other, "t::fiber", FAR_ARGS(DEPTH)) == DEPTH);
		CHECK(message(MSG_FIBER, DEPTH) == DEPTH);
	}
	CHECK(query(agent, other, "t::blocking", FAR_ARGS(3)) == 3);
	CHECK(message(MSG_BLOCKING, 3) == 3);
	/* From the worker to itself, and the other way round. */
	CHECK(query(agent, me, "t::fiber", FAR_ARGS(DEPTH)) == DEPTH);
}

/* ---- every sort of wait ---- */

#define EXPECT(condition)                                                                                              \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			return far_fail(req, FAR_REMOTE, __LINE__, "%s does not hold", #condition);                    \
	} while (0)

static int32_t rank_of(struct far_agent *a)
{
	struct far_worker_info info;
	far_worker_self(a, &info);
	return info.rank;
}

static enum far_status wait_sync(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_agent *a = far_req_agent(req);
	struct far_val out = {0};
	struct far_err e;
	char text[] = "to oneself", reply[32] = {0};
	size_t len = 0;
	EXPECT(far_rpc_sync(a, me, "far::add", FAR_ARGS(args[0].u.i, 1), NULL, &out, &e) == FAR_OK);
	EXPECT(out.u.i == args[0].u.i + 1);
	EXPECT(far_msg_call(a, (struct far_to){rank_of(a), -1}, MSG_ECHO, text, sizeof text, NULL, reply, sizeof reply,
			    &len, &e) == FAR_OK);
	EXPECT(len == sizeof text && strcmp(text, reply) == 0);
	/* What fails, fails as it does elsewhere. */
	EXPECT(far_rpc_sync(a, other, "t::fails", FAR_NOARGS, NULL, &out, &e) == FAR_REMOTE);
	EXPECT(e.code == 7 && strcmp(e.text, "on purpose") == 0 && strcmp(e.origin, other) == 0);
	EXPECT(far_msg_call(a, (struct far_to){0, -1}, MSG_ECHO, text, sizeof text, NULL, reply, 3, &len, &e) ==
	       FAR_TOO_LARGE);
	EXPECT(len == sizeof text);
	struct far_call_opts soon = {.timeout_ns = 2 * FAR_MS};
	EXPECT(far_rpc_sync(a, other, "gate::wait", FAR_NOARGS, &soon, &out, &e) == FAR_TIMEOUT);
	EXPECT(!far_req_cancelled(req));
	return far_return(req, NULL);
}

static enum far_status wait_futures(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_agent *a = far_req_agent(req);
	struct far_future *f[8], *bad;
	struct far_val out = {0};
	struct far_err e;
	for (int i = 0; i < 8; i++)
		EXPECT(far_rpc_async(a, other, "gate::wait", FAR_NOARGS, NULL, &f[i], &e) == FAR_OK);
	/* Limits pass; a wait may be tried again and again. */
	for (int i = 0; i < 100; i++)
		EXPECT(far_future_wait(f[i % 3], i % 10 ? 1 : FAR_MS, &out, &e) == FAR_PENDING);
	EXPECT(far_future_wait_all(f, 8, 2 * FAR_MS, &e) == FAR_PENDING);
	EXPECT(far_rpc_async(a, other, "t::fails", FAR_NOARGS, NULL, &bad, &e) == FAR_OK);
	EXPECT(far_future_wait_all(&bad, 1, 0, &e) == FAR_REMOTE && e.code == 7);
	far_future_free(bad);
	EXPECT(far_rpc_sync(a, other, "gate::open", FAR_ARGS(11), NULL, &out, &e) == FAR_OK && out.u.i >= 8);
	EXPECT(far_future_wait_all(f, 8, 0, &e) == FAR_OK);
	for (int i = 0; i < 8; i++) {
		EXPECT(far_future_wait(f[i], 1, &out, &e) == FAR_OK && out.u.i == 11); /* done: no wait */
		far_future_free(f[i]);
	}
	return far_return(req, NULL);
}

static enum far_status fails(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, FAR_REMOTE, 7, "on purpose");
}

static void every_sort(void)
{
	CHECK_STATUS(far_rpc_sync(agent, other, "t::wait_sync", FAR_ARGS(41), NULL, NULL, &err), FAR_OK, &err);
	CHECK_STATUS(far_rpc_sync(agent, me, "t::wait_sync", FAR_ARGS(41), NULL, NULL, &err), FAR_OK, &err);
	CHECK_STATUS(far_rpc_sync(agent, other, "t::wait_futures", FAR_NOARGS, NULL, NULL, &err), FAR_OK, &err);
	CHECK_STATUS(far_rpc_sync(agent, other, "t::wait_blocking", FAR_NOARGS, NULL, NULL, &err), FAR_OK, &err);
}

/* ---- where a wait is refused ---- */

static enum far_status waits_inline(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_agent *a = far_req_agent(req);
	struct far_future *f;
	struct far_err e;
	EXPECT(far_rpc_async(a, me, "far::add", FAR_ARGS(1, 2), NULL, &f, &e) == FAR_OK);
	EXPECT(far_future_wait(f, 0, NULL, &e) == FAR_WOULD_DEADLOCK);
	far_future_free(f);
	EXPECT(far_rpc_sync(a, me, "far::add", FAR_ARGS(1, 2), NULL, NULL, &e) == FAR_WOULD_DEADLOCK);
	EXPECT(!far_req_cancelled(req));
	return far_fail(req, e.status, 0, "%s", e.text);
}

static void waits_inline_message(struct far_req *req, const void *data, size_t len, void *user)
{
	struct far_err e;
	enum far_status status =
		far_msg_call(far_req_agent(req), far_req_from(req), MSG_ECHO, data, len, NULL, NULL, 0, NULL, &e);
	far_fail(req, status, 0, "%s", e.text);
}

static enum far_status shuts_down(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_err e;
	EXPECT(far_shutdown(far_req_agent(req), 0, &e) == FAR_WOULD_DEADLOCK && strstr(e.text, "main thread"));
	EXPECT(far_shutdown_local(far_req_agent(req), &e) == FAR_WOULD_DEADLOCK);
	if (user) /* a fiber: it has the shard, and must not give it away */
		EXPECT(far_shard_acquire(far_req_agent(req), 0, &e) != FAR_OK);
	EXPECT(far_shard_poll(far_req_agent(req)) == 0);
	far_shard_release(far_req_agent(req));
	EXPECT(!user || shard_held(req->shard));
	EXPECT(far_shard_poll(far_req_agent(req)) == 0);
	return far_return(req, NULL);
}

static void on_done(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	struct far_err refused;
	CHECK(status == FAR_OK && len == 1);
	CHECK(far_msg_call(agent, (struct far_to){1, -1}, MSG_ECHO, data, 1, NULL, NULL, 0, NULL, &refused) ==
	      FAR_WOULD_DEADLOCK);
	CHECK_TEXT(&refused, "a completion callback");
	CHECK_TEXT(&refused, "far_msg_send");
	atomic_store((_Atomic bool *)user, true);
}

static void refused(void)
{
	char byte = 1;
	_Atomic bool done = false;
	CHECK_STATUS(far_rpc_sync(agent, other, "t::waits_inline", FAR_NOARGS, NULL, NULL, &err), FAR_WOULD_DEADLOCK,
		     &err);
	CHECK_TEXT(&err, "t::waits_inline");
	CHECK_TEXT(&err, "FAR_KIND_FIBER");
	CHECK_STATUS(far_msg_call(agent, (struct far_to){1, -1}, MSG_WAITS_INLINE, &byte, 1, NULL, NULL, 0, NULL, &err),
		     FAR_WOULD_DEADLOCK, &err);
	CHECK_TEXT(&err, "message 3");
	CHECK_STATUS(far_rpc_sync(agent, other, "t::fiber_ends_all", FAR_NOARGS, NULL, NULL, &err), FAR_OK, &err);
	CHECK_STATUS(far_rpc_sync(agent, other, "t::blocking_ends_all", FAR_NOARGS, NULL, NULL, &err), FAR_OK, &err);
	CHECK_STATUS(far_msg_send(agent, (struct far_to){1, -1}, MSG_ECHO, &byte, 1, NULL, on_done, &done, &err),
		     FAR_OK, &err);
	while (!atomic_load(&done))
		query(agent, other, "far::add", FAR_ARGS(1, 1));
}

/* ---- as many as there are fibers ---- */

static enum far_status parks(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val out = {0};
	struct far_err e;
	enum far_status status = far_rpc_sync(far_req_agent(req), me, "gate::wait", FAR_NOARGS, NULL, &out, &e);
	if (status)
		return far_fail(req, status, 0, "%s", e.text);
	struct far_val v = far_int(out.u.i + args[0].u.i);
	return far_return(req, &v);
}

static void bound(void)
{
	struct far_future *f[FIBERS];
	struct far_val out = {0};
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < FIBERS; i++)
			CHECK_STATUS(far_rpc_async(agent, other, "t::parks", FAR_ARGS(i), NULL, &f[i], &err), FAR_OK,
				     &err);
		gate_await(agent, other, FIBERS);
		for (int i = 0; i < 3; i++) {
			CHECK_STATUS(far_rpc_sync(agent, other, "t::parks", FAR_ARGS(0), NULL, NULL, &err),
				     FAR_RESOURCE, &err);
			CHECK(err.executed == FAR_EXECUTED_NO);
			CHECK_TEXT(&err, "opts.fibers");
			CHECK(strcmp(err.origin, other) == 0);
		}
		/* Other kinds are served meanwhile. */
		CHECK(query(agent, other, "far::add", FAR_ARGS(2, 3)) == 5);
		CHECK(query(agent, other, "t::blocking", FAR_ARGS(0)) == 0);
		CHECK(query(agent, other, "gate::open", FAR_ARGS(100)) == FIBERS);
		for (int i = 0; i < FIBERS; i++) {
			CHECK_STATUS(far_future_wait(f[i], 0, &out, &err), FAR_OK, &err);
			CHECK(out.u.i == 100 + i);
			far_future_free(f[i]);
		}
	}
}

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

static int worker(int rank)
{
	static const char fiber[] = "t::fiber", blocking[] = "t::blocking";
	static const struct far_function functions[] = {
		{"t::fiber(int depth) -> int", FAR_KIND_FIBER, descend, (void *)(uintptr_t)fiber},
		{"t::blocking(int depth) -> int", FAR_KIND_BLOCKING, descend, (void *)(uintptr_t)blocking},
		{"t::wait_sync(int x) -> none", FAR_KIND_FIBER, wait_sync, NULL},
		{"t::wait_futures() -> none", FAR_KIND_FIBER, wait_futures, NULL},
		{"t::wait_blocking() -> none", FAR_KIND_BLOCKING, wait_futures, NULL},
		{"t::fails() -> none", FAR_KIND_FIBER, fails, NULL},
		{"t::waits_inline() -> none", FAR_KIND_INLINE, waits_inline, NULL},
		{"t::fiber_ends_all() -> none", FAR_KIND_FIBER, shuts_down, &agent},
		{"t::blocking_ends_all() -> none", FAR_KIND_BLOCKING, shuts_down, NULL},
		{"t::parks(int x) -> int", FAR_KIND_FIBER, parks, NULL},
		GATE_FUNCTIONS,
	};
	static const struct far_msg_handler messages[] = {
		{MSG_FIBER, FAR_KIND_FIBER, descend_message, (void *)MSG_FIBER},
		{MSG_BLOCKING, FAR_KIND_BLOCKING, descend_message, (void *)MSG_BLOCKING},
		{MSG_WAITS_INLINE, FAR_KIND_INLINE, waits_inline_message, NULL},
		{MSG_ECHO, FAR_KIND_FIBER, echo, NULL},
	};
	me = rank ? "worker1" : "worker0";
	other = rank ? "worker0" : "worker1";
	agent = join_mode((struct far_opts){.functions = functions,
					    .functions_n = sizeof functions / sizeof *functions,
					    .messages = messages,
					    .messages_n = sizeof messages / sizeof *messages,
					    .fibers = few_fibers && rank ? FIBERS : 0,
					    .blocking_threads = 2});
	if (rank == 0 && few_fibers) {
		bound();
	} else if (rank == 0) {
		every_sort();
		refused();
		one_another();
	}
	check_leave(agent);
	return 0;
}

int main(void)
{
	int bad = spawn_modes(2, worker, -1);
	few_fibers = true;
	return bad | spawn_modes(2, worker, -1);
}

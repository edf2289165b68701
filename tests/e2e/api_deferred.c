/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 3. Main thread of each process; handlers on shard threads; threads that it starts. */
/** Answers that come later: by another thread, by another call, by a third worker's answer, or not at all. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { KEPT_MAX = 200 };

static struct far_agent *agent;
static struct far_err err;
static struct far_deferred *kept[KEPT_MAX];
static unsigned kept_n;

/* ---- handlers ---- */

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	CHECK(kept_n < KEPT_MAX);
	enum far_status status = far_defer(req, &kept[kept_n++]);
	CHECK(far_return(req, NULL) == FAR_INVALID);
	return status;
}

/* Answers all that were kept, the newest first, and then itself with their number. */
static enum far_status release_all(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(kept_n);
	while (kept_n) {
		struct far_val i = far_int(--kept_n);
		CHECK(far_deferred_return(kept[kept_n], &i) == FAR_OK);
	}
	return far_return(req, &v);
}

static void *answer_later(void *arg)
{
	static const char text[] = "from another thread, with more bytes than a line of the ring has";
	struct far_val v = far_str(text);
	usleep(2000);
	CHECK(far_deferred_return(arg, &v) == FAR_OK);
	return NULL;
}

static pthread_t threads[KEPT_MAX];
static unsigned threads_n;

static enum far_status by_thread(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *d;
	CHECK(far_defer(req, &d) == FAR_OK);
	CHECK(pthread_create(&threads[threads_n++], NULL, answer_later, d) == 0);
	return FAR_OK;
}

static enum far_status drop(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *d;
	CHECK(far_defer(req, &d) == FAR_OK);
	if (args[0].u.i == 0)
		far_deferred_drop(d);
	else if (args[0].u.i == 1)
		far_deferred_fail(d, FAR_DENIED, 17, "not for %s", "you");
	else
		far_deferred_reply(d, "raw", 3); /* not a value: the caller must see that */
	return FAR_OK;
}

static enum far_status forgets(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return FAR_OK;
}

static enum far_status waits(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_agent *a = far_req_agent(req);
	struct far_err e = {.status = FAR_OK};
	struct far_val out;
	enum far_status status = far_rpc_sync(a, "worker0", "far::add", FAR_ARGS(1, 2), NULL, &out, &e);
	CHECK(far_shutdown(a, 0, NULL) == FAR_WOULD_DEADLOCK);
	CHECK(far_shutdown_local(a, NULL) == FAR_WOULD_DEADLOCK);
	CHECK(far_shard_poll(a) == 0);
	far_shard_release(a);
	return far_fail(req, status, 0, "%s", e.text);
}

/* ---- a call inside a handler, its answer completes ours ---- */

static enum far_status square(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(args[0].u.i * args[0].u.i);
	return far_return(req, &v);
}

static void msg_square(struct far_req *req, const void *data, size_t len, void *user)
{
	int64_t x;
	CHECK(len == sizeof x);
	memcpy(&x, data, sizeof x);
	x *= x;
	far_reply(req, &x, sizeof x);
}

static void forwarded(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	int64_t x = 0;
	if (status) {
		far_deferred_fail(user, status, e->code, "worker2: %s", e->text);
		return;
	}
	CHECK(len == sizeof x);
	memcpy(&x, data, sizeof x);
	struct far_val v = far_int(x + 1);
	far_deferred_return(user, &v);
}

static enum far_status forward(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *d;
	struct far_call_opts opts = {.timeout_ns = far_req_time_left_ns(req)};
	CHECK(far_req_time_left_ns(req) > 0);
	CHECK(far_req_from(req).worker == 0);
	CHECK(far_defer(req, &d) == FAR_OK);
	struct far_err e;
	enum far_status status = far_msg_send(far_req_agent(req), (struct far_to){2, -1}, 1, &args[0].u.i,
					      sizeof args[0].u.i, &opts, forwarded, d, &e);
	if (status)
		far_deferred_fail(d, status, 0, "%s", e.text);
	return FAR_OK;
}

static enum far_status starts_async(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_future *f = NULL;
	struct far_err e = {.status = FAR_OK};
	enum far_status status =
		far_rpc_async(far_req_agent(req), "worker2", "t::square", FAR_ARGS(args[0]), NULL, &f, &e);
	CHECK(status == FAR_OK);
	CHECK(far_future_wait(f, 0, NULL, &e) == FAR_WOULD_DEADLOCK);
	far_future_free(f);
	return far_fail(req, FAR_WOULD_DEADLOCK, 0, "%s", e.text);
}

/* ---- the caller ---- */

static struct far_future *start(const char *fn, const struct far_val *args, size_t n)
{
	struct far_future *f;
	CHECK_STATUS(far_rpc_async(agent, "worker1", fn, args, n, NULL, &f, &err), FAR_OK, &err);
	return f;
}

static void answered_by_another_call(void)
{
	struct far_future *f[KEPT_MAX];
	struct far_val out;
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < KEPT_MAX; i++)
			f[i] = start("t::keep", FAR_NOARGS);
		CHECK(far_future_wait(f[0], FAR_MS, NULL, &err) == FAR_PENDING);
		CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::release", FAR_NOARGS, NULL, &out, &err), FAR_OK, &err);
		CHECK(out.u.i == KEPT_MAX);
		for (int i = 0; i < KEPT_MAX; i++) {
			CHECK_STATUS(far_future_wait(f[i], 0, &out, &err), FAR_OK, &err);
			CHECK(out.u.i == i);
			far_future_free(f[i]);
		}
	}
}

static void answered_by_threads(void)
{
	struct far_future *f[40];
	struct far_val out;
	for (int i = 0; i < 40; i++)
		f[i] = start("t::by_thread", FAR_NOARGS);
	for (int i = 0; i < 40; i++) {
		CHECK_STATUS(far_future_wait(f[i], 0, &out, &err), FAR_OK, &err);
		CHECK(strncmp(out.u.s.data, "from another thread", 19) == 0);
		far_val_fini(&out);
		far_future_free(f[i]);
	}
}

static enum far_status call1(const char *fn, const struct far_val *args, size_t n, struct far_val *out)
{
	return far_rpc_sync(agent, "worker1", fn, args, n, NULL, out, &err);
}

static void not_answered(void)
{
	struct far_val out;
	CHECK_STATUS(call1("t::drop", FAR_ARGS(0), &out), FAR_REMOTE, &err);
	CHECK_TEXT(&err, "dropped");
	CHECK(err.executed == FAR_EXECUTED_YES && strcmp(err.origin, "worker1") == 0);
	CHECK_STATUS(call1("t::drop", FAR_ARGS(1), &out), FAR_DENIED, &err);
	CHECK(err.code == 17 && strcmp(err.text, "not for you") == 0);
	enum far_status status = call1("t::drop", FAR_ARGS(2), &out);
	CHECK(status != FAR_OK);
	CHECK_STATUS(call1("t::forgets", FAR_NOARGS, &out), FAR_REMOTE, &err);
	CHECK_TEXT(&err, "t::forgets returned without an answer");
	CHECK_STATUS(call1("t::waits", FAR_NOARGS, &out), FAR_WOULD_DEADLOCK, &err);
	CHECK_TEXT(&err, "t::waits");
	CHECK_STATUS(call1("t::starts_async", FAR_ARGS(3), &out), FAR_WOULD_DEADLOCK, &err);
	CHECK_TEXT(&err, "t::starts_async");
}

static void forwarding(void)
{
	struct far_val out;
	struct far_future *f[100];
	for (int64_t i = 0; i < 100; i++)
		f[i] = start("t::forward", FAR_ARGS(i));
	for (int64_t i = 0; i < 100; i++) {
		CHECK_STATUS(far_future_wait(f[i], 0, &out, &err), FAR_OK, &err);
		CHECK(out.u.i == i * i + 1);
		far_future_free(f[i]);
	}
}

int main(void)
{
	static const struct far_function table[] = {
		{"t::keep() -> int", FAR_KIND_INLINE, keep, NULL},
		{"t::release() -> int", FAR_KIND_INLINE, release_all, NULL},
		{"t::by_thread() -> str", FAR_KIND_INLINE, by_thread, NULL},
		{"t::drop(int how) -> none", FAR_KIND_INLINE, drop, NULL},
		{"t::forgets() -> none", FAR_KIND_INLINE, forgets, NULL},
		{"t::waits() -> none", FAR_KIND_INLINE, waits, NULL},
		{"t::square(int x) -> int", FAR_KIND_INLINE, square, NULL},
		{"t::forward(int x) -> int", FAR_KIND_INLINE, forward, NULL},
		{"t::starts_async(int x) -> none", FAR_KIND_INLINE, starts_async, NULL},
	};
	static const struct far_msg_handler messages[] = {{1, FAR_KIND_INLINE, msg_square, NULL}};
	struct far_opts opts = {
		.functions = table, .functions_n = sizeof table / sizeof *table, .messages = messages, .messages_n = 1};
	struct far_counters c;
	agent = check_join(&opts);
	if (check_rank() == 0) {
		answered_by_another_call();
		answered_by_threads();
		not_answered();
		forwarding();
		far_counters_read(agent, &c);
		CHECK(c.calls_active == 0 && c.packets_dropped == 0);
	}
	check_leave(agent);
	for (unsigned i = 0; i < threads_n; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

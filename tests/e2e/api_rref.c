/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 4. Main thread of each process; handlers on shard threads. */
/**
 * Remote references over real workers: every worker at once makes values on the others, shares, fetches, and gives
 * back. Each function is one behaviour that users of torch.distributed.rpc rely on. At the end every table is empty.
 */
#include "api_calls.h"
#include "handlers.h"

#include <time.h>

static struct far_agent *agent_of(struct far_req *req)
{
	return far_req_agent(req);
}

/* ---- functions ---- */

static enum far_status fails(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, FAR_REMOTE, 17, "%s", (const char *)args[0].u.s.data);
}

/* Parks so long, or until nobody waits any more. */
static enum far_status slow(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_future *never;
	CHECK_STATUS(far_future_create(&never, NULL), FAR_OK, NULL);
	enum far_status status = far_future_wait(never, (uint64_t)args[0].u.i * FAR_MS, NULL, NULL);
	far_future_free(never);
	return status == FAR_PENDING ? far_return(req, &args[0]) : FAR_CANCELLED;
}

static enum far_status confirmed(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val yes = far_bool(far_rref_confirmed_by_owner(args[0].u.rref));
	return far_return(req, &yes);
}

/* Is the reference to a value of this worker, and what is it. */
static enum far_status local(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v;
	struct far_err e;
	CHECK(far_rref_is_owner(args[0].u.rref) && far_rref_confirmed_by_owner(args[0].u.rref));
	enum far_status status = far_rref_local_value(args[0].u.rref, 0, &v, &e);
	if (status)
		return far_fail(req, status, e.code, "%s", e.text);
	status = far_return(req, &v);
	far_val_fini(&v);
	return status;
}

/* Hands it on to the next worker so many times. */
static enum far_status forward(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_err e;
	struct far_val v;
	if (args[1].u.i == 0)
		return handler_fetch(req, args, 1, NULL);
	struct far_worker_info self;
	far_worker_self(agent_of(req), &self);
	struct far_to next = {(self.rank + 1) % far_world_size(agent_of(req)), -1};
	enum far_status status = far_rpc_sync_to(agent_of(req), next, "r::forward",
						 FAR_ARGS(args[0].u.rref, args[1].u.i - 1), NULL, &v, &e);
	if (status)
		return far_fail(req, status, e.code, "%s", e.text);
	status = far_return(req, &v);
	far_val_fini(&v);
	return status;
}

/* Makes a value on another worker, and returns the reference: the caller never spoke to its owner. */
static enum far_status make_there(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_rref *r;
	struct far_err e;
	struct far_to there = {(int32_t)args[0].u.i, -1};
	enum far_status status = far_remote_to(agent_of(req), there, "r::echo", FAR_ARGS(args[1]), NULL, &r, &e);
	if (status)
		return far_fail(req, status, e.code, "%s", e.text);
	struct far_val v = far_rref_val(r);
	status = far_return(req, &v);
	far_rref_free(r);
	return status;
}

/* References in a list and a dict, in and out. */
static enum far_status turn_round(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct far_val *list = &args[0];
	CHECK(far_len(list) == 3 && far_list_get(list, 0)->type == FAR_TYPE_RREF);
	const struct far_val *inner = far_dict_get(far_list_get(list, 2), "r");
	CHECK(inner && inner->type == FAR_TYPE_RREF);
	struct far_val v =
		FAR_DICT(FAR_ENTRY("first", inner->u.rref),
			 FAR_ENTRY("rest", FAR_LIST(far_list_get(list, 1)->u.rref, far_list_get(list, 0)->u.rref)));
	return far_return(req, &v);
}

static const struct far_function functions[] = {
	{"r::echo(Any x) -> Any", FAR_KIND_INLINE, handler_echo, NULL},
	{"r::number(int x) -> int", FAR_KIND_BLOCKING, handler_echo, NULL},
	{"r::fail(str why) -> int", FAR_KIND_INLINE, fails, NULL},
	{"r::slow(int ms) -> int", FAR_KIND_FIBER, slow, NULL},
	{"r::fetch(rref r) -> Any", FAR_KIND_FIBER, handler_fetch, NULL},
	{"r::fetch_blocking(rref r) -> Any", FAR_KIND_BLOCKING, handler_fetch, NULL},
	{"r::confirmed(rref r) -> bool", FAR_KIND_INLINE, confirmed, NULL},
	{"r::local(rref r) -> Any", FAR_KIND_FIBER, local, NULL},
	{"r::forward(rref r, int times) -> Any", FAR_KIND_FIBER, forward, NULL},
	{"r::make_there(int rank, Any x) -> rref", FAR_KIND_FIBER, make_there, NULL},
	{"r::turn_round(List x) -> Dict", FAR_KIND_INLINE, turn_round, NULL},
};

/* ---- what is expected ---- */

static int world;

static struct far_to at(int distance)
{
	return (struct far_to){(rank + distance) % world, -1};
}

static struct far_rref *make(struct far_to where, const char *fn, const struct far_val *args, size_t n)
{
	struct far_rref *r = NULL;
	CHECK_STATUS(far_remote_to(agent, where, fn, args, n, NULL, &r, &err), FAR_OK, &err);
	return r;
}

static void expect_int(struct far_rref *r, int64_t want)
{
	struct far_val v;
	CHECK_STATUS(far_rref_to_here(r, 0, &v, &err), FAR_OK, &err);
	if (v.type != FAR_TYPE_INT || v.u.i != want) {
		fprintf(stderr, "worker %d: not %lld but ", rank, (long long)want);
		far_val_print(stderr, &v);
		fputc('\n', stderr);
	}
	CHECK(v.type == FAR_TYPE_INT && v.u.i == want);
	far_val_fini(&v);
}

static void expect_call_int(struct far_to where, const char *fn, const struct far_val *args, size_t n, int64_t want)
{
	struct far_val v;
	CHECK_STATUS(far_rpc_sync_to(agent, where, fn, args, n, NULL, &v, &err), FAR_OK, &err);
	CHECK(v.type == FAR_TYPE_INT && v.u.i == want);
	far_val_fini(&v);
}

/* remote, then to_here, any number of times; by handlers of two kinds. */
static void builtin_remote_ret(void)
{
	struct far_rref *r = make(at(1), "r::echo", FAR_ARGS(rank + 100));
	expect_int(r, rank + 100);
	expect_int(r, rank + 100);
	CHECK_STATUS(far_rref_wait(r, 0, &err), FAR_OK, &err);
	CHECK(far_rref_confirmed_by_owner(r) && far_rref_status(r, NULL) == FAR_OK);
	CHECK(!far_rref_is_owner(r) && far_rref_owner(r).worker == (rank + 1) % world);
	CHECK(strcmp(far_rref_owner_name(r), check_name((rank + 1) % world)) == 0);
	far_rref_free(r);
	r = make(at(1), "r::number", FAR_ARGS(7));
	CHECK(far_rref_may_be(r, FAR_TYPE_INT) && !far_rref_may_be(r, FAR_TYPE_STRING));
	expect_int(r, 7);
	far_rref_free(r);
}

/* A value larger than a packet, and one larger than a message. */
static void large_values(void)
{
	static float big[1 << 20];
	for (size_t i = 0; i < sizeof big / sizeof big[0]; i++)
		big[i] = (float)(i % 1000);
	struct far_tensor t = far_tensor_1d(FAR_F32, big, sizeof big / sizeof big[0]);
	struct far_rref *r = make(at(2), "r::echo", FAR_ARGS(&t));
	struct far_val v;
	CHECK_STATUS(far_rref_to_here(r, 0, &v, &err), FAR_OK, &err);
	CHECK(v.type == FAR_TYPE_TENSOR && memcmp(v.u.t.data, big, sizeof big) == 0);
	far_val_fini(&v);
	far_rref_free(r);
	struct far_tensor none = far_tensor_1d(FAR_F32, big, 0);
	struct far_val five[5];
	for (int i = 0; i < 5; i++)
		five[i] = far_tensor_val(i < 4 ? &t : &none);
	r = make(at(2), "r::echo", FAR_ARGS(far_list(five, 5)));
	CHECK_STATUS(far_rref_to_here(r, 0, &v, &err), FAR_OK, &err);
	CHECK(far_len(&v) == 5 && memcmp(far_list_get(&v, 3)->u.t.data, big, sizeof big) == 0);
	far_val_fini(&v);
	far_rref_free(r);
}

static void multi_builtin_remote_ret(void)
{
	enum { N = 150 };
	static struct far_rref *r[N];
	for (int i = 0; i < N; i++)
		r[i] = make(at(1 + i % 3), "r::echo", FAR_ARGS(i));
	for (int i = 0; i < N; i++)
		expect_int(r[i], i);
	for (int i = 0; i < N; i++)
		far_rref_free(r[i]);
}

/* A fetch that is sent before the value is there, and futures of many. */
static void to_here_async(void)
{
	struct far_rref *r = make(at(1), "r::slow", FAR_ARGS(30));
	struct far_future *f[4];
	for (int i = 0; i < 4; i++)
		CHECK_STATUS(far_rref_to_here_async(r, 0, &f[i], &err), FAR_OK, &err);
	far_rref_free(r); /* the fetches are before it */
	for (int i = 0; i < 4; i++) {
		struct far_val v;
		CHECK_STATUS(far_future_wait(f[i], 0, &v, &err), FAR_OK, &err);
		CHECK(v.u.i == 30);
		far_future_free(f[i]);
	}
}

static void remote_throw(void)
{
	struct far_rref *r = make(at(1), "r::fail", FAR_ARGS("no \"luck\" today"));
	struct far_val v;
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(far_rref_to_here(r, 0, &v, &err), FAR_REMOTE, &err);
		CHECK_TEXT(&err, "no \"luck\" today");
		CHECK(err.code == 17 && err.executed == FAR_EXECUTED_YES);
		CHECK(strcmp(err.origin, far_rref_owner_name(r)) == 0);
	}
	CHECK_STATUS(far_rref_wait(r, 0, &err), FAR_OK, &err); /* it was made, and holds the error */
	CHECK_STATUS(far_rpc_sync_to(agent, at(2), "r::fetch", FAR_ARGS(r), NULL, &v, &err), FAR_REMOTE, &err);
	CHECK_TEXT(&err, "no \"luck\" today");
	far_rref_free(r);
}

/* To the owner, to a third worker, to the same worker. */
static void py_rref_args(void)
{
	struct far_rref *r = make(at(1), "r::echo", FAR_ARGS(5));
	expect_call_int(at(1), "r::local", FAR_ARGS(r), 5);
	expect_call_int(at(2), "r::fetch", FAR_ARGS(r), 5);
	expect_call_int(at(3), "r::fetch_blocking", FAR_ARGS(r), 5);
	expect_call_int(at(0), "r::fetch", FAR_ARGS(r), 5);
	far_rref_free(r);
	/* Given back at once: the call keeps it. */
	r = make(at(1), "r::echo", FAR_ARGS(6));
	struct far_future *f;
	struct far_val v;
	CHECK_STATUS(far_rpc_async_to(agent, at(2), "r::fetch", FAR_ARGS(r), NULL, &f, &err), FAR_OK, &err);
	far_rref_free(r);
	CHECK_STATUS(far_future_wait(f, 0, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 6);
	far_future_free(f);
}

static void user_rrefs_confirmed(void)
{
	for (int i = 0; i < 4; i++) {
		struct far_rref *r = make(at(1), "r::echo", FAR_ARGS(i));
		struct far_val v;
		CHECK_STATUS(far_rpc_sync_to(agent, at(2), "r::confirmed", FAR_ARGS(r), NULL, &v, &err), FAR_OK, &err);
		CHECK(v.u.b);
		far_rref_free(r);
	}
}

static void rref_forward_chain(void)
{
	struct far_rref *r = make(at(1), "r::echo", FAR_ARGS(42));
	expect_call_int(at(1), "r::forward", FAR_ARGS(r, 8), 42);
	far_rref_free(r);
}

/* A reference returned: by the owner, and by one that had it made on a third, on the caller, and on itself. */
static void rpc_return_rref(void)
{
	for (int where = 0; where < world; where++) {
		struct far_val v;
		CHECK_STATUS(
			far_rpc_sync_to(agent, at(1), "r::make_there", FAR_ARGS(where, 60 + where), NULL, &v, &err),
			FAR_OK, &err);
		CHECK(v.type == FAR_TYPE_RREF && far_rref_owner(v.u.rref).worker == where);
		CHECK(far_rref_is_owner(v.u.rref) == (where == rank));
		expect_int(v.u.rref, 60 + where);
		struct far_rref *kept = far_rref_ref(v.u.rref);
		far_val_fini(&v);
		expect_int(kept, 60 + where);
		expect_call_int(at(3), "r::fetch", FAR_ARGS(kept), 60 + where);
		far_rref_free(kept);
	}
}

/* A result with a reference that nobody looks at. */
static void return_future_dropped(void)
{
	struct far_future *f;
	CHECK_STATUS(far_rpc_async_to(agent, at(1), "r::make_there", FAR_ARGS((rank + 2) % world, 1), NULL, &f, &err),
		     FAR_OK, &err);
	far_future_free(f);
}

static void nested_rref(void)
{
	struct far_rref *a = make(at(1), "r::echo", FAR_ARGS(1)), *b = make(at(2), "r::echo", FAR_ARGS(2)),
			*c = make(at(0), "r::echo", FAR_ARGS(3));
	struct far_val v, copy;
	CHECK_STATUS(far_rpc_sync_to(agent, at(1), "r::turn_round",
				     FAR_ARGS(FAR_LIST(a, b, FAR_DICT(FAR_ENTRY("r", c)))), NULL, &v, &err),
		     FAR_OK, &err);
	CHECK(far_rref_same(far_dict_get(&v, "first")->u.rref, c));
	const struct far_val *rest = far_dict_get(&v, "rest");
	CHECK(far_rref_same(far_list_get(rest, 0)->u.rref, b) && far_rref_same(far_list_get(rest, 1)->u.rref, a));
	CHECK(!far_rref_same(a, b));
	CHECK_STATUS(far_val_dup(rest, &copy, &err), FAR_OK, &err);
	far_val_fini(&v);
	far_rref_free(a);
	far_rref_free(b);
	expect_int(far_list_get(&copy, 0)->u.rref, 2);
	expect_int(far_list_get(&copy, 1)->u.rref, 1);
	far_val_fini(&copy);
	expect_int(c, 3);
	far_rref_free(c);
}

/* A reference to a reference: fetched, it is another fork of what is inside. */
static void rref_of_rref(void)
{
	struct far_rref *in = make(at(1), "r::echo", FAR_ARGS(9));
	struct far_rref *out = make(at(2), "r::echo", FAR_ARGS(in));
	struct far_val v;
	far_rref_free(in);
	CHECK_STATUS(far_rref_to_here(out, 0, &v, &err), FAR_OK, &err);
	CHECK(v.type == FAR_TYPE_RREF);
	expect_int(v.u.rref, 9);
	far_rref_free(out);
	expect_int(v.u.rref, 9);
	far_val_fini(&v);
}

static void self_remote_rref(void)
{
	struct far_rref *r = make(at(0), "r::echo", FAR_ARGS(11));
	struct far_val v;
	CHECK(far_rref_is_owner(r));
	CHECK_STATUS(far_rref_local_value(r, 0, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 11);
	expect_call_int(at(0), "r::local", FAR_ARGS(r), 11);
	expect_call_int(at(1), "r::fetch", FAR_ARGS(r), 11);
	struct far_rref *again = make(at(1), "r::fetch", FAR_ARGS(r));
	expect_int(again, 11);
	far_rref_free(again);
	far_rref_free(r);
}

static void local_value_not_on_owner(void)
{
	struct far_rref *r = make(at(1), "r::echo", FAR_ARGS(1));
	char text[FAR_RREF_TEXT_MAX];
	CHECK_STATUS(far_rref_local_value(r, 0, NULL, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, far_rref_text(r, text, sizeof text));
	CHECK_TEXT(&err, check_name(rank));
	CHECK_TEXT(&err, far_rref_owner_name(r));
	snprintf(text, sizeof text, "RRef(created_on=%d, shard=", rank);
	CHECK_TEXT(&err, text);
	far_rref_free(r);
}

/* Requests that may be sent again, and answers that may. */
static void retried(void)
{
	struct far_call_opts opts = {.retry = true, .retry_after_ns = FAR_MS};
	struct far_rref *r;
	struct far_val v;
	CHECK_STATUS(far_remote_to(agent, at(1), "r::echo", FAR_ARGS(8), &opts, &r, &err), FAR_OK, &err);
	CHECK_STATUS(far_rpc_sync_to(agent, at(2), "r::fetch", FAR_ARGS(r), &opts, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 8);
	CHECK_STATUS(far_rpc_sync_to(agent, at(2), "r::make_there", FAR_ARGS(rank, 9), &opts, &v, &err), FAR_OK, &err);
	expect_int(v.u.rref, 9);
	far_val_fini(&v);
	far_rref_free(r);
}

/* ---- errors ---- */

static void too_many(void)
{
	static struct far_val many[FAR_RREFS_MAX + 1];
	struct far_rref *r = make(at(1), "r::echo", FAR_ARGS(1));
	struct far_val v;
	for (size_t i = 0; i < FAR_RREFS_MAX + 1; i++)
		many[i] = far_rref_val(r);
	CHECK_STATUS(
		far_rpc_sync_to(agent, at(2), "r::echo", FAR_ARGS(far_list(many, FAR_RREFS_MAX + 1)), NULL, &v, &err),
		FAR_TOO_LARGE, &err);
	CHECK_TEXT(&err, "references");
	CHECK_STATUS(far_rpc_sync_to(agent, at(2), "r::echo", FAR_ARGS(far_list(many, FAR_RREFS_MAX)), NULL, &v, &err),
		     FAR_OK, &err);
	CHECK(far_len(&v) == FAR_RREFS_MAX);
	expect_int(far_list_get(&v, FAR_RREFS_MAX - 1)->u.rref, 1);
	far_val_fini(&v);
	far_rref_free(r);
}

/* The function takes longer than the making may: this reference reports it, and only this. */
static void creation_timeout(void)
{
	struct far_call_opts brief = {.timeout_ns = 20 * FAR_MS};
	struct far_rref *r = NULL, *good = make(at(1), "r::echo", FAR_ARGS(1));
	struct far_val v;
	do { /* on a busy machine its time may be over before its call is sent */
		far_rref_free(r);
		CHECK_STATUS(far_remote_to(agent, at(1), "r::slow", FAR_ARGS(20000), &brief, &r, &err), FAR_OK, &err);
		CHECK_STATUS(far_rref_wait(r, 0, &err), FAR_TIMEOUT, &err);
		brief.timeout_ns *= 2;
	} while (err.executed == FAR_EXECUTED_NO && brief.timeout_ns < 10 * FAR_SEC);
	CHECK(err.executed == FAR_EXECUTED_MAYBE);
	CHECK_TEXT(&err, "was never made");
	CHECK(!far_rref_confirmed_by_owner(r));
	CHECK_STATUS(far_rref_to_here(r, 0, &v, &err), FAR_TIMEOUT, &err);
	CHECK_STATUS(far_rpc_sync_to(agent, at(2), "r::fetch", FAR_ARGS(r), NULL, &v, &err), FAR_TIMEOUT, &err);
	CHECK_STATUS(far_rref_wait(good, 0, &err), FAR_OK, &err);
	expect_int(good, 1);
	far_rref_free(good);
	far_rref_free(r);
}

static void to_here_timeout(void)
{
	enum far_status status = FAR_OK;
	struct far_val v;
	/* On a busy machine it may be made before it is fetched. */
	for (int ms = 60; status == FAR_OK && ms < 10000; ms *= 2) {
		struct far_rref *r = make(at(1), "r::slow", FAR_ARGS(ms));
		status = far_rref_to_here(r, FAR_MS, &v, &err);
		expect_int(r, ms); /* by its own limit */
		far_rref_free(r);
	}
	CHECK_STATUS(status, FAR_TIMEOUT, &err);
}

/* Workers that got it before it failed are notified as well. */
static void creation_fails_for_all(void)
{
	struct far_call_opts brief = {.timeout_ns = 30 * FAR_MS};
	struct far_future *f = NULL, *mine = NULL;
	struct far_val v;
	/* On a busy machine it may have failed before all requests. */
	for (; !mine && brief.timeout_ns < 10 * FAR_SEC; brief.timeout_ns *= 2) {
		struct far_rref *r;
		CHECK_STATUS(far_remote_to(agent, at(1), "r::slow", FAR_ARGS(20000), &brief, &r, &err), FAR_OK, &err);
		enum far_status sent = far_rpc_async_to(agent, at(2), "r::fetch", FAR_ARGS(r), NULL, &f, &err);
		CHECK(sent == FAR_OK || sent == FAR_TIMEOUT);
		if (!sent) {
			sent = far_rref_to_here_async(r, 0, &mine, &err);
			CHECK(sent == FAR_OK || sent == FAR_TIMEOUT);
			CHECK_STATUS(far_future_wait(f, 0, &v, &err), FAR_TIMEOUT, &err);
			far_future_free(f);
		}
		if (mine)
			CHECK_STATUS(far_future_wait(mine, 0, &v, &err), FAR_TIMEOUT, &err);
		far_rref_free(r);
	}
	CHECK(mine);
	far_future_free(mine);
}

static enum far_status here_only(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return handler_echo(req, args, n, user);
}

static void function_not_on_callee(void)
{
	static const struct far_function mine = {"r::mine(int x) -> int", FAR_KIND_INLINE, here_only, NULL};
	struct far_rref *r;
	struct far_val v;
	if (rank != 0)
		return;
	CHECK_STATUS(far_register_function(agent, &mine, &err), FAR_OK, &err);
	r = make(at(1), "r::mine", FAR_ARGS(1));
	CHECK_STATUS(far_rref_to_here(r, 0, &v, &err), FAR_NO_FUNCTION, &err);
	CHECK_STATUS(far_rref_wait(r, 0, &err), FAR_NO_FUNCTION, &err);
	CHECK(err.executed == FAR_EXECUTED_NO);
	CHECK_STATUS(far_rref_to_here(r, 0, &v, &err), FAR_NO_FUNCTION, &err);
	far_rref_free(r);
	r = make(at(1), "r::echo", FAR_ARGS(1));
	CHECK_STATUS(far_rpc_sync_to(agent, at(1), "r::fetch", FAR_ARGS(1), NULL, &v, &err), FAR_BAD_ARGS, &err);
	CHECK_TEXT(&err, "rref");
	CHECK_STATUS(far_rpc_sync_to(agent, at(1), "r::echo", FAR_ARGS(far_rref_val(NULL)), NULL, &v, &err),
		     FAR_INVALID, &err);
	far_rref_free(r);
}

/* Soon nobody has anything of anybody. */
static void nothing_is_left(void)
{
	struct far_rref_counts c;
	for (int i = 0; i < 20000; i++) {
		struct timespec nap = {0, 1000000};
		far_rref_counts_read(agent, &c);
		if (!c.owned && !c.held && !c.forks && !c.pending)
			return;
		nanosleep(&nap, NULL);
	}
	fprintf(stderr, "worker %d: %llu owned, %llu held, %llu forks, %llu pending\n", rank,
		(unsigned long long)c.owned, (unsigned long long)c.held, (unsigned long long)c.forks,
		(unsigned long long)c.pending);
	CHECK(!"something is left");
}

int main(void)
{
	static void (*const tests[])(void) = {
		builtin_remote_ret,
		large_values,
		multi_builtin_remote_ret,
		to_here_async,
		remote_throw,
		py_rref_args,
		user_rrefs_confirmed,
		rref_forward_chain,
		rpc_return_rref,
		return_future_dropped,
		nested_rref,
		rref_of_rref,
		self_remote_rref,
		local_value_not_on_owner,
		retried,
		too_many,
		creation_timeout,
		to_here_timeout,
		creation_fails_for_all,
		function_not_on_callee,
	};
	struct far_opts opts = {.functions = functions, .functions_n = sizeof functions / sizeof functions[0]};
	calls_begin(&opts);
	world = far_world_size(agent);
	for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
		if (getenv("RREF_VERBOSE"))
			fprintf(stderr, "worker %d: test %zu\n", rank, i);
		tests[i]();
	}
	nothing_is_left();
	struct far_rref *kept = make(at(1), "r::echo", FAR_ARGS(1));
	expect_int(kept, 1);
	far_rref_free(kept);
	check_leave(agent);
	return 0;
}

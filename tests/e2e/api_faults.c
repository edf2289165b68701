/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Messages made to fail or to be late, by kind: who is notified of what, and that control messages about references
 * come through all the same. Time-outs of calls that make, fetch and pass on values: each reports the right reference,
 * and leaves nothing behind. Main thread of each process; handlers on shard threads.
 */
#include "api_spawn.h"
#include "handlers.h"

#include <stdatomic.h>
#include <time.h>

enum { WORLD = 3 };

static struct far_err err;

/* Returns after so many milliseconds, or when nobody waits any more. */
static enum far_status slow(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_future *f;
	CHECK_STATUS(far_future_create(&f, NULL), FAR_OK, NULL);
	far_future_wait(f, (uint64_t)args[0].u.i * FAR_MS, NULL, NULL);
	far_future_free(f);
	return far_return(req, &args[0]);
}

static enum far_status size_of(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int((int64_t)args[0].u.s.len);
	return far_return(req, &v);
}

/* Sets a fault on the callee: kind, failing sends, delay in milliseconds. */
static enum far_status set_fault(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_fault f = {.fail_sends = (unsigned)args[1].u.i, .delay_ns = (uint64_t)args[2].u.i * FAR_MS};
	enum far_status status = far_fault_set(far_req_agent(req), (enum far_fault_kind)args[0].u.i, &f, NULL);
	return status ? status : far_return(req, NULL);
}

static enum far_status clear_faults(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	CHECK_STATUS(far_faults_clear(far_req_agent(req), NULL), FAR_OK, NULL);
	return far_return(req, NULL);
}

/* What the callee has of references, in all. */
static enum far_status count(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_rref_counts c;
	struct far_err e;
	if (far_rref_flush(far_req_agent(req), 5000 * FAR_MS, &e))
		return far_fail(req, e.status, 0, "%s", e.text);
	far_rref_counts_read(far_req_agent(req), &c);
	struct far_val v = far_int((int64_t)(c.owned + c.held + c.forks + c.pending + c.unconfirmed));
	return far_return(req, &v);
}

static _Atomic bool held, let_go;

/* Keeps its shard to itself until it is notified. */
static enum far_status hold(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	atomic_store(&held, true);
	while (!atomic_load(&let_go)) /* the hang guard ends it */
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return far_return(req, NULL);
}

static const struct far_function functions[] = {
	{"f::hold() -> none", FAR_KIND_INLINE, hold, NULL},
	{"f::echo(Any x) -> Any", FAR_KIND_INLINE, handler_echo, NULL},
	{"f::fetch(rref r) -> Any", FAR_KIND_FIBER, handler_fetch, NULL},
	{"f::slow(int ms) -> int", FAR_KIND_FIBER, slow, NULL},
	{"f::size(bytes b) -> int", FAR_KIND_INLINE, size_of, NULL},
	{"f::fault(int kind, int fail, int ms) -> none", FAR_KIND_FIBER, set_fault, NULL},
	{"f::clear() -> none", FAR_KIND_FIBER, clear_faults, NULL},
	{"f::count() -> int", FAR_KIND_FIBER, count, NULL},
};
static const struct far_opts opts = {.functions = functions, .functions_n = sizeof functions / sizeof functions[0]};

static struct far_agent *agent;

static void fault(enum far_fault_kind kind, unsigned fail_sends, uint64_t delay_ns, uint64_t messages)
{
	struct far_fault f = {fail_sends, delay_ns, messages};
	CHECK_STATUS(far_fault_set(agent, kind, &f, &err), FAR_OK, &err);
}

static void clear(void)
{
	CHECK_STATUS(far_faults_clear(agent, &err), FAR_OK, &err);
}

static enum far_status call(int to, const char *fn, const struct far_val *args, size_t n, uint64_t timeout_ns,
			    struct far_val *out)
{
	struct far_call_opts o = {.timeout_ns = timeout_ns};
	return far_rpc_sync_to(agent, (struct far_to){to, -1}, fn, args, n, &o, out, &err);
}

static struct far_rref *make(int to, const char *fn, const struct far_val *args, size_t n, uint64_t timeout_ns)
{
	struct far_call_opts o = {.timeout_ns = timeout_ns};
	struct far_rref *r;
	enum far_status status;
	do /* there may be no room for a large one just now */
		status = far_remote_to(agent, (struct far_to){to, -1}, fn, args, n, &o, &r, &err);
	while (status == FAR_BUSY);
	CHECK_STATUS(status, FAR_OK, &err);
	return r;
}

/* Nothing is left, here or anywhere, but for a moment. */
static void expect_clean(void)
{
	struct far_val v;
	struct far_rref_counts c;
	do { /* the hang guard ends it */
		CHECK_STATUS(far_rref_flush(agent, 0, &err), FAR_OK, &err);
		far_rref_counts_read(agent, &c);
	} while (c.owned || c.held || c.forks || c.pending || c.unconfirmed);
	for (int rank = 1; rank < WORLD; rank++) {
		do /* what a handler held goes after its answer */
			CHECK_STATUS(call(rank, "f::count", FAR_NOARGS, 0, &v), FAR_OK, &err);
		while (v.u.i);
	}
}

static void calls(void)
{
	struct far_val v;
	struct far_fault_counts n;
	fault(FAR_FAULT_CALL, 1, 0, 2);
	CHECK_STATUS(call(1, "f::echo", FAR_ARGS(1), 0, &v), FAR_INJECTED, &err);
	CHECK(err.executed == FAR_EXECUTED_NO);
	CHECK_TEXT(&err, "far_fault_set");
	CHECK_STATUS(call(0, "f::echo", FAR_ARGS(1), 0, &v), FAR_INJECTED, &err); /* oneself too */
	CHECK_STATUS(call(1, "f::echo", FAR_ARGS(7), 0, &v), FAR_OK, &err);
	CHECK(v.u.i == 7);
	fault(FAR_FAULT_CALL, 0, 20 * FAR_MS, 0);
	CHECK_STATUS(call(1, "f::echo", FAR_ARGS(1), 2 * FAR_MS, &v), FAR_TIMEOUT, &err);
	CHECK(err.executed == FAR_EXECUTED_NO);
	CHECK_STATUS(call(1, "f::echo", FAR_ARGS(8), 0, &v), FAR_OK, &err);
	CHECK(v.u.i == 8);
	clear();
	far_fault_counts_read(agent, &n);
	/* The one of 2 ms may have passed its time on its way here. */
	CHECK(n.of[FAR_FAULT_CALL].failed == 2 && n.of[FAR_FAULT_CALL].delayed >= 1 &&
	      n.of[FAR_FAULT_CALL].delayed <= 2);
	CHECK_STATUS(call(1, "f::fault", FAR_ARGS((int)FAR_FAULT_REPLY, 1, 0), 0, &v), FAR_OK, &err);
	CHECK_STATUS(call(1, "f::echo", FAR_ARGS(1), 0, &v), FAR_INJECTED, &err);
	CHECK(err.executed == FAR_EXECUTED_YES && strcmp(err.origin, "worker1") == 0);
	CHECK_STATUS(call(1, "f::clear", FAR_NOARGS, 0, &v), FAR_OK, &err);
	CHECK_STATUS(call(1, "f::echo", FAR_ARGS(9), 0, &v), FAR_OK, &err);
	CHECK_STATUS(far_fault_set(agent, FAR_FAULT_COUNT, NULL, &err), FAR_INVALID, &err);
}

/* Of a reference whose making was made to fail; the text is this call's own. */
static void expect_reason(enum far_status got, enum far_status want)
{
	CHECK_STATUS(got, want, &err);
	if (want)
		CHECK_TEXT(&err, "was never made: the call was made to fail (far_fault_set)");
	err = (struct far_err){0};
}

/* One of three fails: it, and no other, reports it wherever it is used. */
static void making(void)
{
	struct far_rref *r[3], *again;
	struct far_val v;
	for (int i = 0; i < 3; i++) {
		if (i == 1)
			fault(FAR_FAULT_REMOTE, 1, 0, 1);
		r[i] = make(1, "f::echo", FAR_ARGS(i), 0);
		far_rref_wait(r[i], 0, NULL); /* it has been sent before another fault is set */
	}
	clear();
	for (int i = 0; i < 3; i++) {
		enum far_status want = i == 1 ? FAR_INJECTED : FAR_OK;
		expect_reason(far_rref_wait(r[i], 0, &err), want);
		expect_reason(far_rref_to_here(r[i], 0, &v, &err), want);
		expect_reason(call(2, "f::fetch", FAR_ARGS(r[i]), 0, &v), want);
		CHECK(far_rref_confirmed_by_owner(r[i]) == (i != 1));
	}
	CHECK_STATUS(far_remote_to(agent, (struct far_to){2, -1}, "f::echo", FAR_ARGS(r[1]), NULL, &again, &err),
		     FAR_INJECTED, &err);
	CHECK_TEXT(&err, "was never made");
	fault(FAR_FAULT_FETCH, 1, 0, 1);
	CHECK_STATUS(far_rref_to_here(r[0], 0, &v, &err), FAR_INJECTED, &err);
	CHECK_STATUS(far_rref_to_here(r[0], 0, &v, &err), FAR_OK, &err);
	fault(FAR_FAULT_FETCH, 0, 10 * FAR_SEC, 1); /* it is given up with its fetch */
	CHECK_STATUS(far_rref_to_here(r[0], FAR_MS, &v, &err), FAR_TIMEOUT, &err);
	clear();
	/* A request for the type fails as a request for the value does. */
	const char *type;
	fault(FAR_FAULT_METHOD, 1, 0, 0);
	fault(FAR_FAULT_FETCH, 1, 0, 1);
	CHECK_STATUS(far_rref_type(r[0], 0, &type, &err), FAR_INJECTED, &err);
	CHECK_STATUS(far_rref_type(r[0], 0, &type, &err), FAR_OK, &err);
	CHECK(strcmp(type, "int") == 0);
	clear();
	for (int i = 0; i < 3; i++)
		far_rref_free(r[i]);
	expect_clean();
}

/* A fetch that leaves late, after its handle was freed, finds the value: no DELETE passes it. */
static void fetched_last(void)
{
	struct far_future *fetched;
	struct far_val v;
	struct far_rref *r = make(1, "f::echo", FAR_ARGS(11), 0);
	CHECK_STATUS(far_rref_wait(r, 0, &err), FAR_OK, &err);
	fault(FAR_FAULT_FETCH, 0, 200 * FAR_MS, 1);
	CHECK_STATUS(far_rref_to_here_async(r, 20 * FAR_SEC, &fetched, &err), FAR_OK, &err);
	far_rref_free(r);
	CHECK_STATUS(far_future_wait(fetched, 0, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 11);
	far_future_free(fetched);
	clear();
	expect_clean();
}

/* Control messages fail three times each at everybody, and a reference is passed on all the same. */
static void control_messages(void)
{
	static const enum far_fault_kind kinds[] = {FAR_FAULT_FORK, FAR_FAULT_ACCEPT, FAR_FAULT_DELETE};
	struct far_val v, inner;
	for (unsigned i = 0; i < 3; i++) {
		fault(kinds[i], 3, 0, 0);
		for (int rank = 1; rank < WORLD; rank++)
			CHECK_STATUS(call(rank, "f::fault", FAR_ARGS((int)kinds[i], 3, 0), 0, &v), FAR_OK, &err);
	}
	struct far_rref *r = make(1, "f::echo", FAR_ARGS(42), 0);
	CHECK_STATUS(call(2, "f::fetch", FAR_ARGS(r), 0, &v), FAR_OK, &err);
	CHECK(v.u.i == 42);
	CHECK_STATUS(call(2, "f::echo", FAR_ARGS(r), 0, &v), FAR_OK, &err); /* back in a result: ACCEPT */
	CHECK_STATUS(far_rref_wait(v.u.rref, 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_to_here(v.u.rref, 0, &inner, &err), FAR_OK, &err);
	CHECK(inner.u.i == 42);
	far_rref_free(r);
	far_val_fini(&v);
	expect_clean();
	struct far_fault_counts n;
	far_fault_counts_read(agent, &n);
	CHECK(n.of[FAR_FAULT_FORK].failed == 3 && n.of[FAR_FAULT_ACCEPT].failed == 3 &&
	      n.of[FAR_FAULT_DELETE].failed == 6);
	clear();
	for (int rank = 1; rank < WORLD; rank++)
		CHECK_STATUS(call(rank, "f::clear", FAR_NOARGS, 0, &v), FAR_OK, &err);
}

/* Making takes too long: that reference reports it, whether other workers have it or not, and nothing stays. */
static void late_making(void)
{
	struct far_val v;
	struct far_rref *slow_one = make(1, "f::slow", FAR_ARGS(10000), 20 * FAR_MS);
	struct far_rref *good = make(1, "f::slow", FAR_ARGS(1), 0);
	struct far_future *fetched;
	/* On a busy machine it has failed before it is fetched. */
	enum far_status sent = far_rref_to_here_async(slow_one, FAR_FOREVER, &fetched, &err);
	CHECK(sent == FAR_OK || sent == FAR_TIMEOUT);
	CHECK_STATUS(far_rref_wait(slow_one, 0, &err), FAR_TIMEOUT, &err);
	CHECK_TEXT(&err, "was never made");
	if (sent == FAR_OK) {
		CHECK_STATUS(far_future_wait(fetched, 0, &v, &err), FAR_TIMEOUT, &err);
		far_future_free(fetched);
	}
	CHECK_STATUS(far_rref_to_here(slow_one, 0, &v, &err), FAR_TIMEOUT, &err);
	CHECK_STATUS(far_rref_to_here(good, 0, &v, &err), FAR_OK, &err);
	far_rref_free(slow_one);
	far_rref_free(good);
	/* Its request is late, and beyond its time. */
	fault(FAR_FAULT_REMOTE, 0, 40 * FAR_MS, 0);
	struct far_rref *r = make(1, "f::echo", FAR_ARGS(1), 2 * FAR_MS);
	CHECK_STATUS(far_rref_wait(r, 0, &err), FAR_TIMEOUT, &err);
	far_rref_free(r);
	clear();
	expect_clean();
}

/* Times so short that nothing is done in them, down to a nanosecond, with requests that are small, and so large that
 * they still wait here when control messages pass them. Not one leaves anything behind. */
static void short_making(void)
{
	enum { ROUNDS = 200 };
	static char big[1 << 20];
	struct far_val v;
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t ns = (uint64_t)1 << (i % 21);
		struct far_val arg = far_bytes(big, i % 2 ? sizeof big : 8);
		struct far_rref *r = make(1 + i % 2, "f::size", &arg, 1, ns), *other = NULL;
		if (i % 3 == 0 && far_rref_to_here(r, 0, &v, &err) == FAR_OK)
			CHECK(v.u.i == (int64_t)arg.u.s.len);
		if (i % 4 == 0 &&
		    far_remote_to(agent, (struct far_to){2, -1}, "f::echo", FAR_ARGS(r), NULL, &other, &err))
			CHECK_STATUS(err.status, FAR_TIMEOUT, &err);
		enum far_status status = far_rref_wait(r, 0, &err);
		CHECK(status == FAR_OK || status == FAR_TIMEOUT);
		far_rref_free(r);
		far_rref_free(other);
	}
	CHECK_STATUS(call(1, "f::slow", FAR_ARGS(1000), 1, &v), FAR_TIMEOUT, &err); /* one nanosecond is not for ever */
	expect_clean();
}

/* Of one reference to all, and of targets' own; results with references; one target fails, the others' are given back;
 * more at once than there are credits, so that requests with references wait. */
static void fan_outs(void)
{
	enum { MANY = 600 };
	static struct far_target many[MANY];
	static struct far_target_result results[MANY];
	struct far_fanout_opts o = {.errors = FAR_ERRORS_COLLECT, .partial = true};
	struct far_target three[WORLD] = {{.to = {0, -1}}, {.to = {1, -1}}, {.to = {2, -1}}};
	struct far_rref *r = make(1, "f::echo", FAR_ARGS(42), 0), *other = make(2, "f::echo", FAR_ARGS(43), 0);
	struct far_future *f;
	struct far_val v, own = far_rref_val(other);
	three[2].args = &own;
	three[2].args_n = 1;
	CHECK_STATUS(far_rpc_fanout(agent, "f::fetch", FAR_ARGS(r), three, WORLD, &o, results, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == WORLD);
	for (int i = 0; i < WORLD; i++)
		CHECK(results[i].status == FAR_OK && results[i].value.u.i == (i == 2 ? 43 : 42));
	far_future_free(f);
	CHECK_STATUS(far_rpc_fanout(agent, "f::echo", FAR_ARGS(r), three, WORLD, &o, results, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_OK, &err);
	far_future_free(f);
	for (int i = 0; i < WORLD; i++) {
		CHECK(results[i].value.type == FAR_TYPE_RREF);
		CHECK(far_rref_same(results[i].value.u.rref, i == 2 ? other : r));
		CHECK_STATUS(far_rref_to_here(results[i].value.u.rref, 0, &v, &err), FAR_OK, &err);
		CHECK(v.u.i == (i == 2 ? 43 : 42));
		far_val_fini(&results[i].value);
	}
	for (int i = 0; i < MANY; i++)
		many[i].to = (struct far_to){i % WORLD, -1};
	CHECK_STATUS(call(1, "f::fault", FAR_ARGS((int)FAR_FAULT_REPLY, 1, 0), 0, &v), FAR_OK, &err);
	CHECK_STATUS(far_rpc_fanout(agent, "f::fetch", FAR_ARGS(other), many, MANY, &o, results, &f, &err), FAR_OK,
		     &err);
	CHECK_STATUS(far_future_wait(f, 0, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == MANY / 3 * 2);
	for (int i = 0; i < MANY; i++)
		CHECK(results[i].status == (i % WORLD == 1 ? FAR_INJECTED : FAR_OK));
	far_future_free(f);
	CHECK_STATUS(call(1, "f::clear", FAR_NOARGS, 0, &v), FAR_OK, &err);
	/* Given up while it waits, and not to be hedged. */
	o = (struct far_fanout_opts){.timeout_ns = 1};
	CHECK_STATUS(far_rpc_fanout(agent, "f::fetch", FAR_ARGS(r), many, MANY, &o, NULL, &f, &err), FAR_OK, &err);
	far_future_free(f);
	o = (struct far_fanout_opts){.hedge_after_ns = FAR_MS, .hedge = FAR_HEDGE_NEXT};
	CHECK_STATUS(far_rpc_fanout(agent, "far::identity", FAR_ARGS(r), three, WORLD, &o, NULL, &f, &err), FAR_OK,
		     &err);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_UNSUPPORTED, &err);
	CHECK_TEXT(&err, "hedge_after_ns");
	far_future_free(f);
	far_rref_free(r);
	far_rref_free(other);
	expect_clean();
}

static void defaults(void)
{
	struct far_future *before;
	struct far_val v;
	uint64_t was = far_rpc_timeout_ns(agent);
	CHECK(was == 60000 * FAR_MS);
	CHECK_STATUS(far_rpc_async_to(agent, (struct far_to){1, -1}, "f::slow", FAR_ARGS(60), NULL, &before, &err),
		     FAR_OK, &err);
	CHECK(far_set_rpc_timeout_ns(agent, 0) == FAR_OK && far_rpc_timeout_ns(agent) == FAR_RPC_TIMEOUT_NS);
	CHECK(far_set_rpc_timeout_ns(agent, FAR_MS) == FAR_OK && far_rpc_timeout_ns(agent) == FAR_MS);
	CHECK_STATUS(call(1, "f::slow", FAR_ARGS(10000), 0, &v), FAR_TIMEOUT, &err);
	struct far_rref *r = make(1, "f::slow", FAR_ARGS(10000), 0);
	CHECK_STATUS(far_rref_to_here(r, FAR_FOREVER, &v, &err), FAR_TIMEOUT, &err);
	far_rref_free(r);
	r = make(1, "f::slow", FAR_ARGS(1000), FAR_FOREVER);
	CHECK_STATUS(far_rref_to_here(r, 0, &v, &err), FAR_TIMEOUT, &err);
	CHECK_STATUS(far_rref_to_here(r, FAR_FOREVER, &v, &err), FAR_OK, &err);
	far_rref_free(r);
	CHECK(far_set_rpc_timeout_ns(agent, was) == FAR_OK);
	CHECK_STATUS(far_future_wait(before, 0, &v, &err), FAR_OK, &err); /* it was started before */
	far_future_free(before);
	expect_clean();
}

/* A shard that does not come to say what is under way. Expect TIMEOUT, naming it, and OK when it is back. */
static void busy_flush(void)
{
	struct far_future *f;
	CHECK_STATUS(far_rpc_async_to(agent, (struct far_to){0, -1}, "f::hold", FAR_NOARGS, NULL, &f, &err), FAR_OK,
		     &err);
	while (!atomic_load(&held)) /* nobody waits here: the shard's own thread runs it */
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	CHECK_STATUS(far_rref_flush(agent, 50 * FAR_MS, &err), FAR_TIMEOUT, &err);
	CHECK_TEXT(&err, "shard 0 of worker");
	atomic_store(&let_go, true);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_OK, &err);
	far_future_free(f);
	expect_clean();
}

static void debug_info(void)
{
	enum { MANY = 128 };
	static struct far_debug_pair p[MANY];
	size_t n = far_debug_info(agent, NULL, 0);
	CHECK(n > 30 && n < MANY && far_debug_info(agent, p, MANY) == n);
	bool seen = false;
	for (size_t i = 0; i < n; i++) {
		CHECK(p[i].name[0] && p[i].value[0]);
		for (size_t k = 0; k < i; k++)
			CHECK(strcmp(p[i].name, p[k].name) != 0);
		seen |= strcmp(p[i].name, "fault.fork.failed") == 0 && atoi(p[i].value) == 3;
	}
	CHECK(seen);
}

static int worker(int rank)
{
	agent = check_join(&opts);
	if (rank == 0) {
		calls();
		making();
		fetched_last();
		control_messages();
		late_making();
		short_making();
		fan_outs();
		defaults();
		busy_flush();
		debug_info();
	}
	check_leave(agent);
	return 0;
}

int main(void)
{
	struct spawned s = spawn(WORLD, worker);
	return spawn_wait(&s, -1);
}

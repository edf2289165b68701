/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 4. Main thread of each process; handlers on shard threads; threads that it starts. */
/**
 * Objects over real workers: every worker at once makes some on the others, calls their methods from here and from
 * there, and gives them back. At the end every object that was made has been ended, once, by its owner.
 */
#include "api_calls.h"
#include "counter_class.h"
#include "handlers.h"

#include <pthread.h>

/* ---- functions ---- */

static enum far_status add_to_all(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct far_val *inner = far_dict_get(&args[1], "c");
	struct far_val v;
	struct far_err e;
	int64_t sum = 0;
	for (size_t i = 0; i <= far_len(&args[0]); i++) {
		struct far_rref *r = i < far_len(&args[0]) ? far_list_get(&args[0], i)->u.rref : inner->u.rref;
		enum far_status status = far_rref_rpc_sync(r, "add", FAR_ARGS(1), NULL, &v, &e);
		if (status)
			return far_fail(req, status, e.code, "%s", e.text);
		sum += v.u.i;
	}
	v = far_int(sum);
	return far_return(req, &v);
}

static enum far_status balance(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(atomic_load(&made) - atomic_load(&ended));
	return far_return(req, &v);
}

static const struct far_function functions[] = {
	{"o::echo(Any x) -> Any", FAR_KIND_INLINE, handler_echo, NULL},
	{"o::add_to_all(List l, Dict d) -> int", FAR_KIND_FIBER, add_to_all, NULL},
	{"o::balance() -> int", FAR_KIND_INLINE, balance, NULL},
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

static void expect(struct far_rref *r, const char *method, const struct far_val *args, size_t n, int64_t want)
{
	struct far_val v = far_none();
	CHECK_STATUS(far_rref_rpc_sync(r, method, args, n, NULL, &v, &err), FAR_OK, &err);
	if (v.type != FAR_TYPE_INT || v.u.i != want)
		fprintf(stderr, "worker %d: %s: %lld, not %lld\n", rank, method, (long long)v.u.i, (long long)want);
	CHECK(v.type == FAR_TYPE_INT && v.u.i == want);
}

static void expect_error(struct far_rref *r, const char *method, const struct far_val *args, size_t n,
			 enum far_status status, const char *text)
{
	struct far_val v = far_none();
	struct far_future *f = NULL;
	CHECK_STATUS(far_rref_rpc_sync(r, method, args, n, NULL, &v, &err), status, &err);
	CHECK_TEXT(&err, text);
	CHECK(err.executed == FAR_EXECUTED_NO && v.type == FAR_TYPE_NONE);
	status = far_rref_rpc_async(r, method, args, n, NULL, &f, &err);
	if (!status) {
		status = far_future_wait(f, 0, &v, &err);
		far_future_free(f);
	}
	CHECK(status != FAR_OK);
	CHECK_TEXT(&err, text);
}

/* Before anybody has confirmed it, and after; at once and later; keywords, defaults and overloads. */
static void methods_called(int where)
{
	struct far_rref *r = make(at(where), "o::Counter", FAR_ARGS(5));
	struct far_val v;
	expect(r, "add", FAR_ARGS(2), 7);
	expect(r, "add", FAR_NOARGS, 8);
	expect(r, "add", FAR_ARGS(FAR_KW("times", 3), FAR_KW("by", 2)), 14);
	CHECK_STATUS(far_rref_rpc_sync(r, "set", FAR_ARGS("abc"), NULL, &v, &err), FAR_OK, &err);
	expect(r, "get", FAR_NOARGS, 3);
	CHECK_STATUS(far_rref_rpc_sync(r, "set", FAR_ARGS(far_bytes("abcdefg", 7)), NULL, &v, &err), FAR_OK, &err);
	expect(r, "get", FAR_NOARGS, 7);
	struct far_future *f[20];
	for (int i = 0; i < 20; i++)
		CHECK_STATUS(far_rref_rpc_async(r, "add", FAR_ARGS(1), NULL, &f[i], &err), FAR_OK, &err);
	far_rref_free(r); /* the calls keep it */
	for (int i = 0; i < 20; i++) {
		CHECK_STATUS(far_future_wait(f[i], 0, &v, &err), FAR_OK, &err);
		CHECK(v.u.i == 8 + i);
		far_future_free(f[i]);
	}
}

static void constructors_chosen(void)
{
	struct far_rref *a = make(at(1), "o::Counter", FAR_NOARGS),
			*b = make(at(1), "o::blocking_counter", FAR_ARGS(4));
	expect(a, "get", FAR_NOARGS, 0);
	expect(b, "get", FAR_NOARGS, 4);
	struct far_rref *c = make(at(2), "o::Counter", FAR_ARGS(b)), *d = make(at(1), "o::Counter", FAR_ARGS(b));
	expect(c, "add", FAR_ARGS(1), 5); /* waits for it at the owner */
	expect(d, "get", FAR_NOARGS, 4);
	far_rref_free(a);
	far_rref_free(b);
	far_rref_free(c);
	far_rref_free(d);
}

static void long_and_repeated(void)
{
	static char text[200000];
	struct far_call_opts opts = {.retry = true, .retry_after_ns = FAR_MS};
	struct far_rref *r = make(at(1), "o::Counter", FAR_ARGS(1));
	struct far_val v;
	memset(text, 'x', sizeof text);
	for (size_t n = 1; n <= sizeof text; n *= 10) {
		CHECK_STATUS(far_rref_rpc_sync(r, "set", FAR_ARGS(far_bytes(text, n)), NULL, &v, &err), FAR_OK, &err);
		expect(r, "get", FAR_NOARGS, (int64_t)n);
	}
	for (int i = 0; i < 3; i++)
		CHECK_STATUS(far_rref_rpc_sync(r, "add", FAR_ARGS(1), &opts, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 100003);
	CHECK_STATUS(far_rref_rpc_sync(r, "slow", FAR_ARGS(5), &opts, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 0);
	far_rref_free(r);
	static char huge[20 << 20];
	r = make(at(2), "o::Counter", FAR_ARGS(1));
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(far_rref_rpc_sync(r, "set", FAR_ARGS(far_bytes(huge, sizeof huge)), NULL, &v, &err),
			     FAR_OK, &err);
		expect(r, "get", FAR_NOARGS, sizeof huge);
	}
	far_rref_free(r);
}

static void kinds(int where)
{
	struct far_rref *r = make(at(where), "o::Counter", FAR_ARGS(0));
	struct far_future *slow, *blocking;
	struct far_val v;
	CHECK_STATUS(far_rref_rpc_async(r, "slow", FAR_ARGS(20), NULL, &slow, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_rpc_async(r, "blocking", FAR_NOARGS, NULL, &blocking, &err), FAR_OK, &err);
	expect(r, "add", FAR_ARGS(3), 3); /* while the fiber is parked */
	far_rref_free(r);
	CHECK_STATUS(far_future_wait(slow, 0, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 3 || v.u.i == 0); /* it may have begun late */
	CHECK_STATUS(far_future_wait(blocking, 0, &v, &err), FAR_OK, &err);
	CHECK(v.u.b);
	far_future_free(slow);
	far_future_free(blocking);
}

/* Answered later, by another method; given up, and never answered: the destructor must not run before. */
static void deferred(void)
{
	static const char *const names[] = {"await", "await_fiber"};
	struct far_val v = far_none();
	for (int i = 0; i < 2; i++) {
		struct far_rref *r = make(at(1), "o::Counter", FAR_ARGS(0));
		struct far_future *f;
		CHECK_STATUS(far_rref_wait(r, 0, &err), FAR_OK, &err);
		CHECK_STATUS(far_rref_rpc_async(r, names[i], FAR_NOARGS, NULL, &f, &err), FAR_OK, &err);
		do
			CHECK_STATUS(far_rref_rpc_sync(r, "release", FAR_ARGS("done"), NULL, &v, &err), FAR_OK, &err);
		while (!v.u.b);
		CHECK_STATUS(far_future_wait(f, 0, &v, &err), FAR_OK, &err);
		CHECK(strcmp(v.u.s.data, "done") == 0);
		far_val_fini(&v);
		far_future_free(f);
		far_rref_free(r);
	}
}

static void errors(void)
{
	struct far_rref *r = make(at(1), "o::Counter", FAR_ARGS(5)), *value = make(at(1), "o::echo", FAR_ARGS(5)),
			*bad = make(at(1), "o::Counter", FAR_ARGS(-4));
	struct far_val v;
	expect_error(r, "non_exist", FAR_NOARGS, FAR_NO_FUNCTION, "o::Counter has no method 'non_exist'");
	expect_error(r, "add", FAR_ARGS("x"), FAR_BAD_ARGS, "o::Counter.add");
	expect_error(r, "add", FAR_ARGS(1, 2, 3), FAR_BAD_ARGS, "o::Counter.add(int by=1, int times=1) -> int");
	expect_error(r, "set", FAR_ARGS(1.5), FAR_BAD_ARGS, "overloads");
	expect_error(value, "add", FAR_NOARGS, FAR_INVALID, "not a reference to an object");
	for (int i = 0; i < 2; i++) { /* before it has failed, and after */
		expect_error(bad, "add", FAR_ARGS(1), FAR_REMOTE, "a counter cannot begin at -4");
		CHECK(err.code == 3);
		CHECK_STATUS(far_rref_wait(bad, 0, &err), FAR_OK, &err);
	}
	CHECK_STATUS(far_rref_rpc_sync(r, "fail", FAR_ARGS("because"), NULL, &v, &err), FAR_REMOTE, &err);
	CHECK(err.code == 9 && err.executed == FAR_EXECUTED_YES && strcmp(err.text, "because") == 0);
	CHECK(strcmp(err.origin, check_name((rank + 1) % world)) == 0);
	struct far_call_opts soon = {.timeout_ns = 5 * FAR_MS};
	CHECK_STATUS(far_rref_rpc_sync(r, "slow", FAR_ARGS(10000), &soon, &v, &err), FAR_TIMEOUT, &err);
	/* Objects stay. */
	CHECK_STATUS(far_rref_to_here(r, 0, &v, &err), FAR_UNSUPPORTED, &err);
	CHECK_TEXT(&err, "an object of o::Counter stays with worker");
	/* Neither constructors nor methods are functions. */
	CHECK_STATUS(far_rpc_sync_to(agent, at(1), "o::Counter", FAR_ARGS(1), NULL, &v, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "far_remote");
	CHECK(err.executed == FAR_EXECUTED_NO);
	CHECK_STATUS(far_rpc_sync_to(agent, at(1), "o::Counter", FAR_ARGS(r), NULL, &v, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "far_remote");
	CHECK_STATUS(far_rpc_sync_to(agent, at(1), "o::Counter.add", FAR_ARGS(1), NULL, &v, &err), FAR_NO_FUNCTION,
		     &err);
	CHECK_TEXT(&err, "(\"o::Counter\" is)");
	CHECK_STATUS(far_rref_rpc_sync(r, "child", FAR_NOARGS, NULL, &v, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "far_rref_remote");
	CHECK_STATUS(far_rref_rpc_sync(NULL, "add", FAR_NOARGS, NULL, &v, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_rref_rpc_sync(r, NULL, FAR_NOARGS, NULL, &v, &err), FAR_INVALID, &err);
	far_rref_free(r);
	far_rref_free(value);
	far_rref_free(bad);
}

/* What a method returns stays where the object is: a value, an object, an error. */
static void remote_methods(int where)
{
	struct far_rref *r = make(at(where), "o::Counter", FAR_ARGS(20)), *sum, *child, *failed;
	struct far_val v;
	CHECK_STATUS(far_rref_remote(r, "add", FAR_ARGS(1), NULL, &sum, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_remote(r, "child", FAR_NOARGS, NULL, &child, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_remote(r, "fail", FAR_ARGS("why"), NULL, &failed, &err), FAR_OK, &err);
	CHECK(far_rref_owner(sum).worker == (rank + where) % world);
	CHECK_STATUS(far_rref_to_here(sum, 0, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 21);
	expect(child, "get", FAR_NOARGS, 22);
	CHECK(strcmp(far_rref_class(child), "o::Counter") == 0);
	CHECK_STATUS(far_rref_to_here(failed, 0, &v, &err), FAR_REMOTE, &err);
	CHECK_TEXT(&err, "why");
	far_rref_free(sum);
	far_rref_free(failed);
	CHECK_STATUS(far_rref_remote(child, "slow", FAR_ARGS(3), NULL, &sum, &err), FAR_OK, &err);
	far_rref_free(child);
	far_rref_free(r);
	CHECK_STATUS(far_rref_to_here(sum, 0, &v, &err), FAR_OK, &err);
	far_rref_free(sum);
}

/* Handed on, in lists and dicts, to who never spoke to the owner; given back at once. */
static void shared(void)
{
	struct far_rref *a = make(at(1), "o::Counter", FAR_ARGS(10)), *b = make(at(2), "o::Counter", FAR_ARGS(20)),
			*c = make(at(0), "o::Counter", FAR_ARGS(30));
	struct far_val v;
	for (int i = 1; i <= 3; i++) {
		CHECK_STATUS(far_rpc_sync_to(agent, at(i), "o::add_to_all",
					     FAR_ARGS(FAR_LIST(a, b), FAR_DICT(FAR_ENTRY("c", c))), NULL, &v, &err),
			     FAR_OK, &err);
		CHECK(v.u.i == 60 + 3 * i);
	}
	/* The object's own reference, from itself. */
	CHECK_STATUS(far_rref_rpc_sync(a, "self", FAR_NOARGS, NULL, &v, &err), FAR_OK, &err);
	CHECK(far_rref_same(v.u.rref, a));
	far_rref_free(a);
	expect(v.u.rref, "get", FAR_NOARGS, 13);
	/* One keeps another, and calls it. */
	struct far_val none;
	CHECK_STATUS(far_rref_rpc_sync(b, "befriend", FAR_ARGS(v.u.rref), NULL, &none, &err), FAR_OK, &err);
	far_val_fini(&v);
	expect(b, "through", FAR_ARGS(7), 20);
	CHECK_STATUS(far_rref_rpc_sync(c, "befriend", FAR_ARGS(c), NULL, &none, &err), FAR_OK, &err);
	expect(c, "through", FAR_ARGS(1), 34);
	CHECK_STATUS(far_rref_rpc_sync(c, "befriend", FAR_ARGS(far_none()), NULL, &none, &err), FAR_OK, &err);
	far_rref_free(b);
	far_rref_free(c);
}

static void types(void)
{
	struct far_rref *r = make(at(1), "o::Counter", FAR_ARGS(1)), *own = make(at(0), "o::Counter", FAR_ARGS(1)),
			*value = make(at(1), "o::echo", FAR_ARGS(FAR_LIST(r))),
			*bad = make(at(1), "o::Counter", FAR_ARGS(-1)), *p = make(at(2), "o::Point", FAR_ARGS(3));
	const char *name, *again;
	struct far_future *f;
	struct far_val v;
	struct far_counters before, after;
	void *object;
	CHECK(strcmp(far_rref_class(r), "o::Counter") == 0 && !far_rref_class(value));
	CHECK_STATUS(far_rref_type(r, 0, &name, &err), FAR_OK, &err);
	CHECK(strcmp(name, "o::Counter") == 0);
	far_counters_read(agent, &before);
	CHECK_STATUS(far_rref_type(r, 0, &again, &err), FAR_OK, &err);
	far_counters_read(agent, &after);
	CHECK(again == name);
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(far_rref_type_async(value, 0, &f, &err), FAR_OK, &err);
		CHECK_STATUS(far_future_wait(f, 0, &v, &err), FAR_OK, &err);
		CHECK(strcmp(v.u.s.data, "list") == 0);
		far_val_fini(&v);
		far_future_free(f);
	}
	CHECK_STATUS(far_rref_type(value, 0, &name, &err), FAR_OK, &err);
	CHECK(strcmp(name, "list") == 0);
	CHECK_STATUS(far_rref_type(own, 0, &name, &err), FAR_OK, &err);
	CHECK(strcmp(name, "o::Counter") == 0);
	CHECK_STATUS(far_rref_type(bad, 0, &name, &err), FAR_REMOTE, &err);
	CHECK_TEXT(&err, "cannot begin at -1");
	/* The object itself. */
	CHECK_STATUS(far_rref_object(own, "o::Counter", 0, &object, &err), FAR_OK, &err);
	CHECK(((struct counter *)object)->alive == ALIVE);
	CHECK_STATUS(far_rref_local_value(own, 0, &v, &err), FAR_OK, &err);
	CHECK(v.type == FAR_TYPE_CUSTOM && v.u.custom.object == object && !v.own);
	far_val_fini(&v);
	CHECK_STATUS(far_rref_object(own, "o::Point", 0, &object, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "a o::Counter, not");
	CHECK_STATUS(far_rref_object(r, NULL, 0, &object, &err), FAR_INVALID, &err);
	/* A copy. */
	CHECK_STATUS(far_rref_type(p, 0, &name, &err), FAR_OK, &err);
	CHECK(strcmp(name, "o::Point") == 0);
	CHECK_STATUS(far_rref_to_here(p, 0, &v, &err), FAR_OK, &err);
	CHECK(v.type == FAR_TYPE_CUSTOM && *(int64_t *)v.u.custom.object == 3);
	far_val_fini(&v);
	far_rref_free(r);
	far_rref_free(own);
	far_rref_free(value);
	far_rref_free(bad);
	far_rref_free(p);
}

/* ---- many threads with one reference ---- */

#define THREADS 16
#define EACH    50

static void *proxy(void *arg)
{
	struct far_err e;
	for (int i = 0; i < EACH; i++) {
		struct far_val v;
		CHECK_STATUS(far_rref_rpc_sync(arg, "add", FAR_ARGS(1), NULL, &v, &e), FAR_OK, &e);
		CHECK(v.u.i >= 1 && v.u.i <= THREADS * EACH);
		struct far_future *f;
		while (far_rref_rpc_async(arg, "get", FAR_NOARGS, NULL, &f, &e) == FAR_BUSY)
			;
		CHECK_STATUS(far_future_wait(f, 0, &v, &e), FAR_OK, &e);
		far_future_free(f);
	}
	return NULL;
}

static void threads(int where)
{
	pthread_t t[THREADS];
	struct far_rref *r = make(at(where), "o::Counter", FAR_NOARGS);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, proxy, r) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	expect(r, "get", FAR_NOARGS, THREADS * EACH);
	far_rref_free(r);
}

/* ---- the end ---- */

static void all_ended(int whose)
{
	for (;;) { /* the hang guard ends it */
		struct timespec nap = {0, 1000000};
		struct far_val v;
		CHECK_STATUS(far_rpc_sync_to(agent, at(whose), "o::balance", FAR_NOARGS, NULL, &v, &err), FAR_OK, &err);
		if (v.u.i == 0)
			return;
		nanosleep(&nap, NULL);
	}
}

int main(void)
{
	static const struct far_opts opts = {.functions = functions,
					     .functions_n = sizeof functions / sizeof functions[0],
					     .classes = counter_classes,
					     .classes_n = COUNTER_CLASSES};
	calls_begin(&opts);
	world = far_world_size(agent);
	methods_called(1);
	methods_called(0);
	constructors_chosen();
	long_and_repeated();
	kinds(1);
	kinds(0);
	deferred();
	errors();
	remote_methods(1);
	remote_methods(0);
	shared();
	types();
	threads(1);
	threads(0);
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	all_ended(1);
	CHECK(atomic_load(&made) > 0 && adds > 0);
	/* What is held until the end is ended with the agent. */
	struct far_rref *kept = make(at(1), "o::Counter", FAR_ARGS(1));
	CHECK_STATUS(far_rref_wait(kept, 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_OK, &err);
	CHECK(atomic_load(&made) == atomic_load(&ended));
	far_rref_free(kept);
	return 0;
}

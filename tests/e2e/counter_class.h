/* SPDX-License-Identifier: BSD-3-Clause */
/** Classes of the tests of objects: a counter with methods of every kind, which counts its instances, and a point that
 * is sent as a copy. Handlers: shard threads, fibers and threads of the agent. */
#ifndef COUNTER_CLASS_H
#define COUNTER_CLASS_H

#include "check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static _Atomic int64_t made, ended;

struct counter {
	int64_t n;
	uint32_t alive;
	struct far_rref *friend;
	struct far_deferred *waiting;
};

#define ALIVE UINT32_C(0xa11fe)

static struct counter *counter_of(int64_t n)
{
	struct counter *c = calloc(1, sizeof *c);
	CHECK(c);
	*c = (struct counter){.n = n, .alive = ALIVE};
	atomic_fetch_add(&made, 1);
	return c;
}

static enum far_status counter_new(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	if (args[0].u.i < 0)
		return far_fail(req, FAR_REMOTE, 3, "a counter cannot begin at %lld", (long long)args[0].u.i);
	return far_return_object(req, counter_of(args[0].u.i));
}

static void pause_for(uint64_t ms)
{
	struct far_future *never;
	CHECK_STATUS(far_future_create(&never, NULL), FAR_OK, NULL);
	far_future_wait(never, ms * FAR_MS, NULL, NULL);
	far_future_free(never);
}

/* Begins where another one is, after a while. */
static enum far_status counter_copy(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v;
	struct far_err e;
	pause_for(2);
	enum far_status status = far_rref_rpc_sync(args[0].u.rref, "get", FAR_NOARGS, NULL, &v, &e);
	if (status)
		return far_fail(req, status, e.code, "%s", e.text);
	return far_return_object(req, counter_of(v.u.i));
}

static void counter_free(void *object, void *user)
{
	struct counter *c = object;
	CHECK(user == &made && c->alive == ALIVE);
	c->alive = 0;
	far_rref_free(c->friend);
	atomic_fetch_add(&ended, 1);
	free(c);
}

static enum far_status counter_get(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	struct counter *c = object;
	struct far_val v = far_int(c->n);
	CHECK(c->alive == ALIVE && n == 0);
	return far_return(req, &v);
}

static enum far_status counter_add(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	struct counter *c = object;
	CHECK(c->alive == ALIVE && n == 2);
	c->n += args[0].u.i * args[1].u.i;
	struct far_val v = far_int(c->n);
	atomic_fetch_add((_Atomic int *)user, 1);
	return far_return(req, &v);
}

static enum far_status counter_set(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	struct counter *c = object;
	c->n = (int64_t)args[0].u.s.len;
	return far_return(req, NULL);
}

/* Parks between reading and writing: others run meanwhile. */
static enum far_status counter_slow(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	struct counter *c = object;
	int64_t before = c->n;
	pause_for((uint64_t)args[0].u.i);
	CHECK(c->alive == ALIVE);
	struct far_val v = far_int(c->n - before);
	enum far_status status = far_return(req, &v);
	pause_for(1); /* it has answered, and goes on */
	CHECK(c->alive == ALIVE);
	return status;
}

static enum far_status counter_blocking(struct far_req *req, void *object, const struct far_val *args, size_t n,
					void *user)
{
	struct timespec nap = {0, 2000000};
	struct counter *c = object;
	nanosleep(&nap, NULL);
	CHECK(c->alive == ALIVE);
	struct far_val v = far_bool(c->alive == ALIVE);
	return far_return(req, &v);
}

/* Answered by the next "release". */
static enum far_status counter_await(struct far_req *req, void *object, const struct far_val *args, size_t n,
				     void *user)
{
	struct counter *c = object;
	return far_defer(req, &c->waiting);
}

static enum far_status counter_release(struct far_req *req, void *object, const struct far_val *args, size_t n,
				       void *user)
{
	struct counter *c = object;
	struct far_val v = far_bool(c->waiting != NULL);
	if (c->waiting)
		far_deferred_return(c->waiting, &args[0]);
	c->waiting = NULL;
	return far_return(req, &v);
}

static enum far_status counter_fail(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, FAR_REMOTE, 9, "%s", (const char *)args[0].u.s.data);
}

static enum far_status counter_self(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_rref_val(far_req_rref(req));
	CHECK(((struct counter *)object)->alive == ALIVE && far_rref_is_owner(v.u.rref));
	return far_return(req, &v);
}

/* Keeps a reference to another object or to itself, until a call releases it. */
static enum far_status counter_befriend(struct far_req *req, void *object, const struct far_val *args, size_t n,
					void *user)
{
	struct counter *c = object;
	far_rref_free(c->friend);
	c->friend = args[0].type == FAR_TYPE_RREF ? far_rref_ref(args[0].u.rref) : NULL;
	return far_return(req, NULL);
}

/* A method that calls one of another object, wherever that is. */
static enum far_status counter_through(struct far_req *req, void *object, const struct far_val *args, size_t n,
				       void *user)
{
	struct counter *c = object;
	struct far_val v;
	struct far_err e;
	enum far_status status = far_rref_rpc_sync(c->friend, "add", &args[0], 1, NULL, &v, &e);
	if (status)
		return far_fail(req, status, e.code, "%s", e.text);
	return far_return(req, &v);
}

/* A method that makes an object. */
static enum far_status counter_child(struct far_req *req, void *object, const struct far_val *args, size_t n,
				     void *user)
{
	return far_return_object(req, counter_of(((struct counter *)object)->n + 1));
}

static _Atomic int adds;
static const struct far_function constructors[] = {
	{"o::Counter(int start=0) -> o::Counter", FAR_KIND_INLINE, counter_new, NULL},
	{"o::Counter(rref other) -> o::Counter", FAR_KIND_FIBER, counter_copy, NULL},
	{"o::blocking_counter(int start) -> o::Counter", FAR_KIND_BLOCKING, counter_new, NULL},
};
static const struct far_method methods[] = {
	{"get() -> int", FAR_KIND_INLINE, counter_get, NULL},
	{"add(int by=1, int times=1) -> int", FAR_KIND_INLINE, counter_add, &adds},
	{"set(str s) -> none", FAR_KIND_INLINE, counter_set, NULL},
	{"set(bytes b) -> none", FAR_KIND_FIBER, counter_set, NULL},
	{"slow(int ms) -> int", FAR_KIND_FIBER, counter_slow, NULL},
	{"blocking() -> bool", FAR_KIND_BLOCKING, counter_blocking, NULL},
	{"await() -> Any", FAR_KIND_INLINE, counter_await, NULL},
	{"await_fiber() -> Any", FAR_KIND_FIBER, counter_await, NULL},
	{"release(Any value) -> bool", FAR_KIND_INLINE, counter_release, NULL},
	{"fail(str why) -> none", FAR_KIND_INLINE, counter_fail, NULL},
	{"self() -> rref", FAR_KIND_INLINE, counter_self, NULL},
	{"befriend(rref|none other) -> none", FAR_KIND_INLINE, counter_befriend, NULL},
	{"through(int by) -> int", FAR_KIND_FIBER, counter_through, NULL},
	{"child() -> o::Counter", FAR_KIND_INLINE, counter_child, NULL},
};

/* A class whose objects travel as copies. */
static size_t point_size(const void *object, void *user)
{
	return sizeof(int64_t);
}

static void point_encode(const void *object, void *dst, size_t len, void *user)
{
	memcpy(dst, object, len);
}

static enum far_status point_decode(const void *src, size_t len, void **object, void *user)
{
	if (len != sizeof(int64_t) || !(*object = malloc(len)))
		return FAR_BAD_ARGS;
	memcpy(*object, src, len);
	return FAR_OK;
}

static void point_free(void *object, void *user)
{
	free(object);
}

static enum far_status point_new(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	int64_t *p = malloc(sizeof *p);
	CHECK(p);
	*p = args[0].u.i;
	return far_return_object(req, p);
}

static void point_end(void *object, void *user)
{
	free(object);
}

static const struct far_custom_type point = {"o::Point", point_size, point_encode, point_decode, point_free, NULL};
static const struct far_function points[] = {{"o::Point(int x) -> o::Point", FAR_KIND_INLINE, point_new, NULL}};
static const struct far_class counter_classes[] = {
	{.name = "o::Counter",
	 .constructors = constructors,
	 .constructors_n = sizeof constructors / sizeof constructors[0],
	 .methods = methods,
	 .methods_n = sizeof methods / sizeof methods[0],
	 .destroy = counter_free,
	 .user = &made},
	{.name = "o::Point", .constructors = points, .constructors_n = 1, .destroy = point_end, .codec = &point},
};

#define COUNTER_CLASSES (sizeof counter_classes / sizeof counter_classes[0])

#endif

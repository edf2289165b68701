/* SPDX-License-Identifier: BSD-3-Clause */
/** Methods on references: I7, and what of F1, I2, D2 and X4c is about them. Main thread of each process. */
#include "objects.h"

#include <string.h>

static struct far_val method(const char *here, struct far_rref *r, const char *name, const struct far_val *args,
			     size_t n)
{
	struct far_val v = {0};
	conform_at(here);
	conform_want(here, name, far_rref_rpc_sync(r, name, args, n, NULL, &v, &err), FAR_OK);
	return v;
}
#define METHOD(r, name, ...) method(HERE, r, name, __VA_ARGS__)

static struct far_future *method_async(const char *here, struct far_rref *r, const char *name,
				       const struct far_val *args, size_t n)
{
	struct far_future *f = NULL;
	conform_at(here);
	conform_want(here, name, far_rref_rpc_async(r, name, args, n, NULL, &f, &err), FAR_OK);
	return f;
}
#define METHOD_ASYNC(r, name, ...) method_async(HERE, r, name, __VA_ARGS__)

static struct far_rref *method_remote(const char *here, struct far_rref *r, const char *name,
				      const struct far_val *args, size_t n)
{
	struct far_rref *out = NULL;
	conform_at(here);
	conform_want(here, name, far_rref_remote(r, name, args, n, NULL, &out, &err), FAR_OK);
	return out;
}
#define METHOD_REMOTE(r, name, ...) method_remote(HERE, r, name, __VA_ARGS__)

/* ---- I7 ---- */

CONFORM(I7, rref_proxy_non_exist)
{
	struct far_future *f = NULL;
	struct far_rref *out = NULL, *r, *plain;
	objects_register(HERE);
	r = REMOTE(peer(1), "c::Counter", FAR_ARGS(1));
	plain = REMOTE(peer(1), "far::identity", FAR_ARGS(1));
	FAILS(FAR_NO_FUNCTION, far_rref_rpc_sync(r, "non_exist", FAR_NOARGS, NULL, NULL, &err));
	SAYS("c::Counter has no method 'non_exist'");
	FAILS(FAR_NO_FUNCTION, far_rref_rpc_async(r, "non_exist", FAR_NOARGS, NULL, &f, &err));
	SAYS("c::Counter has no method 'non_exist'");
	FAILS(FAR_NO_FUNCTION, far_rref_remote(r, "non_exist", FAR_NOARGS, NULL, &out, &err));
	SAYS("c::Counter has no method 'non_exist'");
	FAILS(FAR_INVALID, far_rref_rpc_sync(plain, "add", FAR_ARGS(1), NULL, NULL, &err));
	FAILS(FAR_BAD_ARGS, far_rref_rpc_sync(r, "add", FAR_ARGS("one"), NULL, NULL, &err));
	HOLDS(!f && !out);
	far_rref_free(r);
	far_rref_free(plain);
}

static void proxy_tensor(const char *to)
{
	objects_register(HERE);
	struct far_rref *r = REMOTE(to, "c::Matrix", FAR_ARGS(full(3, 4, rank)));
	struct far_val v = METHOD(r, "size", FAR_NOARGS);
	HOLDS(far_len(&v) == 2 && far_list_get(&v, 0)->u.i == 3 && far_list_get(&v, 1)->u.i == 4);
	far_val_fini(&v);
	v = TAKE(METHOD_ASYNC(r, "size", FAR_NOARGS));
	HOLDS(far_list_get(&v, 1)->u.i == 4);
	far_val_fini(&v);
	v = FETCH_LAST(METHOD_REMOTE(r, "size", FAR_NOARGS));
	HOLDS(far_list_get(&v, 0)->u.i == 3);
	far_val_fini(&v);
	IS_FULL(METHOD(r, "view", FAR_ARGS(2, 6)), 2, 6, rank);
	IS_FULL(TAKE(METHOD_ASYNC(r, "view", FAR_ARGS(6, FAR_KW("cols", 2)))), 6, 2, rank);
	IS_FULL(FETCH_LAST(METHOD_REMOTE(r, "view", FAR_ARGS(1, 12))), 1, 12, rank);
	far_rref_free(r);
}

CONFORM(I7, rref_proxy_tensor)
{
	proxy_tensor(peer(1));
}

CONFORM(I7, rref_proxy_tensor_self)
{
	proxy_tensor(peer(0));
}

/* Many calls of many methods on one reference, whatever waits meanwhile. */
CONFORM(I7, rref_proxy_reuse)
{
	enum { N = 20 };
	struct far_future *f[N], *slow;
	objects_register(HERE);
	struct far_rref *r = REMOTE(peer(1), "c::Counter", FAR_ARGS(0));
	slow = METHOD_ASYNC(r, "slow_add", FAR_ARGS(1000, 1500));
	for (int i = 0; i < N; i++)
		f[i] = METHOD_ASYNC(r, "add", FAR_ARGS(1));
	for (int i = 0; i < N; i++)
		IS_INT(TAKE(f[i]), i + 1);
	IS_INT(TAKE(slow), 1000 + N);
	IS_INT(METHOD(r, "add", FAR_NOARGS), 1000 + N + 1);
	IS_INT(FETCH_LAST(METHOD_REMOTE(r, "add", FAR_ARGS(-1))), 1000 + N);
	far_rref_free(r);
}

static void proxy_class(const char *to)
{
	objects_register(HERE);
	struct far_rref *r = REMOTE(to, "c::Counter", FAR_ARGS(7));
	HOLDS(strcmp(far_rref_class(r), "c::Counter") == 0);
	IS_INT(METHOD(r, "add", FAR_NOARGS), 8); /* what a method changes stays changed */
	IS_INT(TAKE(METHOD_ASYNC(r, "add", FAR_ARGS(FAR_KW("by", 2)))), 10);
	IS_INT(FETCH_LAST(METHOD_REMOTE(r, "add", FAR_ARGS(10))), 20);
	FAILS(FAR_REMOTE, far_rref_rpc_sync(r, "fail", FAR_NOARGS, NULL, NULL, &err));
	HOLDS(err.code == 6 && strcmp(err.text, "Expected error of a method") == 0);
	far_rref_free(r);
}

CONFORM(I7, rref_proxy_class)
{
	proxy_class(peer(1));
}

CONFORM(I7, rref_proxy_class_self)
{
	proxy_class(peer(0));
}

/* ---- F1 ---- */

static struct far_rref *counter(void)
{
	objects_register(HERE);
	return REMOTE(peer(1), "c::Counter", FAR_NOARGS);
}

CONFORM(F1, async_class_rref_proxy)
{
	struct far_rref *r = counter();
	IS_FULL(METHOD(r, "async_add", FAR_ARGS(peer(2), full(2, 2, 1), full(2, 2, 1))), 2, 2, 2);
	IS_FULL(METHOD(r, "async_chained", FAR_ARGS(peer(2), full(2, 2, 1), full(2, 2, 1), full(2, 2, 3))), 2, 2, 5);
	far_rref_free(r);
}

CONFORM(F1, async_class_rref_proxy_async)
{
	struct far_rref *r = counter();
	IS_FULL(TAKE(METHOD_ASYNC(r, "async_chained", FAR_ARGS(peer(2), full(2, 2, 1), full(2, 2, 1), full(2, 2, 3)))),
		2, 2, 5);
	far_rref_free(r);
}

CONFORM(F1, async_class_rref_proxy_remote)
{
	struct far_rref *r = counter();
	IS_FULL(FETCH_LAST(METHOD_REMOTE(r, "async_add", FAR_ARGS(peer(2), full(2, 2, 1), full(2, 2, 1)))), 2, 2, 2);
	far_rref_free(r);
}

/* ---- I2 ---- */

static bool none_alive(void *user)
{
	return objects_alive() == 0;
}

CONFORM(I2, call_method_on_rref)
{
	struct far_rref *r = counter(), *other = REMOTE(peer(2), "c::Counter", FAR_ARGS(100));
	IS_INT(METHOD(r, "add", FAR_ARGS(5)), 5);
	IS_INT(METHOD(r, "add", FAR_ARGS(3)), 8);
	IS_INT(METHOD(r, "plus", FAR_ARGS(other)), 108); /* an argument is a reference, too */
	far_rref_free(r);
	far_rref_free(other);
	OK(far_barrier(agent, NULL, 0, 0, &err));
	UNTIL(none_alive, NULL);
}

/* ---- D2 ---- */

CONFORM(D2, rref_proxy_timeout)
{
	struct far_call_opts brief = {.timeout_ns = 10 * FAR_MS};
	struct far_future *f;
	struct far_rref *r = counter(), *made;
	FAILS(FAR_TIMEOUT, far_rref_rpc_sync(r, "slow_add", FAR_ARGS(1, 20000), &brief, NULL, &err));
	OK(far_rref_rpc_async(r, "slow_add", FAR_ARGS(1, 20000), &brief, &f, &err));
	TAKE_FAILS(FAR_TIMEOUT, f);
	OK(far_rref_remote(r, "slow_add", FAR_ARGS(1, 20000), &brief, &made, &err));
	FETCH_FAILS(FAR_TIMEOUT, made);
	far_rref_free(made);
	IS_INT(METHOD(r, "add", FAR_ARGS(1)), 1);
	far_rref_free(r);
	/* A call before the object is there waits for it, no longer than it may. */
	r = REMOTE(peer(1), "c::Counter_slow", FAR_ARGS(5, 1000));
	FAILS(FAR_TIMEOUT, far_rref_rpc_sync(r, "add", FAR_ARGS(1), &brief, NULL, &err));
	IS_INT(METHOD(r, "add", FAR_ARGS(1)), 6);
	far_rref_free(r);
}

/* ---- X4c ---- */

/* An object with methods, made by calling its class. */
CONFORM(X4c, remote_script_module)
{
	struct far_rref *r = counter();
	IS_INT(CALL(peer(2), "c::method_add", FAR_ARGS(r, 5)), 5);
	IS_INT(METHOD(r, "add", FAR_ARGS(1)), 6);
	far_rref_free(r);
}

CONFORM(X4c, create_script_module_on_remote)
{
	objects_register(HERE);
	struct far_rref *r = REMOTE(peer(1), "c::Counter", FAR_ARGS(rank)),
			*bad = REMOTE(peer(1), "c::Counter_broken", FAR_NOARGS);
	IS_INT(METHOD(r, "add", FAR_NOARGS), rank + 1);
	FAILS(FAR_REMOTE, far_rref_rpc_sync(bad, "add", FAR_ARGS(1), NULL, NULL, &err));
	SAYS("Expected error of a constructor");
	far_rref_free(r);
	far_rref_free(bad);
}

/* A reference to an object that comes in a value is as good as any. */
CONFORM(X4c, load_script_module_with_pickled_rref)
{
	struct far_rref *r = counter();
	struct far_val v = CALL(peer(2), "far::identity", FAR_ARGS(FAR_DICT(FAR_ENTRY("module", FAR_LIST(r)))));
	struct far_rref *back = far_list_get(far_dict_get(&v, "module"), 0)->u.rref;
	HOLDS(strcmp(far_rref_class(back), "c::Counter") == 0);
	IS_INT(METHOD(back, "add", FAR_ARGS(3)), 3);
	far_val_fini(&v);
	IS_INT(METHOD(r, "add", FAR_ARGS(1)), 4);
	far_rref_free(r);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions that answer later: F1 but for methods on references, F2. Main thread of each process. */
#include "functions.h"

#include <string.h>

/* c::async_* of peer(1), which calls peer(2). */
enum way { SYNC, ASYNC_CALL, REMOTE_CALL };

static struct far_val by(enum way way, const char *fn, const struct far_val *args, size_t n)
{
	if (way == SYNC)
		return CALL(peer(1), fn, args, n);
	if (way == ASYNC_CALL)
		return TAKE(ASYNC(peer(1), fn, args, n));
	return FETCH_LAST(REMOTE(peer(1), fn, args, n));
}

static void simple(enum way way)
{
	IS_FULL(by(way, "c::async_add", FAR_ARGS(peer(2), full(2, 2, 1), full(2, 2, 1))), 2, 2, 2);
}

static void three(enum way way, const char *fn)
{
	IS_FULL(by(way, fn, FAR_ARGS(peer(2), full(2, 2, 1), full(2, 2, 1), full(2, 2, 3))), 2, 2, 5);
}

CONFORM(F1, async_function_simple)
{
	simple(SYNC);
}

CONFORM(F1, async_function_with_future_ctor)
{
	three(SYNC, "c::async_add_ctor");
}

CONFORM(F1, async_function_with_future_ctor_remote)
{
	three(REMOTE_CALL, "c::async_add_ctor");
}

CONFORM(F1, async_function_chained)
{
	three(SYNC, "c::async_add_chained");
}

CONFORM(F1, async_function_chained_remote)
{
	three(REMOTE_CALL, "c::async_add_chained");
}

/* The function is inline and cannot wait: it answers when an asynchronous function of another worker has answered.
 * Kills: a deferred request that is answered when its handler returns. */
CONFORM(F1, async_function_nested)
{
	three(SYNC, "c::async_add_nested");
}

CONFORM(F1, async_function_nested_remote)
{
	three(REMOTE_CALL, "c::async_add_nested");
}

/* A static method is a function without a user pointer; the user pointer of a class method is the class. The first
 * answers by a chained callback, the second completes a future of its own. Each test kills: handlers that get the user
 * pointer of the function registered before. */
CONFORM(F1, async_static_method)
{
	three(SYNC, "c::async_static_add");
	three(ASYNC_CALL, "c::async_static_add");
}

CONFORM(F1, async_static_method_remote)
{
	three(REMOTE_CALL, "c::async_static_add");
}

CONFORM(F1, async_class_method)
{
	three(SYNC, "c::async_class_add");
	three(ASYNC_CALL, "c::async_class_add");
}

CONFORM(F1, async_class_method_remote)
{
	three(REMOTE_CALL, "c::async_class_add");
}

static void multi_chained(enum way way)
{
	IS_INT(by(way, "c::async_add_multi_chained", FAR_ARGS(peer(2), 10, 20, 3)), 70);
}

CONFORM(F1, async_function_multi_chained)
{
	multi_chained(SYNC);
}

CONFORM(F1, async_function_multi_chained_async)
{
	multi_chained(ASYNC_CALL);
}

CONFORM(F1, async_function_multi_chained_remote)
{
	multi_chained(REMOTE_CALL);
}

static void multi_fanout(enum way way)
{
	struct far_val v = by(way, "c::async_add_multi_fanout", FAR_ARGS(peer(2), 10, 20, 3));
	HOLDS(v.type == FAR_TYPE_LIST && far_len(&v) == 20);
	for (int i = 0; i < 20; i++)
		HOLDS(far_list_get(&v, (size_t)i)->u.i == 10 + 3 * i);
	far_val_fini(&v);
}

CONFORM(F1, async_function_multi_fanout)
{
	multi_fanout(SYNC);
}

CONFORM(F1, async_function_multi_fanout_async)
{
	multi_fanout(ASYNC_CALL);
}

CONFORM(F1, async_function_multi_fanout_remote)
{
	multi_fanout(REMOTE_CALL);
}

/* ---- F2 ---- */

static void fails_by(enum way way, const char *fn, enum far_status want)
{
	if (way == SYNC) {
		CALL_FAILS(want, peer(1), fn, FAR_NOARGS);
	} else if (way == ASYNC_CALL) {
		TAKE_FAILS(want, ASYNC(peer(1), fn, FAR_NOARGS));
	} else {
		struct far_rref *r = REMOTE(peer(1), fn, FAR_NOARGS);
		FETCH_FAILS(want, r);
		far_rref_free(r);
	}
	HOLDS(strcmp(err.origin, peer(1)) == 0);
}

static void raise_by(enum way way)
{
	fails_by(way, "c::async_raise", FAR_REMOTE);
	HOLDS(err.code == 5 && strcmp(err.text, "Expected error") == 0);
	fails_by(way, "c::async_raise_later", FAR_REMOTE); /* an error is one, however late */
	HOLDS(err.code == 5 && strcmp(err.text, "Expected error") == 0);
}

CONFORM(F2, async_function_raise)
{
	raise_by(SYNC);
}

CONFORM(F2, async_function_raise_async)
{
	raise_by(ASYNC_CALL);
}

CONFORM(F2, async_function_raise_remote)
{
	raise_by(REMOTE_CALL);
}

/* Neither an answer nor a promise of one, and a promise that is given up: both fail at once, without a time-out. */
static void wrong_by(enum way way)
{
	fails_by(way, "c::async_no_answer", FAR_REMOTE);
	SAYS("without an answer");
	fails_by(way, "c::async_other_type", FAR_REMOTE);
	SAYS("without an answer");
}

CONFORM(F2, async_function_wrong_return_type)
{
	wrong_by(SYNC);
}

CONFORM(F2, async_function_wrong_return_type_async)
{
	wrong_by(ASYNC_CALL);
}

CONFORM(F2, async_function_wrong_return_type_remote)
{
	wrong_by(REMOTE_CALL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Ranges of the application: those of J2 and X4c that end with a future, and calls of scripts under a profile.
 * Main thread of each process; threads that it starts. */
#include "functions.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct far_profile *profile;
static const struct far_span *spans;
static size_t spans_n;

static void profile_begin(void)
{
	OK(far_profile_begin(NULL, &profile, &err));
}

static void profile_end(void)
{
	OK(far_profile_end(profile, &err));
	OK(far_profile_wait(profile, 20 * FAR_SEC, &err));
	spans = far_profile_spans(profile, agent, &spans_n);
	HOLDS(spans);
}

/* Span `at` of those of a name. */
static const struct far_span *span_at(const char *name, size_t at)
{
	for (size_t i = 0; i < spans_n; i++)
		if (strcmp(spans[i].name, name) == 0 && at-- == 0)
			return &spans[i];
	return NULL;
}

static const struct far_span *only(const char *name)
{
	const struct far_span *s = span_at(name, 0);
	if (!s || span_at(name, 1))
		conform_fail(HERE, "there is not one span \"%s\"", name);
	return s;
}

static const char *key(enum far_call_mode mode, const char *fn)
{
	char *out = conform_memory(512);
	far_profile_key(mode, fn, peer(0), peer(1), out, 512);
	return out;
}

static uint64_t length(const struct far_span *s)
{
	return s->end_ns - s->begin_ns;
}

CONFORM(J2, async_record_function_double_end_callbacks)
{
	profile_begin();
	OK(far_range_begin("foo"));
	struct far_future *f = ASYNC(peer(1), "c::slow_add", FAR_ARGS(1, 2, 20));
	OK(far_range_end_with(f, &err));
	FAILS(FAR_INVALID, far_range_end_with(f, &err));
	SAYS("can end only once");
	HOLDS(far_range_end() == FAR_INVALID);
	IS_INT(TAKE(f), 3);
	profile_end();
	far_profile_free(profile);
}

CONFORM(J2, async_record_function_double_end_callbacks_new_signatures)
{
	profile_begin();
	OK(far_range_begin("foo"));
	struct far_future *f = ASYNC(peer(1), "c::slow_add", FAR_ARGS(1, 2, 20));
	OK(far_range_end_with(f, &err));
	IS_INT(TAKE(f), 3);
	profile_end();
	HOLDS(only("foo")->status == FAR_OK);
	HOLDS(only("foo")->end_ns >= only(key(FAR_CALL_ASYNC, "c::slow_add"))->end_ns);
	far_profile_free(profile);
}

/* A range under the name of a call, which ends with it; the future has the same value. */
CONFORM(J2, async_record_function_cbs_jit_call)
{
	char name[256];
	far_profile_key(FAR_CALL_ASYNC, "c::my_function", "worker1", "worker0", name, sizeof name);
	profile_begin();
	OK(far_range_begin(name));
	struct far_future *f = ASYNC(peer(1), "c::my_function", FAR_ARGS(1, 1, 0));
	OK(far_range_end_with(f, &err));
	IS_INT(TAKE(f), 2);
	profile_end();
	bool found = false;
	for (size_t i = 0; i < spans_n; i++)
		found |= spans[i].kind == FAR_SPAN_RANGE && strstr(spans[i].name, "c::my_function");
	HOLDS(found);
	far_profile_free(profile);
}

/* ---- X4c ---- */

CONFORM(X4c, call_rpc_with_profiling)
{
	const char *name = key(FAR_CALL_ASYNC, "c::count");
	profile_begin();
	OK(far_range_begin(name));
	struct far_future *f = ASYNC(peer(1), "c::my_function", FAR_ARGS(1, 2, 3));
	OK(far_range_end_with(f, &err));
	IS_INT(TAKE(f), 6);
	profile_end();
	HOLDS(only(name)->kind == FAR_SPAN_RANGE);
	far_profile_free(profile);
}

CONFORM(X4c, rpc_async_jit_profiled)
{
	const char *name = key(FAR_CALL_ASYNC, "c::op_add");
	char remote[512];
	profile_begin();
	IS_FULL(TAKE(ASYNC(peer(1), "c::op_add", FAR_ARGS(full(1, 2, 1), full(1, 2, 2)))), 1, 2, 3);
	profile_end();
	HOLDS(only(name)->at == rank);
	for (size_t i = 0; i < spans_n; i++)
		HOLDS(!spans[i].remote || spans[i].at == peer_rank(1));
	snprintf(remote, sizeof remote, "%s#remote_op: op::add", name);
	HOLDS(only(remote)->remote);
	far_profile_free(profile);
}

CONFORM(X4c, record_function_on_caller_rpc_async)
{
	const char *name = key(FAR_CALL_ASYNC, "c::my_function");
	profile_begin();
	OK(far_range_begin("foo"));
	struct far_future *f = ASYNC(peer(1), "c::my_function", FAR_ARGS(1, 2, 3));
	struct far_future *g = ASYNC(peer(1), "c::my_function", FAR_ARGS(1, 2, 4));
	IS_INT(TAKE(f), 6);
	IS_INT(TAKE(g), 7);
	OK(far_range_end());
	profile_end();
	const struct far_span *foo = only("foo");
	for (size_t i = 0; i < 2; i++) {
		const struct far_span *s = span_at(name, i);
		HOLDS(s && &spans[s->parent] == foo && length(s) < length(foo));
	}
	HOLDS(!span_at(name, 2));
	far_profile_free(profile);
}

CONFORM(X4c, rpc_torchscript_record_function)
{
	char name[512];
	size_t children = 0;
	profile_begin();
	IS_INT(TAKE(ASYNC(peer(1), "c::ops", FAR_ARGS(far_bool(true)))), 3);
	profile_end();
	snprintf(name, sizeof name, "%s#remote_op: ##forward##", key(FAR_CALL_ASYNC, "c::ops"));
	const struct far_span *range = only(name);
	for (size_t i = 0; i < spans_n; i++)
		children += spans[i].parent == range - spans && strstr(spans[i].name, "op::add");
	HOLDS(children == 1);
	far_profile_free(profile);
}

enum { SLEEP_MS = 20 };

static void *complete_later(void *future)
{
	struct far_val v = far_int(1);
	struct far_err e;
	conform_nap(SLEEP_MS * FAR_MS);
	return far_future_set_value(future, &v, &e) ? future : NULL;
}

/* A range that ends with a future which another thread completes. */
static void forked(void)
{
	struct far_future *f;
	pthread_t thread;
	void *failed;
	profile_begin();
	OK(far_range_begin("foo"));
	OK(far_future_create(&f, &err));
	HOLDS(pthread_create(&thread, NULL, complete_later, f) == 0);
	OK(far_range_end_with(f, &err));
	IS_INT(TAKE(f), 1);
	HOLDS(pthread_join(thread, &failed) == 0 && !failed);
	profile_end();
}

CONFORM(X4c, record_function_jit_end_callbacks_with_fork)
{
	forked();
	HOLDS(length(only("foo")) >= SLEEP_MS * FAR_MS / 2); /* it ended with the future, not at once */
	far_profile_free(profile);
}

CONFORM(X4c, call_fork_in_jit_with_profiling)
{
	forked();
	HOLDS(only("foo")->status == FAR_OK);
	far_profile_free(profile);
}

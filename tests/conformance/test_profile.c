/* SPDX-License-Identifier: BSD-3-Clause */
/** Profiles of calls and of servers: J2, J3. Main thread of each process; threads that it starts. */
#include "functions.h"
#include "train.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REMOTE_OP "#remote_op: "

static const char *const OPS[] = {"op::ones", "op::add", "op::mul"};
enum { OPS_N = sizeof OPS / sizeof *OPS };

/* What a profile has. */
struct seen {
	struct far_profile *profile;
	const struct far_span *spans;
	size_t n;
};

static struct seen begin_profile(void)
{
	struct seen p = {NULL, NULL, 0};
	OK(far_profile_begin(NULL, &p.profile, &err));
	return p;
}

static void end_profile(struct seen *p)
{
	OK(far_profile_end(p->profile, &err));
	OK(far_profile_wait(p->profile, 20 * FAR_SEC, &err));
	p->spans = far_profile_spans(p->profile, agent, &p->n);
	HOLDS(p->spans && far_profile_dropped(p->profile) == 0);
}

static const char *key(enum far_call_mode mode, const char *fn, const char *from, const char *to)
{
	char *out = conform_memory(512);
	far_profile_key(mode, fn, from, to, out, 512);
	return out;
}

static const char *joined(const char *a, const char *b)
{
	size_t n = strlen(a) + sizeof REMOTE_OP + strlen(b);
	char *out = conform_memory(n);
	snprintf(out, n, "%s%s%s", a, REMOTE_OP, b);
	return out;
}

/* The only span of a name. */
static const struct far_span *only(const struct seen *p, const char *name)
{
	const struct far_span *found = NULL;
	for (size_t i = 0; i < p->n; i++) {
		if (strcmp(p->spans[i].name, name))
			continue;
		HOLDS(!found);
		found = &p->spans[i];
	}
	if (!found)
		conform_fail(HERE, "there is no span \"%s\"", name);
	return found;
}

/* The only call of this worker. */
static const struct far_span *own_call(const struct seen *p, enum far_call_mode mode)
{
	const struct far_span *found = NULL;
	for (size_t i = 0; i < p->n; i++)
		if (p->spans[i].kind == FAR_SPAN_CALL && !p->spans[i].remote && p->spans[i].mode == mode) {
			HOLDS(!found);
			found = &p->spans[i];
		}
	HOLDS(found);
	return found;
}

CONFORM(J2, build_rpc_profiling_key)
{
	for (int mode = FAR_CALL_SYNC; mode <= FAR_CALL_REMOTE; mode++) {
		const char *name = key((enum far_call_mode)mode, "foo", "worker0", "worker1");
		HOLDS(strstr(name, far_call_mode_name((enum far_call_mode)mode)));
		HOLDS(strstr(name, "foo") && strstr(name, "worker0") && strstr(name, "worker1"));
	}
}

/* The text of a file; it is removed. */
static char *text_of(const char *path)
{
	enum { MAX = 1 << 20 };
	char *text = conform_memory(MAX);
	FILE *in = fopen(path, "r");
	HOLDS(in);
	text[fread(text, 1, MAX - 1, in)] = 0;
	fclose(in);
	remove(path);
	return text;
}

CONFORM(J2, profiler_export_trace)
{
	char path[64];
	struct seen p = begin_profile();
	IS_INT(TAKE(ASYNC(peer(1), "c::ops", FAR_NOARGS)), 3);
	end_profile(&p);
	snprintf(path, sizeof path, "/tmp/far-conform-%d.json", (int)getpid());
	for (int format = FAR_PROFILE_CHROME; format <= FAR_PROFILE_OTLP; format++) {
		OK(far_profile_write(p.profile, agent, (enum far_profile_format)format, path, &err));
		const char *text = text_of(path);
		for (int i = 0; i < OPS_N; i++)
			HOLDS(strstr(text, OPS[i]));
		HOLDS(strstr(text, "rpc_async#c::ops(") && strstr(text, peer(1)));
		HOLDS(strstr(text, format == FAR_PROFILE_CHROME ? "\"traceEvents\"" : "\"resourceSpans\""));
	}
	far_profile_free(p.profile);
}

/* All ranges of c::ops came back below the call, from its worker. */
static void ops_are(const struct seen *p, int to)
{
	const char *call = key(FAR_CALL_ASYNC, "c::ops", peer(0), conform_name(to));
	HOLDS(own_call(p, FAR_CALL_ASYNC) == only(p, call) && only(p, call)->at == rank);
	for (int i = 0; i < OPS_N; i++) {
		const struct far_span *s = only(p, joined(call, OPS[i]));
		HOLDS(s->remote && s->at == to && s->kind == FAR_SPAN_RANGE);
		HOLDS(only(p, joined(call, "c::ops")) == &p->spans[s->parent]);
	}
	for (size_t i = 0; i < p->n; i++)
		HOLDS(!p->spans[i].remote || strncmp(p->spans[i].name, call, strlen(call)) == 0);
}

static void *profile_here(void *to)
{
	struct far_err e;
	struct far_future *f;
	struct seen *p = to;
	if (far_profile_begin(NULL, &p->profile, &e) ||
	    far_rpc_async(agent, conform_name((int)p->n), "c::ops", FAR_NOARGS, NULL, &f, &e))
		return to;
	enum far_status status = far_future_wait(f, 0, NULL, &e);
	far_future_free(f);
	return status || far_profile_end(p->profile, &e) ? to : NULL;
}

/* A profile of the process, not of a thread, would find two calls in each. */
CONFORM(J2, profiler_rpc_key_names)
{
	for (int i = 1; i < WORLD; i++) {
		struct seen p[2];
		pthread_t threads[2];
		for (int t = 0; t < 2; t++) {
			p[t].n = (size_t)peer_rank(i);
			HOLDS(pthread_create(&threads[t], NULL, profile_here, &p[t]) == 0);
		}
		for (int t = 0; t < 2; t++) {
			void *failed;
			pthread_join(threads[t], &failed);
			HOLDS(!failed);
			OK(far_profile_wait(p[t].profile, 20 * FAR_SEC, &err));
			p[t].spans = far_profile_spans(p[t].profile, agent, &p[t].n);
			ops_are(&p[t], peer_rank(i));
			far_profile_free(p[t].profile);
		}
	}
}

static void remote_events(void)
{
	for (int i = 1; i < WORLD; i++) {
		struct seen p = begin_profile();
		IS_INT(TAKE(ASYNC(peer(i), "c::ops", FAR_NOARGS)), 3);
		end_profile(&p);
		ops_are(&p, peer_rank(i));
		far_profile_free(p.profile);
	}
}

CONFORM(J2, profiler_remote_events_profiled)
{
	remote_events();
}

CONFORM(J2, profiler_remote_events_profiled_single_threaded)
{
	remote_events();
}

/* A handler that answers later makes a call of its own, whose spans come back through it. */
static void nested_events(void)
{
	struct seen p = begin_profile();
	IS_INT(TAKE(ASYNC(peer(1), "c::async_op_add", FAR_ARGS(peer(2), 2, 3))), 5);
	end_profile(&p);
	const char *call = joined(key(FAR_CALL_ASYNC, "c::async_op_add", peer(0), peer(1)),
				  key(FAR_CALL_ASYNC, "c::op_add", peer(1), peer(2)));
	const struct far_span *nested = only(&p, call), *op = only(&p, joined(call, "op::add"));
	HOLDS(nested->remote && nested->at == peer_rank(1) && nested->status == FAR_OK);
	HOLDS(op->remote && op->at == peer_rank(2));
	HOLDS(nested->begin_ns <= op->begin_ns && op->end_ns <= nested->end_ns);
	HOLDS(memcmp(nested->trace, p.spans[0].trace, sizeof nested->trace) == 0);
	far_profile_free(p.profile);
}

CONFORM(J2, rpc_profiling_async_function)
{
	nested_events();
}

CONFORM(J2, rpc_profiling_async_function_single_threaded)
{
	nested_events();
}

CONFORM(J2, rpc_profiling_remote_record_function)
{
	for (int i = 1; i < WORLD; i++) {
		struct seen p = begin_profile(), here = begin_profile();
		functions_ops(true);
		end_profile(&here);
		IS_INT(TAKE(ASYNC(peer(i), "c::ops", FAR_ARGS(far_bool(true)))), 3);
		end_profile(&p);
		const char *call = key(FAR_CALL_ASYNC, "c::ops", peer(0), peer(i));
		const struct far_span *forward = only(&p, joined(call, "##forward##"));
		HOLDS(forward->at == peer_rank(i) && here.n == 1 + OPS_N);
		for (size_t k = 1; k < here.n; k++) {
			const struct far_span *s = only(&p, joined(call, here.spans[k].name));
			HOLDS(here.spans[k].parent == 0 && &p.spans[s->parent] == forward);
		}
		far_profile_free(here.profile);
		far_profile_free(p.profile);
	}
}

/* ---- each mode of calls, alone and in a range ---- */

struct rpc {
	enum far_call_mode mode;
	const char *fn;
	const struct far_val *args;
	size_t n;
};

static void run_rpc(const struct rpc *c, const char *to)
{
	struct far_val v;
	if (c->mode == FAR_CALL_SYNC) {
		OK(far_rpc_sync(agent, to, c->fn, c->args, c->n, NULL, &v, &err));
	} else if (c->mode == FAR_CALL_ASYNC) {
		v = TAKE(conform_async(HERE, to, c->fn, c->args, c->n));
	} else {
		v = FETCH_LAST(conform_remote(HERE, to, c->fn, c->args, c->n));
	}
	far_val_fini(&v);
}

static void profiled(const struct rpc *c, int to, bool range)
{
	struct seen p = begin_profile();
	if (range)
		OK(far_range_begin("foo"));
	run_rpc(c, conform_name(to));
	OK(far_profile_wait(p.profile, 20 * FAR_SEC, &err));
	if (range)
		OK(far_range_end());
	end_profile(&p);
	const struct far_span *call = own_call(&p, c->mode);
	HOLDS(call == only(&p, key(c->mode, c->fn, peer(0), conform_name(to))));
	HOLDS(call->at == rank && call->status == FAR_OK && call->to.worker == to);
	HOLDS(call->queued_ns + call->running_ns + call->completing_ns + call->wire_ns <=
	      call->end_ns - call->begin_ns);
	size_t there = 0;
	for (size_t i = 0; i < p.n; i++)
		there += p.spans[i].remote && p.spans[i].at == to;
	HOLDS(there >= 1);
	HOLDS(only(&p, joined(call->name, c->fn))->kind == FAR_SPAN_HANDLER);
	if (range) {
		const struct far_span *foo = only(&p, "foo");
		HOLDS(foo->begin_ns <= call->begin_ns && foo->end_ns >= call->end_ns);
		HOLDS(foo < call && &p.spans[call->parent] == foo);
	}
	far_profile_free(p.profile);
}

static void each(enum far_call_mode mode, const char *fn, const struct far_val *args, size_t n)
{
	struct rpc c = {mode, fn, args, n};
	profiled(&c, peer_rank(1), false);
	profiled(&c, peer_rank(1), true);
	if (mode == FAR_CALL_REMOTE)
		profiled(&c, rank, false);
}

#define EACH(mode, kind, fn, ...)                                                                                      \
	CONFORM(J2, profiler_with_##mode##_##kind)                                                                     \
	{                                                                                                              \
		each(MODE_##mode, fn, __VA_ARGS__);                                                                    \
	}                                                                                                              \
	CONFORM(J2, profiler_with_##mode##_##kind##_single_threaded)                                                   \
	{                                                                                                              \
		each(MODE_##mode, fn, __VA_ARGS__);                                                                    \
	}
#define MODE_sync_rpc      FAR_CALL_SYNC
#define MODE_async_rpc     FAR_CALL_ASYNC
#define MODE_remote        FAR_CALL_REMOTE
#define MODE_script_sync   FAR_CALL_SYNC
#define MODE_script_async  FAR_CALL_ASYNC
#define MODE_script_remote FAR_CALL_REMOTE

EACH(sync_rpc, udf, "c::slow_add", FAR_ARGS(1, 2, 5))
EACH(sync_rpc, builtin, "far::mul", FAR_ARGS(full(1, 1, 1), full(1, 1, 1)))
EACH(async_rpc, udf, "c::slow_add", FAR_ARGS(1, 2, 5))
EACH(async_rpc, builtin, "far::mul", FAR_ARGS(full(1, 1, 1), full(1, 1, 1)))
EACH(remote, udf, "c::slow_add", FAR_ARGS(1, 2, 5))
EACH(remote, builtin, "far::mul", FAR_ARGS(full(1, 1, 1), full(1, 1, 1)))
EACH(script_sync, rpc, "c::my_function", FAR_ARGS(1, 2, 3))
EACH(script_async, rpc, "c::my_function", FAR_ARGS(1, 2, 3))
EACH(script_remote, rpc, "c::my_function", FAR_ARGS(1, 2, 3))

/* ---- beside what autograd sends ---- */

static void mul_is(struct seen *p)
{
	end_profile(p);
	const char *call = key(FAR_CALL_ASYNC, "t::mul", peer(0), peer(1));
	HOLDS(only(p, call)->at == rank);
	HOLDS(only(p, joined(call, "t::mul"))->at == peer_rank(1));
	far_profile_free(p->profile);
}

static void mul(struct far_context *c)
{
	struct far_var *w = leaf_of(1, 1, 1, true);
	struct far_val args[] = {sent(c, w), sent(c, w)};
	struct far_future *f = ASYNC(peer(1), "t::mul", args, 2);
	OK(far_future_wait(f, 0, NULL, &err));
	far_future_free(f);
}

static void with_context(void)
{
	struct far_context *c = begin();
	struct seen p = begin_profile();
	mul(c);
	mul_is(&p);
	far_context_end(c);
	p = begin_profile();
	c = begin();
	mul(c);
	far_context_end(c);
	mul_is(&p);
}

TRAIN(J2, profiler_with_autograd_context)
{
	with_context();
}

TRAIN(J2, profiler_with_autograd_context_single_threaded)
{
	with_context();
}

/* ---- L9 ---- */

/* The calls of a backward pass have spans, here and where they run. */
TRAIN(L9, dist_autograd_profiling)
{
	static const char expect[] = "far::backward::expect";
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true);
	struct far_var *root = total(CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b)));
	struct seen p = begin_profile();
	BACKWARD(c, root);
	end_profile(&p);
	const char *call = key(FAR_CALL_ASYNC, expect, peer(0), peer(1));
	HOLDS(only(&p, call)->at == rank);
	HOLDS(only(&p, joined(call, expect))->at == peer_rank(1));
	far_profile_free(p.profile);
	far_context_end(c);
}

/* ---- J3 ---- */

static void events_are(int64_t profile, int adds, int subs)
{
	struct far_val v = CALL(peer(1), "c::server_events", FAR_ARGS(profile));
	int found[2] = {0, 0};
	for (size_t i = 0; i < far_len(&v); i++) {
		const char *name = far_list_get(&v, i)->u.s.data;
		HOLDS(strcmp(name, "op::add") == 0 || strcmp(name, "op::sub") == 0);
		found[strcmp(name, "op::sub") == 0]++;
	}
	HOLDS(found[0] == adds && found[1] == subs);
	far_val_fini(&v);
}

/* The caller has no profile: its requests have no fields. */
CONFORM(J3, server_process_global_profiler)
{
	if (rank != 0)
		return;
	IS_INT(CALL(peer(1), "c::op_add", FAR_ARGS(1, 2)), 3); /* before: seen by none */
	int64_t outer = CALL(peer(1), "c::server_enter", FAR_NOARGS).u.i;
	IS_INT(CALL(peer(1), "c::op_add", FAR_ARGS(1, 2)), 3);
	int64_t inner = CALL(peer(1), "c::server_enter", FAR_NOARGS).u.i;
	IS_INT(CALL(peer(1), "c::op_sub", FAR_ARGS(1, 2)), -1);
	IS_NONE(CALL(peer(1), "c::server_exit", FAR_ARGS(inner)));
	IS_NONE(CALL(peer(1), "c::server_exit", FAR_ARGS(outer)));
	IS_INT(CALL(peer(1), "c::op_add", FAR_ARGS(1, 2)), 3);
	events_are(inner, 0, 1);
	events_are(outer, 1, 1);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The profiler as an interceptor: records calls of flows that have a scope, and requests whose callers want it or a
 * profile of a server does. The threads of interceptors.
 */
#include "base/clock.h"
#include "base/random.h"
#include "features/intercept/intercept.h"
#include "features/profile/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	FIELD_TRACE = 1,   /* request: a struct trace_field */
	FIELD_PROFILE = 2, /* request: empty; answer: answer.c */
	FIELD_LAST = 15    /* of the profiler */
};

/* A trace context as W3C has it, in bytes. */
struct trace_field {
	uint8_t version; /* 0 */
	uint8_t trace[16];
	uint8_t parent[8];
	uint8_t flags; /* 1: sampled */
};
static_assert(sizeof(struct trace_field) == 26, "");

/* ---- profiles of servers ---- */

static struct server {
	struct recording *recording;
	struct far_agent *agent;
	uint64_t number; /* rises */
	struct server *next;
} * servers;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of `servers` */
static _Atomic uint64_t servers_added;

enum far_status server_add(struct recording *r, struct far_agent *agent)
{
	struct server *s = malloc(sizeof *s);
	if (!s)
		return FAR_RESOURCE;
	recording_ref(r);
	pthread_mutex_lock(&lock);
	*s = (struct server){r, agent, atomic_fetch_add_explicit(&servers_added, 1, memory_order_relaxed) + 1, servers};
	servers = s;
	intercept_own_every(INTERCEPT_PROFILER, true);
	pthread_mutex_unlock(&lock);
	return FAR_OK;
}

bool server_remove(const struct recording *r)
{
	struct server *found = NULL;
	pthread_mutex_lock(&lock);
	for (struct server **at = &servers; *at; at = &(*at)->next)
		if ((*at)->recording == r) {
			found = *at;
			*at = found->next;
			break;
		}
	if (!servers)
		intercept_own_every(INTERCEPT_PROFILER, false);
	pthread_mutex_unlock(&lock);
	if (!found)
		return false;
	recording_unref(found->recording);
	free(found);
	return true;
}

static bool server_wants(const struct far_agent *agent)
{
	bool wants = false;
	if (!atomic_load_explicit(&intercept_every, memory_order_acquire))
		return false;
	pthread_mutex_lock(&lock);
	for (const struct server *s = servers; s; s = s->next)
		wants |= s->agent == agent;
	pthread_mutex_unlock(&lock);
	return wants;
}

/* Gives a request to the profiles that were there when it began. */
static void server_give(struct recording *r, const struct far_agent *agent, uint64_t number)
{
	pthread_mutex_lock(&lock);
	for (struct server *s = servers; s; s = s->next)
		if (s->agent == agent && s->number <= number)
			recording_append(s->recording, r, 0);
	pthread_mutex_unlock(&lock);
}

/* ---- the caller ---- */

/* A call under way. */
struct calling {
	struct recording *recording;
	uint32_t number; /* of its span; 0: dropped */
};

static void name_of(const struct far_call_info *call, struct span *s)
{
	s->named = call->function != NULL;
	if (call->function)
		snprintf(s->name, sizeof s->name, "%s", call->function);
	else if (call->mode != FAR_CALL_FETCH)
		snprintf(s->name, sizeof s->name, "%u", call->message);
}

static struct span span_of(const struct far_call_info *call, enum far_span_kind kind, const struct scope *scope)
{
	struct span s = {.kind = (uint8_t)kind,
			 .mode = (uint8_t)call->mode,
			 .status = FAR_PENDING,
			 .from = call->from,
			 .to = call->to,
			 .at = kind == FAR_SPAN_CALL ? call->from.worker : call->to.worker,
			 .id = random_id(),
			 .parent = kind == FAR_SPAN_CALL ? scope->parent : 0,
			 .parent_id = scope->span};
	scope_trace(scope, s.trace);
	name_of(call, &s);
	return s;
}

static enum far_status call_out(const struct far_call_info *call, struct far_tlv_out *out, void **cookie,
				struct far_err *err, void *user)
{
	const struct scope *scope = scope_present();
	(void)err;
	(void)user;
	if (!scope)
		return FAR_OK;
	struct span s = span_of(call, FAR_SPAN_CALL, scope);
	struct trace_field trace = {.flags = scope->flags};
	struct calling *c = scope->recording ? malloc(sizeof *c) : NULL;
	memcpy(trace.trace, s.trace, sizeof trace.trace);
	memcpy(trace.parent, c ? &s.id : &scope->span, sizeof trace.parent);
	if (c) {
		s.begin = profile_now();
		c->recording = scope->recording;
		recording_ref(c->recording);
		c->number = recording_add(c->recording, &s, true);
		if (call->mode != FAR_CALL_ONEWAY)
			far_tlv_put(out, FIELD_PROFILE, NULL, 0);
	}
	far_tlv_put(out, FIELD_TRACE, &trace, sizeof trace);
	*cookie = c;
	return FAR_OK;
}

static void reply_in(const struct far_call_info *call, const struct far_tlv_in *in, const struct far_err *err,
		     void *cookie, void *user)
{
	struct calling *c = cookie;
	const void *value;
	size_t len;
	(void)call;
	(void)user;
	if (!c)
		return;
	if (!err && far_tlv_find(in, FIELD_PROFILE, &value, &len))
		answer_read(c->recording, c->number, value, len);
	recording_end(c->recording, c->number, err ? err->status : FAR_OK, true);
	recording_unref(c->recording);
	free(c);
}

/* ---- the callee ---- */

/* A request that is served. */
struct serving {
	struct recording *recording;
	const struct far_agent *agent;
	uint64_t servers; /* profiles of servers up to this number record it; 0: none does */
	uint64_t started;
	bool wanted;           /* the caller wants the spans */
	_Atomic unsigned done; /* SERVING_ bits */
};

enum { SERVING_ENDED = 1, SERVING_ANSWERED = 2, SERVING_ALL = 3 };

/* When the handler has returned and the answer is given, the request is over for profiles of servers. */
static void serving_done(struct serving *v, unsigned what)
{
	unsigned before = atomic_fetch_or_explicit(&v->done, what, memory_order_acq_rel);
	if (before != SERVING_ALL && (before | what) == SERVING_ALL && v->servers)
		server_give(v->recording, v->agent, v->servers);
}

/* With room for the span of the handler. NULL: no memory. */
static struct serving *serving_new(void)
{
	struct serving *v = calloc(1, sizeof *v);
	if (v && (v->recording = recording_new(FAR_PROFILE_SPANS)) && recording_reserve(v->recording))
		return v;
	if (v)
		recording_unref(v->recording);
	free(v);
	return NULL;
}

/* The span of the handler. Its id. */
static uint64_t serving_begin(struct serving *v, const struct far_call_info *call, const struct scope *scope)
{
	struct span s = span_of(call, FAR_SPAN_HANDLER, scope);
	v->recording->at = call->to.worker;
	v->started = profile_now();
	s.begin = call->received_ns;
	s.queued = v->started - s.begin;
	recording_add(v->recording, &s, false);
	return s.id;
}

static enum far_status request_in(const struct far_call_info *call, const struct far_tlv_in *in, void **cookie,
				  struct far_err *err, void *user)
{
	struct trace_field trace = {.flags = 1};
	struct scope scope = {.recording = recording_of_process()};
	const void *value;
	size_t len;
	bool traced = far_tlv_find(in, FIELD_TRACE, &value, &len) && len == sizeof trace;
	(void)err;
	(void)user;
	if (traced) {
		memcpy(&trace, value, sizeof trace);
	} else {
		uint64_t id[2] = {random_id(), random_id()};
		memcpy(trace.trace, id, sizeof id);
	}
	bool wanted = far_tlv_find(in, FIELD_PROFILE, &value, &len), server = server_wants(call->agent);
	scope.flags = trace.flags;
	memcpy(scope.trace, trace.trace, sizeof scope.trace);
	memcpy(&scope.span, trace.parent, sizeof scope.span);
	struct serving *v = wanted || server ? serving_new() : NULL;
	if (v) {
		v->agent = call->agent;
		v->servers = server ? atomic_load_explicit(&servers_added, memory_order_relaxed) : 0;
		v->wanted = wanted;
		scope.span = serving_begin(v, call, &scope);
		scope.recording = v->recording;
		scope.parent = 1;
	}
	*cookie = v;
	if ((v || traced) && call->mode != FAR_CALL_FETCH) /* which runs in no flow of its own */
		scope_enter(&scope);
	return FAR_OK;
}

static void request_end(const struct far_call_info *call, enum far_status status, void *cookie, void *user)
{
	struct serving *v = cookie;
	(void)call;
	(void)user;
	if (!v)
		return;
	pthread_mutex_lock(&v->recording->lock);
	struct span *s = &v->recording->spans[0];
	s->running = profile_now() - v->started;
	s->status = (uint8_t)(status < FAR_STATUS_COUNT ? status : FAR_REMOTE);
	pthread_mutex_unlock(&v->recording->lock);
	serving_done(v, SERVING_ENDED);
}

static void reply_out(const struct far_call_info *call, const struct far_val *value, const struct far_err *err,
		      struct far_tlv_out *out, void *cookie, void *user)
{
	struct serving *v = cookie;
	uint8_t bytes[FAR_PROFILE_REPLY_BYTES];
	(void)call;
	(void)value;
	(void)user;
	if (!v)
		return;
	if (v->wanted && !err)
		far_tlv_put(out, FIELD_PROFILE, bytes, answer_write(v->recording, bytes));
	pthread_mutex_lock(&v->recording->lock);
	struct span *s = &v->recording->spans[0];
	s->end = profile_now();
	if (s->running)
		s->completing = s->end - v->started - s->running;
	pthread_mutex_unlock(&v->recording->lock);
	serving_done(v, SERVING_ANSWERED);
}

static void request_over(void *cookie, void *user)
{
	struct serving *v = cookie;
	(void)user;
	if (!v)
		return;
	serving_done(v, SERVING_ALL);
	recording_unref(v->recording);
	free(v);
}

static void add(void)
{
	static const struct far_interceptor profiler = {.name = "profiler",
							.tlv_first = FIELD_TRACE,
							.tlv_last = FIELD_LAST,
							.call_out = call_out,
							.reply_in = reply_in,
							.request_in = request_in,
							.request_end = request_end,
							.reply_out = reply_out,
							.request_over = request_over};
	intercept_add_own(INTERCEPT_PROFILER, &profiler);
}

void profile_present(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, add);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** <farcall/profile.h>: profiles, ranges, trace contexts. Any thread. */
#include "api/profile.h"

#include "agent/agent.h"
#include "api/testing.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "features/intercept/intercept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- profiles ---- */

static enum far_status no_memory(struct far_err *err)
{
	return err_set(err, FAR_RESOURCE, "no memory for a profile");
}

static enum far_status begin_server(struct far_profile *p, struct far_agent *agent, struct far_err *err)
{
	p->server = agent;
	if (server_add(p->recording, agent))
		return no_memory(err);
	enum far_status status = agent_apply(agent, intercept_apply, err);
	return status == FAR_TIMEOUT ? FAR_OK : status;
}

static enum far_status begin_flow(struct recording *r, struct far_err *err)
{
	static const struct scope none = {.process = true};
	struct scope *outer = scope_present();
	struct scope scope = {
		.recording = r, .outer = outer, .profile = true, .flags = 1, .span = outer ? outer->span : 0};
	scope_trace(outer ? outer : &none, scope.trace);
	enum far_status status = scope_enter(&scope);
	if (status == FAR_INVALID)
		return err_set(err, status,
			       "far_profile_begin: this callback or inline handler has no flow that could be recorded");
	return status ? no_memory(err) : FAR_OK;
}

struct far_profile *profile_new(size_t spans_max)
{
	struct far_profile *p = calloc(1, sizeof *p);
	struct timespec real;
	if (!p || !(p->recording = recording_new(spans_max))) {
		free(p);
		return NULL;
	}
	clock_gettime(CLOCK_REALTIME, &real);
	p->real = (uint64_t)real.tv_sec * 1000000000 + (uint64_t)real.tv_nsec - profile_now();
	return p;
}

enum far_status far_profile_begin(const struct far_profile_opts *opts, struct far_profile **out, struct far_err *err)
{
	static const struct far_profile_opts plain;
	opts = opts ? opts : &plain;
	for (size_t i = 0; i < sizeof opts->reserved / sizeof *opts->reserved; i++)
		if (opts->reserved[i])
			return err_set(err, FAR_INVALID, "far_profile_begin: `reserved` must be 0");
	if (!out)
		return err_set(err, FAR_INVALID, "far_profile_begin: `out` is NULL");
	profile_present();
	struct far_profile *p = profile_new(opts->spans_max ? opts->spans_max : FAR_PROFILE_SPANS);
	if (!p)
		return no_memory(err);
	enum far_status status = opts->server ? begin_server(p, opts->server, err) : begin_flow(p->recording, err);
	if (status) {
		p->ended = true;
		far_profile_free(p);
		return status;
	}
	*out = p;
	return FAR_OK;
}

enum far_status far_profile_end(struct far_profile *p, struct far_err *err)
{
	const struct scope *scope = scope_present();
	if (!p || p->ended)
		return err_set(err, FAR_INVALID,
			       p ? "far_profile_end: the profile has ended" : "far_profile_end: NULL");
	if (p->server) {
		p->ended = true;
		server_remove(p->recording);
		agent_apply(p->server, intercept_apply, NULL); /* late: a shard sees what no profile wants */
		return FAR_OK;
	}
	if (!scope || !scope->profile || scope->recording != p->recording)
		return err_set(
			err, FAR_INVALID,
			"far_profile_end: this flow did not begin the profile, or a range or a profile inside of "
			"it is open");
	p->ended = true;
	scope_leave();
	return FAR_OK;
}

enum far_status far_profile_wait(struct far_profile *p, uint64_t timeout_ns, struct far_err *err)
{
	struct recording *r = p->recording;
	uint64_t until = time_after(profile_now(), timeout_ns);
	until = until < INT64_MAX ? until : INT64_MAX;
	struct timespec at = {.tv_sec = (time_t)(until / 1000000000), .tv_nsec = (long)(until % 1000000000)};
	int error = 0;
	pthread_mutex_lock(&r->lock);
	while (r->calls && !error)
		error = pthread_cond_timedwait(&r->ended, &r->lock, &at);
	uint32_t left = r->calls;
	pthread_mutex_unlock(&r->lock);
	return left ? err_set(err, FAR_PENDING, "%u calls of the profile have not completed", left) : FAR_OK;
}

static void names_free(struct far_profile *p)
{
	for (size_t i = 0; i < p->n; i++)
		free((void *)(uintptr_t)p->spans[i].name);
	free(p->spans);
	p->spans = NULL;
	p->n = 0;
}

void far_profile_free(struct far_profile *p)
{
	if (!p)
		return;
	if (!p->ended)
		far_profile_end(p, NULL);
	if (p->server)
		server_remove(p->recording);
	names_free(p);
	recording_unref(p->recording);
	free(p);
}

uint64_t far_profile_dropped(struct far_profile *p)
{
	pthread_mutex_lock(&p->recording->lock);
	uint64_t dropped = p->recording->dropped;
	pthread_mutex_unlock(&p->recording->lock);
	return dropped;
}

/* ---- names ---- */

size_t far_profile_key(enum far_call_mode mode, const char *function, const char *from, const char *to, char *out,
		       size_t cap)
{
	static const char *const heads[] = {
		[FAR_CALL_SYNC] = "rpc_sync", [FAR_CALL_ASYNC] = "rpc_async", [FAR_CALL_REMOTE] = "rpc_remote",
		[FAR_CALL_FETCH] = "to_here", [FAR_CALL_MESSAGE] = "message", [FAR_CALL_ONEWAY] = "oneway"};
	const char *head = (unsigned)mode < FAR_CALL_MODE_COUNT ? heads[mode] : "?";
	int n = mode == FAR_CALL_FETCH ? snprintf(out, cap, "%s#(%s)->(%s)", head, from, to)
				       : snprintf(out, cap, "%s#%s(%s -> %s)", head, function, from, to);
	return n < 0 ? 0 : (size_t)n;
}

void profile_worker(struct far_agent *agent, int rank, char name[FAR_NAME_MAX])
{
	struct far_worker_info info;
	if (agent && far_worker_by_rank(agent, rank, &info, NULL) == FAR_OK)
		snprintf(name, FAR_NAME_MAX, "%s", info.name);
	else
		snprintf(name, FAR_NAME_MAX, "rank %d", rank);
}

static void own_name(const struct span *s, struct far_agent *agent, char *out, size_t cap)
{
	char from[FAR_NAME_MAX], to[FAR_NAME_MAX];
	if (s->kind == FAR_SPAN_CALL) {
		profile_worker(agent, s->from.worker, from);
		profile_worker(agent, s->to.worker, to);
		far_profile_key((enum far_call_mode)s->mode, s->name, from, to, out, cap);
	} else if (s->kind == FAR_SPAN_RANGE || s->named) {
		snprintf(out, cap, "%s", s->name);
	} else if (s->mode == FAR_CALL_FETCH) {
		snprintf(out, cap, "fetch");
	} else {
		snprintf(out, cap, "message %s", s->name);
	}
}

/* Of a remote span: that of its call and its own. Those around it have theirs. NULL: no memory. */
static char *full_name(const struct span *spans, uint32_t at, char *const *names, struct far_agent *agent)
{
	char own[FAR_PROFILE_NAME + 2 * FAR_NAME_MAX + 32];
	uint32_t call = spans[at].parent;
	own_name(&spans[at], agent, own, sizeof own);
	while (call && spans[call - 1].kind != FAR_SPAN_CALL)
		call = spans[call - 1].parent;
	if (!spans[at].remote || !call)
		return strdup(own);
	static const char between[] = "#remote_op: ";
	size_t bytes = strlen(names[call - 1]) + sizeof between + strlen(own);
	char *name = malloc(bytes);
	if (name)
		snprintf(name, bytes, "%s%s%s", names[call - 1], between, own);
	return name;
}

/* ---- reading ---- */

struct order {
	uint64_t begin;
	uint32_t at;
};

static int by_begin(const void *a, const void *b)
{
	const struct order *x = a, *y = b;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

static void fill(const struct far_profile *p, struct far_span *out, const struct span *s, uint64_t now, int self)
{
	*out = (struct far_span){.kind = (enum far_span_kind)s->kind,
				 .mode = (enum far_call_mode)s->mode,
				 .status = s->end ? (enum far_status)s->status : FAR_PENDING,
				 .remote = s->remote,
				 .at = s->at < 0 ? self : s->at,
				 .from = s->from,
				 .to = s->to,
				 .id = s->id,
				 .parent_id = s->parent_id,
				 .begin_ns = s->begin + p->real,
				 .end_ns = (s->end ? s->end : now) + p->real,
				 .queued_ns = s->queued,
				 .wire_ns = s->wire,
				 .running_ns = s->running,
				 .completing_ns = s->completing};
	memcpy(out->trace, s->trace, sizeof out->trace);
}

/* Spans in the order of `order`; `place`, of each, its index there. Takes the names. */
static void sort(struct far_profile *p, const struct span *spans, uint32_t n, char **names, struct order *order,
		 uint32_t *place, int self)
{
	uint64_t now = profile_now();
	for (uint32_t i = 0; i < n; i++) {
		order[i] = (struct order){spans[i].begin, i};
		/* Placed by estimate: a span does not begin before the one around it. */
		if (spans[i].parent && order[spans[i].parent - 1].begin > order[i].begin)
			order[i].begin = order[spans[i].parent - 1].begin;
	}
	qsort(order, n, sizeof *order, by_begin);
	for (uint32_t i = 0; i < n; i++)
		place[order[i].at] = i;
	for (uint32_t i = 0; i < n; i++) {
		const struct span *s = &spans[order[i].at];
		fill(p, &p->spans[i], s, now, self);
		p->spans[i].name = names[order[i].at];
		p->spans[i].parent = s->parent ? (int64_t)place[s->parent - 1] : -1;
	}
	p->n = n;
}

const struct far_span *far_profile_spans(struct far_profile *p, struct far_agent *agent, size_t *n)
{
	struct recording *r = p->recording;
	struct far_worker_info self = {.rank = -1};
	if (agent)
		far_worker_self(agent, &self);
	names_free(p);
	pthread_mutex_lock(&r->lock);
	uint32_t count = r->n;
	struct span *spans = malloc((count + 1) * sizeof *spans);
	if (spans && count)
		memcpy(spans, r->spans, count * sizeof *spans);
	pthread_mutex_unlock(&r->lock);
	char **names = calloc(count + 1, sizeof *names);
	struct order *order = malloc((count + 1) * sizeof *order);
	uint32_t *place = malloc((count + 1) * sizeof *place);
	bool failed = !spans || !names || !order || !place || !(p->spans = calloc(count + 1, sizeof *p->spans));
	for (uint32_t i = 0; !failed && i < count; i++)
		failed = !(names[i] = full_name(spans, i, names, agent));
	if (!failed)
		sort(p, spans, count, names, order, place, self.rank);
	for (uint32_t i = 0; failed && names && i < count; i++)
		free(names[i]);
	free(names);
	free(order);
	free(place);
	free(spans);
	*n = failed ? 0 : count;
	return failed ? NULL : p->spans;
}

/* ---- ranges ---- */

enum far_status far_range_begin(const char *name)
{
	struct scope *scope = scope_present();
	if (!scope || !scope->recording)
		return FAR_OK;
	struct span s = {.kind = FAR_SPAN_RANGE,
			 .mode = FAR_CALL_SYNC,
			 .parent = scope->parent,
			 .parent_id = scope->span,
			 .id = random_id(),
			 .begin = profile_now(),
			 .at = scope->recording->at,
			 .from = {-1, -1},
			 .to = {-1, -1}};
	scope_trace(scope, s.trace);
	snprintf(s.name, sizeof s.name, "%s", name ? name : "?");
	struct scope inner = {.recording = scope->recording,
			      .outer = scope,
			      .parent = recording_add(scope->recording, &s, false),
			      .range = true,
			      .flags = scope->flags,
			      .span = s.id};
	memcpy(inner.trace, s.trace, sizeof inner.trace);
	enum far_status status = scope_enter(&inner);
	if (status)
		recording_end(scope->recording, inner.parent, status, false);
	return scope->process ? FAR_OK : status; /* the program does not know of that profile */
}

static const struct scope *range_present(void)
{
	const struct scope *scope = scope_present();
	return scope && scope->range ? scope : NULL;
}

/* The flow has a profile, so that the end of a range without its begin is an error. */
static bool recorded(void)
{
	const struct scope *scope = scope_present();
	return scope && scope->recording && !scope->process;
}

enum far_status far_range_end(void)
{
	const struct scope *scope = range_present();
	if (!scope)
		return recorded() ? FAR_INVALID : FAR_OK;
	recording_end(scope->recording, scope->parent, FAR_OK, false);
	scope_leave();
	return FAR_OK;
}

/* A range that ends with a future. */
struct scope_end {
	struct recording *recording;
	uint32_t number;
};

static void on_done(struct far_future *f, void *user)
{
	struct scope_end *e = user;
	recording_end(e->recording, e->number, far_future_value(f, NULL, NULL), true);
	recording_unref(e->recording);
	free(e);
}

enum far_status far_range_end_with(struct far_future *f, struct far_err *err)
{
	const struct scope *scope = range_present();
	if (!scope && !recorded())
		return FAR_OK;
	if (!scope)
		return err_set(err, FAR_INVALID, "far_range_end_with: no range is open; each can end only once");
	struct scope_end *e = malloc(sizeof *e);
	if (!e)
		return no_memory(err);
	*e = (struct scope_end){scope->recording, scope->parent};
	recording_ref(e->recording);
	recording_hold(e->recording);
	scope_leave(); /* the callback is not part of the range */
	enum far_status status = far_future_on_done(f, on_done, e, err);
	if (!status)
		return FAR_OK;
	recording_end(e->recording, e->number, status, true);
	recording_unref(e->recording);
	free(e);
	return status;
}

/* ---- trace contexts ---- */

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(const char *text, uint8_t *out, size_t n)
{
	bool zero = true;
	for (size_t i = 0; i < n; i++) {
		int high = digit(text[2 * i]), low = high < 0 ? -1 : digit(text[2 * i + 1]);
		if (low < 0)
			return false;
		out[i] = (uint8_t)(high << 4 | low);
		zero &= !out[i];
	}
	return !zero;
}

/* 00-TRACE-PARENT-FLAGS; later versions may have more behind it. */
static bool read_traceparent(const char *text, struct scope *out)
{
	uint8_t parent[8], version;
	size_t len = strlen(text);
	if (len < FAR_TRACEPARENT - 1 || text[2] != '-' || text[35] != '-' || text[52] != '-')
		return false;
	bool first = strncmp(text, "00", 2) == 0;
	if ((!first && !read_hex(text, &version, 1)) || strncmp(text, "ff", 2) == 0)
		return false;
	if (first ? len != FAR_TRACEPARENT - 1 : text[FAR_TRACEPARENT - 1] && text[FAR_TRACEPARENT - 1] != '-')
		return false;
	if (!read_hex(text + 3, out->trace, 16) || !read_hex(text + 36, parent, 8) || digit(text[53]) < 0 ||
	    digit(text[54]) < 0)
		return false;
	out->flags = digit(text[54]) & 1;
	memcpy(&out->span, parent, sizeof parent);
	return true;
}

enum far_status far_trace_accept(const char *traceparent, struct far_err *err)
{
	const struct scope *present = scope_present();
	struct scope scope = {.recording = recording_of_process()};
	profile_present();
	if (present && !present->process && (present->profile || present->range || present->parent))
		return err_set(err, FAR_INVALID,
			       "far_trace_accept: the flow has a profile; accept the trace before it");
	if (traceparent && !read_traceparent(traceparent, &scope))
		return err_set(err, FAR_INVALID, "far_trace_accept: \"%s\" is no traceparent", traceparent);
	if (present && !present->process)
		scope_leave();
	if (!traceparent)
		return FAR_OK;
	enum far_status status = scope_enter(&scope);
	if (status == FAR_INVALID)
		return err_set(err, status, "far_trace_accept: this callback or inline handler has no flow");
	return status ? no_memory(err) : FAR_OK;
}

bool far_trace_get(char out[FAR_TRACEPARENT])
{
	const struct scope *scope = scope_present();
	uint8_t parent[8];
	if (!scope || scope->process)
		return false;
	uint64_t span = scope->span ? scope->span : random_id();
	memcpy(parent, &span, sizeof parent);
	char *at = out + snprintf(out, FAR_TRACEPARENT, "00-");
	for (int i = 0; i < 16; i++)
		at += snprintf(at, 3, "%02x", scope->trace[i]);
	*at++ = '-';
	for (int i = 0; i < 8; i++)
		at += snprintf(at, 3, "%02x", parent[i]);
	snprintf(at, 4, "-%02x", scope->flags);
	return true;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Recordings of spans, and the scopes of flows that record. Any thread. */
#include "features/profile/profile.h"

#include "base/clock.h"
#include "base/random.h"
#include "core/flow.h"
#include "features/intercept/intercept.h"

#include <stdlib.h>
#include <string.h>

uint64_t profile_now(void)
{
	return clock_now(&clock_monotonic);
}

/* ---- recordings ---- */

struct recording *recording_new(size_t max)
{
	struct recording *r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r->ended, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&r->lock, NULL);
	r->refs = 1;
	r->at = -1;
	r->max = max < UINT32_MAX / 2 ? (uint32_t)max : UINT32_MAX / 2;
	return r;
}

void recording_ref(struct recording *r)
{
	atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
}

void recording_unref(struct recording *r)
{
	if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
		return;
	pthread_cond_destroy(&r->ended);
	pthread_mutex_destroy(&r->lock);
	free(r->spans);
	free(r);
}

static bool make_room(struct recording *r)
{
	if (r->n < r->room)
		return true;
	uint32_t room = r->room ? 2 * r->room : 8;
	room = room < r->max ? room : r->max;
	struct span *spans = room > r->n ? realloc(r->spans, room * sizeof *spans) : NULL;
	if (!spans) {
		r->dropped++;
		return false;
	}
	r->spans = spans;
	r->room = room;
	return true;
}

bool recording_reserve(struct recording *r)
{
	pthread_mutex_lock(&r->lock);
	bool room = make_room(r);
	pthread_mutex_unlock(&r->lock);
	return room;
}

uint32_t recording_add(struct recording *r, const struct span *span, bool call)
{
	uint32_t number = 0;
	pthread_mutex_lock(&r->lock);
	if (make_room(r)) {
		r->spans[r->n] = *span;
		number = ++r->n;
	}
	r->calls += call;
	pthread_mutex_unlock(&r->lock);
	return number;
}

void recording_end(struct recording *r, uint32_t number, enum far_status status, bool call)
{
	pthread_mutex_lock(&r->lock);
	if (number) {
		struct span *s = &r->spans[number - 1];
		s->end = profile_now();
		s->status = (uint8_t)status;
	}
	if (call && --r->calls == 0)
		pthread_cond_broadcast(&r->ended);
	pthread_mutex_unlock(&r->lock);
}

void recording_hold(struct recording *r)
{
	pthread_mutex_lock(&r->lock);
	r->calls++;
	pthread_mutex_unlock(&r->lock);
}

void recording_append(struct recording *to, struct recording *from, uint32_t parent)
{
	pthread_mutex_lock(&from->lock);
	uint32_t n = from->n;
	struct span *copy = malloc((n + 1) * sizeof *copy);
	uint64_t now = profile_now(), dropped = from->dropped + (copy ? 0 : n);
	if (copy && n)
		memcpy(copy, from->spans, n * sizeof *copy);
	pthread_mutex_unlock(&from->lock);
	pthread_mutex_lock(&to->lock);
	uint32_t base = to->n;
	for (uint32_t i = 0; copy && i < n && make_room(to); i++) {
		struct span *s = &to->spans[to->n++];
		*s = copy[i];
		s->parent = s->parent ? s->parent + base : parent;
		s->end = s->end ? s->end : now;
	}
	if (copy)
		dropped += n - (to->n - base) - (to->n - base < n); /* make_room() has counted the first */
	to->dropped += dropped;
	pthread_mutex_unlock(&to->lock);
	free(copy);
}

/* ---- scopes ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned scopes; /* under the lock: while there are some, the profiler sees calls */

static void count(int by)
{
	pthread_mutex_lock(&lock);
	unsigned before = scopes;
	scopes += (unsigned)by;
	if (!before || !scopes)
		intercept_own_sees(INTERCEPT_PROFILER, scopes != 0);
	pthread_mutex_unlock(&lock);
}

static void scope_unref(struct scope *s)
{
	while (s && atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1) {
		struct scope *outer = s->outer;
		recording_unref(s->recording);
		free(s);
		count(-1);
		s = outer;
	}
}

static void pointer_ref(void *pointer, void *user)
{
	struct scope *s = pointer;
	(void)user;
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

static void pointer_unref(void *pointer, void *user)
{
	(void)user;
	scope_unref(pointer);
}

static void define(void)
{
	flow_define(INTERCEPT_PROFILER, pointer_ref, pointer_unref, NULL);
}

/* Constant but for `refs` once `process_on` was set. */
static struct scope process = {.refs = 1, .profile = true, .process = true, .flags = 1};
static _Atomic bool process_on; /* stored with release, pairs with recording_of_process() */

struct recording *recording_of_process(void)
{
	return atomic_load_explicit(&process_on, memory_order_acquire) ? process.recording : NULL;
}

void recording_of_process_set(struct recording *r)
{
	if (r && !process.recording) {
		recording_ref(r);
		process.recording = r;
	}
	atomic_store_explicit(&process_on, r != NULL, memory_order_release);
	count(r ? 1 : -1);
}

struct scope *scope_present(void)
{
	struct scope *own = flow_used() ? flow_get(INTERCEPT_PROFILER) : NULL;
	return own || !recording_of_process() ? own : &process;
}

void scope_trace(const struct scope *scope, uint8_t trace[16])
{
	memcpy(trace, scope->trace, sizeof scope->trace);
	if (!scope->process)
		return;
	uint64_t id[2] = {random_id(), random_id()}; /* never 0, as W3C wants it */
	memcpy(trace, id, sizeof id);
}

enum far_status scope_enter(const struct scope *scope)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, define);
	struct scope *s = malloc(sizeof *s);
	if (!s)
		return FAR_RESOURCE;
	*s = *scope;
	s->refs = 1;
	if (s->outer && s->outer->process)
		s->outer = NULL;
	if (s->recording)
		recording_ref(s->recording);
	if (s->outer)
		pointer_ref(s->outer, NULL);
	count(1);
	enum far_status status = flow_set(INTERCEPT_PROFILER, s);
	if (status)
		scope_unref(s);
	return status;
}

void scope_leave(void)
{
	struct scope *outer = scope_present()->outer;
	if (outer)
		pointer_ref(outer, NULL);
	flow_set(INTERCEPT_PROFILER, outer);
}

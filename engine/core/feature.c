/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls the functions that the features have registered, in the order of their table. Shard thread; init and fini:
 * start and stop only. */
#include "core/feature.h"

#include "base/must.h"
#include "core/call.h"

#include <string.h>

/* f: each feature that has `function`. */
#define EACH(f, s, function)                                                                                           \
	for (const struct shard_feature *const *f = (s)->config.features; *f; f++)                                     \
		if ((*f)->function)
/* The same of those whose bit `bits` has. */
#define EACH_OF(f, s, bits, function) EACH(f, s, function) if ((bits) >> (f - (s)->config.features) & 1)

typedef void hook(void);
#define HOOKS (sizeof(struct feature_hooks) / sizeof(hook *))
static_assert(sizeof(struct feature_hooks) == HOOKS * sizeof(hook *), "it holds pointers to functions alone");

bool features_init(struct shard *s)
{
	hook *all[HOOKS] = {0}, *of[HOOKS];
	for (const struct shard_feature *const *f = s->config.features; *f; f++) {
		must((size_t)(f - s->config.features) < SHARD_FEATURES_MAX);
		memcpy(of, &(*f)->only, sizeof of);
		for (size_t i = 0; i < HOOKS; i++) {
			must(!of[i] || !all[i]);
			all[i] = of[i] ? of[i] : all[i];
		}
	}
	for (size_t i = 0; i < HOOKS; i++)
		must(all[i] != NULL);
	memcpy(&s->hooks, all, sizeof all);
	EACH(f, s, init)
	if (!(*f)->init(s))
		return false;
	return true;
}

void features_fini(struct shard *s)
{
	EACH(f, s, fini)
	(*f)->fini(s);
}

void features_stop(struct shard *s)
{
	EACH(f, s, stop)
	(*f)->stop(s);
}

unsigned features_poll_idle(struct shard *s)
{
	unsigned n = 0;
	EACH_OF(f, s, s->poll_idle, poll_idle)
	n += (*f)->poll_idle(s);
	return n;
}

void features_session_lost(struct shard *s, struct session *se)
{
	EACH(f, s, session_lost)
	(*f)->session_lost(s, se);
}

void features_worker_lost(struct shard *s, struct session *se)
{
	EACH(f, s, worker_lost)
	(*f)->worker_lost(s, se);
}

void features_session_down(struct shard *s, struct session *se)
{
	EACH(f, s, session_down)
	(*f)->session_down(s, se);
}

void features_session_fail(struct shard *s, const struct session *se, enum far_status status, const char *text)
{
	EACH(f, s, session_fail)
	(*f)->session_fail(s, se, status, text);
}

bool features_call_cancel(struct shard *s, call_done_fn *done, const void *user)
{
	EACH(f, s, call_cancel)
	if ((*f)->call_cancel(s, done, user))
		return true;
	return false;
}

bool features_group_cancel(struct shard *s, const void *future)
{
	EACH(f, s, group_cancel)
	if ((*f)->group_cancel(s, future))
		return true;
	return false;
}

__attribute__((noinline, cold)) void features_call_ended(struct shard *s, struct call *c)
{
	EACH(f, s, call_ended)
	(*f)->call_ended(s, c);
}

__attribute__((noinline, cold)) void features_call_over(struct shard *s, struct call *c)
{
	EACH_OF(f, s, c->features, call_over)
	(*f)->call_over(s, c);
}

__attribute__((noinline)) void features_record_answered(struct shard *s, struct far_deferred *d)
{
	EACH_OF(f, s, d->features, record_answered)
	(*f)->record_answered(s, d);
}

__attribute__((noinline, cold)) void features_record_gone(struct shard *s, struct far_deferred *d)
{
	EACH_OF(f, s, d->features, record_gone)
	(*f)->record_gone(s, d);
}

__attribute__((noinline)) void features_record_over(struct shard *s, struct far_deferred *d)
{
	EACH(f, s, record_over)
	(*f)->record_over(s, d);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls the functions that the features have registered, in the order of their table. Shard thread; init and fini:
 * start and stop only. */
#include "core/feature.h"

#include "base/must.h"
#include "core/call.h"
#include "core/call_cancel.h"
#include "core/context.h"
#include "core/deferred.h"
#include "core/shard.h"

#include <string.h>

/* Calls `function` of each feature that has it. */
#define CALL_EACH(s, function, ...)                                                                                    \
	do {                                                                                                           \
		for (const struct shard_feature *const *f = (s)->config.features; *f; f++)                             \
			if ((*f)->function)                                                                            \
				(*f)->function(__VA_ARGS__);                                                           \
	} while (0)

/* The same of those whose bit is in `bits`. */
#define CALL_OF(s, bits, function, ...)                                                                                \
	do {                                                                                                           \
		for (unsigned left = (bits); left; left &= left - 1) {                                                 \
			const struct shard_feature *f = (s)->config.features[__builtin_ctz(left)];                     \
			if (f->function)                                                                               \
				f->function(__VA_ARGS__);                                                              \
		}                                                                                                      \
	} while (0)

typedef void (*hook_fn)(void);
#define HOOKS (sizeof(struct feature_hooks) / sizeof(hook_fn))
static_assert(sizeof(struct feature_hooks) == HOOKS * sizeof(hook_fn), "it holds pointers to functions alone");

bool features_init(struct shard *s)
{
	hook_fn *all = (hook_fn *)(void *)&s->hooks; /* zero: the shard is new */
	for (const struct shard_feature *const *f = s->config.features; *f; f++) {
		must((size_t)(f - s->config.features) < SHARD_FEATURES_MAX);
		const hook_fn *of = (const hook_fn *)(const void *)&(*f)->only;
		for (size_t i = 0; i < HOOKS; i++) {
			must(!of[i] || !all[i]);
			if (of[i])
				all[i] = of[i];
		}
	}
	for (size_t i = 0; i < HOOKS; i++)
		must(all[i] != NULL);
	for (const struct shard_feature *const *f = s->config.features; *f; f++)
		if ((*f)->init && !(*f)->init(s))
			return false;
	return true;
}

void features_fini(struct shard *s)
{
	CALL_EACH(s, fini, s);
}

void features_stop(struct shard *s)
{
	CALL_EACH(s, stop, s);
}

__attribute__((noinline)) unsigned features_poll(struct shard *s)
{
	unsigned n = 0;
	for (unsigned left = s->poll_due; left; left &= left - 1)
		n += s->config.features[__builtin_ctz(left)]->poll(s);
	return n;
}

__attribute__((noinline)) unsigned features_poll_idle(struct shard *s)
{
	unsigned n = 0;
	for (unsigned left = s->poll_idle; left; left &= left - 1)
		n += s->config.features[__builtin_ctz(left)]->poll_idle(s);
	return n;
}

void features_session_up(struct shard *s, struct session *se)
{
	shard_own(s);
	CALL_EACH(s, session_up, s, se);
}

void features_session_settled(struct shard *s, struct session *se)
{
	shard_own(s);
	CALL_EACH(s, session_settled, s, se);
}

void features_session_detach(struct shard *s, struct session *se)
{
	shard_own(s);
	CALL_EACH(s, session_detach, s, se);
}

void features_session_lost(struct shard *s, struct session *se)
{
	shard_own(s);
	CALL_EACH(s, session_lost, s, se);
}

void features_worker_lost(struct shard *s, struct session *se)
{
	shard_own(s);
	CALL_EACH(s, worker_lost, s, se);
}

void features_session_down(struct shard *s, struct session *se)
{
	shard_own(s);
	CALL_EACH(s, session_down, s, se);
}

void features_session_fail(struct shard *s, const struct session *se, enum far_status status, const char *text)
{
	shard_own(s);
	CALL_EACH(s, session_fail, s, se, status, text);
}

bool features_call_cancel(struct shard *s, const struct call_id *id)
{
	shard_own(s);
	for (const struct shard_feature *const *f = s->config.features; *f; f++)
		if ((*f)->call_cancel && (*f)->call_cancel(s, id))
			return true;
	return false;
}

bool features_group_cancel(struct shard *s, const void *future)
{
	shard_own(s);
	for (const struct shard_feature *const *f = s->config.features; *f; f++)
		if ((*f)->group_cancel && (*f)->group_cancel(s, future))
			return true;
	return false;
}

__attribute__((noinline, cold)) void features_call_ended(struct shard *s, struct call *c)
{
	CALL_EACH(s, call_ended, s, c);
}

__attribute__((noinline, cold)) void features_call_over(struct shard *s, struct call *c)
{
	CALL_OF(s, c->features, call_over, s, c);
}

__attribute__((noinline)) void features_record_answered(struct shard *s, struct far_deferred *d)
{
	CALL_OF(s, d->features, record_answered, s, d);
}

__attribute__((noinline, cold)) void features_record_gone(struct shard *s, struct far_deferred *d)
{
	CALL_OF(s, d->features, record_gone, s, d);
}

__attribute__((noinline)) void features_record_over(struct shard *s, struct far_deferred *d)
{
	CALL_EACH(s, record_over, s, d);
}

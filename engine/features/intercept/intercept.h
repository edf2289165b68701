/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Interceptors of the process, and what they keep of a call at each end. The table: any thread; a call's, at the
 * caller: the thread that starts it and the one that completes it, at the callee: the thread of the handler and the
 * shard.
 */
#ifndef FAR_FEATURES_INTERCEPT_INTERCEPT_H
#define FAR_FEATURES_INTERCEPT_INTERCEPT_H

#include "core/request.h"
#include "core/tlv.h"
#include "sync/submit.h"
#include "value/registry.h"

#include <farcall/intercept.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct far_deferred;
struct shard;

/* ---- table.c: any thread ---- */

/** Bits of the interceptors that see new calls; that there are; of those that see requests without fields, too. */
extern _Atomic uint32_t intercept_mask, intercept_present, intercept_every;
static inline bool intercept_any(void)
{
	return __builtin_expect(atomic_load_explicit(&intercept_mask, memory_order_relaxed) != 0, 0);
}
/** Those of a mask that see calls of an agent, as bits; a reference of each is taken. */
uint32_t intercept_take(const _Atomic uint32_t *mask, const struct far_agent *agent);
void intercept_give(uint32_t mask);
/** An interceptor; the caller holds a reference to it. */
const struct far_interceptor *intercept_at(unsigned id);
/** The interceptor whose range has a type, as a bit; 0: none. Of those in `mask`. */
uint32_t intercept_of_type(uint32_t mask, uint16_t type);
enum far_status intercept_add(const struct far_interceptor *i, unsigned *id, struct far_err *err);
enum far_status intercept_remove(unsigned id, struct far_err *err);
/** Adds one of the engine's own, the profiler or the probes. It sees no calls until intercept_own_sees(), and no
 * requests without fields until intercept_own_every(). Once each. */
#define INTERCEPT_PROFILER FAR_INTERCEPTORS_MAX
#define INTERCEPT_PROBES   (FAR_INTERCEPTORS_MAX + 1)
void intercept_add_own(unsigned id, const struct far_interceptor *i);
void intercept_own_sees(unsigned id, bool calls);
void intercept_own_every(unsigned id, bool requests);
/** What is called after the interceptors of calls have changed, with the agent (NULL: every one). Once, at start. */
void intercept_on_change(void (*changed)(struct far_agent *agent));

/* ---- caller.c ---- */

/** Shows a call to the interceptors: start->extra is set. FAR_OK: `done`, `user` and `extra` of the start are replaced,
 * until intercept_done() or intercept_unsent(). */
enum far_status intercept_call(const struct shard *s, struct call_start *start, struct far_err *err);
/** call_start.done of such a call. */
void intercept_done(void *user, const struct completion *o);
/** The call was not started, or was a one-way message, and has left: as a completion, and restores the start. */
void intercept_unsent(struct call_start *start, enum far_status status, const char *text);
/** Of an intercepted call: the `done` and `user` that it had. */
void intercept_unwrap(call_done_fn **done, void **user);
/** `done` and `user` of the start of a call that may be intercepted. */
static inline void intercept_inner(call_done_fn **done, void **user)
{
	if (__builtin_expect(*done == intercept_done, 0))
		intercept_unwrap(done, user);
}

/* ---- callee.c ---- */

/** Requests of the shard's sessions are shown according to `intercept_every`. Shard thread. */
void intercept_apply(struct shard *s);
/** The result that a handler gives, before it is encoded: of a record with `extra`. The thread that answers. */
void intercept_return(struct far_deferred *d, const struct far_val *value);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** Waits for a future, for the first and for all of several. Any thread that may wait. */
#include "agent/agent.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/must.h"
#include "core/context.h"
#include "core/idle.h"
#include "core/shard.h"
#include "sync/watch.h"

#include <errno.h>

/* First wait on one shard by a thread that holds a shard and waits for a future of another. Doubles up to FAR_NAP_NS.
 */
#define LOOK_NS UINT64_C(20000)
/* Limit of settled_soon(): shorter than a wake-up. */
#define FIRST_LOOK_NS UINT64_C(30000)

enum far_status agent_check_futures(const char *what, struct far_future *const *f, size_t n, struct far_err *err)
{
	if (!f && n)
		return err_set(err, FAR_INVALID, "%s: the array of %zu futures is NULL", what, n);
	for (size_t i = 0; i < n; i++)
		if (unlikely(!f[i]) && n == 1)
			return err_set(err, FAR_INVALID, "%s: the future is NULL", what);
		else if (unlikely(!f[i]))
			return err_set(err, FAR_INVALID, "%s: future %zu of %zu is NULL (the first is 0)", what, i, n);
	return FAR_OK;
}

enum far_status agent_no_future(struct far_err *err)
{
	return err_set(err, FAR_RESOURCE, "%u futures exist; free some with far_future_free", FAR_FUTURES_MAX);
}

/* The clock of the shard that the thread is in, which may be simulated. Else that of the machine. */
static const struct clock_source *clock_here(void)
{
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer)
		if (c->shard)
			return c->shard->config.clock;
	return &clock_monotonic;
}

uint64_t agent_wait_limit(uint64_t timeout_ns, bool unbounded)
{
	if (timeout_ns == FAR_FOREVER || (timeout_ns == 0 && !unbounded))
		return TIME_NEVER;
	return time_after(clock_now(clock_here()), timeout_ns ? timeout_ns : FAR_WAIT_TIMEOUT_NS);
}

struct shard *agent_common_shard(struct far_future *const *f, size_t n)
{
	struct shard *common = NULL;
	for (size_t i = 0; i < n; i++) {
		if (future_done(f[i]))
			continue;
		if (!f[i]->shard || (common && common != f[i]->shard))
			return NULL;
		common = f[i]->shard;
	}
	return common;
}

bool agent_unbounded(struct far_future *const *f, size_t n, bool all)
{
	for (size_t i = 0; i < n; i++)
		if (!future_done(f[i]) && !(future_state(f[i]) & FUTURE_UNBOUNDED) == all)
			return !all;
	return all;
}

/* True if the calling thread holds a shard other than `s`. */
static bool holds_another(const struct shard *s)
{
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer)
		if (c->shard && c->shard != s)
			return true;
	return false;
}

/* Waits while this thread holds another shard. No other thread can poll that shard, and completion of `f` does not wake
 * its sleep. So the thread polls the shards in turn, for intervals that grow. */
static void wait_by_turns(struct far_future *f, uint64_t until)
{
	uint64_t look = LOOK_NS, now;
	struct shard *own = f->shard;
	while (!future_done(f) && (now = clock_now(clock_here())) < until) {
		for (struct shard_context *c = shard_context_top(); c && !future_done(f); c = c->outer) {
			uint64_t end = time_after(clock_now(clock_here()), look);
			if (c->shard)
				shard_wait(c->shard, f, end < until ? end : until);
		}
		if (own && !shard_held(own)) {
			uint64_t end = time_after(clock_now(clock_here()), look);
			shard_wait(own, f, end < until ? end : until);
		}
		look = look * 2 < FAR_NAP_NS ? look * 2 : FAR_NAP_NS;
	}
}

int agent_wait_future(struct far_future *f, uint64_t until)
{
	struct shard *s = f->shard;
	if (unlikely(shard_context_top() != NULL) && (shard_in_fiber() || holds_another(s))) {
		if (shard_in_fiber())
			return shard_wait(s, f, until); /* suspends the fiber, whichever shard completes it */
		wait_by_turns(f, until);
		return 0;
	}
	if (likely(s != NULL))
		return shard_wait(s, f, until);
	while (!future_done(f) && (until == TIME_NEVER || clock_now(clock_here()) < until))
		future_sleep(f, future_state(f), until);
	return 0;
}

/* ---- several ---- */

enum mode { ANY, ALL };

/* True if the wait is over. */
static bool settled(struct far_future *const *f, size_t n, enum mode mode)
{
	bool pending = false;
	for (size_t i = 0; i < n; i++) {
		if (!future_done(f[i]))
			pending = true;
		else if (mode == ANY || f[i]->status != FAR_OK)
			return true;
	}
	return mode == ALL && !pending;
}

/* Waits for the countdown. `looks`: not every future has it in its watch list, so check them all every FAR_NAP_NS. */
static int wait_settled(struct far_future *countdown, struct far_future *const *f, size_t n, enum mode mode, bool looks,
			uint64_t until)
{
	int error = 0;
	while (!error && !future_done(countdown) && !(looks && settled(f, n, mode))) {
		uint64_t now = looks || until != TIME_NEVER ? clock_now(clock_here()) : 0;
		if (now >= until)
			break;
		uint64_t soon = looks ? now + FAR_NAP_NS : TIME_NEVER;
		error = agent_wait_future(countdown, soon < until ? soon : until);
	}
	return error;
}

static enum far_status wait_several(struct far_future *const *f, size_t n, enum mode mode, uint64_t until,
				    struct far_err *err)
{
	/* ALL: 1 more, until every future was entered. */
	uint32_t left = mode == ANY ? 1 : (uint32_t)n + 1;
	struct far_future *countdown = countdown_alloc(agent_common_shard(f, n), left, mode == ALL);
	bool looks = false;
	size_t entered = 0;
	if (!countdown)
		return agent_no_future(err);
	for (; entered < n && !future_done(countdown); entered++) {
		int added = watch_add(f[entered], countdown);
		if (added == -EALREADY)
			countdown_step(NULL, countdown, f[entered]);
		looks |= added == -EBUSY;
	}
	if (mode == ALL)
		countdown_step(NULL, countdown, NULL);
	int error = wait_settled(countdown, f, n, mode, looks, until);
	for (size_t i = 0; i < entered; i++)
		if (!future_done(f[i])) /* completion removes the entries of a future */
			watch_remove(f[i], countdown);
	buf_unref(&countdown->head);
	return unlikely(error) ? agent_wait_error(error, FAR_EXECUTED_MAYBE, err) : FAR_OK;
}

/* Waits for the futures in order, FIRST_LOOK_NS in all; false: continue with a countdown. Small calls end within that
 * time, and entering a future in a countdown costs a seventh of such a call. A failure is noticed FIRST_LOOK_NS late at
 * most. */
static bool settled_soon(struct far_future *const *f, size_t n, uint64_t until)
{
	uint64_t end = time_after(clock_now(clock_here()), FIRST_LOOK_NS);
	for (size_t i = 0; i < n; i++) {
		if (!future_done(f[i]))
			agent_wait_future(f[i], end < until ? end : until);
		if (!future_done(f[i]))
			return settled(f, n, ALL);
		if (f[i]->status != FAR_OK)
			return true;
	}
	return true;
}

static enum far_status wait_until_settled(const char *what, struct far_future *const *f, size_t n, enum mode mode,
					  uint64_t timeout_ns, struct far_err *err)
{
	struct far_future *only = NULL;
	size_t pending = 0;
	for (size_t i = 0; i < n; i++)
		if (!future_done(f[i])) {
			only = f[i];
			pending++;
		}
	/* Check again: one may have completed meanwhile, which can end the wait before `only`. */
	if (settled(f, n, mode))
		return FAR_OK;
	enum far_status status = agent_may_wait(what, err);
	if (unlikely(status))
		return status;
	uint64_t until = agent_wait_limit(timeout_ns, agent_unbounded(f, n, mode == ANY));
	if (pending > 1 && mode == ALL && agent_common_shard(f, n) && settled_soon(f, n, until))
		return FAR_OK;
	if (pending > 1)
		return wait_several(f, n, mode, until, err);
	int error = pending == 1 ? agent_wait_future(only, until) : 0;
	return unlikely(error) ? agent_wait_error(error, FAR_EXECUTED_MAYBE, err) : FAR_OK;
}

enum far_status far_future_wait_all(struct far_future *const *f, size_t n, uint64_t timeout_ns, struct far_err *err)
{
	static const char what[] = "far_future_wait_all";
	enum far_status status = agent_check_futures(what, f, n, err);
	if (!status && n > FAR_FUTURES_MAX)
		status = err_set(err, FAR_INVALID, "%s: %zu futures; a process has %u at most", what, n,
				 FAR_FUTURES_MAX);
	if (!status && !settled(f, n, ALL))
		status = wait_until_settled(what, f, n, ALL, timeout_ns, err);
	if (status)
		return status;
	struct far_future *pending = NULL;
	for (size_t i = 0; i < n; i++) {
		if (!future_done(f[i]))
			pending = f[i];
		else if (f[i]->status != FAR_OK)
			return agent_result(f[i], NULL, err);
	}
	return pending ? agent_pending(pending, err) : FAR_OK;
}

enum far_status far_future_wait_any(struct far_future *const *f, size_t n, uint64_t timeout_ns, size_t *index,
				    struct far_err *err)
{
	static const char what[] = "far_future_wait_any";
	enum far_status status = agent_check_futures(what, f, n, err);
	if (!status && (n == 0 || n > FAR_FUTURES_MAX || !index))
		status = err_set(err, FAR_INVALID, "%s: give 1 to %u futures, and `index`, for the result, not NULL",
				 what, FAR_FUTURES_MAX);
	if (!status && !settled(f, n, ANY))
		status = wait_until_settled(what, f, n, ANY, timeout_ns, err);
	if (status)
		return status;
	for (size_t i = 0; i < n; i++)
		if (future_done(f[i])) {
			*index = i;
			return FAR_OK;
		}
	return agent_pending(f[0], err);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Waiting: for one future of any kind, for the first and for all of several. */
#include "agent/agent.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/must.h"
#include "sync/watch.h"

#include <errno.h>

/* The first look of a thread that holds a shard and waits for what another one completes; each is twice as long, up to
 * FAR_NAP_NS. */
#define LOOK_NS UINT64_C(20000)
/* Less than a wake-up takes. */
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
	return err_set(err, FAR_RESOURCE, "%u futures are alive; free some with far_future_free", FAR_FUTURES_MAX);
}

/* That of the shard which the thread is in: it may be under a clock of its own. Else the machine's, which all other
 * agents have. */
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
	return time_after(clock_now(clock_here()), timeout_ns ? timeout_ns : FAR_RPC_TIMEOUT_NS);
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

/* Does the calling thread hold a shard other than `s`. */
static bool holds_another(const struct shard *s)
{
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer)
		if (c->shard && c->shard != s)
			return true;
	return false;
}

/* Nobody else can drive a shard that this thread holds, and its sleep is not ended by a future that another one
 * completes: so it takes turns, in looks that grow. */
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
			return shard_wait(s, f, until); /* parks, whoever completes it */
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

/* Is there nothing more to wait for. */
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

/* Waits for the countdown that stands for all. `looks`: not all could be entered there. */
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
	/* For all, one more stands for the entering itself. */
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
		if (!future_done(f[i])) /* what is done takes its entries out itself */
			watch_remove(f[i], countdown);
	buf_unref(&countdown->head);
	return unlikely(error) ? agent_wait_error(error, FAR_EXECUTED_MAYBE, err) : FAR_OK;
}

/* Small calls are over soon, and to enter a countdown costs a seventh of one: so all are looked at in order first, for
 * FIRST_LOOK_NS together. What fails meanwhile is seen that much later at most. */
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
	/* Some may have been completed since the caller looked, and `only` must not be waited for when they do. */
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
		status = err_set(err, FAR_INVALID,
				 "%s: between 1 and %u futures, and `index`, where the answer goes, not NULL", what,
				 FAR_FUTURES_MAX);
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

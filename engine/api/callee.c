/* SPDX-License-Identifier: BSD-3-Clause */
/** Handles of workers and of functions to be called there: far_worker_find(), far_callee_*(). Application threads and
 * handlers. A callee has call sites of its own, one for each shard that sends, so the holder of a shard writes to one.
 */
#include "agent/agent.h"
#include "api/site.h"
#include "base/error.h"
#include "base/must.h"

#include <stdlib.h>

struct far_callee {
	struct far_worker worker;
	struct call_site site[]; /* by the shard that sends */
};

enum far_status far_worker_find(struct far_agent *a, const char *name, struct far_worker *out, struct far_err *err)
{
	if (!a || !out)
		return err_set(err, FAR_INVALID, "far_worker_find: the agent, or `out`, is NULL");
	int rank = agent_find_worker(a, name, err);
	if (rank < 0)
		return FAR_UNKNOWN_WORKER;
	*out = (struct far_worker){
		a, {rank, -1}, atomic_load_explicit(&a->members[rank].incarnation, memory_order_relaxed)};
	return FAR_OK;
}

static inline bool replaced(const struct far_worker *w)
{
	const struct ctl_member *m = &w->agent->members[w->to.worker];
	return atomic_load_explicit(&m->incarnation, memory_order_relaxed) != w->incarnation;
}

__attribute__((noinline, cold)) static enum far_status lost(const struct far_worker *w, struct far_err *err)
{
	return err_set(err, FAR_PEER_LOST,
		       "worker \"%s\" is another incarnation than the one of the handle; call far_worker_find again",
		       AGENT_NAME(w->agent, w->to.worker));
}

enum far_status far_callee_find(const struct far_worker *w, const char *function, struct far_callee **out,
				struct far_err *err)
{
	if (!w || !w->agent || !out)
		return err_set(err, FAR_INVALID, "far_callee_find: the worker, or `out`, is NULL");
	enum far_status status = agent_check_to(w->agent, w->to, err);
	if (status)
		return status;
	if (replaced(w))
		return lost(w, err);
	const struct function *fn = agent_find_function(w->agent, function, err);
	if (!fn)
		return FAR_NO_FUNCTION;
	unsigned n = w->agent->shards_n;
	struct far_callee *c = calloc(1, sizeof *c + n * sizeof *c->site);
	if (!c)
		return err_set(err, FAR_RESOURCE, "far_callee_find: no memory");
	c->worker = *w;
	for (unsigned i = 0; i < n; i++)
		site_set(&c->site[i], fn, fn->signature.name);
	*out = c;
	return FAR_OK;
}

void far_callee_free(struct far_callee *c)
{
	free(c);
}

/* Sends the call and returns its future, and its session; NULL: the general code decides. */
static inline __attribute__((always_inline)) struct far_future *call_fast(struct far_callee *c, struct shard *s,
									  uint64_t left, const struct far_val *args,
									  size_t n, struct session **out)
{
	struct call_site *site = &c->site[s->config.index];
	const struct function *fn = site->fn;
	struct session *se = agent_fast_session(c->worker.agent, s, c->worker.to, &fn->signature.name_hash);
	*out = se;
	if (unlikely(!se || replaced(&c->worker) || atomic_load_explicit(&fn->rivals, memory_order_relaxed)))
		return NULL;
	return site_call(s, se, site, left, 0, args, n);
}

__attribute__((noinline)) static enum far_status async_general(struct far_callee *c, const struct far_val *args,
							       size_t n, const struct far_call_opts *opts,
							       struct far_future **out, struct far_err *err)
{
	if (!c)
		return err_set(err, FAR_INVALID, "far_callee_rpc_async: the callee is NULL");
	if (replaced(&c->worker))
		return lost(&c->worker, err);
	return far_rpc_async_to(c->worker.agent, c->worker.to, c->site->text, args, n, opts, out, err);
}

enum far_status far_callee_rpc_async(struct far_callee *c, const struct far_val *args, size_t args_n,
				     const struct far_call_opts *opts, struct far_future **out, struct far_err *err)
{
	uint64_t left;
	struct session *se;
	struct shard *s = likely(c && !opts && out) ? agent_fast_shard(c->worker.agent, &left) : NULL;
	struct far_future *f = likely(s) ? call_fast(c, s, left, args, args_n, &se) : NULL;
	if (unlikely(!f))
		return async_general(c, args, args_n, opts, out, err);
	scope_gather(f);
	*out = f;
	return FAR_OK;
}

/* Calls and waits, holding the shard; the thread has no context, or may wait with its shard. NULL: the general code
 * decides. */
static struct far_future *call_and_wait_fast(struct far_callee *c, const struct far_val *args, size_t n)
{
	struct far_agent *a = c->worker.agent;
	uint64_t left;
	bool entered;
	struct session *se;
	struct far_future *f = NULL;
	if (unlikely(!site_enter(a, &entered)))
		return NULL;
	struct shard *s = agent_fast_shard(a, &left);
	if (likely(s && agent_may_wait_fast(s)))
		f = call_fast(c, s, left, args, n, &se);
	if (likely(f != NULL))
		site_await(s, se, f);
	if (entered)
		shard_leave(a->shards[0]);
	return f;
}

enum far_status far_callee_rpc_sync(struct far_callee *c, const struct far_val *args, size_t args_n,
				    const struct far_call_opts *opts, struct far_val *out, struct far_err *err)
{
	if (unlikely(!c))
		return err_set(err, FAR_INVALID, "far_callee_rpc_sync: the callee is NULL");
	struct far_future *f = likely(!opts) ? call_and_wait_fast(c, args, args_n) : NULL;
	if (likely(f != NULL))
		return agent_result_last(f, out, err);
	if (replaced(&c->worker))
		return lost(&c->worker, err);
	return far_rpc_sync_to(c->worker.agent, c->worker.to, c->site->text, args, args_n, opts, out, err);
}

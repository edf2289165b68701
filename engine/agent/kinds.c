/* SPDX-License-Identifier: BSD-3-Clause */
/** Creates the fiber pools and blocking threads that handlers need, with the first such handler. Application threads.
 */
#include "agent/agent.h"

#include "base/error.h"
#include "core/blocking.h"
#include "core/fiber.h"
#include "core/fiber_pool.h"
#include "core/shard.h"

static enum far_status prepare_kind(struct far_agent *a, enum far_kind kind, struct far_err *err)
{
	enum far_status status = FAR_OK;
	for (unsigned i = 0; i < a->shards_n && kind == FAR_KIND_FIBER && !status; i++)
		status = fiber_pool_add(a->shards[i], a->limits.fibers, a->fiber_stack_bytes, err);
	if (kind == FAR_KIND_FIBER)
		return status;
	if (kind != FAR_KIND_BLOCKING || atomic_load_explicit(&a->blocking, memory_order_relaxed))
		return FAR_OK;
	if (a->stepped)
		return err_set(
			err, FAR_UNSUPPORTED,
			"handlers of kind blocking need threads, and the agent of \"%s\" has none; register them "
			"as FAR_KIND_FIBER",
			a->name);
	struct blocking_pool *pool;
	status = blocking_create(&pool, a->limits.blocking_threads, a->limits.blocking_queue, err);
	if (!status) /* pairs with the acquire in blocking_start() */
		atomic_store_explicit(&a->blocking, pool, memory_order_release);
	return status;
}

/* Counts without arrays are skipped here, and rejected when the class is registered. */
static enum far_status prepare_class(struct far_agent *a, const struct far_class *cls, struct far_err *err)
{
	enum far_status status = FAR_OK;
	for (size_t i = 0; cls->constructors && i < cls->constructors_n && !status; i++)
		status = prepare_kind(a, cls->constructors[i].kind, err);
	for (size_t i = 0; cls->methods && i < cls->methods_n && !status; i++)
		status = prepare_kind(a, cls->methods[i].kind, err);
	return status;
}

enum far_status agent_prepare_class(struct far_agent *a, const struct far_class *cls, struct far_err *err)
{
	pthread_mutex_lock(&a->kinds_lock);
	enum far_status status = prepare_class(a, cls, err);
	pthread_mutex_unlock(&a->kinds_lock);
	return status;
}

enum far_status agent_prepare_kind(struct far_agent *a, enum far_kind kind, struct far_err *err)
{
	pthread_mutex_lock(&a->kinds_lock);
	enum far_status status = prepare_kind(a, kind, err);
	pthread_mutex_unlock(&a->kinds_lock);
	return status;
}

static void drive_all(void *ctx)
{
	struct far_agent *a = ctx;
	for (unsigned i = 0; i < a->shards_n; i++)
		if (shard_enter(a->shards[i]))
			shard_leave(a->shards[i]);
}

/* Called when no thread polls the shards and every call has ended. Blocking handlers may still run. */
void agent_kinds_fini(struct far_agent *a)
{
	struct blocking_pool *pool = atomic_load_explicit(&a->blocking, memory_order_relaxed);
	if (pool) {
		blocking_stop(pool, drive_all, a);
		blocking_destroy(pool);
	}
	pthread_mutex_destroy(&a->kinds_lock);
}

enum far_status agent_kinds_init(struct far_agent *a, const struct far_opts *opts, struct far_err *err)
{
	enum far_status status = FAR_OK;
	pthread_mutex_init(&a->kinds_lock, NULL);
	if (a->stepped) /* every wait is on a fiber */
		status = prepare_kind(a, FAR_KIND_FIBER, err);
	for (size_t i = 0; i < opts->classes_n && !status; i++)
		status = prepare_class(a, &opts->classes[i], err);
	for (size_t i = 0; i < opts->functions_n && !status; i++)
		status = prepare_kind(a, opts->functions[i].kind, err);
	for (size_t i = 0; i < opts->messages_n && !status; i++)
		status = prepare_kind(a, opts->messages[i].kind, err);
	if (status)
		agent_kinds_fini(a);
	return status;
}

enum far_status agent_may_wait(const char *what, struct far_err *err)
{
	const char *handler = shard_in_handler();
	if (likely(!handler))
		return FAR_OK;
	return err_set(err, FAR_WOULD_DEADLOCK,
		       "%s would wait inside %s, which runs inline on the shard that would complete it; register the "
		       "handler as "
		       "FAR_KIND_FIBER, or start the call with far_rpc_async or far_msg_send and answer later through "
		       "far_defer",
		       what, handler);
}

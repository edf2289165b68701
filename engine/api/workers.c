/* SPDX-License-Identifier: BSD-3-Clause */
/** Members, registration after init, default deadline, holding the shard, counters. */
#include "api/agent.h"
#include "base/error.h"
#include "base/must.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static void describe(const struct far_agent *a, int rank, struct far_worker_info *out)
{
	const struct ctl_member *m = &a->members[rank];
	memset(out, 0, sizeof *out);
	memcpy(out->name, m->name, sizeof out->name);
	out->rank = m->rank;
	out->shards = m->shards;
	out->alive = atomic_load_explicit(&m->alive, memory_order_relaxed) != 0;
	out->incarnation = m->incarnation;
	memcpy(out->nic, m->nic, sizeof out->nic);
}

enum far_status far_worker_by_name(struct far_agent *a, const char *name, struct far_worker_info *out,
				   struct far_err *err)
{
	int rank = agent_find_worker(a, name, err);
	if (rank < 0)
		return FAR_UNKNOWN_WORKER;
	describe(a, rank, out);
	return FAR_OK;
}

enum far_status far_worker_by_rank(struct far_agent *a, int rank, struct far_worker_info *out, struct far_err *err)
{
	enum far_status status = agent_check_to(a, (struct far_to){rank, -1}, err);
	if (!status)
		describe(a, rank, out);
	return status;
}

void far_worker_self(struct far_agent *a, struct far_worker_info *out)
{
	describe(a, a->rank, out);
}

int far_world_size(struct far_agent *a)
{
	return a->world;
}

uint64_t far_rpc_timeout(struct far_agent *a)
{
	return atomic_load_explicit(&a->rpc_timeout_ns, memory_order_relaxed);
}

enum far_status far_set_rpc_timeout(struct far_agent *a, uint64_t timeout_ns)
{
	if (timeout_ns == 0)
		return FAR_INVALID;
	atomic_store_explicit(&a->rpc_timeout_ns, timeout_ns, memory_order_relaxed);
	return FAR_OK;
}

enum far_status far_register(struct far_agent *a, const struct far_function *function, struct far_err *err)
{
	enum far_status status = function ? agent_prepare_kind(a, function->kind, err) : FAR_OK;
	return status ? status : registry_add(&a->registry, function, err);
}

enum far_status far_msg_register(struct far_agent *a, const struct far_msg_handler *handler, struct far_err *err)
{
	enum far_status status = handler ? agent_prepare_kind(a, handler->kind, err) : FAR_OK;
	return status ? status : registry_add_message(&a->registry, handler, err);
}

enum far_status far_shard_acquire(struct far_agent *a, uint64_t timeout_ns, struct far_err *err)
{
	struct shard *s = a->shard;
	if (a->driver == FAR_DRIVER_OWN)
		return err_set(err, FAR_UNSUPPORTED,
			       "this agent's shard is driven by its own thread only (FAR_DRIVER_OWN or FAR_IDLE_BUSY)");
	enum far_status status = agent_may_wait("far_shard_acquire", err);
	if (status)
		return status;
	if (shard_in_fiber())
		return err_set(err, FAR_INVALID, "a handler runs on its shard already; it cannot hold one");
	if (shard_held(s))
		return err_set(err, FAR_INVALID, "this thread holds the shard already");
	uint64_t until = time_after(clock_now(a->clock), timeout_ns ? timeout_ns : FAR_SEC);
	atomic_fetch_add_explicit(&s->driver.want, 1, memory_order_relaxed);
	bool entered;
	while (!(entered = shard_enter(s)) && clock_now(a->clock) < until)
		sched_yield();
	atomic_fetch_sub_explicit(&s->driver.want, 1, memory_order_relaxed);
	return entered ? FAR_OK : err_set(err, FAR_TIMEOUT, "another thread keeps driving the shard");
}

void far_shard_release(struct far_agent *a)
{
	if (shard_held(a->shard) && !shard_in_handler() && !shard_in_fiber())
		shard_leave(a->shard);
}

unsigned far_shard_poll(struct far_agent *a)
{
	if (unlikely(!shard_held(a->shard) || a->shard->context.handler || shard_in_fiber()))
		return 0;
	return shard_pass(a->shard);
}

void far_counters_read(struct far_agent *a, struct far_counters *out)
{
	const struct shard_counters *c = &a->shard->counters;
#define READ(name) out->name = atomic_load_explicit(&c->name, memory_order_relaxed)
	READ(calls_sent);
	READ(calls_completed);
	READ(calls_failed);
	READ(calls_timed_out);
	READ(requests_received);
	READ(replies_sent);
	READ(replies_late);
	READ(bytes_sent);
	READ(bytes_received);
	READ(packets_dropped);
	READ(busy_refusals);
	READ(calls_repeated);
	READ(requests_repeated);
	READ(wakeups);
	READ(requests_active);
#undef READ
	uint64_t ended = atomic_load_explicit(&c->calls_ended, memory_order_relaxed);
	out->calls_active = atomic_load_explicit(&c->calls_sent, memory_order_relaxed) - ended;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** <farcall/agent.h> without init and shutdown, and <farcall/counters.h>: members, registration, default deadline,
 * holding a shard, counters. Any thread. */
#include "agent/agent.h"
#include "agent/metrics.h"
#include "base/error.h"
#include "base/must.h"
#include "base/sized.h"
#include "builtin/awake.h"
#include "core/context.h"
#include "core/loop.h"
#include "core/shard.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static void describe(const struct far_agent *a, int rank, struct far_worker_info *to, size_t bytes)
{
	struct far_worker_info info = {.rank = rank}, *out = &info;
	const struct ctl_member *m = &a->members[rank];
	out->alive = atomic_load_explicit(&m->alive, memory_order_acquire) != 0; /* orders the next load */
	ctl_member_name(m, out->name);
	out->shards = atomic_load_explicit(&m->shards, memory_order_relaxed);
	out->incarnation = atomic_load_explicit(&m->incarnation, memory_order_relaxed);
	struct ctl_route route;
	if (ctl_member_route(m, &route)) {
		snprintf(out->nic, sizeof out->nic, "%s", route.nic);
		snprintf(out->nic_address, sizeof out->nic_address, "%s", route.address);
		snprintf(out->nic_why, sizeof out->nic_why, "%s", route.why);
		memcpy(out->ip, route.ip, sizeof out->ip);
		out->port = route.port;
	}
	sized_out(to, bytes, out, sizeof *out);
}

enum far_status far_worker_by_name_sized(struct far_agent *a, const char *name, struct far_worker_info *out,
					 size_t bytes, struct far_err *err)
{
	int rank = agent_find_worker(a, name, err);
	if (rank < 0)
		return FAR_UNKNOWN_WORKER;
	describe(a, rank, out, bytes);
	return FAR_OK;
}

enum far_status far_worker_by_rank_sized(struct far_agent *a, int rank, struct far_worker_info *out, size_t bytes,
					 struct far_err *err)
{
	enum far_status status = agent_check_to(a, (struct far_to){rank, -1}, err);
	if (!status)
		describe(a, rank, out, bytes);
	return status;
}

void far_worker_self_sized(struct far_agent *a, struct far_worker_info *out, size_t bytes)
{
	describe(a, a->rank, out, bytes);
}

int far_workers_sized(struct far_agent *a, struct far_worker_info *out, int cap, size_t bytes)
{
	int n = 0;
	for (int r = 0; r < a->world; r++) {
		if (a->dynamic && !agent_has_member(a, r))
			continue;
		if (n < cap)
			describe(a, r, (struct far_worker_info *)(void *)((char *)out + (size_t)n * bytes), bytes);
		n++;
	}
	return n;
}

struct far_to far_self(struct far_agent *a)
{
	return (struct far_to){a->rank, -1};
}

enum far_status far_keep_awake(struct far_agent *a, struct far_to to, uint64_t ns, struct far_err *err)
{
	bool known = to.worker >= 0 && to.worker < a->world;
	int shards = known ? (int)atomic_load_explicit(&a->members[to.worker].shards, memory_order_relaxed) : 0;
	int shard = to.shard < 0 ? 0 : to.shard, end = to.shard < 0 && shards > 0 ? shards : shard + 1;
	enum far_status status = FAR_OK;
	for (; shard < end && !status; shard++) {
		struct far_future *f;
		int64_t time = (int64_t)(ns < FAR_KEEP_AWAKE_NS_MAX ? ns : FAR_KEEP_AWAKE_NS_MAX);
		status = far_rpc_async_to(a, (struct far_to){to.worker, shard}, awake_name, FAR_ARGS(time), NULL, &f,
					  err);
		if (!status)
			far_future_free(f);
	}
	return status;
}

int far_world_size(struct far_agent *a)
{
	return far_workers_sized(a, NULL, 0, 0);
}

uint64_t far_rpc_timeout_ns(struct far_agent *a)
{
	return atomic_load_explicit(&a->rpc_timeout_ns, memory_order_relaxed);
}

enum far_status far_set_rpc_timeout_ns(struct far_agent *a, uint64_t timeout_ns)
{
	agent_set_timeout(a, timeout_ns ? timeout_ns : FAR_RPC_TIMEOUT_NS);
	return FAR_OK;
}

enum far_status far_register_function(struct far_agent *a, const struct far_function *function, struct far_err *err)
{
	enum far_status status = function ? agent_prepare_kind(a, function->kind, err) : FAR_OK;
	return status ? status : registry_add(&a->registry, function, err);
}

enum far_status far_register_type(struct far_agent *a, const struct far_custom_type *type, struct far_err *err)
{
	return registry_add_type(&a->registry, type, err);
}

enum far_status far_register_message(struct far_agent *a, const struct far_msg_handler *handler, struct far_err *err)
{
	enum far_status status = handler ? agent_prepare_kind(a, handler->kind, err) : FAR_OK;
	return status ? status : registry_add_message(&a->registry, handler, err);
}

enum far_status far_register_placement(struct far_agent *a, const struct far_msg_placement *placement,
				       struct far_err *err)
{
	return registry_add_placement(&a->registry, placement, err);
}

static struct shard *shard_at(const struct far_agent *a, unsigned shard)
{
	return shard < a->shards_n ? a->shards[shard] : NULL;
}

static enum far_status no_shard(const struct far_agent *a, unsigned shard, struct far_err *err)
{
	return err_set(err, FAR_INVALID, "worker \"%s\" has %u shard%s, numbered from 0; there is no shard %u", a->name,
		       a->shards_n, a->shards_n == 1 ? "" : "s", shard);
}

enum far_status far_shard_acquire_at(struct far_agent *a, unsigned shard, uint64_t timeout_ns, struct far_err *err)
{
	struct shard *s = shard_at(a, shard);
	if (!s)
		return no_shard(a, shard, err);
	if (a->progress == FAR_PROGRESS_DEDICATED)
		return err_set(
			err, FAR_UNSUPPORTED,
			"the shards of this agent are polled by their own threads only (FAR_PROGRESS_DEDICATED or "
			"FAR_IDLE_BUSY)");
	enum far_status status = agent_may_wait("far_shard_acquire", err);
	if (status)
		return status;
	if (shard_serving())
		return err_set(err, FAR_INVALID, "a handler cannot acquire a shard; its waits poll one");
	if (shard_held(s))
		return err_set(err, FAR_INVALID, "this thread holds the shard already");
	uint64_t until = time_after(clock_now(a->clock), timeout_ns ? timeout_ns : FAR_ACQUIRE_TIMEOUT_NS);
	atomic_fetch_add_explicit(&s->progress.want, 1, memory_order_relaxed);
	bool entered;
	while (!(entered = shard_enter(s)) && clock_now(a->clock) < until)
		sched_yield();
	atomic_fetch_sub_explicit(&s->progress.want, 1, memory_order_relaxed);
	return entered ? FAR_OK
		       : err_set(err, FAR_TIMEOUT,
				 "another thread holds the shard and did not release it within the limit");
}

void far_shard_release_at(struct far_agent *a, unsigned shard)
{
	struct shard *s = shard_at(a, shard);
	if (s)
		agent_shard_release(s);
}

unsigned far_shard_poll_at(struct far_agent *a, unsigned shard)
{
	struct shard *s = shard_at(a, shard);
	if (unlikely(!s || !shard_held(s) || s->context.handler || s->context.fiber))
		return 0;
	unsigned n = shard_pass(s);
	if (n == 0 && s->passes % 8 == 0) /* not each time: reading the clock costs as much as an empty pass */
		shard_idle(s);
	return n;
}

enum far_status far_shard_acquire(struct far_agent *a, uint64_t timeout_ns, struct far_err *err)
{
	return far_shard_acquire_at(a, 0, timeout_ns, err);
}

void far_shard_release(struct far_agent *a)
{
	far_shard_release_at(a, 0);
}

unsigned far_shard_poll(struct far_agent *a)
{
	return far_shard_poll_at(a, 0);
}

unsigned far_shards(struct far_agent *a)
{
	return a->shards_n;
}

unsigned far_shard_of_thread(struct far_agent *a)
{
	return agent_shard_of_thread(a)->config.index;
}

void far_counters_read_sized(struct far_agent *a, struct far_counters *out, size_t bytes)
{
	struct far_counters sum = {0};
	for (unsigned i = 0; i < a->shards_n; i++)
		agent_counters_add(a->shards[i], &sum);
	sized_out(out, bytes, &sum, sizeof sum);
}

enum far_status far_shard_counters_read_sized(struct far_agent *a, unsigned shard, struct far_counters *out,
					      size_t bytes, struct far_err *err)
{
	struct far_counters own = {0};
	const struct shard *s = shard_at(a, shard);
	if (!s)
		return no_shard(a, shard, err);
	agent_counters_add(s, &own);
	sized_out(out, bytes, &own, sizeof own);
	return FAR_OK;
}

unsigned far_nic_ports(struct far_agent *a)
{
	return a->ports.n;
}

enum far_status far_nic_stats_read_sized(struct far_agent *a, unsigned port, struct far_nic_stats *out, size_t bytes,
					 struct far_err *err)
{
	if (port >= a->ports.n)
		return err_set(err, FAR_INVALID, "worker \"%s\" has %u ports, numbered from 0; there is no port %u",
			       a->name, a->ports.n, port);
	struct far_nic_stats now;
	agent_nic_stats(a, port, &now);
	sized_out(out, bytes, &now, sizeof now);
	return FAR_OK;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Agents without threads (agent/env.h): the steps that far_init_rpc() and far_shutdown() wait for are states here. The
 * stepping thread. */
#include "agent/init.h"
#include "base/error.h"
#include "base/must.h"
#include "core/context.h"
#include "core/idle.h"
#include "core/shard.h"

static void give_back(struct agent_env *env)
{
	for (unsigned i = 0; i < env->ports_n; i++)
		env->ports[i]->ops->close(env->ports[i]);
	env->ports_n = 0;
	if (env->net)
		env->net->ops->destroy(env->net);
	env->net = NULL;
}

enum far_status agent_create_stepped(const char *name, int rank, int world, const struct far_opts *opts,
				     struct agent_env *env, struct far_agent **agent, struct far_err *err)
{
	struct init in = {.name = name, .rank = rank, .world = world, .env = env, .err = err};
	must(env && env->clock && env->random && env->net && env->ctl_due);
	in.opts_bytes = sizeof *opts;
	enum far_status status = agent_init(&in, "agent_create_stepped", opts, agent);
	if (status)
		give_back(env);
	return status;
}

/* True once the shards have taken the PEER_UP mails of the join. */
static bool sessions_there(const struct far_agent *a)
{
	uint32_t sessions = ctl_sessions(a->ctl);
	for (unsigned i = 0; i < a->shards_n; i++)
		if (atomic_load_explicit(&a->shards[i]->sessions_opened, memory_order_acquire) < sessions)
			return false;
	return true;
}

static void look_at_join(struct far_agent *a)
{
	if (!atomic_load_explicit(&a->named, memory_order_relaxed) && ctl_state(a->ctl) == CTL_READY &&
	    sessions_there(a))
		agent_names_known(a);
}

uint64_t agent_step_ctl(struct far_agent *a, uint64_t now)
{
	must(a->stepped);
	uint64_t next = ctl_step(a->ctl, now);
	look_at_join(a);
	return next;
}

uint64_t agent_step_shard(struct far_agent *a, unsigned i)
{
	must(a->stepped && i < a->shards_n);
	uint64_t next = shard_turn(a->shards[i], &a->turns[i]);
	look_at_join(a);
	return next;
}

uint64_t agent_step(struct far_agent *a, uint64_t now)
{
	uint64_t next = agent_step_ctl(a, now);
	for (unsigned i = 0; i < a->shards_n; i++) {
		uint64_t at = agent_step_shard(a, i);
		next = at < next ? at : next;
	}
	return next;
}

enum agent_state agent_state(const struct far_agent *a)
{
	switch (ctl_state(a->ctl)) {
	case CTL_READY:
		return atomic_load_explicit(&((struct far_agent *)a)->named, memory_order_relaxed) ? AGENT_READY
												   : AGENT_JOINING;
	case CTL_LEAVING:
		return AGENT_LEAVING;
	case CTL_LEFT:
		return AGENT_LEFT;
	case CTL_FAILED:
		return AGENT_FAILED;
	default:
		return AGENT_JOINING;
	}
}

enum far_status agent_why(const struct far_agent *a, struct far_err *err)
{
	enum ctl_state state = ctl_state(a->ctl);
	/* The state is settled, so this does not wait. */
	return state == CTL_LEFT || state == CTL_FAILED ? ctl_wait_settled(a->ctl, err) : FAR_OK;
}

bool agent_asleep(const struct far_agent *a, unsigned i)
{
	return a->turns[i].asleep;
}

struct shard *agent_shard_here(void)
{
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer)
		if (c->shard)
			return c->shard->config.stepped ? c->shard : NULL;
	return NULL;
}

void *agent_ctx_here(void)
{
	const struct shard *s = agent_shard_here();
	return s ? s->config.agent->env_ctx : NULL;
}

void agent_leave(struct far_agent *a, uint64_t timeout_ns)
{
	ctl_leave(a->ctl, timeout_ns ? timeout_ns : FAR_SHUTDOWN_TIMEOUT_NS);
}

static uint32_t end(struct far_agent *a, bool crash)
{
	uint32_t left = 0;
	must(a->stepped);
	ctl_stop(a->ctl); /* closes its connections */
	for (unsigned i = 0; i < a->shards_n; i++)
		left += agent_shard_end(a, a->shards[i], crash);
	agent_fini_stepped(a);
	return left;
}

uint32_t agent_destroy(struct far_agent *a)
{
	return end(a, false);
}

uint32_t agent_crash(struct far_agent *a)
{
	return end(a, true);
}

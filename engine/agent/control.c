/* SPDX-License-Identifier: BSD-3-Clause */
/* The control thread of an agent: its creation and its callbacks (struct ctl_config). Start and stop only, but for the
 * callbacks (control thread). */
#include "agent/agent.h"
#include "agent/init.h"

#include "base/error.h"
#include "base/random.h"
#include "core/shard.h"
#include "features/references/rref.h"

#include <errno.h>
#include <stdio.h>

static bool post(void *ctx, unsigned shard, const struct mail *mail)
{
	struct far_agent *a = ctx;
	struct shard *s = a->shards[shard];
	if (!mailbox_put(&s->mail_in, mail))
		return false;
	/* The control thread never runs a shard: it wakes the thread that does. */
	shard_wake(s);
	return true;
}

static bool take(void *ctx, unsigned shard, struct mail *mail)
{
	struct far_agent *a = ctx;
	return mailbox_get(&a->shards[shard]->mail_out, mail);
}

/* Running handlers of one-way messages, which may call through any shard. */
static uint64_t oneways(const struct far_agent *a)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < a->shards_n; i++)
		n += atomic_load_explicit(&a->shards[i]->oneways_n, memory_order_acquire); /* oneway_ended() */
	return n;
}

/* Tasks and references being released, which may send. */
static uint64_t tasks(const struct far_agent *a)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < a->shards_n; i++)
		n += atomic_load_explicit(&a->shards[i]->tasks_n, memory_order_acquire) +
		     atomic_load_explicit(&a->shards[i]->rrefs->releasing_n, memory_order_acquire);
	return n;
}

static uint64_t begun(void *ctx)
{
	const struct far_agent *a = ctx;
	uint64_t n = 0;
	for (unsigned i = 0; i < a->shards_n; i++) {
		const struct shard_counters *c = &a->shards[i]->counters;
		/* Acquire: read before the outstanding calls. */
		n += atomic_load_explicit(&c->calls_sent, memory_order_acquire) +
		     atomic_load_explicit(&c->sends_begun, memory_order_acquire);
	}
	return n;
}

static uint64_t outstanding(void *ctx)
{
	struct far_agent *a = ctx;
	/* Read before and after the calls. Handlers and tasks begin calls; calls of this worker to itself begin
	 * handlers, and completions of calls begin tasks. If a call began meanwhile, one may have been missed. */
	uint64_t began = begun(a), n = oneways(a) + tasks(a);
	for (unsigned i = 0; i < a->shards_n; i++) {
		/* In the order in which a call passes them: submission ring, calls that wait for a session, call
		 * slots. A call that moves on in between is counted twice, never missed. */
		struct shard *s = a->shards[i];
		const struct shard_counters *c = &s->counters;
		n += submit_waiting(&s->submit);
		uint32_t fanouts_ended = atomic_load_explicit(&s->fanouts_ended, memory_order_acquire);
		n += atomic_load_explicit(&s->fanouts_begun, memory_order_relaxed) - fanouts_ended;
		n += atomic_load_explicit(&c->calls_waiting, memory_order_acquire);
		uint64_t ended = atomic_load_explicit(&c->calls_returned, memory_order_acquire);
		uint64_t sends_ended = atomic_load_explicit(&c->sends_ended, memory_order_acquire);
		uint64_t sends = atomic_load_explicit(&c->sends_begun, memory_order_relaxed) - sends_ended;
		/* Deliveries are acknowledged in batches: make the shard request an acknowledgement. */
		if (sends) {
			atomic_store_explicit(&s->acks_requested, true, memory_order_relaxed);
			shard_wake(s);
		}
		n += sends + atomic_load_explicit(&c->calls_sent, memory_order_relaxed) - ended;
	}
	if (!n)
		n = oneways(a) + tasks(a) + atomic_load_explicit(&a->has_work, memory_order_acquire);
	return n ? n : begun(a) != began;
}

static bool no_mail_put(void *ctx, unsigned shard, const struct mail *mail)
{
	(void)ctx, (void)shard, (void)mail;
	return false;
}

static bool no_mail_get(void *ctx, unsigned shard, struct mail *mail)
{
	(void)ctx, (void)shard, (void)mail;
	return false;
}

static uint64_t no_calls(void *ctx)
{
	(void)ctx;
	return 0;
}

void agent_ports_refused(struct init *in, const struct far_err *why)
{
	const struct far_opts *o = &in->opts;
	struct far_err ignored;
	struct ctl *ctl;
	struct ctl_config config = {
		.name = in->name,
		.rank = in->rank,
		.world = in->world,
		.members_max = o->members_max,
		.init_method = o->init_method,
		.group = o->group,
		.incarnation = agent_incarnation(in->a),
		.init_timeout_ns =
			o->init_timeout_ns < FAR_STORE_REFUSED_NS ? o->init_timeout_ns : FAR_STORE_REFUSED_NS,
		.shards = o->shards,
		.key = in->key,
		.random = &random_kernel,
		.refused = why,
		.clock = in->a->clock,
		.net = ctl_net_os_create(),
		.post = no_mail_put,
		.take = no_mail_get,
		.outstanding = no_calls,
		.begun = no_calls,
	};
	if (!config.net)
		return;
	if (ctl_create(&ctl, &config, &ignored)) {
		config.net->ops->destroy(config.net);
		return;
	}
	if (ctl_start(ctl, &ignored) == FAR_OK)
		ctl_wait_settled(ctl, &ignored);
	ctl_destroy(ctl);
}

static uint32_t silent_ports(const struct far_agent *a)
{
	uint32_t silent = 0;
	for (unsigned i = 0; i < a->ports.n; i++)
		silent |= (uint32_t)(a->ports.at[i]->ops->queue(a->ports.at[i], 0)->ops->set_liveness_callback != NULL)
			  << i;
	return silent;
}

static void incarnation_renewed(void *ctx, uint64_t incarnation)
{
	struct far_agent *a = ctx;
	atomic_store_explicit(&a->incarnation, incarnation, memory_order_relaxed);
}

enum far_status agent_init_ctl(struct init *in)
{
	struct far_agent *a = in->a;
	struct ctl_config config = {
		.name = in->name,
		.rank = in->rank,
		.world = in->world,
		.members_max = in->opts.members_max,
		.init_method = in->opts.init_method,
		.group = in->opts.group,
		.incarnation = agent_incarnation(a),
		.lease_ns = in->opts.lease_ns,
		.lease = &a->lease,
		.init_timeout_ns = in->opts.init_timeout_ns,
		.shards = in->opts.shards,
		.lazy = in->opts.connect == FAR_CONNECT_LAZY,
		.message_bytes_max = in->opts.max_message_bytes,
		.key = in->key,
		.group_key = &a->key,
		.random = in->env ? in->env->random : &random_kernel,
		.clock = a->clock,
		.net = in->env ? in->env->net : ctl_net_os_create(),
		.ports = a->ports.at,
		.ports_n = a->ports.n,
		.private_n = a->ports.n - a->ports.published,
		.self = a->ports.self,
		.silent = silent_ports(a),
		.post = post,
		.take = take,
		.outstanding = outstanding,
		.begun = begun,
		.changed = in->env ? NULL : agent_state_changed,
		.members_changed = members_on_change,
		.renewed = incarnation_renewed,
		.ctx = a,
	};
	if (!config.net)
		return err_sys(in->err, errno, "cannot create the control thread's sockets");
	enum far_status status = ctl_create(&a->ctl, &config, in->err);
	if (status) {
		if (!in->env)
			config.net->ops->destroy(config.net);
		return status;
	}
	if (in->env)
		in->env->net = NULL; /* owned by `ctl` */
	a->members = ctl_members(a->ctl, &a->world);
	a->rank = ctl_rank(a->ctl);
	a->dynamic = ctl_is_dynamic(a->ctl);
	snprintf(a->name, sizeof a->name, "%s", in->name);
	return FAR_OK;
}

void agent_fini_ctl(struct far_agent *a)
{
	ctl_destroy(a->ctl);
	members_free(a);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Start and stop of an agent: far_init_rpc(), far_shutdown(), and the table of start-up steps. Application threads. */
#include "agent/agent.h"
#include "agent/init.h"

#include "agent/metrics.h"
#include "api/plugin.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/sized.h"
#include "builtin/builtin.h"
#include "builtin/gather.h"
#include "builtin/rref_bytes.h"
#include "core/context.h"
#include "core/shard.h"
#include "features/faults/fault.h"
#include "features/features.h"
#include "features/metrics/added.h"
#include "features/references/rref.h"
#include "features/rendezvous/rendezvous.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANK_TRIES_MAX 64 /* attempts to join with a free rank; from the second on, one of 2 to 16 is chosen */

/* Agents of this process, to reject a second one of the same name. Start and stop only. */
static pthread_mutex_t agents_lock = PTHREAD_MUTEX_INITIALIZER;
static struct far_agent *agents;

static void name_of(const struct far_agent *a, uint32_t rank, char *name)
{
	ctl_member_name(&a->members[rank], name);
}

/* `alive` is published after the mail that ends the former incarnation's sessions. */
static bool renewed(const struct far_agent *a, uint32_t rank, uint64_t incarnation)
{
	const struct ctl_member *m = &a->members[rank];
	return atomic_load_explicit(&m->alive, memory_order_acquire) &&
	       rref_incarnation(rank, atomic_load_explicit(&m->incarnation, memory_order_relaxed)) != incarnation;
}

static void wake_ctl(void *ctx)
{
	struct far_agent *a = ctx;
	ctl_wake(a->ctl);
}

/* ---- start-up steps ---- */

static enum far_status init_registry(struct init *in)
{
	registry_init(&in->a->registry);
	enum far_status status = builtin_register(&in->a->registry, in->err);
	for (size_t i = 0; i < in->opts.types_n && !status; i++)
		status = registry_add_type(&in->a->registry, &in->opts.types[i], in->err);
	for (size_t i = 0; i < in->opts.classes_n && !status; i++)
		status = registry_add_class(&in->a->registry, &in->opts.classes[i], object_enter, NULL, in->err);
	for (size_t i = 0; i < in->opts.functions_n && !status; i++)
		status = registry_add(&in->a->registry, &in->opts.functions[i], in->err);
	for (size_t i = 0; i < in->opts.messages_n && !status; i++)
		status = registry_add_message(&in->a->registry, &in->opts.messages[i], in->err);
	for (size_t i = 0; i < in->opts.placements_n && !status; i++)
		status = registry_add_placement(&in->a->registry, &in->opts.placements[i], in->err);
	if (status)
		registry_fini(&in->a->registry);
	return status;
}

static void fini_registry(struct far_agent *a)
{
	registry_fini(&a->registry);
	plugins_end(a);
}

static void fini_ports(struct far_agent *a)
{
	ports_close(&a->ports);
	a->world = 0; /* a release callback that sends gets an error */
	atomic_store_explicit(&a->plain_world, 0, memory_order_relaxed);
	zero_copy_end(a->zero_copies);
	mems_fini(&a->mems);
}

static enum far_status init_ports(struct init *in)
{
	const struct ports_config config = {.nic = in->opts.nic,
					    .listen = in->opts.listen,
					    .advertise = in->opts.advertise,
					    .checksum = in->opts.checksum,
					    .id = agent_incarnation(in->a),
					    .peer_limit_ns = in->opts.peer_limit_ns,
					    .any_user = in->key.kind == KEY_NONE,
					    .beyond_host = in->key.kind != KEY_AUTO,
					    .key = in->key.kind == KEY_NONE ? NULL : &in->a->key,
					    .queues = in->opts.shards,
					    .env = in->env};
	struct far_err err = {.status = FAR_OK};
	enum far_status status =
		in->env ? ports_adopt(&config, &in->a->ports, &err) : ports_open(&config, &in->a->ports, &err);
	if (!status) {
		mems_init(&in->a->mems);
		return FAR_OK;
	}
	if (!in->env)
		agent_ports_refused(in, &err);
	if (in->err)
		*in->err = err;
	return status;
}

static void fini_shards(struct far_agent *a)
{
	while (a->shards_n) {
		struct shard *s = a->shards[--a->shards_n];
		a->zero_copies = zero_copy_hand_to_agent(s, a->zero_copies);
		shard_destroy(s);
	}
}

static enum far_status init_listed(struct init *in)
{
	struct far_agent *a = in->a, *other = NULL;
	snprintf(a->identity, sizeof a->identity, "%s", ctl_identity(a->ctl));
	if (in->env) /* simulated groups in one process may have the same names */
		return FAR_OK;
	intercept_on_change(agents_intercepted);
	pthread_mutex_lock(&agents_lock);
	for (other = agents; other && strcmp(other->identity, a->identity) != 0; other = other->next)
		;
	if (!other) {
		a->next = agents;
		agents = a;
	}
	pthread_mutex_unlock(&agents_lock);
	if (!other)
		return FAR_OK;
	err_set(in->err, FAR_ALREADY_INITIALIZED,
		"RPC is already initialized for %s in this process; shut that agent down first", a->identity);
	if (in->err && in->expanded[0])
		in->err->code = EEXIST; /* with another free rank the name is another */
	return FAR_ALREADY_INITIALIZED;
}

void agents_intercepted(struct far_agent *agent)
{
	pthread_mutex_lock(&agents_lock);
	for (struct far_agent *a = agent ? agent : agents; a; a = agent ? NULL : a->next)
		agent_set_timeout(a, atomic_load_explicit(&a->rpc_timeout_ns, memory_order_relaxed));
	pthread_mutex_unlock(&agents_lock);
}

static void fini_listed(struct far_agent *a)
{
	pthread_mutex_lock(&agents_lock);
	for (struct far_agent **at = &agents; *at; at = &(*at)->next)
		if (*at == a) {
			*at = a->next;
			break;
		}
	pthread_mutex_unlock(&agents_lock);
}

static enum far_status init_kinds(struct init *in)
{
	return agent_kinds_init(in->a, &in->opts, in->err);
}

static struct shard_port port_of_shard(struct nic_port *port, unsigned shard)
{
	struct nic_caps caps;
	port->ops->caps(port, &caps);
	return (struct shard_port){port->ops->queue(port, shard), caps.slots, caps.peers_max, caps.poll_costs};
}

static enum far_status init_shards(struct init *in)
{
	struct far_agent *a = in->a;
	struct shard_config config = {
		.agent = a,
		.ports_n = a->ports.n,
		.world = (uint32_t)a->world,
		.name = a->name,
		.clock = a->clock,
		.registry = &a->registry,
		.features = engine_features,
		.progress = in->opts.progress,
		.idle = in->opts.idle,
		.cpu_scarce = a->cpu_scarce,
		.stepped = a->stepped,
		.blocking = &a->blocking,
		.message_bytes_max = in->opts.max_message_bytes,
		.limits = {.submit_slots = a->limits.submit_slots,
			   .mailbox_slots = a->limits.mailbox_slots,
			   .calls = a->limits.calls,
			   .deferred = a->limits.deferred,
			   .peer_calls = a->limits.peer_calls,
			   .peer_waiting = a->limits.peer_waiting,
			   .retry_window = a->limits.retry_window},
		.ctl_wake = wake_ctl,
		.ctl_ctx = a,
		.closing = gathers_end,
		.place = message_reply_buffer,
		.complete = agent_complete,
		.future_done = agent_done_future,
		.name_of = name_of,
		.renewed = renewed,
		.rank = (uint32_t)a->rank,
		.incarnation = agent_incarnation(a),
		.lease = a->dynamic ? &a->lease : NULL,
		.faults = a->faults,
		.rref_retry_ns = a->rref_retry_ns,
	};
	enum far_status sampled = agent_sample_every(&config.sample_every, in->err);
	if (sampled)
		return sampled;
	a->started_ns = clock_now(a->clock);
	for (unsigned i = 0; i < in->opts.shards; i++) {
		config.index = i;
		for (unsigned p = 0; p < a->ports.n; p++)
			config.ports[p] = port_of_shard(a->ports.at[p], i);
		if (!(a->shards[i] = shard_create(&config))) {
			fini_shards(a);
			return err_set(in->err, FAR_RESOURCE, "out of memory for the tables of %u shards",
				       in->opts.shards);
		}
		a->shards_n = i + 1;
	}
	return FAR_OK;
}

static enum far_status init_gathers(struct init *in)
{
	in->a->gathers = gathers_create();
	return in->a->gathers ? FAR_OK : err_set(in->err, FAR_RESOURCE, "out of memory");
}

static void fini_gathers(struct far_agent *a)
{
	gathers_destroy(a->gathers);
}

static enum far_status init_kept(struct init *in)
{
	in->a->kept = rref_keep_create();
	return in->a->kept ? FAR_OK : err_set(in->err, FAR_RESOURCE, "out of memory");
}

static void fini_kept(struct far_agent *a)
{
	rref_keep_destroy(a->kept);
}

static enum far_status init_faults(struct init *in)
{
	in->a->faults = faults_create();
	return in->a->faults ? FAR_OK : err_set(in->err, FAR_RESOURCE, "out of memory");
}

static void fini_faults(struct far_agent *a)
{
	faults_destroy(a->faults);
}

static enum far_status init_names(struct init *in)
{
	struct far_agent *a = in->a;
	a->names_n = 4;
	while (a->names_n < 2 * (uint32_t)a->world)
		a->names_n *= 2;
	a->by_name = calloc(a->names_n, sizeof *a->by_name);
	if (!a->by_name)
		return err_set(in->err, FAR_RESOURCE, "out of memory");
	return FAR_OK;
}

/* Fills the table of names. Handlers may run before: they search the members until `named` is set. In a dynamic group
 * lookups always search them. */
void agent_names_known(struct far_agent *a)
{
	for (int r = 0; r < a->world && !a->dynamic; r++) {
		const char *name = a->members[r].name;
		uint32_t i = (uint32_t)hash64(name, strlen(name)) & (a->names_n - 1);
		while (a->by_name[i])
			i = (i + 1) & (a->names_n - 1);
		a->by_name[i] = (uint32_t)r + 1;
	}
	bool one_each = !a->dynamic;
	for (int r = 0; r < a->world; r++)
		one_each &= a->members[r].shards == 1;
	atomic_store_explicit(&a->plain_world, one_each ? (uint32_t)a->world : 0, memory_order_relaxed);
	atomic_store_explicit(&a->named, true, memory_order_release);
}

static enum far_status init_named(struct init *in)
{
	agent_names_known(in->a);
	return FAR_OK;
}

static enum far_status init_members(struct init *in)
{
	(void)in; /* begun by the first use */
	return FAR_OK;
}

static void fini_names(struct far_agent *a)
{
	free(a->by_name);
}

static const struct {
	const char *name;
	enum far_status (*init)(struct init *in);
	void (*fini)(struct far_agent *a);
} steps[] = {
	/* clang-format off */
	{"options", agent_init_options, NULL},
	{"key", agent_init_key, agent_fini_key},
	{"rank", store_free_rank, NULL},
	{"name", agent_init_name, NULL},
	{"registry", init_registry, fini_registry},
	{"ports", init_ports, fini_ports},
	{"ctl", agent_init_ctl, agent_fini_ctl},
	{"listed", init_listed, fini_listed},
	{"gathers", init_gathers, fini_gathers},
	{"kept", init_kept, fini_kept},
	{"faults", init_faults, fini_faults},
	{"shards", init_shards, fini_shards},
	{"names", init_names, fini_names},
	{"kinds", init_kinds, agent_kinds_fini},
	/* with threads only */
	{"plugins", plugins_receive, NULL},
	{"pollers", agent_init_pollers, agent_fini_pollers},
	{"metrics", agent_init_metrics, agent_fini_metrics},
	{"join", agent_init_join, agent_fini_join},
	{"named", init_named, NULL},
	{"profile", profile_env_begin, profile_env_end},
	{"members", init_members, members_end},
	/* clang-format on */
};
#define STEPS         (sizeof steps / sizeof *steps)
#define STEPS_STEPPED (STEPS - 7) /* without threads */

static void undo(struct far_agent *a, size_t done)
{
	while (done)
		if (steps[--done].fini)
			steps[done].fini(a);
	metrics_added_free(&a->added);
	free(a);
}

enum far_status agent_init(struct init *in, const char *what, const struct far_opts *opts, struct far_agent **agent)
{
	size_t all = in->env ? STEPS_STEPPED : STEPS;
	if (!agent || !in->name)
		return err_set(in->err, FAR_INVALID, "%s: name and agent must not be NULL", what);
	if (opts && !sized_in(&in->opts, sizeof in->opts, opts, in->opts_bytes))
		return err_set(
			in->err, FAR_UNSUPPORTED,
			"%s: an option is set that farcall %s does not have (struct far_opts has %zu bytes, here %zu); "
			"install the version that the program was built for",
			what, FAR_VERSION, in->opts_bytes, sizeof in->opts);
	in->a = calloc(1, sizeof *in->a);
	if (!in->a)
		return err_set(in->err, FAR_RESOURCE, "out of memory");
	in->a->stepped = in->env != NULL;
	in->a->env_ctx = in->env ? in->env->ctx : NULL;
	for (size_t i = 0; i < all; i++) {
		enum far_status status = steps[i].init(in);
		if (status) {
			undo(in->a, i);
			return status;
		}
	}
	*agent = in->a;
	return FAR_OK;
}

/* True if a library of this version has all that the headers of `version` declare. */
static bool version_covers(uint32_t version)
{
	return version / 1000 <= FAR_VERSION_NUMBER / 1000;
}

enum far_status far_init_rpc_sized(uint32_t version, const char *name, int rank, int world_size,
				   const struct far_opts *opts, size_t opts_bytes, struct far_agent **agent,
				   struct far_err *err)
{
	struct far_err own = {0};
	enum far_status status = FAR_OK;
	bool again = true;
	if (!version_covers(version))
		return err_set(
			err, FAR_UNSUPPORTED,
			"the program was built with the headers of farcall %u.%u.%u, and the library is %s; install "
			"libfarcall %u.%u or later",
			version / 1000000, version / 1000 % 1000, version % 1000, FAR_VERSION, version / 1000000,
			version / 1000 % 1000);
	for (unsigned tries = 0; again; tries++) {
		struct init in = {.name = name,
				  .rank = rank,
				  .world = world_size,
				  .tries = tries,
				  .opts_bytes = opts_bytes,
				  .err = err ? err : &own};
		status = agent_init(&in, "far_init_rpc", opts, agent);
		auth_erase(&in.key, sizeof in.key);
		/* Another worker has taken the free rank meanwhile. */
		again = status && in.rank_was_open && in.err->code == EEXIST && tries < RANK_TRIES_MAX;
	}
	return status;
}

void agent_fini_stepped(struct far_agent *a)
{
	undo(a, STEPS_STEPPED);
}

enum far_status agent_check_end(struct far_agent *agent, const char *what, struct far_err *err)
{
	if (!agent)
		return err_set(err, FAR_SHUTDOWN, "RPC has not been initialized: the agent is NULL");
	if (agent->stepped)
		return err_set(err, FAR_UNSUPPORTED,
			       "the agent of \"%s\" has no threads, so %s cannot wait for it; call agent_leave() and "
			       "agent_destroy()",
			       agent->name, what);
	enum far_status status = agent_may_wait(what, err);
	if (!status && members_thread_is_this(agent))
		status = err_set(
			err, FAR_WOULD_DEADLOCK,
			"%s in a callback of far_on_member() would wait for the callback itself; call it on the "
			"main thread",
			what);
	if (!status && shard_request())
		status = err_set(err, FAR_WOULD_DEADLOCK,
				 "%s in a handler would wait for the handler itself; call it on the main thread", what);
	for (unsigned i = 0; i < agent->shards_n && !status; i++)
		agent_shard_release(agent->shards[i]);
	return status;
}

void agent_keep_leaks(struct far_agent *agent)
{
	for (unsigned i = 0; i < agent->shards_n; i++)
		atomic_store_explicit(&agent->shards[i]->rrefs->leaving, true, memory_order_release);
}

enum far_status far_shutdown(struct far_agent *agent, uint64_t timeout_ns, struct far_err *err)
{
	enum far_status status = agent_check_end(agent, "far_shutdown", err);
	if (status)
		return status;
	struct rref_leaks leaks = {.serves = agent->serves};
	bool fails = agent->leaks == FAR_LEAKS_FAIL;
	agent_keep_leaks(agent);
	atomic_store_explicit(&agent->has_work, false, memory_order_release);
	ctl_leave(agent->ctl, timeout_ns ? timeout_ns : FAR_SHUTDOWN_TIMEOUT_NS);
	status = agent_wait_settled(agent, err);
	leaks.lost = status != FAR_OK;
	for (unsigned i = 0; i < agent->shards_n && agent->leaks != FAR_LEAKS_IGNORE; i++)
		atomic_store_explicit(&agent->shards[i]->rrefs->leaks, &leaks, memory_order_release);
	undo(agent, STEPS);
	unsigned n = atomic_load_explicit(&leaks.named_n, memory_order_relaxed);
	if (status || !n || !fails)
		return status;
	return err_set(err, FAR_LEAKED, "%u remote references are still held: %s%s", n, leaks.first,
		       n > 1 ? "; stderr names the others" : "");
}

enum far_status far_shutdown_local(struct far_agent *agent, struct far_err *err)
{
	enum far_status status = agent_check_end(agent, "far_shutdown_local", err);
	if (!status)
		undo(agent, STEPS);
	return status;
}

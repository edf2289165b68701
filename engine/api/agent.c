/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/agent.h"

#include "api/builtin.h"
#include "api/limits.h"
#include "api/pin.h"
#include "api/quota.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/must.h"
#include "base/random.h"
#include "base/signals.h"
#include "shard/blocking.h"
#include "shard/fiber.h"
#include "xcore/physical.h"
#include "xcore/region.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Agents of this process, for "already initialized". Slow path. */
static pthread_mutex_t agents_lock = PTHREAD_MUTEX_INITIALIZER;
static struct far_agent *agents;

/* ---- what the control core needs of us ---- */

static bool post(void *ctx, unsigned shard, const struct mail *mail)
{
	struct far_agent *a = ctx;
	struct shard *s = a->shards[shard];
	struct mail m = *mail;
	if (m.type == MAIL_PEER_UP && !(m.memory = session_memory_new()))
		return false;
	if (!mailbox_put(&s->mail_in, &m)) {
		session_memory_free(m.memory);
		return false;
	}
	/* The control core never drives a shard: it wakes whoever does. */
	shard_wake(s);
	return true;
}

static bool take(void *ctx, unsigned shard, struct mail *mail)
{
	struct far_agent *a = ctx;
	if (!mailbox_get(&a->shards[shard]->mail_out, mail))
		return false;
	session_memory_free(mail->memory);
	mail->memory = NULL;
	return true;
}

static uint64_t outstanding(void *ctx)
{
	struct far_agent *a = ctx;
	uint64_t n = 0;
	for (unsigned i = 0; i < a->shards_n; i++) {
		/* In the order of a call's way, from the ring to those that wait for a session to the slots: one that
		 * moves on in between is seen twice, never missed. */
		struct shard *s = a->shards[i];
		const struct shard_counters *c = &s->counters;
		n += submit_waiting(&s->submit);
		uint32_t fanouts_ended = atomic_load_explicit(&s->fanouts_ended, memory_order_acquire);
		n += atomic_load_explicit(&s->fanouts_begun, memory_order_relaxed) - fanouts_ended;
		n += atomic_load_explicit(&c->calls_waiting, memory_order_acquire);
		uint64_t ended = atomic_load_explicit(&c->calls_ended, memory_order_acquire);
		uint64_t sends_ended = atomic_load_explicit(&c->sends_ended, memory_order_acquire);
		uint64_t sends = atomic_load_explicit(&c->sends_begun, memory_order_relaxed) - sends_ended;
		/* What was delivered is acknowledged now and then: the shard asks. */
		if (sends) {
			atomic_store_explicit(&s->ask, true, memory_order_relaxed);
			shard_wake(s);
		}
		n += sends + atomic_load_explicit(&c->calls_sent, memory_order_relaxed) - ended;
	}
	return n;
}

static void wake_ctl(void *ctx)
{
	struct far_agent *a = ctx;
	ctl_wake(a->ctl);
}

/* How long a shutdown waits for threads that are, by contract, no longer there. */
#define LAST_VISITS_NS FAR_SEC

/* ---- init, as a table: each step with what undoes it ---- */

struct init {
	struct far_agent *a;
	const char *name;
	int rank, world;
	struct far_opts opts;
	struct far_err *err;
};

static uint64_t half_of_memory(void)
{
	uint64_t half = physical_bytes(CGROUP_SELF, CGROUP_ROOT) / 2;
	return half > FAR_MSG_WHOLE_MAX ? half : FAR_MSG_WHOLE_MAX;
}

static enum far_status init_options(struct init *in)
{
	struct far_opts *o = &in->opts;
	if (o->key_file)
		return err_set(in->err, FAR_UNSUPPORTED,
			       "a group key (%s) was given, but keys are not supported yet; leave it out to serve "
			       "loopback and "
			       "the same user only",
			       o->key_file);
	if (o->security && strcmp(o->security, "none") != 0)
		return err_set(in->err, FAR_INVALID, "security is \"%s\"; it can be \"none\" or left out", o->security);
	if (o->shards == 0)
		o->shards = 1;
	if (o->shards > FAR_SHARDS_MAX)
		return err_set(in->err, FAR_INVALID, "%u shards were asked for; a worker has 1 to %d", o->shards,
			       FAR_SHARDS_MAX);
	if ((unsigned)o->driver > FAR_DRIVER_OWN || (unsigned)o->idle > FAR_IDLE_BUSY ||
	    (unsigned)o->connect > FAR_CONNECT_LAZY)
		return err_set(in->err, FAR_INVALID, "options: driver, idle or connect is out of range");
	enum far_status status = pin_check(o, in->err);
	if (status)
		return status;
	struct far_agent *a = in->a;
	status = limits_resolve(o, &a->limits, in->err);
	if (status)
		return status;
	a->fiber_stack_bytes = o->fiber_stack_bytes ? o->fiber_stack_bytes : FAR_STACK_BYTES;
	if (a->fiber_stack_bytes < FAR_STACK_MIN || a->fiber_stack_bytes > FAR_STACK_MAX)
		return err_set(in->err, FAR_INVALID,
			       "options: fiber_stack_bytes is %zu; it must be in [%zu, %zu], or 0 for %zu",
			       a->fiber_stack_bytes, FAR_STACK_MIN, FAR_STACK_MAX, FAR_STACK_BYTES);
	if (o->rpc_timeout_ns == 0)
		o->rpc_timeout_ns = FAR_RPC_TIMEOUT_NS;
	if (o->init_timeout_ns == 0)
		o->init_timeout_ns = FAR_INIT_TIMEOUT_NS;
	if (!o->group)
		o->group = "default";
	if (o->max_message_bytes == 0)
		o->max_message_bytes = half_of_memory();
	if (o->max_message_bytes < FAR_MESSAGE_LIMIT_MIN)
		return err_set(in->err, FAR_INVALID, "max_message_bytes is %llu; it must be at least %llu",
			       (unsigned long long)o->max_message_bytes, (unsigned long long)FAR_MESSAGE_LIMIT_MIN);
	if (o->max_message_bytes > FAR_MSG_BYTES_MAX)
		o->max_message_bytes = FAR_MSG_BYTES_MAX;
	if (o->idle == FAR_IDLE_BUSY)
		o->driver = FAR_DRIVER_OWN;
	o->idle = quota_heed(o->idle, o->shards, &a->cpu_scarce);
	future_reserve();
	if (region_reserve(in->err) == FAR_INVALID) /* with less memory than it wants, calls tell */
		return FAR_INVALID;
	in->a->clock = &clock_monotonic;
	in->a->driver = o->driver;
	in->a->incarnation = random_u64();
	atomic_store(&in->a->rpc_timeout_ns, o->rpc_timeout_ns);
	return ctl_check_name(in->name, in->err);
}

static enum far_status init_registry(struct init *in)
{
	enum far_status status = FAR_OK;
	registry_init(&in->a->registry);
	for (size_t i = 0; i < builtin_functions_n && !status; i++) {
		struct far_function builtin = builtin_functions[i];
		builtin.kind |= FAR_IDEMPOTENT; /* they compute and keep nothing */
		status = registry_add(&in->a->registry, &builtin, in->err);
	}
	for (size_t i = 0; i < in->opts.types_n && !status; i++)
		status = registry_add_type(&in->a->registry, &in->opts.types[i], in->err);
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
}

static void fini_ports(struct far_agent *a)
{
	ports_close(&a->ports);
}

static enum far_status init_ports(struct init *in)
{
	const struct ports_config config = {.nic = in->opts.nic,
					    .listen = in->opts.listen,
					    .advertise = in->opts.advertise,
					    .id = in->a->incarnation,
					    .peer_limit_ns = in->opts.peer_limit_ns,
					    .open_to_all = in->opts.security != NULL,
					    .queues = in->opts.shards};
	return ports_open(&config, &in->a->ports, in->err);
}

static void fini_shards(struct far_agent *a)
{
	while (a->shards_n)
		shard_destroy(a->shards[--a->shards_n]);
}

static uint32_t silent_ports(const struct far_agent *a)
{
	uint32_t silent = 0;
	for (unsigned i = 0; i < a->ports.n; i++)
		silent |= (uint32_t)(a->ports.at[i]->ops->queue(a->ports.at[i], 0)->ops->watch != NULL) << i;
	return silent;
}

/* The group's size is known once the control core has read the environment, so it is created first and started last. */
static enum far_status init_ctl(struct init *in)
{
	struct far_agent *a = in->a;
	struct ctl_config config = {
		.name = in->name,
		.rank = in->rank,
		.world = in->world,
		.init_method = in->opts.init_method,
		.group = in->opts.group,
		.incarnation = a->incarnation,
		.init_timeout_ns = in->opts.init_timeout_ns,
		.shards = in->opts.shards,
		.lazy = in->opts.connect == FAR_CONNECT_LAZY,
		.message_bytes_max = in->opts.max_message_bytes,
		.open_to_all = in->opts.security != NULL,
		.clock = a->clock,
		.net = ctl_net_os_create(),
		.ports = a->ports.at,
		.ports_n = a->ports.n,
		.private_n = a->ports.n - a->ports.published,
		.self = a->ports.self,
		.silent = silent_ports(a),
		.post = post,
		.take = take,
		.outstanding = outstanding,
		.ctx = a,
	};
	if (!config.net)
		return err_sys(in->err, errno, "cannot create the control core's sockets");
	enum far_status status = ctl_create(&a->ctl, &config, in->err);
	if (status) {
		config.net->ops->destroy(config.net);
		return status;
	}
	a->members = ctl_members(a->ctl, &a->world);
	a->rank = ctl_rank(a->ctl);
	snprintf(a->name, sizeof a->name, "%s", in->name);
	return FAR_OK;
}

static void fini_ctl(struct far_agent *a)
{
	ctl_destroy(a->ctl);
}

static enum far_status init_listed(struct init *in)
{
	struct far_agent *a = in->a, *other;
	snprintf(a->identity, sizeof a->identity, "%s", ctl_identity(a->ctl));
	pthread_mutex_lock(&agents_lock);
	for (other = agents; other && strcmp(other->identity, a->identity) != 0; other = other->next)
		;
	if (!other) {
		a->next = agents;
		agents = a;
	}
	pthread_mutex_unlock(&agents_lock);
	return other ? err_set(in->err, FAR_ALREADY_INITIALIZED,
			       "RPC is already initialized for %s in this process; shut that agent down first",
			       a->identity)
		     : FAR_OK;
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
		.driver = in->opts.driver,
		.idle = in->opts.idle,
		.cpu_scarce = a->cpu_scarce,
		.blocking = &a->blocking,
		.message_bytes_max = in->opts.max_message_bytes,
		.limits = {.submit_slots = a->limits.submit_slots,
			   .mailbox_slots = a->limits.mailbox_slots,
			   .calls = a->limits.calls,
			   .deferred = a->limits.deferred,
			   .peer_calls = a->limits.peer_calls,
			   .retry_window = a->limits.retry_window},
		.ctl_wake = wake_ctl,
		.ctl_ctx = a,
		.place = message_place,
	};
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

static int keeper_start(struct far_agent *a, unsigned i, const struct far_opts *opts)
{
	pthread_attr_t attr;
	sigset_t masked, before;
	char name[16];
	pthread_attr_init(&attr);
	int error = pin_attr(&attr, opts, i);
	signals_of_others(&masked);
	pthread_sigmask(SIG_SETMASK, &masked, &before);
	if (!error)
		error = pthread_create(&a->keepers[i], &attr, keeper_main, a->shards[i]);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (error)
		return error;
	snprintf(name, sizeof name, "far-shard%u", i);
	pthread_setname_np(a->keepers[i], name);
	a->keepers_n = i + 1;
	return 0;
}

/* Ends a keeper. Told until it has heard: a waiter on the same descriptor may swallow the wake-up, and the keeper may
 * be about to park (tests/models/stop.pml). */
static void keeper_stop(struct shard *s, pthread_t keeper)
{
	struct timespec until;
	atomic_store_explicit(&s->stop, true, memory_order_release);
	do {
		shard_wake(s);
		driver_unpark(&s->driver);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 2000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
	} while (pthread_timedjoin_np(keeper, NULL, &until) == ETIMEDOUT);
}

/* Ends everything that is pending, by this thread, which is the shard's last driver. */
static void shard_end(struct far_agent *a, struct shard *s)
{
	uint64_t give_up = clock_now(a->clock) + LAST_VISITS_NS;
	bool entered;
	while (!(entered = shard_enter(s)) && clock_now(a->clock) < give_up)
		sched_yield();
	if (!entered) {
		fprintf(stderr,
			"farcall: shutdown of \"%s\": another thread still holds shard %u (far_shard_acquire without "
			"far_shard_release, or a call in progress); going on without it\n",
			a->name, s->config.index);
		atomic_store(&s->driver.token, 0);
		entered = shard_enter(s);
	}
	shard_pass(s);
	session_close_all(s);
	uint32_t left = fiber_end_all(s, give_up);
	if (left)
		fprintf(stderr,
			"farcall: shutdown of \"%s\": %u handlers did not end though their waits were cancelled\n",
			a->name, left);
	shard_flush(s);
	shard_leave(s);
	/* Threads that have just handed in a deferred answer are about to leave. */
	while (atomic_load_explicit(&s->visitors, memory_order_acquire) && clock_now(a->clock) < give_up)
		sched_yield();
}

static void fini_keepers(struct far_agent *a)
{
	for (unsigned i = 0; i < a->keepers_n; i++)
		keeper_stop(a->shards[i], a->keepers[i]);
	a->keepers_n = 0;
	for (unsigned i = 0; i < a->shards_n; i++)
		shard_end(a, a->shards[i]);
}

static enum far_status init_keepers(struct init *in)
{
	struct far_agent *a = in->a;
	for (unsigned i = 0; i < a->shards_n; i++) {
		int error = keeper_start(a, i, &in->opts);
		if (error) {
			fini_keepers(a);
			return err_sys(in->err, error, "cannot start the thread of shard %u", i);
		}
	}
	return FAR_OK;
}

/* The control core has posted all sessions; they count once the shard has taken them in, which it does within a pass.
 */
static bool await_sessions(struct far_agent *a, struct shard *s, uint64_t until)
{
	uint32_t sessions = ctl_sessions(a->ctl);
	while (atomic_load_explicit(&s->sessions_opened, memory_order_acquire) < sessions) {
		if (clock_now(a->clock) > until)
			return false;
		if (a->driver == FAR_DRIVER_SHARED && shard_enter(s)) {
			shard_take_mail(s);
			shard_leave(s);
		} else {
			sched_yield();
		}
	}
	return true;
}

static enum far_status init_join(struct init *in)
{
	struct far_agent *a = in->a;
	uint64_t until = time_after(clock_now(a->clock), in->opts.init_timeout_ns);
	enum far_status status = ctl_start(a->ctl, in->err);
	if (status)
		return status;
	status = ctl_wait_settled(a->ctl, in->err);
	for (unsigned i = 0; i < a->shards_n && !status; i++)
		if (!await_sessions(a, a->shards[i], until))
			status = err_set(in->err, FAR_TIMEOUT,
					 "the sessions are up, but the driver of shard %u did not take them in", i);
	if (status)
		ctl_stop(a->ctl);
	return status;
}

static void fini_join(struct far_agent *a)
{
	ctl_stop(a->ctl);
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

/* Handlers may look names up from the first session on: until this is done they go through the members. */
static enum far_status init_named(struct init *in)
{
	struct far_agent *a = in->a;
	for (int r = 0; r < a->world; r++) {
		const char *name = a->members[r].name;
		uint32_t i = (uint32_t)hash64(name, strlen(name)) & (a->names_n - 1);
		while (a->by_name[i])
			i = (i + 1) & (a->names_n - 1);
		a->by_name[i] = (uint32_t)r + 1;
	}
	bool one_each = true;
	for (int r = 0; r < a->world; r++)
		one_each &= a->members[r].shards == 1;
	atomic_store_explicit(&a->plain_world, one_each ? (uint32_t)a->world : 0, memory_order_relaxed);
	atomic_store_explicit(&a->named, true, memory_order_release);
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
	{"options", init_options, NULL},
	{"registry", init_registry, fini_registry},
	{"ports", init_ports, fini_ports},
	{"ctl", init_ctl, fini_ctl},
	{"listed", init_listed, fini_listed},
	{"shards", init_shards, fini_shards},
	{"names", init_names, fini_names},
	{"kinds", init_kinds, agent_kinds_fini},
	{"keepers", init_keepers, fini_keepers},
	{"join", init_join, fini_join},
	{"named", init_named, NULL},
	/* clang-format on */
};
#define STEPS (sizeof steps / sizeof *steps)

static void undo(struct far_agent *a, size_t done)
{
	while (done)
		if (steps[--done].fini)
			steps[done].fini(a);
	free(a);
}

enum far_status far_init_rpc(const char *name, int rank, int world_size, const struct far_opts *opts,
			     struct far_agent **agent, struct far_err *err)
{
	struct init in = {.name = name, .rank = rank, .world = world_size, .err = err};
	if (!agent || !name)
		return err_set(err, FAR_INVALID, "far_init_rpc: name and agent must not be NULL");
	if (opts)
		in.opts = *opts;
	in.a = calloc(1, sizeof *in.a);
	if (!in.a)
		return err_set(err, FAR_RESOURCE, "out of memory");
	for (size_t i = 0; i < STEPS; i++) {
		enum far_status status = steps[i].init(&in);
		if (status) {
			undo(in.a, i);
			return status;
		}
	}
	*agent = in.a;
	return FAR_OK;
}

static enum far_status check_shutdown(struct far_agent *agent, struct far_err *err)
{
	if (!agent)
		return err_set(err, FAR_SHUTDOWN, "RPC has not been initialized: the agent is NULL");
	enum far_status status = agent_may_wait("far_shutdown", err);
	if (!status && shard_request())
		status = err_set(
			err, FAR_WOULD_DEADLOCK,
			"far_shutdown in a handler would wait for the handler itself; tell the main thread instead");
	for (unsigned i = 0; i < agent->shards_n && !status; i++)
		far_shard_release_at(agent, i);
	return status;
}

enum far_status far_shutdown(struct far_agent *agent, uint64_t timeout_ns, struct far_err *err)
{
	enum far_status status = check_shutdown(agent, err);
	if (status)
		return status;
	ctl_leave(agent->ctl, timeout_ns ? timeout_ns : FAR_SHUTDOWN_TIMEOUT_NS);
	status = ctl_wait_settled(agent->ctl, err);
	undo(agent, STEPS);
	return status;
}

enum far_status far_shutdown_local(struct far_agent *agent, struct far_err *err)
{
	enum far_status status = check_shutdown(agent, err);
	if (!status)
		undo(agent, STEPS);
	return status;
}

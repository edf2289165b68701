/* SPDX-License-Identifier: BSD-3-Clause */
#include "api/agent.h"

#include "api/builtin.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/must.h"
#include "base/random.h"
#include "base/signals.h"
#include "shard/blocking.h"
#include "shard/fiber.h"
#include "xcore/region.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Agents of this process, for "already initialized". Slow path. */
static pthread_mutex_t agents_lock = PTHREAD_MUTEX_INITIALIZER;
static struct far_agent *agents;

/* ---- what the control core needs of us ---- */

static bool post(void *ctx, const struct mail *mail)
{
	struct far_agent *a = ctx;
	if (!mailbox_put(&a->shard->mail_in, mail))
		return false;
	/* The control core never drives a shard: it wakes whoever does. */
	a->shard->ops->wake(a->shard->q);
	return true;
}

static bool take(void *ctx, struct mail *mail)
{
	struct far_agent *a = ctx;
	return mailbox_get(&a->shard->mail_out, mail);
}

static uint64_t outstanding(void *ctx)
{
	struct far_agent *a = ctx;
	/* What waits in the ring first: a call that moves from there to the shard in between is seen twice, never
	 * missed. */
	uint64_t waiting = submit_waiting(&a->shard->submit);
	const struct shard_counters *c = &a->shard->counters;
	uint64_t ended = atomic_load_explicit(&c->calls_ended, memory_order_acquire);
	return waiting + atomic_load_explicit(&c->calls_sent, memory_order_relaxed) - ended;
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
	if (o->shards > 1)
		return err_set(in->err, FAR_UNSUPPORTED, "%u shards were asked for; one per worker is supported yet",
			       o->shards);
	if ((unsigned)o->driver > FAR_DRIVER_OWN || (unsigned)o->idle > FAR_IDLE_BUSY || o->pin_cpu < 0)
		return err_set(in->err, FAR_INVALID, "options: driver, idle or pin_cpu is out of range");
	struct far_agent *a = in->a;
	a->fibers = o->fibers ? o->fibers : FAR_FIBERS;
	a->fiber_stack_bytes = o->fiber_stack_bytes ? o->fiber_stack_bytes : FAR_STACK_BYTES;
	a->blocking_threads = o->blocking_threads ? o->blocking_threads : FAR_BLOCKING;
	a->blocking_queue = o->blocking_queue ? o->blocking_queue : FAR_BLOCKING_QUEUE;
	if (a->fibers > FAR_FIBERS_MAX || a->fiber_stack_bytes < FAR_STACK_MIN || a->fiber_stack_bytes > FAR_STACK_MAX)
		return err_set(in->err, FAR_INVALID,
			       "options: %u fibers with stacks of %zu bytes; at most %u, with %zu to %zu bytes",
			       a->fibers, a->fiber_stack_bytes, FAR_FIBERS_MAX, FAR_STACK_MIN, FAR_STACK_MAX);
	if (a->blocking_threads > FAR_BLOCKING_MAX || a->blocking_queue > FAR_BLOCKING_QUEUE_MAX)
		return err_set(in->err, FAR_INVALID,
			       "options: %u blocking threads with a queue of %u; at most %u and %u",
			       a->blocking_threads, a->blocking_queue, FAR_BLOCKING_MAX, FAR_BLOCKING_QUEUE_MAX);
	while (a->blocking_queue & (a->blocking_queue - 1))
		a->blocking_queue += a->blocking_queue & -a->blocking_queue; /* to the next power of two */
	if (o->rpc_timeout_ns == 0)
		o->rpc_timeout_ns = FAR_RPC_TIMEOUT_NS;
	if (o->init_timeout_ns == 0)
		o->init_timeout_ns = FAR_INIT_TIMEOUT_NS;
	if (!o->group)
		o->group = "default";
	if (o->idle == FAR_IDLE_BUSY)
		o->driver = FAR_DRIVER_OWN;
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
	for (size_t i = 0; i < builtin_functions_n && !status; i++)
		status = registry_add(&in->a->registry, &builtin_functions[i], in->err);
	for (size_t i = 0; i < in->opts.functions_n && !status; i++)
		status = registry_add(&in->a->registry, &in->opts.functions[i], in->err);
	for (size_t i = 0; i < in->opts.messages_n && !status; i++)
		status = registry_add_message(&in->a->registry, &in->opts.messages[i], in->err);
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
	while (a->ports_n) {
		struct nic_port *port = a->ports[--a->ports_n];
		port->ops->close(port);
	}
}

static enum far_status init_ports(struct init *in)
{
	const char *want = in->opts.nic ? in->opts.nic : "auto";
	bool any = strcmp(want, "auto") == 0, known = any;
	struct nic_config config = {.id = in->a->incarnation,
				    .any_user = in->opts.security != NULL,
				    .queues = 1,
				    .head_bytes = sizeof(struct shm_head)};
	struct nic_err why = {"no driver is built in"};
	for (unsigned i = 0; nic_drivers[i] && in->a->ports_n < AGENT_PORTS_MAX; i++) {
		if (!any && strcmp(nic_drivers[i]->name, want) != 0)
			continue;
		known = true;
		if (nic_drivers[i]->open(&config, &in->a->ports[in->a->ports_n], &why) == 0)
			in->a->ports_n++;
	}
	if (!known)
		return err_set(in->err, FAR_INVALID, "there is no NIC driver \"%s\"; `farcall info` lists them", want);
	if (in->a->ports_n == 0)
		return err_set(in->err, FAR_UNREACHABLE, "no NIC could be opened: %s", why.text);
	return FAR_OK;
}

static void fini_shard(struct far_agent *a)
{
	shard_destroy(a->shard);
	a->shard = NULL;
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
		.shards = 1,
		.open_to_all = in->opts.security != NULL,
		.clock = a->clock,
		.net = ctl_net_os_create(),
		.ports = a->ports,
		.ports_n = a->ports_n,
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

static enum far_status prepare_kind(struct far_agent *a, enum far_kind kind, struct far_err *err)
{
	if (kind == FAR_KIND_FIBER)
		return fiber_pool_add(a->shard, a->fibers, a->fiber_stack_bytes, err);
	if (kind != FAR_KIND_BLOCKING || atomic_load_explicit(&a->blocking, memory_order_relaxed))
		return FAR_OK;
	struct blocking_pool *pool;
	enum far_status status = blocking_create(&pool, a->blocking_threads, a->blocking_queue, err);
	if (!status) /* pairs with the acquire in blocking_start() */
		atomic_store_explicit(&a->blocking, pool, memory_order_release);
	return status;
}

enum far_status agent_prepare_kind(struct far_agent *a, enum far_kind kind, struct far_err *err)
{
	pthread_mutex_lock(&a->kinds_lock);
	enum far_status status = prepare_kind(a, kind, err);
	pthread_mutex_unlock(&a->kinds_lock);
	return status;
}

/* The shards are driven by nobody any more, and every call has ended. Blocking handlers may still run. */
static void fini_kinds(struct far_agent *a)
{
	struct blocking_pool *pool = atomic_load_explicit(&a->blocking, memory_order_relaxed);
	if (pool) {
		blocking_stop(pool);
		blocking_destroy(pool);
	}
	pthread_mutex_destroy(&a->kinds_lock);
}

static enum far_status init_kinds(struct init *in)
{
	enum far_status status = FAR_OK;
	pthread_mutex_init(&in->a->kinds_lock, NULL);
	for (size_t i = 0; i < in->opts.functions_n && !status; i++)
		status = prepare_kind(in->a, in->opts.functions[i].kind, in->err);
	for (size_t i = 0; i < in->opts.messages_n && !status; i++)
		status = prepare_kind(in->a, in->opts.messages[i].kind, in->err);
	if (status)
		fini_kinds(in->a);
	return status;
}

static enum far_status init_shard(struct init *in)
{
	struct far_agent *a = in->a;
	struct nic_caps caps;
	a->ports[0]->ops->caps(a->ports[0], &caps);
	struct shard_config config = {
		.agent = a,
		.queue = a->ports[0]->ops->queue(a->ports[0], 0),
		.queue_slots = caps.slots,
		.peers_max = caps.peers_max,
		.world = (uint32_t)a->world,
		.name = a->name,
		.clock = a->clock,
		.registry = &a->registry,
		.driver = in->opts.driver,
		.idle = in->opts.idle,
		.blocking = &a->blocking,
		.ctl_wake = wake_ctl,
		.ctl_ctx = a,
	};
	a->shard = shard_create(&config);
	return a->shard ? FAR_OK : err_set(in->err, FAR_RESOURCE, "out of memory for the shard's tables");
}

static enum far_status init_keeper(struct init *in)
{
	struct far_agent *a = in->a;
	pthread_attr_t attr;
	sigset_t masked, before;
	pthread_attr_init(&attr);
	int error = 0;
	if (in->opts.pin_cpu) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET((size_t)in->opts.pin_cpu - 1, &set);
		error = pthread_attr_setaffinity_np(&attr, sizeof set, &set);
	}
	signals_of_others(&masked);
	pthread_sigmask(SIG_SETMASK, &masked, &before);
	if (!error)
		error = pthread_create(&a->keeper, &attr, keeper_main, a->shard);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (error)
		return err_sys(in->err, error, "cannot start the shard's thread%s",
			       in->opts.pin_cpu ? " (is pin_cpu one of this process's CPUs?)" : "");
	pthread_setname_np(a->keeper, "far-shard0");
	a->keeper_started = true;
	return FAR_OK;
}

/* Ends the keeper, then everything that is pending, by this thread, which is the shard's last driver. */
static void fini_keeper(struct far_agent *a)
{
	struct shard *s = a->shard;
	atomic_store_explicit(&s->stop, true, memory_order_release);
	/* Told until it has heard: a waiter on the same descriptor may swallow the wake-up, and the keeper may be about
	 * to park (tests/models/stop.pml). */
	struct timespec until;
	do {
		s->ops->wake(s->q);
		driver_unpark(&s->driver);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 2000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
	} while (pthread_timedjoin_np(a->keeper, NULL, &until) == ETIMEDOUT);
	uint64_t give_up = clock_now(a->clock) + LAST_VISITS_NS;
	bool entered;
	while (!(entered = shard_enter(s)) && clock_now(a->clock) < give_up)
		sched_yield();
	if (!entered) {
		fprintf(stderr,
			"farcall: shutdown of \"%s\": another thread still holds the shard (far_shard_acquire without "
			"far_shard_release, or a call in progress); going on without it\n",
			a->name);
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
	s->ops->flush(s->q);
	shard_leave(s);
	/* Threads that have just handed in a deferred answer are about to leave. */
	while (atomic_load_explicit(&s->visitors, memory_order_acquire) && clock_now(a->clock) < give_up)
		sched_yield();
}

static enum far_status init_join(struct init *in)
{
	struct far_agent *a = in->a;
	uint64_t until = time_after(clock_now(a->clock), in->opts.init_timeout_ns);
	enum far_status status = ctl_start(a->ctl, in->err);
	if (status)
		return status;
	status = ctl_wait_settled(a->ctl, in->err);
	/* The control core has posted all sessions; they count once the shard has taken them in, which it does within a
	 * pass. */
	while (!status && atomic_load_explicit(&a->shard->sessions_opened, memory_order_acquire) < (uint32_t)a->world) {
		if (a->driver == FAR_DRIVER_SHARED && shard_enter(a->shard)) {
			shard_take_mail(a->shard);
			shard_leave(a->shard);
		} else {
			sched_yield();
		}
		if (clock_now(a->clock) > until)
			status = err_set(in->err, FAR_TIMEOUT,
					 "the sessions are up, but the shard's driver did not take them in");
	}
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
	{"shard", init_shard, fini_shard},
	{"names", init_names, fini_names},
	{"kinds", init_kinds, fini_kinds},
	{"keeper", init_keeper, fini_keeper},
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
	if (!status && shard_held(agent->shard))
		far_shard_release(agent);
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

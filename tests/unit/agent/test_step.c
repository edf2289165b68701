/* SPDX-License-Identifier: BSD-3-Clause */
/* Agents without threads: stepped by hand, over a datagram driver and sockets in memory, under a clock that moves by
 * hand. */
#include "agent/agent.h"
#include "agent/env.h"
#include "core/shard.h"
#include "core/spawn.h"
#include "fake_dgram.h"
#include "fake_net.h"

#include <criterion/criterion.h>
#include <farcall/fanout.h>
#include <string.h>

enum { WORKERS = 3, ECHO = 1, SLOW = 2 };

struct group {
	struct fake_world *world;
	struct dgram_fabric fabric;
	struct random_source random;
	uint64_t drawn;
	struct far_agent *agent[WORKERS];
	unsigned n;
};

struct app {
	struct shard_task task;
	struct far_agent *agent;
	int to;
	uint32_t id;
	bool done;
	enum far_status status;
	struct far_err err;
};

static uint64_t draw(void *ctx)
{
	uint64_t *drawn = ctx;
	*drawn += UINT64_C(0x9e3779b97f4a7c15);
	return *drawn ^ *drawn >> 29;
}

static void due(void *ctx)
{
	(void)ctx; /* everybody is stepped all the time */
}

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

static unsigned slow_begun, slow_cancelled;

/* Waits for a call that is never answered. */
static void slow(struct far_req *req, const void *data, size_t len, void *user)
{
	struct far_future *never = NULL;
	struct far_err err;
	slow_begun++;
	if (far_future_create(&never, &err))
		return;
	enum far_status status = far_future_wait(never, FAR_FOREVER, NULL, &err);
	slow_cancelled += status == FAR_CANCELLED;
	far_future_free(never);
	far_reply(req, NULL, 0);
}

static const struct far_msg_handler handlers[] = {{.id = ECHO, .kind = FAR_KIND_INLINE, .fn = echo},
						  {.id = SLOW, .kind = FAR_KIND_FIBER, .fn = slow}};

static enum far_status create(struct group *g, unsigned rank, const struct far_opts *changes)
{
	struct far_opts opts = changes ? *changes : (struct far_opts){0};
	char name[16];
	struct far_err err = {0};
	struct nic_port *port = dgram_open(&g->fabric, opts.shards ? opts.shards : 1);
	struct agent_env env = {.clock = &g->world->clock,
				.random = &g->random,
				.net = fake_net_create(g->world),
				.ports = &port,
				.ports_n = 1,
				.ctl_due = due,
				.ctx = g};
	snprintf(name, sizeof name, "w%u", rank);
	opts.init_method = "tcp://127.0.0.1:7000";
	opts.fibers = 8;
	if (!opts.messages) {
		opts.messages = handlers;
		opts.messages_n = 2;
	}
	enum far_status status = agent_create_stepped(name, (int)rank, (int)g->n, &opts, &env, &g->agent[rank], &err);
	cr_assert(status == FAR_OK || err.text[0]);
	cr_assert(!env.net && !env.ports_n, "net and ports are the agent's, or closed");
	return status;
}

static void turn(struct group *g)
{
	g->world->now += 1000;
	for (unsigned i = 0; i < g->n; i++)
		if (g->agent[i])
			agent_step(g->agent[i], g->world->now);
}

static void begin(struct group *g, unsigned n, const struct far_opts *opts)
{
	memset(g, 0, sizeof *g);
	g->n = n;
	g->world = fake_world_create();
	g->random = (struct random_source){draw, &g->drawn};
	dgram_fabric_init(&g->fabric);
	for (unsigned i = 0; i < n; i++)
		cr_assert_eq(create(g, i, opts), FAR_OK);
	bool ready = false;
	for (unsigned turns = 0; turns < 200000 && !ready; turns++) {
		turn(g);
		ready = true;
		for (unsigned i = 0; i < n; i++) {
			cr_assert_neq(agent_state(g->agent[i]), AGENT_FAILED);
			ready &= agent_state(g->agent[i]) == AGENT_READY;
		}
	}
	cr_assert(ready);
}

static void finish(struct group *g)
{
	for (unsigned i = 0; i < g->n; i++)
		if (g->agent[i])
			cr_assert_eq(agent_destroy(g->agent[i]), 0);
	fake_world_destroy(g->world);
}

static void app_main(void *arg)
{
	struct app *app = arg;
	char reply[16];
	size_t len = 0;
	app->status = far_msg_call(app->agent, (struct far_to){app->to, -1}, app->id, "hello", 6, NULL, reply,
				   sizeof reply, &len, &app->err);
	if (app->status == FAR_OK && app->id == ECHO)
		cr_assert(len == 6 && memcmp(reply, "hello", 6) == 0);
	app->done = true;
}

static void app_task(struct shard *s, struct shard_task *task)
{
	cr_assert_eq(fiber_spawn(s, app_main, task), 0);
}

static void spawn(struct app *app, struct far_agent *a)
{
	app->agent = a;
	app->task.run = app_task;
	shard_add_task(a->shards[0], &app->task);
}

Test(agent_step, calls)
{
	struct group g;
	struct app app[WORKERS] = {{.to = 1, .id = ECHO}, {.to = 2, .id = ECHO}, {.to = 2, .id = ECHO}};
	begin(&g, WORKERS, NULL);
	for (unsigned i = 0; i < WORKERS; i++)
		spawn(&app[i], g.agent[i]);
	for (unsigned turns = 0; turns < 1000 && !(app[0].done && app[1].done && app[2].done); turns++)
		turn(&g);
	for (unsigned i = 0; i < WORKERS; i++)
		cr_assert(app[i].done && app[i].status == FAR_OK, "worker %u: %s", i, app[i].err.text);
	finish(&g);
}

Test(agent_step, sleeps_and_says_when_to_wake)
{
	struct group g;
	begin(&g, 2, NULL);
	for (unsigned turns = 0; turns < 20000; turns++)
		turn(&g);
	/* Nothing is owed: it sleeps for ever, and a call wakes it through its queue only. */
	uint64_t next = agent_step_shard(g.agent[1], 0);
	while (!agent_asleep(g.agent[1], 0)) {
		g.world->now = next > g.world->now ? next : g.world->now + 1;
		next = agent_step_shard(g.agent[1], 0);
	}
	cr_assert_eq(next, TIME_NEVER);
	finish(&g);
}

Test(agent_step, refuses_what_needs_threads)
{
	struct group g;
	struct far_err err = {0};
	struct far_future *f;
	char reply[16];
	size_t len;
	begin(&g, 2, NULL);
	struct far_agent *a = g.agent[0];
	struct far_to to = {1, -1};
	const struct far_val args[] = {far_int(2), far_int(3)};
	cr_assert_eq(far_msg_call(a, to, ECHO, "hello", 6, NULL, reply, sizeof reply, &len, &err), FAR_WOULD_DEADLOCK);
	cr_assert_eq(err.executed, FAR_EXECUTED_NO);
	cr_assert_eq(far_shutdown(a, 0, &err), FAR_UNSUPPORTED);
	cr_assert_eq(far_shutdown_local(a, &err), FAR_UNSUPPORTED);
	cr_assert_eq(far_shard_acquire(a, 0, &err), FAR_UNSUPPORTED);
	struct far_msg_handler blocking = {.id = 9, .kind = FAR_KIND_BLOCKING, .fn = echo};
	cr_assert_eq(far_register_message(a, &blocking, &err), FAR_UNSUPPORTED);
	cr_assert(strstr(err.text, "FAR_KIND_FIBER"));
	/* A call may be started, and waited for by looking. */
	cr_assert_eq(far_rpc_async_to(a, to, "far::add", args, 2, NULL, &f, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_future_wait(f, FAR_FOREVER, NULL, &err), FAR_WOULD_DEADLOCK);
	for (unsigned turns = 0; turns < 1000 && !far_future_done(f); turns++)
		turn(&g);
	cr_assert_eq(far_future_wait(f, FAR_FOREVER, NULL, &err), FAR_OK);
	far_future_free(f);
	finish(&g);
}

/* Its memory is the application's again when far_future_free() returns, though nobody else drives the shard. */
Test(agent_step, a_fan_out_is_given_up_outside_of_fibers)
{
	struct group g;
	struct far_err err = {0};
	struct far_future *f;
	begin(&g, 2, NULL);
	for (unsigned turns = 0; turns < 2; turns++) { /* before it has begun, and when its calls are out */
		struct far_target targets[2] = {{.to = {0, -1}}, {.to = {1, -1}}};
		struct far_target_result results[2] = {{.status = FAR_OK}};
		slow_begun = 0;
		cr_assert_eq(far_msg_fanout(g.agent[0], SLOW, NULL, 0, targets, 2, NULL, results, &f, &err), FAR_OK,
			     "%s", err.text);
		for (unsigned i = 0; turns && i < 1000 && slow_begun < 2; i++)
			turn(&g);
		far_future_free(f);
		memset(targets, 0xee, sizeof targets);
		memset(results, 0xee, sizeof results);
	}
	for (unsigned i = 0; i < 1000; i++)
		turn(&g);
	finish(&g);
}

Test(agent_step, blocking_handler_of_the_options)
{
	static const struct far_msg_handler blocking = {.id = 9, .kind = FAR_KIND_BLOCKING, .fn = echo};
	const struct far_opts opts = {.messages = &blocking, .messages_n = 1};
	struct group g = {.n = 1, .world = fake_world_create()};
	g.random = (struct random_source){draw, &g.drawn};
	dgram_fabric_init(&g.fabric);
	cr_assert_eq(create(&g, 0, &opts), FAR_UNSUPPORTED);
	fake_world_destroy(g.world);
}

Test(agent_step, crash_ends_what_is_pending)
{
	struct group g;
	struct app app = {.to = 1, .id = SLOW}, waiting = {.to = 0, .id = SLOW};
	begin(&g, 2, NULL);
	slow_begun = slow_cancelled = 0;
	spawn(&app, g.agent[0]);
	spawn(&waiting, g.agent[1]);
	for (unsigned turns = 0; turns < 1000 && slow_begun < 2; turns++)
		turn(&g);
	cr_assert_eq(slow_begun, 2);
	uint64_t sent = g.fabric.sent;
	g.fabric.drop = 1000; /* its ports are cut off */
	cr_assert_eq(agent_crash(g.agent[1]), 0);
	g.agent[1] = NULL;
	cr_assert(waiting.done && waiting.status == FAR_SHUTDOWN);
	cr_assert_eq(slow_cancelled, 1);
	cr_assert_leq(g.fabric.sent - sent, 4, "nothing but what was cut off");
	/* The other one learns of it by silence. */
	for (unsigned turns = 0; turns < 4000000 && !app.done; turns++) {
		turn(&g);
		g.world->now += 100000;
	}
	cr_assert(app.done);
	cr_assert_eq(app.status, FAR_PEER_LOST, "%s", app.err.text);
	cr_assert_eq(app.err.executed, FAR_EXECUTED_MAYBE);
	finish(&g);
}

Test(agent_step, leaves_in_steps)
{
	struct group g;
	struct far_err err = {0};
	const struct far_opts opts = {.shards = 2};
	begin(&g, WORKERS, &opts);
	for (unsigned i = 0; i < WORKERS; i++)
		agent_leave(g.agent[i], 0);
	unsigned left = 0;
	for (unsigned turns = 0; turns < 200000 && left < WORKERS; turns++) {
		turn(&g);
		left = 0;
		for (unsigned i = 0; i < WORKERS; i++)
			left += agent_state(g.agent[i]) == AGENT_LEFT;
	}
	cr_assert_eq(left, WORKERS);
	for (unsigned i = 0; i < WORKERS; i++)
		cr_assert_eq(agent_why(g.agent[i], &err), FAR_OK, "%s", err.text);
	finish(&g);
}

Test(agent_step, fails_to_join_with_a_reason)
{
	struct group g = {.n = 2, .world = fake_world_create()};
	struct far_err err = {0};
	const struct far_opts opts = {.init_timeout_ns = 1000000000};
	g.random = (struct random_source){draw, &g.drawn};
	dgram_fabric_init(&g.fabric);
	cr_assert_eq(create(&g, 0, &opts), FAR_OK);
	for (unsigned turns = 0; turns < 100000 && agent_state(g.agent[0]) != AGENT_FAILED; turns++) {
		turn(&g);
		g.world->now += 1000000;
	}
	cr_assert_eq(agent_state(g.agent[0]), AGENT_FAILED);
	cr_assert_eq(agent_why(g.agent[0], &err), FAR_TIMEOUT);
	finish(&g);
}

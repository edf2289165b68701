/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions that do not wait run no application code on the calling thread (the table of <farcall/agent.h>). The window
 * is planted: the shard may be driven by application threads (FAR_PROGRESS_SHARED) and has no thread of its own, so a
 * handler, callback or destructor that runs before poll() has run inside the function under test. A request for an
 * inline handler lies in the queue throughout.
 */
#include "agent/agent.h"
#include "agent/env.h"
#include "core/shard.h"
#include "core/waiting.h"
#include "fake_dgram.h"
#include "fake_net.h"

#include <criterion/criterion.h>
#include <farcall/fanout.h>
#include <farcall/object.h>
#include <string.h>

enum { COUNT = 1, DEFER = 2, WAITS = 3, DEFERRED_MAX = 512, WAITING = 8 };

static const struct far_to self = {0, -1};

static struct fake_world *world;
static struct dgram_fabric fabric;
static uint64_t drawn;
static struct random_source source;
static struct far_agent *agent;
static struct shard *shard;
static struct far_err err;

static unsigned handled, completed, destroyed, resumed; /* what ran of the application */
static struct far_deferred *deferred[DEFERRED_MAX];
static unsigned deferred_n;
static struct far_future *gate;

static unsigned ran(void)
{
	return handled + completed + destroyed + resumed;
}

static void count(struct far_req *req, const void *data, size_t len, void *user)
{
	handled++;
	far_reply(req, data, len);
}

static void defer(struct far_req *req, const void *data, size_t len, void *user)
{
	cr_assert(deferred_n < DEFERRED_MAX);
	cr_assert_eq(far_defer(req, &deferred[deferred_n++]), FAR_OK);
}

static void waits(struct far_req *req, const void *data, size_t len, void *user)
{
	far_future_wait(gate, FAR_FOREVER, NULL, NULL);
	resumed++;
	far_reply(req, data, len);
}

static enum far_status defer_call(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	defer(req, NULL, 0, user);
	return FAR_OK;
}

static void on_reply(enum far_status status, const void *data, size_t len, const struct far_err *why, void *user)
{
	completed++;
}

static void on_done(struct far_future *f, void *user)
{
	completed++;
}

static enum far_status make(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_return_object(req, &destroyed);
}

static void destroy(void *object, void *user)
{
	destroyed++;
}

static const struct far_msg_handler handlers[] = {{.id = COUNT, .kind = FAR_KIND_INLINE, .fn = count},
						  {.id = DEFER, .kind = FAR_KIND_INLINE, .fn = defer},
						  {.id = WAITS, .kind = FAR_KIND_FIBER, .fn = waits}};
static const struct far_function functions[] = {{"t::defer() -> int", FAR_KIND_INLINE, defer_call, NULL}},
				 constructors[] = {{"t::Thing() -> t::Thing", FAR_KIND_INLINE, make, NULL}};
static const struct far_class classes[] = {
	{.name = "t::Thing", .constructors = constructors, .constructors_n = 1, .destroy = destroy}};

static uint64_t draw(void *ctx)
{
	uint64_t *at = ctx;
	*at += UINT64_C(0x9e3779b97f4a7c15);
	return *at ^ *at >> 29;
}

static void due(void *ctx)
{
}

/* What the shard's own thread would do. */
static void poll(void)
{
	for (unsigned turns = 0; turns < 300; turns++) {
		world->now += 1000;
		agent_step(agent, world->now);
	}
}

static void begin(void)
{
	world = fake_world_create();
	source = (struct random_source){draw, &drawn};
	dgram_fabric_init(&fabric);
	struct nic_port *port = dgram_open(&fabric, 1);
	struct far_opts opts = {.init_method = "tcp://127.0.0.1:7000",
				.fibers = 8,
				.peer_waiting = WAITING,
				.messages = handlers,
				.messages_n = sizeof handlers / sizeof *handlers,
				.functions = functions,
				.functions_n = sizeof functions / sizeof *functions,
				.classes = classes,
				.classes_n = 1};
	struct agent_env env = {.clock = &world->clock,
				.random = &source,
				.net = fake_net_create(world),
				.ports = &port,
				.ports_n = 1,
				.ctl_due = due};
	cr_assert_eq(agent_create_stepped("w0", 0, 1, &opts, &env, &agent, &err), FAR_OK, "%s", err.text);
	while (agent_state(agent) != AGENT_READY)
		poll();
	agent->progress = FAR_PROGRESS_SHARED;
	shard = agent->shards[0];
	shard->config.progress = FAR_PROGRESS_SHARED;
}

static void finish(void)
{
	poll();
	for (unsigned i = 0; i < deferred_n; i++) {
		if (deferred[i])
			far_deferred_drop(deferred[i]);
		if (i + 1 == deferred_n) /* more may follow */
			poll();
	}
	cr_assert_eq(waiting_slots_used(shard, 0), 0u, "places of calls that wait");
	cr_assert_eq(agent_destroy(agent), 0);
	fake_world_destroy(world);
}

static void send(uint16_t id)
{
	cr_assert_eq(far_msg_send(agent, self, id, "x", 1, NULL, on_reply, NULL, &err), FAR_OK, "%s", err.text);
}

/* A request for the inline handler, in the queue from now on. */
static unsigned plant(void)
{
	send(COUNT);
	return ran();
}

/* Nothing ran since plant(); the poller finds the handler's request, its answer, and `more` besides. */
#define RAN_NOTHING(before, more)                                                                                      \
	do {                                                                                                           \
		cr_assert_eq(ran(), before);                                                                           \
		cr_assert(!atomic_load(&shard->progress.token));                                                       \
		poll();                                                                                                \
		cr_assert_eq(ran(), before + 2 + (more), "%u ran, not %u", ran() - before, 2 + (more));                \
	} while (0)

/* The poller's nap has ended, for there is something that only it does. */
static bool called(void)
{
	return atomic_exchange(&shard->progress.left, 0);
}

static struct far_deferred *open_request(void)
{
	unsigned n = deferred_n;
	send(DEFER);
	poll();
	cr_assert_eq(deferred_n, n + 1);
	struct far_deferred *d = deferred[n];
	deferred[n] = NULL;
	return d;
}

Test(calling_thread, answers)
{
	begin();
	struct far_deferred *d = open_request();
	unsigned before = plant();
	uint64_t sent = atomic_load(&shard->counters.replies_sent);
	cr_assert_eq(far_deferred_reply(d, "y", 1), FAR_OK);
	/* The answer has left all the same: it needs no other thread. */
	cr_assert_eq(atomic_load(&shard->counters.replies_sent), sent + 1);
	cr_assert(!called());
	RAN_NOTHING(before, 1);

	d = open_request();
	before = plant();
	cr_assert_eq(far_deferred_fail(d, FAR_REMOTE, 0, "no"), FAR_OK);
	RAN_NOTHING(before, 1);

	d = open_request();
	before = plant();
	far_deferred_drop(d);
	RAN_NOTHING(before, 1);
	finish();
}

static struct far_future *call_that_waits(void)
{
	struct far_future *f;
	cr_assert_eq(far_rpc_async_to(agent, self, "t::defer", NULL, 0, NULL, &f, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_future_on_done(f, on_done, NULL, &err), FAR_OK);
	poll();
	return f;
}

Test(calling_thread, cancels)
{
	begin();
	struct far_future *f = call_that_waits();
	unsigned before = plant();
	cr_assert_eq(far_future_cancel(f, &err), FAR_OK);
	cr_assert(called());
	RAN_NOTHING(before, 1);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_CANCELLED);
	far_future_free(f);

	/* The thread that holds the shard is no exception. */
	f = call_that_waits();
	before = plant();
	cr_assert_eq(far_shard_acquire(agent, 0, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_future_cancel(f, &err), FAR_OK);
	cr_assert_eq(ran(), before);
	far_shard_release(agent);
	cr_assert(called());
	RAN_NOTHING(before, 1);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_CANCELLED);
	far_future_free(f);
	finish();
}

Test(calling_thread, completes)
{
	begin();
	cr_assert_eq(far_future_create(&gate, &err), FAR_OK);
	send(WAITS);
	poll();
	struct far_val v = far_int(1);
	unsigned before = plant();
	cr_assert_eq(far_future_set_value(gate, &v, &err), FAR_OK);
	cr_assert(called());
	RAN_NOTHING(before, 2);
	far_future_free(gate);

	/* The last reference of one that nobody can complete any more: what derives from it ends, here. */
	struct far_future *child;
	cr_assert_eq(far_future_create(&gate, &err), FAR_OK);
	cr_assert_eq(far_future_collect(&gate, 1, &child, &err), FAR_OK);
	cr_assert_eq(far_future_on_done(child, on_done, NULL, &err), FAR_OK);
	before = plant();
	far_future_free(gate);
	cr_assert_eq(ran(), before + 1, "the callback of the future itself, and no other");
	RAN_NOTHING(before + 1, 0);
	far_future_free(child);
	finish();
}

Test(calling_thread, releases)
{
	struct far_rref *r;
	begin();
	cr_assert_eq(far_remote_to(agent, self, "t::Thing", NULL, 0, NULL, &r, &err), FAR_OK, "%s", err.text);
	poll();
	cr_assert(far_rref_confirmed_by_owner(r));
	unsigned before = plant();
	far_rref_free(r);
	cr_assert(called());
	RAN_NOTHING(before, 1);

	/* Given back with a shard that others handed work to meanwhile. */
	struct far_deferred *d = open_request();
	cr_assert_eq(far_shard_acquire(agent, 0, &err), FAR_OK, "%s", err.text);
	before = plant();
	cr_assert_eq(far_deferred_reply(d, "y", 1), FAR_OK);
	far_shard_release(agent);
	RAN_NOTHING(before, 1);
	finish();
}

/* Refused for want of room, which comes by receiving: that is the poller's. */
Test(calling_thread, sends_one_way)
{
	begin();
	unsigned before = plant(), n = 0;
	enum far_status status;
	while ((status = far_msg_oneway(agent, self, COUNT, "x", 1, NULL, &err)) == FAR_OK)
		n++;
	cr_assert_eq(status, FAR_BUSY);
	cr_assert_geq(n, FAR_ONEWAYS_WINDOW);
	cr_assert(called());
	RAN_NOTHING(before, n);
	finish();
}

Test(calling_thread, starts_calls)
{
	begin();
	unsigned before = plant(), n = 0;
	enum far_status status;
	while ((status = far_msg_send(agent, self, DEFER, "x", 1, NULL, on_reply, NULL, &err)) == FAR_OK)
		n++;
	cr_assert_eq(status, FAR_BUSY);
	cr_assert_eq(n, FAR_SESSION_CALLS_MAX - 1 + WAITING);
	cr_assert(called());
	RAN_NOTHING(before, 0);
	cr_assert_eq(deferred_n, FAR_SESSION_CALLS_MAX, "the others wait");
	finish();
}

/* What another thread left in the ring while this one had the shard for a moment: a call, and then what is no call. */
Test(calling_thread, takes_calls_that_were_handed_over)
{
	begin();
	unsigned before = plant();
	struct call_start call = {.fn = DEFER, .shard = 0, .deadline = TIME_NEVER, .data = "x", .len = 1};
	uint64_t sent = atomic_load(&shard->counters.calls_sent);
	call.done = agent_done_future;
	struct far_future *f = future_alloc(shard);
	future_mark(f, FUTURE_CALL);
	call.user = f;
	cr_assert_eq(waiting_submit(shard, &call), 0);
	shard_notify(shard);
	cr_assert_eq(atomic_load(&shard->counters.calls_sent), sent + 1);
	cr_assert(!called());
	/* Its deadline has passed: it ends, with a callback. */
	struct far_future *late = future_alloc(shard);
	buf_ref(&late->head);
	call.user = late;
	call.deadline = 1;
	cr_assert_eq(far_future_on_done(late, on_done, NULL, &err), FAR_OK);
	cr_assert_eq(waiting_submit(shard, &call), 0);
	shard_notify(shard);
	cr_assert(called() && !far_future_done(late));
	RAN_NOTHING(before, 1);
	cr_assert_eq(far_future_value(late, NULL, &err), FAR_TIMEOUT);
	far_future_free(late);
	far_future_free(f);
	finish();
}

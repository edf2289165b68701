/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Objects of agents in one process, of one shard and of several, with every way of driving a shard: many threads call
 * the methods of the same objects, make others, request their types, hand them on, and leave some to the shutdown. Each
 * is ended once, after its last method.
 */
#include "api_together.h"
#include "counter_class.h"

#include <string.h>

enum { AGENTS = 2, CALLERS = 4, ROUNDS = 25 };

static struct together t[AGENTS];
static struct far_rref *shared[AGENTS]; /* of agent i, on worker 1 - i */

struct caller {
	pthread_t thread;
	int agent;
};

static void expect_alive(struct far_rref *r, const char *method, const struct far_val *args, size_t n)
{
	struct far_err e;
	struct far_val v;
	CHECK_STATUS(far_rref_rpc_sync(r, method, args, n, NULL, &v, &e), FAR_OK, &e);
	far_val_fini(&v);
}

/* One of its own: called before it is there, its type requested, shared, released while calls are under way. */
static void one_of_its_own(struct far_agent *a, int round)
{
	static const char *const names[] = {"slow", "blocking", "add"};
	struct far_to to = {round % 3 == 0 ? 0 : 1, -1};
	struct far_err e;
	struct far_rref *r, *child;
	struct far_future *f[3];
	const char *type;
	CHECK_STATUS(
		far_remote_to(a, to, round % 2 ? "o::Counter" : "o::blocking_counter", FAR_ARGS(round), NULL, &r, &e),
		FAR_OK, &e);
	for (int i = 0; i < 3; i++) {
		enum far_status status;
		const struct far_val one = far_int(1);
		do
			status = far_rref_rpc_async(r, names[i], &one, i != 1, NULL, &f[i], &e);
		while (status == FAR_BUSY);
		CHECK_STATUS(status, FAR_OK, &e);
	}
	CHECK_STATUS(far_rref_remote(r, "child", FAR_NOARGS, NULL, &child, &e), FAR_OK, &e);
	CHECK_STATUS(far_rref_type(child, 0, &type, &e), FAR_OK, &e);
	CHECK(strcmp(type, "o::Counter") == 0);
	expect_alive(child, "befriend", FAR_ARGS(r));
	far_rref_free(r);
	expect_alive(child, "through", FAR_ARGS(1));
	far_rref_free(child);
	for (int i = 0; i < 3; i++) {
		CHECK_STATUS(far_future_wait(f[i], 0, NULL, &e), FAR_OK, &e);
		far_future_free(f[i]);
	}
}

static void of_all(struct far_agent *a, int agent)
{
	struct far_err e;
	void *object;
	expect_alive(shared[agent], "add", FAR_ARGS(1));
	expect_alive(shared[agent], "get", FAR_NOARGS);
	enum far_status status = far_rref_object(shared[agent], "o::Counter", 0, &object, &e);
	CHECK(far_rref_is_owner(shared[agent]) ? !status : status == FAR_INVALID);
}

static void *caller_main(void *arg)
{
	const struct caller *c = arg;
	for (int i = 0; i < ROUNDS; i++) {
		of_all(t[c->agent].agent, c->agent);
		if (i % 4 == 0)
			one_of_its_own(t[c->agent].agent, i);
	}
	return NULL;
}

/* One more by each is left to the end, and a method is parked in it. */
static void leave_some(struct far_future **f)
{
	struct far_err e;
	for (int i = 0; i < AGENTS; i++)
		CHECK_STATUS(far_rref_rpc_async(shared[i], "slow", FAR_ARGS(20), NULL, &f[i], &e), FAR_OK, &e);
}

static void run(enum far_progress progress, unsigned shards, bool to_self)
{
	struct caller callers[AGENTS * CALLERS];
	struct far_future *f[AGENTS];
	struct far_err e;
	for (int i = 0; i < AGENTS; i++)
		t[i] = (struct together){.rank = i,
					 .world = AGENTS,
					 .opts = {.progress = progress,
						  .shards = shards,
						  .fibers = 64,
						  .classes = counter_classes,
						  .classes_n = COUNTER_CLASSES}};
	together_all(t, AGENTS, together_join);
	for (int i = 0; i < AGENTS; i++)
		CHECK_STATUS(far_remote_to(t[i].agent, (struct far_to){to_self ? i : 1 - i, (int)shards - 1},
					   "o::Counter", FAR_NOARGS, NULL, &shared[i], &e),
			     FAR_OK, &e);
	for (int i = 0; i < AGENTS * CALLERS; i++) {
		callers[i].agent = i % AGENTS;
		CHECK(pthread_create(&callers[i].thread, NULL, caller_main, &callers[i]) == 0);
	}
	for (int i = 0; i < AGENTS * CALLERS; i++)
		CHECK(pthread_join(callers[i].thread, NULL) == 0);
	for (int i = 0; i < AGENTS; i++) {
		struct far_val v;
		CHECK_STATUS(far_rref_rpc_sync(shared[i], "get", FAR_NOARGS, NULL, &v, &e), FAR_OK, &e);
		CHECK(v.u.i == CALLERS * ROUNDS);
	}
	leave_some(f);
	together_all(t, AGENTS, together_leave);
	CHECK(atomic_load(&made) > 0 && atomic_load(&made) == atomic_load(&ended));
	for (int i = 0; i < AGENTS; i++) {
		far_rref_free(shared[i]);
		far_future_free(f[i]);
	}
}

int main(void)
{
	alarm(HANG_GUARD_S);
	together_listen();
	run(FAR_PROGRESS_SHARED, 1, false);
	run(FAR_PROGRESS_DEDICATED, 1, true);
	run(FAR_PROGRESS_SHARED, 2, true);
	run(FAR_PROGRESS_DEDICATED, 3, false);
	return 0;
}

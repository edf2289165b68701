/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Very many handlers parked at once on one worker, called by as many agents of one process as it takes, since a session
 * takes 202 pending calls; then all go on, and each answers right. usage: api_fiber_many [HANDLERS]
 *
 * Main thread of each process; handlers on shard threads.
 */
#include "api_together.h"

#include <stdatomic.h>
#include <sys/resource.h>

enum { PER_CALLER = 200, CALLERS_MAX = 60, MSG_PARK = 1 };

static struct together all[CALLERS_MAX + 1]; /* the first is the callee */
static struct far_future *gate;
static struct far_deferred *kept;
static atomic_int parked, right, refused;

static void park(struct far_req *req, const void *data, size_t len, void *user)
{
	struct far_val out = {0};
	struct far_err e;
	uint64_t number;
	CHECK(len == sizeof number);
	memcpy(&number, data, sizeof number);
	atomic_fetch_add(&parked, 1);
	CHECK_STATUS(far_future_wait(gate, 0, &out, &e), FAR_OK, &e);
	number += (uint64_t)out.u.i;
	far_reply(req, &number, sizeof number);
}

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_defer(req, &kept);
}

/* `user`: the number that was sent. */
static void on_done(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	uint64_t got;
	if (status == FAR_RESOURCE && e->executed == FAR_EXECUTED_NO) {
		atomic_fetch_add(&refused, 1);
		return;
	}
	CHECK_STATUS(status, FAR_OK, e);
	CHECK(len == sizeof got);
	memcpy(&got, data, sizeof got);
	CHECK(got == (uint64_t)(uintptr_t)user + 7);
	atomic_fetch_add(&right, 1);
}

static void send_one(int caller, uint64_t number)
{
	struct far_call_opts opts = {.timeout_ns = FAR_FOREVER};
	struct far_err e;
	enum far_status status;
	while ((status = far_msg_send(all[caller].agent, (struct far_to){0, -1}, MSG_PARK, &number, sizeof number,
				      &opts, on_done, (void *)(uintptr_t)number, &e)) == FAR_BUSY)
		usleep(100);
	CHECK_STATUS(status, FAR_OK, &e);
}

/* The hang guard bounds it. */
static void until(atomic_int *what, int n)
{
	while (atomic_load(what) != n) {
		/* Callers that nobody waits on look at their queues now and then. */
		usleep(1000);
	}
}

static void round_of(int handlers, int callers)
{
	struct far_err e;
	struct far_val seven = far_int(7);
	atomic_store(&parked, 0);
	atomic_store(&right, 0);
	atomic_store(&refused, 0);
	CHECK_STATUS(far_rpc_async(all[0].agent, "worker0", "t::keep", FAR_NOARGS, NULL, &gate, &e), FAR_OK, &e);
	CHECK(far_future_wait(gate, FAR_MS, NULL, &e) == FAR_PENDING);
	for (int i = 0; i < handlers; i++)
		send_one(1 + i / PER_CALLER, (uint64_t)i);
	until(&parked, handlers);
	struct far_counters c;
	far_counters_read(all[0].agent, &c);
	CHECK(c.requests_active == (uint64_t)handlers + 1); /* and the gate's */
	/* One more than there are fibers. */
	send_one(callers, UINT32_MAX);
	until(&refused, 1);
	CHECK(far_deferred_return(kept, &seven) == FAR_OK);
	until(&right, handlers);
	do {
		usleep(500);
		far_counters_read(all[0].agent, &c);
	} while (c.requests_active);
	far_future_free(gate);
}

int main(int argc, char **argv)
{
	static const struct far_function functions[] = {{"t::keep() -> int", FAR_KIND_INLINE, keep, NULL}};
	static const struct far_msg_handler messages[] = {{MSG_PARK, FAR_KIND_FIBER, park, NULL}};
	int handlers = argc > 1 ? atoi(argv[1]) : 10000;
	int callers = (handlers + PER_CALLER - 1) / PER_CALLER;
	struct rlimit files;
	CHECK(handlers > 0 && callers <= CALLERS_MAX);
	alarm(HANG_GUARD_S);
	/* Every pair of agents has a session, with its descriptors. */
	CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
	files.rlim_cur = files.rlim_max;
	CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
	together_listen();
	for (int i = 0; i <= callers; i++) {
		all[i] = (struct together){.rank = i, .world = callers + 1};
		if (i > 0)
			continue;
		all[0].opts = (struct far_opts){.functions = functions,
						.functions_n = 1,
						.messages = messages,
						.messages_n = 1,
						.fibers = (unsigned)handlers,
						.fiber_stack_bytes = 16 << 10};
	}
	together_all(all, callers + 1, together_join);
	for (int i = 0; i < 2; i++)
		round_of(handlers, callers);
	together_all(all, callers + 1, together_leave);
	return 0;
}

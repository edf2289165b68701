/* SPDX-License-Identifier: BSD-3-Clause */
/** How calls start: destinations, shards, deadlines, a caller without room. The test's thread, and fibers of agents
 * that it steps. */
#include "agent/init.h"
#include "agents_fixture.h"
#include "base/limits.h"
#include "handlers.h"

#include <errno.h>
#include <string.h>

static void setup(void)
{
	static const struct far_function functions[] = {
		{"t::never() -> none", FAR_KIND_FIBER, handler_never, NULL},
		{"t::twice(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL}};
	agents_begin(3, &(struct far_opts){.shards = 2, .calls = 4, .functions = functions, .functions_n = 2});
}

TestSuite(api_call, .init = setup, .fini = agents_end);

/* ---- destinations ---- */

Test(api_call, names)
{
	struct far_agent *a = agents[1];
	for (int named = 0; named < 2; named++) { /* searched, and then by the table */
		cr_assert_eq(agent_find_worker(a, "w2", &err), 2);
		cr_assert_eq(agent_find_worker(a, "w0", &err), 0);
		cr_assert_eq(agent_find_worker(a, "w", &err), -1);
		cr_assert_eq(agent_find_worker(a, "w22", &err), -1);
		cr_assert_eq(agent_find_worker(a, NULL, &err), -1);
		cr_assert_eq(err.status, FAR_UNKNOWN_WORKER);
		cr_assert(strstr(err.text, "\"(NULL)\""), "%s", err.text);
		if (!named)
			agent_names_known(a);
	}
}

static void rename_member(int rank, const char *name)
{
	struct ctl_member *m = (struct ctl_member *)(uintptr_t)&agents[0]->members[rank];
	ctl_member_set_name(m, name);
}

/* Expect the names that take the fewest edits first. */
Test(api_call, an_unknown_name)
{
	rename_member(0, "trainer10");
	rename_member(1, "server");
	rename_member(2, "trainer1");
	cr_assert_eq(agent_find_worker(agents[0], "trainer2", &err), -1);
	cr_assert_str_eq(err.text,
			 "name:w0,rank:0 could not find destination name \"trainer2\"; the nearest of 3 workers: "
			 "trainer1, trainer10, server");
	cr_assert_eq(agent_find_worker(agents[0], "serv", &err), -1);
	cr_assert(strstr(err.text, "workers: server, "), "%s", err.text);
}

static void refused(struct far_to to, const struct far_call_opts *opts, enum far_status status, const char *text)
{
	struct call_route route;
	cr_assert_eq(agent_route(agents[0], to, opts, 7, &route, &err), status, "%s: %s", text, err.text);
	cr_assert(strstr(err.text, text), "%s", err.text);
}

Test(api_call, what_does_not_exist)
{
	refused((struct far_to){3, -1}, NULL, FAR_UNKNOWN_WORKER, "could not find destination id 3 (ranks are 0 to 2)");
	refused((struct far_to){-1, -1}, NULL, FAR_UNKNOWN_WORKER, "destination id -1");
	refused((struct far_to){1, 2}, NULL, FAR_INVALID,
		"worker \"w1\" has 2 shards, 0 to 1 (or -1 for any); there is no shard 2");
	refused((struct far_to){1, -2}, NULL, FAR_INVALID, "there is no shard -2");
	refused((struct far_to){1, -1}, &(struct far_call_opts){.via = 3}, FAR_INVALID,
		"via is 3, but worker \"w0\" has 2 shards: 1 to 2, or 0 for any");
	agents[0]->dynamic = true;
	atomic_store(&((struct ctl_member *)(uintptr_t)&agents[0]->members[2])->alive, 0);
	refused((struct far_to){2, -1}, NULL, FAR_UNKNOWN_WORKER, "no member of the group has this rank now");
	agents[0]->dynamic = false;
}

/* Expect the named shards, and without them one by the hash, always the same. */
Test(api_call, shards)
{
	struct call_route route;
	for (unsigned i = 0; i < 2; i++) {
		const struct far_call_opts opts = {.via = i + 1};
		cr_assert_eq(agent_route(agents[0], (struct far_to){1, (int16_t)i}, &opts, 0, &route, &err), FAR_OK);
		cr_assert(route.via == agents[0]->shards[i] && route.shard == i);
		cr_assert_eq(agent_route(agents[0], (struct far_to){1, -1}, NULL, 40 + i, &route, &err), FAR_OK);
		cr_assert(route.shard == i && route.via == agents[0]->shards[0]);
	}
}

/* Of a handler's calls all go through its own shard. */
static void via_the_other(void)
{
	unsigned own = agent_shard_of_thread(agents[0])->config.index;
	struct call_route route;
	cr_assert_eq(own, 0u);
	cr_assert_eq(agent_route(agents[0], (struct far_to){1, -1}, &(struct far_call_opts){.via = 2}, 0, &route, &err),
		     FAR_INVALID);
	cr_assert(strstr(err.text, "via names shard 1, but a handler's calls go through its own shard, 0; leave via 0"),
		  "%s", err.text);
	cr_assert_eq(agent_route(agents[0], (struct far_to){1, -1}, &(struct far_call_opts){.via = 1}, 0, &route, &err),
		     FAR_OK);
}

Test(api_call, shards_of_a_handler)
{
	agents_run(0, via_the_other);
}

/* ---- deadlines ---- */

Test(api_call, deadlines)
{
	struct far_agent *a = agents[0];
	struct call_start start = {0};
	uint64_t now = clock_now(a->clock);
	agent_set_timeout(a, 3 * FAR_SEC);
	agent_set_deadline(a, a->shards[0], NULL, &start);
	cr_assert(start.left == 3 * FAR_SEC && start.deadline == now + 3 * FAR_SEC && start.retry_ns == 0);
	agent_set_deadline(a, a->shards[0], &(struct far_call_opts){.timeout_ns = 5, .retry = true}, &start);
	cr_assert(start.left == 5 && start.deadline == now + 5 && start.retry_ns == FAR_RETRY_NS);
	agent_set_deadline(a, a->shards[0], &(struct far_call_opts){.timeout_ns = FAR_FOREVER}, &start);
	cr_assert(start.left == FAR_FOREVER && start.deadline == TIME_NEVER);
}

static uint64_t inner_left[2];

/* Of calls within the handler: one that states nothing, and one that states more than the request has left. */
static enum far_status measures(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct far_agent *a = far_req_agent(req);
	struct call_start start = {0};
	struct shard *s = agent_shard_of_thread(a);
	agent_set_deadline(a, s, NULL, &start);
	inner_left[0] = start.left;
	agent_set_deadline(a, s, &(struct far_call_opts){.timeout_ns = 90 * FAR_SEC}, &start);
	inner_left[1] = start.left;
	return far_return(req, NULL);
}

/* Without a stated time-out, calls of a handler that may wait end with its request. */
Test(api_call, deadlines_within_a_handler)
{
	static const struct far_function f = {"t::measures() -> none", FAR_KIND_FIBER, measures, NULL};
	const struct far_call_opts opts = {.timeout_ns = 2 * FAR_SEC};
	struct far_future *pending;
	cr_assert_eq(far_register_function(agents[1], &f, &err), FAR_OK);
	cr_assert_eq(far_rpc_async_unchecked(agents[0], "w1", "t::measures", NULL, 0, &opts, &pending, &err), FAR_OK);
	agents_until(pending);
	cr_assert_eq(far_future_value(pending, NULL, &err), FAR_OK, "%s", err.text);
	far_future_free(pending);
	cr_assert(inner_left[0] > FAR_SEC && inner_left[0] <= 2 * FAR_SEC);
	cr_assert_eq(inner_left[1], 90 * FAR_SEC);
}

/* ---- no room ---- */

static struct far_future *pending[64];
static unsigned pending_n;

static void fill_up(void)
{
	const struct far_call_opts opts = {.via = 1, .timeout_ns = FAR_FOREVER};
	enum far_status status;
	pending_n = 0;
	while (!(status = far_rpc_async(agents[0], "w1", "t::never", NULL, 0, &opts, &pending[pending_n], &err)))
		pending_n++;
	cr_assert_eq(status, FAR_BUSY);
	cr_assert(strstr(err.text, "on this shard (opts.calls is 4, "), "%s", err.text);
	cr_assert(strstr(err.text, "wait for some and try again"), "%s", err.text);
}

static void end_them(void)
{
	while (pending_n) {
		far_future_cancel(pending[--pending_n], NULL);
		far_future_free(pending[pending_n]);
	}
}

/* A call that is waited for waits for room, too: until its deadline, which it was not sent within. */
static void waits_in_vain(void)
{
	const struct far_call_opts opts = {.timeout_ns = FAR_MS};
	struct far_val out;
	fill_up();
	cr_assert_eq(far_rpc_sync(agents[0], "w1", "t::twice", FAR_ARGS(1), &opts, &out, &err), FAR_TIMEOUT);
	cr_assert(strstr(err.text, "no room for the call towards worker \"w1\" within its time-out"), "%s", err.text);
	cr_assert_eq(err.executed, FAR_EXECUTED_NO);
	end_them();
	cr_assert_eq(far_rpc_sync(agents[0], "w1", "t::twice", FAR_ARGS(4), NULL, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 8);
}

Test(api_call, without_room)
{
	agents_run(0, waits_in_vain);
}

Test(api_call, a_wait_outside_of_fibers)
{
	struct far_val out;
	cr_assert_eq(far_rpc_sync(agents[0], "w1", "t::twice", FAR_ARGS(1), NULL, &out, &err), FAR_WOULD_DEADLOCK);
	cr_assert(strstr(err.text, "the agent has no threads: only its fibers can wait"), "%s", err.text);
	cr_assert_eq(err.executed, FAR_EXECUTED_NO);
}

/* Each error of the core, with the worker and the remedy. */
Test(api_call, errors_of_the_core)
{
	struct shard *s = agents[0]->shards[0];
	const struct call_start start = {.worker = 1, .len = 5000};
	cr_assert_eq(agent_start_error(s, -EPIPE, &start, &err), FAR_PEER_LOST);
	cr_assert_str_eq(err.text, "worker \"w1\" is gone");
	cr_assert_str_eq(err.origin, "w1");
	cr_assert_eq(agent_start_error(s, -ESHUTDOWN, &start, &err), FAR_SHUTDOWN);
	cr_assert_eq(agent_start_error(s, -EMSGSIZE, &start, &err), FAR_TOO_LARGE);
	cr_assert(strstr(err.text, "a message of 5000 bytes; worker \"w1\" takes 1073741824 at most"), "%s", err.text);
	cr_assert_eq(agent_start_error(s, -ENOMEM, &start, &err), FAR_RESOURCE);
	cr_assert_eq(agent_start_error(s, -EPIPE, &start, NULL), FAR_PEER_LOST);
	cr_assert_eq(agent_wait_error(-ECANCELED, FAR_EXECUTED_MAYBE, &err), FAR_CANCELLED);
	cr_assert_eq(err.executed, FAR_EXECUTED_MAYBE);
}

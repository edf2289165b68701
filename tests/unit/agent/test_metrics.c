/* SPDX-License-Identifier: BSD-3-Clause */
/** What an agent reports: sums over its shards, peers, what is under way. The test's thread, which steps the agents. */
#include "agent/metrics.h"
#include "agents_fixture.h"
#include "handlers.h"

#include <farcall/counters.h>
#include <stdlib.h>
#include <string.h>

static void setup(void)
{
	static const struct far_function functions[] = {
		{"t::twice(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL},
		{"t::never() -> none", FAR_KIND_FIBER, handler_never, NULL}};
	agents_begin(2, &(struct far_opts){.shards = 2, .functions = functions, .functions_n = 2});
}

TestSuite(agent_metrics, .init = setup, .fini = agents_end);

static struct far_future *start(unsigned via, const char *function, const struct far_val *args, size_t n)
{
	struct far_future *f;
	const struct far_call_opts opts = {.via = via};
	cr_assert_eq(far_rpc_async(agents[0], "w1", function, args, n, &opts, &f, &err), FAR_OK, "%s", err.text);
	return f;
}

static void calls(unsigned via, unsigned n)
{
	while (n--) {
		struct far_future *f = start(via, "t::twice", FAR_ARGS(2));
		agents_until(f);
		far_future_free(f);
	}
}

static struct metrics_report *report(unsigned i)
{
	struct metrics_report *r;
	cr_assert_eq(agent_report(agents[i], &r, &err), FAR_OK, "%s", err.text);
	return r;
}

/* Expect each shard's own counters, and their sums. */
Test(agent_metrics, sums_of_the_shards)
{
	calls(1, 3);
	calls(2, 4);
	struct far_future *open = start(1, "t::never", NULL, 0);
	for (unsigned i = 0; i < 1000; i++)
		agents_turn();
	struct metrics_report *r = report(0);
	cr_assert_eq(r->shards_n, 2u);
	cr_assert_eq(r->shards[0].counters.calls_sent, 4u);
	cr_assert_eq(r->shards[1].counters.calls_sent, 4u);
	cr_assert(r->sum.calls_sent == 8 && r->sum.calls_completed == 7 && r->sum.calls_active == 1);
	cr_assert(r->sum.shards == 2 && r->sum.shards_silent == 0 && r->sum.sessions_up > 0);
	cr_assert(r->sum.members == 2 && r->sum.members_alive == 2);
	cr_assert_str_eq(r->worker, "w0");
	cr_assert_str_eq(r->state, "ready");
	agent_report_free(r);
	r = report(1);
	cr_assert(r->sum.requests_received == 8 && r->sum.requests_active == 1 && r->sum.fibers_active == 1);
	cr_assert_eq(r->sum.requests_deferred, 0u, "a waiting fiber is none");
	cr_assert_eq(r->sum.fibers_max, 2u * AGENTS_FIBERS);
	agent_report_free(r);
	far_future_free(open);
}

Test(agent_metrics, peers)
{
	calls(1, 3);
	cr_assert_eq(agents_call("t::none", NULL, 0, NULL), FAR_NO_FUNCTION);
	struct metrics_report *r = report(0);
	cr_assert_eq(r->peers_n, 2u);
	cr_assert_str_eq(r->peers[1].name, "w1");
	cr_assert(r->peers[1].rank == 1 && r->peers[1].calls == 4 && r->peers[1].calls_active == 0);
	cr_assert(r->peers[1].errors[FAR_ERROR_REFUSED] == 1 && r->peers[1].errors[FAR_ERROR_HANDLER] == 0);
	cr_assert(r->peers[1].bytes_sent > 0 && r->peers[1].sessions_up == 4);
	cr_assert(*r->peers[1].nic && r->nic_sessions[0] >= 4);
	cr_assert_eq(r->peers[0].calls, 0u);
	agent_report_free(r);
	r = report(1);
	cr_assert_eq(r->peers[0].requests, 4u);
	agent_report_free(r);
}

/* A member that is lost, and one whose name is not known, are listed. */
Test(agent_metrics, members_that_are_lost)
{
	cr_assert_eq(agent_crash(agents[1]), 0u);
	agents[1] = NULL;
	struct ctl_member *m = (struct ctl_member *)(uintptr_t)&agents[0]->members[1];
	atomic_store(&m->alive, 0);
	struct metrics_out o = {0};
	struct metrics_report *r = report(0);
	cr_assert_eq(r->sum.members_alive, 1u);
	cr_assert_str_eq(r->peers[1].name, "w1");
	agent_report_free(r);
	cr_assert_eq(agent_debug_write(agents[0], &o, &err), FAR_OK, "%s", err.text);
	cr_assert(strstr(o.text, "\"absent\":[1]"), "%s", o.text);
	free(o.text);
}

static void expect_debug(unsigned i, const char *const *parts)
{
	struct metrics_out o = {0};
	cr_assert_eq(agent_debug_write(agents[i], &o, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(o.text[o.len - 1], '\n');
	for (; *parts; parts++)
		cr_assert(strstr(o.text, *parts), "%s is not in %s", *parts, o.text);
	free(o.text);
}

/* Expect calls and requests with their function, peer, state and times left; one that failed is among the events. */
Test(agent_metrics, what_is_under_way)
{
	struct far_future *open = start(1, "t::never", NULL, 0);
	cr_assert_eq(agents_call("t::none", NULL, 0, NULL), FAR_NO_FUNCTION);
	agents_pass(30 * FAR_MS);
	for (unsigned i = 0; i < 1000; i++)
		agents_turn();
	expect_debug(0, (const char *[]){
				"{\"info\":{\"version\":\"" FAR_VERSION "\",\"worker\":\"w0\",\"group\":\"default\"",
				"\"rank\":0,\"world\":2,", "\"state\":\"ready\",\"shards\":2,", "},\"absent\":[],",
				"{\"function\":\"t::never\",\"to\":\"w1\",\"at\":\"sent\",\"age_ms\":",
				"\"status\":\"NO_FUNCTION\"", NULL});
	expect_debug(1, (const char *[]){"{\"function\":\"t::never\",\"from\":\"w0\",\"at\":\"fiber\",", NULL});
	far_future_free(open);
}

static void expect_owned(uint64_t n)
{
	struct far_rref_counts c = {.owned = n + 1};
	for (unsigned turns = 0; turns < 20000 && (c.owned != n || c.forks != n || c.pending); turns++) {
		agents_turn();
		agent_rref_counts(agents[0], &c);
	}
	cr_assert(c.owned == n && c.forks == n && c.pending == 0, "%u owned", (unsigned)c.owned);
}

Test(agent_metrics, counters_and_references)
{
	struct far_val v = far_int(7);
	struct far_rref *r;
	struct far_counters one = {0}, all = {0};
	struct far_nic_stats nic;
	calls(1, 2);
	agent_counters_add(agents[0]->shards[0], &one);
	for (unsigned i = 0; i < 2; i++)
		agent_counters_add(agents[0]->shards[i], &all);
	cr_assert(one.calls_sent == 2 && all.calls_sent == 2 && all.calls_active == 0);
	cr_assert_eq(far_rref_of(agents[0], &v, &r, &err), FAR_OK);
	expect_owned(1);
	far_rref_free(r);
	expect_owned(0);
	agent_nic_stats(agents[0], 0, &nic);
	cr_assert(nic.tx_packets > 0 && !nic.only_self && *nic.driver && *nic.address);
}

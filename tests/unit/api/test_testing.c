/* SPDX-License-Identifier: BSD-3-Clause */
/** Faults, quiet references and counters by name. The test's thread, and fibers of agents that it steps. */
#include "agents_fixture.h"
#include "handlers.h"

#include <farcall/testing.h>
#include <string.h>

static void setup(void)
{
	static const struct far_function functions[] = {
		{"t::twice(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL}};
	const struct far_opts opts = {.functions = functions, .functions_n = 1};
	agents_begin(2, &opts);
}

TestSuite(api_testing, .init = setup, .fini = agents_end);

static enum far_status call(void)
{
	struct far_future *f;
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::twice", FAR_ARGS(1), NULL, &f, &err), FAR_OK, "%s", err.text);
	agents_until(f);
	enum far_status status = far_future_value(f, NULL, &err);
	far_future_free(f);
	return status;
}

/* Of two messages. Expect two calls to fail unsent, and the third one not; and a fault that is removed to end. */
Test(api_testing, sends_that_fail)
{
	struct far_fault_counts c;
	const struct far_fault two = {.fail_sends = 1, .messages = 2}, all = {.fail_sends = 1};
	cr_assert_eq(far_fault_set(agents[0], FAR_FAULT_CALL, &two, &err), FAR_OK, "%s", err.text);
	for (unsigned i = 0; i < 2; i++) {
		cr_assert_eq(call(), FAR_INJECTED);
		cr_assert_eq(err.executed, FAR_EXECUTED_NO);
	}
	cr_assert_eq(call(), FAR_OK, "%s", err.text);
	far_fault_counts_read(agents[0], &c);
	cr_assert(c.of[FAR_FAULT_CALL].failed == 2 && c.of[FAR_FAULT_REPLY].failed == 0);
	cr_assert_eq(far_fault_set(agents[0], FAR_FAULT_CALL, &all, &err), FAR_OK);
	cr_assert_eq(call(), FAR_INJECTED);
	cr_assert_eq(far_fault_set(agents[0], FAR_FAULT_CALL, NULL, &err), FAR_OK);
	cr_assert_eq(call(), FAR_OK);
	cr_assert_eq(far_fault_set(agents[1], FAR_FAULT_REPLY, &all, &err), FAR_OK);
	cr_assert_eq(call(), FAR_INJECTED);
	cr_assert_eq(err.executed, FAR_EXECUTED_YES, "its handler ran");
	cr_assert_eq(far_faults_clear(agents[1], &err), FAR_OK);
	cr_assert_eq(call(), FAR_OK);
}

/* Expect a delayed call to wait, for that long. */
Test(api_testing, sends_that_are_late)
{
	struct far_fault_counts c;
	struct far_future *f;
	const struct far_fault late = {.delay_ns = 5 * FAR_MS, .messages = 1};
	cr_assert_eq(call(), FAR_OK);
	cr_assert_eq(far_fault_set(agents[0], FAR_FAULT_CALL, &late, &err), FAR_OK);
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::twice", FAR_ARGS(1), NULL, &f, &err), FAR_OK);
	for (unsigned i = 0; i < 500; i++)
		agents_turn();
	cr_assert_not(far_future_done(f));
	far_fault_counts_read(agents[0], &c);
	cr_assert_eq(c.of[FAR_FAULT_CALL].delayed, 1u);
	agents_pass(5 * FAR_MS);
	agents_until(f);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_OK, "%s", err.text);
	far_future_free(f);
}

Test(api_testing, kinds)
{
	static const char *const names[] = {"call", "remote", "fetch", "method", "fork", "accept", "delete", "reply"};
	for (unsigned i = 0; i < FAR_FAULT_COUNT; i++)
		cr_assert_str_eq(far_fault_name((enum far_fault_kind)i), names[i]);
	cr_assert_str_eq(far_fault_name(FAR_FAULT_COUNT), "?");
	const struct far_fault f = {.fail_sends = 1};
	cr_assert_eq(far_fault_set(agents[0], FAR_FAULT_COUNT, &f, &err), FAR_INVALID);
	cr_assert_str_eq(err.text, "far_fault_set: there is no kind 8; kinds are 0 to 7");
	cr_assert_eq(far_fault_set(NULL, FAR_FAULT_CALL, &f, &err), FAR_INVALID);
	cr_assert_eq(far_faults_clear(NULL, &err), FAR_INVALID);
	cr_assert_eq(call(), FAR_OK);
}

/* Every DELETE fails once. Expect the references quiet only when it was sent again. */
static void flush(void)
{
	struct far_rref *r;
	struct far_rref_counts c;
	const struct far_fault once = {.fail_sends = 1};
	cr_assert_eq(far_fault_set(agents[0], FAR_FAULT_DELETE, &once, &err), FAR_OK);
	cr_assert_eq(far_remote(agents[0], "w1", "t::twice", FAR_ARGS(1), NULL, &r, &err), FAR_OK);
	cr_assert_eq(far_rref_flush(agents[0], FAR_SEC, &err), FAR_OK, "%s", err.text);
	cr_assert(far_rref_confirmed_by_owner(r));
	far_rref_free(r);
	cr_assert_eq(far_rref_flush(agents[0], FAR_SEC, &err), FAR_OK, "%s", err.text);
	far_rref_counts_read(agents[0], &c);
	cr_assert(c.held == 0 && c.pending == 0 && c.unconfirmed == 0);
	far_rref_counts_read(agents[1], &c);
	cr_assert_eq(c.owned, 0u);
	cr_assert_eq(far_rref_flush(NULL, 0, &err), FAR_INVALID);
}

Test(api_testing, quiet_references)
{
	agents_run(0, flush);
}

/* Expect each counter once, by a name of its own, and the number of all whatever the array holds. */
Test(api_testing, counters_by_name)
{
	static struct far_debug_pair pairs[128];
	cr_assert_eq(call(), FAR_OK);
	size_t n = far_debug_info(agents[0], NULL, 0);
	cr_assert(n > 30 && n < 128);
	memset(pairs, 0, sizeof pairs);
	cr_assert_eq(far_debug_info(agents[0], pairs, 3), n);
	cr_assert(pairs[2].name[0] && !pairs[3].name[0]);
	cr_assert_eq(far_debug_info(agents[0], pairs, 128), n);
	unsigned found = 0;
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < i; k++)
			cr_assert_str_neq(pairs[i].name, pairs[k].name);
		if (strcmp(pairs[i].name, "agent.calls_sent") == 0)
			found += strcmp(pairs[i].value, "1") == 0;
		if (strcmp(pairs[i].name, "fault.fork.failed") == 0 || strcmp(pairs[i].name, "rref.owned") == 0)
			found += strcmp(pairs[i].value, "0") == 0;
	}
	cr_assert_eq(found, 3u);
}

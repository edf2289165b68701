/* SPDX-License-Identifier: BSD-3-Clause */
/** Fan-outs of the public interface: results of each target and of the whole. The test's thread, which steps agents. */
#include "agents_fixture.h"
#include "handlers.h"

#include <farcall/fanout.h>
#include <string.h>

enum { N = 3 };

static enum far_status rank_of(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_worker_info w;
	far_worker_self(far_req_agent(req), &w);
	if (w.rank == args[0].u.i)
		return far_fail(req, FAR_DENIED, 4, "not %d", w.rank);
	struct far_val v = far_int(w.rank);
	return far_return(req, &v);
}

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

static struct far_target targets[N];
static struct far_target_result results[N];

static void setup(void)
{
	static const struct far_function functions[] = {{"t::rank(int fails) -> int", FAR_KIND_INLINE, rank_of, NULL},
							{"t::never() -> int", FAR_KIND_FIBER, handler_never, NULL}};
	static const struct far_msg_handler handler = {.id = 1, .kind = FAR_KIND_INLINE, .fn = echo};
	const struct far_opts opts = {.functions = functions, .functions_n = 2, .messages = &handler, .messages_n = 1};
	agents_begin(N, &opts);
	memset(targets, 0, sizeof targets);
	for (int32_t i = 0; i < N; i++)
		targets[i].to = (struct far_to){i, -1};
}

TestSuite(api_fanout, .init = setup, .fini = agents_end);

static enum far_status run(const char *function, const struct far_val *args, size_t n,
			   const struct far_fanout_opts *opts, struct far_val *out)
{
	struct far_future *f;
	memset(results, 0, sizeof results);
	cr_assert_eq(far_rpc_fanout(agents[0], function, args, n, targets, N, opts, results, &f, &err), FAR_OK, "%s",
		     err.text);
	agents_until(f);
	enum far_status status = far_future_value(f, out, &err);
	far_future_free(f);
	return status;
}

Test(api_fanout, each_target_has_its_result)
{
	struct far_val out;
	cr_assert_eq(run("t::rank", FAR_ARGS(-1), NULL, &out), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, N);
	for (int32_t i = 0; i < N; i++) {
		cr_assert(results[i].status == FAR_OK && results[i].executed == FAR_EXECUTED_YES);
		cr_assert(results[i].value.u.i == i && results[i].from.worker == i);
	}
}

/* One fails. Expect the whole to fail with its error and origin, or to succeed where fewer are enough. */
Test(api_fanout, one_that_fails)
{
	struct far_val out;
	const struct far_fanout_opts two = {.k = 2, .errors = FAR_ERRORS_COLLECT},
				     collect = {.errors = FAR_ERRORS_COLLECT};
	cr_assert_eq(run("t::rank", FAR_ARGS(1), &collect, NULL), FAR_DENIED);
	cr_assert(strstr(err.text, "1 of 3 targets failed, 2 succeeded, 3 had to; the first, target 1: not 1"), "%s",
		  err.text);
	cr_assert(err.code == 4 && strcmp(err.origin, "w1") == 0 && err.executed == FAR_EXECUTED_MAYBE);
	cr_assert(results[1].status == FAR_DENIED && strcmp(results[1].text, "not 1") == 0 && results[1].code == 4);
	cr_assert(results[0].status == FAR_OK && results[2].status == FAR_OK);
	cr_assert_eq(run("t::rank", FAR_ARGS(1), &two, &out), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 2);
}

/* Arguments of a target's own, and a worker that is not there. */
Test(api_fanout, targets_differ)
{
	const struct far_val own = far_int(2);
	const struct far_fanout_opts opts = {.k = 1, .errors = FAR_ERRORS_COLLECT};
	struct far_val out;
	targets[2].args = &own;
	targets[2].args_n = 1;
	targets[1].to.worker = 9;
	cr_assert_eq(run("t::rank", FAR_ARGS(-1), &opts, &out), FAR_OK, "%s", err.text);
	cr_assert_eq(results[0].status, FAR_OK);
	cr_assert(results[1].status == FAR_UNKNOWN_WORKER && results[1].executed == FAR_EXECUTED_NO);
}

Test(api_fanout, messages_fill_one_buffer)
{
	char buffer[3 * 4 + 1] = "............";
	const struct far_fanout_opts opts = {.recv_buf = buffer, .slice_bytes = 4};
	struct far_future *f;
	targets[1].data = "two";
	targets[1].len = 3;
	cr_assert_eq(far_msg_fanout(agents[0], 1, "comm", 4, targets, N, &opts, results, &f, &err), FAR_OK, "%s",
		     err.text);
	agents_until(f);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_OK, "%s", err.text);
	far_future_free(f);
	cr_assert_str_eq(buffer, "commtwo.comm");
	cr_assert_eq(results[1].len, 3u);
}

/* Expect the deadline to end it, and a cancel too, with every target's result. */
Test(api_fanout, ended_early)
{
	const struct far_fanout_opts opts = {.timeout_ns = FAR_MS};
	struct far_future *f;
	cr_assert_eq(far_rpc_fanout(agents[0], "t::never", NULL, 0, targets, N, &opts, results, &f, &err), FAR_OK);
	agents_pass(2 * FAR_MS);
	agents_until(f);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_TIMEOUT);
	cr_assert(strstr(err.text, "no answer to t::never within the time-out of 1 ms"), "%s", err.text);
	far_future_free(f);
	for (unsigned i = 0; i < N; i++)
		cr_assert_eq(results[i].status, FAR_TIMEOUT);
	cr_assert_eq(far_rpc_fanout(agents[0], "t::never", NULL, 0, targets, N, NULL, results, &f, &err), FAR_OK);
	cr_assert_eq(far_future_cancel(f, &err), FAR_OK);
	agents_until(f);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_CANCELLED);
	far_future_free(f);
}

/* Expect each refused before anything is sent. */
Test(api_fanout, what_cannot_begin)
{
	struct far_future *f = NULL;
	struct far_fanout_opts opts = {.k = N + 1};
	uint64_t sent = atomic_load(&agents[0]->shards[0]->counters.calls_sent);
	const struct far_val *args;
	size_t n;
	struct far_val one = far_int(-1);
	args = &one;
	n = 1;
	cr_assert_eq(far_rpc_fanout(agents[0], "t::rank", args, n, targets, N, &opts, results, &f, &err), FAR_INVALID);
	cr_assert_eq(far_rpc_fanout(agents[0], "t::none", args, n, targets, N, NULL, results, &f, &err),
		     FAR_NO_FUNCTION);
	cr_assert_eq(far_rpc_fanout(agents[0], "t::rank", NULL, 0, targets, N, NULL, results, &f, &err), FAR_BAD_ARGS);
	cr_assert_eq(far_rpc_fanout(agents[0], "t::rank", args, n, targets, FAR_FANOUT_MAX + 1, NULL, NULL, &f, &err),
		     FAR_INVALID);
	cr_assert_eq(far_rpc_fanout(agents[0], "t::rank", args, n, targets, N, NULL, results, NULL, &err), FAR_INVALID);
	opts = (struct far_fanout_opts){.hedge_after_ns = FAR_MS};
	cr_assert_eq(far_rpc_fanout(agents[0], "t::rank", args, n, targets, N, &opts, results, &f, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "FAR_IDEMPOTENT"), "%s", err.text);
	cr_assert_null(f);
	cr_assert_eq(atomic_load(&agents[0]->shards[0]->counters.calls_sent), sent);
}

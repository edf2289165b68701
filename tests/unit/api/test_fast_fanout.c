/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Fan-outs on the thread that holds a shard, outside of fibers, as the fast path takes them: each guard that it leaves
 * at (api/fanout.c, features/fanout). The test's thread, in tasks of agents that it steps.
 */
#include "agents_fixture.h"
#include "on_shard.h"

#include <farcall/fanout.h>
#include <string.h>

enum { ECHO = 1, N = 3 };

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

static void setup(void)
{
	static const struct far_function function = {"t::sum(Tensor a) -> Tensor", FAR_KIND_INLINE, add_all, NULL};
	static const struct far_msg_handler handler = {.id = ECHO, .kind = FAR_KIND_INLINE, .fn = echo};
	const struct far_opts opts = {.messages = &handler, .messages_n = 1, .functions = &function, .functions_n = 1};
	agents_begin(N, &opts);
	warm_up(N);
}

TestSuite(api_fast_fanout, .init = setup, .fini = agents_end);

static struct far_future *future;
static uint8_t long_text[48];
static const float eight[8] = {1, 2, 3, 4, 5, 6, 7, 8};

static struct far_target targets[N];
static struct far_target_result results[N];
static struct far_fanout_opts fanout_opts;
static char slices[N][8];
static const void *common;
static size_t common_len;

static void fan_out_messages(void)
{
	cr_assert_eq(
		far_msg_fanout(agents[0], ECHO, common, common_len, targets, N, &fanout_opts, results, &future, &err),
		FAR_OK, "%s", err.text);
}

static enum far_status fan_out(void (*fn)(void))
{
	on_shard(0, fn);
	agents_until(future);
	enum far_status s = far_future_value(future, NULL, &err);
	far_future_free(future);
	return s;
}

static void targets_begin(void)
{
	memset(targets, 0, sizeof targets);
	memset(slices, '.', sizeof slices);
	fanout_opts = (struct far_fanout_opts){.recv_buf = slices, .slice_bytes = sizeof slices[0]};
	for (int32_t i = 0; i < N; i++)
		targets[i].to = (struct far_to){i, -1};
}

/* Targets with a request of their own, and one that is not there. */
Test(api_fast_fanout, fan_outs_with_own_requests)
{
	targets_begin();
	targets[1].data = "own";
	targets[1].len = 4;
	common = "common";
	common_len = 7;
	cr_assert_eq(fan_out(fan_out_messages), FAR_OK, "%s", err.text);
	cr_assert_str_eq(slices[0], "common");
	cr_assert_str_eq(slices[1], "own");
	cr_assert_str_eq(slices[2], "common");
	targets[1].to.worker = N;
	fanout_opts.errors = FAR_ERRORS_COLLECT;
	cr_assert_eq(fan_out(fan_out_messages), FAR_UNKNOWN_WORKER);
	cr_assert(results[0].status == FAR_OK && results[2].status == FAR_OK);
}

/* Requests of a line, and longer; a reply longer than its slice. */
Test(api_fast_fanout, fan_outs_of_long_requests)
{
	static uint8_t back[N][sizeof long_text];
	targets_begin();
	for (size_t i = 0; i < sizeof long_text; i++)
		long_text[i] = (uint8_t)(i + 1);
	common = long_text;
	common_len = sizeof long_text;
	fanout_opts.recv_buf = back;
	fanout_opts.slice_bytes = sizeof back[0];
	cr_assert_eq(fan_out(fan_out_messages), FAR_OK, "%s", err.text);
	for (unsigned i = 0; i < N; i++)
		cr_assert_eq(memcmp(back[i], long_text, sizeof long_text), 0);
	targets_begin();
	common_len = sizeof slices[0] + 1;
	cr_assert_eq(fan_out(fan_out_messages), FAR_TOO_LARGE);
	cr_assert_eq(slices[0][0], '.');
}

/* Expect an interceptor to see the call to each target. */
Test(api_fast_fanout, interceptors_see_fan_outs)
{
	unsigned id;
	const struct far_interceptor interceptor = {.name = "t", .call_out = see};
	targets_begin();
	common = "common";
	common_len = 7;
	cr_assert_eq(far_interceptor_add(&interceptor, &id, &err), FAR_OK, "%s", err.text);
	/* Agents of the fixture are in no list of the process: this notes the interceptor. */
	cr_assert_eq(far_set_rpc_timeout_ns(agents[0], far_rpc_timeout_ns(agents[0])), FAR_OK);
	seen_n = 0;
	cr_assert_eq(fan_out(fan_out_messages), FAR_OK, "%s", err.text);
	cr_assert_eq(seen_n, (unsigned)N);
	cr_assert_eq(far_interceptor_remove(id, &err), FAR_OK);
}

static struct far_val fan_args[2];

static void fan_out_sums(void)
{
	cr_assert_eq(
		far_rpc_fanout(agents[0], "t::sum", &fan_args[0], 1, targets, N, &fanout_opts, results, &future, &err),
		FAR_OK, "%s", err.text);
}

/* Typed, first while the function's number is not known at the callees; then a target with its own arguments. */
Test(api_fast_fanout, fan_outs_of_typed_calls)
{
	targets_begin();
	fanout_opts.recv_buf = NULL;
	fanout_opts.slice_bytes = 0;
	fan_args[0] = floats(eight, 2);
	fan_args[1] = floats(eight, 3);
	for (unsigned round = 0; round < 3; round++) {
		if (round == 2) {
			targets[1].args = &fan_args[1];
			targets[1].args_n = 1;
		}
		on_shard(0, fan_out_sums);
		agents_until(future);
		cr_assert_eq(far_future_value(future, NULL, &err), FAR_OK, "%s", err.text);
		far_future_free(future);
		for (unsigned i = 0; i < N; i++) {
			const struct far_tensor *t = far_val_tensor(&results[i].value);
			cr_assert_eq(*(const float *)t->data, round == 2 && i == 1 ? 6 : 3);
			far_val_fini(&results[i].value);
		}
	}
}

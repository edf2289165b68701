/* SPDX-License-Identifier: BSD-3-Clause */
/** A program of one worker over most of the interface. Compiled with the headers of a release, it runs with the present
 * library. */
#include <farcall/farcall.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s does not hold: %s\n", __FILE__, __LINE__, #condition, err.text);    \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static struct far_agent *agent;
static struct far_err err;

static enum far_status twice(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n, (void)user;
	return far_return_int(req, 2 * args[0].u.i);
}

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	(void)user;
	far_reply(req, data, len);
}

static void calls(void)
{
	const float x[] = {1, 2, 3};
	struct far_tensor t = far_tensor_1d(FAR_F32, x, 3);
	struct far_call_opts opts = {.timeout_ns = 10 * FAR_SEC, .via = FAR_VIA(0)};
	struct far_val out;
	char reply[8];
	size_t len;
	CHECK(!far_rpc_sync(agent, "worker0", "abi::twice", FAR_ARGS(21), &opts, &out, &err) && out.u.i == 42);
	CHECK(!far_rpc_sync(agent, "worker0", "far::identity", FAR_ARGS(&t), NULL, &out, &err));
	CHECK(out.type == FAR_TYPE_TENSOR && ((const float *)out.u.t.data)[2] == 3);
	far_val_fini(&out);
	CHECK(!far_msg_call(agent, (struct far_to){0, -1}, 7, "hello", 6, NULL, reply, sizeof reply, &len, &err));
	CHECK(len == 6 && strcmp(reply, "hello") == 0);
}

static void fanout(void)
{
	struct far_target targets[3] = {{.to = {0, -1}}, {.to = {0, 0}}, {.to = {0, -1}}};
	struct far_target_result results[3];
	struct far_fanout_opts opts = {.timeout_ns = 10 * FAR_SEC};
	struct far_future *f;
	struct far_val out;
	CHECK(!far_rpc_fanout(agent, "abi::twice", FAR_ARGS(4), targets, 3, &opts, results, &f, &err));
	CHECK(!far_future_wait(f, 0, &out, &err) && out.u.i == 3 && results[2].value.u.i == 8);
	far_future_free(f);
}

/* A result beyond its struct would overwrite the guard. */
#define GUARDED(type)                                                                                                  \
	struct {                                                                                                       \
		struct type value;                                                                                     \
		uint64_t guard;                                                                                        \
	}

static void results(void)
{
	GUARDED(far_counters) counters = {.guard = 1};
	GUARDED(far_worker_info) info = {.guard = 2};
	GUARDED(far_nic_stats) stats = {.guard = 3};
	GUARDED(far_limits) limits = {.guard = 4};
	GUARDED(far_memory) memory = {.guard = 5};
	GUARDED(far_rref_counts) rrefs = {.guard = 6};
	GUARDED(far_fault_counts) faults = {.guard = 7};
	far_counters_read(agent, &counters.value);
	CHECK(counters.value.calls_completed >= 6 && counters.guard == 1);
	far_worker_self(agent, &info.value);
	CHECK(strcmp(info.value.name, "worker0") == 0 && info.value.alive && info.guard == 2);
	CHECK(!far_nic_stats_read(agent, 0, &stats.value, &err) && stats.value.driver[0] && stats.guard == 3);
	far_limits_read(agent, &limits.value);
	CHECK(limits.value.calls == 500 && limits.guard == 4);
	far_memory_stats(&memory.value);
	CHECK(memory.value.reserved && memory.guard == 5);
	far_rref_counts_read(agent, &rrefs.value);
	CHECK(rrefs.value.owned == 0 && rrefs.guard == 6);
	far_fault_counts_read(agent, &faults.value);
	CHECK(faults.guard == 7);
}

int main(void)
{
	const struct far_function function = {"abi::twice(int x) -> int", FAR_KIND_INLINE, twice, NULL, 0};
	const struct far_msg_handler handler = {7, FAR_KIND_INLINE, echo, NULL, 0};
	const struct far_opts opts = {.functions = &function,
				      .functions_n = 1,
				      .messages = &handler,
				      .messages_n = 1,
				      .calls = 500,
				      .rref_retry_ns = 2 * FAR_MS};
	CHECK(!far_init_rpc("worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err));
	calls();
	fanout();
	results();
	CHECK(!far_shutdown(agent, 0, &err));
	printf("built with %s, library %s\n", FAR_VERSION, far_version());
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Members, shards, ports and counters of an agent, and what is registered later. The test's thread, and fibers of
 * agents that it steps. */
#include "agents_fixture.h"
#include "handlers.h"

#include <string.h>

static void setup(void)
{
	const struct far_opts opts = {.shards = 2};
	agents_begin(2, &opts);
}

TestSuite(api_workers, .init = setup, .fini = agents_end);

Test(api_workers, members_by_name_rank_and_as_a_list)
{
	struct far_worker_info a, b, all[3];
	cr_assert_eq(far_worker_by_name(agents[0], "w1", &a, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_worker_by_rank(agents[0], 1, &b, &err), FAR_OK, "%s", err.text);
	cr_assert(strcmp(a.name, "w1") == 0 && a.rank == 1 && a.shards == 2 && a.alive);
	cr_assert(strcmp(b.name, "w1") == 0 && b.incarnation == a.incarnation);
	far_worker_self(agents[1], &b);
	cr_assert(strcmp(b.name, "w1") == 0 && b.incarnation == a.incarnation && b.incarnation != 0);
	memset(all, 0xee, sizeof all);
	cr_assert_eq(far_workers(agents[0], all, 1), 2, "the number of members, whatever the array holds");
	cr_assert_str_eq(all[0].name, "w0");
	cr_assert_eq((uint8_t)all[1].name[0], 0xee);
	cr_assert_eq(far_workers(agents[0], all, 3), 2);
	cr_assert_str_eq(all[1].name, "w1");
	cr_assert_eq((uint8_t)all[2].name[0], 0xee);
	cr_assert_eq(far_world_size(agents[0]), 2);
	cr_assert(far_self(agents[1]).worker == 1 && far_self(agents[1]).shard == -1);
}

Test(api_workers, one_that_is_not_there_is_named)
{
	struct far_worker_info w = {.rank = 77};
	cr_assert_eq(far_worker_by_name(agents[0], "nobody", &w, &err), FAR_UNKNOWN_WORKER);
	cr_assert(strstr(err.text, "nobody"), "%s", err.text);
	cr_assert_eq(far_worker_by_rank(agents[0], 2, &w, &err), FAR_UNKNOWN_WORKER);
	cr_assert(strstr(err.text, "2"), "%s", err.text);
	cr_assert_eq(far_worker_by_rank(agents[0], -1, &w, &err), FAR_UNKNOWN_WORKER);
	cr_assert_eq(w.rank, 77);
}

/* A program that was compiled with a shorter struct. Expect its bytes alone written. */
Test(api_workers, a_shorter_struct_of_the_caller)
{
	struct far_worker_info w;
	memset(&w, 0xee, sizeof w);
	size_t bytes = offsetof(struct far_worker_info, alive);
	cr_assert_eq(far_worker_by_rank_sized(agents[0], 1, &w, bytes, &err), FAR_OK);
	cr_assert(strcmp(w.name, "w1") == 0 && w.shards == 2);
	for (size_t i = bytes; i < sizeof w; i++)
		cr_assert_eq(((const uint8_t *)&w)[i], 0xee, "byte %zu", i);
}

Test(api_workers, shards_and_ports)
{
	struct far_counters c;
	struct far_nic_stats stats;
	cr_assert_eq(far_shards(agents[0]), 2u);
	cr_assert_eq(far_shard_counters_read(agents[0], 2, &c, &err), FAR_INVALID);
	cr_assert_str_eq(err.text, "worker \"w0\" has 2 shards, numbered from 0; there is no shard 2");
	cr_assert_eq(far_shard_acquire_at(agents[0], 9, 0, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "there is no shard 9"), "%s", err.text);
	cr_assert_eq(far_shard_poll_at(agents[0], 9), 0u);
	cr_assert_eq(far_shard_poll_at(agents[0], 0), 0u, "this thread does not hold it");
	far_shard_release_at(agents[0], 9); /* no effect */
	unsigned ports = far_nic_ports(agents[0]);
	cr_assert_geq(ports, 1u);
	cr_assert_eq(far_nic_stats_read(agents[0], 0, &stats, &err), FAR_OK);
	cr_assert_eq(far_nic_stats_read(agents[0], ports, &stats, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "there is no port"), "%s", err.text);
}

/* Calls to either shard. Expect the counters of the agent to be the sum of those of its shards. */
Test(api_workers, counters_are_sums)
{
	struct far_counters all, one[2];
	struct far_future *f;
	for (int32_t shard = 0; shard < 2; shard++)
		for (int i = 0; i <= shard; i++) {
			const struct far_val arg = far_int(1);
			cr_assert_eq(far_rpc_async_to(agents[0], (struct far_to){1, shard}, "far::identity", &arg, 1,
						      NULL, &f, &err),
				     FAR_OK, "%s", err.text);
			agents_until(f);
			far_future_free(f);
		}
	far_counters_read(agents[1], &all);
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(far_shard_counters_read(agents[1], i, &one[i], &err), FAR_OK);
	cr_assert_eq(one[0].requests_received, 1u);
	cr_assert_eq(one[1].requests_received, 2u);
	cr_assert_eq(all.requests_received, 3u);
	cr_assert_eq(all.replies_sent, one[0].replies_sent + one[1].replies_sent);
}

Test(api_workers, the_default_deadline)
{
	cr_assert_eq(far_rpc_timeout_ns(agents[0]), FAR_RPC_TIMEOUT_NS);
	cr_assert_eq(far_set_rpc_timeout_ns(agents[0], 5 * FAR_MS), FAR_OK);
	cr_assert_eq(far_rpc_timeout_ns(agents[0]), 5 * FAR_MS);
	cr_assert_eq(far_rpc_timeout_ns(agents[1]), FAR_RPC_TIMEOUT_NS);
	cr_assert_eq(far_set_rpc_timeout_ns(agents[0], 0), FAR_OK);
	cr_assert_eq(far_rpc_timeout_ns(agents[0]), FAR_RPC_TIMEOUT_NS);
}

Test(api_workers, functions_and_messages_are_registered_once)
{
	const struct far_function f = {"t::twice(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL};
	const struct far_msg_handler m = {.id = 7, .kind = FAR_KIND_INLINE};
	struct far_future *done;
	struct far_val out;
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(far_register_function(agents[i], &f, &err), FAR_OK, "%s", err.text);
	cr_assert_neq(far_register_function(agents[0], &f, &err), FAR_OK);
	cr_assert(strstr(err.text, "t::twice"), "%s", err.text);
	cr_assert_neq(far_register_function(agents[0], NULL, &err), FAR_OK);
	cr_assert_neq(far_register_message(agents[0], &m, &err), FAR_OK, "without a function");
	cr_assert_neq(far_register_message(agents[0], NULL, &err), FAR_OK);
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::twice", FAR_ARGS(21), NULL, &done, &err), FAR_OK, "%s",
		     err.text);
	agents_until(done);
	cr_assert_eq(far_future_value(done, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 42);
	far_future_free(done);
}

/* Expect a call to each shard, or to the one that is named, and none to a worker that is not there. */
Test(api_workers, keep_awake)
{
	struct far_counters before, after;
	far_counters_read(agents[0], &before);
	cr_assert_eq(far_keep_awake(agents[0], (struct far_to){1, -1}, FAR_MS, &err), FAR_OK, "%s", err.text);
	for (unsigned i = 0; i < 1000; i++)
		agents_turn();
	far_counters_read(agents[0], &after);
	cr_assert_eq(after.calls_sent - before.calls_sent, 2u);
	cr_assert_eq(far_keep_awake(agents[0], (struct far_to){1, 1}, FAR_MS, &err), FAR_OK);
	for (unsigned i = 0; i < 1000; i++)
		agents_turn();
	far_counters_read(agents[0], &before);
	cr_assert_eq(before.calls_sent - after.calls_sent, 1u);
	cr_assert_eq(far_keep_awake(agents[0], (struct far_to){5, -1}, FAR_MS, &err), FAR_UNKNOWN_WORKER);
	cr_assert_eq(far_keep_awake(agents[0], (struct far_to){1, 2}, FAR_MS, &err), FAR_INVALID);
}

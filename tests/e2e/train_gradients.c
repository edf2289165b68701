/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Gradients between three workers in one process: hooks that make calls, which the pass that runs them does not
 * disturb; messages and copies, by their counts; compression, and a worker without it.
 * Main thread of each process; handlers on shard threads.
 */
#include "train_gradients.h"
#include "api_together.h"
#include "objects.h"

static struct together t[WORKERS];
static struct train_opts with[WORKERS];
struct far_train *trains[WORKERS];
struct far_pool *pool;
struct far_agent *agent_of(int rank)
{
	return t[rank].agent;
}

/* ---- the group ---- */

/** Takes the functions of compression away: a worker with the library before it. */
static void make_old(struct far_opts *opts)
{
	struct far_function *functions = with[OLD].functions;
	size_t n = 0;
	for (size_t i = 0; i < opts->functions_n; i++)
		if (!strstr(functions[i].signature, "::packed"))
			functions[n++] = functions[i];
	CHECK(n == opts->functions_n - 2);
	opts->functions_n = n;
}

static void join(void)
{
	struct far_err err;
	struct far_opts opts = {.blocking_threads = 8};
	opts.functions = gradient_functions(&opts.functions_n);
	CHECK_STATUS(far_pool_new(0, &pool, &err), FAR_OK, &err);
	for (int i = 0; i < WORKERS; i++) {
		CHECK_STATUS(far_train_new(pool, &trains[i], &err), FAR_OK, &err);
		CHECK_STATUS(train_opts_make(trains[i], &opts, &with[i], &err), FAR_OK, &err);
		t[i] = (struct together){.rank = i, .world = WORKERS, .opts = with[i].all};
	}
	make_old(&t[OLD].opts);
	together_all(t, WORKERS, together_join);
	for (int i = 0; i < WORKERS; i++)
		atomic_store(&trains[i]->agent, t[i].agent);
}

static void leave(void)
{
	struct far_pool_stats stats;
	together_all(t, WORKERS, together_leave);
	for (int i = 0; i < WORKERS; i++) {
		CHECK(far_train_contexts(trains[i]) == 0);
		far_train_free(trains[i]);
		train_opts_free(&with[i]);
	}
	far_pool_get_stats(pool, &stats);
	CHECK(stats.used_bytes == 0);
	far_pool_free(pool);
}

int main(void)
{
	alarm(HANG_GUARD_S);
	together_listen();
	join();
	hooks_make_calls();
	a_hop_is_one_call();
	copies_count();
	long_steps_are_known();
	second_part_passes_through();
	gradients_share_messages();
	leaves_keep_requests();
	views_are_sent();
	gradients_wait_for_no_function();
	gradients_arrive_while_others_run();
	errors_wait_for_hooks();
	threads_train_together();
	bf16_rounds_to_nearest();
	top_k_feeds_errors_back();
	old_workers_are_named();
	bad_bytes_are_refused();
	leave();
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Fan-outs that end otherwise: hedged, given up, cancelled, with a worker killed, with the agent shut down.
 * Main thread of each process; threads that it starts. */
#include "fanout_workers.h"

#include <pthread.h>

static void hedges(void)
{
	struct far_counters before, after;
	struct far_fanout_opts opts = {.hedge_after_ns = 2 * FAR_MS, .timeout_ns = FAR_FOREVER};
	static const struct far_to second = {5, -1};
	to_others(3);
	for (int i = 0; i < 3; i++)
		targets[i].second = i == 2 ? NULL : &second;
	far_counters_read(agent, &before);
	/* Worker 1 never answers: its second choice does. */
	expect(start("t::hold", 1 << 1, 3, &opts), FAR_OK, 3);
	far_counters_read(agent, &after);
	CHECK(results[0].hedged && results[0].from.worker == 5 && results[0].value.u.i == 5);
	/* Who is late on a busy machine has a second choice as well. */
	CHECK(after.hedges_won > before.hedges_won && after.hedges_sent > before.hedges_sent);
	CHECK(!results[2].hedged);
	CHECK(query(1, "t::release") == 1); /* the loser was cancelled */
	/* The second choice is called, and loses. */
	far_counters_read(agent, &before);
	struct far_future *f = start("t::hold", 1 << 1 | 1 << 5, 1, &opts);
	while (query(5, "t::kept") == 0)
		;
	CHECK(query(1, "t::release") == 0);
	expect(f, FAR_OK, 1);
	far_counters_read(agent, &after);
	CHECK(results[0].hedged && results[0].from.worker == 1 && results[0].value.u.i == 1);
	CHECK(after.hedges_sent == before.hedges_sent + 1 && after.hedges_won == before.hedges_won);
	CHECK(query(5, "t::release") == 1);
	/* The function's own error is an answer; the second choice is not called, now or later. */
	far_counters_read(agent, &before);
	opts.hedge_after_ns = 60 * FAR_SEC;
	expect(start("t::fail", 1 << 1, 1, &opts), FAR_REMOTE, 0);
	far_counters_read(agent, &after);
	CHECK(after.hedges_sent == before.hedges_sent && !results[0].hedged);
	/* The next replica: of the last target that is where the first goes. */
	opts = (struct far_fanout_opts){.hedge_after_ns = FAR_MS, .hedge = FAR_HEDGE_NEXT};
	to_others(3);
	expect(start("t::hold", 1 << 3, 3, &opts), FAR_OK, 3);
	CHECK(results[2].hedged && results[2].from.worker == 1 && results[2].value.u.i == 1);
	CHECK(query(3, "t::release") >= 1);
	/* Messages too, if both ends say so. */
	char reply[3][4];
	opts = (struct far_fanout_opts){.hedge_after_ns = FAR_MS, .recv_buf = reply, .slice_bytes = 4};
	opts.hedge = FAR_HEDGE_NEXT;
	CHECK_STATUS(far_msg_fanout(agent, TWICE, "abc", 4, targets, 3, &opts, results, &f, &err), FAR_OK, &err);
	expect(f, FAR_OK, 3);
	CHECK(strcmp(reply[2], "abc") == 0);
}

static void *free_main(void *f)
{
	far_future_free(f);
	return NULL;
}

static void *cancel_main(void *f)
{
	struct far_err why;
	CHECK_STATUS(far_future_cancel(f, &why), FAR_OK, &why);
	return NULL;
}

/* The holder of the shard must go on running it: the thread that frees the future waits for that. */
static void in_thread(void *(*body)(void *), struct far_future *f)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, body, f) == 0);
	while (pthread_tryjoin_np(thread, NULL))
		far_shard_poll(agent);
}

/* Held answers come after the fan-out has ended: they must find nothing of it. */
static void early_ends(void)
{
	for (int i = 0; i < 20; i++) {
		struct far_fanout_opts opts = {.timeout_ns = FAR_FOREVER};
		int64_t *ranks = malloc(5 * sizeof *ranks);
		struct far_target *own = malloc(5 * sizeof *own);
		struct far_future *f;
		CHECK(ranks && own);
		for (int t = 0; t < 5; t++) {
			own[t] = (struct far_target){.to = {1 + t, -1}};
			ranks[t] = -1;
		}
		opts.recv_buf = ranks;
		opts.slice_bytes = sizeof *ranks;
		CHECK_STATUS(far_rpc_fanout(agent, "t::hold", FAR_ARGS(0xff), own, 5, &opts, NULL, &f, &err), FAR_OK,
			     &err);
		if (i % 4 == 0) {
			far_future_free(f);
		} else if (i % 4 == 1) {
			in_thread(free_main, f);
		} else {
			if (i % 4 == 2)
				CHECK_STATUS(far_future_cancel(f, &err), FAR_OK, &err);
			else
				in_thread(cancel_main, f);
			expect(f, FAR_CANCELLED, 0);
			CHECK_TEXT(&err, "cancelled");
		}
		for (int t = 0; t < 5; t++)
			CHECK(ranks[t] == -1);
		free(ranks); /* a write from now on is the sanitizer's */
		free(own);
		for (int w = 1; w < WORKERS; w++)
			query(w, "t::release");
	}
}

static int ends(int r)
{
	agent = join();
	if (rank == 0) {
		hedges();
		early_ends();
		if (far_shard_acquire(agent, 0, &err) == FAR_OK) {
			early_ends();
			far_shard_release(agent);
		}
		nothing_left();
	}
	check_leave(agent);
	return 0;
}

/* Worker 5 is killed with calls of a fan-out pending there; then this worker shuts down with others pending. */
static int deaths(int r)
{
	static int64_t ranks[MANY];
	struct far_fanout_opts opts = {.errors = FAR_ERRORS_COLLECT, .timeout_ns = FAR_FOREVER};
	agent = join();
	if (rank != 0) {
		struct far_worker_info info;
		do
			usleep(1000);
		while (far_worker_by_rank(agent, 0, &info, &err) == FAR_OK && info.alive);
		CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
		return 0;
	}
	/* A thousand: most of them still wait for room when it dies. */
	opts.recv_buf = ranks;
	opts.slice_bytes = sizeof ranks[0];
	to_others(MANY);
	for (int i = 0; i < MANY; i++)
		if (i >= 5)
			targets[i].to.worker = 5;
	/* A worker that still joins fails when another one dies. */
	for (int w = 1; w < WORKERS; w++)
		while (!query(w, "t::joined"))
			;
	int64_t pid5 = query(5, "t::pid");
	struct far_future *f = start("t::hold", 1 << 5, MANY, &opts);
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::rank", FAR_NOARGS, NULL, NULL, &err), FAR_OK, &err);
	CHECK(!far_future_done(f));
	CHECK(kill((pid_t)pid5, SIGKILL) == 0);
	expect(f, FAR_PEER_LOST, 0);
	CHECK(strcmp(err.origin, "worker5") == 0);
	for (int i = 0; i < 4; i++)
		CHECK(results[i].status == FAR_OK && ranks[i] == i + 1);
	for (int i = 4; i < MANY; i++)
		CHECK(results[i].status == FAR_PEER_LOST);
	CHECK(results[4].executed == FAR_EXECUTED_MAYBE && results[MANY - 1].executed == FAR_EXECUTED_NO);
	/* A dead one among them, known to be dead: its second choice is called at once. */
	to_others(5);
	opts = (struct far_fanout_opts){.k = 4};
	expect(start("t::fail", 0, 5, &opts), FAR_OK, 4);
	CHECK(results[4].status == FAR_PEER_LOST && results[4].executed == FAR_EXECUTED_NO);
	opts = (struct far_fanout_opts){.hedge_after_ns = 60 * FAR_SEC, .hedge = FAR_HEDGE_NEXT};
	expect(start("t::fail", 0, 5, &opts), FAR_OK, 5);
	CHECK(results[4].hedged && results[4].from.worker == 1);
	opts = (struct far_fanout_opts){.timeout_ns = FAR_FOREVER, .recv_buf = ranks, .slice_bytes = sizeof ranks[0]};
	to_others(4);
	for (int i = 4; i < MANY; i++)
		targets[i].to.worker = 1;
	f = start("t::hold", 0xff, MANY, &opts);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	CHECK(far_future_done(f));
	expect(f, FAR_SHUTDOWN, 0);
	for (int i = 0; i < MANY; i++)
		CHECK(results[i].status == FAR_SHUTDOWN);
	return 0;
}

int main(void)
{
	int bad = run_both(ends, -1);
	return run_both(deaths, 5) || bad;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The time of a cluster: what sleeps, what computes, who waits, and who sleeps with work. The test's thread. */
#include "apps/sim/cluster_world.h"
#include "cluster_fixture.h"
#include "nic/sim/sim_port.h"

#include <criterion/criterion.h>
#include <string.h>

static void keep_time(struct cluster_worker *w, void *ctx)
{
	struct calls *calls = ctx;
	uint64_t began = cluster_now(calls->c), took;
	cr_assert_eq(cluster_sleep(12345), FAR_OK);
	took = cluster_now(calls->c) - began;
	cr_assert(took >= 12345 && took < 12345 + 5000, "%llu ns", (unsigned long long)took);
	began = cluster_now(calls->c);
	cr_assert_eq(cluster_compute(7000000), FAR_OK);
	took = cluster_now(calls->c) - began;
	cr_assert(took >= 7000000 && took < 7000000 + 5000, "%llu ns", (unsigned long long)took);
	calls->ok += cluster_here() == w;
}

/* Ends when it is notified only. */
static void compute_for_ever(struct cluster_worker *w, void *ctx)
{
	struct calls *calls = ctx;
	while (!cluster_compute(1000))
		;
	calls->unhung++;
}

Test(cluster_time, who_computes_for_ever_dies_with_its_worker)
{
	struct calls calls = {.rounds = 0};
	struct cluster *c = fixture_ready(1, 29, &calls, 1);
	cluster_spawn(cluster_worker(c, 0), -1, compute_for_ever, &calls);
	cluster_run_until(c, cluster_now(c) + SECOND / 100);
	cr_assert_eq(calls.unhung, 0);
	cluster_crash(cluster_worker(c, 0), CLUSTER_KILL);
	cr_assert_eq(calls.unhung, 1);
	fixture_destroy(c);
}

/* What comes meanwhile waits. */
static void query_the_busy(struct cluster_worker *w, void *ctx)
{
	struct calls *calls = ctx;
	uint64_t began, question[2] = {0};
	uint32_t answer;
	cluster_sleep(100000);
	began = cluster_now(calls->c);
	cr_assert_eq(far_msg_call(cluster_agent(w), (struct far_to){0, -1}, CALLS_ECHO, question, sizeof question, NULL,
				  &answer, sizeof answer, NULL, NULL),
		     FAR_OK);
	cr_assert_geq(cluster_now(calls->c) - began, 6000000);
	calls->ok++;
}

Test(cluster_time, computing_makes_a_core_late_and_sleeping_does_not)
{
	struct calls calls = {.rounds = 0};
	struct cluster *c = fixture_ready(2, 22, &calls, 1);
	cluster_spawn(cluster_worker(c, 0), -1, keep_time, &calls);
	cluster_spawn(cluster_worker(c, 1), -1, query_the_busy, &calls);
	fixture_apps_end(c);
	cr_assert_eq(calls.ok, 2);
	fixture_leave(c);
}

/* The waits of the public interface are by the host's clock, whose ticks are of 131 µs. */
static void wait_in_vain(struct cluster_worker *w, void *ctx)
{
	struct calls *calls = ctx;
	struct far_future *f[2];
	struct far_err err;
	size_t index;
	for (unsigned i = 0; i < 3; i++) {
		cr_assert(!far_future_create(&f[0], &err) && !far_future_create(&f[1], &err));
		uint64_t began = cluster_now(calls->c), took;
		enum far_status status = i == 0   ? far_future_wait(f[0], 3000000, NULL, &err)
					 : i == 1 ? far_future_wait_all(f, 2, 3000000, &err)
						  : far_future_wait_any(f, 2, 3000000, &index, &err);
		took = cluster_now(calls->c) - began;
		cr_assert_neq(status, FAR_OK);
		cr_assert(took >= 2900000 && took < 3500000, "%u: %llu ns", i, (unsigned long long)took);
		far_future_free(f[0]);
		far_future_free(f[1]);
		calls->ok++;
	}
}

Test(cluster_time, waits_are_by_the_hosts_clock)
{
	struct calls calls = {.rounds = 0};
	struct cluster *c = fixture_ready(1, 25, &calls, 1);
	cluster_spawn(cluster_worker(c, 0), -1, wait_in_vain, &calls);
	fixture_apps_end(c);
	cr_assert_eq(calls.ok, 3);
	fixture_leave(c);
}

static void nothing(struct cluster_worker *w, void *ctx)
{
	struct calls *calls = ctx;
	cluster_sleep(1000);
	calls->ok++;
}

Test(cluster_time, more_applications_than_fibers)
{
	struct calls calls = {.rounds = 0};
	struct cluster *c = fixture_made(1, 23, &calls, 2);
	cluster_start_all(c);
	for (unsigned i = 0; i < 1000; i++)
		cr_assert_eq(cluster_spawn(cluster_worker(c, 0), -1, nothing, &calls), 0);
	cr_assert_eq(cluster_apps_all(c), 1000, "they wait until it is ready");
	fixture_apps_end(c);
	cr_assert_eq(calls.ok, 1000);
	cr_assert_eq(cluster_apps_dropped(c), 0);
	fixture_leave(c);
}

/* ---- sleep ---- */

Test(cluster_time, an_idle_cluster_sleeps)
{
	struct calls calls = {.rounds = 1};
	struct cluster *c = fixture_ready(3, 19, &calls, 1);
	struct cluster_stats before, after;
	calls_spawn(&calls);
	fixture_apps_end(c);
	cluster_run_until(c, cluster_now(c) + 5 * SECOND);
	cluster_stats(c, &before);
	cluster_run_until(c, cluster_now(c) + 3600 * SECOND);
	cluster_stats(c, &after);
	cr_assert_leq(after.turns - before.turns, 3, "nothing wakes it");
	calls_spawn(&calls);
	fixture_apps_end(c);
	cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
	fixture_leave(c);
}

static void wait_for_ever(struct cluster_worker *w, void *ctx)
{
	struct calls *calls = ctx;
	struct far_future *f;
	if (far_future_create(&f, NULL))
		return;
	calls->last_status = far_future_wait(f, FAR_FOREVER, NULL, &calls->last);
	far_future_free(f);
}

Test(cluster_time, a_lost_wake_up_is_found)
{
	struct calls calls = {.rounds = 1};
	struct cluster *c = fixture_ready(2, 20, &calls, 1);
	cluster_run_until(c, cluster_now(c) + 5 * SECOND);
	/* It sleeps, and what comes does not wake it. */
	struct cluster_worker *w = cluster_worker(c, 1);
	struct sim_queue *q = sim_queue_of(w->queues[0][0]);
	cr_assert(agent_asleep(w->agent, 0) && q->armed);
	q->armed = false;
	cluster_spawn(cluster_worker(c, 0), -1, calls_app, &calls);
	cr_assert_eq(cluster_run_apps(c, PATIENCE), CLUSTER_RUN_FAILED);
	cr_assert(strstr(cluster_failure(c), "worker asleep with work"), "%s", cluster_failure(c));
	fixture_destroy(c);
}

Test(cluster_time, waiting_for_nothing_is_found)
{
	struct calls calls = {.rounds = 0};
	struct cluster *c = fixture_ready(1, 21, &calls, 1);
	cluster_spawn(cluster_worker(c, 0), -1, wait_for_ever, &calls);
	cr_assert_eq(cluster_run_apps(c, TIME_NEVER), CLUSTER_RUN_FAILED);
	cr_assert(strstr(cluster_failure(c), "worker asleep with work"), "%s", cluster_failure(c));
	fixture_destroy(c);
	cr_assert_eq(calls.last_status, FAR_CANCELLED);
}

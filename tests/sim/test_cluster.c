/* SPDX-License-Identifier: BSD-3-Clause */
/* Clusters of the shipped agents in one thread: all call all, crashes, pauses, partitions, the end. */
#include "apps/sim/cluster_world.h"
#include "cluster_fixture.h"
#include "nic/sim/sim_port.h"

#include <criterion/criterion.h>
#include <farcall/fanout.h>
#include <string.h>

Test(cluster, one)
{
	fixture_all_call_all(1, 1, 3);
}

Test(cluster, two)
{
	fixture_all_call_all(2, 1, 20);
}

Test(cluster, two_of_three_shards)
{
	fixture_all_call_all(2, 3, 20);
}

Test(cluster, ten)
{
	fixture_all_call_all(10, 1, 5);
}

Test(cluster, a_hundred)
{
	fixture_all_call_all(100, 1, 1);
}

Test(cluster, network_cards_of_all_sorts)
{
	static const char *const sorts[] = {"kick", "hash", "hold", "rx=64,tx=32", "align=1", "kick,hash,hold,align=2"};
	for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++) {
		next_cluster.port_args = sorts[i];
		fixture_all_call_all(3, 2, 4);
	}
}

Test(cluster, networks_of_all_sorts)
{
	next_cluster.kind = SIM_PAIR;
	fixture_all_call_all(2, 1, 4);
	next_cluster.kind = SIM_LEAF_SPINE;
	fixture_all_call_all(5, 1, 4);
	next_cluster.rails = 2;
	fixture_all_call_all(5, 2, 2);
}

Test(cluster, sessions_on_demand)
{
	next_cluster.connect = FAR_CONNECT_LAZY;
	fixture_all_call_all(5, 2, 3);
}

/* Sleeps between its calls, so that both sides go to sleep and are woken again and again. */
static void now_and_then(struct cluster_worker *w, void *ctx)
{
	struct calls *calls = ctx;
	for (unsigned i = 0; i < 50; i++) {
		cluster_sleep(60000 + 3000 * i);
		calls_app(w, calls);
	}
}

Test(cluster, calls_now_and_then)
{
	static const char *const sorts[] = {NULL, "kick"};
	for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++) {
		struct calls calls = {.rounds = 1};
		struct cluster_stats stats;
		next_cluster.port_args = sorts[i];
		struct cluster *c = fixture_ready(3, 24, &calls, 1);
		for (unsigned w = 0; w < 3; w++)
			cluster_spawn(cluster_worker(c, w), -1, now_and_then, &calls);
		fixture_apps_end(c);
		cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
		cluster_stats(c, &stats);
		cr_assert_gt(stats.sleeps, 50);
		fixture_leave(c);
	}
}

/* By who runs the cluster, while its shard sleeps. */
Test(cluster, a_fan_out_is_given_up_from_outside)
{
	struct calls calls = {.rounds = 2};
	struct cluster *c = fixture_ready(2, 28, &calls, 1);
	struct far_target targets[2] = {{.to = {0, -1}}, {.to = {1, -1}}};
	struct far_future *f;
	struct far_err err;
	cr_assert_eq(far_msg_fanout(cluster_agent(cluster_worker(c, 0)), CALLS_HANG, NULL, 0, targets, 2, NULL, NULL,
				    &f, &err),
		     FAR_OK, "%s", err.text);
	cluster_run_until(c, cluster_now(c) + 5 * SECOND);
	cr_assert_eq(calls.hung, 2);
	cr_assert(agent_asleep(cluster_agent(cluster_worker(c, 0)), 0));
	far_future_free(f);
	calls_spawn(&calls);
	fixture_apps_end(c);
	cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
	cr_assert_eq(calls.unhung, 2, "their callers have gone");
	fixture_leave(c);
}

/* ---- incarnations ---- */

static void hanging(struct cluster_worker *w, void *ctx)
{
	struct calls *calls = ctx;
	struct far_err err = {.status = FAR_OK};
	enum far_status status =
		far_msg_call(cluster_agent(w), (struct far_to){1, -1}, CALLS_HANG, NULL, 0, NULL, NULL, 0, NULL, &err);
	if (cluster_dead())
		return;
	calls->last_status = status;
	calls->last = err;
	calls->failed += status != FAR_OK;
}

static void crash_in_the_middle(enum cluster_end how)
{
	struct calls calls = {.rounds = 0};
	struct cluster *c = fixture_ready(3, 11, &calls, 1);
	struct cluster_worker *dying = cluster_worker(c, 1);
	cr_assert_eq(cluster_spawn(cluster_worker(c, 0), -1, hanging, &calls), 0);
	cr_assert_eq(cluster_spawn(dying, -1, hanging, &calls), 0);
	cluster_run_until(c, cluster_now(c) + SECOND / 100);
	cr_assert_eq(calls.hung, 2);
	struct sim_host_stats before, after;
	sim_host_stats(cluster_host(dying), &before);
	cluster_crash(dying, how);
	sim_host_stats(cluster_host(dying), &after);
	cr_assert_leq(after.tx_packets - before.tx_packets, 0, "nothing is said to anybody");
	cr_assert_eq(cluster_state(dying), CLUSTER_CRASHED);
	cr_assert_null(cluster_agent(dying));
	cr_assert_eq(calls.unhung, 2, "its handlers have run to their ends");
	cr_assert_eq(cluster_spawn(dying, -1, hanging, &calls), -32);
	fixture_apps_end(c);
	cr_assert_eq(calls.failed, 1);
	cr_assert_eq(calls.last_status, FAR_PEER_LOST, "%s", calls.last.text);
	cr_assert_eq(calls.last.executed, FAR_EXECUTED_MAYBE);
	/* The others go on. */
	struct far_err err = {.status = FAR_OK};
	cr_assert_eq(cluster_state(cluster_worker(c, 2)), CLUSTER_READY);
	cluster_leave_all(c, 20 * SECOND);
	cr_assert_eq(cluster_run_left(c, PATIENCE), CLUSTER_RUN_DONE, "%s", cluster_failure(c));
	cr_assert_eq(cluster_why(cluster_worker(c, 0), &err), FAR_PEER_LOST);
	cr_assert(strstr(err.text, "w1"), "%s", err.text);
	fixture_destroy(c);
}

Test(cluster, a_process_is_killed)
{
	crash_in_the_middle(CLUSTER_KILL);
}

Test(cluster, a_host_loses_its_power)
{
	crash_in_the_middle(CLUSTER_POWER);
}

static void crash_myself(struct cluster_worker *w, void *ctx)
{
	struct calls *calls = ctx;
	cluster_sleep(SECOND / 1000);
	cluster_crash(w, CLUSTER_KILL);
	cr_assert(!cluster_dead(), "not before the end of the turn");
	calls->hung++;
	cr_assert_neq(cluster_sleep(SECOND), FAR_OK);
	cr_assert(cluster_dead());
	calls->unhung++;
}

Test(cluster, a_fiber_crashes_its_own_worker)
{
	struct calls calls = {.rounds = 2000};
	struct cluster *c = fixture_ready(3, 12, &calls, 1);
	calls_spawn(&calls);
	cluster_spawn(cluster_worker(c, 2), -1, crash_myself, &calls);
	fixture_apps_end(c);
	cr_assert_eq(cluster_state(cluster_worker(c, 2)), CLUSTER_CRASHED);
	cr_assert(calls.hung == 1 && calls.unhung == 1);
	cr_assert_eq(calls.wrong, 0);
	cr_assert_gt(calls.ok, 0);
	cr_assert_gt(calls.failed, 0);
	fixture_destroy(c);
}

static void again(enum cluster_end how)
{
	struct calls calls = {.rounds = 3, .typed = true};
	struct cluster *c = fixture_ready(4, 30, &calls, 1);
	struct cluster_worker *w = cluster_worker(c, 2);
	calls_spawn(&calls);
	fixture_apps_end(c);
	cluster_crash(w, how);
	cluster_run_until(c, cluster_now(c) + SECOND / 10);
	cluster_start(w);
	cr_assert_eq(cluster_run_ready(c, PATIENCE), CLUSTER_RUN_DONE, "%s", cluster_failure(c));
	cr_assert_eq(cluster_incarnations(w), 2);
	/* The others have heard of it by now. */
	cluster_run_until(c, cluster_now(c) + SECOND);
	calls.ok = 0;
	calls_spawn(&calls);
	fixture_apps_end(c);
	cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
	cr_assert_eq(calls.wrong, 0);
	cr_assert_eq(calls.ok, 2 * 3 * 4 * 4);
	fixture_leave(c);
}

/* What was pending with the incarnation before ends when the next has come, not by silence. */
Test(cluster, calls_on_the_life_before)
{
	struct calls calls = {.rounds = 0};
	struct cluster *c = fixture_ready(3, 31, &calls, 1);
	struct cluster_worker *w = cluster_worker(c, 1);
	cluster_spawn(cluster_worker(c, 0), -1, hanging, &calls);
	cluster_run_until(c, cluster_now(c) + SECOND / 100);
	cr_assert_eq(calls.hung, 1);
	cluster_crash(w, CLUSTER_POWER);
	cluster_start(w);
	uint64_t began = cluster_now(c);
	fixture_apps_end(c);
	cr_assert_eq(calls.failed, 1);
	cr_assert_eq(calls.last_status, FAR_PEER_LOST, "%s", calls.last.text);
	cr_assert(strstr(calls.last.text, "restarted"), "%s", calls.last.text);
	cr_assert_eq(calls.last.executed, FAR_EXECUTED_MAYBE);
	cr_assert_lt(cluster_now(c) - began, SECOND / 2);
	cr_assert_eq(cluster_run_ready(c, PATIENCE), CLUSTER_RUN_DONE, "%s", cluster_failure(c));
	fixture_leave(c);
}

Test(cluster, killed_and_started_again)
{
	again(CLUSTER_KILL);
}

Test(cluster, without_power_and_started_again)
{
	again(CLUSTER_POWER);
}

Test(cluster, destroyed_in_full_flight)
{
	struct calls calls = {.rounds = 1000, .typed = true};
	struct cluster *c = fixture_ready(4, 13, &calls, 2);
	calls_spawn(&calls);
	cluster_run_until(c, cluster_now(c) + SECOND / 1000);
	cr_assert_gt(calls.ok, 0);
	cr_assert_gt(cluster_apps_all(c), 0);
	fixture_destroy(c);
}

Test(cluster, destroyed_while_it_comes_together)
{
	for (uint64_t ns = 1; ns < SECOND / 1000; ns *= 3) {
		struct calls calls = {.rounds = 1};
		struct cluster *c = fixture_made(4, 27, &calls, 1);
		cluster_start_all(c);
		calls_spawn(&calls);
		cluster_run_until(c, cluster_now(c) + ns);
		fixture_destroy(c);
	}
}

Test(cluster, a_pause_shorter_than_the_limit_costs_time_only)
{
	struct calls calls = {.rounds = 40};
	struct cluster *c = fixture_ready(3, 14, &calls, 1);
	calls_spawn(&calls);
	cluster_run_until(c, cluster_now(c) + SECOND / 10000);
	cr_assert_gt(cluster_apps_all(c), 0);
	uint64_t began = cluster_now(c);
	cluster_pause(cluster_worker(c, 1), SECOND / 5);
	fixture_apps_end(c);
	cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
	cr_assert_eq(calls.wrong, 0);
	cr_assert_geq(cluster_now(c) - began, SECOND / 5);
	fixture_leave(c);
}

Test(cluster, a_paused_worker_crashes)
{
	struct calls calls = {.rounds = 2000};
	struct cluster *c = fixture_ready(3, 26, &calls, 1);
	calls_spawn(&calls);
	cluster_run_until(c, cluster_now(c) + SECOND / 10000);
	cluster_pause(cluster_worker(c, 1), SECOND / 2);
	cluster_run_until(c, cluster_now(c) + SECOND / 10);
	cr_assert_eq(sim_host_state(cluster_host(cluster_worker(c, 1))), SIM_PAUSED);
	cluster_crash(cluster_worker(c, 1), CLUSTER_POWER);
	fixture_apps_end(c);
	cr_assert_gt(calls.failed, 0);
	cr_assert_eq(calls.last_status, FAR_PEER_LOST, "%s", calls.last.text);
	cr_assert_eq(sim_host_state(cluster_host(cluster_worker(c, 1))), SIM_CRASHED);
	fixture_destroy(c);
}

Test(cluster, a_partition_ends_calls_by_their_deadline)
{
	struct calls calls = {.rounds = 1, .timeout_ns = SECOND / 2};
	struct cluster *c = fixture_ready(2, 15, &calls, 1);
	cluster_partition(cluster_worker(c, 0), cluster_worker(c, 1), true);
	calls_spawn(&calls);
	uint64_t began = cluster_now(c);
	fixture_apps_end(c);
	cr_assert_eq(calls.failed, 2);
	cr_assert_eq(calls.ok, 2, "each with itself");
	cr_assert_eq(calls.last_status, FAR_TIMEOUT, "%s", calls.last.text);
	cr_assert_leq(cluster_now(c) - began, SECOND);
	cluster_heal(c);
	calls.failed = calls.ok = 0;
	calls_spawn(&calls);
	fixture_apps_end(c);
	cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
	cr_assert_eq(calls.ok, 4);
	fixture_leave(c);
}

Test(cluster, loss)
{
	struct calls calls = {.rounds = 20, .typed = true};
	struct cluster *c = fixture_ready(4, 16, &calls, 1);
	const struct sim_disturbance d = {.loss = SIM_CERTAIN / 50,
					  .duplicate = SIM_CERTAIN / 50,
					  .reorder = SIM_CERTAIN / 50,
					  .corrupt = SIM_CERTAIN / 100};
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(sim_link_disturb(sim_uplink(cluster_host(cluster_worker(c, i)), 0), &d), 0);
	calls_spawn(&calls);
	fixture_apps_end(c);
	cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
	cr_assert_eq(calls.wrong, 0);
	fixture_leave(c);
}

Test(cluster, rank_0_does_not_come)
{
	struct calls calls = {.rounds = 0};
	struct cluster *c = fixture_made(2, 17, &calls, 1);
	cluster_start(cluster_worker(c, 1));
	cr_assert_eq(cluster_run_ready(c, PATIENCE), CLUSTER_RUN_FAILED);
	cr_assert(strstr(cluster_failure(c), "\"w1\" cannot join"), "%s", cluster_failure(c));
	fixture_destroy(c);
}

Test(cluster, refuses_nonsense)
{
	struct cluster_config config;
	struct nic_err err = {.text = ""};
	cluster_config_init(&config, 1);
	config.workers = 0;
	cr_assert_null(cluster_create(&config, &err));
	cr_assert(err.text[0]);
	config.workers = 1025;
	cr_assert_null(cluster_create(&config, &err));
	struct calls calls = {.rounds = 0};
	struct cluster *c = fixture_ready(1, 18, &calls, 1);
	cr_assert_eq(cluster_spawn(cluster_worker(c, 0), 1, calls_app, &calls), -22);
	cr_assert_null(cluster_worker(c, 1));
	fixture_destroy(c);
}

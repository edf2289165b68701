/* SPDX-License-Identifier: BSD-3-Clause */
/* Clusters of the shipped agents in one thread: all call all, crashes, pauses, partitions, the end. */
#include "cluster_calls.h"
#include "nic/sim/cluster_world.h"
#include "nic/sim/sim_port.h"

#include <criterion/criterion.h>
#include <farcall/fanout.h>
#include <string.h>

#define SECOND   UINT64_C(1000000000)
#define PATIENCE (100 * SECOND)

/* Of the next cluster. */
static const char *port_args;
static enum far_connect connect_when;
static enum sim_topology_kind kind = SIM_STAR;
static unsigned rails = 1;

static struct cluster *made(unsigned workers, uint64_t seed, struct calls *calls, unsigned shards)
{
	struct cluster_config config;
	struct nic_err err = {.text = ""};
	cluster_config_init(&config, seed);
	config.workers = workers;
	config.opts.shards = shards;
	config.clock_offset_ns_max = SECOND;
	config.clock_skew_ppb_max = 100000;
	config.streams.chop = SIM_CERTAIN / 4;
	config.port_args = port_args;
	config.opts.connect = connect_when;
	config.sim.topology.kind = kind;
	config.sim.topology.rails = rails;
	config.sim.topology.leaves = config.sim.topology.spines = kind == SIM_LEAF_SPINE ? 2 : 0;
	config.sim.topology.fabric = config.sim.topology.host;
	calls_opts(&config.opts, calls);
	struct cluster *c = cluster_create(&config, &err);
	cr_assert(c, "%s", err.text);
	calls->c = c;
	return c;
}

static struct cluster *ready(unsigned workers, uint64_t seed, struct calls *calls, unsigned shards)
{
	struct cluster *c = made(workers, seed, calls, shards);
	cluster_start_all(c);
	cr_assert_eq(cluster_run_ready(c, PATIENCE), CLUSTER_RUN_DONE, "%s", cluster_failure(c));
	return c;
}

/* Nothing of it is left in a buffer, whatever was under way. */
static void destroy(struct cluster *c)
{
	struct far_memory memory;
	cluster_destroy(c);
	far_memory_stats(&memory);
	cr_assert_eq(memory.slab_used, 0, "%llu bytes of slabs are in use", (unsigned long long)memory.slab_used);
}

static void apps_end(struct cluster *c)
{
	cr_assert_eq(cluster_run_apps(c, PATIENCE), CLUSTER_RUN_DONE, "%s", cluster_failure(c));
}

static void all_leave(struct cluster *c)
{
	struct far_err err;
	cluster_leave_all(c, 0);
	cr_assert_eq(cluster_run_left(c, PATIENCE), CLUSTER_RUN_DONE, "%s", cluster_failure(c));
	for (unsigned i = 0; i < cluster_workers(c); i++) {
		struct cluster_worker *w = cluster_worker(c, i);
		cr_assert_eq(cluster_state(w), CLUSTER_LEFT);
		cr_assert_eq(cluster_why(w, &err), FAR_OK, "%s", err.text);
	}
	destroy(c);
}

static void all_call_all(unsigned workers, unsigned shards, unsigned rounds)
{
	struct calls calls = {.rounds = rounds, .typed = true};
	struct cluster *c = ready(workers, workers, &calls, shards);
	calls_spawn(&calls);
	apps_end(c);
	cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
	cr_assert_eq(calls.wrong, 0);
	cr_assert_eq(calls.ok, 2ull * rounds * workers * workers);
	all_leave(c);
}

Test(cluster, one)
{
	all_call_all(1, 1, 3);
}

Test(cluster, two)
{
	all_call_all(2, 1, 20);
}

Test(cluster, two_of_three_shards)
{
	all_call_all(2, 3, 20);
}

Test(cluster, ten)
{
	all_call_all(10, 1, 5);
}

Test(cluster, a_hundred)
{
	all_call_all(100, 1, 1);
}

Test(cluster, network_cards_of_all_sorts)
{
	static const char *const sorts[] = {"kick", "hash", "hold", "rx=64,tx=32", "align=1", "kick,hash,hold,align=2"};
	for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++) {
		port_args = sorts[i];
		all_call_all(3, 2, 4);
	}
}

Test(cluster, networks_of_all_sorts)
{
	kind = SIM_PAIR;
	all_call_all(2, 1, 4);
	kind = SIM_LEAF_SPINE;
	all_call_all(5, 1, 4);
	rails = 2;
	all_call_all(5, 2, 2);
}

Test(cluster, sessions_on_demand)
{
	connect_when = FAR_CONNECT_LAZY;
	all_call_all(5, 2, 3);
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
		port_args = sorts[i];
		struct cluster *c = ready(3, 24, &calls, 1);
		for (unsigned w = 0; w < 3; w++)
			cluster_spawn(cluster_worker(c, w), -1, now_and_then, &calls);
		apps_end(c);
		cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
		cluster_stats(c, &stats);
		cr_assert_gt(stats.sleeps, 50);
		all_leave(c);
	}
}

/* By who runs the cluster, while its shard sleeps. */
Test(cluster, a_fan_out_is_given_up_from_outside)
{
	struct calls calls = {.rounds = 2};
	struct cluster *c = ready(2, 28, &calls, 1);
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
	apps_end(c);
	cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
	cr_assert_eq(calls.unhung, 2, "their callers have gone");
	all_leave(c);
}

/* ---- lives ---- */

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
	struct cluster *c = ready(3, 11, &calls, 1);
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
	apps_end(c);
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
	destroy(c);
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
	struct cluster *c = ready(3, 12, &calls, 1);
	calls_spawn(&calls);
	cluster_spawn(cluster_worker(c, 2), -1, crash_myself, &calls);
	apps_end(c);
	cr_assert_eq(cluster_state(cluster_worker(c, 2)), CLUSTER_CRASHED);
	cr_assert(calls.hung == 1 && calls.unhung == 1);
	cr_assert_eq(calls.wrong, 0);
	cr_assert_gt(calls.ok, 0);
	cr_assert_gt(calls.failed, 0);
	destroy(c);
}

static void again(enum cluster_end how)
{
	struct calls calls = {.rounds = 3, .typed = true};
	struct cluster *c = ready(4, 30, &calls, 1);
	struct cluster_worker *w = cluster_worker(c, 2);
	calls_spawn(&calls);
	apps_end(c);
	cluster_crash(w, how);
	cluster_run_until(c, cluster_now(c) + SECOND / 10);
	cluster_start(w);
	cr_assert_eq(cluster_run_ready(c, PATIENCE), CLUSTER_RUN_DONE, "%s", cluster_failure(c));
	cr_assert_eq(cluster_lives(w), 2);
	/* The others have heard of it by now. */
	cluster_run_until(c, cluster_now(c) + SECOND);
	calls.ok = 0;
	calls_spawn(&calls);
	apps_end(c);
	cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
	cr_assert_eq(calls.wrong, 0);
	cr_assert_eq(calls.ok, 2 * 3 * 4 * 4);
	all_leave(c);
}

/* What was pending with the life before ends when the next has come, not by silence. */
Test(cluster, calls_on_the_life_before)
{
	struct calls calls = {.rounds = 0};
	struct cluster *c = ready(3, 31, &calls, 1);
	struct cluster_worker *w = cluster_worker(c, 1);
	cluster_spawn(cluster_worker(c, 0), -1, hanging, &calls);
	cluster_run_until(c, cluster_now(c) + SECOND / 100);
	cr_assert_eq(calls.hung, 1);
	cluster_crash(w, CLUSTER_POWER);
	cluster_start(w);
	uint64_t began = cluster_now(c);
	apps_end(c);
	cr_assert_eq(calls.failed, 1);
	cr_assert_eq(calls.last_status, FAR_PEER_LOST, "%s", calls.last.text);
	cr_assert(strstr(calls.last.text, "restarted"), "%s", calls.last.text);
	cr_assert_eq(calls.last.executed, FAR_EXECUTED_MAYBE);
	cr_assert_lt(cluster_now(c) - began, SECOND / 2);
	cr_assert_eq(cluster_run_ready(c, PATIENCE), CLUSTER_RUN_DONE, "%s", cluster_failure(c));
	all_leave(c);
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
	struct cluster *c = ready(4, 13, &calls, 2);
	calls_spawn(&calls);
	cluster_run_until(c, cluster_now(c) + SECOND / 1000);
	cr_assert_gt(calls.ok, 0);
	cr_assert_gt(cluster_apps_all(c), 0);
	destroy(c);
}

Test(cluster, destroyed_while_it_comes_together)
{
	for (uint64_t ns = 1; ns < SECOND / 1000; ns *= 3) {
		struct calls calls = {.rounds = 1};
		struct cluster *c = made(4, 27, &calls, 1);
		cluster_start_all(c);
		calls_spawn(&calls);
		cluster_run_until(c, cluster_now(c) + ns);
		destroy(c);
	}
}

Test(cluster, a_pause_shorter_than_the_limit_costs_time_only)
{
	struct calls calls = {.rounds = 40};
	struct cluster *c = ready(3, 14, &calls, 1);
	calls_spawn(&calls);
	cluster_run_until(c, cluster_now(c) + SECOND / 10000);
	cr_assert_gt(cluster_apps_all(c), 0);
	uint64_t began = cluster_now(c);
	cluster_pause(cluster_worker(c, 1), SECOND / 5);
	apps_end(c);
	cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
	cr_assert_eq(calls.wrong, 0);
	cr_assert_geq(cluster_now(c) - began, SECOND / 5);
	all_leave(c);
}

Test(cluster, a_paused_worker_crashes)
{
	struct calls calls = {.rounds = 2000};
	struct cluster *c = ready(3, 26, &calls, 1);
	calls_spawn(&calls);
	cluster_run_until(c, cluster_now(c) + SECOND / 10000);
	cluster_pause(cluster_worker(c, 1), SECOND / 2);
	cluster_run_until(c, cluster_now(c) + SECOND / 10);
	cr_assert_eq(sim_host_state(cluster_host(cluster_worker(c, 1))), SIM_PAUSED);
	cluster_crash(cluster_worker(c, 1), CLUSTER_POWER);
	apps_end(c);
	cr_assert_gt(calls.failed, 0);
	cr_assert_eq(calls.last_status, FAR_PEER_LOST, "%s", calls.last.text);
	cr_assert_eq(sim_host_state(cluster_host(cluster_worker(c, 1))), SIM_CRASHED);
	destroy(c);
}

Test(cluster, a_partition_ends_calls_by_their_deadline)
{
	struct calls calls = {.rounds = 1, .timeout_ns = SECOND / 2};
	struct cluster *c = ready(2, 15, &calls, 1);
	cluster_partition(cluster_worker(c, 0), cluster_worker(c, 1), true);
	calls_spawn(&calls);
	uint64_t began = cluster_now(c);
	apps_end(c);
	cr_assert_eq(calls.failed, 2);
	cr_assert_eq(calls.ok, 2, "each with itself");
	cr_assert_eq(calls.last_status, FAR_TIMEOUT, "%s", calls.last.text);
	cr_assert_leq(cluster_now(c) - began, SECOND);
	cluster_heal(c);
	calls.failed = calls.ok = 0;
	calls_spawn(&calls);
	apps_end(c);
	cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
	cr_assert_eq(calls.ok, 4);
	all_leave(c);
}

Test(cluster, loss)
{
	struct calls calls = {.rounds = 20, .typed = true};
	struct cluster *c = ready(4, 16, &calls, 1);
	const struct sim_disturbance d = {.loss = SIM_CERTAIN / 50,
					  .duplicate = SIM_CERTAIN / 50,
					  .reorder = SIM_CERTAIN / 50,
					  .corrupt = SIM_CERTAIN / 100};
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(sim_link_disturb(sim_uplink(cluster_host(cluster_worker(c, i)), 0), &d), 0);
	calls_spawn(&calls);
	apps_end(c);
	cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
	cr_assert_eq(calls.wrong, 0);
	all_leave(c);
}

Test(cluster, rank_0_does_not_come)
{
	struct calls calls = {.rounds = 0};
	struct cluster *c = made(2, 17, &calls, 1);
	cluster_start(cluster_worker(c, 1));
	cr_assert_eq(cluster_run_ready(c, PATIENCE), CLUSTER_RUN_FAILED);
	cr_assert(strstr(cluster_failure(c), "\"w1\" cannot join"), "%s", cluster_failure(c));
	destroy(c);
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
	struct cluster *c = ready(1, 18, &calls, 1);
	cr_assert_eq(cluster_spawn(cluster_worker(c, 0), 1, calls_app, &calls), -22);
	cr_assert_null(cluster_worker(c, 1));
	destroy(c);
}

/* ---- time ---- */

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

/* Ends by what it is told only. */
static void compute_for_ever(struct cluster_worker *w, void *ctx)
{
	struct calls *calls = ctx;
	(void)w;
	while (!cluster_compute(1000))
		;
	calls->unhung++;
}

Test(cluster, who_computes_for_ever_dies_with_its_worker)
{
	struct calls calls = {.rounds = 0};
	struct cluster *c = ready(1, 29, &calls, 1);
	cluster_spawn(cluster_worker(c, 0), -1, compute_for_ever, &calls);
	cluster_run_until(c, cluster_now(c) + SECOND / 100);
	cr_assert_eq(calls.unhung, 0);
	cluster_crash(cluster_worker(c, 0), CLUSTER_KILL);
	cr_assert_eq(calls.unhung, 1);
	destroy(c);
}

/* What comes meanwhile waits. */
static void ask_the_busy(struct cluster_worker *w, void *ctx)
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

Test(cluster, computing_makes_a_core_late_and_sleeping_does_not)
{
	struct calls calls = {.rounds = 0};
	struct cluster *c = ready(2, 22, &calls, 1);
	cluster_spawn(cluster_worker(c, 0), -1, keep_time, &calls);
	cluster_spawn(cluster_worker(c, 1), -1, ask_the_busy, &calls);
	apps_end(c);
	cr_assert_eq(calls.ok, 2);
	all_leave(c);
}

/* The waits of the public interface are by the host's clock, whose ticks are of 131 µs. */
static void wait_in_vain(struct cluster_worker *w, void *ctx)
{
	struct calls *calls = ctx;
	struct far_future *f[2];
	struct far_err err;
	size_t index;
	(void)w;
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

Test(cluster, waits_are_by_the_hosts_clock)
{
	struct calls calls = {.rounds = 0};
	struct cluster *c = ready(1, 25, &calls, 1);
	cluster_spawn(cluster_worker(c, 0), -1, wait_in_vain, &calls);
	apps_end(c);
	cr_assert_eq(calls.ok, 3);
	all_leave(c);
}

static void nothing(struct cluster_worker *w, void *ctx)
{
	struct calls *calls = ctx;
	(void)w;
	cluster_sleep(1000);
	calls->ok++;
}

Test(cluster, more_applications_than_fibers)
{
	struct calls calls = {.rounds = 0};
	struct cluster *c = made(1, 23, &calls, 2);
	cluster_start_all(c);
	for (unsigned i = 0; i < 1000; i++)
		cr_assert_eq(cluster_spawn(cluster_worker(c, 0), -1, nothing, &calls), 0);
	cr_assert_eq(cluster_apps_all(c), 1000, "they wait until it is ready");
	apps_end(c);
	cr_assert_eq(calls.ok, 1000);
	cr_assert_eq(cluster_apps_dropped(c), 0);
	all_leave(c);
}

/* ---- sleep ---- */

Test(cluster, an_idle_cluster_sleeps)
{
	struct calls calls = {.rounds = 1};
	struct cluster *c = ready(3, 19, &calls, 1);
	struct cluster_stats before, after;
	calls_spawn(&calls);
	apps_end(c);
	cluster_run_until(c, cluster_now(c) + 5 * SECOND);
	cluster_stats(c, &before);
	cluster_run_until(c, cluster_now(c) + 3600 * SECOND);
	cluster_stats(c, &after);
	cr_assert_leq(after.turns - before.turns, 3, "nothing wakes it");
	calls_spawn(&calls);
	apps_end(c);
	cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
	all_leave(c);
}

static void wait_for_ever(struct cluster_worker *w, void *ctx)
{
	struct calls *calls = ctx;
	struct far_future *f;
	(void)w;
	if (far_future_create(&f, NULL))
		return;
	calls->last_status = far_future_wait(f, FAR_FOREVER, NULL, &calls->last);
	far_future_free(f);
}

Test(cluster, a_lost_wake_up_is_found)
{
	struct calls calls = {.rounds = 1};
	struct cluster *c = ready(2, 20, &calls, 1);
	cluster_run_until(c, cluster_now(c) + 5 * SECOND);
	/* It sleeps, and what comes does not wake it. */
	struct cluster_worker *w = cluster_worker(c, 1);
	struct sim_queue *q = sim_queue_of(w->queues[0][0]);
	cr_assert(agent_asleep(w->agent, 0) && q->armed);
	q->armed = false;
	cluster_spawn(cluster_worker(c, 0), -1, calls_app, &calls);
	cr_assert_eq(cluster_run_apps(c, PATIENCE), CLUSTER_RUN_FAILED);
	cr_assert(strstr(cluster_failure(c), "worker asleep with work"), "%s", cluster_failure(c));
	destroy(c);
}

Test(cluster, waiting_for_nothing_is_found)
{
	struct calls calls = {.rounds = 0};
	struct cluster *c = ready(1, 21, &calls, 1);
	cluster_spawn(cluster_worker(c, 0), -1, wait_for_ever, &calls);
	cr_assert_eq(cluster_run_apps(c, TIME_NEVER), CLUSTER_RUN_FAILED);
	cr_assert(strstr(cluster_failure(c), "worker asleep with work"), "%s", cluster_failure(c));
	destroy(c);
	cr_assert_eq(calls.last_status, FAR_CANCELLED);
}

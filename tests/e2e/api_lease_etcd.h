/* SPDX-License-Identifier: BSD-3-Clause */
/** Cases of api_lease.c over etcd: etcd is down, etcd hangs, a member is cut off from it. Included once, below what
 * they share with the other cases. Main thread of each process; handlers on shard threads. */
#ifndef API_LEASE_ETCD_H
#define API_LEASE_ETCD_H

static const char *disturb;    /* ends and starts etcd: disturb KIND fail|serve 0 */
static const char *cut_method; /* reaches it by the process `cut_pid` */
static pid_t cut_pid;

static void disturbs(const char *kind, const char *what)
{
	char command[512];
	snprintf(command, sizeof command, "%s %s %s 0 >/dev/null 2>&1", disturb, kind, what);
	CHECK(system(command) == 0);
}

static int serves_long(int i)
{
	far_log_set(on_log, NULL);
	agent = joins("worker", FAR_RANK_ANY, LEASE);
	atomic_fetch_add(&shared->joined[i], 1);
	CHECK_STATUS(far_serve(agent, 0, &err), FAR_OK, &err);
	leaves();
	return 0;
}

/* Calls for twice the lease: all are answered. */
static void calls_on(void)
{
	for (int i = 0; i < CALLS; i++) {
		CHECK(calls("worker") == 0);
		usleep((useconds_t)(2 * LEASE / 1000 / CALLS));
	}
}

/* While etcd is down, and while it hangs, nobody is evicted, though both last longer than the lease. */
static int unreachable(int rank)
{
	struct far_worker_info before, after;
	struct later l[1];
	later_begin(l, 1, serves_long);
	agent = joins("first", 0, LEASE);
	CHECK_STATUS(far_on_member(agent, on_member, NULL, &err), FAR_OK, &err);
	let(l, 0);
	await_seen("worker");
	CHECK_STATUS(far_worker_by_name(agent, "worker", &before, &err), FAR_OK, &err);
	static const char *const kinds[] = {"restart", "hang"};
	for (int k = 0; k < 2; k++) {
		disturbs(kinds[k], "fail");
		calls_on();
		disturbs(kinds[k], "serve");
		calls_on();
	}
	CHECK(atomic_load(&lost.n) == 0 && !atomic_load(&shared->logged));
	CHECK_STATUS(far_worker_by_name(agent, "worker", &after, &err), FAR_OK, &err);
	CHECK(after.incarnation == before.incarnation);
	kill(l[0].pid, SIGTERM);
	await_lost(1, "worker", "left");
	CHECK(waitpid(l[0].pid, NULL, 0) == l[0].pid);
	leaves();
	return 0;
}

static int serves_cut(int i)
{
	method = cut_method;
	return serves_long(i);
}

/* A member whose way to the store is cut stops by its own clock, and joins again as another incarnation. */
static int cut(int rank)
{
	struct far_worker_info before, after;
	struct later l[1];
	later_begin(l, 1, serves_cut);
	agent = joins("first", 0, LEASE);
	CHECK_STATUS(far_on_member(agent, on_member, NULL, &err), FAR_OK, &err);
	let(l, 0);
	await_seen("worker");
	CHECK(calls("worker") == 0);
	CHECK_STATUS(far_worker_by_name(agent, "worker", &before, &err), FAR_OK, &err);
	CHECK(kill(cut_pid, SIGSTOP) == 0);
	while (!atomic_load(&shared->logged))
		nap();
	int ticks = atomic_load(&shared->ticks[0]);
	CHECK(far_rpc_sync(agent, "worker", "t::tick", FAR_NOARGS, &(struct far_call_opts){.timeout_ns = FAR_SEC / 10},
			   NULL, &err) != FAR_OK);
	CHECK(atomic_load(&shared->ticks[0]) == ticks);
	await_lost(1, "worker", "");
	CHECK(kill(cut_pid, SIGCONT) == 0);
	CHECK(calls_again("worker") == 0);
	await_seen("worker");
	CHECK_STATUS(far_worker_by_name(agent, "worker", &after, &err), FAR_OK, &err);
	CHECK(after.incarnation != before.incarnation);
	kill(l[0].pid, SIGTERM);
	await_lost(2, "worker", "left");
	CHECK(waitpid(l[0].pid, NULL, 0) == l[0].pid);
	leaves();
	return 0;
}

#endif

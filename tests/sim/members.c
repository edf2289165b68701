/* SPDX-License-Identifier: BSD-3-Clause */
/** The run of a test of dynamic groups, and what holds at its end. The thread of the simulator runs it. */
#include "members.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MS       UINT64_C(1000000)
#define PATIENCE (300000 * MS)

struct members_run run;

void wrong(const char *format, ...)
{
	char text[1024];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	cluster_fail(run.c, "%s", text);
}

void run_start(void *worker)
{
	if (!run.finishing)
		cluster_start(worker);
}

void run_keep(struct far_agent *agent)
{
	struct far_rref *r;
	if (run.kept_n < MEMBERS_KEPT_MAX && !far_remote(agent, "w0", "t::who", FAR_NOARGS, NULL, &r, NULL))
		run.kept[run.kept_n++] = r;
}

struct cluster_worker *run_ready(unsigned rank)
{
	struct cluster_worker *w = cluster_worker(run.c, rank);
	return cluster_state(w) == CLUSTER_READY ? w : NULL;
}

static void check_view(struct far_agent *a, unsigned of)
{
	struct far_worker_info self, seen;
	if ((unsigned)far_world_size(a) != run.ranks)
		wrong("worker %u sees %d members, not %u", of, far_world_size(a), run.ranks);
	for (unsigned r = 0; r < run.ranks; r++) {
		far_worker_self(cluster_agent(run.member(r)), &self);
		if (far_worker_by_rank(a, (int)r, &seen, NULL) || seen.incarnation != self.incarnation ||
		    strcmp(seen.name, self.name) != 0)
			wrong("worker %u does not see worker %u as it is", of, r);
	}
}

static void check_views(void)
{
	for (unsigned r = 0; r < run.ranks; r++)
		if (!run.member(r)) {
			wrong("worker %u is not there", r);
			return;
		}
	for (unsigned r = 0; r < run.ranks; r++)
		check_view(cluster_agent(run.member(r)), r);
}

static void check_host(void)
{
	struct far_agent *host = cluster_agent(cluster_worker(run.c, 0));
	struct far_rref_counts counts;
	far_rref_counts_read(host, &counts);
	if (far_world_size(host) != 1)
		wrong("worker 0 sees %d members after all others have gone", far_world_size(host));
	if (counts.owned || counts.forks)
		wrong("worker 0 keeps %llu values for %llu references of workers that have gone",
		      (unsigned long long)counts.owned, (unsigned long long)counts.forks);
}

void run_finish(uint64_t settle_ns, void (*leave)(struct cluster_worker *w))
{
	struct cluster *c = run.c;
	uint64_t until = cluster_now(c) + PATIENCE;
	while (run.ends && !cluster_failure(c) && cluster_now(c) < until)
		cluster_run_until(c, cluster_now(c) + 10 * MS);
	if (run.ends)
		wrong("%u ends of workers, or disturbances, have not come", run.ends);
	cluster_run_until(c, cluster_now(c) + settle_ns / 8);
	run.settled = true;
	cluster_run_until(c, cluster_now(c) + settle_ns - settle_ns / 8);
	if (cluster_failure(c))
		return;
	check_views();
	run.finishing = true;
	for (unsigned i = 1; i < cluster_workers(c) && !cluster_failure(c); i++) {
		if (run_ready(i) && sim_random_below(&run.random, 2))
			leave(cluster_worker(c, i));
		else
			cluster_crash(cluster_worker(c, i), CLUSTER_KILL);
	}
	cluster_run_until(c, cluster_now(c) + settle_ns);
	if (!cluster_failure(c))
		check_host();
}

int run_end(uint64_t seed)
{
	const char *failure = cluster_failure(run.c);
	int failed = failure != NULL;
	if (failure)
		fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, failure);
	cluster_destroy(run.c);
	for (unsigned i = 0; i < run.kept_n; i++)
		far_rref_free(run.kept[i]);
	return failed;
}

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
	cluster_start(worker);
}

void run_keep(struct far_agent *agent)
{
	struct far_rref *r;
	if (run.kept_n < MEMBERS_KEPT_MAX && !far_remote(agent, "w0", "t::who", FAR_NOARGS, NULL, &r, NULL))
		run.kept[run.kept_n++] = r;
}

static void check_view(struct far_agent *a, unsigned of)
{
	struct far_worker_info self, seen;
	unsigned n = cluster_workers(run.c);
	if ((unsigned)far_world_size(a) != n)
		wrong("worker %u sees %d members, not %u", of, far_world_size(a), n);
	for (unsigned r = 0; r < n; r++) {
		far_worker_self(cluster_agent(cluster_worker(run.c, r)), &self);
		if (far_worker_by_rank(a, (int)r, &seen, NULL) || seen.incarnation != self.incarnation ||
		    strcmp(seen.name, self.name) != 0)
			wrong("worker %u does not see worker %u as it is", of, r);
	}
}

static void check_views(void)
{
	unsigned n = cluster_workers(run.c);
	for (unsigned r = 0; r < n; r++)
		if (cluster_state(cluster_worker(run.c, r)) != CLUSTER_READY) {
			wrong("worker %u is not there", r);
			return;
		}
	for (unsigned r = 0; r < n; r++)
		check_view(cluster_agent(cluster_worker(run.c, r)), r);
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
	cluster_run_until(c, cluster_now(c) + settle_ns);
	if (cluster_failure(c))
		return;
	check_views();
	run.finishing = true;
	for (unsigned i = 1; i < cluster_workers(c) && !cluster_failure(c); i++) {
		if (sim_random_below(&run.random, 2))
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

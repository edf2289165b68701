/* SPDX-License-Identifier: BSD-3-Clause */
/** The main function of a server rank: joins, serves until the workers leave, reports. Main thread. */
#include "serve.h"
#include "apps/farcall/commands.h"
#include "ps_clock.h"
#include "stop.h"
#include <stdlib.h>
#include <string.h>

#define WATCH_NS UINT64_C(100000000) /* between looks at the members: how late a loss is seen */

/* Looks at the members on the threads that run the handlers, through calls to oneself: the shards' state needs no
 * lock. */
static enum far_status watch(struct group *g, const struct serve_options *o, int stop, struct far_err *err)
{
	struct far_call_opts opts = {.timeout_ns = o->timeout_ns};
	enum far_status status = FAR_OK;
	for (unsigned i = 0; i < o->shards && status == FAR_OK; i++) {
		struct far_to self = {.worker = g->rank, .shard = (int32_t)i};
		status = far_rpc_sync_to(g->agent, self, "ps::watch", FAR_ARGS(stop), &opts, NULL, err);
	}
	return status;
}

static void complain_lost(const struct group *g, int rank)
{
	struct far_worker_info info;
	if (far_worker_by_rank(g->agent, rank, &info, NULL) != FAR_OK)
		snprintf(info.name, sizeof info.name, "worker%d", rank);
	fprintf(stderr, "%s: worker%d: lost \"%s\" (rank %d) before the job was done; see its last log lines\n",
		g->program, g->rank, info.name, rank);
}

/* Until all workers have left: 0. A lost member or a failure: 1. A signal: 128 + it. */
static int serve_loop(struct group *g, struct ps_service *s, const struct serve_options *o)
{
	int leaves = (g->world - o->servers) * (int)o->shards; /* one ps::leave per worker and shard */
	while (atomic_load_explicit(&s->left, memory_order_acquire) < leaves) {
		struct far_err err;
		if (stop_signal())
			return 128 + stop_signal();
		if (watch(g, o, 0, &err) != FAR_OK) {
			return group_complain(g, &err);
		}
		int lost = atomic_load_explicit(&s->lost, memory_order_acquire);
		if (lost >= 0) {
			complain_lost(g, lost);
			return EXIT_PEER_LOST;
		}
		clock_nap(WATCH_NS);
	}
	return 0;
}

int serve(struct group *g, const struct serve_options *o)
{
	struct ps_service *s = NULL;
	struct report *report = g->rank == 0 ? calloc(1, sizeof *report) : NULL;
	int status = 1;
	if (ps_service_new(o->servers, o->shards, o->rows_max, &s) || (g->rank == 0 && report == NULL)) {
		fprintf(stderr, "%s: no memory\n", g->program);
		goto out;
	}
	if (group_join(g, s, o->shards, report))
		goto out;
	stop_install();
	status = serve_loop(g, s, o);
	stop_restore();
	struct far_err err;
	if (status == 0 && group_leave(g, true, &err) != FAR_OK) {
		status = group_complain(g, &err);
	} else if (status != 0) {
		/* Open replies are ended first, so that those who wait learn why. */
		(void)watch(g, o, 1, NULL);
		group_leave(g, false, NULL);
	}
	if (status == 0 && report && report->workers && report_print(report, stdout, o->json)) {
		fprintf(stderr, "%s: cannot write the report\n", g->program);
		status = 1;
	}
out:
	ps_service_free(s);
	free(report);
	return status;
}

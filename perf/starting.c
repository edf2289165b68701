/* SPDX-License-Identifier: BSD-3-Clause */
/** A worker of `farcall perf start`: comes in and leaves at the same moment as all the others.
 * Main thread of each process. */
#include "floor_ring.h"
#include "idle_usage.h"
#include "peer.h"
#include "start.h"
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct start_shared *start_map(int fd)
{
	void *p = mmap(NULL, sizeof(struct start_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return p == MAP_FAILED ? NULL : p;
}

/* The word is shared by processes. false: they did not all come in time. */
static bool pass(struct start_gate *g, uint32_t workers)
{
	uint64_t until = floor_now() + START_JOIN_NS;
	/* pairs with itself: what the last one stores is behind what all before it have done */
	if (atomic_fetch_add_explicit(&g->come, 1, memory_order_acq_rel) + 1 == workers) {
		g->opened_ns = floor_now();
		atomic_store_explicit(&g->open, 1, memory_order_release);
		syscall(SYS_futex, &g->open, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
		return true;
	}
	while (!atomic_load_explicit(&g->open, memory_order_acquire)) {
		struct timespec bound = {.tv_sec = 1};
		if (floor_now() >= until)
			return false;
		syscall(SYS_futex, &g->open, FUTEX_WAIT, 0, &bound, NULL, 0);
	}
	return true;
}

static int late(const struct perf_opts *o, int rank, const char *what)
{
	fprintf(stderr, "%s: worker %d waited %u s for the others to %s; start fewer with --workers\n", o->what, rank,
		(unsigned)(START_JOIN_NS / FAR_SEC), what);
	return 1;
}

/* The gate to leave by opens when everybody is in. */
static int come_and_go(const struct perf_opts *o, struct start_shared *s, int rank)
{
	struct start_worker *w = &s->at[rank];
	struct far_opts opts = {.nic = o->nic, .security = o->security, .init_timeout_ns = START_JOIN_NS};
	struct far_agent *agent;
	struct idle_usage usage;
	struct far_err err;
	char name[32];
	snprintf(name, sizeof name, "worker%d", rank);
	idle_usage_read(&usage);
	w->bare_rss_bytes = usage.rss_bytes;
	if (!pass(&s->in, s->workers))
		return late(o, rank, "begin");
	if (far_init_rpc(name, rank, (int)s->workers, &opts, &agent, &err))
		return peer_complain(o, &err);
	w->in_ns = floor_now();
	idle_usage_read(&usage);
	w->threads = usage.threads;
	w->rss_bytes = usage.rss_bytes;
	if (!pass(&s->out, s->workers)) {
		far_shutdown_local(agent, NULL);
		return late(o, rank, "come in");
	}
	if (far_shutdown(agent, START_JOIN_NS, &err))
		return peer_complain(o, &err);
	w->out_ns = floor_now();
	return 0;
}

int starting_main(const struct perf_opts *o)
{
	const char *rank = getenv("RANK");
	struct start_shared *s = o->peer_fd ? start_map((int)o->peer_fd) : NULL;
	if (!s || !rank || atoi(rank) < 0 || s->workers > SPAWN_WORLD_MAX || (uint32_t)atoi(rank) >= s->workers) {
		fprintf(stderr, "%s: started by farcall perf start only\n", o->what);
		return OPTIONS_EXIT_USAGE;
	}
	return come_and_go(o, s, atoi(rank));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall perf start`: how long groups of processes take to come together and to part, and what a worker of them
 * holds. Main thread of each process.
 *
 * The workers of a group are started first and wait at a gate; from when it opens to when the last far_init_rpc() has
 * returned is the start, and the end is likewise. Each round is a group of new processes.
 */
#include "start.h"
#include "floor_ring.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS       UINT64_C(1000000)
#define NAP_NS   (2 * MS) /* between two looks whether workers have ended */
#define ROUND_NS (2 * START_JOIN_NS + 20 * 1000 * MS)

struct start_result {
	unsigned workers, rounds;
	double start_ns[PERF_ROUNDS_MAX], stop_ns[PERF_ROUNDS_MAX];
	double start_median, stop_median, start_max, stop_max;
	double noise;                                         /* of the starts */
	uint64_t threads, rss_bytes, rss_max, bare_rss_bytes; /* of a worker: the most, mean, most, mean */
};

struct start_group {
	const struct perf_opts *o;
	struct spawn_group group;
	struct start_shared *shared;
	int fd;
	pid_t pids[SPAWN_WORLD_MAX]; /* 0: none, or reaped */
	unsigned alive;
};

/* ---- the processes ---- */

static void end_all(struct start_group *g)
{
	for (unsigned i = 0; i < SPAWN_WORLD_MAX; i++) {
		if (!g->pids[i])
			continue;
		kill(-g->pids[i], SIGKILL);
		waitpid(g->pids[i], NULL, 0);
		g->pids[i] = 0;
	}
}

static int spawn_all(struct start_group *g)
{
	char fd[16];
	snprintf(fd, sizeof fd, "%d", g->fd);
	const char *argv[12] = {"/proc/self/exe", "perf", "starting", "--peer-fd", fd, "--nic", g->o->nic};
	if (g->o->security) {
		argv[7] = "--security";
		argv[8] = g->o->security;
	}
	for (unsigned i = 0; i < g->shared->workers; i++) {
		struct spawn_child child = {.group = &g->group,
					    .rank = (int)i,
					    .file = argv[0],
					    .argv = (char **)(uintptr_t)argv,
					    .in = -1,
					    .out = -1,
					    .err = -1,
					    .announce_fd = -1,
					    .keep_fd = g->fd};
		int rc = spawn_start(&child, &g->pids[i]);
		if (rc < 0) {
			fprintf(stderr, "%s: cannot start worker %u of %u: %s; give fewer with --workers\n", g->o->what,
				i, g->shared->workers, strerror(-rc));
			return 1;
		}
		g->alive++;
	}
	return 0;
}

/* Looks who has ended. The first that failed fails the round. */
static int reap(struct start_group *g)
{
	for (unsigned i = 0; i < g->shared->workers; i++) {
		int status;
		if (!g->pids[i] || waitpid(g->pids[i], &status, WNOHANG) != g->pids[i])
			continue;
		g->pids[i] = 0;
		g->alive--;
		if (WIFSIGNALED(status))
			fprintf(stderr, "%s: worker %u was killed by signal %d\n", g->o->what, i, WTERMSIG(status));
		if (status)
			return 1;
	}
	return 0;
}

static int wait_all(struct start_group *g)
{
	const struct timespec nap = {.tv_nsec = (long)NAP_NS};
	uint64_t until = floor_now() + ROUND_NS;
	while (g->alive) {
		int rc = reap(g);
		if (rc)
			return rc;
		if (floor_now() >= until) {
			fprintf(stderr, "%s: %u of %u workers did not end; give fewer with --workers\n", g->o->what,
				g->alive, g->shared->workers);
			return 1;
		}
		nanosleep(&nap, NULL);
	}
	return 0;
}

/* ---- a round ---- */

static void take(const struct start_shared *s, struct start_result *r)
{
	uint64_t in = 0, out = 0, rss = 0, bare = 0;
	for (unsigned i = 0; i < s->workers; i++) {
		const struct start_worker *w = &s->at[i];
		in = w->in_ns > in ? w->in_ns : in;
		out = w->out_ns > out ? w->out_ns : out;
		rss += w->rss_bytes;
		bare += w->bare_rss_bytes;
		r->threads = w->threads > r->threads ? w->threads : r->threads;
		r->rss_max = w->rss_bytes > r->rss_max ? w->rss_bytes : r->rss_max;
	}
	r->rss_bytes = rss / s->workers;
	r->bare_rss_bytes = bare / s->workers;
	r->start_ns[r->rounds] = (double)(in - s->in.opened_ns);
	r->stop_ns[r->rounds] = (double)(out - s->out.opened_ns);
	r->start_max = r->start_ns[r->rounds] > r->start_max ? r->start_ns[r->rounds] : r->start_max;
	r->stop_max = r->stop_ns[r->rounds] > r->stop_max ? r->stop_ns[r->rounds] : r->stop_max;
	r->rounds++;
}

static int one_round(const struct perf_opts *o, struct start_result *r)
{
	struct start_group g = {.o = o, .group = {.listen_fd = -1}};
	int rc = 1;
	g.fd = memfd_create("farcall-perf-start", MFD_CLOEXEC);
	if (g.fd < 0 || ftruncate(g.fd, sizeof *g.shared) < 0 || !(g.shared = start_map(g.fd)) ||
	    spawn_group_open(&g.group, (int)r->workers) < 0) {
		fprintf(stderr, "%s: cannot prepare a group: %s\n", o->what, strerror(errno));
	} else {
		g.shared->workers = r->workers;
		rc = spawn_all(&g);
		if (!rc)
			rc = wait_all(&g);
		end_all(&g);
		if (!rc)
			take(g.shared, r);
	}
	spawn_group_close(&g.group);
	if (g.shared)
		munmap(g.shared, sizeof *g.shared);
	if (g.fd >= 0)
		close(g.fd);
	return rc;
}

/* ---- what came of it ---- */

static void print(const struct perf_opts *o, const struct start_result *r)
{
	fprintf(perf_human(o), "%7u %10.2f %10.2f %10.2f %10.2f %8s %8" PRIu64 " %10.2f %10.2f\n", r->workers,
		r->start_median / 1e6, r->start_max / 1e6, r->stop_median / 1e6, r->stop_max / 1e6,
		perf_noise_text(r->noise).text, r->threads, (double)r->rss_bytes / (1 << 20),
		(double)r->bare_rss_bytes / (1 << 20));
}

static void write_result(struct json *j, const struct start_result *r)
{
	json_object(j, NULL);
	json_u64(j, "workers", r->workers);
	json_u64(j, "rounds", r->rounds);
	json_double(j, "noise", r->noise);
	json_double(j, "start_ns", r->start_median);
	json_double(j, "start_ns_max", r->start_max);
	json_double(j, "stop_ns", r->stop_median);
	json_double(j, "stop_ns_max", r->stop_max);
	json_u64(j, "threads", r->threads);
	json_u64(j, "rss_bytes", r->rss_bytes);
	json_u64(j, "rss_bytes_max", r->rss_max);
	json_u64(j, "bare_rss_bytes", r->bare_rss_bytes);
	json_close(j);
}

int perf_start(const struct perf_opts *o)
{
	static struct start_result results[OPTIONS_LIST_MAX];
	struct json j;
	fprintf(perf_human(o), "%7s %10s %10s %10s %10s %8s %8s %10s %10s\n", "workers", "start ms", "worst", "stop ms",
		"worst", "noise", "threads", "MiB each", "before");
	for (unsigned i = 0; i < o->worlds.n; i++) {
		struct start_result *r = &results[i];
		r->workers = (unsigned)o->worlds.value[i];
		for (unsigned k = 0; k < o->rounds; k++)
			if (one_round(o, r))
				return 1;
		r->start_median = perf_median(r->start_ns, r->rounds);
		r->stop_median = perf_median(r->stop_ns, r->rounds);
		r->noise = perf_noise(r->start_ns, r->rounds);
		print(o, r);
	}
	if (!o->json)
		return 0;
	json_begin(&j, stdout);
	json_string(&j, "measurement", "start");
	json_string(&j, "nic", o->nic);
	json_array(&j, "results");
	for (unsigned i = 0; i < o->worlds.n; i++)
		write_result(&j, &results[i]);
	json_close(&j);
	json_end(&j);
	return 0;
}

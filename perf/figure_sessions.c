/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * One worker calls many remote shards, each over a session of its own. All ends are in this process, so what is
 * measured here, unlike in the other figures, is real: memory that both ends of a session need, and time of a core for
 * a call, the simulator's part included. A call to any of many costs more by what the caches do not hold, and by what
 * it takes a shard that nobody has called for long to fall asleep and be woken.
 */
#include "figure.h"

#include "base/limits.h"
#include "idle_usage.h"

#include <inttypes.h>
#include <time.h>

#define SHARDS       16u
#define BYTES        32u
#define BYTES_TARGET 512.0

struct sessions {
	struct figure_world w;
	unsigned n;     /* sessions */
	unsigned visit; /* calls go to the first so many, at random */
	uint64_t calls; /* so many */
	bool each;      /* to one after the other instead */
	struct sim_random random;
};

static uint64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void caller(struct cluster_worker *worker, void *ctx)
{
	struct sessions *s = ctx;
	for (uint64_t i = 0; i < s->calls; i++) {
		struct far_err err = {.status = FAR_OK};
		size_t len;
		unsigned to = s->each ? (unsigned)i : (unsigned)sim_random_below(&s->random, s->visit);
		struct far_to at = {.worker = (int32_t)(1 + to / SHARDS), .shard = (int32_t)(to % SHARDS)};
		if (far_msg_call(cluster_agent(worker), at, FIGURE_SINK, figure_bytes(BYTES), BYTES, NULL, NULL, 0,
				 &len, &err)) {
			figure_failed(&s->w, &err);
			return;
		}
	}
}

/* Time of the core for each call. 1: it cannot be done, stderr says why. */
static int visit(struct sessions *s, unsigned n, uint64_t calls, bool each, double *ns)
{
	s->visit = n;
	s->calls = calls;
	s->each = each;
	if (cluster_spawn(cluster_worker(s->w.c, 0), 0, caller, s) < 0) {
		fprintf(stderr, "%s: no memory\n", s->w.o->what);
		return 1;
	}
	uint64_t before = cpu_ns();
	if (figure_run(&s->w))
		return 1;
	*ns = (double)(cpu_ns() - before) / (double)calls;
	if (s->w.failed_n)
		fprintf(stderr, "%s: %s\n", s->w.o->what, s->w.failed.text);
	return s->w.failed_n != 0;
}

static void tell(const struct sessions *s, double bytes, double one, double many, struct json *j)
{
	const struct figure_opts *o = s->w.o;
	FILE *f = figure_human(o);
	fprintf(f, "%u sessions of one worker, which has room for %u (FAR_LINK_PEERS_MAX)\n", s->n, FAR_LINK_PEERS_MAX);
	fprintf(f, "    resident bytes of each, at one end: %.0f  <= %.0f %s\n", bytes, BYTES_TARGET,
		figure_verdict(bytes <= BYTES_TARGET));
	fprintf(f, "    a call, both ends and the simulator: %.0f ns to one, %.0f ns to any: %+.0f ns\n", one, many,
		many - one);
	json_u64(j, "sessions", s->n);
	json_u64(j, "sessions_max", FAR_LINK_PEERS_MAX);
	json_u64(j, "calls", o->messages);
	json_double(j, "bytes_each", bytes);
	json_double(j, "target", BYTES_TARGET);
	json_bool(j, "pass", bytes <= BYTES_TARGET);
	json_double(j, "one_ns", one);
	json_double(j, "any_ns", many);
	json_double(j, "added_ns", many - one);
	json_u64(j, "calls_failed", s->w.failed_n);
}

static int measure(struct sessions *s, struct figure_report *r)
{
	struct idle_usage before, after;
	double first, one, many;
	idle_usage_read(&before);
	int bad = visit(s, s->n, s->n, true, &first);
	/* Rings are used from end to end. */
	bad = bad || visit(s, s->n, s->w.o->messages, false, &many);
	idle_usage_read(&after);
	bad = bad || visit(s, 1, s->w.o->messages, false, &one);
	bad = bad || visit(s, s->n, s->w.o->messages, false, &many);
	if (!bad) {
		figure_begin(r, &s->w);
		tell(s, (double)(after.rss_bytes - before.rss_bytes) / 2 / s->n, one, many, &r->json);
	}
	return bad;
}

int figure_sessions(const struct figure_opts *o)
{
	struct figure_report r = {.o = o};
	struct sessions s = {.n = (unsigned)o->workers * SHARDS};
	const struct figure_setup setup = {.kind = SIM_STAR,
					   .workers = (unsigned)o->workers + 1,
					   .priorities = 1,
					   .connect = FAR_CONNECT_LAZY,
					   .shards = SHARDS};
	int bad = figure_open(&s.w, o, &setup);
	sim_random_init(&s.random, o->seed, "figure.sessions", 0);
	bad = bad || measure(&s, &r);
	figure_close(&s.w);
	return figure_end(&r, bad);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* All workers send to all, at random times, messages whose lengths are those of data centres.
 * The thread of the simulated world. */
#include "figure.h"

#include "base/must.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define TENTHS      10u
#define RETRY_NS    UINT64_C(1000)       /* until what found no room is tried again */
#define BYTES_USUAL UINT64_C(2000000000) /* of all messages, by default */
#define PER_WORKER  500u                 /* and no more of them than this */
#define MEAN_STEPS  100000u
/* Of each worker's messages the first and the last tenth are not counted: the network is not under its load yet, and
 * not any more. */
#define EDGE 10u

struct mix;

struct message {
	struct mix *mix;
	uint64_t begun_ns, bytes;
	unsigned tenth;
	bool counted;
};

struct tenth {
	double *slowdown;
	size_t n, cap;
	uint64_t shortest, longest;
};

struct mix {
	struct figure_world w;
	const struct figure_mix *sizes;
	double gap_ns;     /* between two messages of a worker, in the mean */
	uint64_t messages; /* of each worker */
	uint64_t begun, ended, refused;
	uint64_t from_ns, until_ns;
	struct tenth tenths[TENTHS];
};

/* ---- what it would take ---- */

/* By the cables alone: all bytes over the first, the last packet over the second, and an empty answer back. */
static double ideal_ns(const struct mix *m, uint64_t bytes)
{
	uint64_t last, answer = figure_wire_bytes(m->w.o, 0, NULL);
	uint64_t all = figure_wire_bytes(m->w.o, bytes, &last);
	return 4.0 * (double)m->w.o->delay_ns + (double)(all + last + 2 * answer) * 8 / (double)m->w.o->gbps;
}

static double mean_of(const struct mix *m, bool wire)
{
	double sum = 0;
	for (unsigned i = 0; i < MEAN_STEPS; i++) {
		uint64_t bytes = figure_mix_bytes(m->sizes, (i + 0.5) / MEAN_STEPS);
		sum += (double)(wire ? figure_wire_bytes(m->w.o, bytes, NULL) : bytes);
	}
	return sum / MEAN_STEPS;
}

/* ---- messages ---- */

static void record(struct tenth *t, double slowdown, uint64_t bytes)
{
	if (t->n == t->cap) {
		size_t cap = t->cap ? 2 * t->cap : 256;
		double *more = realloc(t->slowdown, cap * sizeof *more);
		must(more != NULL);
		t->slowdown = more;
		t->cap = cap;
	}
	t->shortest = t->n == 0 || bytes < t->shortest ? bytes : t->shortest;
	t->longest = bytes > t->longest ? bytes : t->longest;
	t->slowdown[t->n++] = slowdown;
}

static void on_taken(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	struct message *msg = user;
	struct mix *m = msg->mix;
	(void)data;
	(void)len;
	m->ended++;
	m->until_ns = figure_now(&m->w);
	if (status)
		figure_failed(&m->w, err);
	else if (msg->counted)
		record(&m->tenths[msg->tenth], (double)(m->until_ns - msg->begun_ns) / ideal_ns(m, msg->bytes),
		       msg->bytes);
	free(msg);
}

/* Until there is room: what it waits for counts as its own time. false: it failed. */
static bool begin(struct mix *m, struct far_to to, struct message *msg)
{
	struct far_agent *agent = cluster_agent(cluster_here());
	struct far_err err = {.status = FAR_OK};
	enum far_status status;
	m->begun++;
	while ((status = far_msg_send(agent, to, FIGURE_SINK, figure_bytes(msg->bytes), msg->bytes, NULL, on_taken, msg,
				      &err)) == FAR_BUSY) {
		m->refused++;
		if ((status = cluster_sleep(RETRY_NS)))
			break;
	}
	if (status)
		on_taken(status, NULL, 0, &err, msg);
	return !status;
}

static double uniform(struct sim_random *r)
{
	return (double)(sim_random_next(r) >> 11) * 0x1p-53;
}

static void sleep_until(const struct mix *m, uint64_t when)
{
	uint64_t now = figure_now(&m->w);
	if (when > now)
		cluster_sleep(when - now);
}

static void worker_main(struct cluster_worker *worker, void *ctx)
{
	struct mix *m = ctx;
	unsigned rank = cluster_rank(worker), n = cluster_workers(m->w.c);
	struct sim_random random;
	double at = (double)m->from_ns;
	sim_random_init(&random, m->w.o->seed, "figure.mix", rank);
	for (uint64_t i = 0; i < m->messages; i++) {
		at -= log(1 - uniform(&random)) * m->gap_ns;
		unsigned other = (unsigned)sim_random_below(&random, n - 1);
		double u = uniform(&random);
		struct message *msg = malloc(sizeof *msg);
		must(msg != NULL);
		sleep_until(m, (uint64_t)at);
		*msg = (struct message){.mix = m,
					.begun_ns = (uint64_t)at,
					.bytes = figure_mix_bytes(m->sizes, u),
					.tenth = (unsigned)(u * TENTHS),
					.counted = i >= m->messages / EDGE && i < m->messages - m->messages / EDGE};
		if (!begin(m, (struct far_to){(int)(other + (other >= rank)), 0}, msg))
			return;
	}
	/* Its agent runs until all are answered. */
	while (m->ended < m->begun && figure_now(&m->w) < m->from_ns + m->w.o->limit_ns)
		cluster_sleep(10 * RETRY_NS);
}

/* ---- what came of it ---- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double quantile(const struct tenth *t, double q)
{
	size_t i = (size_t)ceil(q * (double)t->n);
	return t->n ? t->slowdown[i ? i - 1 : 0] : 0;
}

static void print_tenth(struct mix *m, unsigned i, struct json *j)
{
	struct tenth *t = &m->tenths[i];
	FILE *f = figure_human(m->w.o);
	if (t->n)
		qsort(t->slowdown, t->n, sizeof *t->slowdown, compare);
	double p99 = quantile(t, 0.99);
	fprintf(f, "  %8" PRIu64 " to %8" PRIu64 " bytes: %6zu messages, slowdown p50 %7.2f  p99 %8.2f\n", t->shortest,
		t->longest, t->n, quantile(t, 0.5), p99);
	json_object(j, NULL);
	json_u64(j, "bytes_min", t->shortest);
	json_u64(j, "bytes_max", t->longest);
	json_u64(j, "messages", t->n);
	json_double(j, "slowdown_p50", quantile(t, 0.5));
	json_double(j, "slowdown_p99", p99);
	json_close(j);
}

static void write_json(struct mix *m, struct json *j)
{
	fprintf(figure_human(m->w.o), "priorities %" PRIu64 ", %" PRIu64 " messages in %.3f ms:\n", m->w.priorities,
		m->ended, (double)(m->until_ns - m->from_ns) / 1e6);
	json_object(j, NULL);
	json_u64(j, "priorities", m->w.priorities);
	json_bool(j, "finished", m->ended == m->messages * cluster_workers(m->w.c) && m->w.failed_n == 0);
	json_u64(j, "messages", m->ended);
	json_u64(j, "refused_for_room", m->refused);
	json_u64(j, "virtual_ns", m->until_ns - m->from_ns);
	json_array(j, "tenths");
	for (unsigned i = 0; i < TENTHS; i++)
		print_tenth(m, i, j);
	json_close(j);
	figure_print_world(&m->w, j);
	json_close(j);
}

/* ---- run ---- */

static void plan(struct mix *m)
{
	const struct figure_opts *o = m->w.o;
	double wire = mean_of(m, true) + (double)figure_wire_bytes(o, 0, NULL), bytes = mean_of(m, false);
	m->gap_ns = wire * 8 / (double)o->gbps / ((double)o->load / 100);
	m->messages = o->messages;
	if (!m->messages)
		m->messages = (uint64_t)(BYTES_USUAL / bytes / (double)o->workers);
	if (!o->messages && m->messages > PER_WORKER)
		m->messages = PER_WORKER;
	m->messages = m->messages < TENTHS ? TENTHS : m->messages;
}

static int run(struct mix *m)
{
	int bad = 0;
	m->from_ns = figure_now(&m->w);
	for (unsigned i = 0; i < cluster_workers(m->w.c) && !bad; i++)
		bad = cluster_spawn(cluster_worker(m->w.c, i), 0, worker_main, m);
	if (bad) {
		fprintf(stderr, "%s: no memory\n", m->w.o->what);
		return 1;
	}
	return figure_run(&m->w);
}

static void conditions(struct figure_report *r, const struct mix *m)
{
	if (r->begun)
		return;
	figure_begin(r, &m->w);
	fprintf(figure_human(r->o), "%s, %s: %" PRIu64 " workers at %" PRIu64 " %% load\n", m->sizes->name,
		m->sizes->what, r->o->workers, r->o->load);
	json_string(&r->json, "mix", m->sizes->name);
	json_double(&r->json, "mean_bytes", mean_of(m, false));
	json_u64(&r->json, "workers", r->o->workers);
	json_u64(&r->json, "load_percent", r->o->load);
	json_array(&r->json, "results");
}

static int measure(const struct figure_opts *o, uint64_t priorities, struct figure_report *r)
{
	struct mix m = {.sizes = &figure_mixes[o->mix]};
	const struct figure_setup setup = {.kind = SIM_STAR,
					   .workers = (unsigned)o->workers,
					   .priorities = priorities,
					   .connect = FAR_CONNECT_AUTO};
	int bad = figure_open(&m.w, o, &setup);
	if (!bad) {
		plan(&m);
		conditions(r, &m);
		bad = run(&m);
	}
	if (!bad)
		write_json(&m, &r->json);
	figure_close(&m.w);
	for (unsigned i = 0; i < TENTHS; i++)
		free(m.tenths[i].slowdown);
	return bad;
}

int figure_mix(const struct figure_opts *o)
{
	struct figure_report r = {.o = o};
	int bad = 0;
	for (unsigned i = 0; i < o->priorities.n && !bad; i++)
		bad = measure(o, o->priorities.value[i], &r);
	return figure_end(&r, bad);
}

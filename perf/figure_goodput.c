/* SPDX-License-Identifier: BSD-3-Clause */
/* Long messages from one worker to another over a cable that loses packets. The thread of the simulated world. */
#include "figure.h"

#include <inttypes.h>

#define WARM      4u /* messages before the clock is started */
#define SMALL     32u
#define PAUSE_MIN UINT64_C(5000) /* between two small calls, so that they come at any moment of the others' */
#define PAUSE_MAX UINT64_C(15000)

struct goodput {
	struct figure_world w;
	uint64_t begun, ended, from_ns, until_ns;
	struct hist calls; /* --small */
	struct sim_random random;
};

static void sender(struct cluster_worker *worker, void *ctx)
{
	struct goodput *g = ctx;
	(void)worker;
	while (g->begun < WARM + g->w.o->messages) {
		g->begun++;
		if (!figure_call(&g->w, 0, g->w.o->bytes))
			return;
		g->ended++;
		if (g->ended == WARM)
			g->from_ns = figure_now(&g->w);
		if (g->ended == WARM + g->w.o->messages)
			g->until_ns = figure_now(&g->w);
	}
}

static void small(struct cluster_worker *worker, void *ctx)
{
	struct goodput *g = ctx;
	(void)worker;
	while (!g->until_ns && !g->w.failed_n) {
		uint64_t before = figure_now(&g->w);
		if (!figure_call(&g->w, 0, SMALL))
			return;
		if (g->from_ns)
			hist_record(&g->calls, figure_now(&g->w) - before);
		if (cluster_sleep(PAUSE_MIN + sim_random_below(&g->random, PAUSE_MAX - PAUSE_MIN)))
			return;
	}
}

static void print_small(const struct goodput *g, struct json *j)
{
	uint64_t p50 = hist_quantile(&g->calls, 0.5), p99 = hist_quantile(&g->calls, 0.99);
	fprintf(figure_human(g->w.o),
		"    beside them %" PRIu64 " calls of %u bytes: p50 %.1f us, p99 %.1f us, max %.1f us\n",
		g->calls.count, SMALL, (double)p50 / 1e3, (double)p99 / 1e3, (double)g->calls.max / 1e3);
	json_u64(j, "small_calls", g->calls.count);
	json_u64(j, "small_p50_ns", p50);
	json_u64(j, "small_p99_ns", p99);
	json_u64(j, "small_max_ns", g->calls.max);
}

static void write_json(const struct goodput *g, uint64_t loss, struct json *j)
{
	const struct figure_opts *o = g->w.o;
	double seconds = g->until_ns ? (double)(g->until_ns - g->from_ns) / 1e9 : 0;
	double bits = seconds > 0 ? (double)o->messages * (double)o->bytes * 8 / seconds : 0;
	double share = bits / ((double)o->gbps * 1e9) / figure_framing(o);
	fprintf(figure_human(o), "loss %-8g goodput %7.2f Gb/s, %.3f of the framing limit\n", (double)loss / 1e6,
		bits / 1e9, share);
	json_object(j, NULL);
	json_double(j, "loss", (double)loss / 1e6);
	json_double(j, "goodput_bits_per_s", bits);
	json_double(j, "of_framing_limit", share);
	json_double(j, "of_line_rate", bits / ((double)o->gbps * 1e9));
	if (o->small)
		print_small(g, j);
	figure_print_world(&g->w, j);
	json_close(j);
}

static int run(struct goodput *g, uint64_t loss)
{
	struct cluster_worker *from = cluster_worker(g->w.c, 1);
	const struct sim_disturbance lossy = {.loss = (uint32_t)(loss * (SIM_CERTAIN / 1000000))};
	for (unsigned i = 0; i < 2; i++)
		sim_link_disturb(sim_uplink(cluster_host(cluster_worker(g->w.c, i)), 0), &lossy);
	sim_random_init(&g->random, g->w.o->seed, "figure.small", 0);
	for (uint64_t i = 0; i < g->w.o->depth + g->w.o->small; i++)
		if (cluster_spawn(from, 0, i < g->w.o->depth ? sender : small, g) < 0) {
			fprintf(stderr, "%s: no memory\n", g->w.o->what);
			return 1;
		}
	return figure_run(&g->w);
}

static void conditions(struct figure_report *r, const struct figure_world *w)
{
	const struct figure_opts *o = w->o;
	if (r->begun)
		return;
	figure_begin(r, w);
	json_u64(&r->json, "depth", o->depth);
	json_u64(&r->json, "messages", o->messages);
	json_u64(&r->json, "bytes", o->bytes);
	json_array(&r->json, "results");
}

int figure_goodput(const struct figure_opts *o)
{
	struct figure_report r = {.o = o};
	const struct figure_setup setup = {
		.kind = SIM_PAIR, .workers = 2, .priorities = 1, .connect = FAR_CONNECT_AUTO};
	int bad = 0;
	for (unsigned i = 0; i < o->losses.n && !bad; i++) {
		static struct goodput g;
		g = (struct goodput){.begun = 0};
		bad = figure_open(&g.w, o, &setup);
		if (!bad)
			conditions(&r, &g.w);
		bad = bad || run(&g, o->losses.value[i]);
		if (!bad)
			write_json(&g, o->losses.value[i], &r.json);
		figure_close(&g.w);
	}
	return figure_end(&r, bad);
}

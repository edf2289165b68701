/* SPDX-License-Identifier: BSD-3-Clause */
/* Many workers send to one whose port is the narrow place, beside small calls of another one.
 * The thread of the simulated world. */
#include "figure.h"

#include "base/must.h"

#include <inttypes.h>
#include <stdlib.h>

#define RECEIVER  0u
#define SMALL     32u
#define PAUSE_MIN UINT64_C(5000) /* between two small calls, so that they come at any moment of the others' */
#define PAUSE_MAX UINT64_C(15000)

struct incast {
	struct figure_world w;
	unsigned senders, at_goal, warm;
	uint64_t *taken;                      /* of each sender, within the time that is measured */
	uint64_t begun_ns, from_ns, until_ns; /* 0: not yet */
	struct sim_link_stats before, after;  /* of the receiver's port of the switch */
	struct hist calls;
	struct sim_random random;
};

static struct sim_link *bottleneck(const struct incast *in)
{
	return sim_downlink(cluster_host(cluster_worker(in->w.c, RECEIVER)), 0);
}

static void stop(struct incast *in)
{
	in->until_ns = figure_now(&in->w);
	sim_link_stats(bottleneck(in), &in->after);
}

static bool is_over(struct incast *in)
{
	if (!in->until_ns && (in->w.failed_n || figure_now(&in->w) > in->w.o->limit_ns + in->begun_ns))
		stop(in);
	return in->until_ns != 0;
}

/* The clock runs from when one message for each sender has been taken: in the mean each has as much of the next behind
 * it as it has at the end. */
static void note(struct incast *in, unsigned sender)
{
	if (in->until_ns)
		return;
	if (in->from_ns) {
		in->at_goal += ++in->taken[sender] == in->w.o->messages;
		if (in->at_goal == in->senders)
			stop(in);
	} else if (++in->warm == in->senders) {
		in->from_ns = figure_now(&in->w);
		sim_link_stats(bottleneck(in), &in->before);
	}
}

static void sender(struct cluster_worker *worker, void *ctx)
{
	struct incast *in = ctx;
	unsigned number = cluster_rank(worker) - 1;
	while (!is_over(in) && figure_call(&in->w, RECEIVER, in->w.o->bytes))
		note(in, number);
}

static void bystander(struct cluster_worker *worker, void *ctx)
{
	struct incast *in = ctx;
	(void)worker;
	while (!is_over(in)) {
		uint64_t before = figure_now(&in->w);
		if (!figure_call(&in->w, RECEIVER, SMALL))
			return;
		if (in->from_ns && !in->until_ns)
			hist_record(&in->calls, figure_now(&in->w) - before);
		if (cluster_sleep(PAUSE_MIN + sim_random_below(&in->random, PAUSE_MAX - PAUSE_MIN)))
			return;
	}
}

/* ---- what came of it ---- */

struct incast_result {
	double share, jain;
	uint64_t taken, fewest, most, dropped;
};

/* The index of Jain, Chiu, Hawe (1984): 1 is the same for all, 1/n all for one. */
static struct incast_result result(const struct incast *in)
{
	struct incast_result r = {.fewest = UINT64_MAX};
	double sum = 0, squares = 0;
	for (unsigned i = 0; i < in->senders; i++) {
		double n = (double)in->taken[i];
		sum += n;
		squares += n * n;
		r.taken += in->taken[i];
		r.fewest = in->taken[i] < r.fewest ? in->taken[i] : r.fewest;
		r.most = in->taken[i] > r.most ? in->taken[i] : r.most;
	}
	double seconds = (double)(in->until_ns - in->from_ns) / 1e9;
	r.jain = squares > 0 ? sum * sum / (in->senders * squares) : 0;
	if (in->from_ns && seconds > 0)
		r.share = sum * (double)in->w.o->bytes * 8 / seconds / ((double)in->w.o->gbps * 1e9) /
			  figure_framing(in->w.o);
	r.dropped = in->after.dropped[SIM_DROP_QUEUE] - in->before.dropped[SIM_DROP_QUEUE];
	return r;
}

static void print(const struct incast *in, const struct incast_result *r)
{
	FILE *f = figure_human(in->w.o);
	fprintf(f, "priorities %" PRIu64 ": %.3f of the line's rate less framing\n", in->w.priorities, r->share);
	fprintf(f,
		"    Jain's index %.4f over %" PRIu64 " messages, %" PRIu64 " to %" PRIu64 " of a sender; %" PRIu64
		" packets dropped by the port\n",
		r->jain, r->taken, r->fewest, r->most, r->dropped);
	fprintf(f, "    %u of %u senders have had %" PRIu64 " messages taken or more\n", in->at_goal, in->senders,
		in->w.o->messages);
	fprintf(f, "    the bystander's %" PRIu64 " calls: p50 %.1f us, p99 %.1f us, max %.1f us\n", in->calls.count,
		(double)hist_quantile(&in->calls, 0.5) / 1e3, (double)hist_quantile(&in->calls, 0.99) / 1e3,
		(double)in->calls.max / 1e3);
}

static void write_json(const struct incast *in, struct json *j)
{
	struct incast_result r = result(in);
	uint64_t p99 = hist_quantile(&in->calls, 0.99);
	bool whole = in->at_goal == in->senders && in->w.failed_n == 0;
	print(in, &r);
	json_object(j, NULL);
	json_u64(j, "priorities", in->w.priorities);
	json_bool(j, "finished", whole);
	json_u64(j, "senders_at_goal", in->at_goal);
	json_double(j, "of_line_rate_less_framing", r.share);
	json_double(j, "jain_index", r.jain);
	json_u64(j, "messages_taken", r.taken);
	json_u64(j, "messages_fewest", r.fewest);
	json_u64(j, "messages_most", r.most);
	json_u64(j, "port_drops", r.dropped);
	json_u64(j, "port_queue_bytes_max", in->after.queue_bytes_max);
	json_u64(j, "bystander_calls", in->calls.count);
	json_u64(j, "bystander_p50_ns", hist_quantile(&in->calls, 0.5));
	json_u64(j, "bystander_p99_ns", p99);
	json_u64(j, "bystander_max_ns", in->calls.max);
	figure_print_world(&in->w, j);
	json_close(j);
}

/* ---- run ---- */

static int run(struct incast *in)
{
	int bad = 0;
	in->begun_ns = figure_now(&in->w);
	sim_random_init(&in->random, in->w.o->seed, "figure.bystander", 0);
	for (unsigned i = 1; i <= in->senders + 1 && !bad; i++)
		bad = cluster_spawn(cluster_worker(in->w.c, i), 0, i <= in->senders ? sender : bystander, in);
	if (bad) {
		fprintf(stderr, "%s: no memory\n", in->w.o->what);
		return 1;
	}
	return figure_run(&in->w);
}

static int measure(const struct figure_opts *o, uint64_t priorities, struct figure_report *r)
{
	struct incast *in = calloc(1, sizeof *in);
	const struct figure_setup setup = {.kind = SIM_STAR,
					   .workers = (unsigned)o->workers + 2,
					   .priorities = priorities,
					   .connect = FAR_CONNECT_LAZY};
	must(in != NULL);
	in->senders = (unsigned)o->workers;
	in->taken = calloc(in->senders, sizeof *in->taken);
	must(in->taken != NULL);
	int bad = figure_open(&in->w, o, &setup);
	if (!bad && !r->begun) {
		figure_begin(r, &in->w);
		json_u64(&r->json, "senders", o->workers);
		json_u64(&r->json, "bytes", o->bytes);
		json_u64(&r->json, "buffer_bytes", o->buffer_bytes);
		json_array(&r->json, "results");
	}
	bad = bad || run(in);
	if (!bad)
		write_json(in, &r->json);
	figure_close(&in->w);
	free(in->taken);
	free(in);
	return bad;
}

int figure_incast(const struct figure_opts *o)
{
	struct figure_report r = {.o = o};
	int bad = 0;
	for (unsigned i = 0; i < o->priorities.n && !bad; i++)
		bad = measure(o, o->priorities.value[i], &r);
	return figure_end(&r, bad);
}

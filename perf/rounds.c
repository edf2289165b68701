/* SPDX-License-Identifier: BSD-3-Clause */
#include "rounds.h"
#include <inttypes.h>

#define WARM_NS UINT64_C(200000000)

static int floor_round(struct rounds *r, bool rate, uint64_t ns)
{
	const struct perf_opts *o = r->o;
	struct floor_shared *s = r->peer.shared;
	double *line = &r->line_rtt_ns[r->n], *ring = &r->ring_rtt_ns[r->n];
	int rc = floor_round_trips(s, rate ? ns / 2 : ns, &r->round, line, ring);
	if (rc == 0 && rate && rounds_bulk(o))
		rc = floor_copy(s, ns / 2, o->bytes, (unsigned)o->inflight, &r->copy_bytes_per_s[r->n]);
	else if (rc == 0 && rate)
		rc = floor_bursts(s, ns / 2, (unsigned)o->inflight, &r->ring_calls_per_s[r->n]);
	if (rc < 0)
		floor_explain(o->what, rc, *line, *ring);
	return rc < 0;
}

int rounds_run(struct rounds *r, bool rate, rounds_measure_fn *measure, rounds_ratio_fn *ratio, void *ctx)
{
	/* The agent's own thread polls beside the caller when calls are handed over to it. */
	int polling = r->o->via == PERF_VIA_DIRECT ? 2 : 3;
	if (perf_cpus() < polling)
		fprintf(stderr,
			"%s: %d threads poll and there are fewer cores: what follows is the scheduler's figure\n",
			r->o->what, polling);
	unsigned rounds = r->o->floor ? ROUNDS : 1;
	uint64_t share = r->o->duration_ns / rounds;
	uint64_t floor_ns = r->o->floor ? share / 3 : 0;
	int rc = measure(r, WARM_NS, ctx);
	r->calls_n = r->busy_ns = 0;
	hist_reset(&r->calls);
	for (; rc == 0 && r->n < rounds; r->n++) {
		if (r->o->floor)
			rc = floor_round(r, rate, floor_ns);
		if (rc)
			break;
		uint64_t calls = r->calls_n, busy = r->busy_ns;
		hist_reset(&r->round);
		rc = measure(r, share - floor_ns, ctx);
		hist_merge(&r->calls, &r->round);
		if (rc == 0 && r->o->floor)
			r->ratio[r->n] = ratio(r, r->calls_n - calls, r->busy_ns - busy);
	}
	return rc;
}

struct figures {
	double calls_per_s, bytes_per_s;
	double line, ring, rate, copy, ratio; /* medians */
};

static void print_table(const struct rounds *r, bool rate, const struct figures *f, const char *nic)
{
	const struct perf_opts *o = r->o;
	const struct hist *h = &r->calls;
	FILE *out = perf_human(o);
	fprintf(out, "%s: %s API, %s, nic %s, %" PRIu64 " bytes%s", o->what, perf_api_name(o->api),
		perf_via_name(o->via), nic, o->bytes, o->api == PERF_API_RPC ? " a tensor" : "");
	if (rate)
		fprintf(out, ", %" PRIu64 " in flight", o->inflight);
	fprintf(out,
		"\n%10s %10s %10s %10s %10s ns\n%10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64
		"\n",
		"p50", "p90", "p99", "p99.9", "max", hist_quantile(h, 0.5), hist_quantile(h, 0.9),
		hist_quantile(h, 0.99), hist_quantile(h, 0.999), h->max);
	fprintf(out, "%.0f calls/s, %.1f MB/s\n", f->calls_per_s, f->bytes_per_s / 1e6);
	if (!o->floor)
		return;
	fprintf(out, "floor, medians of %u rounds: cache line %.0f ns, raw ring %.0f ns", r->n, f->line, f->ring);
	if (rate && rounds_bulk(o))
		fprintf(out, ", one copy %.1f MB/s", f->copy / 1e6);
	else if (rate)
		fprintf(out, ", raw ring %.0f calls/s", f->rate);
	fprintf(out, "\nratio to the floor, median: %.3f\n", f->ratio);
}

static void print_json(const struct rounds *r, bool rate, const struct figures *f, const char *nic)
{
	const struct perf_opts *o = r->o;
	const struct hist *h = &r->calls;
	struct json j;
	json_begin(&j, stdout);
	json_string(&j, "measurement", rate ? "rate" : "latency");
	json_u64(&j, "p50_ns", hist_quantile(h, 0.5));
	json_u64(&j, "p90_ns", hist_quantile(h, 0.9));
	json_u64(&j, "p99_ns", hist_quantile(h, 0.99));
	json_u64(&j, "p999_ns", hist_quantile(h, 0.999));
	json_u64(&j, "max_ns", h->max);
	json_double(&j, "calls_per_s", f->calls_per_s);
	json_double(&j, "bytes_per_s", f->bytes_per_s);
	json_u64(&j, "calls", r->calls_n);
	json_string(&j, "nic", nic);
	json_string(&j, "api", perf_api_name(o->api));
	json_string(&j, "via", perf_via_name(o->via));
	json_u64(&j, "bytes", o->bytes);
	json_u64(&j, "inflight", rate ? o->inflight : 1);
	json_double(&j, "seconds", (double)o->duration_ns / 1e9);
	if (o->floor) {
		json_u64(&j, "rounds", r->n);
		json_double(&j, "floor_cacheline_rtt_ns", f->line);
		json_double(&j, "floor_ring_rtt_ns", f->ring);
		if (rate && rounds_bulk(o))
			json_double(&j, "floor_copy1_bytes_per_s", f->copy);
		else if (rate)
			json_double(&j, "floor_ring_calls_per_s", f->rate);
		json_double(&j, "ratio_median", f->ratio);
	}
	json_end(&j);
}

void rounds_report(struct rounds *r, bool rate)
{
	struct far_worker_info info = {.nic = "?"};
	double seconds = (double)r->busy_ns / 1e9;
	uint64_t request = r->o->api == PERF_API_RPC ? 2 * r->o->bytes : r->o->bytes;
	struct figures f = {.calls_per_s = (double)r->calls_n / seconds,
			    .line = perf_median(r->line_rtt_ns, r->n),
			    .ring = perf_median(r->ring_rtt_ns, r->n),
			    .rate = perf_median(r->ring_calls_per_s, r->n),
			    .copy = perf_median(r->copy_bytes_per_s, r->n),
			    .ratio = perf_median(r->ratio, r->n)};
	f.bytes_per_s = f.calls_per_s * (double)request;
	far_worker_by_rank(r->peer.agent, 1, &info, NULL);
	print_table(r, rate, &f, info.nic);
	if (r->o->json)
		print_json(r, rate, &f, info.nic);
}

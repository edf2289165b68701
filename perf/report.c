/* SPDX-License-Identifier: BSD-3-Clause */
/** What the rounds of latency and rate came to. Main thread of each process. */
#include "rounds.h"
#include <inttypes.h>

struct figures {
	double calls_per_s, bytes_per_s, base_calls_per_s;
	double noise;
	double line, rtt, rate, copy, ratio, added, added_ratio, added_lines; /* medians */
};

static double per_s(const struct rounds_side *s)
{
	return s->busy_ns ? (double)s->calls_n * 1e9 / (double)s->busy_ns : 0;
}

static void print_base(const struct rounds *r, bool rate, const struct figures *f, FILE *out)
{
	if (rate)
		fprintf(out, "beside it, %s: %.0f calls/s; a call takes %.0f ns more, %.2f times as long", r->base,
			f->base_calls_per_s, f->added, f->added_ratio);
	else
		fprintf(out, "beside it, %s: p50 %" PRIu64 " ns; a call takes %.0f ns more, %.2f times as long",
			r->base, hist_quantile(&r->other.calls, 0.5), f->added, f->added_ratio);
	if (r->o->floor && !r->nic_floor)
		fprintf(out, ", %.2f round trips of a cache line", f->added_lines);
	fprintf(out, " (medians of %u rounds)\n", r->n);
}

static void print_floor(const struct rounds *r, bool rate, const struct figures *f, FILE *out)
{
	bool raw = r->nic_floor;
	fprintf(out, "floor, medians of %u rounds: ", r->n);
	if (!raw)
		fprintf(out, "cache line %.0f ns, ", f->line);
	fprintf(out, "raw %s %.0f ns", raw ? "packets" : "ring", f->rtt);
	if (rate && rounds_bulk(r->o))
		fprintf(out, ", %s %.1f MB/s", raw ? "one way" : "one copy", f->copy / 1e6);
	else if (rate)
		fprintf(out, ", raw %s %.0f %s/s", raw ? "packets" : "ring", f->rate, raw ? "round trips" : "calls");
}

static void print_table(const struct rounds *r, bool rate, const struct figures *f, const char *nic)
{
	const struct perf_opts *o = r->o;
	const struct hist *h = &r->subject.calls;
	FILE *out = perf_human(o);
	fprintf(out, "%s: %s API, %s, %s handler%s, nic %s, %" PRIu64 " bytes%s", o->what, perf_api_name(o->api),
		perf_via_name(o->via), perf_handler_name(o->handler), o->to_self ? ", to this worker itself" : "", nic,
		o->bytes, o->api == PERF_API_RPC ? " a tensor" : "");
	if (rate)
		fprintf(out, ", %" PRIu64 " in flight", o->inflight);
	if (o->shards > 1)
		fprintf(out, " on each of %" PRIu64 " shards", o->shards);
	if (o->peers > 1)
		fprintf(out,
			"\n%" PRIu64 " peers attached: %" PRIu64 " idle agents, up after %.2f s, %.1f MiB in %" PRIu64
			" threads",
			o->peers, r->peer.attached.report.agents, r->peer.attached.report.seconds,
			(double)r->peer.attached.report.rss_bytes / 1048576, r->peer.attached.report.threads);
	fprintf(out,
		"\n%10s %10s %10s %10s %10s ns\n%10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64
		"\n",
		"p50", "p90", "p99", "p99.9", "max", hist_quantile(h, 0.5), hist_quantile(h, 0.9),
		hist_quantile(h, 0.99), hist_quantile(h, 0.999), h->max);
	fprintf(out, "%.0f calls/s, %.1f MB/s; noise %s (spread of %u rounds)\n", f->calls_per_s, f->bytes_per_s / 1e6,
		perf_noise_text(f->noise).text, r->n);
	if (r->base)
		print_base(r, rate, f, out);
	if (!o->floor)
		return;
	print_floor(r, rate, f, out);
	fprintf(out, "\nratio to the floor%s, median: %.3f\n", o->shards > 1 ? ", of one shard" : "", f->ratio);
}

static void json_floor(struct json *j, const struct rounds *r, bool rate, const struct figures *f)
{
	bool raw = r->nic_floor;
	if (!raw)
		json_double(j, "floor_cacheline_rtt_ns", f->line);
	json_double(j, raw ? "floor_raw_rtt_ns" : "floor_ring_rtt_ns", f->rtt);
	if (rate && rounds_bulk(r->o))
		json_double(j, raw ? "floor_raw_bytes_per_s" : "floor_copy1_bytes_per_s", f->copy);
	else if (rate)
		json_double(j, raw ? "floor_raw_calls_per_s" : "floor_ring_calls_per_s", f->rate);
	if (raw)
		json_u64(j, "floor_raw_lost", r->nic_lost);
	json_double(j, "ratio_median", f->ratio);
}

static void json_base(struct json *j, const struct rounds *r, const struct figures *f)
{
	json_string(j, "base", r->base);
	json_u64(j, "base_p50_ns", hist_quantile(&r->other.calls, 0.5));
	json_double(j, "base_calls_per_s", f->base_calls_per_s);
	json_double(j, "added_ns_median", f->added);
	json_double(j, "added_ratio_median", f->added_ratio);
	if (r->o->floor && !r->nic_floor)
		json_double(j, "added_lines_median", f->added_lines);
}

static void json_attached(struct json *j, const struct attached_report *a)
{
	json_u64(j, "attached_agents", a->agents);
	json_double(j, "attached_seconds", a->seconds);
	json_u64(j, "attached_rss_bytes", a->rss_bytes);
	json_u64(j, "attached_threads", a->threads);
	json_u64(j, "attached_files", a->files);
	json_u64(j, "attached_maps", a->maps);
}

static void print_json(const struct rounds *r, bool rate, const struct figures *f, const char *nic)
{
	const struct perf_opts *o = r->o;
	const struct hist *h = &r->subject.calls;
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
	json_u64(&j, "calls", r->subject.calls_n);
	json_string(&j, "nic", nic);
	json_string(&j, "api", perf_api_name(o->api));
	json_string(&j, "via", perf_via_name(o->via));
	json_string(&j, "handler", perf_handler_name(o->handler));
	json_string(&j, "to", o->to_self ? "self" : "peer");
	json_u64(&j, "bytes", o->bytes);
	json_u64(&j, "inflight", rate ? o->inflight : 1);
	json_u64(&j, "shards", o->shards);
	json_u64(&j, "peers", o->peers);
	json_double(&j, "seconds", (double)o->duration_ns / 1e9);
	json_u64(&j, "rounds", r->n);
	json_double(&j, "noise", f->noise);
	if (o->peers > 1)
		json_attached(&j, &r->peer.attached.report);
	if (r->base)
		json_base(&j, r, f);
	if (o->floor)
		json_floor(&j, r, rate, f);
	json_end(&j);
}

void rounds_report(struct rounds *r, bool rate)
{
	struct far_worker_info info = {.nic = "?"};
	uint64_t request = r->o->api == PERF_API_RPC ? 2 * r->o->bytes : r->o->bytes;
	struct figures f = {.calls_per_s = per_s(&r->subject),
			    .base_calls_per_s = per_s(&r->other),
			    .noise = perf_noise(r->cost_ns, r->n),
			    .line = perf_median(r->line_rtt_ns, r->n),
			    .rtt = perf_median(r->rtt_ns, r->n),
			    .rate = perf_median(r->calls_per_s, r->n),
			    .copy = perf_median(r->bytes_per_s, r->n),
			    .ratio = perf_median(r->ratio, r->n),
			    .added = perf_median(r->added_ns, r->n),
			    .added_ratio = perf_median(r->added_ratio, r->n),
			    .added_lines = perf_median(r->added_lines, r->n)};
	f.bytes_per_s = f.calls_per_s * (double)request;
	far_worker_by_rank(r->peer.agent, r->peer.to.worker, &info, NULL);
	print_table(r, rate, &f, info.nic);
	if (r->o->json)
		print_json(r, rate, &f, info.nic);
}

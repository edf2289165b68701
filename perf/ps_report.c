/* SPDX-License-Identifier: BSD-3-Clause */
/** Prints the results of `farcall perf ps`. The measuring thread. */
#include "ps.h"

#include <inttypes.h>

static const char *keys_name(const struct ps_result *r)
{
	return r->is_zipf ? "zipf" : "uniform";
}

void ps_print_head(const struct perf_opts *o, const char *nic)
{
	FILE *f = perf_human(o);
	fprintf(f, "%s: nic %s, %" PRIu64 " rows of 16 floats, %" PRIu64 " of 128; limit %.0f us\n", o->what, nic,
		o->rows, ps_rows(o, &ps_kinds[PS_GET]), (double)o->limit_ns / 1e3);
	if (o->rates.n)
		fprintf(f, "%6s %-8s %-8s %9s %11s %9s %9s %9s %8s %8s\n", "owners", "workload", "keys", "ops/s",
			"answered/s", "p50 us", "p99 us", "max us", "within", "noise");
	else
		fprintf(f, "%6s %-8s %-8s %9s %9s %8s %11s %7s %8s %9s %9s\n", "owners", "workload", "keys", "p50 us",
			"p99 us", "within", "exchange us", "ratio", "noise", "memcpy us", "apply us");
	fflush(f);
}

void ps_print(const struct perf_opts *o, const struct ps_result *r)
{
	FILE *f = perf_human(o);
	struct perf_noise_text noise = perf_noise_text(r->noise);
	fprintf(f, "%6u %-8s %-8s ", r->owners, ps_kinds[r->workload].name, keys_name(r));
	if (r->rate)
		fprintf(f, "%9" PRIu64 " %11.0f %9.1f %9.1f %9.1f %8.4f %8s", r->rate, r->ops_per_s,
			(double)r->p50_ns / 1e3, (double)r->p99_ns / 1e3, (double)r->max_ns / 1e3, r->within,
			noise.text);
	else
		fprintf(f, "%9.1f %9.1f %8.4f %11.1f %7.2f %8s %9.1f %9.1f", (double)r->p50_ns / 1e3,
			(double)r->p99_ns / 1e3, r->within, r->exchange_ns / 1e3, r->ratio, noise.text,
			r->copy_ns / 1e3, r->apply_ns / 1e3);
	fprintf(f, "%s\n", r->unsent ? "  saturated" : "");
	fflush(f);
}

static void print_floors(struct json *j, const struct ps_result *r)
{
	const struct ps_kind *k = &ps_kinds[r->workload];
	json_double(j, "floor_exchange_ns", r->exchange_ns);
	json_double(j, "ratio_median", r->ratio);
	json_double(j, "floor_memcpy_ns", r->copy_ns);
	if (k->writes) {
		json_double(j, "floor_apply_ns", r->apply_ns);
		json_double(j, "apply_ratio_median", r->apply_ratio);
	}
	if (k->samples)
		json_double(j, "samples_per_s", r->ops_per_s * k->samples);
}

static void print_row(struct json *j, const struct ps_result *r)
{
	const struct ps_kind *k = &ps_kinds[r->workload];
	json_object(j, NULL);
	json_u64(j, "owners", r->owners);
	json_string(j, "workload", k->name);
	json_string(j, "keys", keys_name(r));
	json_string(j, "loop", r->rate ? "open" : "closed");
	json_u64(j, "keys_n", k->n);
	json_u64(j, "row_bytes", ps_row_bytes(k));
	json_u64(j, "ops", r->ops);
	json_double(j, "ops_per_s", r->ops_per_s);
	json_u64(j, "p50_ns", r->p50_ns);
	json_u64(j, "p99_ns", r->p99_ns);
	json_u64(j, "max_ns", r->max_ns);
	json_double(j, "within_limit", r->within);
	json_double(j, "noise", r->noise);
	if (r->rate) {
		json_u64(j, "rate", r->rate);
		json_u64(j, "unsent", r->unsent);
	} else {
		print_floors(j, r);
	}
	json_close(j);
}

void ps_print_json(const struct perf_opts *o, const struct ps_results *results)
{
	struct json j;
	json_begin(&j, stdout);
	json_string(&j, "measurement", "ps");
	json_string(&j, "nic", results->nic);
	json_u64(&j, "rows", o->rows);
	json_u64(&j, "limit_ns", o->limit_ns);
	json_double(&j, "seconds", (double)o->duration_ns / 1e9);
	json_u64(&j, "rounds", o->rates.n ? 1 : ROUNDS);
	json_array(&j, "results");
	for (unsigned i = 0; i < results->n; i++)
		print_row(&j, &results->row[i]);
	json_close(&j);
	json_end(&j);
}

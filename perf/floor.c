/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall perf floor`: the machine's own limits. */
#include "floor_pair.h"
#include "perf.h"
#include <errno.h>
#include <string.h>

#define BLOCK_BYTES  ((uint64_t)1 << 20)
#define BLOCK_DEPTH  8
#define WAKE_SAMPLES 100
#define PARTS        5 /* that share the time; the wake-ups have their own */

struct figures {
	uint64_t wake_ns;
	double line_rtt_ns, ring_rtt_ns, ring_calls_per_s, memcpy_bytes_per_s, copy_bytes_per_s;
};

static int measure(struct floor_shared *s, const struct perf_opts *o, struct figures *f)
{
	static struct hist h; /* large for a stack */
	uint64_t ns = o->duration_ns / PARTS;
	int rc = floor_round_trips(s, 2 * ns, &h, &f->line_rtt_ns, &f->ring_rtt_ns);
	if (rc == 0)
		rc = floor_bursts(s, ns, (unsigned)o->inflight, &f->ring_calls_per_s);
	if (rc == 0)
		rc = floor_memcpy(s, ns, BLOCK_BYTES, &f->memcpy_bytes_per_s);
	if (rc == 0)
		rc = floor_copy(s, ns, BLOCK_BYTES, BLOCK_DEPTH, &f->copy_bytes_per_s);
	hist_reset(&h);
	if (rc == 0)
		rc = floor_wake(s, WAKE_SAMPLES, &h);
	f->wake_ns = hist_quantile(&h, 0.5);
	return rc;
}

static void report(const struct perf_opts *o, const struct figures *f)
{
	FILE *out = perf_human(o);
	fprintf(out, "cache line round trip   %8.0f ns\n", f->line_rtt_ns);
	fprintf(out, "raw ring round trip     %8.0f ns\n", f->ring_rtt_ns);
	fprintf(out, "raw ring rate           %8.2f M calls/s, %llu in flight\n", f->ring_calls_per_s / 1e6,
		(unsigned long long)o->inflight);
	fprintf(out, "memcpy                  %8.2f GB/s, blocks of 1 MiB\n", f->memcpy_bytes_per_s / 1e9);
	fprintf(out, "one copy, other reads   %8.2f GB/s\n", f->copy_bytes_per_s / 1e9);
	fprintf(out, "eventfd wake-up         %8.1f us\n", (double)f->wake_ns / 1e3);
	if (!o->json)
		return;
	struct json j;
	json_begin(&j, stdout);
	json_string(&j, "measurement", "floor");
	json_double(&j, "cacheline_rtt_ns", f->line_rtt_ns);
	json_double(&j, "ring_rtt_ns", f->ring_rtt_ns);
	json_double(&j, "ring_calls_per_s", f->ring_calls_per_s);
	json_double(&j, "memcpy_bytes_per_s", f->memcpy_bytes_per_s);
	json_double(&j, "copy1_bytes_per_s", f->copy_bytes_per_s);
	json_u64(&j, "wake_p50_ns", f->wake_ns);
	json_u64(&j, "inflight", o->inflight);
	json_u64(&j, "block_bytes", BLOCK_BYTES);
	json_double(&j, "seconds", (double)o->duration_ns / 1e9);
	json_end(&j);
}

int perf_floor(const struct perf_opts *o)
{
	if (o->server_nic || (strcmp(o->nic, "auto") != 0 && strcmp(o->nic, "shm") != 0))
		return perf_floor_nic(o);
	struct floor_pair pair;
	struct figures f = {0};
	int rc = floor_pair_open(&pair, o, NULL);
	if (rc < 0) {
		fprintf(stderr, "%s: cannot start the second process: %s\n", o->what, strerror(-rc));
		return 1;
	}
	perf_pin(perf_cpu(0));
	rc = measure(pair.shared, o, &f);
	floor_pair_close(&pair);
	if (rc < 0)
		floor_explain(o->what, rc, f.line_rtt_ns, f.ring_rtt_ns);
	else
		report(o, &f);
	return rc < 0;
}

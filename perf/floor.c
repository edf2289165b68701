/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall perf floor`: the machine's own limits. Main thread of each process. */
#include "floor_pair.h"
#include "perf.h"
#include "quiet.h"
#include <errno.h>
#include <string.h>

#define BLOCK_BYTES  ((uint64_t)1 << 20)
#define BLOCK_DEPTH  8
#define WAKE_SAMPLES 100
#define PARTS        5 /* that share the time; the wake-ups have their own */

#define TRIPS_NS_MIN UINT64_C(3000000000) /* on a busy machine a round waits for its turn */
#define RATE_ROUNDS  5                    /* the floor is the best one */

struct figures {
	uint64_t wake_ns;
	struct quiet_verdict trips;
	double ring_calls_per_s, memcpy_bytes_per_s, copy_bytes_per_s;
};

/* Many short rounds: what runs beside disturbs some of them, and the least median is the machine's own. */
static int round_trips(struct floor_shared *s, uint64_t ns, struct quiet_verdict *out)
{
	static struct hist h; /* large for a stack */
	static struct quiet q;
	uint64_t patience = 4 * ns > TRIPS_NS_MIN ? 4 * ns : TRIPS_NS_MIN, until = floor_now() + patience;
	int rc = 0;
	quiet_begin(&q);
	for (unsigned i = 0; rc == 0 && i < QUIET_ROUNDS && (i < QUIET_ROUNDS_MIN || floor_now() < until); i++) {
		quiet_round_begin(&q);
		hist_reset(&h);
		rc = floor_line(s, ns / QUIET_ROUNDS / 2, &h);
		double line_ns = (double)hist_quantile(&h, 0.5);
		hist_reset(&h);
		if (rc == 0)
			rc = floor_ring(s, ns / QUIET_ROUNDS / 2, &h);
		if (rc == 0)
			quiet_round_end(&q, line_ns, (double)hist_quantile(&h, 0.5));
	}
	quiet_end(&q);
	quiet_judge(&q, out);
	return rc;
}

static void keep_best(double now, double *best)
{
	*best = now > *best ? now : *best;
}

static int rates(struct floor_shared *s, const struct perf_opts *o, uint64_t ns, struct figures *f)
{
	int rc = 0;
	for (unsigned i = 0; rc == 0 && i < RATE_ROUNDS; i++) {
		double calls, memory, copied;
		rc = floor_bursts(s, ns / RATE_ROUNDS, (unsigned)o->inflight, &calls);
		if (rc == 0)
			rc = floor_memcpy(s, ns / RATE_ROUNDS, BLOCK_BYTES, &memory);
		if (rc == 0)
			rc = floor_copy(s, ns / RATE_ROUNDS, BLOCK_BYTES, BLOCK_DEPTH, FLOOR_PUSH, &copied);
		if (rc)
			break;
		keep_best(calls, &f->ring_calls_per_s);
		keep_best(memory, &f->memcpy_bytes_per_s);
		keep_best(copied, &f->copy_bytes_per_s);
	}
	return rc;
}

static int measure(struct floor_shared *s, const struct perf_opts *o, struct figures *f)
{
	static struct hist h; /* large for a stack */
	uint64_t ns = o->duration_ns / PARTS;
	int rc = round_trips(s, 2 * ns, &f->trips);
	if (rc == 0)
		rc = rates(s, o, ns, f);
	hist_reset(&h);
	if (rc == 0)
		rc = floor_wake(s, WAKE_SAMPLES, &h);
	f->wake_ns = hist_quantile(&h, 0.5);
	return rc;
}

static void report(const struct perf_opts *o, const struct figures *f)
{
	FILE *out = perf_human(o);
	const struct quiet_verdict *t = &f->trips;
	fprintf(out, "cache line round trip   %8.0f ns\n", t->line_ns);
	fprintf(out, "raw ring round trip     %8.0f ns\n", t->ring_ns);
	fprintf(out, "raw ring rate           %8.2f M calls/s, %llu in flight\n", f->ring_calls_per_s / 1e6,
		(unsigned long long)o->inflight);
	fprintf(out, "memcpy                  %8.2f GB/s, blocks of 1 MiB\n", f->memcpy_bytes_per_s / 1e9);
	fprintf(out, "one copy, other reads   %8.2f GB/s\n", f->copy_bytes_per_s / 1e9);
	fprintf(out, "eventfd wake-up         %8.1f us\n", (double)f->wake_ns / 1e3);
	fprintf(out,
		"noise                   %8.1f %% of %u rounds disturbed; without a CPU %.1f %% of the time, %.1f %% "
		"stolen by "
		"the host\n",
		t->noise * 100, t->rounds, t->lost * 100, t->stolen * 100);
	if (!o->json)
		return;
	struct json j;
	json_begin(&j, stdout);
	json_string(&j, "measurement", "floor");
	json_double(&j, "cacheline_rtt_ns", t->line_ns);
	json_double(&j, "ring_rtt_ns", t->ring_ns);
	json_double(&j, "ring_calls_per_s", f->ring_calls_per_s);
	json_double(&j, "memcpy_bytes_per_s", f->memcpy_bytes_per_s);
	json_double(&j, "copy1_bytes_per_s", f->copy_bytes_per_s);
	json_u64(&j, "wake_p50_ns", f->wake_ns);
	json_u64(&j, "inflight", o->inflight);
	json_u64(&j, "block_bytes", BLOCK_BYTES);
	json_double(&j, "seconds", (double)o->duration_ns / 1e9);
	json_u64(&j, "rounds", t->rounds);
	json_u64(&j, "quiet_rounds", t->quiet);
	json_double(&j, "noise", t->noise);
	json_double(&j, "lost_fraction", t->lost);
	json_double(&j, "stolen_fraction", t->stolen);
	json_u64(&j, "involuntary_switches", t->switches);
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
	if (rc < 0) {
		floor_explain(o->what, rc, 0, 0);
		return 1;
	}
	report(o, &f);
	if (f.trips.quiet >= QUIET_ROUNDS_MIN)
		return 0;
	fprintf(stderr,
		"%s: %u of %u rounds were undisturbed: something else is running on these cores, and the figures are "
		"no "
		"floor; stop it and try again\n",
		o->what, f.trips.quiet, f.trips.rounds);
	return EXIT_DISTURBED;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall perf wake`: the first call to a sleeping worker, beside a raw eventfd wake-up.
 * Main thread of each process. */
#include "floor_agent.h"
#include "rounds.h"
#include <errno.h>

#define SILENCE_NS  (12 * FAR_MS) /* before a call: spinning, yielding and the looks behind them are over by then */
#define SAMPLE_NS   (13 * FAR_MS) /* what one takes with its silence */
#define SAMPLES_MIN 5             /* of a round */
#define FLOORS_MAX  30            /* of a floor: no engine takes its peer for dead meanwhile */
#define BYTES       32

struct wake {
	const struct perf_opts *o;
	struct peer peer;
	struct floor_nic nic;
	struct hist calls, round;
	double p50_ns[ROUNDS], floor_ns[ROUNDS], nic_ns[ROUNDS], ratio[ROUNDS]; /* medians of the rounds */
	unsigned n;                                                             /* rounds done */
};

static unsigned samples_of(uint64_t ns)
{
	uint64_t n = ns / SAMPLE_NS;
	return n < SAMPLES_MIN ? SAMPLES_MIN : (unsigned)n;
}

static int floors(struct wake *w, unsigned samples)
{
	struct floor_shared *s = w->peer.shared;
	if (rounds_quiet(&w->peer, w->o))
		return 1;
	samples = samples < FLOORS_MAX ? samples : FLOORS_MAX;
	hist_reset(&w->round);
	int rc = floor_wake(s, samples, &w->round);
	w->floor_ns[w->n] = (double)hist_quantile(&w->round, 0.5);
	if (rc == 0 && w->nic.fd >= 0) {
		hist_reset(&w->round);
		rc = floor_nic_wake(s, &w->nic, samples, &w->round);
		w->nic_ns[w->n] = (double)hist_quantile(&w->round, 0.5);
	}
	if (rc < 0)
		floor_explain(w->o->what, rc, 0, 0);
	return rc < 0;
}

/* This thread drives its own shard while it waits, so what is woken is the other worker. */
static int first_calls(struct wake *w, unsigned samples)
{
	unsigned char request[BYTES] = {0}, reply[BYTES];
	struct far_err err;
	hist_reset(&w->round);
	for (unsigned i = 0; i < samples; i++) {
		size_t len;
		nanosleep(&(struct timespec){.tv_nsec = SILENCE_NS}, NULL);
		uint64_t before = floor_now();
		enum far_status status = far_msg_call(w->peer.agent, peer_to(&w->peer, 0), SERVER_ECHO, request, BYTES,
						      NULL, reply, BYTES, &len, &err);
		uint64_t after = floor_now();
		if (status != FAR_OK)
			return peer_complain(w->o, &err);
		hist_record(&w->round, after - before);
	}
	return 0;
}

static int measure(struct wake *w, uint64_t ns)
{
	struct floor_shared *s = w->peer.shared;
	int rc = peer_hold(&w->peer, w->o, false);
	if (rc == 0 && floor_switch(s, FLOOR_SLEEP) < 0) {
		floor_explain(w->o->what, -ETIMEDOUT, 0, 0);
		return 1;
	}
	if (rc == 0)
		rc = first_calls(w, samples_of(ns));
	if (rc == 0 && floor_rouse(s, FLOOR_IDLE) < 0) {
		floor_explain(w->o->what, -ETIMEDOUT, 0, 0);
		rc = 1;
	}
	return rc ? rc : peer_hold(&w->peer, w->o, true);
}

static int run(struct wake *w)
{
	uint64_t share = w->o->duration_ns / ROUNDS;
	int rc = 0;
	for (; rc == 0 && w->n < ROUNDS; w->n++) {
		if (w->o->floor)
			rc = floors(w, samples_of(share / (w->nic.fd >= 0 ? 4 : 2)));
		if (rc == 0)
			rc = measure(w, w->o->floor ? share / 2 : share);
		if (rc)
			break;
		double p50 = (double)hist_quantile(&w->round, 0.5);
		w->p50_ns[w->n] = p50;
		w->ratio[w->n] = w->o->floor ? p50 / w->floor_ns[w->n] : 0;
		hist_merge(&w->calls, &w->round);
	}
	return rc;
}

static void report(struct wake *w)
{
	struct far_worker_info info = {.nic = "?"};
	const struct hist *h = &w->calls;
	double floor_ns = perf_median(w->floor_ns, w->n), nic_ns = perf_median(w->nic_ns, w->n);
	double ratio = perf_median(w->ratio, w->n), noise = perf_noise(w->p50_ns, w->n);
	FILE *out = perf_human(w->o);
	far_worker_by_rank(w->peer.agent, w->peer.to.worker, &info, NULL);
	fprintf(out, "%s: message API, nic %s, %d bytes, each call after %d ms of silence\n", w->o->what, info.nic,
		BYTES, (int)(SILENCE_NS / FAR_MS));
	fprintf(out, "%10s %10s %10s %10s us\n%10.1f %10.1f %10.1f %10.1f\n", "p50", "p90", "p99", "max",
		(double)hist_quantile(h, 0.5) / 1e3, (double)hist_quantile(h, 0.9) / 1e3,
		(double)hist_quantile(h, 0.99) / 1e3, (double)h->max / 1e3);
	fprintf(out, "noise %s (spread of %u rounds)\n", perf_noise_text(noise).text, w->n);
	if (w->o->floor) {
		fprintf(out, "floor, medians of %u rounds: eventfd wake-up %.1f us", w->n, floor_ns / 1e3);
		if (w->nic.fd >= 0)
			fprintf(out, ", a packet wakes epoll_wait %.1f us", nic_ns / 1e3);
		fprintf(out, "\nratio to the eventfd wake-up, median: %.3f\n", ratio);
	}
	if (!w->o->json)
		return;
	struct json j;
	json_begin(&j, stdout);
	json_string(&j, "measurement", "wake");
	json_u64(&j, "p50_ns", hist_quantile(h, 0.5));
	json_u64(&j, "p90_ns", hist_quantile(h, 0.9));
	json_u64(&j, "p99_ns", hist_quantile(h, 0.99));
	json_u64(&j, "max_ns", h->max);
	json_u64(&j, "calls", h->count);
	json_string(&j, "nic", info.nic);
	json_u64(&j, "bytes", BYTES);
	json_u64(&j, "silence_ns", SILENCE_NS);
	json_double(&j, "seconds", (double)w->o->duration_ns / 1e9);
	json_u64(&j, "rounds", w->n);
	json_double(&j, "noise", noise);
	if (w->o->floor) {
		json_double(&j, "floor_wake_p50_ns", floor_ns);
		if (w->nic.fd >= 0)
			json_double(&j, "floor_nic_wake_p50_ns", nic_ns);
		json_double(&j, "ratio_median", ratio);
	}
	json_end(&j);
}

int perf_wake(const struct perf_opts *given)
{
	static struct wake w; /* large for a stack */
	struct perf_opts o = *given;
	o.asleep = true;
	w.o = &o;
	w.nic.fd = -1;
	int rc = peer_open(&w.peer, &o);
	if (rc)
		return rc;
	rc = peer_floor(&w.peer, &o, &w.nic);
	if (rc == 0)
		rc = run(&w);
	if (rc == 0)
		report(&w);
	floor_agent_close(&w.nic);
	int close_rc = peer_close(&w.peer, &o);
	return rc ? rc : close_rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall perf floor --nic SPEC`: what a NIC can do at best, without any engine. Main thread of each process. */
#include "floor_pair.h"
#include "floor_port.h"
#include "netns.h"
#include <errno.h>
#include <string.h>
#include <sys/wait.h>

#define WAKE_SAMPLES 100
#define PARTS        3 /* that share the time; the wake-ups have their own */
#define STREAM_BYTES ((uint64_t)1 << 20)
#define PACKETS_TEXT 96

struct figures {
	struct hist rtt, wake, nic_wake;
	double packets_per_s, bytes_per_s;
	bool wakes; /* a packet can wake who waits for it */
};

static int measure(struct floor_shared *s, struct floor_nic *n, const struct perf_opts *o, struct figures *f)
{
	uint64_t ns = o->duration_ns / PARTS;
	int rc = floor_nic_rtt(s, n, ns, &f->rtt);
	if (rc == 0)
		rc = floor_nic_bursts(s, n, ns, (unsigned)o->inflight, &f->packets_per_s);
	if (rc == 0)
		rc = floor_nic_stream(s, n, ns, STREAM_BYTES, &f->bytes_per_s);
	if (rc == 0)
		rc = floor_wake(s, WAKE_SAMPLES, &f->wake);
	f->wakes = n->fd >= 0;
	if (rc == 0 && f->wakes)
		rc = floor_nic_wake(s, n, WAKE_SAMPLES, &f->nic_wake);
	return rc;
}

static void print(const struct perf_opts *o, const struct floor_nic *n, const char *where, const struct figures *f)
{
	FILE *out = perf_human(o);
	fprintf(out, "%s: raw packets, %s, without any engine\n", o->what, where);
	fprintf(out, "round trip, %u bytes    %8.2f us, p99 %.2f us\n", FLOOR_PAYLOAD_BYTES,
		(double)hist_quantile(&f->rtt, 0.5) / 1e3, (double)hist_quantile(&f->rtt, 0.99) / 1e3);
	fprintf(out, "rate, %u bytes          %8.3f M round trips/s, %llu in flight, bursts of %u\n",
		FLOOR_PAYLOAD_BYTES, f->packets_per_s / 1e6, (unsigned long long)o->inflight, n->burst);
	fprintf(out, "one way, %6u bytes    %8.3f GB/s\n", n->bytes_max, f->bytes_per_s / 1e9);
	fprintf(out, "eventfd wake-up         %8.1f us\n", (double)hist_quantile(&f->wake, 0.5) / 1e3);
	if (f->wakes)
		fprintf(out, "packet wakes epoll_wait %8.1f us\n", (double)hist_quantile(&f->nic_wake, 0.5) / 1e3);
	if (n->lost)
		fprintf(out, "lost                    %8llu packets\n", (unsigned long long)n->lost);
}

static void print_json(const struct perf_opts *o, const struct floor_nic *n, const char *where, const struct figures *f)
{
	struct json j;
	json_begin(&j, stdout);
	json_string(&j, "measurement", "floor");
	json_string(&j, "nic", o->nic);
	json_string(&j, "where", where);
	json_u64(&j, "raw_rtt_p50_ns", hist_quantile(&f->rtt, 0.5));
	json_u64(&j, "raw_rtt_p99_ns", hist_quantile(&f->rtt, 0.99));
	json_double(&j, "raw_calls_per_s", f->packets_per_s);
	json_double(&j, "raw_bytes_per_s", f->bytes_per_s);
	json_u64(&j, "raw_burst", n->burst);
	json_u64(&j, "raw_packet_bytes", n->bytes_max);
	json_u64(&j, "raw_lost", n->lost);
	json_u64(&j, "wake_p50_ns", hist_quantile(&f->wake, 0.5));
	if (f->wakes)
		json_u64(&j, "raw_wake_p50_ns", hist_quantile(&f->nic_wake, 0.5));
	json_u64(&j, "bytes", FLOOR_PAYLOAD_BYTES);
	json_u64(&j, "inflight", o->inflight);
	json_double(&j, "seconds", (double)o->duration_ns / 1e9);
	json_end(&j);
}

static int open_and_measure(struct floor_pair *pair, const struct perf_opts *o)
{
	static struct figures f; /* large for a stack */
	struct floor_port port;
	char text[FLOOR_TEXT_BYTES], where[FLOOR_PORT_TEXT];
	int rc = floor_port_open(&port, pair->shared, o, where, text);
	if (rc < 0) {
		fprintf(stderr, "%s: %s\n", o->what, text);
		return 1;
	}
	rc = measure(pair->shared, &port.nic, o, &f);
	if (rc < 0)
		floor_explain(o->what, rc, 0, 0);
	else
		print(o, &port.nic, where, &f);
	if (rc == 0 && o->json)
		print_json(o, &port.nic, where, &f);
	floor_port_close(&port);
	return rc < 0;
}

int perf_floor_nic(const struct perf_opts *o)
{
	struct floor_pair pair;
	int rc = floor_pair_open(&pair, o, floor_port_serve);
	if (rc < 0) {
		fprintf(stderr, "%s: cannot start the second process: %s\n", o->what, strerror(-rc));
		return 1;
	}
	rc = netns_enter(o, o->netns);
	if (rc == 0) {
		perf_pin(perf_cpu(0));
		rc = open_and_measure(&pair, o);
	}
	floor_pair_close(&pair);
	return rc;
}

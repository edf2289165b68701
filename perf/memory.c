/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall perf memory`: what two workers hold after ever more calls between them. Main thread of each process. */
#include "flow.h"
#include "peer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLICE_NS   (20 * FAR_MS) /* between two looks at the number of calls */
#define WARM_CALLS 20000u        /* before the first look: rings and pools have been used from end to end */
#define LARGE      65536u        /* every tenth slice is of calls of so many bytes */
#define LARGE_TURN 10u
#define READINGS   256u /* of resident memory before the last look, one each slice: their spread is the noise */

struct memory_sample {
	uint64_t calls, own, server; /* resident bytes of the two */
};

struct memory {
	const struct perf_opts *o;
	struct peer peer;
	struct flow flow;
	struct hist samples;
	unsigned char request[LARGE];
	uint64_t calls, slices;
	struct memory_sample looks[OPTIONS_LIST_MAX + 1];
	unsigned looks_n;
	double readings[READINGS]; /* the last ones, of both processes together */
	uint64_t readings_n;
};

/* 0: it cannot be read. */
static uint64_t resident(pid_t pid)
{
	char path[48];
	unsigned long long pages = 0;
	snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%*u %llu", &pages) != 1)
		pages = 0;
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int look(struct memory *m)
{
	struct memory_sample *l = &m->looks[m->looks_n++];
	*l = (struct memory_sample){m->calls, resident(getpid()), resident(m->peer.pids[0])};
	if (!l->own || !l->server) {
		fprintf(stderr, "%s: cannot read resident memory from /proc; mount it\n", m->o->what);
		return 1;
	}
	fprintf(perf_human(m->o), "after %10" PRIu64 " calls: resident %8.2f MiB here, %8.2f MiB there\n", l->calls,
		(double)l->own / (1 << 20), (double)l->server / (1 << 20));
	return 0;
}

/* Those before the last look, since the one before it. */
static unsigned readings(const struct memory *m)
{
	return m->readings_n < READINGS ? (unsigned)m->readings_n : READINGS;
}

static int go_to(struct memory *m, uint64_t calls)
{
	uint64_t busy = 0;
	if (m->calls < calls)
		m->readings_n = 0;
	while (m->calls < calls) {
		bool large = m->slices++ % LARGE_TURN == LARGE_TURN - 1;
		m->flow.bytes = large ? LARGE : m->o->bytes;
		m->flow.inflight = large ? 4 : m->o->inflight;
		if (flow_run(&m->flow, SLICE_NS, &m->calls, &busy))
			return peer_complain(m->o, &m->flow.err);
		m->readings[m->readings_n++ % READINGS] =
			(double)resident(getpid()) + (double)resident(m->peer.pids[0]);
	}
	return look(m);
}

static int run(struct memory *m)
{
	m->flow.agent = m->peer.agent;
	m->flow.to = peer_to(&m->peer, 0);
	m->flow.held = true;
	m->flow.id = SERVER_SINK;
	m->flow.request = m->request;
	m->flow.samples = &m->samples;
	int rc = go_to(m, WARM_CALLS);
	for (unsigned i = 0; i < m->o->marks.n && rc == 0; i++)
		rc = go_to(m, m->o->marks.value[i]);
	return rc;
}

/* With a single number, from the look before it. */
static int64_t growth(const struct memory *m)
{
	const struct memory_sample *first = &m->looks[m->looks_n > 2], *last = &m->looks[m->looks_n - 1];
	return (int64_t)(last->own + last->server) - (int64_t)(first->own + first->server);
}

static void report(struct memory *m)
{
	double noise = perf_noise(m->readings, readings(m));
	struct far_worker_info info = {.nic = "?"};
	int64_t grown = growth(m);
	struct json j;
	far_worker_by_rank(m->peer.agent, m->peer.to.worker, &info, NULL);
	fprintf(perf_human(m->o), "nic %s: grown by %" PRId64 " KiB, both together, from %" PRIu64 " calls on\n",
		info.nic, grown / 1024, m->looks[m->looks_n > 2].calls);
	fprintf(perf_human(m->o), "noise %s (spread of %u readings before the last look)\n",
		perf_noise_text(noise).text, readings(m));
	if (!m->o->json)
		return;
	json_begin(&j, stdout);
	json_string(&j, "measurement", "memory");
	json_string(&j, "nic", info.nic);
	json_u64(&j, "bytes", m->o->bytes);
	json_u64(&j, "inflight", m->o->inflight);
	json_i64(&j, "grown_bytes", grown);
	json_double(&j, "noise", noise);
	json_array(&j, "looks");
	for (unsigned i = 0; i < m->looks_n; i++) {
		json_object(&j, NULL);
		json_u64(&j, "calls", m->looks[i].calls);
		json_u64(&j, "resident_bytes", m->looks[i].own);
		json_u64(&j, "server_resident_bytes", m->looks[i].server);
		json_close(&j);
	}
	json_close(&j);
	json_end(&j);
}

int perf_memory(const struct perf_opts *given)
{
	static struct memory m; /* large for a stack */
	struct perf_opts o = *given;
	if (o.bytes == 0)
		o.bytes = 32;
	for (unsigned i = 0; i < o.marks.n; i++)
		if (i ? o.marks.value[i] <= o.marks.value[i - 1] : o.marks.value[i] <= WARM_CALLS)
			return options_wrong(o.what, "--calls: give ever larger numbers, the first above %u",
					     WARM_CALLS);
	m.o = &o;
	int rc = peer_open(&m.peer, &o);
	if (rc)
		return rc;
	rc = peer_hold(&m.peer, &o, true);
	if (rc == 0)
		rc = run(&m);
	if (rc == 0)
		report(&m);
	int close_rc = peer_close(&m.peer, &o);
	return rc ? rc : close_rc;
}

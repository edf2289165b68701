/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall perf bandwidth`: large messages, or typed calls, of each size, with each depth in flight. Main thread of
 * each process.
 */
#include "flow.h"
#include "load.h"
#include "rounds.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WARM_NS  UINT64_C(100000000)
#define WARM_MAX 50

/* One size and depth. */
struct cell {
	uint64_t bytes, depth;
	uint64_t calls_n, busy_ns;
	struct hist calls;                                                   /* what single ones took, of all rounds */
	double bytes_each[ROUNDS], floor_bytes_per_s[ROUNDS], ratio[ROUNDS]; /* bytes/s, floors, ratios by round */
	unsigned n;                                                          /* rounds done */
	double bytes_per_s, floor, ratio_median, noise;
	/* Typed calls in shared memory: what of the bytes was read in place, in [0, 1]; the same with copies, by turns.
	 */
	struct hist copied_calls;
	double in_place, copied_in_place;
	double copied_each[ROUNDS], to_copied[ROUNDS];
	double copied_per_s, to_copied_median;
};

struct bandwidth {
	const struct perf_opts *o;
	struct peer peer;
	struct floor_nic nic; /* what the floor is of; `ops` NULL: of memory */
	struct flow flow;
	unsigned char *request;             /* as large as the largest */
	struct flow_buffer *buffers, *free; /* with --release, --memory region */
	uint64_t buffers_n;
	unsigned char *region; /* that they lie in, with --memory region */
	struct cell *cells;
	unsigned cells_n;
	char driver[16];
};

static int run(struct bandwidth *b, uint64_t ns, uint64_t *calls, uint64_t *busy_ns)
{
	if (flow_run(&b->flow, ns, calls, busy_ns) == 0)
		return 0;
	return peer_complain(b->o, &b->flow.err);
}

/* Messages are sent from buffers of their own, which the receiver may read until their release. */
static bool is_released(const struct perf_opts *o)
{
	return o->release || o->memory == PERF_MEMORY_REGION;
}

static bool in_region(const struct bandwidth *b)
{
	return b->o->memory == PERF_MEMORY_REGION;
}

/* The best that the memory of the messages permits. */
static enum floor_way floor_way(const struct bandwidth *b)
{
	if (in_region(b))
		return b->o->release ? FLOOR_IN_PLACE : FLOOR_UNCHANGED;
	return b->o->release ? FLOOR_PULL : FLOOR_PUSH;
}

static const char *floor_name(const struct bandwidth *b, bool json)
{
	if (b->nic.ops)
		return json ? "floor_raw_bytes_per_s" : "raw MB/s";
	if (in_region(b))
		return json ? "floor_in_place_bytes_per_s" : "in place MB/s";
	if (b->o->release)
		return json ? "floor_pull_bytes_per_s" : "pull MB/s";
	return json ? "floor_copy1_bytes_per_s" : "one copy MB/s";
}

/* Typed calls whose arguments stay in place, and which are copied, by turns. */
static bool compares_copies(const struct bandwidth *b)
{
	return b->o->api == PERF_API_RPC && in_region(b);
}

static int floor_of(struct bandwidth *b, const struct cell *c, uint64_t ns, double *bytes_per_s)
{
	int rc;
	if (!b->nic.ops)
		rc = floor_copy(b->peer.shared, ns, c->bytes, (unsigned)c->depth, floor_way(b), bytes_per_s);
	else if (rounds_quiet(&b->peer, b->o))
		return 1;
	else
		rc = floor_nic_stream(b->peer.shared, &b->nic, ns < FLOOR_NIC_NS_MAX ? ns : FLOOR_NIC_NS_MAX,
				      c->bytes * c->depth, bytes_per_s);
	if (rc < 0)
		floor_explain(b->o->what, rc, 0, 0);
	return rc < 0;
}

/* The peer's count of bytes that it has read in place. */
static int bytes_in_place(const struct bandwidth *b, uint64_t *bytes)
{
	struct far_val v;
	struct far_err err;
	if (far_rpc_sync_to(b->peer.agent, b->flow.to, SERVER_IN_PLACE, NULL, 0, NULL, &v, &err) != FAR_OK)
		return peer_complain(b->o, &err);
	*bytes = (uint64_t)v.u.i;
	return 0;
}

/* run(), and what of the bytes was read in place. */
static int run_counted(struct bandwidth *b, uint64_t ns, uint64_t *calls, uint64_t *busy_ns, double *in_place)
{
	uint64_t first = 0, last = 0, sent = b->flow.sent;
	int rc = bytes_in_place(b, &first);
	rc = rc ? rc : run(b, ns, calls, busy_ns);
	rc = rc ? rc : bytes_in_place(b, &last);
	sent = (b->flow.sent - sent) * b->flow.bytes;
	*in_place = last - first < sent ? (double)(last - first) / (double)sent : 1; /* counts descriptors, too */
	return rc;
}

/* The calls of a round that are copied. */
static int round_copied(struct bandwidth *b, struct cell *c, uint64_t ns)
{
	uint64_t calls = 0, busy = 0;
	double in_place;
	b->flow.copied = true;
	b->flow.samples = &c->copied_calls;
	int rc = run_counted(b, ns, &calls, &busy, &in_place);
	b->flow.copied = false;
	b->flow.samples = &c->calls;
	c->copied_each[c->n] = busy ? (double)(calls * c->bytes) * 1e9 / (double)busy : 0;
	c->copied_in_place = in_place > c->copied_in_place ? in_place : c->copied_in_place;
	return rc;
}

static int round_of(struct bandwidth *b, struct cell *c, uint64_t ns)
{
	uint64_t calls = 0, busy = 0, floor_ns = b->o->floor ? ns / 3 : 0;
	double *floor = &c->floor_bytes_per_s[c->n], in_place = 0;
	if (b->o->floor && floor_of(b, c, floor_ns, floor))
		return 1;
	int rc;
	if (compares_copies(b)) {
		rc = round_copied(b, c, (ns - floor_ns) / 2);
		rc = rc ? rc : run_counted(b, (ns - floor_ns) / 2, &calls, &busy, &in_place);
		c->in_place = c->n && c->in_place < in_place ? c->in_place : in_place;
	} else {
		rc = run(b, ns - floor_ns, &calls, &busy);
	}
	c->calls_n += calls;
	c->busy_ns += busy;
	c->bytes_each[c->n] = busy ? (double)(calls * c->bytes) * 1e9 / (double)busy : 0;
	if (b->o->floor)
		c->ratio[c->n] = (double)(calls * c->bytes) * 1e9 / (double)busy / *floor;
	c->to_copied[c->n] = c->copied_each[c->n] > 0 ? c->bytes_each[c->n] / c->copied_each[c->n] : 0;
	c->n++;
	return rc;
}

static int measure(struct bandwidth *b, struct cell *c)
{
	uint64_t unused = 0;
	struct flow *f = &b->flow;
	f->bytes = c->bytes;
	f->inflight = c->depth;
	f->samples = &c->calls;
	int rc = run(b, WARM_NS, &unused, &unused);
	/* Until the peer has mapped the memory, calls are copied. */
	double in_place = compares_copies(b) ? 0 : 1;
	for (int i = 0; rc == 0 && in_place < 1 && i < WARM_MAX; i++)
		rc = run_counted(b, WARM_NS / WARM_MAX, &unused, &unused, &in_place);
	hist_reset(&c->calls);
	while (rc == 0 && c->n < ROUNDS)
		rc = round_of(b, c, b->o->duration_ns / ROUNDS);
	c->bytes_per_s = c->busy_ns ? (double)(c->calls_n * c->bytes) * 1e9 / (double)c->busy_ns : 0;
	c->floor = perf_median(c->floor_bytes_per_s, c->n);
	c->noise = perf_noise(c->bytes_each, c->n);
	c->ratio_median = perf_median(c->ratio, c->n);
	c->copied_per_s = perf_median(c->copied_each, c->n);
	c->to_copied_median = perf_median(c->to_copied, c->n);
	return rc;
}

void perf_print_size(FILE *out, uint64_t bytes)
{
	if (bytes >= 1 << 20 && bytes % (1 << 20) == 0)
		fprintf(out, "%6" PRIu64 " MiB", bytes >> 20);
	else if (bytes >= 1 << 10 && bytes % (1 << 10) == 0)
		fprintf(out, "%6" PRIu64 " KiB", bytes >> 10);
	else
		fprintf(out, "%8" PRIu64 " B", bytes);
}

static void print_head(const struct bandwidth *b)
{
	FILE *out = perf_human(b->o);
	fprintf(out, "%s: %s API, nic %s%s; %sthe receiver reads every byte, the reply is empty\n", b->o->what,
		perf_api_name(b->o->api), b->driver, in_region(b) ? ", shared memory" : "",
		b->o->release ? "each message is written anew and released, " : "");
	fprintf(out, "%10s %6s %10s %12s %8s", "size", "depth", "MB/s", "p50 us", "noise");
	if (b->o->floor)
		fprintf(out, " %14s %8s", floor_name(b, false), "ratio");
	if (compares_copies(b))
		fprintf(out, " %9s %12s %12s %8s", "in place", "copied MB/s", "p50 us", "ratio");
	fputc('\n', out);
}

static void print_cell(const struct bandwidth *b, const struct cell *c)
{
	FILE *out = perf_human(b->o);
	perf_print_size(out, c->bytes);
	fprintf(out, " %6" PRIu64 " %10.1f %12.1f %8s", c->depth, c->bytes_per_s / 1e6,
		(double)hist_quantile(&c->calls, 0.5) / 1e3, perf_noise_text(c->noise).text);
	if (b->o->floor)
		fprintf(out, " %14.1f %8.3f", c->floor / 1e6, c->ratio_median);
	if (compares_copies(b))
		fprintf(out, " %8.1f%% %12.1f %12.1f %8.3f", c->in_place * 100, c->copied_per_s / 1e6,
			(double)hist_quantile(&c->copied_calls, 0.5) / 1e3, c->to_copied_median);
	fputc('\n', out);
	fflush(out);
}

static void json_cell(struct json *j, const struct bandwidth *b, const struct cell *c)
{
	json_u64(j, "bytes", c->bytes);
	json_u64(j, "depth", c->depth);
	json_double(j, "bytes_per_s", c->bytes_per_s);
	json_double(j, "calls_per_s", c->bytes_per_s / (double)c->bytes);
	json_u64(j, "calls", c->calls_n);
	json_u64(j, "p50_ns", hist_quantile(&c->calls, 0.5));
	json_u64(j, "p99_ns", hist_quantile(&c->calls, 0.99));
	json_u64(j, "rounds", c->n);
	json_double(j, "noise", c->noise);
	if (b->o->floor) {
		json_double(j, floor_name(b, true), c->floor);
		json_double(j, "ratio_median", c->ratio_median);
	}
	if (compares_copies(b)) {
		json_double(j, "in_place", c->in_place);
		json_double(j, "copied_in_place", c->copied_in_place);
		json_double(j, "copied_bytes_per_s", c->copied_per_s);
		json_u64(j, "copied_p50_ns", hist_quantile(&c->copied_calls, 0.5));
		json_double(j, "to_copied_median", c->to_copied_median);
	}
}

static void print_json(const struct bandwidth *b)
{
	struct json j;
	json_begin(&j, stdout);
	json_string(&j, "measurement", "bandwidth");
	json_string(&j, "nic", b->driver);
	json_double(&j, "seconds", (double)b->o->duration_ns / 1e9);
	/* The figures of a single one are also where the other measurements have theirs. */
	if (b->cells_n == 1)
		json_cell(&j, b, b->cells);
	json_array(&j, "results");
	for (unsigned i = 0; i < b->cells_n; i++) {
		json_object(&j, NULL);
		json_cell(&j, b, &b->cells[i]);
		json_close(&j);
	}
	json_close(&j);
	json_end(&j);
}

/* A buffer for each message in flight. */
static int prepare_buffers(struct bandwidth *b, uint64_t depth, uint64_t largest)
{
	uint64_t bytes = (largest + 63) / 64 * 64; /* each begins at a multiple of 64: else arguments are copied */
	b->buffers = calloc(depth, sizeof *b->buffers);
	if (in_region(b) && !(b->region = far_alloc_shared(depth * bytes, NULL)))
		return 1;
	for (uint64_t i = 0; b->buffers && i < depth; i++) {
		void *at = in_region(b) ? b->region + i * bytes : malloc(bytes);
		b->buffers[i] = (struct flow_buffer){&b->flow, b->free, at};
		b->free = &b->buffers[i];
		b->buffers_n = i + 1;
		if (!at)
			return 1;
		memset(at, 1, bytes);
	}
	return !b->buffers;
}

static void free_buffers(struct bandwidth *b)
{
	for (; b->buffers_n; b->buffers_n--)
		if (!in_region(b))
			free(b->buffers[b->buffers_n - 1].at);
	far_free(b->region);
	free(b->buffers);
}

static int prepare(struct bandwidth *b, const struct perf_opts *o)
{
	uint64_t largest = 0, deepest = 0;
	b->cells = calloc((size_t)o->sizes.n * o->depths.n, sizeof *b->cells);
	for (unsigned i = 0; b->cells && i < o->sizes.n; i++)
		for (unsigned k = 0; k < o->depths.n; k++) {
			struct cell *c = &b->cells[b->cells_n++];
			c->bytes = o->sizes.value[i];
			c->depth = o->depths.value[k];
			largest = c->bytes > largest ? c->bytes : largest;
			deepest = c->depth > deepest ? c->depth : deepest;
		}
	b->request = malloc(largest);
	if (!b->cells || !b->request || (is_released(o) && prepare_buffers(b, deepest, largest))) {
		fprintf(stderr, "%s: out of memory for %" PRIu64 " bytes\n", o->what, largest);
		return 1;
	}
	memset(b->request, 1, largest); /* untouched pages would all be one page of zeros */
	return 0;
}

static int measure_all(struct bandwidth *b)
{
	struct far_worker_info info = {.nic = "?"};
	far_worker_by_rank(b->peer.agent, b->peer.to.worker, &info, NULL);
	memcpy(b->driver, info.nic, sizeof b->driver);
	b->flow = (struct flow){.agent = b->peer.agent,
				.to = peer_to(&b->peer, 0),
				.held = true,
				.id = SERVER_SINK,
				.function = b->o->api == PERF_API_RPC ? SERVER_READ : NULL,
				.request = b->request,
				.released = is_released(b->o),
				.written = b->o->release,
				.free = b->free};
	int rc = peer_floor(&b->peer, b->o, &b->nic);
	if (rc)
		return rc;
	rounds_cores(b->o);
	print_head(b);
	for (unsigned i = 0; i < b->cells_n && rc == 0; i++) {
		rc = measure(b, &b->cells[i]);
		if (rc == 0)
			print_cell(b, &b->cells[i]);
	}
	if (rc == 0 && b->o->json)
		print_json(b);
	floor_agent_close(&b->nic);
	return rc;
}

int perf_bandwidth(const struct perf_opts *o)
{
	static struct bandwidth b;
	if (o->rates.n)
		return perf_load(o, LOAD_LARGE);
	b.o = o;
	int rc = prepare(&b, o);
	if (rc == 0)
		rc = peer_open(&b.peer, o);
	if (rc == 0) {
		rc = measure_all(&b);
		int close_rc = peer_close(&b.peer, o);
		rc = rc ? rc : close_rc;
	}
	free(b.cells);
	free(b.request);
	free_buffers(&b);
	return rc;
}

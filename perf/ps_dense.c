/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall perf ps --workload dense`: all rows of a dense table, of 100 MB or --memory, pulled and pushed by ranges, by
 * turns with memcpy of as many bytes. Each push subtracts 1 from each element, so a pull is checked. The measuring
 * thread.
 */
#include "ps_small.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DIM   256u  /* a row of a KiB */
#define PRIME 1021u /* of so many values one is checked */

enum what { COPY, PULL, PUSH, WHATS };

static const char *const what_names[WHATS] = {"memcpy", "pull", "push"};

struct dense {
	struct ps_small small;
	struct far_ps_table *table;
	size_t rows_n, bytes;
	float *rows, *grads; /* [rows_n * DIM] */
	uint64_t pushes, ops[WHATS];
	double ns[WHATS][ROUNDS], ratio[WHATS][ROUNDS]; /* medians of rounds; over memcpy's */
};

static int await(const struct dense *d, enum far_status status, struct far_future *const *f, struct far_err *err)
{
	struct far_val rows = far_none();
	if (!status) {
		status = far_future_wait(*f, 0, &rows, err);
		far_future_free(*f);
	}
	if (status)
		return peer_complain(&d->small.o, err);
	return rows.u.i == (int64_t)d->rows_n ? 0 : ps_small_wrong(&d->small, "not every row of a dense table came");
}

static int check(const struct dense *d)
{
	for (size_t i = 0; i < d->rows_n * DIM; i += PRIME)
		if (d->rows[i] != -(float)d->pushes)
			return ps_small_wrong(&d->small, "a row of a dense table is wrong");
	return 0;
}

/* One operation, and what it took. */
static int operate(struct dense *d, enum what what, uint64_t *ns)
{
	struct far_future *f = NULL;
	struct far_err err;
	int rc = 0;
	uint64_t before = floor_now();
	if (what == COPY) {
		memcpy(d->rows, d->grads, d->bytes);
		__asm__ volatile("" : : "r"(d->rows) : "memory");
	} else if (what == PULL) {
		rc = await(d, far_ps_pull_range(d->table, 0, d->rows_n, NULL, d->rows, &f, &err), &f, &err);
	} else {
		rc = await(d, far_ps_push_range(d->table, 0, d->rows_n, d->grads, NULL, &f, &err), &f, &err);
		d->pushes++;
	}
	*ns = floor_now() - before;
	d->ops[what]++;
	return rc || what != PULL ? rc : check(d);
}

static int one_round(struct dense *d, unsigned i, uint64_t ns)
{
	static struct hist times; /* large for a stack */
	for (unsigned what = 0; what < WHATS; what++) {
		uint64_t start = floor_now(), took;
		hist_reset(&times);
		do {
			int rc = operate(d, what, &took);
			if (rc)
				return rc;
			hist_record(&times, took);
		} while (floor_now() - start < ns / WHATS);
		d->ns[what][i] = (double)hist_quantile(&times, 0.5);
		d->ratio[what][i] = d->ns[what][i] / d->ns[COPY][i];
	}
	return 0;
}

static void print(struct dense *d, const char *nic)
{
	const struct perf_opts *o = &d->small.o;
	struct json j;
	FILE *f = perf_human(o);
	fprintf(f, "%s: nic %s, %" PRIu64 " owners; a dense table of %zu rows of %u floats, SGD\n", o->what, nic,
		o->server_shards, d->rows_n, DIM);
	fprintf(f, "%-8s %9s %9s %9s %8s %8s\n", "", "ops", "p50 ms", "GB/s", "ratio", "noise");
	if (o->json) {
		json_begin(&j, stdout);
		json_string(&j, "measurement", "ps_dense");
		json_string(&j, "nic", nic);
		json_u64(&j, "owners", o->server_shards);
		json_u64(&j, "bytes", d->bytes);
		json_u64(&j, "rounds", ROUNDS);
		json_array(&j, "results");
	}
	for (unsigned what = 0; what < WHATS; what++) {
		double ns = perf_median(d->ns[what], ROUNDS), ratio = perf_median(d->ratio[what], ROUNDS);
		double spread = perf_noise(d->ns[what], ROUNDS);
		struct perf_noise_text noise = perf_noise_text(spread);
		fprintf(f, "%-8s %9" PRIu64 " %9.2f %9.2f %8.2f %8s\n", what_names[what], d->ops[what], ns / 1e6,
			(double)d->bytes / ns, ratio, noise.text);
		if (!o->json)
			continue;
		json_object(&j, NULL);
		json_string(&j, "operation", what_names[what]);
		json_u64(&j, "ops", d->ops[what]);
		json_double(&j, "p50_ns", ns);
		json_double(&j, "bytes_per_s", (double)d->bytes * 1e9 / ns);
		json_double(&j, "memcpy_ratio", ratio);
		json_double(&j, "noise", spread);
		json_close(&j);
	}
	if (o->json) {
		json_close(&j);
		json_end(&j);
	}
}

static int prepare(struct dense *d)
{
	struct far_ps_schema schema = {.dim = DIM, .dense_rows = d->rows_n};
	struct far_err err;
	far_ps_rule_defaults(&schema.rule, FAR_PS_SGD);
	schema.rule.rate = 1;
	d->rows = malloc(d->bytes);
	d->grads = malloc(d->bytes);
	if (!d->rows || !d->grads) {
		fprintf(stderr, "%s: no memory for rows and gradients of %zu bytes each\n", d->small.o.what, d->bytes);
		return 1;
	}
	for (size_t i = 0; i < d->rows_n * DIM; i++)
		d->grads[i] = 1;
	if (far_ps_table_create(d->small.ps, "dense", &schema, 0, &d->table, &err))
		return peer_complain(&d->small.o, &err);
	return 0;
}

int ps_dense(const struct perf_opts *given)
{
	static struct dense d; /* large for a stack */
	struct far_worker_info info = {.nic = "?"};
	struct perf_opts o = *given;
	if (o.owners.n > 1)
		return options_wrong(o.what, "--workload dense takes one number of --owners");
	o.server_shards = o.owners.value[0];
	o.rows = 1; /* of the table of the small pulls */
	int rc = ps_small_open(&d.small, &o, 1);
	if (rc)
		return rc;
	far_worker_by_rank(d.small.peer.agent, d.small.peer.to.worker, &info, NULL);
	d.rows_n = (o.memory_bytes ? o.memory_bytes : PS_DENSE_BYTES) / (DIM * sizeof(float));
	d.bytes = d.rows_n * DIM * sizeof(float);
	rc = prepare(&d);
	for (unsigned i = 0; i < ROUNDS && rc == 0; i++)
		rc = one_round(&d, i, o.duration_ns / ROUNDS);
	if (rc == 0)
		print(&d, info.nic);
	far_ps_table_free(d.table);
	rc = ps_small_close(&d.small, rc);
	free(d.rows);
	free(d.grads);
	return rc;
}

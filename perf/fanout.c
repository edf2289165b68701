/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall perf fanout`: far::add on many targets as one fan-out, and as separate calls that are waited for together.
 * The two alternate in rounds of one run, in the same processes; the ratio is the median of the rounds'.
 * Main thread of each process.
 */
#include "apps/cli/options.h"
#include "load.h"
#include "rounds.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WARM_NS UINT64_C(100000000)

enum { TOGETHER, APART, WAYS };

struct fanout {
	const struct perf_opts *o;
	struct peer peer;
	size_t targets;
	uint64_t n; /* counts up: what is added, so that no result is an old one */
	float *a, *b, *sums;
	struct far_tensor at, bt;
	struct far_target target[PERF_TARGETS_MAX];
	struct far_future *future[PERF_TARGETS_MAX];
	struct hist all[WAYS], round[WAYS];
	double p50_ns[ROUNDS]; /* of the fan-outs */
	double ratio[ROUNDS];  /* that over the p50 of the separate calls */
};

static struct far_to to_of(const struct fanout *f, size_t i)
{
	return (struct far_to){1 + (int32_t)(i % f->peer.servers), 0};
}

static enum far_status together(struct fanout *f, struct far_err *err)
{
	struct far_fanout_opts opts = {.recv_buf = f->sums, .slice_bytes = f->o->bytes, .dtype = FAR_F32};
	struct far_future *future;
	enum far_status status = far_rpc_fanout(f->peer.agent, "far::add", FAR_ARGS(&f->at, &f->bt), f->target,
						f->targets, &opts, NULL, &future, err);
	if (status != FAR_OK)
		return status;
	status = far_future_wait(future, 0, NULL, err);
	far_future_free(future);
	return status;
}

static enum far_status take(struct fanout *f, size_t i, struct far_err *err)
{
	struct far_val v = far_none();
	enum far_status status = far_future_value(f->future[i], &v, err);
	if (status == FAR_OK && (v.type != FAR_TYPE_TENSOR || far_tensor_bytes(&v.u.t) != f->o->bytes)) {
		*err = (struct far_err){.status = FAR_PROTOCOL, .text = "far::add gave another tensor"};
		status = FAR_PROTOCOL;
	}
	if (status == FAR_OK)
		memcpy((char *)f->sums + i * f->o->bytes, v.u.t.data, f->o->bytes);
	far_val_fini(&v);
	return status;
}

static enum far_status apart(struct fanout *f, struct far_err *err)
{
	enum far_status status = FAR_OK;
	size_t started = 0;
	for (; started < f->targets && status == FAR_OK; started += status == FAR_OK)
		do
			status = far_rpc_async_to(f->peer.agent, to_of(f, started), "far::add",
						  FAR_ARGS(&f->at, &f->bt), NULL, &f->future[started], err);
		while (status == FAR_BUSY);
	if (status == FAR_OK)
		status = far_future_wait_all(f->future, f->targets, 0, err);
	for (size_t i = 0; i < started; i++) {
		if (status == FAR_OK)
			status = take(f, i, err);
		far_future_free(f->future[i]);
	}
	return status;
}

static int failed(const struct fanout *f, const struct far_err *err)
{
	fprintf(stderr, "%s: ", f->o->what);
	far_err_print(stderr, err);
	return 1;
}

/* Measures one way for `ns`. */
static int measure(struct fanout *f, int way, uint64_t ns)
{
	size_t floats = f->o->bytes / sizeof(float);
	uint64_t start = floor_now(), after = start;
	while (after - start < ns) {
		struct far_err err;
		float x = (float)(++f->n & 0xffff);
		f->a[0] = x;
		uint64_t before = floor_now();
		enum far_status status = way == TOGETHER ? together(f, &err) : apart(f, &err);
		after = floor_now();
		if (status != FAR_OK)
			return failed(f, &err);
		for (size_t i = 0; i < f->targets; i++)
			if (f->sums[i * floats] != x + 1) {
				err = (struct far_err){.status = FAR_PROTOCOL, .text = "far::add gave a wrong sum"};
				return failed(f, &err);
			}
		hist_record(&f->round[way], after - before);
	}
	return 0;
}

/* All rounds of one number of targets, in `ns`. */
static int run(struct fanout *f, uint64_t ns)
{
	int rc = 0;
	for (size_t i = 0; i < f->targets; i++)
		f->target[i] = (struct far_target){.to = to_of(f, i)};
	for (int way = 0; way < WAYS; way++) {
		hist_reset(&f->all[way]);
		rc = rc ? rc : measure(f, way, WARM_NS);
	}
	for (unsigned r = 0; r < ROUNDS && rc == 0; r++) {
		for (int way = 0; way < WAYS && rc == 0; way++) {
			hist_reset(&f->round[way]);
			rc = measure(f, way, ns / ROUNDS / WAYS);
			hist_merge(&f->all[way], &f->round[way]);
		}
		f->p50_ns[r] = (double)hist_quantile(&f->round[TOGETHER], 0.5);
		f->ratio[r] = f->p50_ns[r] / (double)hist_quantile(&f->round[APART], 0.5);
	}
	return rc;
}

static void print_row(struct fanout *f, struct json *j)
{
	const struct hist *t = &f->all[TOGETHER], *a = &f->all[APART];
	double ratio = perf_median(f->ratio, ROUNDS), noise = perf_noise(f->p50_ns, ROUNDS);
	fprintf(perf_human(f->o), "%8zu %10" PRIu64 " %10" PRIu64 " %14" PRIu64 " %10" PRIu64 " %8.3f %6.1f %%\n",
		f->targets, hist_quantile(t, 0.5), hist_quantile(t, 0.99), hist_quantile(a, 0.5),
		hist_quantile(a, 0.99), ratio, 100 * noise);
	if (!f->o->json)
		return;
	json_object(j, NULL);
	json_u64(j, "targets", f->targets);
	json_u64(j, "p50_ns", hist_quantile(t, 0.5));
	json_u64(j, "p99_ns", hist_quantile(t, 0.99));
	json_u64(j, "separate_p50_ns", hist_quantile(a, 0.5));
	json_u64(j, "separate_p99_ns", hist_quantile(a, 0.99));
	json_double(j, "ratio", ratio);
	json_double(j, "noise", noise);
	json_u64(j, "fanouts", t->count);
	json_close(j);
}

static int run_all(struct fanout *f)
{
	static const size_t usual[] = {1, 8, 64};
	const struct perf_opts *o = f->o;
	size_t numbers = o->targets ? 1 : sizeof usual / sizeof *usual;
	struct far_worker_info info;
	struct json j;
	int rc = 0;
	if (perf_cpus() < (int)f->peer.servers + 1 + (o->via == PERF_VIA_THREAD))
		fprintf(stderr,
			"%s: %u processes poll and there are fewer cores: what follows is the scheduler's figure\n",
			o->what, f->peer.servers + 1);
	bool known = far_worker_by_rank(f->peer.agent, 1, &info, NULL) == FAR_OK;
	if (o->json) {
		json_begin(&j, stdout);
		json_string(&j, "measurement", "fanout");
		json_string(&j, "nic", known ? info.nic : o->nic);
		json_string(&j, "via", perf_via_name(o->via));
		json_u64(&j, "bytes", o->bytes);
		json_u64(&j, "servers", f->peer.servers);
		json_double(&j, "seconds", (double)o->duration_ns / 1e9);
		json_array(&j, "targets");
	}
	fprintf(perf_human(o), "%s: far::add, %s, nic %s, %" PRIu64 " bytes a tensor, servers: %u\n", o->what,
		perf_via_name(o->via), known ? info.nic : o->nic, o->bytes, f->peer.servers);
	fprintf(perf_human(o), "%8s %10s %10s %14s %10s %8s %8s\n", "targets", "p50 ns", "p99 ns", "separate: p50",
		"p99 ns", "ratio", "noise");
	for (size_t i = 0; i < numbers && rc == 0; i++) {
		f->targets = o->targets ? (size_t)o->targets : usual[i];
		rc = run(f, o->duration_ns / numbers);
		if (rc == 0)
			print_row(f, &j);
	}
	if (o->json && rc == 0)
		json_end(&j);
	return rc;
}

int perf_fanout(const struct perf_opts *given)
{
	static struct fanout f; /* its histograms are large for a stack */
	struct perf_opts o = *given;
	if (o.floor)
		return options_wrong(o.what, "--floor: the separate calls are what a fan-out is measured against, "
					     "always; leave it out");
	if (o.bytes == 0)
		o.bytes = 8;
	if (o.bytes % sizeof(float) || o.bytes > (1 << 20))
		return options_wrong(o.what, "--bytes: give a multiple of 4, at most 1M");
	if (o.rates.n)
		return perf_load(&o, LOAD_FANOUT);
	f.o = &o;
	f.a = calloc(1, o.bytes);
	f.b = calloc(1, o.bytes);
	f.sums = calloc(PERF_TARGETS_MAX, o.bytes);
	int rc = 1;
	if (!f.a || !f.b || !f.sums) {
		fprintf(stderr, "%s: out of memory for %" PRIu64 " bytes\n", o.what, o.bytes);
		goto free_buffers;
	}
	for (size_t i = 0; i < o.bytes / sizeof(float); i++)
		f.b[i] = 1;
	f.at = far_tensor_1d(FAR_F32, f.a, o.bytes / sizeof(float));
	f.bt = far_tensor_1d(FAR_F32, f.b, o.bytes / sizeof(float));
	rc = peer_open(&f.peer, &o);
	if (rc)
		goto free_buffers;
	rc = run_all(&f);
	int close_rc = peer_close(&f.peer, &o);
	rc = rc ? rc : close_rc;
free_buffers:
	free(f.a);
	free(f.b);
	free(f.sums);
	return rc;
}

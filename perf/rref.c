/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall perf rref`: what references cost. A value made and fetched, a fetch alone, a method of an object, each
 * beside a typed call of the same two tensors, in rounds of one run and the same processes; ratios are medians of the
 * rounds'. Then many references, issued, fetched and given back. Main thread of each process.
 */
#include "apps/cli/options.h"
#include "cell.h"
#include "load.h"
#include "rounds.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WARM_NS    UINT64_C(100000000)
#define REFERENCES 5000

enum { CALL, MAKE_AND_FETCH, FETCH, METHOD, WAYS };

static const struct {
	const char *name, *text;
} ways[WAYS] = {{"call", "typed call"},
		{"make_and_fetch", "remote + to_here"},
		{"fetch", "to_here"},
		{"method", "method of an object"}};

struct rref_run {
	const struct perf_opts *o;
	struct peer peer;
	uint64_t n; /* counts up: what is added, so that no result is an old one */
	float *a, *b;
	struct far_tensor at, bt;
	struct far_rref *value, *cell;
	struct hist all[WAYS], round[WAYS];
	double p50_ns[WAYS][ROUNDS];
	double ratio[WAYS][ROUNDS]; /* of its p50, over the typed call's */
	double references_s;
};

static enum far_status take(struct rref_run *r, struct far_val *v, float want, struct far_err *err)
{
	enum far_status status = FAR_OK;
	if (v->type != FAR_TYPE_TENSOR || far_tensor_bytes(&v->u.t) != r->o->bytes ||
	    *(const float *)v->u.t.data != want) {
		*err = (struct far_err){.status = FAR_PROTOCOL, .text = "the sum is wrong"};
		status = FAR_PROTOCOL;
	}
	far_val_fini(v);
	return status;
}

static enum far_status make(struct rref_run *r, struct far_rref **out, struct far_err *err)
{
	enum far_status status;
	do {
		status = far_remote_to(r->peer.agent, r->peer.to, "far::add", FAR_ARGS(&r->at, &r->bt), NULL, out, err);
		if (status == FAR_BUSY)
			far_shard_poll(r->peer.agent);
	} while (status == FAR_BUSY);
	return status;
}

/* One of a way, whose result is `x` + 1. */
static enum far_status one(struct rref_run *r, int way, float x, struct far_rref **made, struct far_err *err)
{
	struct far_val v = far_none();
	enum far_status status = FAR_OK;
	switch (way) {
	case CALL:
		status = far_rpc_sync(r->peer.agent, r->peer.name, "far::add", FAR_ARGS(&r->at, &r->bt), NULL, &v, err);
		break;
	case MAKE_AND_FETCH:
		status = make(r, made, err);
		if (!status)
			status = far_rref_to_here(*made, 0, &v, err);
		break;
	case FETCH:
		status = far_rref_to_here(r->value, 0, &v, err);
		x = 0;
		break;
	default:
		status = far_rref_rpc_sync(r->cell, "add", FAR_ARGS(&r->at, &r->bt), NULL, &v, err);
		break;
	}
	return status ? status : take(r, &v, x + 1, err);
}

static int measure(struct rref_run *r, int way, uint64_t ns)
{
	uint64_t start = floor_now(), after = start;
	while (after - start < ns) {
		struct far_err err;
		struct far_rref *made = NULL;
		float x = r->a[0] = (float)(++r->n & 0xffff);
		uint64_t before = floor_now();
		enum far_status status = one(r, way, x, &made, &err);
		after = floor_now();
		far_rref_free(made);
		if (status)
			return peer_complain(r->o, &err);
		hist_record(&r->round[way], after - before);
	}
	return 0;
}

static int run(struct rref_run *r, uint64_t ns)
{
	int rc = 0;
	for (int way = 0; way < WAYS && rc == 0; way++) {
		hist_reset(&r->all[way]);
		rc = measure(r, way, WARM_NS);
	}
	for (unsigned i = 0; i < ROUNDS && rc == 0; i++) {
		for (int way = 0; way < WAYS && rc == 0; way++) {
			hist_reset(&r->round[way]);
			rc = measure(r, way, ns / ROUNDS / WAYS);
			hist_merge(&r->all[way], &r->round[way]);
			r->p50_ns[way][i] = (double)hist_quantile(&r->round[way], 0.5);
			r->ratio[way][i] = r->p50_ns[way][i] / r->p50_ns[CALL][i];
		}
	}
	return rc;
}

/* Issued all, fetched all, given back all; until neither side has anything of them. */
static int many(struct rref_run *r)
{
	static struct far_rref *refs[REFERENCES];
	struct far_rref_counts before, now;
	struct far_err err;
	enum far_status status = FAR_OK;
	size_t n = 0;
	far_rref_counts_read(r->peer.agent, &before);
	r->a[0] = 1;
	uint64_t start = floor_now();
	for (; n < REFERENCES && !status; n += !status)
		status = make(r, &refs[n], &err);
	for (size_t i = 0; i < n && !status; i++) {
		struct far_val v = far_none();
		status = far_rref_to_here(refs[i], 0, &v, &err);
		status = status ? status : take(r, &v, 2, &err);
	}
	while (n)
		far_rref_free(refs[--n]);
	if (status)
		return peer_complain(r->o, &err);
	do {
		far_shard_poll(r->peer.agent);
		far_rref_counts_read(r->peer.agent, &now);
	} while ((now.held > before.held || now.pending) && floor_now() - start < 60 * FAR_SEC);
	r->references_s = (double)(floor_now() - start) / 1e9;
	if (now.held > before.held || now.pending) {
		fprintf(stderr, "%s: %" PRIu64 " references were not given back within 60 s\n", r->o->what,
			now.held - before.held);
		return 1;
	}
	return 0;
}

static void report(struct rref_run *r)
{
	const struct perf_opts *o = r->o;
	FILE *f = perf_human(o);
	struct far_worker_info info;
	struct json j;
	bool known = far_worker_by_rank(r->peer.agent, 1, &info, NULL) == FAR_OK;
	const char *nic = known ? info.nic : o->nic;
	fprintf(f, "%s: nic %s, two tensors of %" PRIu64 " bytes\n%-22s %10s %10s %8s %8s\n", o->what, nic, o->bytes,
		"", "p50 ns", "p99 ns", "ratio", "noise");
	if (o->json) {
		json_begin(&j, stdout);
		json_string(&j, "measurement", "rref");
		json_string(&j, "nic", nic);
		json_u64(&j, "bytes", o->bytes);
		json_double(&j, "seconds", (double)o->duration_ns / 1e9);
		json_array(&j, "ways");
	}
	for (int way = 0; way < WAYS; way++) {
		const struct hist *h = &r->all[way];
		double ratio = perf_median(r->ratio[way], ROUNDS), noise = perf_noise(r->p50_ns[way], ROUNDS);
		fprintf(f, "%-22s %10" PRIu64 " %10" PRIu64 " %8.3f %6.1f %%\n", ways[way].text, hist_quantile(h, 0.5),
			hist_quantile(h, 0.99), ratio, 100 * noise);
		if (!o->json)
			continue;
		json_object(&j, NULL);
		json_string(&j, "way", ways[way].name);
		json_u64(&j, "p50_ns", hist_quantile(h, 0.5));
		json_u64(&j, "p99_ns", hist_quantile(h, 0.99));
		json_double(&j, "ratio", ratio);
		json_double(&j, "noise", noise);
		json_u64(&j, "calls", h->count);
		json_close(&j);
	}
	fprintf(f, "%d references issued, fetched and given back in %.3f s\n", REFERENCES, r->references_s);
	if (!o->json)
		return;
	json_close(&j);
	json_u64(&j, "references", REFERENCES);
	json_double(&j, "references_seconds", r->references_s);
	json_end(&j);
}

static int run_all(struct rref_run *r)
{
	struct far_err err;
	const struct perf_opts *o = r->o;
	if (perf_cpus() < 2)
		fprintf(stderr, "%s: 2 processes poll and there is one core: what follows is the scheduler's figure\n",
			o->what);
	int rc = peer_hold(&r->peer, o, true);
	if (rc)
		return rc;
	enum far_status status = make(r, &r->value, &err);
	if (!status)
		status = far_remote_to(r->peer.agent, r->peer.to, "perf::Cell", FAR_NOARGS, NULL, &r->cell, &err);
	if (!status)
		status = far_rref_wait(r->cell, 0, &err);
	rc = status ? peer_complain(o, &err) : run(r, o->duration_ns);
	if (rc == 0)
		rc = many(r);
	if (rc == 0)
		report(r);
	far_rref_free(r->value);
	far_rref_free(r->cell);
	return rc;
}

int perf_rref(const struct perf_opts *given)
{
	static struct rref_run r; /* its histograms are large for a stack */
	struct perf_opts o = *given;
	if (o.bytes == 0)
		o.bytes = 8;
	if (o.bytes % sizeof(float) || o.bytes > (1 << 20))
		return options_wrong(o.what, "--bytes: give a multiple of 4, at most 1M");
	if (o.rates.n)
		return perf_load(&o, LOAD_METHOD);
	r.o = &o;
	r.a = calloc(1, o.bytes);
	r.b = calloc(1, o.bytes);
	int rc = 1;
	if (!r.a || !r.b) {
		fprintf(stderr, "%s: out of memory for %" PRIu64 " bytes\n", o.what, o.bytes);
		goto free_buffers;
	}
	for (size_t i = 0; i < o.bytes / sizeof(float); i++)
		r.b[i] = 1;
	r.at = far_tensor_1d(FAR_F32, r.a, o.bytes / sizeof(float));
	r.bt = far_tensor_1d(FAR_F32, r.b, o.bytes / sizeof(float));
	rc = peer_open(&r.peer, &o);
	if (rc)
		goto free_buffers;
	rc = run_all(&r);
	int close_rc = peer_close(&r.peer, &o);
	rc = rc ? rc : close_rc;
free_buffers:
	free(r.a);
	free(r.b);
	return rc;
}

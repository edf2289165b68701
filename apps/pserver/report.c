/* SPDX-License-Identifier: BSD-3-Clause */
/** Collects the results of all workers and prints them as a table or as JSON. Main thread. */
#include "report.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool is_array(const struct far_val *v, enum far_dtype dtype, uint64_t n)
{
	return v->u.t.dtype == dtype && v->u.t.ndim == 1 && v->u.t.shape[0] == n;
}

static void copy_text(char *to, size_t room, const struct far_val *v)
{
	size_t n = v->u.s.len < room - 1 ? v->u.s.len : room - 1;
	memcpy(to, v->u.s.data, n);
	to[n] = '\0';
}

/* `before`: workers that have reported. */
static void merge(struct report *r, unsigned before, const double *f)
{
	double *to = r->figures;
	if (before == 0)
		for (int i = 0; i < REPORT_FIGURES; i++)
			to[i] = i < REPORT_TEST_ROWS ? 0.0 : NAN;
	to[REPORT_TRAIN_LOSS] += (f[REPORT_TRAIN_LOSS] - to[REPORT_TRAIN_LOSS]) / (before + 1);
	to[REPORT_SAMPLES] += f[REPORT_SAMPLES];
	to[REPORT_SECONDS] = fmax(to[REPORT_SECONDS], f[REPORT_SECONDS]);
	for (int i = REPORT_TEST_ROWS; i < REPORT_FIGURES; i++)
		if (!isnan(f[i]))
			to[i] = f[i];
}

static enum far_status on_report(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	struct report *r = user;
	bool sound = is_array(&args[3], FAR_F64, REPORT_FIGURES);
	for (int i = 4; i <= 6; i++)
		sound &= is_array(&args[i], FAR_U64, LATENCY_BUCKETS);
	if (!sound)
		return far_fail(req, FAR_BAD_ARGS, 0, "a report has other shapes: are all workers of one version?");
	copy_text(r->title, sizeof r->title, &args[0]);
	copy_text(r->mode, sizeof r->mode, &args[1]);
	copy_text(r->settings, sizeof r->settings, &args[2]);
	merge(r, report_workers(r), args[3].u.t.data);
	latency_merge(&r->pulls, args[4].u.t.data);
	latency_merge(&r->pushes, args[5].u.t.data);
	latency_merge(&r->batches, args[6].u.t.data);
	atomic_fetch_add_explicit(&r->workers, 1, memory_order_release); /* partner: report_workers() */
	struct far_val none = far_none();
	return far_return(req, &none);
}

#define REPORT_FUNCTION "train::report"

struct far_function report_function(struct report *r)
{
	return (struct far_function){REPORT_FUNCTION
				     "(str title, str mode, str settings, Tensor figures, Tensor pulls, Tensor pushes, "
				     "Tensor batches) -> none",
				     FAR_KIND_INLINE, on_report, r};
}

enum far_status report_send(struct far_agent *agent, int rank, uint64_t timeout_ns, const struct report_part *part,
			    struct far_err *err)
{
	struct far_tensor f = far_tensor_1d(FAR_F64, part->figures, REPORT_FIGURES);
	struct far_tensor l = far_tensor_1d(FAR_U64, part->pulls->count, LATENCY_BUCKETS);
	struct far_tensor s = far_tensor_1d(FAR_U64, part->pushes->count, LATENCY_BUCKETS);
	struct far_tensor b = far_tensor_1d(FAR_U64, part->batches->count, LATENCY_BUCKETS);
	struct far_call_opts opts = {.timeout_ns = timeout_ns};
	struct far_to to = {.worker = rank, .shard = 0};
	return far_rpc_sync_to(agent, to, REPORT_FUNCTION,
			       FAR_ARGS(part->title, part->mode, part->settings, &f, &l, &s, &b), &opts, NULL, err);
}

unsigned report_workers(const struct report *r)
{
	return atomic_load_explicit(&r->workers, memory_order_acquire); /* partner: on_report() */
}

/* JSON has no NaN. */
static void json_number(FILE *f, const char *name, double v)
{
	if (isfinite(v))
		fprintf(f, "\"%s\": %.9g, ", name, v);
	else
		fprintf(f, "\"%s\": null, ", name);
}

static void json_count(FILE *f, const char *name, uint64_t v)
{
	fprintf(f, "\"%s\": %" PRIu64 ", ", name, v);
}

static double samples_per_s(const struct report *r)
{
	return r->figures[REPORT_SECONDS] > 0.0 ? r->figures[REPORT_SAMPLES] / r->figures[REPORT_SECONDS] : 0.0;
}

static void print_json(const struct report *r, FILE *f)
{
	const double *x = r->figures;
	fprintf(f, "{");
	if (!isnan(x[REPORT_TEST_RMSE])) {
		json_number(f, "test_rmse", x[REPORT_TEST_RMSE]);
		json_number(f, "train_rmse", sqrt(x[REPORT_TRAIN_LOSS]));
	} else {
		json_number(f, "test_auc", x[REPORT_TEST_AUC]);
		json_number(f, "test_logloss", x[REPORT_TEST_LOGLOSS]);
		json_number(f, "test_accuracy", x[REPORT_TEST_ACCURACY]);
		json_number(f, "train_logloss", x[REPORT_TRAIN_LOSS]);
	}
	if (!isnan(x[REPORT_BAYES_AUC])) {
		json_number(f, "bayes_auc", x[REPORT_BAYES_AUC]);
		json_number(f, "bayes_logloss", x[REPORT_BAYES_LOGLOSS]);
	}
	if (!isnan(x[REPORT_BEST_EPOCH]))
		json_count(f, "best_epoch", (uint64_t)x[REPORT_BEST_EPOCH]);
	json_number(f, "samples_per_s", samples_per_s(r));
	json_number(f, "seconds", x[REPORT_SECONDS]);
	json_count(f, "pull_p50_ns", latency_percentile(&r->pulls, 0.50));
	json_count(f, "pull_p99_ns", latency_percentile(&r->pulls, 0.99));
	json_count(f, "push_p50_ns", latency_percentile(&r->pushes, 0.50));
	json_count(f, "push_p99_ns", latency_percentile(&r->pushes, 0.99));
	if (r->batches.total) {
		json_count(f, "batch_p50_ns", latency_percentile(&r->batches, 0.50));
		json_count(f, "batch_p99_ns", latency_percentile(&r->batches, 0.99));
	}
	fprintf(f, "\"mode\": \"%s\", \"settings\": %s}\n", r->mode, r->settings);
}

static void print_quality(FILE *f, const char *name, double v, double bayes)
{
	fprintf(f, "  %-14s %10.4f", name, v);
	if (!isnan(bayes))
		fprintf(f, "   (best possible %.4f)", bayes);
	fputc('\n', f);
}

static void print_latency(FILE *f, const char *name, const struct latency *l)
{
	fprintf(f, "  %-14s %10.1f µs p50 %10.1f µs p99\n", name, (double)latency_percentile(l, 0.50) / 1e3,
		(double)latency_percentile(l, 0.99) / 1e3);
}

static void print_table(const struct report *r, FILE *f)
{
	const double *x = r->figures;
	fprintf(f, "%s, mode %s, %u worker%s, tested on %.0f rows\n", r->title, r->mode, report_workers(r),
		report_workers(r) == 1 ? "" : "s", x[REPORT_TEST_ROWS]);
	bool trained = x[REPORT_SAMPLES] > 0.0; /* else it has only predicted */
	if (!isnan(x[REPORT_TEST_RMSE])) {
		if (trained)
			print_quality(f, "train RMSE", sqrt(x[REPORT_TRAIN_LOSS]), NAN);
		print_quality(f, "test RMSE", x[REPORT_TEST_RMSE], NAN);
	} else {
		if (trained)
			print_quality(f, "train loss", x[REPORT_TRAIN_LOSS], NAN);
		print_quality(f, "test loss", x[REPORT_TEST_LOGLOSS], x[REPORT_BAYES_LOGLOSS]);
		print_quality(f, "test AUC", x[REPORT_TEST_AUC], x[REPORT_BAYES_AUC]);
		print_quality(f, "test accuracy", x[REPORT_TEST_ACCURACY], NAN);
	}
	if (!trained)
		return;
	if (!isnan(x[REPORT_BEST_EPOCH]))
		fprintf(f, "  %-14s %10.0f\n", "best epoch", x[REPORT_BEST_EPOCH]);
	fprintf(f, "  %-14s %10.0f   in %.2f s\n", "samples/s", samples_per_s(r), x[REPORT_SECONDS]);
	print_latency(f, "pull", &r->pulls);
	print_latency(f, "push", &r->pushes);
	if (r->batches.total)
		print_latency(f, "batch", &r->batches); /* from when it should have begun */
}

int report_print(const struct report *r, FILE *f, bool json)
{
	if (json)
		print_json(r, f);
	else
		print_table(r, f);
	return fflush(f) || ferror(f) ? -EIO : 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall train --service`: trains logistic regression in a table of a running `farcall pserver`, as one or more of
 * its clients. The table stays when the workers have left. Main thread.
 */
#include "load.h"
#include "logistic.h"
#include "pace.h"
#include "planted.h"
#include "ps_clock.h"
#include "ps_split.h"
#include "service.h"
#include "stop.h"
#include "train.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TABLE_NAME  "logistic"
#define PROGRESS_NS (200 * FAR_MS) /* between two states of the line on a terminal */

struct trainer {
	const struct train_options *o;
	struct train_data data;
	struct far_ps *ps;
	struct far_ps_table *table;
	struct logistic model;
	uint32_t *order;        /* [train.rows], shuffled each epoch */
	float *weights, *grads; /* [columns + 1] */
	uint64_t begin_ns, shown_ns;
	uint64_t epochs; /* done */
	double samples;  /* of this worker */
	struct pace pace;
	struct report report;
};

static enum far_status wait_for(struct far_future *f, struct far_err *err)
{
	enum far_status status = far_future_wait(f, 0, NULL, err);
	far_future_free(f);
	return status;
}

static enum far_status pull(struct trainer *t, const uint64_t *keys, size_t n, struct far_err *err)
{
	struct far_ps_pull_opts opts = {.timeout_ns = t->o->timeout_ns};
	struct far_future *f;
	enum far_status status = far_ps_pull(t->table, keys, n, &opts, t->weights, NULL, &f, err);
	return status ? status : wait_for(f, err);
}

/* All workers of the job. */
static enum far_status meet(const struct trainer *t, struct far_err *err)
{
	const struct train_options *o = t->o;
	char(*text)[32] = calloc(o->workers, sizeof *text);
	const char **names = calloc(o->workers, sizeof *names);
	enum far_status status = FAR_RESOURCE;
	for (uint64_t i = 0; text && names && i < o->workers; i++) {
		snprintf(text[i], sizeof text[i], "worker%d", (int)(o->servers + i));
		names[i] = text[i];
	}
	if (text && names)
		status = far_barrier(o->group.agent, names, o->workers, FAR_FOREVER, err);
	else
		*err = (struct far_err){.status = FAR_RESOURCE, .text = "no memory"};
	free(names);
	free(text);
	return status;
}

static enum far_status open_table(struct trainer *t, struct far_err *err)
{
	static const enum far_ps_rule_kind kinds[] = {FAR_PS_SGD, FAR_PS_ADAGRAD, FAR_PS_ADAM, FAR_PS_FTRL};
	const struct train_options *o = t->o;
	struct far_ps_schema schema = {.dim = 1};
	far_ps_rule_defaults(&schema.rule, kinds[o->optimizer]);
	schema.rule.rate = (float)o->lr;
	if (o->optimizer == TRAIN_ADAGRAD)
		schema.rule.epsilon = (float)o->epsilon;
	enum far_status status = far_ps_open(o->group.agent, o->service, NULL, &t->ps, err);
	if (!status && o->load && t->data.index == 0)
		status = far_ps_load(t->ps, o->load, NULL, NULL, err);
	if (!status)
		status = meet(t, err); /* loaded, before the others make the table */
	return status ? status : far_ps_table_create(t->ps, TABLE_NAME, &schema, 0, &t->table, err);
}

/* ---- Training ---- */

/* The rate falls to 0 at the last batch, but for FTRL and Adam, which have their own. */
static float rate_of(const struct train_options *o, double done)
{
	return o->optimizer == TRAIN_SGD || o->optimizer == TRAIN_ADAGRAD ? (float)(o->lr * (1.0 - done)) : 0;
}

static enum far_status batch(struct trainer *t, const uint32_t *rows, size_t n, float rate, double *loss,
			     struct far_err *err)
{
	struct logistic *m = &t->model;
	struct far_ps_push_opts opts = {.timeout_ns = t->o->timeout_ns, .rate = rate};
	struct far_future *f;
	logistic_batch(m, rows, n);
	uint64_t start = clock_ns();
	enum far_status status = pull(t, m->keys, m->n, err);
	if (status)
		return status;
	latency_record(&t->report.pulls, clock_ns() - start);
	*loss += logistic_gradient(m, rows, n, t->weights, t->grads);
	start = clock_ns();
	status = far_ps_push(t->table, m->keys, m->n, t->grads, &opts, NULL, &f, err);
	if (!status)
		status = wait_for(f, err);
	latency_record(&t->report.pushes, clock_ns() - start);
	return status;
}

/* Of the first worker. `done` of all, in [0, 1]; `loss` of a row. */
static void progress(struct trainer *t, double done, double loss, bool ends)
{
	uint64_t now = clock_ns();
	bool terminal = isatty(STDERR_FILENO) == 1;
	if (t->data.index != 0 || (!ends && (!terminal || now - t->shown_ns < PROGRESS_NS)))
		return;
	t->shown_ns = now;
	double seconds = (double)(now - t->begin_ns) / 1e9;
	fprintf(stderr, "%sepoch %" PRIu64 "/%" PRIu64 "  loss %.4f  ", terminal ? "\r\033[K" : "",
		ends ? t->epochs : t->epochs + 1, t->o->epochs, loss);
	if (!isnan(t->report.figures[REPORT_TEST_AUC]))
		fprintf(stderr, "test AUC %.4f  ", t->report.figures[REPORT_TEST_AUC]);
	fprintf(stderr, "%.0f samples/s by each worker  %.0f s left%s", seconds > 0 ? t->samples / seconds : 0,
		done > 0 ? seconds / done * (1 - done) : 0, ends ? "\n" : "");
}

static int stop_or_complain(const struct trainer *t, const struct far_err *err)
{
	return stop_signal() ? 128 + stop_signal() : group_complain(&t->o->group, err);
}

static int epoch(struct trainer *t, size_t batches, size_t rows, uint64_t *random)
{
	const struct train_options *o = t->o;
	double loss = 0.0, total = (double)batches * (double)o->epochs;
	train_shuffle(t->order, t->data.train.rows, random);
	for (size_t b = 0; b < batches; b++) {
		struct far_err err;
		double done = ((double)t->epochs * (double)batches + (double)b) / total;
		pace_wait(&t->pace);
		enum far_status status = batch(t, t->order + b * rows, rows, rate_of(o, done), &loss, &err);
		if (status || stop_signal())
			return stop_or_complain(t, &err);
		pace_ended(&t->pace);
		if (!isfinite(loss))
			return train_complain(o, "the loss is not finite any more: training diverged, use a smaller "
						 "--lr");
		t->samples += (double)rows;
		progress(t, done, loss / (double)((b + 1) * rows), false);
	}
	t->epochs++;
	t->report.figures[REPORT_TRAIN_LOSS] = loss / (double)(batches * rows);
	return 0;
}

/* ---- Testing ---- */

static enum far_status margins_of(struct trainer *t, double *margins, struct far_err *err)
{
	const struct dataset *d = &t->data.test;
	uint64_t *keys = calloc(d->columns + 1, sizeof *keys);
	if (keys == NULL) {
		*err = (struct far_err){.status = FAR_RESOURCE, .text = "no memory for the test"};
		return FAR_RESOURCE;
	}
	keys[0] = LOGISTIC_BIAS_KEY;
	memcpy(keys + 1, d->key, d->columns * sizeof *keys);
	enum far_status status = pull(t, keys, d->columns + 1, err);
	if (!status)
		logistic_margins(d, t->weights, margins);
	free(keys);
	return status;
}

static int predict(const struct trainer *t, const double *margins)
{
	FILE *f = fopen(t->o->predict, "we");
	for (size_t r = 0; f && r < t->data.test.rows; r++)
		fprintf(f, "%.9g\n", metrics_sigmoid(margins[r]));
	bool failed = f == NULL || ferror(f);
	if (f && fclose(f))
		failed = true;
	if (!failed)
		return 0;
	fprintf(stderr, "%s: %s: cannot write: %s\n", t->o->group.program, t->o->predict, strerror(errno));
	return 1;
}

/* Of the first worker. `last`: writes the predictions, too. Returns an exit status. */
static int evaluate(struct trainer *t, bool last)
{
	struct far_err err;
	double *margins = calloc(t->data.test.rows, sizeof *margins);
	if (margins == NULL)
		return train_complain(t->o, "no memory for the test");
	int status = margins_of(t, margins, &err) ? stop_or_complain(t, &err) : 0;
	if (status == 0)
		train_figures(&t->data, margins, t->report.figures);
	if (status == 0 && last && t->o->predict)
		status = predict(t, margins);
	free(margins);
	return status;
}

/* Until the epochs are over, or the test loss has not become less for --patience of them. */
static int train(struct trainer *t)
{
	const struct train_options *o = t->o;
	size_t share = t->data.rows_total / o->workers;
	size_t rows = o->batch < share ? (size_t)o->batch : share, batches = share / rows;
	uint64_t random = ps_mix(o->seed) + t->data.index, since = 0;
	double best = INFINITY;
	int status = 0;
	t->begin_ns = clock_ns();
	while (status == 0 && t->epochs < o->epochs && !(o->patience && since >= o->patience)) {
		double *f = t->report.figures;
		status = epoch(t, batches, rows, &random);
		if (status == 0 && t->data.index == 0)
			status = evaluate(t, false);
		since = f[REPORT_TEST_LOGLOSS] < best ? 0 : since + 1;
		best = fmin(best, f[REPORT_TEST_LOGLOSS]);
		if (status == 0)
			progress(t, (double)t->epochs / (double)o->epochs, f[REPORT_TRAIN_LOSS], true);
	}
	t->report.figures[REPORT_SAMPLES] = t->samples * (double)o->workers;
	t->report.figures[REPORT_SECONDS] = (double)(clock_ns() - t->begin_ns) / 1e9;
	return status;
}

/* ---- All of it ---- */

static int print(struct trainer *t)
{
	const struct train_options *o = t->o;
	struct report *r = &t->report;
	r->workers = (int)o->workers;
	snprintf(r->mode, sizeof r->mode, "async");
	snprintf(r->settings, sizeof r->settings,
		 "{\"service\": true, \"optimizer\": \"%s\", \"workers\": %" PRIu64 ", \"epochs\": %" PRIu64
		 ", \"batch\": %" PRIu64 ", \"lr\": %g, \"seed\": %" PRIu64 ", \"rate\": %" PRIu64 "}",
		 train_optimizer_name(o->optimizer), o->workers, t->epochs, o->batch, o->lr, o->seed, o->rate);
	if (report_print(r, stdout, o->json) == 0)
		return 0;
	return train_complain(o, "cannot write the report");
}

/* The last of the first worker, when all have trained. */
static int conclude(struct trainer *t)
{
	struct far_err err;
	int status = evaluate(t, true);
	if (status == 0 && t->o->save && far_ps_save(t->ps, t->o->save, NULL, NULL, &err))
		status = stop_or_complain(t, &err);
	return status ? status : print(t);
}

static int work(struct trainer *t)
{
	struct far_err err;
	int status = open_table(t, &err) ? stop_or_complain(t, &err) : 0;
	if (status == 0 && t->data.train.rows)
		status = train(t);
	if (status == 0 && meet(t, &err))
		status = stop_or_complain(t, &err);
	return status == 0 && t->data.index == 0 ? conclude(t) : status;
}

static int prepare(struct trainer *t)
{
	const struct train_data *d = &t->data;
	size_t columns = d->train.columns > d->test.columns ? d->train.columns : d->test.columns;
	t->order = calloc(d->train.rows + 1, sizeof *t->order);
	t->weights = calloc(columns + 1, sizeof *t->weights);
	t->grads = calloc(columns + 1, sizeof *t->grads);
	if (!t->order || !t->weights || !t->grads || logistic_init(&t->model, &d->train))
		return train_complain(t->o, "no memory for the model");
	for (size_t i = 0; i < d->train.rows; i++)
		t->order[i] = (uint32_t)i;
	for (int i = 0; i < REPORT_FIGURES; i++)
		t->report.figures[i] = NAN;
	return 0;
}

int train_service(struct train_options *o)
{
	struct trainer *t = calloc(1, sizeof *t);
	if (t == NULL)
		return train_complain(o, "no memory");
	t->o = o;
	t->pace = (struct pace){.rate = o->rate, .times = &t->report.batches};
	int status = train_load(&t->data, o);
	if (status == 0)
		status = prepare(t);
	if (status == 0)
		status = group_enter(&o->group, 1, NULL, 0) ? 1 : 0;
	if (status == 0) {
		stop_install();
		status = work(t);
		stop_restore();
		far_ps_table_free(t->table);
		far_ps_close(t->ps);
		group_leave(&o->group, false, NULL); /* the servers stay */
	}
	train_unload(&t->data);
	logistic_fini(&t->model);
	free(t->order);
	free(t->weights);
	free(t->grads);
	free(t);
	return status;
}

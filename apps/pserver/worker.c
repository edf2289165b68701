/* SPDX-License-Identifier: BSD-3-Clause */
/** A worker of a training job: loads, trains, tests, sends its report. Main thread. */
#include "load.h"
#include "logistic.h"
#include "pace.h"
#include "ps_client.h"
#include "ps_clock.h"
#include "stop.h"
#include "train.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_LINES 10
#define BARRIER_END    0

struct worker {
	const struct train_options *o;
	struct group *group;
	struct train_data data;
	struct ps_client ps;
	struct logistic model;
	uint32_t *order; /* [train.rows], shuffled each epoch */
	float *weights, *grads;
	struct latency pulls, pushes, batches;
	struct pace pace;
	double figures[REPORT_FIGURES];
};

static int load(struct worker *w)
{
	int status = train_load(&w->data, w->o);
	if (status)
		return status;
	const struct dataset *train = &w->data.train, *test = &w->data.test;
	size_t columns = train->columns > test->columns ? train->columns : test->columns;
	w->order = calloc(train->rows, sizeof *w->order);
	w->weights = calloc(columns + 1, sizeof *w->weights);
	w->grads = calloc(columns + 1, sizeof *w->grads);
	if (w->order == NULL || w->weights == NULL || w->grads == NULL || logistic_init(&w->model, train))
		return train_complain(w->o, "no memory for the model");
	for (size_t i = 0; i < train->rows; i++)
		w->order[i] = (uint32_t)i;
	return 0;
}

/* ---- training ---- */

static enum far_status push(struct worker *w, float rate, int64_t step, struct far_err *err)
{
	const struct logistic *m = &w->model;
	if (w->o->mode == TRAIN_ASYNC)
		return ps_push(&w->ps, &(struct ps_push){TRAIN_TABLE, m->keys, m->n, w->grads, rate}, err);
	struct ps_bsp bsp = {.step = step, .workers = (int64_t)w->o->workers};
	return ps_push_bsp(&w->ps, &(struct ps_push){TRAIN_TABLE, m->keys, m->n, w->grads, rate}, bsp, err);
}

/* One batch: pull its weights, push its gradient. */
static enum far_status batch(struct worker *w, const uint32_t *rows, size_t n, float rate, int64_t step, double *loss,
			     struct far_err *err)
{
	logistic_batch(&w->model, rows, n);
	uint64_t t0 = clock_ns();
	enum far_status status = ps_pull(&w->ps, TRAIN_TABLE, w->model.keys, w->model.n, w->weights, err);
	if (status != FAR_OK)
		return status;
	latency_record(&w->pulls, clock_ns() - t0);
	*loss += logistic_gradient(&w->model, rows, n, w->weights, w->grads);
	t0 = clock_ns();
	status = push(w, rate, step, err);
	latency_record(&w->pushes, clock_ns() - t0);
	return status;
}

static void progress(const struct worker *w, uint64_t epoch, double loss, double samples, uint64_t since)
{
	uint64_t every = (w->o->epochs + PROGRESS_LINES - 1) / PROGRESS_LINES;
	if (w->data.index != 0 || (epoch % every != 0 && epoch != w->o->epochs))
		return;
	double seconds = (double)(clock_ns() - since) / 1e9;
	fprintf(stderr, "epoch %" PRIu64 "/%" PRIu64 "  loss %.4f  %.0f samples/s by each worker\n", epoch,
		w->o->epochs, loss, seconds > 0.0 ? samples / seconds : 0.0);
}

/* All workers make the same number of equal batches, as steps must: what a share has beyond that sits out the epoch,
 * other rows each time. Returns an exit status. */
static int train(struct worker *w)
{
	const struct train_options *o = w->o;
	size_t share = w->data.rows_total / o->workers;
	size_t rows = o->batch < share ? (size_t)o->batch : share;
	size_t batches = share / rows;
	double total = (double)batches * (double)o->epochs;
	uint64_t state = ps_mix(o->seed) + w->data.index, begin = clock_ns();
	int64_t step = 0;
	for (uint64_t epoch = 1; epoch <= o->epochs; epoch++) {
		double loss = 0.0;
		train_shuffle(w->order, w->data.train.rows, &state);
		for (size_t b = 0; b < batches; b++, step++) {
			struct far_err err;
			float rate = (float)(o->lr * (1.0 - (double)step / total));
			pace_wait(&w->pace);
			enum far_status status = batch(w, w->order + b * rows, rows, rate, step, &loss, &err);
			if (stop_signal())
				return 128 + stop_signal();
			if (status != FAR_OK)
				return group_complain(w->group, &err);
			pace_ended(&w->pace);
			if (!isfinite(loss))
				return train_complain(
					w->o, "the loss is not finite any more: training diverged, use a smaller "
					      "--lr");
		}
		w->figures[REPORT_TRAIN_LOSS] = loss / (double)(batches * rows);
		progress(w, epoch, w->figures[REPORT_TRAIN_LOSS], (double)epoch * (double)(batches * rows), begin);
	}
	w->figures[REPORT_SAMPLES] = total * (double)rows;
	w->figures[REPORT_SECONDS] = (double)(clock_ns() - begin) / 1e9;
	return 0;
}

/* ---- the end ---- */

/* Tests with the weights as all workers left them. */
static enum far_status evaluate(struct worker *w, struct far_err *err)
{
	const struct dataset *d = &w->data.test;
	uint64_t *keys = calloc(d->columns + 1, sizeof *keys);
	double *margins = calloc(d->rows, sizeof *margins);
	enum far_status status;
	if (keys == NULL || margins == NULL) {
		status = ps_fail(err, FAR_RESOURCE, "no memory for the test");
		goto out;
	}
	keys[0] = LOGISTIC_BIAS_KEY;
	memcpy(keys + 1, d->key, d->columns * sizeof *keys);
	status = ps_pull(&w->ps, TRAIN_TABLE, keys, d->columns + 1, w->weights, err);
	if (status != FAR_OK)
		goto out;
	logistic_margins(d, w->weights, margins);
	train_figures(&w->data, margins, w->figures);
out:
	free(keys);
	free(margins);
	return status;
}

static void json_text(char *to, size_t room, const char *text)
{
	size_t n = 0;
	for (; *text && n + 8 < room; text++) {
		unsigned char c = (unsigned char)*text;
		if (c < 0x20 || c == '"' || c == '\\')
			n += (size_t)snprintf(to + n, room - n, "\\u%04x", c);
		else
			to[n++] = (char)c;
	}
	to[n] = '\0';
}

static void settings_of(const struct train_options *o, char text[REPORT_SETTINGS_MAX])
{
	char data[REPORT_SETTINGS_MAX / 3], source[REPORT_SETTINGS_MAX * 3 / 4];
	if (o->data) {
		char test[sizeof data];
		json_text(data, sizeof data, o->data);
		json_text(test, sizeof test, o->test);
		snprintf(source, sizeof source, "\"data\": \"%s\", \"test\": \"%s\"", data, test);
	} else {
		snprintf(source, sizeof source,
			 "\"data\": null, \"rows\": %" PRIu64 ", \"test_rows\": %" PRIu64 ", \"features\": %" PRIu64,
			 o->rows, o->test_rows, o->features);
	}
	snprintf(text, REPORT_SETTINGS_MAX,
		 "{\"servers\": %" PRIu64 ", \"shards\": %" PRIu64 ", \"optimizer\": \"%s\", \"workers\": %" PRIu64
		 ", \"epochs\": %" PRIu64 ", \"batch\": %" PRIu64 ", \"lr\": %g, \"seed\": %" PRIu64
		 ", \"rate\": %" PRIu64 ", \"timeout_s\": %g, %s}",
		 o->servers, o->shards, train_optimizer_name(o->optimizer), o->workers, o->epochs, o->batch, o->lr,
		 o->seed, o->rate, (double)o->timeout_ns / 1e9, source);
}

static enum far_status finish(struct worker *w, struct far_err *err)
{
	char settings[REPORT_SETTINGS_MAX];
	settings_of(w->o, settings);
	const struct report_part part = {.mode = train_mode_name(w->o->mode),
					 .settings = settings,
					 .figures = w->figures,
					 .pulls = &w->pulls,
					 .pushes = &w->pushes,
					 .batches = &w->batches};
	/* In mode async the workers may be far apart. They wait here, where progress is seen, rather than in the
	 * shutdown, whose deadline knows nothing of it. */
	enum far_status status = ps_barrier(&w->ps, BARRIER_END, (int)w->o->workers, err);
	if (status == FAR_OK && w->data.index == 0)
		status = evaluate(w, err);
	if (status == FAR_OK)
		status = report_send(w->group->agent, w->o->timeout_ns, &part, err);
	return status == FAR_OK ? ps_leave(&w->ps, err) : status;
}

static int work(struct worker *w)
{
	struct far_err err;
	struct far_agent *agent = w->group->agent;
	stop_install();
	int rc = ps_client_init(&w->ps, agent, (unsigned)w->o->servers, (unsigned)w->o->shards, w->o->timeout_ns);
	int status = rc ? train_complain(w->o, strerror(-rc)) : 0;
	struct ps_rule rule = {(enum ps_optimizer)w->o->optimizer, (float)w->o->epsilon};
	if (status == 0 && ps_create_with(&w->ps, TRAIN_TABLE, 1, 0.0f, &rule, &err) != FAR_OK)
		status = group_complain(w->group, &err);
	if (status == 0)
		status = train(w);
	if (status == 0 && finish(w, &err) != FAR_OK)
		status = stop_signal() ? 128 + stop_signal() : group_complain(w->group, &err);
	ps_client_fini(&w->ps);
	stop_restore();
	if (status != 0) {
		group_leave(w->group, false, NULL);
	} else if (group_leave(w->group, true, &err) != FAR_OK) {
		status = group_complain(w->group, &err);
	}
	return status;
}

int train_worker(struct train_options *o)
{
	struct worker *w = calloc(1, sizeof *w);
	if (w == NULL) {
		fprintf(stderr, "%s: no memory\n", o->group.program);
		return 1;
	}
	w->o = o;
	w->group = &o->group;
	w->pace = (struct pace){.rate = o->rate, .times = &w->batches};
	for (int i = REPORT_TEST_ROWS; i < REPORT_FIGURES; i++)
		w->figures[i] = NAN;
	int status = load(w);
	if (status == 0)
		status = group_join(w->group, NULL, 1, NULL) ? 1 : work(w);
	train_unload(&w->data);
	logistic_fini(&w->model);
	free(w->order);
	free(w->weights);
	free(w->grads);
	free(w);
	return status;
}

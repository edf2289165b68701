/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A worker of a training job: a client of the servers that trains a model in their tables. The first worker tests,
 * saves and draws. Main thread.
 */
#include "curves.h"
#include "mix.h"
#include "model.h"
#include "pace.h"
#include "progress.h"
#include "ps_clock.h"
#include "service.h"
#include "stop.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS    (200 * FAR_MS) /* between looks at the signals at a barrier */
#define TEST_CALLS 60u            /* deadlines of a call that the others wait while the first one tests */
#define TESTS      10u            /* at least, if there are as many epochs */

struct trainer {
	struct train_options *o;
	struct train_data data;
	struct far_ps *ps;
	struct model *model;
	uint32_t *order; /* [train.rows], shuffled each epoch */
	uint64_t begin_ns;
	struct progress line;          /* of the first worker */
	uint64_t epochs;               /* done */
	char barrier[FAR_PS_NAME_MAX]; /* of mode bsp */
	double samples;                /* of this worker */
	struct pace pace;
	struct curves curves;
	double figures[REPORT_FIGURES];
	double best[REPORT_FIGURES]; /* with --patience: of the best test so far; NAN without */
	struct latency pulls, pushes, batches;
	struct report report; /* of the first worker of a running service, which prints */
};

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

/* The name is the job's own: its first worker's incarnation. Of another job's barrier the members are lost. */
static enum far_status name_barrier(struct trainer *t, struct far_err *err)
{
	struct far_worker_info first;
	enum far_status status = far_worker_by_rank(t->o->group.agent, (int)t->o->servers, &first, err);
	if (!status)
		snprintf(t->barrier, sizeof t->barrier, "train-%016" PRIx64, first.incarnation);
	return status;
}

static enum far_status open_model(struct trainer *t, struct far_err *err)
{
	const struct train_options *o = t->o;
	const struct far_ps_open_opts opts = {.timeout_ns = o->timeout_ns};
	enum far_status status =
		far_ps_open(o->group.agent, o->service ? o->service : SERVICE_NAME, &opts, &t->ps, err);
	if (!status && o->load && t->data.index == 0)
		status = far_ps_load(t->ps, o->load, NULL, NULL, err);
	if (!status)
		status = meet(t, err); /* loaded, before the others make the tables */
	if (!status)
		status = name_barrier(t, err);
	t->model->ps = t->ps;
	return status ? status : t->model->kind->open(t->model, err);
}

/* ---- Training ---- */

/* The rate falls to 0 at the last batch, but for FTRL and Adam, which have their own. */
static float rate_of(const struct train_options *o, double done)
{
	return o->optimizer == TRAIN_SGD || o->optimizer == TRAIN_ADAGRAD ? (float)(o->lr * (1.0 - done)) : 0;
}

/* Of the first worker. `done` of all, in [0, 1]; `loss` of a row. */
static void progress(struct trainer *t, double done, double loss, bool ends)
{
	uint64_t now = clock_ns();
	if (t->data.index != 0 || (!ends && !progress_due(&t->line, now)))
		return;
	double seconds = (double)(now - t->begin_ns) / 1e9, rmse = t->figures[REPORT_TEST_RMSE];
	double auc = t->figures[REPORT_TEST_AUC];
	char test[48] = "", text[PROGRESS_TEXT_MAX];
	if (!isnan(rmse))
		snprintf(test, sizeof test, "test RMSE %.4g  ", rmse);
	if (!isnan(auc))
		snprintf(test, sizeof test, "test AUC %.4f  ", auc);
	snprintf(text, sizeof text, "epoch %" PRIu64 "/%" PRIu64 "  loss %.4f  %s%.0f samples/s%s  %.0f s left",
		 ends ? t->epochs : t->epochs + 1, t->o->epochs, loss, test, seconds > 0 ? t->samples / seconds : 0,
		 t->o->workers > 1 ? " each" : "", done > 0 ? seconds / done * (1 - done) : 0);
	if (ends)
		progress_line(&t->line, text);
	else
		progress_show(&t->line, done, text);
}

static int stop_or_complain(const struct trainer *t, const struct far_err *err)
{
	return stop_signal() ? 128 + stop_signal() : group_complain(&t->o->group, err);
}

/* In mode bsp all workers come here twice in a step: no push precedes a pull of its step, nor a pull a push of the step
 * before. A worker that is lost is excused: a job with servers of its own ends then. */
static enum far_status keep_step(const struct trainer *t, bool tested, struct far_err *err)
{
	struct far_future *f = NULL;
	if (t->o->mode != TRAIN_BSP)
		return FAR_OK;
	enum far_status status = far_ps_barrier(t->ps, t->barrier, (unsigned)t->data.index, (unsigned)t->o->workers,
						(tested ? TEST_CALLS : 1) * t->o->timeout_ns, &f, err);
	if (status)
		return status;
	while (!far_future_done(f) && !stop_signal())
		(void)far_future_wait(f, LOOK_NS, NULL, NULL);
	status = stop_signal() ? FAR_CANCELLED : far_future_wait(f, 0, NULL, err);
	far_future_free(f);
	return status;
}

/* Of `n` rows. A non-finite loss is the caller's to refuse, before it is pushed. */
static enum far_status step(struct trainer *t, size_t batch, size_t n, double done, double *loss, struct far_err *err)
{
	enum far_status status = t->model->kind->gradients(t->model, t->order + batch * n, n, loss, err);
	if (!status)
		status = keep_step(t, batch == 0, err);
	if (!status && isfinite(*loss))
		status = t->model->kind->push(t->model, rate_of(t->o, done), err);
	return status || !isfinite(*loss) ? status : keep_step(t, false, err);
}

static int epoch(struct trainer *t, size_t batches, size_t rows, uint64_t *random)
{
	const struct train_options *o = t->o;
	double loss = 0.0, total = (double)batches * (double)o->epochs;
	train_shuffle(t->order, t->data.train.rows, random);
	for (size_t b = 0; b < batches; b++) {
		struct far_err err;
		double before = loss, done = ((double)t->epochs * (double)batches + (double)b) / total;
		pace_wait(&t->pace);
		enum far_status status = step(t, b, rows, done, &loss, &err);
		if (status || stop_signal() || !isfinite(loss))
			progress_close(&t->line);
		if (status || stop_signal())
			return stop_or_complain(t, &err);
		pace_ended(&t->pace);
		if (!isfinite(loss))
			return train_complain(o, "the loss is not finite any more: training diverged, use a smaller "
						 "--lr");
		t->samples += (double)rows;
		curves_step(&t->curves, loss - before, rows);
		progress(t, done, loss / (double)((b + 1) * rows), false);
	}
	t->epochs++;
	t->figures[REPORT_TRAIN_LOSS] = loss / (double)(batches * rows);
	return 0;
}

/* ---- Testing ---- */

/* Does the first worker test after this epoch. */
static bool tests(const struct trainer *t)
{
	const struct train_options *o = t->o;
	return t->data.index == 0 &&
	       (o->patience || o->plot || t->epochs == o->epochs || t->epochs % ((o->epochs + TESTS - 1) / TESTS) == 0);
}

/* The time since `begin_ns` does not count as training. */
static void exclude_time(struct trainer *t, uint64_t begin_ns)
{
	uint64_t took = clock_ns() - begin_ns;
	t->begin_ns += took;
	t->pace.begin_ns += took;
}

/* Of the first worker. `predicts`: writes the predictions, too. Returns an exit status. */
static int evaluate(struct trainer *t, bool predicts)
{
	struct far_err err;
	uint64_t begin = clock_ns();
	enum far_status status = t->model->kind->test(t->model, t->figures, predicts ? t->o->predict : NULL, &err);
	exclude_time(t, begin);
	return status ? stop_or_complain(t, &err) : 0;
}

/* Saves the tables, which takes the place of an earlier save once it is complete. Returns an exit status. */
static int save(struct trainer *t)
{
	struct far_err err;
	uint64_t begin = clock_ns();
	int status = t->o->save && far_ps_save(t->ps, t->o->save, NULL, NULL, &err) ? stop_or_complain(t, &err) : 0;
	exclude_time(t, begin);
	return status;
}

/* Keeps the model of this epoch, the best so far: training goes on in the same tables. Returns an exit status. */
static int keep_best(struct trainer *t)
{
	int status = t->o->predict ? evaluate(t, true) : 0;
	if (status == 0)
		status = save(t);
	memcpy(t->best, t->figures, sizeof t->best);
	t->best[REPORT_BEST_EPOCH] = (double)t->epochs;
	return status;
}

/* The figure of the test that has to fall. */
static double quality(const double *figures)
{
	return isnan(figures[REPORT_TEST_RMSE]) ? figures[REPORT_TEST_LOGLOSS] : figures[REPORT_TEST_RMSE];
}

/* Until the epochs are over, or the test loss has not become less for --patience of them. */
static int train(struct trainer *t)
{
	const struct train_options *o = t->o;
	size_t share = t->data.rows_total / o->workers;
	size_t rows = o->batch < share ? (size_t)o->batch : share, batches = share / rows;
	uint64_t random = ps_mix(o->seed) + t->data.index, since = 0;
	int status = 0;
	t->begin_ns = clock_ns();
	progress_open(&t->line, t->data.index == 0 ? (enum progress_where)o->progress : PROGRESS_LINES);
	curves_init(&t->curves, (double)batches * (double)o->epochs);
	while (status == 0 && t->epochs < o->epochs && !(o->patience && since >= o->patience)) {
		double *f = t->figures;
		status = epoch(t, batches, rows, &random);
		if (status || !tests(t))
			continue;
		status = evaluate(t, false);
		if (status == 0 && curves_test(&t->curves, f))
			status = train_complain(o, "no memory for the curves");
		bool better = quality(f) < quality(t->best) || (!isnan(quality(f)) && isnan(quality(t->best)));
		since = better ? 0 : since + 1;
		if (status == 0 && o->patience && better)
			status = keep_best(t);
		if (status == 0)
			progress(t, (double)t->epochs / (double)o->epochs, f[REPORT_TRAIN_LOSS], true);
	}
	progress_close(&t->line);
	t->figures[REPORT_SAMPLES] = t->samples;
	t->figures[REPORT_SECONDS] = (double)(clock_ns() - t->begin_ns) / 1e9;
	return status;
}

/* ---- All of it ---- */

/* Of the first worker, when all have trained. With --patience the best model was kept. */
static int conclude(struct trainer *t)
{
	int status = 0;
	if (isnan(t->best[REPORT_BEST_EPOCH])) {
		status = evaluate(t, true);
		if (status == 0)
			status = save(t);
	} else {
		memcpy(&t->figures[REPORT_TEST_ROWS], &t->best[REPORT_TEST_ROWS],
		       (REPORT_FIGURES - REPORT_TEST_ROWS) * sizeof *t->best);
	}
	if (status == 0 && t->o->plot &&
	    curves_draw(&t->curves, t->model->kind->title, t->o->model == MODEL_MF, t->o->plot))
		status = train_complain(t->o, "gnuplot failed");
	return status;
}

/* To the job's own servers, which end when they have those of all workers, or to the first worker. */
static enum far_status report(const struct trainer *t, struct far_err *err)
{
	const struct train_options *o = t->o;
	char settings[REPORT_SETTINGS_MAX];
	const struct report_part part = {.title = t->model->kind->title,
					 .mode = train_mode_name(o->mode),
					 .settings = settings,
					 .figures = t->figures,
					 .pulls = &t->pulls,
					 .pushes = &t->pushes,
					 .batches = &t->batches};
	int first = o->service ? (int)o->servers : 0, end = o->service ? first + 1 : (int)o->servers;
	enum far_status status = FAR_OK;
	train_settings(o, t->epochs, settings);
	for (int rank = first; rank < end && !status; rank++)
		status = report_send(o->group.agent, rank, o->timeout_ns, &part, err);
	return status;
}

static int work(struct trainer *t)
{
	const struct train_options *o = t->o;
	struct far_err err;
	int status = open_model(t, &err) ? stop_or_complain(t, &err) : 0;
	if (status == 0 && t->data.train.rows)
		status = train(t);
	if (status == 0 && meet(t, &err))
		status = stop_or_complain(t, &err);
	if (status == 0 && t->data.index == 0)
		status = conclude(t);
	/* The others wait for the first one here: the shutdown has a deadline. */
	if (status == 0 && (report(t, &err) || meet(t, &err)))
		status = stop_or_complain(t, &err);
	if (status == 0 && o->service && t->data.index == 0 && report_print(&t->report, stdout, o->json))
		status = train_complain(o, "cannot write the report");
	return status;
}

static int prepare(struct trainer *t)
{
	const struct train_data *d = &t->data;
	t->order = calloc(d->train.rows + 1, sizeof *t->order);
	t->model = t->o->model == MODEL_WORD2VEC ? model_word2vec_new() : model_rows_new(t->o);
	if (!t->order || !t->model)
		return train_complain(t->o, "no memory for the model");
	t->model->o = t->o;
	t->model->data = d;
	t->model->share = t->o->mode == TRAIN_BSP ? 1.0 / (double)t->o->workers : 1.0;
	t->model->pulls = &t->pulls;
	t->model->pushes = &t->pushes;
	for (size_t i = 0; i < d->train.rows; i++)
		t->order[i] = (uint32_t)i;
	for (int i = 0; i < REPORT_FIGURES; i++)
		t->figures[i] = t->best[i] = NAN;
	return 0;
}

/* Of a service the servers and other clients stay. Of a job all leave together, the servers last. */
static int leave(struct trainer *t, int status)
{
	struct far_err err;
	struct group *g = &t->o->group;
	bool together = status == 0 && !t->o->service;
	if (group_leave(g, together, &err) && together)
		status = group_complain(g, &err);
	return status;
}

int train_worker(struct train_options *o)
{
	struct trainer *t = calloc(1, sizeof *t);
	if (t == NULL)
		return train_complain(o, "no memory");
	t->o = o;
	t->pace = (struct pace){.rate = o->rate, .times = &t->batches};
	int status = train_load(&t->data, o);
	if (status == 0)
		status = prepare(t);
	struct far_function function = report_function(&t->report);
	if (status == 0)
		status = group_enter(&o->group, 1, &function, 1) ? 1 : 0;
	bool entered = status == 0;
	if (entered) {
		stop_install();
		status = work(t);
		stop_restore();
	}
	if (t->model)
		t->model->kind->free(t->model);
	far_ps_close(t->ps);
	if (entered)
		status = leave(t, status);
	train_unload(&t->data);
	curves_fini(&t->curves);
	free(t->order);
	free(t);
	return status;
}

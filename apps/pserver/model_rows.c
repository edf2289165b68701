/* SPDX-License-Identifier: BSD-3-Clause */
/** Models of labelled rows: logistic regression, factorisation machine, matrix factorisation. Main thread. */
#include "fm.h"
#include "logistic.h"
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FACTOR_DEVIATION 0.05f /* of initial values */

struct rows_model {
	struct model m;
	unsigned dim; /* elements of a factor; 0: logistic regression */
	struct far_ps_table *linear, *factors;
	struct logistic batch;
	float *w, *grad_w; /* [columns + 1] */
	float *v, *grad_v; /* [columns][dim] */
	float *sum;        /* [dim] */
};

static struct rows_model *of(struct model *m)
{
	return (struct rows_model *)m;
}

static bool ratings(const struct model *m)
{
	return m->o->model == MODEL_MF;
}

/* ---- Tables ---- */

static enum far_status allocate(struct rows_model *r, struct far_err *err)
{
	const struct train_data *d = r->m.data;
	size_t columns = d->train.columns > d->test.columns ? d->train.columns : d->test.columns;
	r->w = calloc(columns + 1, sizeof *r->w);
	r->grad_w = calloc(columns + 1, sizeof *r->grad_w);
	r->v = calloc(columns + 1, sizeof *r->v * (r->dim + 1));
	r->grad_v = calloc(columns + 1, sizeof *r->grad_v * (r->dim + 1));
	r->sum = calloc(r->dim + 1, sizeof *r->sum);
	if (!r->w || !r->grad_w || !r->v || !r->grad_v || !r->sum || logistic_init(&r->batch, &d->train))
		return model_no_memory(err);
	return FAR_OK;
}

static enum far_status rows_open(struct model *m, struct far_err *err)
{
	struct rows_model *r = of(m);
	const struct train_options *o = m->o;
	char factors[FAR_PS_NAME_MAX];
	r->dim = o->model == MODEL_LOGISTIC ? 0 : (unsigned)o->dim;
	enum far_status status = allocate(r, err);
	if (!status)
		status = model_table(m, train_model_name(o->model), (struct far_ps_schema){.dim = 1}, 0, &r->linear,
				     err);
	if (status || r->dim == 0)
		return status;
	snprintf(factors, sizeof factors, "%s_factors", train_model_name(o->model));
	struct far_ps_schema schema = {.dim = r->dim,
				       .init = {FAR_PS_INIT_NORMAL, 0, FACTOR_DEVIATION, .seed = o->seed}};
	return model_table(m, factors, schema, o->l2, &r->factors, err);
}

/* ---- A step ---- */

/* Both of the last batch; the bias has no factor. */
static enum far_status pull_batch(struct rows_model *r, struct far_err *err)
{
	const struct logistic *b = &r->batch;
	enum far_status status = model_pull(&r->m, r->linear, b->keys, b->n, r->w, err);
	if (status || r->dim == 0)
		return status;
	return model_pull(&r->m, r->factors, b->keys + 1, b->n - 1, r->v, err);
}

static enum far_status push_batch(struct rows_model *r, float rate, struct far_err *err)
{
	const struct logistic *b = &r->batch;
	enum far_status status = model_push(&r->m, r->linear, b->keys, b->n, r->grad_w, rate, err);
	if (status || r->dim == 0)
		return status;
	return model_push(&r->m, r->factors, b->keys + 1, b->n - 1, r->grad_v, rate, err);
}

/* The loss of a row; *slope is its derivative. */
static double loss_of(const struct model *m, const struct dataset *d, size_t row, double margin, double *slope)
{
	if (ratings(m)) {
		double error = margin - (double)d->target[row];
		*slope = error;
		return error * error;
	}
	*slope = metrics_sigmoid(margin) - d->label[row];
	return metrics_logloss(margin, d->label[row]);
}

static double gradient(struct rows_model *r, const uint32_t *rows, size_t n)
{
	const struct dataset *d = &r->m.data->train;
	const struct fm fm = {.place = r->batch.place, .dim = r->dim, .w = r->w, .v = r->v};
	double loss = 0.0;
	memset(r->grad_w, 0, r->batch.n * sizeof *r->grad_w);
	memset(r->grad_v, 0, (r->batch.n - 1) * r->dim * sizeof *r->grad_v);
	for (size_t i = 0; i < n; i++) {
		double slope, margin = fm_margin(&fm, d, rows[i], r->sum);
		loss += loss_of(&r->m, d, rows[i], margin, &slope);
		fm_gradient(&fm, d, rows[i], r->sum, (float)(slope / (double)n), NULL, r->grad_w, r->grad_v);
	}
	return loss;
}

static enum far_status rows_step(struct model *m, const uint32_t *rows, size_t n, float rate, double *loss,
				 struct far_err *err)
{
	struct rows_model *r = of(m);
	logistic_batch(&r->batch, rows, n);
	enum far_status status = pull_batch(r, err);
	if (status)
		return status;
	*loss += gradient(r, rows, n);
	return isfinite(*loss) ? push_batch(r, rate, err) : FAR_OK; /* the caller refuses such a loss */
}

/* ---- The test ---- */

static enum far_status read_all(struct rows_model *r, const struct dataset *d, struct far_err *err)
{
	uint64_t *keys = calloc(d->columns + 1, sizeof *keys);
	if (keys == NULL)
		return model_no_memory(err);
	keys[0] = LOGISTIC_BIAS_KEY;
	memcpy(keys + 1, d->key, d->columns * sizeof *keys);
	enum far_status status = model_read(&r->m, r->linear, keys, d->columns + 1, r->w, err);
	if (!status && r->dim)
		status = model_read(&r->m, r->factors, keys + 1, d->columns, r->v, err);
	free(keys);
	return status;
}

static void judge(struct model *m, const double *margins, double *figures)
{
	const struct dataset *d = &m->data->test;
	if (!ratings(m)) {
		train_figures(m->data, margins, figures);
		return;
	}
	double sum = 0.0;
	for (size_t i = 0; i < d->rows; i++) {
		double error = margins[i] - (double)d->target[i];
		sum += error * error;
	}
	figures[REPORT_TEST_ROWS] = (double)d->rows;
	figures[REPORT_TEST_RMSE] = sqrt(sum / (double)d->rows);
}

static enum far_status rows_test(struct model *m, double figures[REPORT_FIGURES], const char *predict,
				 struct far_err *err)
{
	struct rows_model *r = of(m);
	const struct dataset *d = &m->data->test;
	const struct fm fm = {.dim = r->dim, .w = r->w, .v = r->v};
	double *margins = calloc(d->rows + 1, sizeof *margins);
	enum far_status status = margins ? read_all(r, d, err) : model_no_memory(err);
	for (size_t i = 0; !status && i < d->rows; i++)
		margins[i] = fm_margin(&fm, d, i, r->sum);
	if (!status)
		judge(m, margins, figures);
	for (size_t i = 0; !status && predict && !ratings(m) && i < d->rows; i++)
		margins[i] = metrics_sigmoid(margins[i]);
	if (!status && predict)
		status = model_predictions(predict, margins, d->rows, err);
	free(margins);
	return status;
}

static void rows_free(struct model *m)
{
	struct rows_model *r = of(m);
	far_ps_table_free(r->linear);
	far_ps_table_free(r->factors);
	logistic_fini(&r->batch);
	free(r->w);
	free(r->grad_w);
	free(r->v);
	free(r->grad_v);
	free(r->sum);
	free(r);
}

struct model *model_rows_new(const struct train_options *o)
{
	static const struct model_kind kinds[] = {
		[MODEL_LOGISTIC] = {"logistic regression", rows_open, rows_step, rows_test, rows_free},
		[MODEL_FM] = {"factorisation machine", rows_open, rows_step, rows_test, rows_free},
		[MODEL_MF] = {"matrix factorisation", rows_open, rows_step, rows_test, rows_free}};
	struct rows_model *r = calloc(1, sizeof *r);
	if (r == NULL)
		return NULL;
	r->m.kind = &kinds[o->model];
	return &r->m;
}

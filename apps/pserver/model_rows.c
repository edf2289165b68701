/* SPDX-License-Identifier: BSD-3-Clause */
/** Models of labelled rows: logistic regression, factorisation machine, DeepFM, matrix factorisation. Main thread. */
#include "batch.h"
#include "fm.h"
#include "mlp.h"
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Deviations of initial values. A perceptron needs inputs that differ. */
#define FACTOR_DEVIATION 0.05f
#define DEEP_DEVIATION   0.3f
#define UNIT_DEVIATION   0.3f

struct rows_model {
	struct model m;
	unsigned dim; /* elements of a factor; 0: logistic regression */
	struct far_ps_table *linear, *factors;
	struct batch batch;
	float *w, *grad_w; /* [columns + 1] */
	float *v, *grad_v; /* [columns][dim] */
	float *sum;        /* [dim] */
	/* DeepFM: a perceptron that reads the sum of the factors of a row. */
	struct far_ps_table *layer;
	size_t units;                /* 0: none */
	float *units_v, *grad_units; /* [units][MLP_ROW(dim)] */
	float *active;               /* [units] */
	float *grad_sum;             /* [dim] */
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
	if (!r->w || !r->grad_w || !r->v || !r->grad_v || !r->sum || batch_init(&r->batch, &d->train))
		return model_no_memory(err);
	return FAR_OK;
}

static enum far_status open_layer(struct rows_model *r, struct far_err *err)
{
	const struct train_options *o = r->m.o;
	size_t row = MLP_ROW((size_t)r->dim);
	struct far_ps_schema schema = {.dim = (unsigned)row,
				       .dense_rows = o->hidden,
				       .init = {FAR_PS_INIT_NORMAL, 0, UNIT_DEVIATION, .seed = o->seed + 1}};
	enum far_status status = model_table(&r->m, "deepfm_units", schema, 0, &r->layer, err);
	if (status)
		return status;
	r->units = far_ps_table_schema(r->layer)->dense_rows;
	r->units_v = calloc(r->units * row, sizeof *r->units_v);
	r->grad_units = calloc(r->units * row, sizeof *r->grad_units);
	r->active = calloc(r->units + 1, sizeof *r->active);
	r->grad_sum = calloc(r->dim, sizeof *r->grad_sum);
	return r->units && r->units_v && r->grad_units && r->active && r->grad_sum ? FAR_OK : model_no_memory(err);
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
	float deviation = o->model == MODEL_DEEPFM ? DEEP_DEVIATION : FACTOR_DEVIATION;
	struct far_ps_schema schema = {.dim = r->dim, .init = {FAR_PS_INIT_NORMAL, 0, deviation, .seed = o->seed}};
	status = model_table(m, factors, schema, o->l2, &r->factors, err);
	return status || o->model != MODEL_DEEPFM ? status : open_layer(r, err);
}

/* ---- A step ---- */

static enum far_status pull_units(struct rows_model *r, struct far_err *err)
{
	if (r->units == 0)
		return FAR_OK;
	struct far_ps_pull_opts opts = {.timeout_ns = r->m.o->timeout_ns};
	struct far_future *f = NULL;
	enum far_status status = far_ps_pull_range(r->layer, 0, r->units, &opts, r->units_v, &f, err);
	return model_wait(&r->m, status, f, err);
}

/* Both of the last batch; the bias has no factor. */
static enum far_status pull_batch(struct rows_model *r, struct far_err *err)
{
	const struct batch *b = &r->batch;
	enum far_status status = model_pull(&r->m, r->linear, b->keys, b->n, r->w, err);
	if (status || r->dim == 0)
		return status;
	status = model_pull(&r->m, r->factors, b->keys + 1, b->n - 1, r->v, err);
	return status ? status : pull_units(r, err);
}

static enum far_status rows_push(struct model *m, float rate, struct far_err *err)
{
	struct rows_model *r = of(m);
	const struct batch *b = &r->batch;
	enum far_status status = model_push(&r->m, r->linear, b->keys, b->n, r->grad_w, rate, err);
	if (status || r->dim == 0)
		return status;
	status = model_push(&r->m, r->factors, b->keys + 1, b->n - 1, r->grad_v, rate, err);
	if (status || r->units == 0)
		return status;
	struct far_ps_push_opts opts = {.timeout_ns = r->m.o->timeout_ns, .rate = rate};
	struct far_future *f = NULL;
	status = far_ps_push_range(r->layer, 0, r->units, r->grad_units, &opts, &f, err);
	return model_wait(&r->m, status, f, err);
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

/* Of a row; leaves r->sum and r->active. */
static double margin_of(struct rows_model *r, const struct fm *fm, const struct dataset *d, size_t row)
{
	const struct mlp mlp = {r->dim, r->units, r->units_v};
	double margin = fm_margin(fm, d, row, r->sum);
	return r->units ? margin + mlp_output(&mlp, r->sum, r->active) : margin;
}

static double gradient(struct rows_model *r, const uint32_t *rows, size_t n)
{
	const struct dataset *d = &r->m.data->train;
	const struct fm fm = {.place = r->batch.place, .dim = r->dim, .w = r->w, .v = r->v};
	const struct mlp mlp = {r->dim, r->units, r->units_v};
	double loss = 0.0;
	memset(r->grad_w, 0, r->batch.n * sizeof *r->grad_w);
	memset(r->grad_v, 0, (r->batch.n - 1) * r->dim * sizeof *r->grad_v);
	if (r->units)
		memset(r->grad_units, 0, r->units * MLP_ROW(mlp.inputs) * sizeof *r->grad_units);
	for (size_t i = 0; i < n; i++) {
		double slope, margin = margin_of(r, &fm, d, rows[i]);
		loss += loss_of(&r->m, d, rows[i], margin, &slope);
		slope *= r->m.share / (double)n;
		if (r->units)
			mlp_gradient(&mlp, r->sum, r->active, (float)slope, r->grad_units, r->grad_sum);
		fm_gradient(&fm, d, rows[i], &(struct fm_slope){r->sum, (float)slope, r->units ? r->grad_sum : NULL},
			    r->grad_w, r->grad_v);
	}
	return loss;
}

static enum far_status rows_gradients(struct model *m, const uint32_t *rows, size_t n, double *loss,
				      struct far_err *err)
{
	struct rows_model *r = of(m);
	batch_begin(&r->batch, rows, n);
	enum far_status status = pull_batch(r, err);
	if (!status)
		*loss += gradient(r, rows, n);
	return status;
}

/* ---- The test ---- */

static enum far_status read_all(struct rows_model *r, const struct dataset *d, struct far_err *err)
{
	uint64_t *keys = calloc(d->columns + 1, sizeof *keys);
	if (keys == NULL)
		return model_no_memory(err);
	keys[0] = BATCH_BIAS_KEY;
	memcpy(keys + 1, d->key, d->columns * sizeof *keys);
	enum far_status status = model_read(&r->m, r->linear, keys, d->columns + 1, r->w, err);
	if (!status && r->dim)
		status = model_read(&r->m, r->factors, keys + 1, d->columns, r->v, err);
	if (!status)
		status = pull_units(r, err);
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
		margins[i] = margin_of(r, &fm, d, i);
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
	far_ps_table_free(r->layer);
	batch_fini(&r->batch);
	free(r->w);
	free(r->grad_w);
	free(r->v);
	free(r->grad_v);
	free(r->sum);
	free(r->units_v);
	free(r->grad_units);
	free(r->active);
	free(r->grad_sum);
	free(r);
}

struct model *model_rows_new(const struct train_options *o)
{
	static const struct model_kind kinds[] = {
		[MODEL_LOGISTIC] = {"logistic regression", rows_open, rows_gradients, rows_push, rows_test, rows_free},
		[MODEL_FM] = {"factorisation machine", rows_open, rows_gradients, rows_push, rows_test, rows_free},
		[MODEL_DEEPFM] = {"DeepFM", rows_open, rows_gradients, rows_push, rows_test, rows_free},
		[MODEL_MF] = {"matrix factorisation", rows_open, rows_gradients, rows_push, rows_test, rows_free}};
	struct rows_model *r = calloc(1, sizeof *r);
	if (r == NULL)
		return NULL;
	r->m.kind = &kinds[o->model];
	return &r->m;
}

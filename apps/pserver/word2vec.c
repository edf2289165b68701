/* SPDX-License-Identifier: BSD-3-Clause */
/** word2vec: skip-gram with negative sampling (Mikolov 2013) on lines of words. Main thread. */
#include "mix.h"
#include "model.h"
#include "planted.h"
#include "rows.h"
#include "words.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNIGRAM_POWER 0.75 /* of a word's frequency, by which negative samples are drawn */
#define VECTORS_EACH  4096 /* of a pull when all are written */

/* Distinct words of a batch, in the order of their first occurrence. */
struct distinct {
	uint32_t *place; /* [columns]: 1 + index in `keys`; 0: not in the batch */
	uint32_t *column;
	uint64_t *keys;
	size_t n;
	float *rows, *grads; /* [columns][dim] */
};

/* A center word, and a word near it or a sampled one. */
struct pair {
	uint32_t center, other; /* columns */
	bool near;
};

struct word2vec {
	struct model m;
	size_t dim;
	struct far_ps_table *centers, *contexts; /* vectors of a word in either part */
	struct distinct in, out;
	double *train_weights, *test_weights; /* [columns]: cumulative, by which negative samples are drawn */
	uint64_t random;
	struct pair *pairs;
	size_t pairs_n, pairs_cap;
};

static struct word2vec *of(struct model *m)
{
	return (struct word2vec *)m;
}

/* ---- Memory ---- */

static bool distinct_init(struct distinct *s, size_t columns, size_t dim)
{
	s->place = calloc(columns + 1, sizeof *s->place);
	s->column = calloc(columns + 1, sizeof *s->column);
	s->keys = calloc(columns + 1, sizeof *s->keys);
	s->rows = calloc(columns + 1, sizeof *s->rows * dim);
	s->grads = calloc(columns + 1, sizeof *s->grads * dim);
	return s->place && s->column && s->keys && s->rows && s->grads;
}

static void distinct_free(struct distinct *s)
{
	free(s->place);
	free(s->column);
	free(s->keys);
	free(s->rows);
	free(s->grads);
}

static void distinct_add(struct distinct *s, const struct dataset *d, uint32_t column)
{
	if (s->place[column])
		return;
	s->column[s->n] = column;
	s->keys[s->n++] = d->key[column];
	s->place[column] = (uint32_t)s->n;
}

static void distinct_clear(struct distinct *s)
{
	for (size_t i = 0; i < s->n; i++)
		s->place[s->column[i]] = 0;
	s->n = 0;
}

/* A word's weight is a power of its frequency. NULL: no memory. */
static double *weights_of(const struct dataset *d)
{
	double sum = 0.0, *weights = calloc(d->columns + 1, sizeof *weights);
	for (size_t e = 0; weights && e < d->entries; e++)
		weights[d->column[e]]++;
	for (size_t c = 0; weights && c < d->columns; c++) {
		sum += pow(weights[c], UNIGRAM_POWER);
		weights[c] = sum;
	}
	return weights;
}

static enum far_status w2v_open(struct model *m, struct far_err *err)
{
	struct word2vec *v = of(m);
	const struct train_data *d = m->data;
	size_t columns = d->train.columns > d->test.columns ? d->train.columns : d->test.columns;
	v->dim = m->o->dim;
	v->random = ps_mix(~m->o->seed) + d->index;
	v->train_weights = weights_of(&d->train);
	v->test_weights = weights_of(&d->test);
	if (!v->train_weights || !v->test_weights || !distinct_init(&v->in, columns, v->dim) ||
	    !distinct_init(&v->out, columns, v->dim))
		return model_no_memory(err);
	float bound = 0.5f / (float)v->dim;
	struct far_ps_schema schema = {.dim = (unsigned)v->dim,
				       .init = {FAR_PS_INIT_UNIFORM, -bound, bound, .seed = m->o->seed}};
	enum far_status status = model_table(m, "word2vec", schema, 0, &v->centers, err);
	schema.init = (struct far_ps_init){.kind = FAR_PS_INIT_CONSTANT};
	return status ? status : model_table(m, "word2vec_contexts", schema, 0, &v->contexts, err);
}

static void w2v_free(struct model *m)
{
	struct word2vec *v = of(m);
	far_ps_table_free(v->centers);
	far_ps_table_free(v->contexts);
	distinct_free(&v->in);
	distinct_free(&v->out);
	free(v->train_weights);
	free(v->test_weights);
	free(v->pairs);
	free(v);
}

/* ---- Pairs ---- */

static uint32_t sample(const struct dataset *d, const double *weights, uint64_t *random)
{
	double at = (double)(planted_next(random) >> 11) * 0x1p-53 * weights[d->columns - 1];
	size_t low = 0, high = d->columns - 1;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (weights[middle] > at)
			high = middle;
		else
			low = middle + 1;
	}
	return (uint32_t)low;
}

static enum far_status add_pair(struct word2vec *v, const struct dataset *d, uint32_t center, uint32_t other, bool near,
				struct far_err *err)
{
	if (v->pairs_n == v->pairs_cap) {
		size_t cap = v->pairs_cap ? 2 * v->pairs_cap : 4096;
		struct pair *bigger = reallocarray(v->pairs, cap, sizeof *bigger);
		if (bigger == NULL)
			return model_no_memory(err);
		v->pairs = bigger;
		v->pairs_cap = cap;
	}
	v->pairs[v->pairs_n++] = (struct pair){center, other, near};
	distinct_add(&v->in, d, center);
	distinct_add(&v->out, d, other);
	return FAR_OK;
}

/* The words at two positions of a line, and `negative` pairs of the first with samples. */
static enum far_status add_pairs(struct word2vec *v, bool test, size_t center, size_t other, uint64_t negative,
				 uint64_t *random, struct far_err *err)
{
	const struct dataset *d = test ? &v->m.data->test : &v->m.data->train;
	uint32_t c = d->column[center], near = d->column[other];
	enum far_status status = add_pair(v, d, c, near, true, err);
	for (uint64_t i = 0; !status && i < negative; i++) {
		uint32_t drawn = sample(d, test ? v->test_weights : v->train_weights, random);
		if (drawn != near)
			status = add_pair(v, d, c, drawn, false, err);
	}
	return status;
}

static void clear_pairs(struct word2vec *v)
{
	v->pairs_n = 0;
	distinct_clear(&v->in);
	distinct_clear(&v->out);
}

/* The window of each center is drawn from 1 to --window, so near words count more. */
static enum far_status train_pairs(struct word2vec *v, size_t line, struct far_err *err)
{
	const struct dataset *d = &v->m.data->train;
	const struct train_options *o = v->m.o;
	enum far_status status = FAR_OK;
	for (size_t e = d->start[line]; !status && e < d->start[line + 1]; e++) {
		size_t window = 1 + planted_next(&v->random) % o->window;
		size_t from = e - d->start[line] > window ? e - window : d->start[line];
		for (size_t k = from; !status && k <= e + window && k < d->start[line + 1]; k++)
			if (k != e)
				status = add_pairs(v, false, e, k, o->negative, &v->random, err);
	}
	return status;
}

/* Of each word but the last of its line: the next one, and a sample. The same in each test. */
static enum far_status test_pairs(struct word2vec *v, struct far_err *err)
{
	const struct dataset *d = &v->m.data->test;
	uint64_t random = ps_mix(v->m.o->seed);
	enum far_status status = FAR_OK;
	clear_pairs(v);
	for (size_t line = 0; line < d->rows; line++)
		for (size_t e = d->start[line]; !status && e + 1 < d->start[line + 1]; e++)
			status = add_pairs(v, true, e, e + 1, 1, &random, err);
	if (status || v->pairs_n)
		return status;
	*err = (struct far_err){.status = FAR_INVALID, .text = "no line of --test has two words"};
	return FAR_INVALID;
}

/* ---- A step ---- */

static double margin_of(const struct word2vec *v, const struct pair *p)
{
	const float *a = v->in.rows + (v->in.place[p->center] - 1) * v->dim;
	const float *b = v->out.rows + (v->out.place[p->other] - 1) * v->dim;
	float sum = 0.0f;
	for (size_t f = 0; f < v->dim; f++)
		sum += a[f] * b[f];
	return (double)sum;
}

/* Returns the mean loss of a pair. */
static double gradient(struct word2vec *v)
{
	double loss = 0.0;
	memset(v->in.grads, 0, v->in.n * v->dim * sizeof *v->in.grads);
	memset(v->out.grads, 0, v->out.n * v->dim * sizeof *v->out.grads);
	for (size_t i = 0; i < v->pairs_n; i++) {
		const struct pair *p = &v->pairs[i];
		size_t a = (v->in.place[p->center] - 1) * v->dim, b = (v->out.place[p->other] - 1) * v->dim;
		double margin = margin_of(v, p);
		loss += metrics_logloss(margin, p->near);
		float slope = (float)((metrics_sigmoid(margin) - p->near) * v->m.share / (double)v->pairs_n);
		for (size_t f = 0; f < v->dim; f++) {
			v->in.grads[a + f] += slope * v->out.rows[b + f];
			v->out.grads[b + f] += slope * v->in.rows[a + f];
		}
	}
	return loss / (double)v->pairs_n;
}

static enum far_status w2v_gradients(struct model *m, const uint32_t *rows, size_t n, double *loss, struct far_err *err)
{
	struct word2vec *v = of(m);
	enum far_status status = FAR_OK;
	clear_pairs(v);
	for (size_t i = 0; !status && i < n; i++)
		status = train_pairs(v, rows[i], err);
	if (status || v->pairs_n == 0)
		return status;
	status = model_pull(m, v->centers, v->in.keys, v->in.n, v->in.rows, err);
	if (!status)
		status = model_pull(m, v->contexts, v->out.keys, v->out.n, v->out.rows, err);
	if (!status)
		*loss += gradient(v) * (double)n;
	return status;
}

static enum far_status w2v_push(struct model *m, float rate, struct far_err *err)
{
	struct word2vec *v = of(m);
	if (v->pairs_n == 0)
		return FAR_OK;
	enum far_status status = model_push(m, v->centers, v->in.keys, v->in.n, v->in.grads, rate, err);
	return status ? status : model_push(m, v->contexts, v->out.keys, v->out.n, v->out.grads, rate, err);
}

/* ---- The test ---- */

static enum far_status judge(struct word2vec *v, double *figures, struct far_err *err)
{
	size_t n = v->pairs_n;
	double *margins = calloc(n, sizeof *margins);
	uint8_t *near = calloc(n, sizeof *near);
	for (size_t i = 0; margins && near && i < n; i++) {
		margins[i] = margin_of(v, &v->pairs[i]);
		near[i] = v->pairs[i].near;
	}
	bool ready = margins && near;
	if (ready) {
		double *auc = &figures[REPORT_TEST_AUC];
		figures[REPORT_TEST_ROWS] = (double)v->m.data->test.rows;
		figures[REPORT_TEST_LOGLOSS] = metrics_logloss_mean(margins, near, n);
		figures[REPORT_TEST_ACCURACY] = metrics_accuracy(margins, near, n);
		if (metrics_auc(margins, near, n, auc))
			*auc = NAN;
	}
	free(margins);
	free(near);
	return ready ? FAR_OK : model_no_memory(err);
}

/* Words without a vector are left out. */
static enum far_status write_words(struct word2vec *v, const struct words *w, size_t from, size_t n, FILE *f,
				   struct far_err *err)
{
	uint8_t status_of[VECTORS_EACH];
	float *rows = calloc(n, sizeof *rows * v->dim);
	struct far_future *future = NULL;
	struct far_ps_pull_opts opts = {.timeout_ns = v->m.o->timeout_ns};
	if (rows == NULL)
		return model_no_memory(err);
	enum far_status status = far_ps_pull(v->centers, w->seen.key + from, n, &opts, rows, status_of, &future, err);
	status = model_wait(&v->m, status, future, err);
	for (size_t i = 0; !status && i < n; i++) {
		if (status_of[i] != FAR_PS_ROW)
			continue;
		fputs(w->text[from + i], f);
		for (size_t k = 0; k < v->dim; k++)
			fprintf(f, " %.9g", (double)rows[i * v->dim + k]);
		fputc('\n', f);
	}
	free(rows);
	return status;
}

static enum far_status vectors(struct word2vec *v, const char *path, struct far_err *err)
{
	const struct train_options *o = v->m.o;
	struct words w = {0};
	enum far_status status = FAR_OK;
	int rc = o->data ? words_read(&w, o->data) : 0;
	if (rc == 0)
		rc = words_read(&w, o->test);
	FILE *f = rc ? NULL : fopen(path, "we");
	if (rc)
		errno = -rc;
	for (size_t i = 0; f && !status && i < w.n; i += VECTORS_EACH)
		status = write_words(v, &w, i, w.n - i < VECTORS_EACH ? w.n - i : VECTORS_EACH, f, err);
	bool failed = f == NULL || ferror(f);
	if (f && fclose(f))
		failed = true;
	words_free(&w);
	return status || !failed ? status : model_cannot_write(path, err);
}

static enum far_status w2v_test(struct model *m, double figures[REPORT_FIGURES], const char *predict,
				struct far_err *err)
{
	struct word2vec *v = of(m);
	enum far_status status = test_pairs(v, err);
	if (!status)
		status = model_read(m, v->centers, v->in.keys, v->in.n, v->in.rows, err);
	if (!status)
		status = model_read(m, v->contexts, v->out.keys, v->out.n, v->out.rows, err);
	if (!status)
		status = judge(v, figures, err);
	return status || !predict ? status : vectors(v, predict, err);
}

struct model *model_word2vec_new(void)
{
	static const struct model_kind kind = {"word2vec", w2v_open, w2v_gradients, w2v_push, w2v_test, w2v_free};
	struct word2vec *v = calloc(1, sizeof *v);
	if (v == NULL)
		return NULL;
	v->m.kind = &kind;
	return &v->m;
}

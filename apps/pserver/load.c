/* SPDX-License-Identifier: BSD-3-Clause */
/** Loads the data of a worker of a training job, and judges a model by them. Main thread. */
#include "load.h"

#include "planted.h"
#include "rows.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define TEST_FIRST_ROW (UINT64_C(1) << 40) /* generated test rows are numbered from here, apart from all others */

int train_complain(const struct train_options *o, const char *text)
{
	fprintf(stderr, "%s: worker%d: %s\n", o->group.program, o->group.rank, text);
	return 1;
}

static int load_files(struct train_data *d, const struct train_options *o)
{
	char text[ROWS_TEXT_MAX];
	size_t test_rows;
	enum rows_format format = o->model == MODEL_MF         ? ROWS_RATINGS
				  : o->model == MODEL_WORD2VEC ? ROWS_TEXT
							       : (enum rows_format)o->format;
	if (o->data && rows_read(o->data, format, d->index, o->workers, &d->train, &d->rows_total, text))
		return train_complain(o, text);
	if (d->index == 0 && rows_read(o->test, format, 0, 1, &d->test, &test_rows, text))
		return train_complain(o, text);
	return 0;
}

static int generate(struct train_data *d, const struct train_options *o)
{
	struct planted p;
	int rc = planted_init(&p, o->seed, (uint32_t)o->features);
	if (rc == 0)
		rc = planted_rows(&p, 0, o->rows, d->index, o->workers, &d->train, NULL);
	if (rc == 0 && d->index == 0) {
		d->bayes = calloc(o->test_rows, sizeof *d->bayes);
		rc = d->bayes ? planted_rows(&p, TEST_FIRST_ROW, o->test_rows, 0, 1, &d->test, d->bayes) : -ENOMEM;
	}
	planted_fini(&p);
	d->rows_total = o->rows;
	return rc ? train_complain(o, "no memory for the generated data") : 0;
}

int train_load(struct train_data *d, const struct train_options *o)
{
	d->index = (size_t)o->group.rank - (size_t)o->servers;
	dataset_init(&d->train);
	dataset_init(&d->test);
	int status = o->test ? load_files(d, o) : generate(d, o);
	if (status)
		return status;
	if (d->rows_total < o->workers && (o->data || !o->test))
		return train_complain(o, "there are fewer rows than workers");
	if (d->train.rows > UINT32_MAX)
		return train_complain(o, "more than 2^32 rows for one worker: use more workers");
	return 0;
}

void train_unload(struct train_data *d)
{
	dataset_free(&d->train);
	dataset_free(&d->test);
	free(d->bayes);
}

static double auc_of(const double *scores, const struct dataset *d)
{
	double auc;
	return metrics_auc(scores, d->label, d->rows, &auc) ? NAN : auc;
}

void train_figures(const struct train_data *d, const double *margins, double f[REPORT_FIGURES])
{
	const struct dataset *test = &d->test;
	f[REPORT_TEST_ROWS] = (double)test->rows;
	f[REPORT_TEST_AUC] = auc_of(margins, test);
	f[REPORT_TEST_LOGLOSS] = metrics_logloss_mean(margins, test->label, test->rows);
	f[REPORT_TEST_ACCURACY] = metrics_accuracy(margins, test->label, test->rows);
	if (d->bayes) {
		f[REPORT_BAYES_AUC] = auc_of(d->bayes, test);
		f[REPORT_BAYES_LOGLOSS] = metrics_logloss_mean(d->bayes, test->label, test->rows);
	}
}

void train_shuffle(uint32_t *order, size_t n, uint64_t *state)
{
	for (size_t i = n; i > 1; i--) {
		size_t j = planted_next(state) % i;
		uint32_t swap = order[i - 1];
		order[i - 1] = order[j];
		order[j] = swap;
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Data that are made from a planted model. The test's thread. */
#include "apps/pserver/metrics.h"
#include "apps/pserver/planted.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

TestSuite(planted);

Test(planted, refuses_bad_sizes)
{
	struct planted p;
	cr_assert_eq(planted_init(&p, 1, 0), -EINVAL);
	cr_assert_eq(planted_init(&p, 1, PLANTED_FEATURES_MAX + 1), -EINVAL);
}

Test(planted, a_row_is_a_set_of_known_features_and_its_margin_their_sum)
{
	struct planted p;
	struct dataset d;
	cr_assert_eq(planted_init(&p, 5, 20), 0);
	dataset_init(&d);
	for (uint64_t r = 0; r < 100; r++) {
		double margin, sum = p.bias;
		bool seen[21] = {false};
		cr_assert_eq(planted_row(&p, r, &d, &margin), 0);
		size_t from = d.start[r], to = d.start[r + 1];
		cr_assert(to > from && to - from <= PLANTED_ACTIVE);
		for (size_t e = from; e < to; e++) {
			uint64_t key = d.key[d.column[e]];
			cr_assert(key >= 1 && key <= 20 && !seen[key]);
			seen[key] = true;
			sum += (double)p.weight[key] * d.value[e];
		}
		cr_assert_float_eq(margin, sum, 1e-12);
	}
	dataset_free(&d);
	planted_fini(&p);
}

/* The workers' parts together are the whole: the same rows, whichever of them makes them. */
Test(planted, parts_make_the_whole)
{
	struct planted p;
	struct dataset whole, part;
	cr_assert_eq(planted_init(&p, 9, 50), 0);
	dataset_init(&whole);
	cr_assert_eq(planted_rows(&p, 0, 31, 0, 1, &whole, NULL), 0);
	cr_assert_eq(whole.rows, 31);
	for (size_t i = 0; i < 3; i++) {
		dataset_init(&part);
		cr_assert_eq(planted_rows(&p, 0, 31, i, 3, &part, NULL), 0);
		cr_assert_eq(part.rows, i == 0 ? 11 : 10);
		for (size_t r = 0; r < part.rows; r++) {
			size_t w = r * 3 + i, n = part.start[r + 1] - part.start[r];
			cr_assert_eq(part.label[r], whole.label[w]);
			cr_assert_eq(n, whole.start[w + 1] - whole.start[w]);
			for (size_t e = 0; e < n; e++)
				cr_assert_eq(part.key[part.column[part.start[r] + e]],
					     whole.key[whole.column[whole.start[w] + e]]);
		}
		dataset_free(&part);
	}
	dataset_free(&whole);
	planted_fini(&p);
}

Test(planted, seeds_differ)
{
	struct planted p, q;
	cr_assert_eq(planted_init(&p, 1, 50), 0);
	cr_assert_eq(planted_init(&q, 2, 50), 0);
	int equal = 0;
	for (int i = 1; i <= 50; i++)
		equal += p.weight[i] == q.weight[i];
	cr_assert_lt(equal, 2);
	planted_fini(&p);
	planted_fini(&q);
}

/* The labels follow the margins: observed frequency and mean probability agree, and the Bayes figures are useful. */
Test(planted, labels_follow_the_model)
{
	enum { N = 20000 };
	struct planted p;
	struct dataset d;
	double *margins = calloc(N, sizeof *margins);
	cr_assert_eq(planted_init(&p, 1, 200), 0);
	dataset_init(&d);
	cr_assert_eq(planted_rows(&p, 0, N, 0, 1, &d, margins), 0);
	double expect = 0.0, variance = 0.0, positives = 0.0, entropy = 0.0, auc;
	for (int i = 0; i < N; i++) {
		double q = metrics_sigmoid(margins[i]);
		expect += q;
		variance += q * (1.0 - q);
		positives += d.label[i];
		entropy += q * metrics_logloss(margins[i], 1) + (1.0 - q) * metrics_logloss(margins[i], 0);
	}
	cr_assert_lt(fabs(positives - expect), 4.0 * sqrt(variance));
	cr_assert_float_eq(metrics_logloss_mean(margins, d.label, N), entropy / N, 0.02);
	cr_assert_eq(metrics_auc(margins, d.label, N, &auc), 0);
	cr_assert(auc > 0.8 && auc < 0.95, "Bayes AUC %g", auc);
	free(margins);
	dataset_free(&d);
	planted_fini(&p);
}

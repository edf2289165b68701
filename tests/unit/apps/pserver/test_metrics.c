/* SPDX-License-Identifier: BSD-3-Clause */
/** AUC and loss of predictions. The test's thread. */
#include "apps/pserver/metrics.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>

TestSuite(metrics);

Test(metrics, auc_of_perfect_reversed_and_tied_scores)
{
	double s[] = {0.1, 0.2, 0.8, 0.9}, same[] = {3, 3, 3, 3}, auc;
	uint8_t up[] = {0, 0, 1, 1}, down[] = {1, 1, 0, 0};
	cr_assert_eq(metrics_auc(s, up, 4, &auc), 0);
	cr_assert_float_eq(auc, 1.0, 1e-15);
	cr_assert_eq(metrics_auc(s, down, 4, &auc), 0);
	cr_assert_float_eq(auc, 0.0, 1e-15);
	cr_assert_eq(metrics_auc(same, up, 4, &auc), 0);
	cr_assert_float_eq(auc, 0.5, 1e-15);
}

/* Against its definition, pair by pair, with many ties. */
Test(metrics, auc_is_the_share_of_ordered_pairs)
{
	enum { N = 200 };
	double s[N], wins = 0.0, pairs = 0.0, auc;
	uint8_t y[N];
	for (unsigned i = 0; i < N; i++) {
		s[i] = (double)(i * 7919 % 23) - 11;
		y[i] = (i * 104729 + 5) % 31 < 9 + (s[i] > 0) * 8;
	}
	for (int i = 0; i < N; i++) {
		for (int j = 0; j < N; j++) {
			if (!y[i] || y[j])
				continue;
			pairs += 1.0;
			wins += s[i] > s[j] ? 1.0 : s[i] == s[j] ? 0.5 : 0.0;
		}
	}
	cr_assert_eq(metrics_auc(s, y, N, &auc), 0);
	cr_assert_float_eq(auc, wins / pairs, 1e-12);
}

Test(metrics, auc_needs_both_classes)
{
	double s[] = {1, 2}, auc;
	uint8_t ones[] = {1, 1}, zeros[] = {0, 0};
	cr_assert_eq(metrics_auc(s, ones, 2, &auc), -EDOM);
	cr_assert_eq(metrics_auc(s, zeros, 2, &auc), -EDOM);
	cr_assert_eq(metrics_auc(s, zeros, 0, &auc), -EDOM);
}

Test(metrics, auc_ends_on_scores_that_are_no_numbers)
{
	double s[] = {NAN, 1, NAN, 2}, auc;
	uint8_t y[] = {0, 1, 1, 0};
	int rc = metrics_auc(s, y, 4, &auc);
	cr_assert(rc == 0 || rc == -EDOM);
}

Test(metrics, logloss_is_finite_for_any_margin)
{
	cr_assert_float_eq(metrics_logloss(0.0, 1), log(2.0), 1e-15);
	cr_assert_float_eq(metrics_logloss(2.0, 1), -log(1.0 / (1.0 + exp(-2.0))), 1e-14);
	cr_assert_float_eq(metrics_logloss(2.0, 0), -log(1.0 - 1.0 / (1.0 + exp(-2.0))), 1e-14);
	cr_assert_float_eq(metrics_logloss(1e4, 0), 1e4, 1e-9);
	cr_assert_float_eq(metrics_logloss(-1e4, 0), 0.0, 1e-15);
	cr_assert_float_eq(metrics_sigmoid(-1e4), 0.0, 1e-15);
	cr_assert_float_eq(metrics_sigmoid(1e4), 1.0, 1e-15);
}

Test(metrics, means)
{
	double m[] = {1, -1, 2, -3};
	uint8_t y[] = {1, 1, 0, 0};
	cr_assert_float_eq(metrics_accuracy(m, y, 4), 0.5, 1e-15);
	double sum = 0.0;
	for (int i = 0; i < 4; i++)
		sum += metrics_logloss(m[i], y[i]);
	cr_assert_float_eq(metrics_logloss_mean(m, y, 4), sum / 4, 1e-15);
	cr_assert(isnan(metrics_accuracy(m, y, 0)));
	cr_assert(isnan(metrics_logloss_mean(m, y, 0)));
}

static struct latency a, b;

Test(metrics, latency_is_exact_when_small_and_close_when_large)
{
	cr_assert_eq(latency_percentile(&a, 0.5), 0);
	for (uint64_t v = 1; v <= 60; v++)
		latency_record(&a, v);
	cr_assert_eq(latency_percentile(&a, 0.5), 30);
	cr_assert_eq(latency_percentile(&a, 1.0), 60);
	cr_assert_eq(latency_percentile(&a, 0.0), 1);
	for (uint64_t v = 64; v < UINT64_C(1) << 62; v = v * 5 / 3) {
		struct latency one = {.total = 0};
		latency_record(&one, v);
		double got = (double)latency_percentile(&one, 0.5);
		cr_assert(fabs(got - (double)v) <= (double)v / 32, "%g for %g", got, (double)v);
	}
	latency_record(&b, UINT64_MAX);
	cr_assert_gt(latency_percentile(&b, 0.5), UINT64_MAX / 2);
}

Test(metrics, latency_merges)
{
	for (int i = 0; i < 99; i++)
		latency_record(&a, 10);
	latency_record(&b, 50);
	latency_merge(&a, b.count);
	cr_assert_eq(a.total, 100);
	cr_assert_eq(latency_percentile(&a, 0.99), 10);
	cr_assert_eq(latency_percentile(&a, 1.0), 50);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** AUC, log loss, accuracy, and a latency histogram. One thread at a time. */
#include "metrics.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct scored {
	double score;
	uint8_t label;
};

static int by_score(const void *a, const void *b)
{
	double x = ((const struct scored *)a)->score, y = ((const struct scored *)b)->score;
	return (x > y) - (x < y);
}

/* Mann and Whitney's statistic: walking up the scores, each positive beats the negatives below it, and half of those
 * that share its score. */
int metrics_auc(const double *scores, const uint8_t *labels, size_t n, double *out)
{
	struct scored *s = reallocarray(NULL, n ? n : 1, sizeof *s);
	if (s == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		s[i] = (struct scored){scores[i], labels[i]};
	qsort(s, n, sizeof *s, by_score);
	double below = 0.0, positives = 0.0, wins = 0.0;
	for (size_t i = 0; i < n;) {
		double p = 0.0, q = 0.0;
		size_t j = i;
		for (; j < n && s[j].score == s[i].score; j++) {
			if (s[j].label)
				p++;
			else
				q++;
		}
		if (j == i) /* a NaN equals nothing, not even itself */
			break;
		wins += p * (below + q / 2.0);
		below += q;
		positives += p;
		i = j;
	}
	free(s);
	if (positives == 0.0 || below == 0.0)
		return -EDOM;
	*out = wins / (positives * below);
	return 0;
}

double metrics_logloss(double margin, int label)
{
	double z = label ? -margin : margin;
	return z > 0.0 ? z + log1p(exp(-z)) : log1p(exp(z));
}

double metrics_logloss_mean(const double *margins, const uint8_t *labels, size_t n)
{
	double sum = 0.0;
	for (size_t i = 0; i < n; i++)
		sum += metrics_logloss(margins[i], labels[i]);
	return n ? sum / (double)n : NAN;
}

double metrics_accuracy(const double *margins, const uint8_t *labels, size_t n)
{
	size_t right = 0;
	for (size_t i = 0; i < n; i++)
		right += (margins[i] > 0.0) == (labels[i] != 0);
	return n ? (double)right / (double)n : NAN;
}

double metrics_sigmoid(double margin)
{
	return margin < 0.0 ? exp(margin) / (1.0 + exp(margin)) : 1.0 / (1.0 + exp(-margin));
}

static unsigned bucket_of(uint64_t ns)
{
	if (ns < 64)
		return (unsigned)ns;
	unsigned top = 63 - (unsigned)__builtin_clzll(ns);
	return 64 + (top - 6) * 32 + ((unsigned)(ns >> (top - 5)) & 31);
}

static uint64_t bucket_middle(unsigned bucket)
{
	if (bucket < 64)
		return bucket;
	unsigned shift = (bucket - 64) / 32 + 1;
	return (UINT64_C(32) + (bucket - 64) % 32) << shift | UINT64_C(1) << (shift - 1);
}

void latency_record(struct latency *l, uint64_t ns)
{
	l->count[bucket_of(ns)]++;
	l->total++;
}

void latency_merge(struct latency *l, const uint64_t *count)
{
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		l->count[i] += count[i];
		l->total += count[i];
	}
}

uint64_t latency_percentile(const struct latency *l, double q)
{
	if (l->total == 0)
		return 0;
	double rank = ceil(q * (double)l->total);
	uint64_t need = rank < 1.0 ? 1 : (uint64_t)rank;
	uint64_t seen = 0;
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		seen += l->count[i];
		if (seen >= need)
			return bucket_middle(i);
	}
	return bucket_middle(LATENCY_BUCKETS - 1);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Quality of a binary classifier, and a histogram of latencies. Any thread. */
#ifndef PSERVER_METRICS_H
#define PSERVER_METRICS_H

#include <stddef.h>
#include <stdint.h>

/**
 * Area under the ROC curve of scores[0, n) for labels 0 or 1: the chance that a positive scores above a negative, a tie
 * counting one half. Any monotone score will do. 0, -ENOMEM, or -EDOM when one class is missing.
 */
int metrics_auc(const double *scores, const uint8_t *labels, size_t n, double *out);

/** Natural log loss of one margin (the log-odds of class 1), without overflow for any finite margin. */
double metrics_logloss(double margin, int label);
/** Mean of it; NAN for n 0. */
double metrics_logloss_mean(const double *margins, const uint8_t *labels, size_t n);

/** Share of rows whose class is that of the sign of the margin; NAN for n 0. */
double metrics_accuracy(const double *margins, const uint8_t *labels, size_t n);

/** 1 / (1 + exp(-margin)). */
double metrics_sigmoid(double margin);

/* Log-linear buckets: exact below 64, then 32 for each doubling, so a value is known to 1/32 of itself. */
#define LATENCY_BUCKETS 1920

struct latency {
	uint64_t count[LATENCY_BUCKETS];
	uint64_t total;
};

void latency_record(struct latency *l, uint64_t ns);
/** Adds the buckets of another one (of LATENCY_BUCKETS counts). */
void latency_merge(struct latency *l, const uint64_t *count);
/** The value below which the share `q` of [0, 1] of all records lies, to the middle of its bucket; 0 without records.
 */
uint64_t latency_percentile(const struct latency *l, double q);

#endif

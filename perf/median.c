/* SPDX-License-Identifier: BSD-3-Clause */
/** The median of repeated measurements and their noise. Any thread. */
#include "perf.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double perf_median(double *values, unsigned n)
{
	if (n == 0)
		return 0;
	qsort(values, n, sizeof *values, compare);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double perf_noise(double *values, unsigned n)
{
	double median = perf_median(values, n);
	unsigned out = n / 5; /* at each end */
	return n < 3 || median <= 0 ? (double)NAN : (values[n - 1 - out] - values[out]) / median;
}

struct perf_noise_text perf_noise_text(double noise)
{
	struct perf_noise_text t;
	if (isnan(noise))
		strcpy(t.text, "-");
	else
		snprintf(t.text, sizeof t.text, "%.1f %%", 100 * noise);
	return t;
}

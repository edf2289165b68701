/* SPDX-License-Identifier: BSD-3-Clause */
/** The cheapest clock of this machine: the time stamp counter, else nanoseconds. Any thread. */
#ifndef PERF_TICKS_H
#define PERF_TICKS_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#define TICKS_UNIT "cycles" /* of the TSC */
#else
#define TICKS_UNIT "ns"
#endif

static inline uint64_t ticks_now(void)
{
#if defined(__x86_64__)
	_mm_lfence(); /* waits for the instructions before it, as rdtscp does, which not every machine reports */
	return __rdtsc();
#else
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
#endif
}

static inline int ticks_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/** Sorts. */
static inline uint64_t ticks_median(uint64_t *values, unsigned n)
{
	qsort(values, n, sizeof *values, ticks_compare);
	return values[n / 2];
}

#endif

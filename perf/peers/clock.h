/* SPDX-License-Identifier: BSD-3-Clause */
/** The clock of all figures: the TSC where it is invariant (CPUID 80000007h, EDX bit 8), else CLOCK_MONOTONIC.
 * Main thread of each process. */
#ifndef PEERS_CLOCK_H
#define PEERS_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

static bool clock_tsc;
static double clock_ns_per_tick = 1;

static inline uint64_t clock_monotonic(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_ticks(void)
{
#if defined(__x86_64__)
	if (clock_tsc)
		return __rdtsc();
#endif
	return clock_monotonic();
}

#if defined(__x86_64__)
/* Both clocks at one moment: of several attempts the one with the shortest distance between two readings of the TSC. */
static inline void clock_pair(uint64_t *ticks, uint64_t *ns)
{
	uint64_t best = UINT64_MAX;
	for (int i = 0; i < 50; i++) {
		uint64_t before = __rdtsc(), now = clock_monotonic(), after = __rdtsc();
		if (after - before >= best)
			continue;
		best = after - before;
		*ticks = before + best / 2;
		*ns = now;
	}
}
#endif

/* Takes 50 ms with a TSC. */
static inline void clock_start(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;
	if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & 1u << 8))
		return;
	uint64_t t0 = 0, n0 = 0, t1 = 0, n1 = 0;
	clock_pair(&t0, &n0);
	nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
	clock_pair(&t1, &n1);
	clock_ns_per_tick = (double)(n1 - n0) / (double)(t1 - t0);
	clock_tsc = true;
#endif
}

#endif

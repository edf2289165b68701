/* SPDX-License-Identifier: BSD-3-Clause */
/** The monotonic clock of the parameter server. Any thread. */
#ifndef PSERVER_PS_CLOCK_H
#define PSERVER_PS_CLOCK_H

#include <stdint.h>
#include <time.h>

/** CLOCK_MONOTONIC in nanoseconds. */
static inline uint64_t clock_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/** Sleeps `ns`, below one second, or until a signal. */
static inline void clock_nap(uint64_t ns)
{
	struct timespec t = {.tv_sec = 0, .tv_nsec = (long)ns};
	nanosleep(&t, NULL);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's clock. Any thread. */
#include "base/clock.h"

#include <time.h>

static uint64_t monotonic_now(void *ctx)
{
	struct timespec ts;
	(void)ctx;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

const struct clock_source clock_monotonic = {monotonic_now, 0};

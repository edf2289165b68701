/* SPDX-License-Identifier: BSD-3-Clause */
/** Time as absolute CLOCK_MONOTONIC nanoseconds, from an injected clock, which a simulator replaces. Any thread. */
#ifndef FAR_BASE_CLOCK_H
#define FAR_BASE_CLOCK_H

#include <stdint.h>

struct clock_source {
	uint64_t (*now)(void *ctx);
	void *ctx;
};

#define TIME_NEVER UINT64_MAX

/** The machine's clock. */
extern const struct clock_source clock_monotonic;

static inline uint64_t clock_now(const struct clock_source *c)
{
	return c->now(c->ctx);
}

/** now + relative; UINT64_MAX and sums beyond it are TIME_NEVER. */
static inline uint64_t time_after(uint64_t now, uint64_t relative)
{
	return relative > UINT64_MAX - 1 - now ? TIME_NEVER : now + relative;
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FAR_BASE_RANDOM_H
#define FAR_BASE_RANDOM_H

#include <stdint.h>

/** 64 bits from the kernel's generator, never 0: incarnations and tokens. */
uint64_t random_u64(void);

/** Randomness is injected like the clock, so that a simulator can draw it from a seed. */
struct random_source {
	uint64_t (*next)(void *ctx); /* 64 bits, never 0 */
	void *ctx;
};

/** The kernel's. */
extern const struct random_source random_kernel;

static inline uint64_t random_next(const struct random_source *r)
{
	return r->next(r->ctx);
}

#endif

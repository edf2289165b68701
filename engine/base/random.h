/* SPDX-License-Identifier: BSD-3-Clause */
/** Random numbers from an injected source, which a simulator replaces. Any thread. */
#ifndef FAR_BASE_RANDOM_H
#define FAR_BASE_RANDOM_H

#include <stdint.h>

/** 64 bits from the kernel's generator, never 0: incarnations and tokens. */
uint64_t random_u64(void);

/** 64 bits, never 0, for ids that need not be secret, as those of spans: from a generator of the thread. The kernel
 * seeds it, again in a process that was forked. */
uint64_t random_id(void);

/** A source of random numbers. */
struct random_source {
	uint64_t (*next)(void *ctx); /* 64 bits, never 0 */
	void *ctx;
};

/** The kernel's generator as a source. */
extern const struct random_source random_kernel;

static inline uint64_t random_next(const struct random_source *r)
{
	return r->next(r->ctx);
}

#endif

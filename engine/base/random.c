/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel's random numbers. Any thread; makes a system call. */
#include "base/random.h"

#include "base/must.h"

#include <errno.h>
#include <sys/random.h>

uint64_t random_u64(void)
{
	uint64_t x = 0;
	while (x == 0) {
		ssize_t n = getrandom(&x, sizeof x, 0);
		must(n == (ssize_t)sizeof x || (n < 0 && errno == EINTR));
		if (n < 0)
			x = 0;
	}
	return x;
}

static uint64_t kernel_next(void *ctx)
{
	(void)ctx;
	return random_u64();
}

const struct random_source random_kernel = {kernel_next, 0};

/* SPDX-License-Identifier: BSD-3-Clause */
/** The environment of a program: the system's clock and threads. Any thread. */
#include "psv_env.h"

#include <time.h>

static uint64_t system_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

struct psv_env psv_env = {.now_ns = system_now_ns, .threads = true};

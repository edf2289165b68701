/* SPDX-License-Identifier: BSD-3-Clause */
/** The machine's clock is the kernel's monotonic one, in nanoseconds. The test's thread. */
#include "base/clock.h"

#include <criterion/criterion.h>
#include <time.h>

static uint64_t kernels(void)
{
	struct timespec ts;
	cr_assert_eq(clock_gettime(CLOCK_MONOTONIC, &ts), 0);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

Test(clock, is_the_kernels_monotonic_clock)
{
	for (int i = 0; i < 1000; i++) {
		uint64_t before = kernels(), now = clock_now(&clock_monotonic), after = kernels();
		cr_assert(before <= now && now <= after);
	}
}

Test(clock, times_beyond_the_largest_are_never)
{
	cr_assert_eq(time_after(5, 7), 12u);
	cr_assert_eq(time_after(5, TIME_NEVER), TIME_NEVER);
	cr_assert_eq(time_after(UINT64_MAX - 10, 9), UINT64_MAX - 1);
	cr_assert_eq(time_after(UINT64_MAX - 10, 10), TIME_NEVER);
	cr_assert_eq(time_after(UINT64_MAX - 10, 11), TIME_NEVER);
}

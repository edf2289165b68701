/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * pthread_clockjoin_np() out of calls that ThreadSanitizer of clang 14 follows. It does not follow that one: it takes
 * what the joined thread did for a race with what comes after, and the thread for one that nobody joined.
 */
#include <errno.h>
#include <pthread.h>
#include <time.h>

int pthread_clockjoin_np(pthread_t thread, void **status, clockid_t clock, const struct timespec *until)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	struct timespec now;
	int rc;
	while ((rc = pthread_tryjoin_np(thread, status)) == EBUSY) {
		clock_gettime(clock, &now);
		if (now.tv_sec > until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec))
			return ETIMEDOUT;
		nanosleep(&nap, NULL);
	}
	return rc;
}

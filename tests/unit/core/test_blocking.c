/* SPDX-License-Identifier: BSD-3-Clause */
/** The end of the threads for blocking handlers, while somebody sets the clock. */
#include "core/blocking.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The wall clock is set forward by an hour after everybody has read it. */
static bool set_forward;
int clock_gettime(clockid_t id, struct timespec *out)
{
	static int (*real)(clockid_t, struct timespec *);
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
	int rc = real(id, out);
	if (set_forward && id == CLOCK_REALTIME)
		out->tv_sec -= 3600;
	return rc;
}

/* No handler runs. Expect no report. */
Test(blocking, a_clock_that_is_set_makes_no_handler_late)
{
	char path[] = "/tmp/farcall-blocking-XXXXXX", text[256] = "";
	int file = mkstemp(path), before = dup(STDERR_FILENO);
	cr_assert(file >= 0 && before >= 0);
	unlink(path);
	set_forward = true;
	dup2(file, STDERR_FILENO);
	for (int i = 0; i < 20; i++) {
		struct blocking_pool *pool;
		cr_assert_eq(blocking_create(&pool, 4, 16, NULL), FAR_OK);
		blocking_stop(pool, NULL, NULL);
		blocking_destroy(pool);
	}
	dup2(before, STDERR_FILENO);
	cr_assert_geq(pread(file, text, sizeof text - 1, 0), 0);
	cr_assert_str_empty(text);
}

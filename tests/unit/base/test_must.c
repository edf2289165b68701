/* SPDX-License-Identifier: BSD-3-Clause */
/** Assertions: what a broken one prints, how it ends the process, and what a release build leaves out. The test's
 * thread. */
#include "base/must.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

Test(must, a_true_one_is_evaluated_once)
{
	unsigned n = 0;
	must(++n == 1);
	cr_assert_eq(n, 1u);
}

/* Expect file, line and condition on stderr, and SIGABRT. */
Test(must, a_broken_one_is_printed_and_ends_the_process)
{
	char text[256] = "", want[256];
	int fds[2], status;
	cr_assert_eq(pipe(fds), 0);
	pid_t child = fork();
	snprintf(want, sizeof want, "farcall: %s:%d: broken assumption: fds[0] < 0\n", __FILE__, __LINE__ + 4);
	if (child == 0) {
		signal(SIGABRT, SIG_DFL);
		dup2(fds[1], STDERR_FILENO);
		must(fds[0] < 0);
		_exit(0);
	}
	close(fds[1]);
	size_t len = 0;
	for (ssize_t n; len < sizeof text - 1 && (n = read(fds[0], text + len, sizeof text - 1 - len)) > 0;)
		len += (size_t)n;
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	cr_assert(strncmp(text, want, strlen(want)) == 0, "\"%s\" instead of \"%s\"", text, want);
	close(fds[0]);
}

/* A release build does not evaluate debug_must(). */
Test(must, debug_alone)
{
	unsigned n = 0;
	debug_must(++n == 1);
#ifdef NDEBUG
	cr_assert_eq(n, 0u);
#else
	cr_assert_eq(n, 1u);
#endif
}

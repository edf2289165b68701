/* SPDX-License-Identifier: BSD-3-Clause */
/** Alternate signal stacks: who gets one, its guard page, and that a handler runs on it. The test's thread. */
#include "base/crash_stack.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

static stack_t before, now;
static struct crash_stack c;
static int pipe_fds[2];

/* A sanitizer gives the thread a stack of its own. */
static void setup(void)
{
	const stack_t none = {.ss_flags = SS_DISABLE};
	cr_assert_eq(sigaltstack(&none, &before), 0);
	cr_assert_eq(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK), 0);
}

static void teardown(void)
{
	sigaltstack(&before, NULL);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

TestSuite(crash_stack, .init = setup, .fini = teardown);

static bool has_stack(void)
{
	cr_assert_eq(sigaltstack(NULL, &now), 0);
	return !(now.ss_flags & SS_DISABLE);
}

static bool is_readable(const void *at)
{
	bool yes = write(pipe_fds[1], at, 1) == 1;
	cr_assert(yes || errno == EFAULT);
	return yes;
}

Test(crash_stack, none_before_it_is_enabled)
{
	cr_assert_eq(crash_stack_take(&c), 0);
	cr_assert_null(c.low);
	cr_assert_not(has_stack());
	crash_stack_give(&c);
	cr_assert_not(has_stack());
}

Test(crash_stack, its_lowest_page_is_a_guard)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	crash_stacks_enable();
	cr_assert_eq(crash_stack_take(&c), 0);
	cr_assert(has_stack());
	char *low = c.low, *top = low + c.bytes;
	cr_assert_eq((char *)now.ss_sp, low + page);
	cr_assert_eq((char *)now.ss_sp + now.ss_size, top);
	cr_assert_gt(now.ss_size, 64u << 10);
	cr_assert_not(is_readable(low));
	cr_assert_not(is_readable(low + page - 1));
	cr_assert(is_readable(low + page));
	cr_assert(is_readable(top - 1));
	crash_stack_give(&c);
	cr_assert_null(c.low);
	cr_assert_not(has_stack());
	cr_assert_not(is_readable(top - 1), "it is unmapped");
	crash_stack_give(&c);
}

/* A stack that the application has installed stays. */
Test(crash_stack, a_thread_that_has_one_keeps_it)
{
	struct crash_stack second;
	crash_stacks_enable();
	cr_assert_eq(crash_stack_take(&c), 0);
	cr_assert(has_stack());
	const void *at = now.ss_sp;
	cr_assert_eq(crash_stack_take(&second), 0);
	cr_assert_null(second.low);
	crash_stack_give(&second);
	cr_assert(has_stack());
	cr_assert_eq(now.ss_sp, at);
	crash_stack_give(&c);
}

static volatile uintptr_t ran_at;

static void on_signal(int number)
{
	char here;
	ran_at = (uintptr_t)&here;
}

Test(crash_stack, handlers_run_on_it)
{
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESETHAND};
	crash_stacks_enable();
	cr_assert_eq(crash_stack_take(&c), 0);
	cr_assert_eq(sigaction(SIGUSR1, &action, NULL), 0);
	raise(SIGUSR1);
	uintptr_t low = (uintptr_t)c.low;
#ifndef UNDER_SANITIZER /* whose locals may be elsewhere */
	cr_assert(ran_at > low && ran_at < low + c.bytes);
#else
	cr_assert(ran_at && low);
#endif
	crash_stack_give(&c);
}

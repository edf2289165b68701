/* SPDX-License-Identifier: BSD-3-Clause */
/** The crash report of a child process, which crashes on its own or in a handler of agents that it steps.
 * The test's thread. */
#include "agents_fixture.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* An address sanitizer leaves these signals to the crash report. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_abort=0";
}

static char report[1 << 16];

/* Runs `child` with the crash report, and reads what it writes to stderr. Returns its wait status. */
static int crashed(void (*child)(void))
{
	int fds[2], status;
	size_t len = 0;
	cr_assert_eq(pipe(fds), 0);
	pid_t pid = fork();
	if (pid == 0) {
		const struct rlimit none = {0, 0};
		setrlimit(RLIMIT_CORE, &none);
		dup2(fds[1], STDERR_FILENO);
		for (int i = 0; i < 2; i++)
			if (far_crash_report_install(&err))
				_exit(2);
		child();
		_exit(3);
	}
	close(fds[1]);
	for (ssize_t n; (n = read(fds[0], report + len, sizeof report - 1 - len)) > 0;)
		len += (size_t)n;
	report[len] = '\0';
	close(fds[0]);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return status;
}

static void expect_report(const char *first)
{
	cr_assert_eq(strncmp(report, first, strlen(first)), 0, "%s", report);
	cr_assert_null(strstr(report + 1, "farcall: crash:"), "reported twice: %s", report);
}

static void segv(void)
{
	*(volatile int *)(uintptr_t)0x1230 = 1;
}

/* Expect signal and address, the frames, and the end that the process would have had. */
Test(crash, in_no_handler)
{
	int status = crashed(segv);
	expect_report("farcall: crash: SIGSEGV at address 0x1230, in no handler\n");
	cr_assert_gt(strlen(strchr(report, '\n')), 20u, "no frames: %s", report);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "%#x", (unsigned)status);
}

static void sent(void)
{
	kill(getpid(), SIGFPE);
}

static void aborted(void)
{
	abort();
}

Test(crash, signals_of_a_process)
{
	char first[96];
	int status = crashed(sent);
	cr_assert(strstr(report, ", in no handler\n"));
	snprintf(first, sizeof first, "farcall: crash: SIGFPE sent by process ");
	expect_report(first);
	cr_assert_neq(status, 0);
	crashed(aborted);
	expect_report("farcall: crash: SIGABRT sent by process ");
}

static void exits(int number)
{
	_exit(40 + (number == SIGBUS));
}

static void handled(void)
{
	kill(getpid(), SIGBUS);
}

static void handler_first(void)
{
	signal(SIGBUS, exits);
	handled();
}

/* An action that the application sets later replaces the report. */
Test(crash, the_applications_own)
{
	int status = crashed(handler_first);
	cr_assert_str_eq(report, "");
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 41, "%#x", (unsigned)status);
}

/* One that it has set before runs after the report. */
Test(crash, after_the_report)
{
	signal(SIGBUS, exits);
	int status = crashed(handled);
	expect_report("farcall: crash: SIGBUS sent by process ");
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 41, "%#x", (unsigned)status);
}

/* ---- in handlers ---- */

static enum far_status crashes(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	segv();
	return FAR_OK;
}

__attribute__((noinline)) static int deeper(int n)
{
	volatile char frame[1024];
	frame[n % 1024] = (char)n;
	return n < 1 << 30 ? deeper(n + 1) + frame[n % 1024] : 0;
}

static enum far_status overflows(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(deeper(0));
	return far_return(req, &v);
}

static const char *function;

static void call(void)
{
	static const struct far_function functions[] = {{"t::inline() -> none", FAR_KIND_INLINE, crashes, NULL},
							{"t::fiber() -> none", FAR_KIND_FIBER, crashes, NULL},
							{"t::deep() -> int", FAR_KIND_FIBER, overflows, NULL}};
	struct far_future *f;
	agents_begin(2, &(struct far_opts){.functions = functions, .functions_n = 3, .fiber_stack_bytes = 32 << 10});
	if (far_rpc_async(agents[0], "w1", "t::none", NULL, 0, NULL, &f, &err) != FAR_NO_FUNCTION ||
	    far_rpc_async_unchecked(agents[0], "w1", "t::none", NULL, 0, NULL, &f, &err))
		_exit(4);
	agents_until(f);
	if (far_rpc_async(agents[0], "w1", function, NULL, 0, NULL, &f, &err))
		_exit(5);
	agents_until(f);
}

/* Expect the handler, its kind and its worker, and the last events of its shard. */
Test(crash, in_handlers)
{
	function = "t::inline";
	cr_assert_neq(crashed(call), 0);
	expect_report(
		"farcall: crash: SIGSEGV at address 0x1230, in the inline handler \"t::inline\" on worker \"w1\"\n"
		"farcall: the shard's last events, by time in microseconds:\n");
	cr_assert(strstr(report, ": NO_FUNCTION, worker of rank 0"), "%s", report);
	function = "t::fiber";
	cr_assert_neq(crashed(call), 0);
	expect_report(
		"farcall: crash: SIGSEGV at address 0x1230, in the fiber handler \"t::fiber\" on worker \"w1\"\n");
}

#ifndef UNDER_SANITIZER
Test(crash, a_stack_that_overflows)
{
	function = "t::deep";
	cr_assert_neq(crashed(call), 0);
	cr_assert(strstr(report,
			 "farcall: that is in the guard page below the stack of the fiber handler \"t::deep\": it "
			 "overflowed its 32768 bytes; raise opts.fiber_stack_bytes"),
		  "%s", report);
}
#endif

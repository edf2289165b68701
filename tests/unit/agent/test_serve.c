/* SPDX-License-Identifier: BSD-3-Clause */
/** far_serve() of a worker that is alone in its group: what ends it, and whose signals it takes. The test's thread, and
 * one that serves. */
#include "open_files.h"
#include "own_agent.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

static struct far_agent *a;

static void setup(void)
{
	signal(SIGINT, SIG_DFL); /* a shell's command in the background ignores it */
	signal(SIGTERM, SIG_DFL);
	own_dir_make();
	a = own_begin(NULL);
}

static void teardown(void)
{
	own_end(a);
	own_dir_remove();
}

TestSuite(serve, .init = setup, .fini = teardown);

static void *serves(void *arg)
{
	struct far_err *e = arg;
	e->status = far_serve(a, 0, e);
	return NULL;
}

/* Begins far_serve() on a thread, and returns when it waits. */
static pthread_t begin(struct far_err *e)
{
	pthread_t thread;
	*e = (struct far_err){0};
	cr_assert_eq(pthread_create(&thread, NULL, serves, e), 0);
	while (!atomic_load(&a->serving))
		sched_yield();
	return thread;
}

static bool default_action(int number)
{
	struct sigaction now;
	sigaction(number, NULL, &now);
	return now.sa_handler == SIG_DFL;
}

/* Expect it to end at the limit, with its own work there again. */
Test(serve, a_limit)
{
	cr_assert_eq(far_serve(a, FAR_MS, &err), FAR_TIMEOUT);
	cr_assert_str_eq(err.text, "the time limit of far_serve has passed");
	cr_assert(a->has_work && a->serves && !a->serving);
	cr_assert(default_action(SIGTERM) && default_action(SIGINT));
}

Test(serve, until_stopped)
{
	struct far_err e;
	pthread_t thread = begin(&e);
	cr_assert_eq(far_serve(a, 0, &err), FAR_INVALID);
	cr_assert_str_eq(err.text, "worker \"w0\" is in far_serve already, on another thread");
	far_stop(a);
	pthread_join(thread, NULL);
	cr_assert_eq(e.status, FAR_OK, "%s", e.text);
	cr_assert_eq(far_serve(a, 0, &err), FAR_OK, "stopped once is stopped");
	far_stop(NULL);
	cr_assert_eq(far_serve(NULL, 0, &err), FAR_SHUTDOWN);
}

/* A signal ends it, also one that arrives before the thread waits; the action before it is there again afterwards. */
Test(serve, until_a_signal)
{
	static const int stops[] = {SIGTERM, SIGINT};
	struct far_err e;
	for (unsigned i = 0; i < 20; i++) {
		pthread_t thread = begin(&e);
		cr_assert_not(default_action(stops[i % 2]));
		kill(getpid(), stops[i % 2]);
		pthread_join(thread, NULL);
		cr_assert_eq(e.status, FAR_OK, "%s", e.text);
		cr_assert(default_action(stops[i % 2]));
	}
}

static volatile sig_atomic_t own_n;

static void own_action(int number)
{
	own_n++;
}

/* An action of the application stays, and ends nothing. */
Test(serve, the_applications_signals)
{
	struct far_err e;
	struct sigaction now;
	signal(SIGTERM, own_action);
	pthread_t thread = begin(&e);
	sigaction(SIGTERM, NULL, &now);
	cr_assert_eq(now.sa_handler, own_action);
	raise(SIGTERM);
	cr_assert(own_n == 1 && atomic_load(&a->serving));
	far_stop(a);
	pthread_join(thread, NULL);
	cr_assert_eq(e.status, FAR_OK, "%s", e.text);
}

/* Its descriptor is made once. */
Test(serve, again_and_again)
{
	far_serve(a, 1, &err);
	unsigned before = open_files();
	for (unsigned i = 0; i < 100; i++)
		cr_assert_eq(far_serve(a, 1, &err), FAR_TIMEOUT);
	cr_assert_eq(open_files(), before);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Turns SIGINT and SIGTERM into a flag that loops check or wait for; a second signal kills. Signal handler and main
 * thread. */
#include "stop.h"
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define SECOND_NS UINT64_C(1000000000)

static atomic_int stopped; /* written by the handler alone; a lock-free atomic is safe there */
static sem_t woken;        /* posted by the handler */

static void on_signal(int sig)
{
	atomic_store_explicit(&stopped, sig, memory_order_relaxed);
	sem_post(&woken);
}

static void dispose(void (*handler)(int), int flags)
{
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = handler;
	action.sa_flags = flags;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

void stop_install(void)
{
	sem_init(&woken, 0, 0);
	dispose(on_signal, (int)SA_RESETHAND);
}

void stop_restore(void)
{
	dispose(SIG_DFL, 0);
}

int stop_signal(void)
{
	return atomic_load_explicit(&stopped, memory_order_relaxed);
}

int stop_wait(uint64_t ns)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	ns += (uint64_t)until.tv_nsec;
	until.tv_sec += (time_t)(ns / SECOND_NS);
	until.tv_nsec = (long)(ns % SECOND_NS);
	if (!stop_signal())
		(void)sem_clockwait(&woken, CLOCK_MONOTONIC,
				    &until); /* interrupted: by a handler, which set the flag */
	return stop_signal();
}

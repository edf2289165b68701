/* SPDX-License-Identifier: BSD-3-Clause */
/** Turns SIGINT and SIGTERM into a flag that loops check; a second signal kills. Signal handler and main thread. */
#include "stop.h"
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

static atomic_int stopped; /* written by the handler alone; a lock-free atomic is safe there */

static void on_signal(int sig)
{
	atomic_store_explicit(&stopped, sig, memory_order_relaxed);
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

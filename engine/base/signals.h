/* SPDX-License-Identifier: BSD-3-Clause */
/** Signal mask of the library's own threads. Any thread. */
#ifndef FAR_BASE_SIGNALS_H
#define FAR_BASE_SIGNALS_H

#include <signal.h>

/**
 * Mask for a thread of the library: all signals are blocked, since they belong to the application, but for synchronous
 * ones. Those would end the process if they were blocked, without the application's handler.
 */
static inline void signals_thread_mask(sigset_t *set)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
	sigfillset(set);
	for (unsigned i = 0; i < sizeof own / sizeof *own; i++)
		sigdelset(set, own[i]);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** Signals of the library's own threads. */
#ifndef FAR_BASE_SIGNALS_H
#define FAR_BASE_SIGNALS_H

#include <signal.h>

/**
 * The mask of a thread of ours: signals are the application's, and none is delivered there, but for those that the
 * thread brings upon itself. Blocked, these would end the process without a look at the application's own handler.
 */
static inline void signals_of_others(sigset_t *set)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
	sigfillset(set);
	for (unsigned i = 0; i < sizeof own / sizeof *own; i++)
		sigdelset(set, own[i]);
}

#endif

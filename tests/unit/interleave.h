/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Virtual threads that change places at hooks only, and a search through all their interleavings: each schedule is run
 * from its start, by replaying the choices of the last one up to the deepest that has an alternative left.
 */
#ifndef INTERLEAVE_H
#define INTERLEAVE_H

#include <stdbool.h>
#include <stdint.h>

enum { THREADS_MAX = 3 };

struct scenario {
	const char *name;
	void (*setup)(void);
	void (*threads[THREADS_MAX])(void); /* NULL: fewer */
	void (*check)(void);                /* when all have ended */
	int preemptions;                    /* at most, in one schedule; −1: any number */
};

/** In a thread: others may go on here. Nothing outside of threads. */
void interleave_hook(const char *step);
/** Ends the schedule: the code is wrong. */
void interleave_violated(const char *what);
#define HOLDS(condition) ((condition) ? (void)0 : interleave_violated(#condition))

/** Number of the thread that runs. */
int interleave_self(void);
/** As the kernel's futex: compares and sleeps in one step; wakes all who sleep on the word. */
void interleave_sleep(const void *word, bool equal);
void interleave_wake(const void *word);

/** Runs all schedules. Returns how many; *violated tells whether the last one was. What is wrong goes to stderr, with
 * the steps that led there, when `show`. */
uint64_t interleave_search(const struct scenario *s, bool show, bool *violated);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** A line on the terminal while a measurement that prints nothing goes on. Main thread. */
#ifndef PERF_PROGRESS_H
#define PERF_PROGRESS_H

#include <stdint.h>
#include <sys/types.h>

/** Starts a process that prints, each second, how much of `ns` is over, if stderr is a terminal and `ns` is above 2 s.
 * 0 ns: how long is not known; it prints the seconds from the second one on. The next output to the terminal takes the
 * line's place. The process wakes once a second. 0: none. */
pid_t progress_start(const char *what, uint64_t ns);
/** Ends it and clears its line. */
void progress_end(pid_t pid);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** Faults that the test must find, planted by the linker into functions of the path; in a program of its own.
 * Main thread of each process. */
#ifndef PLANTED_H
#define PLANTED_H

#include <farcall/agent.h>

/** How many there are: 0 in the test itself. */
extern const unsigned planted_n;

/** Runs the test with each of them, and looks at its status and its report. The result is an exit status. */
int planted_check(int (*run)(enum far_progress progress));

#endif

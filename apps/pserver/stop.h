/* SPDX-License-Identifier: BSD-3-Clause */
/** SIGINT and SIGTERM as a flag that loops look at. A second signal, or one outside the loops, kills as usual.
 * Signal handlers set it, the main thread reads it. */
#ifndef PSERVER_STOP_H
#define PSERVER_STOP_H

#include <stdint.h>

/** From now on the first of the two signals only raises the flag. */
void stop_install(void);
/** Back to the default: for waits that do not look at the flag. */
void stop_restore(void);
/** The signal that came, or 0. */
int stop_signal(void);
/** Blocks until a signal comes, or for `ns`. Returns stop_signal(). */
int stop_wait(uint64_t ns);

#endif

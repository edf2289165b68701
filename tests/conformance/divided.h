/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A group whose workers are divided between machines: each runs this program with the same tests one after the other,
 * and starts those ranks that FAR_CONFORM_RANKS has, as "02". Without it all four are here.
 * Main thread of each process.
 *
 * FAR_CONFORM_MEET is a directory that all of them see, empty at first, and FAR_CONFORM_HOST the address at which the
 * machine of rank 0 has the store of each test.
 */
#ifndef CONFORM_DIVIDED_H
#define CONFORM_DIVIDED_H

#include <stdbool.h>
#include <stdint.h>

/** Are there workers elsewhere. */
bool divided(void);
/** Is the worker of this rank started here. */
bool divided_has(int rank);
/** Where the store of a test is: an IPv4 address. */
const char *divided_host(void);

/** The test whose numbers are meant from here on, in this process and those that it starts. */
void divided_test(const char *group, const char *name);
/** Writes a number of the test for all machines to see; false: errno says why not. */
bool divided_write(const char *what, int rank, int64_t number);
/** Reads it; 0 when there is none yet. */
int64_t divided_read(const char *what, int rank);

#endif

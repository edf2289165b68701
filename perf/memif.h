/* SPDX-License-Identifier: BSD-3-Clause */
/** `--nic memif`: DPDK's shared-memory device, which joins two processes, with one of its own for each measurement.
 * Main thread of each process. */
#ifndef PERF_MEMIF_H
#define PERF_MEMIF_H

#include "perf.h"

/**
 * When o->nic is "memif": replaces it, and o->server_nic, by what the two sides need, with a socket in the runtime
 * directory. 0; or the exit status, after printing.
 */
int memif_expand(struct perf_opts *o);
/** Removes what a killed process left there. */
void memif_clear(void);

#endif

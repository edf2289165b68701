/* SPDX-License-Identifier: BSD-3-Clause */
/** `--connect HOST:PORT`: the measuring process joins a `farcall perf serve` as rank 1 of 2.
 * Main thread of each process. */
#ifndef PERF_CONNECT_H
#define PERF_CONNECT_H

#include "peer.h"

/** As peer_open() and peer_close(), but the shard is not taken. */
int connect_open(struct peer *p, const struct perf_opts *o);
int connect_close(struct peer *p, const struct perf_opts *o);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Any number of remote shards without memory: a datagram driver whose other side accepts every connection and answers
 * every request at once, with its own bytes. All that an answer needs is in the request, or follows from it, so what is
 * measured over it is one end alone. The thread of the simulated world.
 */
#ifndef PERF_VIRTUAL_SHARDS_H
#define PERF_VIRTUAL_SHARDS_H

#include "nic/nic.h"

#define VIRTUAL_SHARDS_EACH 16u /* queues of the port that they all seem to have */
#define VIRTUAL_CONNECTS    64u /* that may wait for a step() */

/** One port with one queue. Under a link it is that one's, and closed with it. NULL: no memory. */
struct nic_port *virtual_shards_open(void);
/** Packets that only acknowledge, since it was opened. */
uint64_t virtual_shards_acks(const struct nic_port *port);
/** The address, as the engine/transport of the others would publish it. */
void virtual_shards_address(struct nic_addr *out);

#endif

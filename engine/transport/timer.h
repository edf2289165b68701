/* SPDX-License-Identifier: BSD-3-Clause */
/** Timers: the scan of active peers, delayed acknowledgements, RTT samples. Poller. */
#ifndef FAR_TRANSPORT_TIMER_H
#define FAR_TRANSPORT_TIMER_H

#include "nic/nic.h"

struct transport_peer;
struct transport_queue;

uint64_t transport_deadline(const struct nic_queue *nq);
/** Timer scan of all active peers: acknowledgements, retransmissions, probes, pings. */
void transport_timers_run(struct transport_queue *q);
/** Sends the delayed acknowledgements that are due by `until`. */
void transport_delayed_acks_run(struct transport_queue *q, uint64_t until);

/* RTT samples; called if rtt.watch has the bit. */
/* RTT samples; called if rtt.watch has the bit. */
/** The packet of the next sample has left. */
void transport_timing_begin(struct transport_queue *q, struct transport_peer *p, uint32_t number);
/** All packets below `ack` are acknowledged now. Called before they are removed. */
void transport_timing_ack(struct transport_queue *q, struct transport_peer *p, uint32_t ack);
/** Packet `number` is reported as arrived for the first time. */
void transport_timing_arrived(struct transport_queue *q, struct transport_peer *p, uint32_t number);
/** Packet `number` was retransmitted in vain: the receiver has both copies. `first`: it is acknowledged for the
 * first time. Called before the acknowledgement is processed. */
void transport_sent_duplicate(struct transport_queue *q, struct transport_peer *p, uint32_t number, bool first);

#endif

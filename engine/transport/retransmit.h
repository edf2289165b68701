/* SPDX-License-Identifier: BSD-3-Clause */
/** Retransmission and tail loss probes. Poller. */
#ifndef FAR_TRANSPORT_RETRANSMIT_H
#define FAR_TRANSPORT_RETRANSMIT_H

#include <stdbool.h>
#include <stdint.h>

struct transport_peer;
struct transport_queue;
struct transport_sent;

/** Retransmits lost packets: those that later transmissions overtook, or with `all` each one that the bitmap covers. */
void transport_retransmit(struct transport_queue *q, struct transport_peer *p, bool all);
/** Sends a tail loss probe: the last packet that the bitmap covers, so that the ACK shows what is missing. */
void transport_tail_probe(struct transport_queue *q, struct transport_peer *p);
/** Discards the arrivals that the bitmap reported: the receiver may have dropped those packets for lack of memory. */
void transport_ack_bits_forget(struct transport_peer *p);
/** Retransmits a packet in fragments that fit the path MTU. */
void transport_retransmit_fragments(struct transport_queue *q, struct transport_peer *p, const struct transport_sent *e,
				    uint32_t number);
/** Reads the path MTU. true: it shrank. */
bool transport_mtu_shrunk(struct transport_peer *p);

#endif

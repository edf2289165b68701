/* SPDX-License-Identifier: BSD-3-Clause */
/** Larger messages that are sent from the caller's memory while tx_commit() runs. Poller. */
#ifndef FAR_TRANSPORT_BORROW_H
#define FAR_TRANSPORT_BORROW_H

#include "nic/nic.h"

struct transport_message;
struct transport_peer;
struct transport_queue;

/** nic_queue_ops.tx_borrow */
int transport_tx_borrow(struct nic_queue *nq, uint32_t peer, const void *body, uint64_t body_len, struct nic_tx *tx);
/** Commits a borrowed message: sends it while the peer takes it, and copies the rest. */
void transport_borrow_send(struct transport_queue *q, struct transport_peer *p, struct transport_message *m);

#endif

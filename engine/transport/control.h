/* SPDX-License-Identifier: BSD-3-Clause */
/** Control packets: received PING, RESET and CLOSE, set-up packets forwarded to the control thread, and sending.
 * Poller. */
#ifndef FAR_TRANSPORT_CONTROL_H
#define FAR_TRANSPORT_CONTROL_H

#include "nic/nic.h"
#include "transport/wire.h"

struct transport_peer;
struct transport_queue;

/** Processes all kinds but MESSAGE and ACK. `p` NULL: the packet names no connection. */
void transport_receive_control(struct transport_queue *q, struct transport_peer *p, const struct wire_head *h,
			       const struct nic_pkt *lp);
/** Processes a PING that `via` received. With a path number, it probes that path in both directions. */
void transport_receive_ping(struct transport_queue *q, struct transport_peer *p, const struct transport_queue *via,
			    const struct nic_pkt *lp);
/** Processes a RESET or CLOSE that `via` received. */
void transport_receive_end(struct transport_queue *q, struct transport_peer *p, const struct transport_queue *via,
			   const struct wire_head *h, const struct nic_pkt *lp);
/** Forwards a packet that `via` received to the control thread. Drops it if the ring is full; the sender repeats it. */
void transport_mail_forward(struct transport_queue *q, const struct transport_queue *via, const struct nic_pkt *lp);
/** Sends a complete control packet. 0 or -errno of the driver below. */
int transport_send_raw(struct transport_peer *p, const uint8_t *bytes, uint32_t len);
void transport_send_ping(struct transport_queue *q, struct transport_peer *p);

#endif

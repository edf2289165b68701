/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The connecting side of the handshake. Control thread.
 */
#ifndef FAR_TRANSPORT_CONNECT_H
#define FAR_TRANSPORT_CONNECT_H

#include "transport/handshake.h"
#include "transport/port.h"

struct transport_peer;

int transport_connect(struct nic_port *port, const struct nic_connect *c, struct nic_err *err);
/** CHALLENGE: stores the cookie for the next CONNECT. */
void transport_receive_challenge(struct transport_port *p, const struct wire_control *h,
				 const struct transport_handshake *w, uint64_t now);
/** ACCEPT, which `queue` received. */
void transport_receive_accept(struct transport_port *p, unsigned queue, const struct wire_control *h,
			      const struct transport_handshake *w);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** The accepting side of the handshake, and answers to packets of no connection. Control thread. */
#ifndef FAR_TRANSPORT_ACCEPT_H
#define FAR_TRANSPORT_ACCEPT_H

#include "transport/handshake.h"
#include "transport/port.h"

struct transport_peer;

/** CONNECT, which `queue` received. */
void transport_receive_connect(struct transport_port *p, unsigned queue, const struct wire_control *h,
			       const struct transport_handshake *w, uint64_t now);
/** CONNECT arrived at its queue, and the address handle exists: reports it to the engine, and accepts or rejects. */
void transport_decide(struct transport_port *p, struct transport_peer *peer, uint64_t now);
/** Sends the peer's one answer: REJECT or RESET with `error`, or CHALLENGE. Without an address handle yet, it leaves
 * once that is made. */
void transport_refuse(struct transport_port *p, struct transport_peer *peer, int error, uint64_t now);
/** Answers a packet of no connection with one REJECT or RESET (ESTALE). `named`: the identity in the packet, which the
 * answer repeats. */
void transport_answer_stale(struct transport_port *p, unsigned queue, const struct transport_handshake *w,
			    enum wire_kind answer, uint64_t named);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Life cycle of a peer: allocation, table of accepted peers, orders to the poller, set-up packets, events to the
 * engine. Control thread.
 */
#ifndef FAR_TRANSPORT_CONNECTION_H
#define FAR_TRANSPORT_CONNECTION_H

#include "transport/peer.h"
#include "transport/port.h"
#include "transport/wire.h"

/** Takes a free peer and gives it a token. NULL: none is free, or no memory. */
struct transport_peer *transport_peer_new(struct transport_port *p, unsigned queue, enum transport_state state);
/** Returns a peer that neither the poller nor the driver below uses. */
void transport_peer_free(struct transport_port *p, struct transport_peer *peer);
/** Frees a closing peer, unless the poller or the driver below still uses it. */
void transport_peer_release(struct transport_port *p, struct transport_peer *peer);
/** Begins to close a peer: CLOSING. */
void transport_peer_end(struct transport_port *p, struct transport_peer *peer);
/** Orders the poller to report the connection DOWN. */
void transport_peer_kill(struct transport_peer *peer, int error);

/** Finds the accepted peer with this remote identity and token. NULL: none. */
struct transport_peer *transport_accepted_find(const struct transport_port *p, uint64_t id, uint64_t token);
void transport_accepted_add(struct transport_port *p, struct transport_peer *peer);
/** Finds the peer that a packet names. NULL: none, or another incarnation of the port. */
struct transport_peer *transport_peer_named(const struct transport_port *p, const struct wire_control *h);
/** Records a rejected or ended connect request, so that a late copy of its CONNECT begins no new one. */
void transport_refused_keep(struct transport_port *p, const struct transport_peer *peer, int error);

/** Makes an address handle of the driver below for the present flow of the set-up; a NIC_EVENT_UP or FAILED follows. 0
 * or -errno. */
int transport_address_make(struct transport_port *p, struct transport_peer *peer, uint64_t deadline,
			   struct nic_err *err);
/** Drops an address handle of the driver below; NIC_PEER_NONE: no effect. */
void transport_address_drop(struct transport_port *p, uint32_t *handle);
/** Posts orders, enum transport_order, to the poller. */
void transport_order_post(struct transport_peer *peer, uint32_t due);
/** Makes step() process the set-ups at this time, ns. */
void transport_step_by(struct transport_port *p, uint64_t at);

/** Post a set-up packet to the poller: one with a handshake payload, or a reject. No effect while the one before is not
 * sent; the packet is repeated later. */
void transport_post_handshake(struct transport_peer *peer, enum wire_kind kind);
void transport_post_reject(struct transport_peer *peer, enum wire_kind kind, int error, uint32_t flow);
/** Posts CONNECT or ACCEPT and sets the time of its repetition. */
void transport_setup_repeat(struct transport_port *p, struct transport_peer *peer, uint64_t now);
/** Settles a peer: frees its set-up, now or once the poller and the driver below have released it. */
void transport_setup_end(struct transport_port *p, struct transport_peer *peer);

/** WRONG_QUEUE arrived for this flow: tries the next flow. */
void transport_flow_next(struct transport_port *p, struct transport_peer *peer, uint32_t flow, uint64_t now);

/** Report events of a peer. FAILED also ends it. */
void transport_event_failed(struct transport_port *p, struct transport_peer *peer, int error, const char *text);
void transport_connect_failed(struct transport_port *p, struct transport_peer *peer, int error);
void transport_event_up(struct transport_port *p, struct transport_peer *peer);
void transport_event_migrated(struct transport_port *p, struct transport_peer *peer);
void transport_event_down(struct transport_port *p, struct transport_peer *peer, int error);

#endif

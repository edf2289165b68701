/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Set-up of a connection: its state, and the steps of the control thread. Control thread, except where noted.
 */
#ifndef FAR_TRANSPORT_SETUP_H
#define FAR_TRANSPORT_SETUP_H

#include "transport/handshake.h"
#include "transport/mail.h"
#include "transport/path.h"
#include "transport/port.h"

/** Set-up of a connection, until it is settled. Control, except `packet`. */
struct transport_setup {
	struct transport_path_setup primary;      /* connect() of the primary path; only `peer` is set */
	struct transport_setup *next, *prev;      /* port->setups */
	int refuse;                               /* REJECTING: -errno to send; CONNECTING: -errno to report */
	uint32_t wanted_queue;                    /* CONNECTING: queue of the peer */
	uint32_t flow, flows_tried;               /* of the present address handle; how many so far */
	uint32_t request_queue;                   /* ACCEPTING: queue at which the first CONNECT arrived */
	uint32_t request_flow;                    /* ACCEPTING: flow of the first CONNECT */
	uint8_t reply_kind;                       /* REJECTING: enum wire_kind: REJECT, RESET or CHALLENGE */
	uint64_t named;                           /* identity that the request named: ours, or one before a restart */
	struct auth_pair pair;                    /* X25519 keys of this session; zeros without a group key */
	struct transport_proofs proofs;           /* of the next packet */
	uint8_t remote_public[AUTH_PUBLIC_BYTES]; /* public key of the peer */
	uint32_t sent_n;                          /* CONNECT or ACCEPT packets sent */
	uint64_t deadline, repeat_at;             /* ns. UINT64_MAX: none */
	uint64_t repeat_ns;                       /* interval of repetition; grows by half each time */
	uint16_t payload_len;
	uint8_t payload[NIC_HANDSHAKE_BYTES_MAX]; /* handshake payload to send: of the request or the reply */
	uint16_t handshake_len;
	uint8_t handshake[NIC_HANDSHAKE_BYTES_MAX]; /* handshake payload received */
	struct nic_addr addr;                       /* for the driver below */
	uint32_t packet_len;
	uint8_t packet[TRANSPORT_MAIL_BYTES]; /* to send; poller's while peer->setup_full */
};

uint64_t transport_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx);
void transport_drop(struct nic_port *port, uint32_t peer);
/** close(), first part: serves all orders and ends all peers, for the poller too. The queues are idle. */
void transport_port_leave(struct transport_port *p);

#endif

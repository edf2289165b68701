/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Authentication of control packets: tags, cookies, session keys, PING numbers. Control thread and poller, except where
 * noted.
 */
#ifndef FAR_TRANSPORT_AUTH_H
#define FAR_TRANSPORT_AUTH_H

#include "transport/handshake.h"
#include "transport/port.h"

struct transport_peer;
struct transport_queue;

/** What authenticates the control packets of a connection. In a table beside the peers, since no message uses it. */
struct transport_secret {
	/* Control, before TRANSPORT_ORDER_START. */
	struct auth_key key;          /* of the session */
	uint8_t to[AUTH_PROOF_BYTES]; /* transport_auth_address() of the primary path */
	uint64_t issued;              /* no cookie for this peer is newer: transport_refused_keep() */
	/* Poller. */
	uint64_t heard_bits;    /* bit i: PING number `heard` - i has arrived */
	uint32_t heard;         /* highest number of a PING that arrived */
	_Atomic uint32_t pings; /* number of the last PING sent; control reads it */
};
static_assert(sizeof(struct transport_secret) == 72, "an idle session is small");

/** Returns the transport key, which authenticates control packets outside of a session. NULL: security=none. */
static inline const struct auth_key *transport_key(const struct transport_port *p)
{
	return p->config.key ? &p->transport : NULL;
}

struct transport_secret *transport_secret_of(const struct transport_peer *peer);
/** Returns the session key, valid from TRANSPORT_ORDER_START on. NULL: security=none. */
const struct auth_key *transport_session_key(const struct transport_peer *peer);
/** Hash of a published address of the driver below. Zeros without a key. */
void transport_auth_address(const struct transport_port *p, const void *blob, uint32_t len,
			    uint8_t out[AUTH_PROOF_BYTES]);
/** Completes a packet that is otherwise written: sets its tag by `key` (NULL: zeros) and, if `crc`, its CRC. `from`:
 * identity of the sending port. `to`: transport_auth_address() of the destination (NULL: `key` is a session's). */
void transport_tag_write(const struct auth_key *key, uint8_t *packet, uint32_t len, uint64_t from, const uint8_t *to,
			 bool crc);
/** Checks the tag. true without a key. */
bool transport_tag_valid(const struct auth_key *key, const uint8_t *packet, uint32_t len, uint64_t from,
			 const uint8_t *to);
/** Checks that the peer sent this CLOSE, or this RESET in answer to a PING of ours. `via`: port that received it. */
bool transport_end_authentic(const struct transport_peer *p, const struct transport_port *via, const uint8_t *packet,
			     uint32_t len);
/** Returns the number of the PING with this nonce. 0: not the nonce of a PING. */
uint32_t transport_ping_number(const uint8_t nonce[AUTH_NONCE_BYTES]);
void transport_ping_nonce(uint32_t number, uint8_t out[AUTH_NONCE_BYTES]);

/* ---- control thread ---- */

/** Control: derives the transport key once the group key is known. */
void transport_key_update(struct transport_port *p);
/** Computes the cookie for the sender of this CONNECT, issued at this time. */
void transport_cookie(const struct transport_port *p, const struct transport_handshake *handshake, uint64_t issued,
		      uint8_t out[AUTH_PROOF_BYTES]);
/** Checks the cookie of this CONNECT, and its age. */
bool transport_cookie_valid(const struct transport_port *p, const struct transport_handshake *handshake, uint64_t now);
/** Control: derives the session key from both public keys and both handshake payloads, and the proof of it that ACCEPT
 * carries. false: the peer's public key is invalid. */
bool transport_session_begin(const struct transport_port *p, struct transport_peer *peer,
			     uint8_t confirm[AUTH_PROOF_BYTES]);

/* ---- poller ---- */

/** Writes a complete PING about path `path` - 1, or with 0 about none; `via` is the queue that will send it. Returns
 * its length. Poller. */
uint32_t transport_ping_write(uint8_t *out, struct transport_peer *p, const struct transport_queue *via, uint32_t path,
			      const uint8_t to[AUTH_PROOF_BYTES]);
/** Checks the proof of a PING of this connection. Poller. */
bool transport_ping_authentic(const struct transport_peer *p, const uint8_t *packet, uint32_t len,
			      const struct transport_handshake *w);
/** Checks a PING's number against a replay window, and records it. Poller. */
bool transport_ping_fresh(struct transport_secret *s, uint32_t number);

#endif

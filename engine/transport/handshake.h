/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Bytes of set-up packets: encoding and decoding. Control thread and poller.
 */
#ifndef FAR_TRANSPORT_HANDSHAKE_H
#define FAR_TRANSPORT_HANDSHAKE_H

#include "base/auth.h"
#include "transport/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct transport_peer;
struct transport_queue;

/** What binds a set-up packet to its connect request. */
struct transport_proofs {
	uint8_t nonce[AUTH_NONCE_BYTES];
	uint8_t proof[AUTH_PROOF_BYTES];
	uint64_t issued; /* time of the cookie in `proof`, ns of the acceptor's clock */
	uint8_t public[AUTH_PUBLIC_BYTES];
};

/** A decoded struct wire_handshake; pointers into the packet. */
struct transport_handshake {
	uint64_t id, token, issued;
	uint32_t queue, want, path, packet_max, payload_len, addr_len;
	const uint8_t *words, *addr;
	const uint8_t *nonce, *proof, *public;
};

/** A decoded struct wire_reject; pointer into the packet. */
struct transport_reject {
	int error;
	uint32_t path;
	const uint8_t *nonce;
};

/** Writes a packet with a body of struct wire_handshake, without tag and CRC; `via` is the queue that will send it.
 * Returns its length. CONNECT has the length of the longest set-up packet, so that no answer to it is longer. */
uint32_t transport_handshake_write(uint8_t *out, const struct transport_peer *p, const struct transport_queue *via,
				   enum wire_kind kind, unsigned want, uint32_t path, const void *words,
				   uint16_t payload_len, const struct transport_proofs *proofs);
/** The same with a body of struct wire_reject. */
uint32_t transport_reject_write(uint8_t *out, enum wire_kind kind, uint64_t id, uint64_t token, int error,
				uint32_t path, const uint8_t nonce[AUTH_NONCE_BYTES]);
/** Decode a body. false: malformed. */
bool transport_handshake_read(const uint8_t *body, uint64_t len, struct transport_handshake *out);
bool transport_reject_read(const uint8_t *body, uint64_t len, struct transport_reject *out);
/** Reads from the head of CONNECT or ACCEPT what peer_start() needs: features, first packet number, and window (0: not
 * stated). Control. */
void transport_features_read(struct transport_peer *peer, const struct wire_head *h);

#endif

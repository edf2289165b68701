/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Bytes of set-up packets: encoding and decoding. Control thread and poller.
 */
#ifndef FAR_TRANSPORT_HANDSHAKE_H
#define FAR_TRANSPORT_HANDSHAKE_H

#include "base/auth.h"
#include "transport/wire.h"

struct transport_peer;
struct transport_queue;

/** What binds a set-up packet to its connect request. */
struct transport_proofs {
	uint8_t nonce[AUTH_NONCE_BYTES];
	uint8_t cookie[AUTH_PROOF_BYTES]; /* CONNECT, CHALLENGE */
	uint8_t proof[AUTH_PROOF_BYTES];  /* ACCEPT */
	uint64_t issued;                  /* time of the cookie, ns of the acceptor's clock */
	uint8_t public[AUTH_PUBLIC_BYTES];
};

/** A struct wire_handshake, decoded, with pointers into the packet; or to be written. */
struct transport_handshake {
	uint64_t id, token; /* of the sender */
	uint64_t issued;
	uint32_t queue, wanted_queue, flow, path, packet_max;
	uint32_t payload_len, addr_len;
	const uint8_t *payload, *addr;
	const uint8_t *nonce, *cookie, *proof, *public; /* to be written: NULL is zeros */
};

/** A decoded struct wire_reject; pointer into the packet. */
struct transport_reject {
	int error;            /* positive errno; 0 in CLOSE */
	uint32_t flow, path;  /* WRONG_QUEUE: of the packet that it answers; else 0 */
	const uint8_t *nonce; /* of the packet that it answers */
};

/** Writes a packet with a body of struct wire_handshake, without tag and CRC; `via` is the queue that will send it. Of
 * `w` it reads what is not the sender's: wanted_queue, flow, path, payload, proofs. Returns its length. CONNECT has the
 * length of the longest set-up packet, so that no answer to it is longer. */
uint32_t transport_handshake_write(uint8_t *out, const struct transport_peer *p, const struct transport_queue *via,
				   enum wire_kind kind, const struct transport_handshake *w);
/** The same with a body of struct wire_reject, for the port `id` and its connection `token`. */
uint32_t transport_reject_write(uint8_t *out, enum wire_kind kind, uint64_t id, uint64_t token,
				const struct transport_reject *no);
/** Decode a body. false: malformed. */
bool transport_handshake_read(const uint8_t *body, uint64_t len, struct transport_handshake *out);
bool transport_reject_read(const uint8_t *body, uint64_t len, struct transport_reject *out);
/** Reads from the head of CONNECT or ACCEPT what peer_start() needs: features, first packet number, and window (0: not
 * stated). Control. */
void transport_features_read(struct transport_peer *peer, const struct wire_control *h);
/** Leaves of them what this end, too, has stated. Control, before TRANSPORT_ORDER_START, once the peer has an address
 * handle. */
void transport_features_agree(struct transport_peer *peer);

#endif

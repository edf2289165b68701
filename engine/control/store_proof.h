/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * How a connection to the store begins: both ends prove that they have the group's key, and the client says who it is.
 * The messages are those of store_wire.h; here are what their values hold. Numbers are big-endian.
 *
 *   HELLO          the client's nonce (16 bytes), rank (4; 2^32-1: no member), incarnation (8), bytes of the group's
 *                  name (1), bytes of the worker's name (1), both names (of no member: empty)
 *   HELLO's reply  the server's nonce (16), its proof (16); empty: the store has no key (security=none)
 *   PROVE          the client's proof (16)
 *
 * A proof is keyed with the group's key for the purpose "store", labelled "server" or "client", and covers both nonces
 * and all of HELLO. So none can be repeated in another connection, turned back to its sender, or taken for another
 * member's. Pure computation.
 */
#ifndef FAR_CONTROL_STORE_PROOF_H
#define FAR_CONTROL_STORE_PROOF_H

#include "base/auth.h"
#include "base/limits.h"

#include <farcall/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_RANK_NONE       (-1)
#define STORE_HELLO_HEAD      30u
#define STORE_HELLO_MAX       (STORE_HELLO_HEAD + 2 * (FAR_NAME_MAX - 1))
#define STORE_CHALLENGE_BYTES (AUTH_NONCE_BYTES + AUTH_PROOF_BYTES)

/** Who a client is, as it says; true as far as the key is secret. */
struct store_who {
	int rank; /* STORE_RANK_NONE: no member; the names are empty then */
	uint64_t incarnation;
	char group[FAR_NAME_MAX], name[FAR_NAME_MAX];
};

/** A connection in the making: what the proofs cover. */
struct store_greeting {
	uint8_t server_nonce[AUTH_NONCE_BYTES];
	size_t hello_len;
	uint8_t hello[STORE_HELLO_MAX]; /* the client's nonce first */
};

/** The client's HELLO, with a new nonce. */
void store_hello_make(struct store_greeting *g, const struct store_who *who, const struct random_source *random);
/** Reads a HELLO into both: 0 or -EPROTO. */
int store_hello_read(const uint8_t *value, size_t len, struct store_greeting *g, struct store_who *who);

/** The server's challenge, with a new nonce. `key` is the group's. */
void store_challenge_make(struct store_greeting *g, const struct auth_key *key, const struct random_source *random,
			  uint8_t out[STORE_CHALLENGE_BYTES]);
/** Takes the server's nonce of a challenge: 0 or -EPROTO. Then it can be judged by any number of keys. */
int store_challenge_read(struct store_greeting *g, const uint8_t *value, size_t len, uint8_t proof[AUTH_PROOF_BYTES]);
bool store_challenge_holds(const struct store_greeting *g, const struct auth_key *key,
			   const uint8_t proof[AUTH_PROOF_BYTES]);

/** The client's proof. */
void store_proof_make(const struct store_greeting *g, const struct auth_key *key, uint8_t out[AUTH_PROOF_BYTES]);
bool store_proof_holds(const struct store_greeting *g, const struct auth_key *key, const uint8_t *value, size_t len);

#endif

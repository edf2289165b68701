/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Login to the store: both ends prove that they have the group's key, and the client states its identity. Control
 * thread; pure computation. store_wire.h defines the frames; their values are (numbers little-endian):
 *
 *   LOGIN          the client's nonce (16 bytes), rank (4; 2^32-1: no member), incarnation (8), bytes of the group's
 *                  name (1), bytes of the worker's name (1), both names (of no member: empty)
 *   LOGIN's reply  the server's nonce (16), its proof (16); empty: the store has no key (security=none)
 *   PROVE          the client's proof (16)
 *
 * A proof is keyed with the group's key for the purpose "store", labelled "server" or "client", and covers both nonces
 * and all of LOGIN. So a proof is valid in one connection, for one direction and for one member only.
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
#define STORE_LOGIN_HEAD      30u
#define STORE_LOGIN_MAX       (STORE_LOGIN_HEAD + 2 * (FAR_NAME_MAX - 1))
#define STORE_CHALLENGE_BYTES (AUTH_NONCE_BYTES + AUTH_PROOF_BYTES)

/** Identity that a client states; proven as far as the key is secret. */
struct store_identity {
	int rank; /* STORE_RANK_NONE: no member; the names are empty then */
	uint64_t incarnation;
	char group[FAR_NAME_MAX], name[FAR_NAME_MAX];
};

/** State of a login: the values that the proofs cover. */
struct store_auth {
	uint8_t server_nonce[AUTH_NONCE_BYTES];
	size_t login_len;
	uint8_t login[STORE_LOGIN_MAX]; /* the client's nonce first */
};

/* ---- Client ---- */

/** Writes a LOGIN value with a new nonce into *g. */
void store_login_make(struct store_auth *g, const struct store_identity *who, const struct random_source *random);
/* ---- Server ---- */

/** Decodes a LOGIN value into *g and *who: 0 or -EPROTO. */
int store_login_read(const uint8_t *value, size_t len, struct store_auth *g, struct store_identity *who);

/** Writes the challenge, with a new nonce and the server's proof. `key`: the group's. */
void store_challenge_make(struct store_auth *g, const struct auth_key *key, const struct random_source *random,
			  uint8_t out[STORE_CHALLENGE_BYTES]);
/** Verifies the value of a PROVE. */
bool store_proof_verify(const struct store_auth *g, const struct auth_key *key, const uint8_t *value, size_t len);

/* ---- Client ---- */

/** Decodes a challenge into *g and `proof`: 0 or -EPROTO. store_challenge_verify() may follow for any number of keys.
 */
int store_challenge_read(struct store_auth *g, const uint8_t *value, size_t len, uint8_t proof[AUTH_PROOF_BYTES]);
/** Verifies the server's proof. */
bool store_challenge_verify(const struct store_auth *g, const struct auth_key *key,
			    const uint8_t proof[AUTH_PROOF_BYTES]);

/** Writes the client's proof. */
void store_proof_make(const struct store_auth *g, const struct auth_key *key, uint8_t out[AUTH_PROOF_BYTES]);

#endif

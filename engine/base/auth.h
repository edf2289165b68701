/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Proofs of a group's key by keyed BLAKE2b over length-prefixed pieces, and session keys by X25519. Any thread; pure
 * computation: no lock, no allocation, no system call. Randomness comes from the caller's source.
 */
#ifndef FAR_BASE_AUTH_H
#define FAR_BASE_AUTH_H

#include "base/random.h"

#include <sodium/crypto_generichash.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUTH_KEY_BYTES    32u
#define AUTH_PROOF_BYTES  16u
#define AUTH_NONCE_BYTES  16u
#define AUTH_PUBLIC_BYTES 32u

/** A secret key of a group, a purpose or a session. Erased with auth_erase(). */
struct auth_key {
	uint8_t bytes[AUTH_KEY_BYTES];
};

/** An X25519 key pair. */
struct auth_pair {
	uint8_t secret[32];
	uint8_t public[AUTH_PUBLIC_BYTES];
};

/** State of a proof between auth_mac_begin() and auth_mac_end(). */
struct auth_mac {
	crypto_generichash_state state;
};

/** Fills `out` with random bytes. */
void auth_random(void *out, size_t len, const struct random_source *random);
/** Overwrites a secret. */
void auth_erase(void *secret, size_t len);

/** Derives the key of one purpose ("store", "transport", ...), bound to `text`, such as the group's name; "": none. */
void auth_derive(struct auth_key *out, const struct auth_key *key, const char *purpose, const char *text);

/** Begins a proof. `label`: one for each message and direction, so that a proof is valid for one of them only. */
void auth_mac_begin(struct auth_mac *m, const struct auth_key *key, const char *label);
/** Adds a piece, preceded by its length: two sequences of pieces have the same proof only if all pieces are equal. */
void auth_mac_add(struct auth_mac *m, const void *data, size_t len);
void auth_mac_end(struct auth_mac *m, uint8_t proof[AUTH_PROOF_BYTES]);

/** Compares two proofs in constant time. */
bool auth_equal(const uint8_t a[AUTH_PROOF_BYTES], const uint8_t b[AUTH_PROOF_BYTES]);

/** Makes a key pair. */
void auth_pair_make(struct auth_pair *out, const struct random_source *random);
/** Computes the public half from the secret one. */
void auth_pair_public(struct auth_pair *pair);

/**
 * Derives the key of a session, the same at both ends, from the shared secret, both public keys in the order of their
 * values, and the proof of the transcript, keyed with `key`. false: `theirs` is a point of low order, which no correct
 * peer sends.
 */
bool auth_session_key(struct auth_key *out, const struct auth_key *key, const struct auth_pair *own,
		      const uint8_t theirs[AUTH_PUBLIC_BYTES], const uint8_t transcript[AUTH_PROOF_BYTES]);

#endif

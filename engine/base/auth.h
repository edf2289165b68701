/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Proofs of a group's key: keyed BLAKE2b over length-prefixed pieces, and X25519 for keys of one session, by libsodium.
 * Any thread; pure computation: no lock, no allocation, no system call. Randomness comes from the caller's source.
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

/** A secret: of a group, of one purpose, of one session. Erased with auth_erase(). */
struct auth_key {
	uint8_t bytes[AUTH_KEY_BYTES];
};

/** An X25519 pair. */
struct auth_pair {
	uint8_t secret[32];
	uint8_t public[AUTH_PUBLIC_BYTES];
};

/** A proof in the making. */
struct auth_mac {
	crypto_generichash_state state;
};

void auth_random(void *out, size_t len, const struct random_source *random);
void auth_erase(void *secret, size_t len);

/** The key of one purpose ("store", "transport", ...), bound to text, such as the group's name ("" where there is
 * none). */
void auth_derive(struct auth_key *out, const struct auth_key *key, const char *purpose, const char *text);

/** label: one per message and direction, so that no proof stands for another. */
void auth_mac_begin(struct auth_mac *m, const struct auth_key *key, const char *label);
/** A piece, behind its length: two sequences of pieces give the same proof only if they are equal piece by piece. */
void auth_mac_add(struct auth_mac *m, const void *data, size_t len);
void auth_mac_end(struct auth_mac *m, uint8_t proof[AUTH_PROOF_BYTES]);

/** Equal, in a time that does not depend on where they differ. */
bool auth_equal(const uint8_t a[AUTH_PROOF_BYTES], const uint8_t b[AUTH_PROOF_BYTES]);

void auth_pair_make(struct auth_pair *out, const struct random_source *random);
/** Computes the public half from the secret one. */
void auth_pair_public(struct auth_pair *pair);

/**
 * The key of one session, the same at both ends: of the shared secret, both public keys in their order of value, and
 * the transcript's proof, keyed with key. False: theirs is a point of low order, which no honest end sends.
 */
bool auth_session_key(struct auth_key *out, const struct auth_key *key, const struct auth_pair *own,
		      const uint8_t theirs[AUTH_PUBLIC_BYTES], const uint8_t transcript[AUTH_PROOF_BYTES]);

#endif

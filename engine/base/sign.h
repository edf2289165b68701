/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Signatures of plugins: Ed25519 over a label and the file's BLAKE2b digest. Any thread; pure computation.
 */
#ifndef FAR_BASE_SIGN_H
#define FAR_BASE_SIGN_H

#include "base/auth.h"

#define SIGN_BYTES        64u /* of a signature */
#define SIGN_PUBLIC_BYTES 32u

/** Computes the public key that belongs to a secret one. */
void sign_public(const struct auth_key *secret, uint8_t out[SIGN_PUBLIC_BYTES]);
/** Signs data[0, len). */
void sign_make(const struct auth_key *secret, const void *data, size_t len, uint8_t out[SIGN_BYTES]);
/** True if the signature of data[0, len) was made with the secret key of `public`. */
bool sign_valid(const uint8_t public[SIGN_PUBLIC_BYTES], const void *data, size_t len,
		const uint8_t signature[SIGN_BYTES]);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** Signatures of plugins by libsodium. Any thread; pure computation. */
#include "base/sign.h"

#include <sodium/crypto_sign_ed25519.h>
#include <string.h>

#define LABEL        "farcall plugin 1"
#define LABEL_BYTES  (sizeof LABEL - 1)
#define DIGEST_BYTES 64u

_Static_assert(SIGN_BYTES == crypto_sign_ed25519_BYTES && SIGN_PUBLIC_BYTES == crypto_sign_ed25519_PUBLICKEYBYTES &&
		       AUTH_KEY_BYTES == crypto_sign_ed25519_SEEDBYTES,
	       "the sizes are libsodium's");

/* What is signed. */
struct statement {
	uint8_t label[LABEL_BYTES];
	uint8_t digest[DIGEST_BYTES];
};

static void state(struct statement *s, const void *data, size_t len)
{
	memcpy(s->label, LABEL, LABEL_BYTES);
	crypto_generichash(s->digest, sizeof s->digest, data, len, NULL, 0);
}

/* The seed is derived, so that a group's key that somebody signs with is not revealed by an error in the signature. */
static void make_pair(const struct auth_key *secret, uint8_t public[SIGN_PUBLIC_BYTES],
		      uint8_t pair[crypto_sign_ed25519_SECRETKEYBYTES])
{
	struct auth_key seed;
	auth_derive(&seed, secret, "plugin", "");
	crypto_sign_ed25519_seed_keypair(public, pair, seed.bytes);
	auth_erase(&seed, sizeof seed);
}

void sign_public(const struct auth_key *secret, uint8_t out[SIGN_PUBLIC_BYTES])
{
	uint8_t pair[crypto_sign_ed25519_SECRETKEYBYTES];
	make_pair(secret, out, pair);
	auth_erase(pair, sizeof pair);
}

void sign_make(const struct auth_key *secret, const void *data, size_t len, uint8_t out[SIGN_BYTES])
{
	uint8_t public[SIGN_PUBLIC_BYTES], pair[crypto_sign_ed25519_SECRETKEYBYTES];
	struct statement s;
	state(&s, data, len);
	make_pair(secret, public, pair);
	crypto_sign_ed25519_detached(out, NULL, (const uint8_t *)&s, sizeof s, pair);
	auth_erase(pair, sizeof pair);
}

bool sign_valid(const uint8_t public[SIGN_PUBLIC_BYTES], const void *data, size_t len,
		const uint8_t signature[SIGN_BYTES])
{
	struct statement s;
	state(&s, data, len);
	return crypto_sign_ed25519_verify_detached(signature, (const uint8_t *)&s, sizeof s, public) == 0;
}

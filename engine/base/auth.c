/* SPDX-License-Identifier: BSD-3-Clause */
/* Proofs and keys, by libsodium. Any thread. The functions used need no sodium_init(), since none draws randomness. */
#include "base/auth.h"

#include "base/must.h"

#include <sodium/crypto_scalarmult_curve25519.h>
#include <sodium/crypto_verify_16.h>
#include <sodium/utils.h>
#include <string.h>

void auth_random(void *out, size_t len, const struct random_source *random)
{
	uint8_t *at = out;
	/* A source's word is never 0; seven of its eight bytes are used, so that this does not show in the result. */
	for (size_t done = 0; done < len;) {
		uint64_t word = random_next(random);
		size_t n = len - done < 7 ? len - done : 7;
		memcpy(at + done, &word, n);
		done += n;
	}
}

void auth_erase(void *secret, size_t len)
{
	sodium_memzero(secret, len);
}

static void begin(struct auth_mac *m, const struct auth_key *key, const char *label, size_t out_len)
{
	must(crypto_generichash_init(&m->state, key->bytes, sizeof key->bytes, out_len) == 0);
	auth_mac_add(m, label, strlen(label));
}

void auth_mac_begin(struct auth_mac *m, const struct auth_key *key, const char *label)
{
	begin(m, key, label, AUTH_PROOF_BYTES);
}

void auth_mac_add(struct auth_mac *m, const void *data, size_t len)
{
	uint8_t prefix[8];
	for (unsigned i = 0; i < sizeof prefix; i++)
		prefix[i] = (uint8_t)((uint64_t)len >> (8 * i));
	must(crypto_generichash_update(&m->state, prefix, sizeof prefix) == 0);
	must(crypto_generichash_update(&m->state, data, len) == 0);
}

void auth_mac_end(struct auth_mac *m, uint8_t proof[AUTH_PROOF_BYTES])
{
	must(crypto_generichash_final(&m->state, proof, AUTH_PROOF_BYTES) == 0);
	auth_erase(m, sizeof *m);
}

void auth_derive(struct auth_key *out, const struct auth_key *key, const char *purpose, const char *text)
{
	struct auth_mac m;
	begin(&m, key, purpose, sizeof out->bytes);
	auth_mac_add(&m, text, strlen(text));
	must(crypto_generichash_final(&m.state, out->bytes, sizeof out->bytes) == 0);
	auth_erase(&m, sizeof m);
}

bool auth_equal(const uint8_t a[AUTH_PROOF_BYTES], const uint8_t b[AUTH_PROOF_BYTES])
{
	return crypto_verify_16(a, b) == 0;
}

void auth_pair_make(struct auth_pair *out, const struct random_source *random)
{
	auth_random(out->secret, sizeof out->secret, random);
	auth_pair_public(out);
}

void auth_pair_public(struct auth_pair *pair)
{
	must(crypto_scalarmult_curve25519_base(pair->public, pair->secret) == 0);
}

bool auth_session_key(struct auth_key *out, const struct auth_key *key, const struct auth_pair *own,
		      const uint8_t theirs[AUTH_PUBLIC_BYTES], const uint8_t transcript[AUTH_PROOF_BYTES])
{
	uint8_t shared[crypto_scalarmult_curve25519_BYTES];
	struct auth_mac m;
	if (crypto_scalarmult_curve25519(shared, own->secret, theirs) != 0)
		return false;
	bool own_first = memcmp(own->public, theirs, AUTH_PUBLIC_BYTES) < 0;
	begin(&m, key, "session", sizeof out->bytes);
	auth_mac_add(&m, shared, sizeof shared);
	auth_mac_add(&m, own_first ? own->public : theirs, AUTH_PUBLIC_BYTES);
	auth_mac_add(&m, own_first ? theirs : own->public, AUTH_PUBLIC_BYTES);
	auth_mac_add(&m, transcript, AUTH_PROOF_BYTES);
	must(crypto_generichash_final(&m.state, out->bytes, sizeof out->bytes) == 0);
	auth_erase(&m, sizeof m);
	auth_erase(shared, sizeof shared);
	return true;
}

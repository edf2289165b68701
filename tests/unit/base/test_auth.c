/* SPDX-License-Identifier: BSD-3-Clause */
/** Proofs of keys: every input counts, X25519, session keys. The test's thread. */
#include "base/auth.h"

#include <criterion/criterion.h>
#include <string.h>

static uint64_t count_next(void *ctx)
{
	return ++*(uint64_t *)ctx * UINT64_C(0x9e3779b97f4a7c15);
}

static struct auth_key key_of(uint8_t fill)
{
	struct auth_key key;
	memset(key.bytes, fill, sizeof key.bytes);
	return key;
}

static void mac_of(uint8_t out[AUTH_PROOF_BYTES], const struct auth_key *key, const char *label, const char *a,
		   const char *b)
{
	struct auth_mac m;
	auth_mac_begin(&m, key, label);
	auth_mac_add(&m, a, strlen(a));
	auth_mac_add(&m, b, strlen(b));
	auth_mac_end(&m, out);
}

Test(auth, proof_depends_on_every_input)
{
	struct auth_key one = key_of(1), two = key_of(2);
	uint8_t base[AUTH_PROOF_BYTES], other[AUTH_PROOF_BYTES];
	mac_of(base, &one, "hello", "ab", "c");
	mac_of(other, &one, "hello", "ab", "c");
	cr_assert(auth_equal(base, other));
	mac_of(other, &two, "hello", "ab", "c");
	cr_assert(!auth_equal(base, other), "the key");
	mac_of(other, &one, "welcome", "ab", "c");
	cr_assert(!auth_equal(base, other), "the label");
	mac_of(other, &one, "hello", "a", "bc");
	cr_assert(!auth_equal(base, other), "where a piece ends");
	mac_of(other, &one, "hello", "ab", "d");
	cr_assert(!auth_equal(base, other), "the last piece");
	for (unsigned i = 0; i < AUTH_PROOF_BYTES; i++) {
		memcpy(other, base, sizeof other);
		other[i] ^= 0x80;
		cr_assert(!auth_equal(base, other), "byte %u", i);
	}
}

Test(auth, derived_keys_differ_by_purpose_and_text)
{
	struct auth_key group = key_of(7), a, b;
	auth_derive(&a, &group, "store", "g");
	auth_derive(&b, &group, "store", "g");
	cr_assert_arr_eq(a.bytes, b.bytes, sizeof a.bytes);
	auth_derive(&b, &group, "shm", "g");
	cr_assert_neq(memcmp(a.bytes, b.bytes, sizeof a.bytes), 0);
	auth_derive(&b, &group, "store", "h");
	cr_assert_neq(memcmp(a.bytes, b.bytes, sizeof a.bytes), 0);
	cr_assert_neq(memcmp(a.bytes, group.bytes, sizeof a.bytes), 0);
}

/* RFC 7748, section 6.1. */
Test(auth, public_key_is_x25519)
{
	static const uint8_t secret[32] = {0x77, 0x07, 0x6d, 0x0a, 0x73, 0x18, 0xa5, 0x7d, 0x3c, 0x16, 0xc1,
					   0x72, 0x51, 0xb2, 0x66, 0x45, 0xdf, 0x4c, 0x2f, 0x87, 0xeb, 0xc0,
					   0x99, 0x2a, 0xb1, 0x77, 0xfb, 0xa5, 0x1d, 0xb9, 0x2c, 0x2a};
	static const uint8_t public[32] = {0x85, 0x20, 0xf0, 0x09, 0x89, 0x30, 0xa7, 0x54, 0x74, 0x8b, 0x7d,
					   0xdc, 0xb4, 0x3e, 0xf7, 0x5a, 0x0d, 0xbf, 0x3a, 0x0d, 0x26, 0x38,
					   0x1a, 0xf4, 0xeb, 0xa4, 0xa9, 0x8e, 0xaa, 0x9b, 0x4e, 0x6a};
	struct auth_pair pair, zero;
	uint64_t at = 0;
	uint8_t own[AUTH_PUBLIC_BYTES];
	auth_pair_make(&pair, &(struct random_source){count_next, &at});
	memcpy(pair.secret, secret, sizeof secret);
	auth_pair_public(&pair);
	memcpy(own, pair.public, sizeof own);
	cr_assert_arr_eq(own, public, sizeof public);
	auth_pair_make(&zero, &(struct random_source){count_next, &at});
	cr_assert_neq(memcmp(zero.public, own, sizeof own), 0);
}

Test(auth, both_ends_have_one_session_key)
{
	struct auth_key group = key_of(7), wrong = key_of(8), at_a, at_b;
	struct auth_pair a, b, c;
	uint8_t transcript[AUTH_PROOF_BYTES] = {1}, other[AUTH_PROOF_BYTES] = {2}, low[AUTH_PUBLIC_BYTES] = {0};
	uint64_t at = 0;
	struct random_source random = {count_next, &at};
	auth_pair_make(&a, &random);
	auth_pair_make(&b, &random);
	auth_pair_make(&c, &random);
	cr_assert(auth_session_key(&at_a, &group, &a, b.public, transcript));
	cr_assert(auth_session_key(&at_b, &group, &b, a.public, transcript));
	cr_assert_arr_eq(at_a.bytes, at_b.bytes, sizeof at_a.bytes);
	cr_assert(auth_session_key(&at_b, &group, &c, a.public, transcript));
	cr_assert_neq(memcmp(at_a.bytes, at_b.bytes, sizeof at_a.bytes), 0, "another pair");
	cr_assert(auth_session_key(&at_b, &wrong, &b, a.public, transcript));
	cr_assert_neq(memcmp(at_a.bytes, at_b.bytes, sizeof at_a.bytes), 0, "another group");
	cr_assert(auth_session_key(&at_b, &group, &b, a.public, other));
	cr_assert_neq(memcmp(at_a.bytes, at_b.bytes, sizeof at_a.bytes), 0, "another transcript");
	cr_assert(!auth_session_key(&at_b, &group, &b, low, transcript), "a point of low order");
}

Test(auth, random_fills_all_and_follows_its_source)
{
	uint64_t at = 0, again = 0;
	uint8_t a[33] = {0}, b[33] = {0};
	auth_random(a, sizeof a, &(struct random_source){count_next, &at});
	auth_random(b, sizeof b, &(struct random_source){count_next, &again});
	cr_assert_arr_eq(a, b, sizeof a);
	cr_assert_eq(at, 5);
	unsigned zeros = 0;
	for (unsigned i = 0; i < sizeof a; i++)
		zeros += a[i] == 0;
	cr_assert_leq(zeros, 3);
	cr_assert_neq(memcmp(a, a + 7, 7), 0);
}

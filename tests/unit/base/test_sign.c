/* SPDX-License-Identifier: BSD-3-Clause */
/** Signatures of plugins: what each input changes, and a key that never signs the same way for a group.
 * The test's thread. */
#include "base/sign.h"

#include <criterion/criterion.h>
#include <string.h>

static struct auth_key key_of(uint8_t fill)
{
	struct auth_key key;
	memset(key.bytes, fill, sizeof key.bytes);
	return key;
}

Test(base_sign, depends_on_every_bit)
{
	const struct auth_key key = key_of(1);
	uint8_t public[SIGN_PUBLIC_BYTES], signature[SIGN_BYTES];
	char data[] = "a shared object";
	sign_public(&key, public);
	sign_make(&key, data, sizeof data, signature);
	cr_assert(sign_valid(public, data, sizeof data, signature));
	cr_assert(!sign_valid(public, data, sizeof data - 1, signature), "the length");
	for (size_t i = 0; i < 8 * sizeof data; i++) {
		data[i / 8] ^= (char)(1 << i % 8);
		cr_assert(!sign_valid(public, data, sizeof data, signature), "bit %zu of the data", i);
		data[i / 8] ^= (char)(1 << i % 8);
	}
	for (size_t i = 0; i < 8 * sizeof signature; i++) {
		signature[i / 8] ^= (uint8_t)(1 << i % 8);
		cr_assert(!sign_valid(public, data, sizeof data, signature), "bit %zu of the signature", i);
		signature[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	cr_assert(sign_valid(public, data, sizeof data, signature));
}

Test(base_sign, keys)
{
	const struct auth_key one = key_of(1), two = key_of(2);
	uint8_t first[SIGN_PUBLIC_BYTES], second[SIGN_PUBLIC_BYTES], again[SIGN_PUBLIC_BYTES], signature[SIGN_BYTES];
	sign_public(&one, first);
	sign_public(&two, second);
	sign_public(&one, again);
	cr_assert(memcmp(first, again, sizeof first) == 0);
	cr_assert(memcmp(first, second, sizeof first) != 0);
	cr_assert(memcmp(first, one.bytes, sizeof first) != 0);
	sign_make(&one, "x", 1, signature);
	cr_assert(!sign_valid(second, "x", 1, signature));
	memset(second, 0, sizeof second); /* a point of low order, for which a forged signature is easy */
	memset(signature, 0, sizeof signature);
	cr_assert(!sign_valid(second, "x", 1, signature));
}

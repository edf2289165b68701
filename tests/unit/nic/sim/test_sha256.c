/* SPDX-License-Identifier: BSD-3-Clause */
/** SHA-256 against the examples of its standard. The test's thread. */
#include "nic/sim/sha256.h"

#include <criterion/criterion.h>
#include <string.h>

/* The examples of FIPS 180-4's companion, and the lengths around a block. */
Test(sha256, examples_of_the_standard)
{
	static const struct {
		const char *text;
		unsigned repeat;
		const char *sum;
	} vectors[] = {
		{"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
		 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
		{"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopq"
		 "rs"
		 "tnopqrstu",
		 1, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
		{"a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
	};
	char sum[SHA256_TEXT_BYTES];
	for (unsigned i = 0; i < sizeof vectors / sizeof *vectors; i++) {
		struct sha256 s;
		sha256_init(&s);
		for (unsigned k = 0; k < vectors[i].repeat; k++)
			sha256_add(&s, vectors[i].text, strlen(vectors[i].text));
		sha256_text(&s, sum);
		cr_assert_str_eq(sum, vectors[i].sum);
	}
}

Test(sha256, in_any_portions)
{
	static uint8_t bytes[300];
	for (unsigned i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(i * 7);
	for (unsigned len = 0; len < sizeof bytes; len++)
		for (unsigned cut = 0; cut <= len; cut += 13) {
			struct sha256 whole, parts;
			char sum[SHA256_TEXT_BYTES], other[SHA256_TEXT_BYTES];
			sha256_init(&whole);
			sha256_init(&parts);
			sha256_add(&whole, bytes, len);
			sha256_add(&parts, bytes, cut);
			sha256_text(&parts, sum); /* changes nothing */
			sha256_add(&parts, bytes + cut, len - cut);
			sha256_text(&whole, sum);
			sha256_text(&parts, other);
			cr_assert_str_eq(sum, other);
		}
}

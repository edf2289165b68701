/* SPDX-License-Identifier: BSD-3-Clause */
/** CRC32C by table and by instruction. The test's thread. */
#include "base/crc32c.h"

#include <criterion/criterion.h>
#include <string.h>

/* RFC 3720, appendix B.4, and the check value of the catalogue of CRCs. */
Test(crc32c, known_values)
{
	uint8_t bytes[48];
	static const struct {
		const char *bytes;
		size_t len;
		uint32_t crc;
	} texts[] = {{"", 0, 0}, {"123456789", 9, 0xe3069283}, {"a", 1, 0xc1d04330}};
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(crc32c(0, texts[i].bytes, texts[i].len), texts[i].crc);
		cr_assert_eq(crc32c_table(0, texts[i].bytes, texts[i].len), texts[i].crc);
	}
	memset(bytes, 0, 32);
	cr_assert_eq(crc32c(0, bytes, 32), 0x8a9136aa);
	memset(bytes, 0xff, 32);
	cr_assert_eq(crc32c(0, bytes, 32), 0x62a8ab43);
	for (unsigned i = 0; i < 32; i++)
		bytes[i] = (uint8_t)i;
	cr_assert_eq(crc32c(0, bytes, 32), 0x46dd794e);
	for (unsigned i = 0; i < 32; i++)
		bytes[i] = (uint8_t)(31 - i);
	cr_assert_eq(crc32c(0, bytes, 32), 0x113fdb5c);
}

/* Both ways of computing it, in parts and at once, at all alignments, around the lengths of their loops. */
Test(crc32c, ways_agree)
{
	static uint8_t bytes[20000];
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(i * 167 + i / 251);
	static const size_t around[] = {0, 8, 16, 1024, 3072, 6144, 9216, 19000};
	for (unsigned k = 0; k < sizeof around / sizeof *around; k++)
		for (size_t len = around[k] < 9 ? 0 : around[k] - 9; len < around[k] + 9; len++) {
			const uint8_t *at = bytes + len % 8;
			uint32_t crc = crc32c_table(0, at, len);
			cr_assert_eq(crc32c(0, at, len), crc, "%zu bytes", len);
			size_t cut = len * 3 / 7;
			cr_assert_eq(crc32c(crc32c(0, at, cut), at + cut, len - cut), crc);
			cr_assert_eq(crc32c_table(crc32c_table(0, at, cut), at + cut, len - cut), crc);
		}
}

/* Any one bit, and any two neighbouring bytes, change it. */
Test(crc32c, finds_damage)
{
	uint8_t bytes[128];
	for (unsigned i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(i * 31);
	uint32_t crc = crc32c(0, bytes, sizeof bytes);
	for (unsigned bit = 0; bit < 8 * sizeof bytes; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		cr_assert_neq(crc32c(0, bytes, sizeof bytes), crc);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

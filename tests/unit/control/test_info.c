/* SPDX-License-Identifier: BSD-3-Clause */
/** Infos of members and payloads of handshakes: read as written, malformed ones refused, proofs for one rank. The
 * test's thread. */
#include "base/limits.h"
#include "control/info.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint8_t out[FAR_STORE_VALUE_MAX];

static struct info member(void)
{
	struct info i = {.name = "worker", .incarnation = 77, .shards = 2, .lazy = true, .message_bytes_max = 1 << 20};
	i.addrs_n = 2;
	strcpy(i.addrs[0].driver, "shm");
	i.addrs[0].len = 3;
	memcpy(i.addrs[0].blob, "abc", 3);
	strcpy(i.addrs[1].driver, "udp");
	return i;
}

/* Decodes a copy of just its bytes, which a sanitizer watches. */
static int decode(size_t len, struct info *got)
{
	uint8_t *copy = malloc(len ? len : 1);
	cr_assert_not_null(copy);
	memcpy(copy, out, len);
	int rc = info_decode(copy, len, got);
	free(copy);
	return rc;
}

Test(info, comes_back)
{
	struct info i = member(), got;
	size_t len = info_encode(&i, out);
	cr_assert_eq(decode(len, &got), 0);
	cr_assert_str_eq(got.name, "worker");
	cr_assert(got.incarnation == 77 && got.shards == 2 && got.lazy && got.message_bytes_max == 1 << 20);
	cr_assert_eq(got.addrs_n, 2u);
	cr_assert_str_eq(got.addrs[0].driver, "shm");
	cr_assert(got.addrs[0].len == 3 && memcmp(got.addrs[0].blob, "abc", 3) == 0);
	cr_assert_str_eq(got.addrs[1].driver, "udp");
	cr_assert_eq(got.addrs[1].len, 0u);
	for (size_t cut = 0; cut < len; cut++)
		cr_assert_eq(decode(cut, &got), -EPROTO, "cut to %zu of %zu", cut, len);
	out[len] = 0;
	cr_assert_eq(decode(len + 1, &got), -EPROTO, "a byte more");
}

Test(info, the_longest_fits_a_value)
{
	struct info i = member(), got;
	memset(i.name, 'n', FAR_NAME_MAX - 1);
	i.addrs_n = INFO_PORTS_MAX;
	for (unsigned k = 0; k < INFO_PORTS_MAX; k++) {
		memset(i.addrs[k].driver, 'd', sizeof i.addrs[k].driver - 1);
		i.addrs[k].len = NIC_ADDR_BYTES_MAX;
	}
	size_t len = info_encode(&i, out);
	cr_assert_leq(len, sizeof out);
	cr_assert_eq(decode(len, &got), 0);
	cr_assert_eq(strlen(got.name), (size_t)FAR_NAME_MAX - 1);
}

Test(info, malformed)
{
	static const struct {
		size_t at;
		uint8_t value;
	} table[] = {{0, 3},  {1, 0}, {1, FAR_NAME_MAX}, {2, 0}, {2, FAR_SHARDS_MAX + 1}, {20, INFO_PORTS_MAX + 1},
		     {20, 1}, {20, 3}};
	struct info i = member(), got;
	for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
		size_t len = info_encode(&i, out);
		out[table[k].at] = table[k].value;
		cr_expect_eq(decode(len, &got), -EPROTO, "case %zu", k);
	}
	size_t len = info_encode(&i, out);
	memset(out + 4, 0, 8);
	cr_expect_eq(decode(len, &got), -EPROTO, "no incarnation");
	len = info_encode(&i, out);
	out[21 + AUTH_PROOF_BYTES + 2] = 0;
	cr_expect_eq(decode(len, &got), -EPROTO, "a NUL in the name");
}

Test(info, a_proof_is_for_one_key_rank_and_content)
{
	struct auth_key key = {{1}}, other = {{2}};
	struct info i = member();
	size_t len = info_encode(&i, out);
	cr_assert_not(info_is_sealed(out, len, &key, 3));
	info_seal(out, len, &key, 3);
	cr_assert(info_is_sealed(out, len, &key, 3));
	cr_assert_not(info_is_sealed(out, len, &key, 4));
	cr_assert_not(info_is_sealed(out, len, &other, 3));
	for (size_t at = 0; at < len; at++) {
		out[at] ^= 1;
		cr_assert_not(info_is_sealed(out, len, &key, 3), "byte %zu", at);
		out[at] ^= 1;
		cr_assert_not(info_is_sealed(out, at, &key, 3), "cut to %zu", at);
	}
}

Test(info, handshakes_come_back)
{
	struct handshake h = {
		.group = 1, .world = 2, .rank = 3, .from = 4, .to = 5, .name = 6, .from_shard = 7, .to_shard = 8};
	struct handshake got;
	uint8_t bytes[HANDSHAKE_BYTES + 4] = {0};
	handshake_encode(&h, bytes);
	cr_assert_eq(handshake_decode(bytes, sizeof bytes, &got), 0, "a longer one is read as far as it is known");
	cr_assert(got.group == 1 && got.world == 2 && got.rank == 3 && got.from == 4 && got.to == 5 && got.name == 6 &&
		  got.from_shard == 7 && got.to_shard == 8);
	cr_assert_eq(handshake_decode(bytes, HANDSHAKE_BYTES - 1, &got), -EPROTO);
	bytes[4]++;
	cr_assert_eq(handshake_decode(bytes, HANDSHAKE_BYTES, &got), -EPROTO, "another version");
	bytes[4]--, bytes[0]++;
	cr_assert_eq(handshake_decode(bytes, HANDSHAKE_BYTES, &got), -EPROTO, "another program");
}

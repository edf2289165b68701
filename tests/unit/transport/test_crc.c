/* SPDX-License-Identifier: BSD-3-Clause */
/** Checksums, with and without: who does without is an agreement of both ends. */
#include "transport_fixture.h"

#include "transport/wire.h"

#include <criterion/criterion.h>

enum { MESSAGES = 50, BYTES = 200 };

static uint32_t at_0, at_1;
static unsigned of_set_up, of_others, bare, to_damage, damaged;

static bool set_liveness_callback(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	struct wire_message *h = (struct wire_message *)(void *)bytes;
	bool message = h->kind == WIRE_MESSAGE || h->kind == WIRE_ACK;
	*(message ? &of_others : &of_set_up) += 1;
	bare += le32_get(h->crc) == 0;
	if (h->kind == WIRE_MESSAGE && to_damage) {
		to_damage--;
		damaged++;
		bytes[*len - 1] ^= 0x10;
	}
	return true;
}

static uint64_t length(uint64_t seq)
{
	return BYTES;
}

static uint64_t crc_errors(unsigned e)
{
	struct transport_stats st;
	transport_stats_read(fixture.ends[e].port, &st);
	return st.crc_errors;
}

static void begin(bool unchecked_0, bool unchecked_1)
{
	fixture_init();
	of_set_up = of_others = bare = to_damage = damaged = 0;
	fixture.fabric.hook = set_liveness_callback;
	fixture.unchecked[0] = unchecked_0;
	fixture.unchecked[1] = unchecked_1;
	fixture_two(&at_0, &at_1);
}

Test(transport_crc, both_do_without)
{
	begin(true, true);
	unsigned set_up = of_set_up, before = of_others;
	cr_assert_geq(set_up, 2u);
	cr_assert_eq(bare, before, "%u of %u packets of the set-up", bare - before, set_up);
	cr_assert(fixture_stream(0, at_0, 1, MESSAGES, length, 1000));
	cr_assert(fixture_stream(1, at_1, 0, MESSAGES, length, 1000));
	cr_assert_gt(of_others, before);
	cr_assert_eq(bare, of_others);
	/* Nobody but the network can tell. */
	to_damage = 1;
	cr_assert_not(fixture_stream(0, at_0, 1, 1, length, 1000) && !fixture.ends[1].bad);
	cr_assert_eq(damaged, 1u);
	cr_assert_eq(crc_errors(1), 0u);
	fixture_fini();
}

/* Expect what both have with checksums, whoever of them would do without. */
static void checked(bool unchecked_0, bool unchecked_1)
{
	begin(unchecked_0, unchecked_1);
	cr_assert(fixture_stream(0, at_0, 1, MESSAGES, length, 1000));
	to_damage = 3;
	cr_assert(fixture_stream(0, at_0, 1, MESSAGES, length, 100000));
	to_damage = 3;
	cr_assert(fixture_stream(1, at_1, 0, MESSAGES, length, 100000));
	cr_assert_eq(damaged, 6u);
	cr_assert_eq(bare, 0u);
	cr_assert_eq(crc_errors(0), 3u);
	cr_assert_eq(crc_errors(1), 3u);
	cr_assert_not(fixture.ends[0].bad || fixture.ends[1].bad);
	fixture_fini();
}

Test(transport_crc, one_of_them_would_do_without)
{
	checked(true, false);
	checked(false, true);
	checked(false, false);
}

static bool strip(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	struct wire_message *h = (struct wire_message *)(void *)bytes;
	if (from == 0 && to_damage) {
		to_damage--;
		h->crc = le32_of(0);
	}
	return true;
}

/* Receive a packet without a checksum from one who never agreed to that. Expect it dropped. */
Test(transport_crc, without_an_agreement)
{
	begin(false, false);
	fixture.fabric.hook = strip;
	to_damage = 5;
	cr_assert(fixture_stream(0, at_0, 1, MESSAGES, length, 100000));
	cr_assert_eq(crc_errors(1), 5u);
	cr_assert_not(fixture.ends[1].bad);
	fixture_fini();
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Checksums, with and without: who does without is an agreement of both ends. The test's thread. */
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

static void begin_loopback(bool loopback_0, bool loopback_1)
{
	fixture_init();
	of_set_up = of_others = bare = to_damage = damaged = 0;
	fixture.fabric.hook = set_liveness_callback;
	fixture.fabric.loopback[0] = loopback_0;
	fixture.fabric.loopback[1] = loopback_1;
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
	/* Only the network can see it. */
	to_damage = 1;
	cr_assert_not(fixture_stream(0, at_0, 1, 1, length, 1000) && !fixture.ends[1].bad);
	cr_assert_eq(damaged, 1u);
	cr_assert_eq(crc_errors(1), 0u);
	fixture_fini();
}

/* Expect checksums at both ends, also if one of them permits none. */
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

/* ---- loopback addresses ---- */

Test(transport_crc, loopback)
{
	begin_loopback(true, true);
	cr_assert(fixture_stream(0, at_0, 1, MESSAGES, length, 1000));
	cr_assert(fixture_stream(1, at_1, 0, MESSAGES, length, 1000));
	cr_assert(of_others > 0 && bare == of_others, "%u of %u", bare, of_others);
	cr_assert_gt(of_set_up, 0u);
	fixture_fini();
}

Test(transport_crc, one_of_them_reaches_the_other_otherwise)
{
	for (unsigned which = 0; which < 2; which++) {
		begin_loopback(which == 0, which == 1);
		cr_assert(fixture_stream(0, at_0, 1, MESSAGES, length, 1000));
		to_damage = 3;
		cr_assert(fixture_stream(0, at_0, 1, MESSAGES, length, 100000));
		cr_assert_eq(bare, 0u);
		cr_assert_eq(crc_errors(1), 3u);
		fixture_fini();
	}
}

/* What is sent there by somebody else, or by a worker before its restart, is counted as of no connection. */
Test(transport_crc, loopback_and_no_connection)
{
	struct transport_stats before, after;
	struct wire_message h = {.version = WIRE_VERSION, .kind = WIRE_MESSAGE, .token = le64_of(77)};
	begin_loopback(true, true);
	transport_stats_read(fixture.ends[1].port, &before);
	dgram_inject(&fixture.fabric, 1, 0, &h, sizeof h);
	fixture_turn();
	transport_stats_read(fixture.ends[1].port, &after);
	cr_assert_eq(after.unknown_connection_drops, before.unknown_connection_drops + 1);
	cr_assert_eq(after.crc_errors, before.crc_errors);
	/* A control packet always has one. */
	h.kind = WIRE_CLOSE;
	dgram_inject(&fixture.fabric, 1, 0, &h, sizeof h);
	fixture_turn();
	cr_assert_eq(crc_errors(1), before.crc_errors + 1);
	fixture_fini();
}

static unsigned by[FIXTURE_ENDS], bare_by[FIXTURE_ENDS];
static bool cut, strip_others;

static bool two_networks(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	struct wire_message *h = (struct wire_message *)(void *)bytes;
	if (h->kind == WIRE_MESSAGE || h->kind == WIRE_ACK) {
		by[from]++;
		bare_by[from] += le32_get(h->crc) == 0;
		if (strip_others && from == 2 && damaged < 5) {
			damaged++;
			h->crc = le32_of(0);
		}
	}
	return !cut || from >= 2;
}

static void add_path(unsigned from, uint32_t peer, unsigned via, unsigned to)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	fixture.ends[to].port->ops->address(fixture.ends[to].port, &addr);
	cr_assert_eq(transport_path_add(fixture.ends[from].port, peer, fixture.ends[via].port, &addr, via, &err), 0);
}

/* The primary path is one between loopback addresses, the other one is not. */
Test(transport_crc, not_on_another_path)
{
	fixture_init();
	memset(by, 0, sizeof by);
	memset(bare_by, 0, sizeof bare_by);
	cut = strip_others = false;
	damaged = 0;
	fixture.fabric.hook = two_networks;
	fixture.fabric.loopback[0] = fixture.fabric.loopback[1] = true;
	for (unsigned e = 0; e < 4; e++)
		end_open(e, 1);
	transport_join((struct nic_port *[]){fixture.ends[0].port, fixture.ends[2].port}, 2);
	transport_join((struct nic_port *[]){fixture.ends[1].port, fixture.ends[3].port}, 2);
	fixture_pair(0, 1, &at_0, &at_1);
	add_path(0, at_0, 2, 3);
	add_path(1, at_1, 3, 2);
	cr_assert(fixture_stream(0, at_0, 1, MESSAGES, length, 1000));
	cr_assert(bare_by[0] == by[0] && bare_by[1] == by[1] && by[0] > 0);
	cut = true;
	cr_assert(fixture_stream(0, at_0, 1, MESSAGES, length, 100000));
	cr_assert(by[2] > 0 && by[3] > 0, "%u %u", by[2], by[3]);
	cr_assert(bare_by[2] == 0 && bare_by[3] == 0, "%u %u", bare_by[2], bare_by[3]);
	/* And none is taken there without one. */
	strip_others = true;
	cr_assert(fixture_stream(0, at_0, 1, MESSAGES, length, 100000));
	cr_assert_eq(damaged, 5u);
	cr_assert_eq(crc_errors(3), 5u);
	/* It returns to the first. */
	cut = strip_others = false;
	unsigned before = by[0];
	for (unsigned i = 0; i < 100000 && by[0] < before + 100; i++)
		fixture_stream(0, at_0, 1, 1, length, 100);
	cr_assert_geq(by[0], before + 100);
	cr_assert_gt(bare_by[0], before);
	fixture_fini();
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets that no correct member would send: a non-member's, and those of a member that breaks the rules.
 * The test's thread. */
#include "caught_packet.h"

#include "base/limits.h"
#include "core/packet.h"
#include "transport/auth.h"
#include "transport/peer.h"
#include "transport/port.h"
#include "transport/transport.h"
#include "transport/wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

Test(transport_hostile, checksum)
{
	fixture_init();
	fixture.key = NULL; /* these packets are of members */
	fixture.fabric.hook = catch;
	want = WIRE_MESSAGE;
	fixture_two(&at_0, &at_1);
	cr_assert_eq(fixture_send(0, at_0, 0, 100), 0);
	turns(50);
	head()->packet = le32_of(1);
	head()->first = le32_of(1);
	for (uint32_t bit = 8; bit < caught_len * 8; bit++) { /* but for the version */
		uint64_t errors = stats_of_1().crc_errors;
		caught[bit / 8] ^= (uint8_t)(1u << bit % 8);
		inject();
		caught[bit / 8] ^= (uint8_t)(1u << bit % 8);
		cr_assert_eq(stats_of_1().crc_errors, errors + 1, "bit %u", bit);
	}
	cr_assert_eq(fixture.ends[1].got, 1);
	fixture_fini();
}

/* The right packet number, and one bit of the token or of the port's identity wrong. */
Test(transport_hostile, guessed_token)
{
	begin(WIRE_MESSAGE);
	head()->packet = head()->first = le32_of(1);
	for (unsigned bit = 64; bit < 192; bit++) {
		uint64_t unknown_connection_drops = stats_of_1().unknown_connection_drops;
		caught[bit / 8] ^= (uint8_t)(1u << bit % 8);
		inject();
		caught[bit / 8] ^= (uint8_t)(1u << bit % 8);
		cr_assert_eq(stats_of_1().unknown_connection_drops, unknown_connection_drops + 1);
	}
	cr_assert_eq(fixture.ends[1].got, 1);
	cr_assert_eq(fixture.ends[1].downs, 0);
	inject(); /* and right */
	cr_assert_eq(fixture.ends[1].got, 2);
	fixture_fini();
}

Test(transport_hostile, replay)
{
	begin(WIRE_MESSAGE);
	uint64_t before = stats_of_1().duplicates;
	for (unsigned i = 0; i < 100; i++)
		inject();
	cr_assert_eq(fixture.ends[1].got, 1);
	cr_assert_eq(stats_of_1().duplicates - before, 100);
	cr_assert_eq(fixture.ends[1].downs, 0);
	fixture_fini();
}

/* What a member cannot send. Expect its connection ended, nothing delivered. */
Test(transport_hostile, impossible_fragments)
{
	static const struct {
		uint32_t packet, first, length, offset, flags;
	} cases[] = {
		{1, 1, 99, 0, 0},                         /* more bytes than the message has */
		{1, 1, (16u << 20) + 65, 0, 0},           /* longer than any */
		{1, 1, UINT32_MAX, 0, 0},                 /* much longer */
		{1, 1, 200, 101, 0},                      /* past the end */
		{1, 1, 200, UINT32_MAX, 0},               /* far past the end */
		{1, 1, 200, 50, 0},                       /* not its beginning, though it is the first */
		{1, 0, 200, 0, 0},                        /* its beginning, though it is the second */
		{1, 0, 200, 100, 0},                      /* of a message that is over */
		{1, 2, 200, 100, 0},                      /* before its own beginning */
		{1 + FAR_TRANSPORT_WINDOW, 1, 100, 0, 0}, /* beyond the window */
		{0x7fffffff, 1, 100, 0, 0},
		{1, 1, 50, 0, WIRE_FRAGMENT},
		{1, 1, 200, 150, WIRE_FRAGMENT},
	};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		begin(WIRE_MESSAGE);
		head()->packet = le32_of(cases[i].packet);
		head()->first = le32_of(cases[i].first);
		head()->length = le32_of(cases[i].length);
		head()->offset = le32_of(cases[i].offset);
		head()->flags = (uint8_t)cases[i].flags;
		inject();
		cr_assert_eq(fixture.ends[1].got, 1, "case %u", i);
		cr_assert_eq(fixture.ends[1].downs, 1, "case %u", i);
		cr_assert_eq(fixture.ends[1].error, -EPROTO, "case %u", i);
		cr_assert_geq(stats_of_1().malformed, 1);
		fixture_fini();
	}
}

/* Two packets of one message that do not agree on its length. */
Test(transport_hostile, two_lengths)
{
	begin(WIRE_MESSAGE);
	head()->packet = head()->first = le32_of(1);
	head()->length = le32_of(300);
	inject();
	head()->packet = le32_of(2);
	head()->length = le32_of(400);
	head()->offset = le32_of(100);
	inject();
	cr_assert_eq(fixture.ends[1].downs, 1);
	cr_assert_eq(fixture.ends[1].got, 1);
	fixture_fini();
}

/* One message in fragments more than may be under way begins before the others are whole. */
Test(transport_hostile, too_many_at_once)
{
	for (unsigned late = 0; late < 2; late++) {
		begin(WIRE_MESSAGE);
		head()->length = le32_of(300);
		for (unsigned i = 0; i <= FAR_TRANSPORT_OPEN_MAX; i++) {
			cr_assert_eq(fixture.ends[1].downs, 0);
			head()->packet = head()->first = le32_of(late ? FAR_TRANSPORT_OPEN_MAX + 1 - i : 1 + i);
			inject();
		}
		cr_assert_eq(fixture.ends[1].downs, 1);
		cr_assert_eq(fixture.ends[1].error, -EPROTO);
		cr_assert_eq(fixture.ends[1].got, 1);
		fixture_fini();
	}
}

/* Eager messages between the fragments of a large one, the middle one itself in fragments: they do not wait for it. */
Test(transport_hostile, pieces_within_a_message)
{
	begin(WIRE_MESSAGE);
	fixture.ends[1].got = 0; /* numbered so, it comes again */
	uint8_t bytes[100];
	memcpy(bytes, caught + 96, 100);
	head()->length = le32_of(200); /* of some other message */
	head()->packet = head()->first = le32_of(1);
	inject();
	head()->length = le32_of(100);
	for (uint32_t offset = 0; offset < 100; offset += 50) {
		head()->packet = head()->first = le32_of(2);
		head()->offset = le32_of(offset);
		head()->flags = (uint8_t)(WIRE_FRAGMENT | (offset ? 0 : WIRE_MORE));
		memmove(caught + 96, bytes + offset, 50);
		caught_len = 96 + 50;
		inject();
	}
	cr_assert_eq(fixture.ends[1].downs, 0);
	cr_assert(fixture.ends[1].got == 1 && !fixture.ends[1].bad);
	/* The whole packet again is one that was taken. */
	head()->flags = 0;
	head()->offset = le32_of(0);
	memcpy(caught + 96, bytes, 100);
	caught_len = 196;
	uint64_t duplicates = stats_of_1().duplicates;
	inject();
	cr_assert_eq(stats_of_1().duplicates, duplicates + 1);
	/* A piece, and then the whole, often: nothing of the piece stays behind. At last a piece and the rest. */
	for (uint32_t packet = 3; packet <= 9; packet++) {
		fixture.ends[1].got = 0;
		head()->packet = head()->first = le32_of(packet);
		head()->flags = WIRE_FRAGMENT | WIRE_MORE;
		caught_len = 96 + 50;
		inject();
		head()->flags = packet == 9 ? WIRE_FRAGMENT : 0;
		head()->offset = le32_of(packet == 9 ? 50 : 0);
		memcpy(caught + 96, bytes + (packet == 9 ? 50 : 0), packet == 9 ? 50 : 100);
		caught_len = packet == 9 ? 96 + 50 : 196;
		inject();
		cr_assert(fixture.ends[1].got == 1 && !fixture.ends[1].bad, "packet %u", packet);
	}
	cr_assert_eq(fixture.ends[1].downs, 0);
	fixture_fini();
}

/* Fragments that leave a gap, or overlap. */
Test(transport_hostile, gap_in_a_message)
{
	for (uint32_t offset = 99; offset <= 101; offset += 2) {
		begin(WIRE_MESSAGE);
		head()->packet = head()->first = le32_of(1);
		head()->length = le32_of(300);
		inject();
		head()->packet = le32_of(2);
		head()->offset = le32_of(offset);
		inject();
		cr_assert_eq(fixture.ends[1].got, 1);
		cr_assert_eq(fixture.ends[1].downs, offset == 101);
		fixture_fini();
	}
}

/* Beginnings of many large messages out of turn: memory for a few at most, and the connection goes on. */
Test(transport_hostile, many_beginnings)
{
	begin(WIRE_MESSAGE);
	for (uint32_t i = 2; i < 200; i++) {
		head()->packet = head()->first = le32_of(i);
		head()->length = le32_of(16u << 20);
		inject();
	}
	cr_assert_eq(fixture.ends[1].got, 1);
	cr_assert_eq(fixture.ends[1].downs, 0);
	fixture_fini();
}

/* Acknowledgements of what was never sent, and bits for it. */
Test(transport_hostile, acknowledges_the_future)
{
	begin(WIRE_MESSAGE);
	head()->kind = WIRE_ACK;
	caught_len = 96;
	for (uint32_t ack = 1; ack < 2000; ack += 37) {
		head()->ack = le32_of(ack);
		head()->ack_bits = le64_of(UINT64_MAX);
		inject();
	}
	cr_assert(fixture_send(1, at_1, 0, 100) == 0);
	turns(50);
	cr_assert_eq(fixture.ends[0].got, 1);
	fixture_fini();
}

/* Non-members send connect requests, with and without the port's identity, from everywhere. Expect a bounded number of
 * answers and places, and a member to be connected meanwhile. */
Test(transport_hostile, flood_of_connects)
{
	for (unsigned knows = 0; knows < 2; knows++) {
		fixture_init();
		fixture.key = NULL; /* these packets are of members */
		fixture.fabric.crc = true;
		fixture.fabric.hook = catch;
		want = WIRE_CONNECT;
		fixture_two(&at_0, &at_1);
		fixture.ends[1].refuse = knows ? -EACCES : 0;
		struct wire_handshake *words = (struct wire_handshake *)(void *)(caught + 96);
		unsigned ups = fixture.ends[1].ups;
		if (!knows)
			head()->incarnation = le64_of(le64_get(head()->incarnation) ^ 16);
		fixture.fabric.hook = NULL;
		for (uint32_t i = 0; i < 5000; i++) {
			uint64_t before = fixture.fabric.sent;
			words->token = le64_of(i + 1000);
			words->incarnation = le64_of(i * 7919 + 16);
			dgram_inject(&fixture.fabric, 1, 0, caught, caught_len);
			if (i % 20)
				continue;
			fixture_turn();
			cr_assert_leq(fixture.fabric.sent - before, 100);
		}
		cr_assert_eq(fixture.ends[1].ups, ups);
		if (!knows)
			cr_assert_geq(stats_of_1().refused, 1000);
		fixture.ends[1].refuse = 0;
		end_open(2, 1);
		uint32_t at_2, at_1_of_2;
		fixture_pair(2, 1, &at_2, &at_1_of_2);
		fixture_fini();
	}
}

/* The way back of every CONNECT never comes to be: the places are given back in time. */
Test(transport_hostile, half_open_ends)
{
	fixture_init();
	fixture.key = NULL; /* these packets are of members */
	fixture.fabric.crc = true;
	fixture.fabric.hook = catch;
	want = WIRE_CONNECT;
	fixture_two(&at_0, &at_1);
	fixture.fabric.hook = NULL;
	fixture.fabric.unready = true;
	struct wire_handshake *words = (struct wire_handshake *)(void *)(caught + 96);
	for (uint32_t i = 0; i < 3 * FAR_TRANSPORT_HALF_OPEN_MAX; i++) {
		words->token = le64_of(i + 1000);
		inject();
	}
	end_open(2, 1);
	fixture.fabric.unready = false;
	uint32_t at_2, at_1_of_2;
	fixture_pair(2, 1, &at_2, &at_1_of_2);
	cr_assert_leq(fixture.ends[1].connects, 2 + FAR_TRANSPORT_HALF_OPEN_MAX);
	fixture_fini();
}

/* Cut and lengthened packets of every kind, and kinds that there are not. */
Test(transport_hostile, lengths_and_kinds)
{
	for (unsigned kind = 0; kind < 256; kind += kind < 12 ? 1 : 61) {
		begin(WIRE_MESSAGE);
		head()->kind = (uint8_t)kind;
		for (uint32_t len = 0; len < 400; len += 3) {
			dgram_inject(&fixture.fabric, 1, 0, caught, len);
			if (len % 30 == 0)
				fixture_turn();
		}
		turns(10);
		fixture_fini();
	}
}

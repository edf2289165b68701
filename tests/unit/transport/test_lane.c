/* SPDX-License-Identifier: BSD-3-Clause */
/** Lanes of the transport: packets of lines beside packets of messages. One thread. */
#include "transport_fixture.h"

#include "base/limits.h"
#include "core/packet.h"
#include "transport/rings.h"
#include "transport/wire.h"

#include <criterion/criterion.h>
#include <string.h>

/* Messages of a line that fill a packet. */
enum { FULL = (FAR_TRANSPORT_MTU_MIN + 32) / 64, KEPT = 4 };

static uint32_t at_0, at_1;
static struct nic_lane none, *lane;
static uint64_t sent;
static struct {
	uint8_t bytes[KEPT][1024];
	uint32_t len[KEPT];
	unsigned n, lose_one_of; /* packets with messages from end 0 since begin() */
} seen;

static bool see(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	if (from != 0 || bytes[1] != WIRE_MESSAGE)
		return true;
	if (seen.n < KEPT && *len <= sizeof seen.bytes[0]) {
		memcpy(seen.bytes[seen.n], bytes, *len);
		seen.len[seen.n] = *len;
	}
	seen.n++;
	return !seen.lose_one_of || seen.n % seen.lose_one_of != 0;
}

static struct nic_queue *queue(unsigned e)
{
	return fixture.ends[e].q;
}

static void turns(unsigned n)
{
	while (n-- > 0)
		fixture_turn();
}

static void flush(void)
{
	queue(0)->ops->flush(queue(0));
}

static void commit(uint64_t len)
{
	cr_assert_eq(fixture_send(0, at_0, sent++, len), 0);
}

/* The peer has a ring set, and so a lane, from its first message on until it is idle. */
static void begin_on(bool ip_fragments)
{
	fixture_init();
	fixture.fabric.crc = true;
	fixture.fabric.ip_fragments = ip_fragments;
	if (ip_fragments)
		fixture.fabric.packet_max = TRANSPORT_WIDE_PATH + TRANSPORT_HEAD_BYTES;
	fixture.fabric.hook = see;
	fixture_two(&at_0, &at_1);
	turns(50);
	sent = 0;
	none = (struct nic_lane){.room = 0};
	lane = &none;
	queue(0)->ops->lane(queue(0), at_0, &lane);
	commit(1);
	flush();
	memset(&seen, 0, sizeof seen);
}

static void begin(void)
{
	begin_on(false);
}

static void put(uint64_t len)
{
	struct nic_tx tx = {.head = lane->tx_next->bytes, .body = lane->tx_next->bytes + FIXTURE_HEAD};
	cr_assert(lane->room && len <= FAR_LINE_PAYLOAD);
	fixture_fill(&tx, sent++, len);
	lane_put(&queue(0)->lanes, lane, (uint32_t)len);
}

static void expect_all(void)
{
	for (unsigned i = 0; i < 40000 && fixture.ends[1].got < sent; i++)
		fixture_turn();
	cr_assert(fixture.ends[1].got == sent && !fixture.ends[1].bad, "%u of %u, bad %d",
		  (unsigned)fixture.ends[1].got, (unsigned)sent, fixture.ends[1].bad);
}

/* A lane is there while the peer has something in flight. */
Test(transport_lane, zero_copy)
{
	begin();
	cr_assert(lane != &none && lane->room == TRANSPORT_LINES);
	expect_all();
	turns(2000);
	cr_assert_eq(lane, &none);
	commit(1);
	cr_assert_neq(lane, &none);
	put(7);
	queue(0)->ops->detach(queue(0), at_0); /* drops what was not flushed */
	cr_assert(lane == &none && queue(0)->lanes.dirty_n == 0 && none.room == 0);
	flush();
	fixture_fini();
}

/* One line that is all that a flush sends needs no reservation below. */
Test(transport_lane, at_once)
{
	begin();
	expect_all();
	commit(1); /* so that there is a lane */
	flush();
	uint64_t before = fixture.fabric.at_once;
	put(32);
	flush();
	put(0);
	flush();
	cr_assert_eq(fixture.fabric.at_once, before + 2);
	put(32);
	put(7);
	flush();
	commit(300);
	put(1);
	flush();
	cr_assert_eq(fixture.fabric.at_once, before + 2, "others leave with it");
	expect_all();
	commit(1);
	flush();
	fixture.fabric.plain = true; /* the driver refuses */
	put(9);
	flush();
	cr_assert_eq(fixture.fabric.at_once, before + 2);
	expect_all();
	struct transport_stats stats;
	transport_stats_read(fixture.ends[0].port, &stats);
	cr_assert_eq(stats.resent, 0u);
	fixture_fini();
}

/* Packets of lines are, to the byte, those of the same messages. */
Test(transport_lane, same_packets)
{
	static const uint64_t lens[] = {32, 32, 1, 31, 0, 32, 0, 9};
	begin();
	for (unsigned i = 0; i < 8; i++) {
		put(lens[i]);
		if (i >= 6)
			flush();
	}
	sent -= 8; /* heads and bodies of the same numbers */
	for (unsigned i = 0; i < 8; i++) {
		commit(lens[i]);
		if (i >= 6)
			flush();
	}
	cr_assert_eq(seen.n, 4);
	for (unsigned k = 0; k < 2; k++) {
		struct wire_message *of_lines = (void *)seen.bytes[k], *of_messages = (void *)seen.bytes[k + 2];
		cr_assert_eq(le32_get(of_messages->packet), le32_get(of_lines->packet) + 2);
		of_messages->packet = of_messages->first = of_lines->packet;
		cr_assert_eq(seen.len[k], seen.len[k + 2]);
		cr_assert_arr_eq(seen.bytes[k], seen.bytes[k + 2], seen.len[k]);
	}
	fixture_fini();
}

/* FULL lines fill a packet; behind the last line of the ring follows its first. */
Test(transport_lane, around)
{
	begin();
	for (unsigned round = 0; round < 40; round++) {
		if (lane == &none)
			commit(1);
		flush();
		seen.n = 0;
		for (unsigned i = 0; i < FULL + 1; i++)
			put(32);
		flush();
		cr_assert_eq(seen.n, 2);
		expect_all();
	}
	fixture_fini();
}

/* Packets of lines are wide as those of messages are, and go again as they were. */
Test(transport_lane, wide)
{
	enum { WIDE = (TRANSPORT_WIDE_BYTES + 32) / 64, WIDE_EMPTY = TRANSPORT_WIDE_BYTES / 32 + 1 };
	begin_on(true);
	for (unsigned round = 0; round < 40; round++) {
		if (lane == &none)
			commit(1);
		flush();
		seen.n = 0;
		seen.lose_one_of = round % 4 == 3; /* all */
		for (unsigned i = 0; i < (round % 2 ? WIDE_EMPTY : WIDE) + 1; i++)
			put(round % 2 ? 0 : 32);
		flush();
		cr_assert_eq(seen.n, 2);
		seen.lose_one_of = 0;
		expect_all();
	}
	fixture_fini();
}

/* Lines and messages keep their order, with one in eight packets lost, and all lines come back. */
Test(transport_lane, lossy)
{
	begin();
	seen.lose_one_of = 8;
	for (unsigned i = 0; i < 3000; i++) {
		if (lane->room && i % 23)
			put(i * 7 % 33);
		else
			commit(i % 5 ? i % 40 : 700);
		if (i % 9 == 0)
			flush();
		if (i % 64 == 0)
			turns(3);
		if (sent - fixture.ends[1].got > 400)
			expect_all();
	}
	flush();
	expect_all();
	seen.lose_one_of = 0;
	commit(1);
	flush();
	expect_all();
	turns(5);
	cr_assert(lane == &none || lane->room == TRANSPORT_LINES);
	fixture_fini();
}

/* What the window has no room for becomes messages, behind which others queue up. */
Test(transport_lane, window)
{
	begin();
	seen.lose_one_of = 1;
	for (unsigned i = 1; i < FAR_TRANSPORT_WINDOW; i++) {
		put(32);
		flush();
	}
	cr_assert(seen.n == FAR_TRANSPORT_WINDOW - 1 && lane->room == 1);
	put(32);
	flush();
	commit(5);
	flush();
	cr_assert(seen.n == FAR_TRANSPORT_WINDOW - 1 && lane->room == 1);
	seen.lose_one_of = 0;
	expect_all();
	fixture_fini();
}

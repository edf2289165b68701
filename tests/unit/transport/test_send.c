/* SPDX-License-Identifier: BSD-3-Clause */
/** Several messages in one packet: how they lie in it, and how they are taken. The test's thread. */
#include "transport_fixture.h"

#include "base/limits.h"
#include "core/packet.h"
#include "transport/wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#define PACKET_MOST (96u + FAR_TRANSPORT_MTU_MIN)
/* Messages that fill one: of a line, each with 32 bytes in front but for the first, and empty ones. */
enum { FULL = (FAR_TRANSPORT_MTU_MIN + 32) / 64, EMPTY = FAR_TRANSPORT_MTU_MIN / 32 + 1 };
/* The same of a wide packet. */
enum { WIDE = (TRANSPORT_WIDE_BYTES + 32) / 64, WIDE_EMPTY = TRANSPORT_WIDE_BYTES / 32 + 1 };

static uint32_t at_0, at_1;
static struct {
	uint8_t bytes[2048];
	uint32_t len;
	unsigned n, batches, pieces, longest; /* packets with messages from end 0 since begin() */
	bool lose;
} seen;

static bool see(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	if (from != 0 || bytes[1] != WIRE_MESSAGE)
		return true;
	seen.n++;
	seen.batches += (bytes[2] & WIRE_BATCH) != 0;
	seen.pieces += (bytes[2] & WIRE_FRAGMENT) != 0;
	if (bytes[2] & WIRE_BATCH && *len > seen.longest)
		seen.longest = *len;
	if (*len <= sizeof seen.bytes) {
		memcpy(seen.bytes, bytes, *len);
		seen.len = *len;
	}
	return !seen.lose;
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

static void begin(bool crc)
{
	fixture_init();
	fixture.fabric.crc = crc;
	fixture.fabric.hook = see;
	fixture_two(&at_0, &at_1);
	turns(50);
	memset(&seen, 0, sizeof seen);
}

/* Sends messages of these lengths, numbered from what end 1 has got on, and flushes. */
static void send_all(const uint64_t *lens, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		cr_assert_eq(fixture_send(0, at_0, fixture.ends[1].got + i, lens[i]), 0);
	queue(0)->ops->flush(queue(0));
}

static void send_same(uint64_t len, unsigned n)
{
	uint64_t lens[1024];
	for (unsigned i = 0; i < n; i++)
		lens[i] = len;
	send_all(lens, n);
}

static void expect_all(uint64_t got)
{
	for (unsigned i = 0; i < 100 && fixture.ends[1].got < got; i++)
		fixture_turn();
	cr_assert(fixture.ends[1].got == got && !fixture.ends[1].bad, "%u", (unsigned)fixture.ends[1].got);
}

static uint64_t small(uint64_t seq)
{
	return seq * 7 % 33;
}

static uint64_t middling(uint64_t seq)
{
	return seq % 11 == 0 ? 5000 + seq : seq * 37 % 700;
}

/* What is committed between two flushes shares packets; FULL messages of a line fill one. */
Test(transport_send, share)
{
	begin(false);
	send_same(32, FULL);
	cr_assert_eq(seen.n, 1);
	cr_assert_eq(seen.len, PACKET_MOST);
	expect_all(FULL);
	send_same(32, 2 * FULL + 1);
	cr_assert_eq(seen.n, 4);
	cr_assert_eq(seen.batches, 3);
	cr_assert_eq(seen.len, 96 + 32); /* the last has one to itself */
	expect_all(3 * FULL + 1);
	fixture_fini();
}

/* Where IP fragments what is beyond the path MTU, and the path takes far larger packets, WIDE messages share one. A
 * path that becomes narrow: what is under way goes again as it was, in one packet, and later packets are short. */
Test(transport_send, wide)
{
	fixture_init();
	fixture.fabric.ip_fragments = true;
	fixture.fabric.packet_max = TRANSPORT_WIDE_PATH + TRANSPORT_HEAD_BYTES;
	fixture.fabric.hook = see;
	fixture_two(&at_0, &at_1);
	turns(50);
	memset(&seen, 0, sizeof seen);
	send_same(32, WIDE);
	cr_assert(seen.n == 1 && seen.longest == FAR_TRANSPORT_WIDE_PACKET, "%u of %u", seen.n, seen.longest);
	expect_all(WIDE);
	send_same(0, WIDE_EMPTY + 1);
	cr_assert_eq(seen.n, 3);
	expect_all(WIDE + WIDE_EMPTY + 1);
	seen.lose = true;
	send_same(32, WIDE);
	fixture.fabric.packet_max = 1500;
	seen.lose = false;
	seen.n = seen.longest = 0;
	expect_all(2 * WIDE + WIDE_EMPTY + 1);
	cr_assert(seen.n == 1 && seen.longest == FAR_TRANSPORT_WIDE_PACKET && !seen.pieces);
	seen.n = seen.longest = 0;
	send_same(32, FULL + 1);
	cr_assert(seen.n == 2 && seen.longest == PACKET_MOST, "%u of %u", seen.n, seen.longest);
	expect_all(2 * WIDE + WIDE_EMPTY + 1 + FULL + 1);
	fixture_fini();
}

/* A path on which wide packets would not pay, and a driver without IP fragments. */
Test(transport_send, not_wide)
{
	for (unsigned i = 0; i < 2; i++) {
		fixture_init();
		fixture.fabric.ip_fragments = i == 0;
		fixture.fabric.packet_max = TRANSPORT_WIDE_PATH + TRANSPORT_HEAD_BYTES - (i == 0);
		fixture.fabric.hook = see;
		fixture_two(&at_0, &at_1);
		turns(50);
		memset(&seen, 0, sizeof seen);
		send_same(32, 2 * FULL);
		cr_assert(seen.n == 2 && seen.longest == PACKET_MOST, "%u: %u of %u", i, seen.n, seen.longest);
		expect_all(2 * FULL);
		fixture_fini();
	}
}

/* One by itself is as ever: 96 bytes and its own. */
Test(transport_send, alone)
{
	begin(false);
	for (uint64_t i = 0; i < 10; i++) {
		send_same(32, 1);
		cr_assert_eq(seen.n, i + 1);
		cr_assert_eq(seen.len, 96 + 32);
		cr_assert_eq(seen.bytes[2] & WIRE_BATCH, 0);
		expect_all(i + 1);
	}
	cr_assert_eq(seen.batches, 0);
	fixture_fini();
}

/* Every pair and triple of lengths around the alignments. Expect them aligned and whole (fixture_is()), and padded with
 * zeros. */
Test(transport_send, lengths)
{
	static const uint64_t lens[] = {0, 1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 500, 831, 863, 895, 896, 928};
	enum { N = sizeof lens / sizeof *lens };
	for (unsigned misalign = 0; misalign <= 32; misalign += 16) {
		begin(false);
		fixture.fabric.misalign = misalign;
		for (unsigned i = 0; i < N * N * N; i++) {
			uint64_t three[] = {lens[i % N], lens[i / N % N], lens[i / N / N]};
			send_all(three, 3);
			expect_all(3 * (i + 1));
			turns(i % 50 == 0 ? 20 : 0);
		}
		cr_assert_leq(seen.longest, PACKET_MOST);
		cr_assert_gt(seen.batches, N * N);
		fixture_fini();
	}
}

Test(transport_send, padding)
{
	begin(true);
	uint64_t dirty[] = {128, 128, 128}, lens[] = {3, 40, 0, 5};
	send_all(dirty, 3);
	expect_all(3);
	turns(50);
	send_all(lens, 4);
	/* Sub-heads at 32, 128 and 160; bytes at 0, 64 and 192. */
	cr_assert_eq(seen.len, 96 + 197);
	const uint8_t *b = seen.bytes + 96;
	for (unsigned i = 3; i < 128; i = i == 31 ? 104 : i + 1)
		cr_assert_eq(b[i], 0, "byte %u is %u", i, b[i]);
	expect_all(7);
	fixture_fini();
}

/* recv() has room for fewer than a packet holds: the rest comes with the next ones, and stays in place. */
Test(transport_send, little_room)
{
	for (unsigned max = 1; max <= 20; max++) {
		begin(false);
		send_same(24, 60);
		uint64_t got = 0;
		for (unsigned turn = 0; turn < 200 && got < 60; turn++) {
			struct nic_pkt pkts[20];
			unsigned n = queue(1)->ops->recv(queue(1), pkts, max);
			cr_assert_leq(n, max);
			for (unsigned i = 0; i < n; i++)
				cr_assert(fixture_is(&pkts[i], got + i), "%u", (unsigned)got + i);
			got += n;
		}
		cr_assert_eq(got, 60, "%u with room for %u", (unsigned)got, max);
		fixture_fini();
	}
}

/* More in one packet than recv() hands up in place at once. */
Test(transport_send, much_room)
{
	begin(false);
	uint64_t lens[EMPTY] = {0};
	send_all(lens, EMPTY);
	cr_assert_eq(seen.n, 1);
	struct nic_pkt pkts[64];
	unsigned got = 0, calls = 0;
	for (; got < EMPTY && calls < 10; calls++) {
		unsigned n = queue(1)->ops->recv(queue(1), pkts, 64);
		for (unsigned i = 0; i < n; i++)
			cr_assert(fixture_is(&pkts[i], got + i));
		got += n;
	}
	cr_assert_eq(got, EMPTY);
	fixture_fini();
}

/* The peer is let go of in the middle of a packet. Expect nothing of it afterwards. */
Test(transport_send, detached_within)
{
	begin(false);
	send_same(32, FULL);
	struct nic_pkt pkts[16];
	cr_assert_eq(queue(1)->ops->recv(queue(1), pkts, 5), 5);
	queue(1)->ops->detach(queue(1), at_1);
	cr_assert_eq(queue(1)->ops->recv(queue(1), pkts, 16), 0);
	fixture.ends[1].port->ops->drop(fixture.ends[1].port, at_1);
	turns(50);
	cr_assert_eq(fixture.ends[1].got, 0);
	cr_assert_eq(fixture.ends[0].downs, 1);
	fixture_fini();
}

/* They come before attach(). */
Test(transport_send, held)
{
	fixture_init();
	end_open(0, 1);
	end_open(1, 1);
	cr_assert_eq(fixture_connect(0, 0, 1, 0, 1000 * FIXTURE_MS), 0);
	cr_assert(fixture_until(&fixture.ends[0].ups, 1, 1000));
	cr_assert(fixture_until(&fixture.ends[1].ups, 1, 1000));
	at_0 = fixture.ends[0].up;
	at_1 = fixture.ends[1].up;
	cr_assert_eq(queue(0)->ops->attach(queue(0), at_0), 0);
	send_same(20, 50);
	turns(20);
	cr_assert_eq(fixture.ends[1].got, 0);
	cr_assert_eq(queue(1)->ops->attach(queue(1), at_1), 0);
	expect_all(50);
	fixture_fini();
}

/* What is answered within a burst shares packets too. */
Test(transport_send, answers)
{
	begin(false);
	uint64_t before = fixture.fabric.sent;
	send_same(32, 2 * FULL);
	cr_assert_eq(fixture.fabric.sent - before, 2);
	uint64_t got = 0;
	while (got < 2 * FULL) {
		struct nic_pkt pkts[16];
		unsigned n = queue(1)->ops->recv(queue(1), pkts, 16);
		cr_assert_gt(n, 0);
		for (unsigned i = 0; i < n; i++, got++)
			cr_assert_eq(fixture_send(1, at_1, got, 32), 0);
	}
	queue(1)->ops->flush(queue(1));
	cr_assert_eq(fixture.fabric.sent - before, 4);
	turns(10);
	cr_assert(fixture.ends[0].got == 2 * FULL && !fixture.ends[0].bad);
	fixture_fini();
}

/* Small ones between large ones, with all that can happen to a packet. */
Test(transport_send, everything_happens)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		begin(false);
		fixture.fabric.seed = seed;
		fixture.fabric.drop = fixture.fabric.repeat = fixture.fabric.overtake = fixture.fabric.damage = 60;
		fixture.fabric.misalign = (unsigned)(seed * 5 % 64);
		fixture.fabric.full_every = seed % 3 ? 0 : 5;
		cr_assert(fixture_stream(0, at_0, 1, 3000, small, 1000000), "seed %d", (int)seed);
		cr_assert(fixture_stream(0, at_0, 1, 500, middling, 1000000), "seed %d", (int)seed);
		cr_assert(fixture_stream(1, at_1, 0, 1000, small, 1000000), "seed %d", (int)seed);
		cr_assert_gt(seen.batches, 100);
		cr_assert_eq(fixture.ends[0].downs + fixture.ends[1].downs, 0);
		fixture_fini();
	}
}

/* A path becomes as narrow as one may: what is under way goes again as it was, in one packet. */
Test(transport_send, narrowest_path)
{
	begin(false);
	seen.lose = true;
	send_same(32, FULL);
	fixture.fabric.packet_max = PACKET_MOST;
	fixture.fabric.black_hole = PACKET_MOST;
	turns(100);
	seen.lose = false;
	expect_all(FULL);
	cr_assert_eq(seen.pieces, 0);
	fixture_fini();
}

/* Narrower than a driver may say. Expect an end, with the reason. */
Test(transport_send, too_narrow)
{
	begin(false);
	seen.lose = true;
	send_same(32, FULL);
	fixture.fabric.packet_max = 600;
	turns(1000);
	cr_assert_eq(fixture.ends[0].downs, 1);
	cr_assert_eq(fixture.ends[0].error, -EMSGSIZE);
	cr_assert(strstr(fixture.ends[0].text, "MTU"), "%s", fixture.ends[0].text);
	fixture_fini();
}

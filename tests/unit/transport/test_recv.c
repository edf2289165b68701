/* SPDX-License-Identifier: BSD-3-Clause */
/** Received packets of several messages that no correct member would send. The test's thread. */
#include "transport_fixture.h"

#include "base/limits.h"
#include "core/packet.h"
#include "transport/queue.h"
#include "transport/wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#define PACKET_MOST FAR_TRANSPORT_WIDE_PACKET

static uint32_t at_0, at_1;
static struct {
	uint8_t bytes[2 * FAR_TRANSPORT_WIDE_PACKET];
	uint32_t len;
} seen; /* the last packet with messages from end 0 */

static bool see(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	if (from == 0 && bytes[1] == WIRE_MESSAGE && *len <= sizeof seen.bytes) {
		memcpy(seen.bytes, bytes, *len);
		seen.len = *len;
	}
	return true;
}

static void turns(unsigned n)
{
	while (n-- > 0)
		fixture_turn();
}

static void inject(uint32_t number, uint32_t len)
{
	struct wire_message *h = (struct wire_message *)(void *)seen.bytes;
	h->packet = h->first = le32_of(number);
	dgram_inject(&fixture.fabric, 1, 0, seen.bytes, len);
	turns(3);
}

/* One of five messages of 32 bytes was taken, as packet 0; its bytes are in seen. */
static void begin_hostile(void)
{
	fixture_init();
	fixture.fabric.crc = true;
	fixture.fabric.hook = see;
	fixture_two(&at_0, &at_1);
	turns(50);
	for (unsigned i = 0; i < 5; i++)
		cr_assert_eq(fixture_send(0, at_0, i, 32), 0);
	fixture.ends[0].q->ops->flush(fixture.ends[0].q);
	turns(50);
	cr_assert(fixture.ends[1].got == 5 && !fixture.ends[1].bad);
	cr_assert_eq(seen.len, 96 + 32 + 4 * 64);
	fixture.ends[1].got = 0; /* numbered so, they come again */
}

static struct wire_sub *sub(unsigned i)
{
	return (struct wire_sub *)(void *)(seen.bytes + 96 + 32 + 64 * (i - 1));
}

static void expect_broken(uint64_t got, const char *what, unsigned i)
{
	struct transport_stats stats;
	transport_stats_read(fixture.ends[1].port, &stats);
	cr_assert_eq(fixture.ends[1].downs, 1, "%s %u", what, i);
	cr_assert_eq(fixture.ends[1].error, -EPROTO, "%s %u", what, i);
	cr_assert_geq(stats.malformed, 1, "%s %u", what, i);
	cr_assert_eq(fixture.ends[1].got, got, "%s %u: %u", what, i, (unsigned)fixture.ends[1].got);
	cr_assert(!fixture.ends[1].bad);
}

/* The length of one of them. Expect those before it, none behind it, and the end. */
Test(transport_recv, lengths_behind_the_first)
{
	static const uint32_t lens[] = {300, 928, 929, 65536, INT32_MAX, UINT32_MAX - 63, UINT32_MAX};
	for (unsigned k = 0; k < 4 * sizeof lens / sizeof *lens; k++) {
		begin_hostile();
		uint32_t len = lens[k / 4];
		unsigned which = k % 4 + 1;
		sub(which)->length = le32_of(len);
		inject(1, seen.len);
		expect_broken(which, "length", k);
		fixture_fini();
	}
}

/* Cut short anywhere, and longer than its messages. */
Test(transport_recv, cut)
{
	for (uint32_t len = 96 + 33; len < 96 + 288; len++) {
		begin_hostile();
		inject(1, len);
		/* Whole messages of it are a packet as well; that has one message less. */
		bool whole = (len - 96) % 64 == 32;
		if (whole) {
			cr_assert_eq(fixture.ends[1].downs, 0);
			cr_assert_eq(fixture.ends[1].got, (len - 96) / 64 + 1);
		} else {
			expect_broken((len - 96 - 32) / 64 + 1, "cut", len);
		}
		fixture_fini();
	}
	for (uint32_t more = 1; more < 100; more += 9) {
		begin_hostile();
		memset(seen.bytes + seen.len, 0xff, more);
		inject(1, seen.len + more);
		expect_broken(5, "longer", more);
		fixture_fini();
	}
}

/* What the first head says. Expect the end, and nothing delivered. */
Test(transport_recv, head)
{
	for (unsigned i = 0; i < 9; i++) {
		begin_hostile();
		struct wire_message *h = (struct wire_message *)(void *)seen.bytes;
		uint32_t len = seen.len;
		uint32_t number = 1;
		if (i == 0)
			h->length = le32_of(len - 96); /* no others */
		else if (i == 1)
			h->length = le32_of(len - 95);
		else if (i == 2)
			h->length = le32_of(UINT32_MAX);
		else if (i == 3)
			h->offset = le32_of(1);
		else if (i == 4)
			h->offset = le32_of(UINT32_MAX);
		else if (i == 5)
			h->flags |= WIRE_FRAGMENT;
		else if (i == 6)
			h->flags |= WIRE_FRAGMENT | WIRE_MORE;
		else if (i == 7)
			len = PACKET_MOST + 1; /* wider than any */
		else
			number = 1 + FAR_TRANSPORT_WINDOW;
		inject(number, len);
		expect_broken(0, "head", i);
		fixture_fini();
	}
}

/* The first begins before the packet: it is not the first of its message. */
Test(transport_recv, part)
{
	begin_hostile();
	struct wire_message *h = (struct wire_message *)(void *)seen.bytes;
	h->packet = le32_of(1);
	h->first = le32_of(0);
	dgram_inject(&fixture.fabric, 1, 0, seen.bytes, seen.len);
	turns(3);
	expect_broken(0, "first", 0);
	fixture_fini();
}

/* Out of its turn a malformed one is refused as a whole. */
Test(transport_recv, early)
{
	begin_hostile();
	sub(3)->length = le32_of(5000);
	inject(3, seen.len);
	expect_broken(0, "early", 0);
	fixture_fini();
}

/* Between the packets of another message: they do not wait for its end. */
Test(transport_recv, within_a_message)
{
	begin_hostile();
	uint8_t batch[sizeof seen.bytes];
	uint32_t len = seen.len;
	memcpy(batch, seen.bytes, len);
	struct wire_message *h = (struct wire_message *)(void *)seen.bytes;
	h->flags = 0;
	h->length = le32_of(3000);
	inject(1, len);
	cr_assert_eq(fixture.ends[1].downs, 0);
	memcpy(seen.bytes, batch, len);
	inject(2, len);
	cr_assert_eq(fixture.ends[1].downs, 0);
	cr_assert(fixture.ends[1].got == 5 && !fixture.ends[1].bad);
	fixture_fini();
}

/* When some of the same packet came in pieces, which packets of several never do. */
Test(transport_recv, after_a_piece)
{
	begin_hostile();
	uint8_t batch[sizeof seen.bytes];
	memcpy(batch, seen.bytes, seen.len);
	struct wire_message *h = (struct wire_message *)(void *)seen.bytes;
	h->flags = WIRE_FRAGMENT | WIRE_MORE;
	h->length = le32_of(3000);
	inject(1, seen.len);
	cr_assert_eq(fixture.ends[1].downs, 0);
	memcpy(seen.bytes, batch, seen.len);
	inject(1, seen.len);
	expect_broken(0, "after a piece", 0);
	fixture_fini();
}

/* Again and again, early and late: each message once. */
Test(transport_recv, repeated)
{
	begin_hostile();
	for (unsigned round = 0; round < 3; round++) {
		inject(3, seen.len);
		inject(2, seen.len);
		inject(0, seen.len);
	}
	cr_assert_eq(fixture.ends[1].got, 0);
	struct transport_stats before, after;
	transport_stats_read(fixture.ends[1].port, &before);
	struct nic_pkt pkts[16];
	struct wire_message *h = (struct wire_message *)(void *)seen.bytes;
	h->packet = h->first = le32_of(1);
	dgram_inject(&fixture.fabric, 1, 0, seen.bytes, seen.len);
	unsigned n = 0, got;
	while ((got = fixture.ends[1].q->ops->recv(fixture.ends[1].q, pkts, 16)))
		for (unsigned i = 0; i < got; i++, n++)
			cr_assert(fixture_is(&pkts[i], n % 5), "%u", n);
	cr_assert_eq(n, 15);
	inject(1, seen.len);
	transport_stats_read(fixture.ends[1].port, &after);
	cr_assert_eq(fixture.ends[1].got, 0);
	cr_assert_eq(after.duplicates - before.duplicates, 1);
	cr_assert_eq(fixture.ends[1].downs, 0);
	fixture_fini();
}

/* Receive some messages of a packet, then the others; the driver below is drained. Expect the queue drained when the
 * last one is delivered, before the next recv(). */
Test(transport_recv, drained)
{
	struct nic_pkt pkts[5];
	fixture_init();
	fixture_two(&at_0, &at_1);
	turns(50);
	struct nic_queue *q = fixture.ends[1].q;
	((struct transport_queue *)(void *)q)->lower->drained = true;
	for (unsigned i = 0; i < 5; i++)
		cr_assert_eq(fixture_send(0, at_0, i, 32), 0);
	fixture.ends[0].q->ops->flush(fixture.ends[0].q);
	cr_assert_eq(q->ops->recv(q, pkts, 3), 3u);
	cr_assert_not(q->drained);
	cr_assert_eq(q->ops->recv(q, pkts, 2), 2u);
	cr_assert(q->drained);
	((struct transport_queue *)(void *)q)->lower->drained = false;
	cr_assert_eq(q->ops->recv(q, pkts, 5), 0u);
	cr_assert_not(q->drained);
	fixture_fini();
}

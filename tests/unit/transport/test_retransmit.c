/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets that are lost or overtaken: probes, retransmissions, spurious ones. The test's thread. */
#include "base/limits.h"
#include "delay_line.h"

#include <criterion/criterion.h>
#include <errno.h>

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)
/* Between a look at the timers and the next one but one, at the pace of fixture_turn(). */
#define LOOKS (100 * US)

static uint32_t at_0, at_1;

/* Two ends with so long a way between them, and `calls` calls made. */
static void begin(uint64_t delay_ns, uint64_t limit_ns, unsigned calls)
{
	line_init(delay_ns);
	fixture.limit_ns = limit_ns;
	fixture_two(&at_0, &at_1);
	for (unsigned i = 0; i < calls; i++)
		cr_assert(line_call(at_0, at_1, i, 32, 10 * S), "call %u", i);
	line_run(4 * S / 1000);
	line_forget();
}

/* Both ends are what they were, and nothing is on the way or kept. */
static void end(void)
{
	cr_assert(!fixture.ends[0].bad && !fixture.ends[1].bad);
	cr_assert_eq(fixture.ends[0].downs + fixture.ends[1].downs, 0);
	for (unsigned e = 0; e < 2; e++)
		cr_assert_eq(fixture.ends[e].q->ops->tx_room(fixture.ends[e].q, e ? at_1 : at_0), FAR_TRANSPORT_SLOTS);
	line_fini();
}

/* In a packet of its own. */
static void send_alone(uint64_t seq)
{
	cr_assert_eq(fixture_send(0, at_0, seq, 32), 0);
	fixture.ends[0].q->ops->flush(fixture.ends[0].q);
}

static bool lose_from_0(unsigned from, const struct wire_message *head)
{
	return from == 0;
}

/* ---- the end of a burst ---- */

static uint32_t lose_from, lose_to; /* packet numbers, once each */
static uint64_t lost_mask;

static bool lose_range(unsigned from, const struct wire_message *head)
{
	uint32_t number = le32_get(head->packet), i = number - lose_from;
	if (from != 0 || head->kind != WIRE_MESSAGE || i >= lose_to - lose_from || lost_mask >> i & 1)
		return false;
	lost_mask |= UINT64_C(1) << i;
	return true;
}

/* The last packets of a burst are lost. Expect them to come after about two round trips, without a time-out. */
Test(transport_retransmit, tail_probe)
{
	enum { BURST = 20 };
	for (unsigned lost = 1; lost <= 6; lost++) {
		begin(200 * US, S, 200);
		struct transport_stats before = line_stats(0);
		uint64_t from = fixture.now, rtt = 400 * US;
		lose_from = 200 + BURST - lost;
		lose_to = 200 + BURST;
		lost_mask = 0;
		line.lose = lose_range;
		for (unsigned i = 0; i < BURST; i++)
			send_alone(200 + i);
		cr_assert(line_until_got(1, 200 + BURST, S));
		/* A round trip until the first acknowledgement, which is delayed; two until the probe, which allows for
		 * that too; one for the evidence, and half of one. */
		cr_assert_leq(fixture.now - from, 9 * rtt / 2 + 2 * (FAR_TRANSPORT_ACK_NS + LOOKS), "%u lost: %u us",
			      lost, (unsigned)((fixture.now - from) / US));
		struct transport_stats after = line_stats(0);
		cr_assert_eq(after.timeouts, before.timeouts, "%u lost", lost);
		cr_assert_eq(after.tail_loss_probes, before.tail_loss_probes + 1, "%u lost", lost);
		cr_assert_eq(after.resent, before.resent + lost - 1, "%u lost", lost);
		cr_assert_eq(after.spurious_retransmits, before.spurious_retransmits);
		line_run(S / 10);
		end();
	}
}

/* The probe is lost too. Expect the time-out to do it. */
Test(transport_retransmit, probe_lost)
{
	begin(200 * US, S, 200);
	struct transport_stats before = line_stats(0);
	line.lose = lose_from_0;
	cr_assert_eq(fixture_send(0, at_0, 200, 32), 0);
	while (line_stats(0).tail_loss_probes == before.tail_loss_probes)
		fixture_turn();
	line.lose = NULL;
	cr_assert(line_until_got(1, 201, 10 * MS));
	cr_assert_eq(line_stats(0).timeouts, before.timeouts + 1);
	line_run(S / 10);
	end();
}

/* ---- reordering ---- */

static struct {
	unsigned from, overtakers;
	uint32_t number;
	bool held, done;
	unsigned passed, to;
	uint8_t bytes[2048];
	uint32_t len;
} swap;

static dgram_hook *through;

/* Packet `number` of `from` arrives after so many that were sent after it. */
static bool overtake(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	struct wire_message head;
	memcpy(&head, bytes, sizeof head);
	if (from != swap.from || head.kind != WIRE_MESSAGE || swap.done)
		return through(ctx, from, to, queue, bytes, len);
	if (le32_get(head.packet) == swap.number && !swap.held) {
		memcpy(swap.bytes, bytes, *len);
		swap.len = *len;
		swap.to = to;
		swap.held = true;
		return false;
	}
	if (swap.held && swap.passed++ == swap.overtakers) {
		uint32_t held_len = swap.len;
		swap.done = true;
		through(ctx, from, to, queue, swap.bytes, &held_len);
	}
	return through(ctx, from, to, queue, bytes, len);
}

static void overtaken(unsigned from, uint32_t number, unsigned overtakers)
{
	memset(&swap, 0, sizeof swap);
	swap.from = from;
	swap.number = number;
	swap.overtakers = overtakers;
}

/* One packet overtaken by 1 to 5, each way. Expect it sent again from FAR_TRANSPORT_REORDER on, that to be recognised
 * as spurious, and more to be needed after that. */
Test(transport_retransmit, reordering)
{
	for (unsigned from = 0; from < 2; from++)
		for (unsigned n = 1; n <= 5; n++) {
			begin(20 * US, S, 1000);
			uint64_t seq = 1000, sent = line_stats(from).resent + line_stats(from).tail_loss_probes;
			through = fixture.fabric.hook;
			fixture.fabric.hook = overtake;
			for (unsigned round = 0; round < 3; round++) {
				overtaken(from, (uint32_t)seq + 3, n);
				for (unsigned i = 0; i < 12; i++) {
					cr_assert_eq(fixture_send(from, from ? at_1 : at_0, seq++, 32), 0);
					fixture_turn(); /* so that each is acknowledged at once */
				}
				cr_assert(line_until_got(!from, seq, S));
				line_run(MS);
				cr_assert(swap.done);
			}
			struct transport_stats after = line_stats(from);
			uint64_t again = after.resent + after.tail_loss_probes - sent;
			cr_assert_eq(again, n >= FAR_TRANSPORT_REORDER, "%u: by %u: %u", from, n, (unsigned)again);
			cr_assert_eq(after.spurious_retransmits, again);
			line_run(S / 10);
			end();
		}
}

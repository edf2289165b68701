/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages over a link: sizes, loss, windows, memory, acknowledgements. The test's thread. */
#include "transport_fixture.h"

#include "base/limits.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static uint32_t at_0, at_1; /* 0's name for 1, and the other way round */

static uint64_t small(uint64_t seq)
{
	return seq % 33;
}

static uint64_t mixed(uint64_t seq)
{
	uint64_t x = (seq + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 20;
	return x % 10 == 0 ? x % 70000 : x % 7 == 0 ? x % 3000 : x % 129;
}

/* Two of them do not fit one packet. */
static uint64_t lone(uint64_t seq)
{
	return 560 + seq % 80;
}

static int send_now(unsigned e, uint32_t peer, uint64_t seq, uint64_t len)
{
	int error = fixture_send(e, peer, seq, len);
	fixture.ends[e].q->ops->flush(fixture.ends[e].q);
	return error;
}

Test(transport_message, small_messages)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	cr_assert(fixture_stream(0, at_0, 1, 1000, small, 10000));
	cr_assert(fixture_stream(1, at_1, 0, 1000, small, 10000));
	fixture_fini();
}

Test(transport_message, mixed_messages)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	cr_assert(fixture_stream(0, at_0, 1, 2000, mixed, 100000));
	fixture_fini();
}

Test(transport_message, everything_happens)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		fixture_init();
		fixture.fabric.seed = seed;
		fixture.fabric.drop = fixture.fabric.repeat = fixture.fabric.overtake = fixture.fabric.damage = 50;
		fixture.fabric.misalign = (unsigned)(seed * 5 % 64);
		fixture_two(&at_0, &at_1);
		cr_assert(fixture_stream(0, at_0, 1, 500, mixed, 1000000), "seed %d", (int)seed);
		cr_assert(fixture_stream(1, at_1, 0, 500, mixed, 1000000), "seed %d", (int)seed);
		cr_assert(fixture_stream(0, at_0, 1, 2000, small, 1000000), "seed %d", (int)seed);
		cr_assert(fixture.ends[0].downs + fixture.ends[1].downs == 0, "seed %d", (int)seed);
		fixture_fini();
	}
}

/* Every length around the limits of a line, of a slot, and of a fragment; bodies of all sizes up to the largest. */
Test(transport_message, sizes)
{
	static const uint64_t around[] = {0, 32, 64, 128, 1304, 2608, 3912, 65536};
	fixture_init();
	fixture_two(&at_0, &at_1);
	uint64_t seq = 0;
	for (unsigned i = 0; i < sizeof around / sizeof *around; i++)
		for (uint64_t len = around[i] < 3 ? 0 : around[i] - 3; len <= around[i] + 3; len++, seq++) {
			cr_assert_eq(fixture_send(0, at_0, seq, len), 0);
			for (unsigned turn = 0; turn < 100 && fixture.ends[1].got == seq; turn++)
				fixture_turn();
			cr_assert(fixture.ends[1].got == seq + 1 && !fixture.ends[1].bad, "%llu bytes",
				  (unsigned long long)len);
		}
	fixture_fini();
}

#define LARGEST ((UINT64_C(16) << 20) + 64) /* and what the engine adds to it */

Test(transport_message, largest)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	cr_assert_eq(fixture_send(0, at_0, 0, LARGEST + 1), -EMSGSIZE);
	cr_assert_eq(fixture_send(0, at_0, 0, UINT64_MAX), -EMSGSIZE);
	cr_assert_eq(fixture_send(0, at_0, 0, LARGEST), 0);
	cr_assert_eq(fixture_send(0, at_0, 1, 3), 0);
	for (unsigned turn = 0; turn < 20000 && fixture.ends[1].got < 2; turn++)
		fixture_turn();
	cr_assert(fixture.ends[1].got == 2 && !fixture.ends[1].bad);
	fixture_fini();
}

static void turns(unsigned n)
{
	while (n-- > 0)
		fixture_turn();
}

/* Packet numbers pass 2^32 - 1 in the middle of a window, with losses there. */
Test(transport_message, numbers_wrap)
{
	for (uint32_t before = 0; before < 200; before += 20) {
		fixture_init();
		fixture.first_packet = UINT32_MAX - before;
		fixture.fabric.seed = before + 1;
		fixture.fabric.drop = fixture.fabric.overtake = 30;
		fixture_two(&at_0, &at_1);
		cr_assert(fixture_stream(0, at_0, 1, 400, mixed, 100000));
		cr_assert(fixture_stream(1, at_1, 0, 400, mixed, 100000));
		fixture_fini();
	}
}

/* Nobody receives. Expect the slots to be used up, tx_room() to return 0, and all to come when somebody does. */
Test(transport_message, slots_full)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	const struct nic_queue_ops *ops = fixture.ends[0].q->ops;
	cr_assert_eq(ops->tx_room(fixture.ends[0].q, at_0), FAR_TRANSPORT_SLOTS);
	for (unsigned round = 0; round < 3; round++) {
		uint64_t first = fixture.ends[1].got, sent = first;
		int error;
		while ((error = fixture_send(0, at_0, sent, small(sent))) == 0)
			sent++;
		cr_assert_eq(error, -EAGAIN);
		cr_assert_eq(sent - first, FAR_TRANSPORT_SLOTS);
		cr_assert_eq(ops->tx_room(fixture.ends[0].q, at_0), 0);
		for (unsigned i = 0; i < 1000 && fixture.ends[1].got < sent; i++)
			fixture_turn();
		cr_assert(fixture.ends[1].got == sent && !fixture.ends[1].bad);
		turns(20);
		cr_assert_eq(ops->tx_room(fixture.ends[0].q, at_0), FAR_TRANSPORT_SLOTS);
	}
	fixture_fini();
}

/* Of one window, and not more, is on the way. */
Test(transport_message, window)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	turns(100);
	for (uint64_t i = 0; i < 1000; i++)
		cr_assert_eq(fixture_send(0, at_0, i, lone(i)), 0);
	fixture.ends[0].q->ops->flush(fixture.ends[0].q);
	cr_assert_eq(dgram_waiting(&fixture.fabric), FAR_TRANSPORT_WINDOW);
	for (unsigned i = 0; i < 1000 && fixture.ends[1].got < 1000; i++)
		fixture_turn();
	cr_assert(fixture.ends[1].got == 1000 && !fixture.ends[1].bad);
	turns(50); /* acknowledged */
	/* And of large ones so many bytes. */
	cr_assert_eq(fixture_send(0, at_0, 1000, UINT64_C(4) << 20), 0);
	turns(20); /* granted */
	for (unsigned i = 0; i < 4; i++)
		fixture.ends[0].q->ops->flush(fixture.ends[0].q);
	cr_assert_leq(dgram_waiting(&fixture.fabric) * 1304, FAR_TRANSPORT_WINDOW_BYTES);
	/* As far as it is granted; what is worth no grant may be missing. */
	cr_assert_geq((dgram_waiting(&fixture.fabric) + 2) * 1304, FAR_TRANSPORT_GRANT_BYTES_MIN / 2);
	fixture_fini();
}

Test(transport_message, bodies_full)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	struct nic_queue *q = fixture.ends[0].q;
	struct nic_tx tx[5];
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(q->ops->tx_reserve(q, at_0, UINT64_C(16) << 20, &tx[i]), 0);
	cr_assert_eq(q->ops->tx_reserve(q, at_0, 129, &tx[4]), -ENOBUFS);
	/* A small one has room of its own. */
	cr_assert_eq(fixture_send(0, at_0, 0, 128), 0);
	for (unsigned i = 0; i < 4; i++)
		q->ops->tx_cancel(q, &tx[i]);
	cr_assert_eq(fixture_send(0, at_0, 1, 100000), 0);
	turns(100);
	cr_assert(fixture.ends[1].got == 2 && !fixture.ends[1].bad);
	fixture_fini();
}

/* Open side by side, they leave in the order of their commits; one that finds the slots taken stays open. */
Test(transport_message, open_side_by_side)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	struct nic_queue *q = fixture.ends[0].q;
	struct nic_tx open;
	cr_assert_eq(q->ops->tx_reserve(q, at_0, 0, &open), 0);
	uint64_t sent = 0, len = 0;
	while (fixture_send(0, at_0, sent, small(sent)) == 0)
		sent++;
	cr_assert_eq(q->ops->tx_commit(q, &open), -EAGAIN);
	for (unsigned i = 0; i < 1000 && fixture.ends[1].got < sent; i++)
		fixture_turn();
	turns(20);
	memset(open.head, 0xc3, FIXTURE_HEAD);
	memcpy(open.head, &sent, sizeof sent);
	memcpy(open.head + 8, &len, sizeof len);
	cr_assert_eq(q->ops->tx_commit(q, &open), 0);
	turns(20);
	cr_assert(fixture.ends[1].got == sent + 1 && !fixture.ends[1].bad);
	fixture_fini();
}

/* What has a cookie is held while others come; it is the bytes that were sent. */
Test(transport_message, held)
{
	enum { HELD = 20 };
	struct nic_pkt held[HELD], pkts[16];
	fixture_init();
	fixture_two(&at_0, &at_1);
	struct nic_queue *q = fixture.ends[1].q;
	for (unsigned i = 0; i < HELD; i++) {
		cr_assert_eq(fixture_send(0, at_0, i, 5000), 0);
		fixture.ends[0].q->ops->flush(fixture.ends[0].q);
		cr_assert_eq(q->ops->recv(q, &held[i], 1), 0); /* four fragments */
		unsigned n = 0;
		while (n == 0)
			n = q->ops->recv(q, &held[i], 1);
		cr_assert(held[i].cookie != 0 && held[i].body_len == 5000);
	}
	for (uint64_t i = HELD; i < 600; i++) {
		cr_assert_eq(fixture_send(0, at_0, i, small(i)), 0);
		fixture.ends[0].q->ops->flush(fixture.ends[0].q);
		while (q->ops->recv(q, pkts, 16) == 0)
			;
		struct nic_pkt own[16];
		fixture.ends[0].q->ops->recv(fixture.ends[0].q, own, 16);
	}
	for (unsigned i = 0; i < HELD; i++) {
		unsigned at = (i * 7) % HELD;
		cr_assert(fixture_is(&held[at], at));
		q->ops->release(q, at_1, held[at].cookie);
	}
	fixture_fini();
}

/* The driver below is full now and then. Expect nothing lost, and no time-out awaited for it. */
Test(transport_message, full_below)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	fixture.fabric.full_every = 3;
	cr_assert(fixture_stream(0, at_0, 1, 500, mixed, 100000));
	fixture_fini();
}

/* The path becomes narrower: with packets under way that are too large for it now, and with large messages queued. */
Test(transport_message, narrower_path)
{
	for (unsigned drop = 0; drop <= 50; drop += 25) {
		fixture_init();
		fixture.fabric.packet_max = 60000;
		fixture_two(&at_0, &at_1);
		fixture.fabric.drop = drop;
		for (uint64_t i = 0; i < 20; i++)
			cr_assert_eq(fixture_send(0, at_0, i, 100000), 0);
		fixture.fabric.black_hole = 1200; /* what is under way is lost */
		fixture.ends[0].q->ops->flush(fixture.ends[0].q);
		fixture.fabric.packet_max = 1200;
		for (unsigned i = 0; i < 200000 && fixture.ends[1].got < 20; i++)
			fixture_turn();
		cr_assert(fixture.ends[1].got == 20 && !fixture.ends[1].bad, "%u packets",
			  (unsigned)fixture.ends[1].got);
		cr_assert(fixture_stream(0, at_0, 1, 100, mixed, 100000));
		cr_assert_eq(fixture.ends[0].downs + fixture.ends[1].downs, 0);
		fixture_fini();
	}
}

/* Large packets vanish, and nobody says so. */
Test(transport_message, black_hole)
{
	fixture_init();
	fixture.fabric.packet_max = 9000;
	fixture.fabric.black_hole = 1300;
	fixture_two(&at_0, &at_1);
	cr_assert(fixture_stream(0, at_0, 1, 30, mixed, 200000));
	cr_assert_eq(fixture.ends[0].downs + fixture.ends[1].downs, 0);
	fixture_fini();
}

/* Nothing to say: no packet, and no time at which to look. */
Test(transport_message, idle_silence)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	cr_assert(fixture_stream(0, at_0, 1, 100, mixed, 10000));
	turns(3000);
	uint64_t before = fixture.fabric.sent;
	fixture.step_ns = 100 * FIXTURE_MS;
	turns(3000);
	cr_assert_eq(fixture.fabric.sent, before);
	for (unsigned e = 0; e < 2; e++) {
		cr_assert_eq(fixture.ends[e].q->ops->deadline(fixture.ends[e].q), UINT64_MAX);
		cr_assert_eq(fixture.ends[e].next, UINT64_MAX);
	}
	cr_assert_eq(fixture.ends[0].downs + fixture.ends[1].downs, 0);
	fixture_fini();
}

/* One packet there and one back when messages answer each other: acknowledgements ride on them. */
Test(transport_message, acknowledgements_ride)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	turns(100);
	uint64_t before = fixture.fabric.sent;
	for (uint64_t i = 0; i < 1000; i++) {
		cr_assert_eq(send_now(0, at_0, i, small(i)), 0);
		cr_assert_eq(fixture_take(1, 0), 1);
		cr_assert_eq(send_now(1, at_1, i, small(i)), 0);
		cr_assert_eq(fixture_take(0, 0), 1);
	}
	cr_assert_eq(fixture.fabric.sent - before, 2000);
	/* The last answer is acknowledged alone, after a while. */
	turns(100);
	cr_assert_leq(fixture.fabric.sent - before, 2002);
	fixture_fini();
}

/* One way only: an acknowledgement for many. */
Test(transport_message, acknowledgements_of_many)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	turns(100);
	uint64_t before = fixture.fabric.sent;
	cr_assert(fixture_stream(0, at_0, 1, 10000, lone, 10000));
	cr_assert_leq(fixture.fabric.sent - before, 10000 + 10000 / FAR_TRANSPORT_ACK_EVERY * 3);
	fixture_fini();
}

/* Packets so large that a few fill the window: acknowledged by their bytes. Expect that no time is awaited for it, and
 * an acknowledgement for two packets, not for each. */
Test(transport_message, acknowledgements_of_large)
{
	enum { MESSAGES = 4, BYTES = 4 << 20, PACKET = 65507 };
	fixture_init();
	fixture.fabric.packet_max = PACKET;
	fixture_two(&at_0, &at_1);
	turns(100);
	fixture.step_ns = 0; /* no time passes */
	uint64_t before = fixture.fabric.sent, packets = MESSAGES * (BYTES / (PACKET - 96) + 1);
	for (uint64_t i = 0; i < MESSAGES; i++)
		cr_assert_eq(fixture_send(0, at_0, i, BYTES), 0);
	for (unsigned turn = 0; turn < 10000 && fixture.ends[1].got < MESSAGES; turn++)
		fixture_turn();
	cr_assert(fixture.ends[1].got == MESSAGES && !fixture.ends[1].bad, "%u", (unsigned)fixture.ends[1].got);
	cr_assert_leq(fixture.fabric.sent - before, packets + packets * (PACKET - 96) / FAR_TRANSPORT_ACK_BYTES + 1);
	fixture_fini();
}

static bool lose(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	const struct lose {
		unsigned from, every;
		unsigned *n;
	} *l = ctx;
	return from != l->from || ++*l->n % l->every != 0;
}

/* A gap is filled as soon as three packets show it, before any time-out. */
Test(transport_message, gaps_do_not_wait)
{
	unsigned n = 0;
	struct {
		unsigned from, every;
		unsigned *n;
	} every_tenth = {0, 10, &n};
	fixture_init();
	fixture_two(&at_0, &at_1);
	turns(100);
	fixture.step_ns = 0; /* no time passes */
	fixture.fabric.hook = lose;
	fixture.fabric.hook_ctx = &every_tenth;
	uint64_t sent = 0;
	for (unsigned turn = 0; turn < 2000 && fixture.ends[1].got < 900; turn++) {
		while (sent < 1000 && fixture_send(0, at_0, sent, lone(sent)) == 0)
			sent++;
		fixture_turn();
	}
	cr_assert(fixture.ends[1].got >= 900 && !fixture.ends[1].bad, "%u", (unsigned)fixture.ends[1].got);
	fixture_fini();
}

static bool owes_all(void *ctx, uint32_t peer)
{
	return *(bool *)ctx;
}

static bool silence(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	return from == 0;
}

/* A peer that falls silent is DOWN when something is unacknowledged, or when it owes an answer; else it is not. */
Test(transport_message, dead_peer)
{
	for (unsigned what = 0; what < 3; what++) {
		bool delayed = what == 1;
		fixture_init();
		fixture.limit_ns = 1000 * FIXTURE_MS;
		end_open(0, 1);
		end_open(1, 1);
		fixture.ends[0].q->ops->set_liveness_callback(fixture.ends[0].q, owes_all, &delayed);
		fixture_pair(0, 1, &at_0, &at_1);
		cr_assert_eq(fixture_send(0, at_0, 0, 10), 0);
		turns(100);
		fixture.fabric.hook = silence;
		if (what == 2)
			cr_assert_eq(fixture_send(0, at_0, 1, 10), 0);
		uint64_t from = fixture.now, before = fixture.fabric.sent;
		cr_assert_eq(fixture_until(&fixture.ends[0].downs, 1, 50000), what > 0);
		if (what) {
			cr_assert_eq(fixture.ends[0].error, -ETIMEDOUT);
			cr_assert_geq(fixture.now - from, 900 * FIXTURE_MS);
			cr_assert_leq(fixture.now - from, 1500 * FIXTURE_MS);
			/* Probed, and not flooded. */
			cr_assert_geq(fixture.fabric.sent - before, 3);
			cr_assert_leq(fixture.fabric.sent - before, 100);
		}
		fixture_fini();
	}
}

/* A slow answer: probes are answered, the peer stays. */
Test(transport_message, slow_answer)
{
	bool delayed = true;
	fixture_init();
	fixture.limit_ns = 1000 * FIXTURE_MS;
	end_open(0, 1);
	end_open(1, 1);
	fixture.ends[0].q->ops->set_liveness_callback(fixture.ends[0].q, owes_all, &delayed);
	fixture_pair(0, 1, &at_0, &at_1);
	cr_assert_eq(fixture_send(0, at_0, 0, 10), 0);
	turns(100);
	uint64_t before = fixture.fabric.sent;
	fixture.step_ns = FIXTURE_MS;
	turns(20000); /* 20 s */
	cr_assert_eq(fixture.ends[0].downs, 0);
	cr_assert_geq(fixture.fabric.sent - before, 2 * 60);
	cr_assert_leq(fixture.fabric.sent - before, 2 * 90); /* a probe each quarter of the limit, and its answer */
	delayed = false;
	turns(1000);
	before = fixture.fabric.sent;
	turns(10000);
	cr_assert_eq(fixture.fabric.sent, before);
	fixture_fini();
}

/* Our own process stood still: that says nothing about the peer. */
Test(transport_message, own_pause)
{
	fixture_init();
	fixture.limit_ns = 1000 * FIXTURE_MS;
	fixture_two(&at_0, &at_1);
	for (unsigned i = 0; i < 5; i++) {
		cr_assert_eq(fixture_send(0, at_0, i, 10), 0);
		fixture.now += 30000 * FIXTURE_MS;
		turns(50);
	}
	cr_assert(fixture.ends[1].got == 5 && !fixture.ends[1].bad);
	cr_assert_eq(fixture.ends[0].downs, 0);
	fixture_fini();
}

/* deadline() is when recv() has something to do: one call then does it. */
Test(transport_message, deadlines)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	turns(200);
	struct nic_queue *q = fixture.ends[0].q;
	struct nic_pkt pkt;
	fixture.fabric.hook = silence;
	cr_assert_eq(send_now(0, at_0, 0, 5), 0);
	q->ops->recv(q, &pkt, 1);
	for (unsigned i = 0; i < 5; i++) {
		uint64_t at = q->ops->deadline(q);
		cr_assert(at > fixture.now && at <= fixture.now + FAR_TRANSPORT_RTO_NS_MAX);
		fixture.now = at;
		uint64_t before = fixture.fabric.sent;
		q->ops->recv(q, &pkt, 1);
		if (i == 0)
			at = q->ops->deadline(q); /* the first look sets the time */
		else
			cr_assert_gt(fixture.fabric.sent, before, "time-out %u", i);
	}
	fixture_fini();
}

/* Without wake below: who sleeps says so, and is kicked; one that was not heard is kicked by the resend. */
Test(transport_message, kicks)
{
	fixture_init();
	fixture.fabric.wake = false;
	fixture_two(&at_0, &at_1);
	struct nic_caps caps;
	fixture.ends[0].port->ops->caps(fixture.ends[0].port, &caps);
	cr_assert(caps.wake);
	cr_assert(fixture_stream(0, at_0, 1, 10, small, 1000));
	cr_assert(fixture_stream(1, at_1, 0, 10, small, 1000));
	turns(1000);
	struct nic_queue *q0 = fixture.ends[0].q, *q1 = fixture.ends[1].q;
	struct nic_pkt pkts[16];
	q1->ops->arm(q1);
	cr_assert_eq(q1->ops->recv(q1, pkts, 16), 0);
	cr_assert_gt(dgram_waiting(&fixture.fabric), 0); /* it says so */
	q0->ops->recv(q0, pkts, 16);
	uint64_t kicks = fixture.fabric.kicks, sent = fixture.fabric.sent;
	cr_assert_eq(fixture_send(0, at_0, 10, 5), 0);
	cr_assert_eq(fixture.fabric.kicks, kicks);
	q0->ops->flush(q0);
	q0->ops->flush(q0);
	cr_assert_eq(fixture.fabric.kicks, kicks + 1);
	cr_assert_eq(fixture.fabric.sent, sent + 1);
	q1->ops->disarm(q1);
	cr_assert(fixture_take(1, 0) == 1 && !fixture.ends[1].bad);
	cr_assert_eq(send_now(1, at_1, 10, 5), 0);
	cr_assert_eq(fixture_take(0, 0), 1);
	/* It is awake now. */
	kicks = fixture.fabric.kicks;
	cr_assert_eq(fixture_send(0, at_0, 11, 5), 0);
	q0->ops->flush(q0);
	cr_assert_eq(fixture.fabric.kicks, kicks);
	/* The word that it sleeps is lost. */
	turns(1000);
	fixture.fabric.hook = silence;
	q1->ops->arm(q1);
	q1->ops->flush(q1);
	fixture.fabric.hook = NULL;
	kicks = fixture.fabric.kicks;
	cr_assert_eq(fixture_send(0, at_0, 12, 5), 0);
	q0->ops->flush(q0);
	cr_assert_eq(fixture.fabric.kicks, kicks);
	for (unsigned i = 0; i < 1000 && fixture.fabric.kicks == kicks; i++) {
		q0->ops->recv(q0, pkts, 16);
		fixture.now += 100000;
	}
	cr_assert_gt(fixture.fabric.kicks, kicks);
	fixture_fini();
}

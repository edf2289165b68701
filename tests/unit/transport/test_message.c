/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages over a link: sizes, loss, windows, memory, acknowledgements. */
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
	int error = bench_send(e, peer, seq, len);
	bench.ends[e].q->ops->flush(bench.ends[e].q);
	return error;
}

Test(link_data, small_messages)
{
	bench_init();
	bench_two(&at_0, &at_1);
	cr_assert(bench_stream(0, at_0, 1, 1000, small, 10000));
	cr_assert(bench_stream(1, at_1, 0, 1000, small, 10000));
	bench_fini();
}

Test(link_data, mixed_messages)
{
	bench_init();
	bench_two(&at_0, &at_1);
	cr_assert(bench_stream(0, at_0, 1, 2000, mixed, 100000));
	bench_fini();
}

Test(link_data, everything_happens)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		bench_init();
		bench.fabric.seed = seed;
		bench.fabric.drop = bench.fabric.repeat = bench.fabric.overtake = bench.fabric.damage = 50;
		bench.fabric.misalign = (unsigned)(seed * 5 % 64);
		bench_two(&at_0, &at_1);
		cr_assert(bench_stream(0, at_0, 1, 500, mixed, 1000000), "seed %d", (int)seed);
		cr_assert(bench_stream(1, at_1, 0, 500, mixed, 1000000), "seed %d", (int)seed);
		cr_assert(bench_stream(0, at_0, 1, 2000, small, 1000000), "seed %d", (int)seed);
		cr_assert(bench.ends[0].downs + bench.ends[1].downs == 0, "seed %d", (int)seed);
		bench_fini();
	}
}

/* Every length around the limits of a line, of a slot, and of a fragment; bodies of all sizes up to the largest. */
Test(link_data, sizes)
{
	static const uint64_t around[] = {0, 32, 64, 128, 1304, 2608, 3912, 65536};
	bench_init();
	bench_two(&at_0, &at_1);
	uint64_t seq = 0;
	for (unsigned i = 0; i < sizeof around / sizeof *around; i++)
		for (uint64_t len = around[i] < 3 ? 0 : around[i] - 3; len <= around[i] + 3; len++, seq++) {
			cr_assert_eq(bench_send(0, at_0, seq, len), 0);
			for (unsigned turn = 0; turn < 100 && bench.ends[1].got == seq; turn++)
				bench_turn();
			cr_assert(bench.ends[1].got == seq + 1 && !bench.ends[1].bad, "%llu bytes",
				  (unsigned long long)len);
		}
	bench_fini();
}

#define LARGEST ((UINT64_C(16) << 20) + 64) /* and what the engine adds to it */

Test(link_data, largest)
{
	bench_init();
	bench_two(&at_0, &at_1);
	cr_assert_eq(bench_send(0, at_0, 0, LARGEST + 1), -EMSGSIZE);
	cr_assert_eq(bench_send(0, at_0, 0, UINT64_MAX), -EMSGSIZE);
	cr_assert_eq(bench_send(0, at_0, 0, LARGEST), 0);
	cr_assert_eq(bench_send(0, at_0, 1, 3), 0);
	for (unsigned turn = 0; turn < 20000 && bench.ends[1].got < 2; turn++)
		bench_turn();
	cr_assert(bench.ends[1].got == 2 && !bench.ends[1].bad);
	bench_fini();
}

static void turns(unsigned n)
{
	while (n-- > 0)
		bench_turn();
}

/* Packet numbers pass 2^32 - 1 in the middle of a window, with losses there. */
Test(link_data, numbers_wrap)
{
	for (uint32_t before = 0; before < 200; before += 20) {
		bench_init();
		bench.first_packet = UINT32_MAX - before;
		bench.fabric.seed = before + 1;
		bench.fabric.drop = bench.fabric.overtake = 30;
		bench_two(&at_0, &at_1);
		cr_assert(bench_stream(0, at_0, 1, 400, mixed, 100000));
		cr_assert(bench_stream(1, at_1, 0, 400, mixed, 100000));
		bench_fini();
	}
}

/* Nobody receives. Expect the slots to be used up, tx_room() to tell, and all to come when somebody does. */
Test(link_data, slots_full)
{
	bench_init();
	bench_two(&at_0, &at_1);
	const struct nic_queue_ops *ops = bench.ends[0].q->ops;
	cr_assert_eq(ops->tx_room(bench.ends[0].q, at_0), FAR_LINK_SLOTS);
	for (unsigned round = 0; round < 3; round++) {
		uint64_t first = bench.ends[1].got, sent = first;
		int error;
		while ((error = bench_send(0, at_0, sent, small(sent))) == 0)
			sent++;
		cr_assert_eq(error, -EAGAIN);
		cr_assert_eq(sent - first, FAR_LINK_SLOTS);
		cr_assert_eq(ops->tx_room(bench.ends[0].q, at_0), 0);
		for (unsigned i = 0; i < 1000 && bench.ends[1].got < sent; i++)
			bench_turn();
		cr_assert(bench.ends[1].got == sent && !bench.ends[1].bad);
		turns(20);
		cr_assert_eq(ops->tx_room(bench.ends[0].q, at_0), FAR_LINK_SLOTS);
	}
	bench_fini();
}

/* Of one window, and not more, is on the way. */
Test(link_data, window)
{
	bench_init();
	bench_two(&at_0, &at_1);
	turns(100);
	for (uint64_t i = 0; i < 1000; i++)
		cr_assert_eq(bench_send(0, at_0, i, lone(i)), 0);
	bench.ends[0].q->ops->flush(bench.ends[0].q);
	cr_assert_eq(dgram_waiting(&bench.fabric), FAR_LINK_WINDOW);
	for (unsigned i = 0; i < 1000 && bench.ends[1].got < 1000; i++)
		bench_turn();
	cr_assert(bench.ends[1].got == 1000 && !bench.ends[1].bad);
	turns(50); /* acknowledged */
	/* And of large ones so many bytes. */
	cr_assert_eq(bench_send(0, at_0, 1000, UINT64_C(4) << 20), 0);
	turns(20); /* granted */
	for (unsigned i = 0; i < 4; i++)
		bench.ends[0].q->ops->flush(bench.ends[0].q);
	cr_assert_leq(dgram_waiting(&bench.fabric) * 1304, FAR_LINK_WINDOW_BYTES);
	/* As far as it is granted; what is worth no grant may be missing. */
	cr_assert_geq((dgram_waiting(&bench.fabric) + 2) * 1304, FAR_LINK_GRANT_LEAST / 2);
	bench_fini();
}

Test(link_data, bodies_full)
{
	bench_init();
	bench_two(&at_0, &at_1);
	struct nic_queue *q = bench.ends[0].q;
	struct nic_tx tx[5];
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(q->ops->tx_reserve(q, at_0, UINT64_C(16) << 20, &tx[i]), 0);
	cr_assert_eq(q->ops->tx_reserve(q, at_0, 129, &tx[4]), -ENOBUFS);
	/* A small one has room of its own. */
	cr_assert_eq(bench_send(0, at_0, 0, 128), 0);
	for (unsigned i = 0; i < 4; i++)
		q->ops->tx_cancel(q, &tx[i]);
	cr_assert_eq(bench_send(0, at_0, 1, 100000), 0);
	turns(100);
	cr_assert(bench.ends[1].got == 2 && !bench.ends[1].bad);
	bench_fini();
}

/* Open side by side, they leave in the order of their commits; one that finds the slots taken stays open. */
Test(link_data, open_side_by_side)
{
	bench_init();
	bench_two(&at_0, &at_1);
	struct nic_queue *q = bench.ends[0].q;
	struct nic_tx open;
	cr_assert_eq(q->ops->tx_reserve(q, at_0, 0, &open), 0);
	uint64_t sent = 0, len = 0;
	while (bench_send(0, at_0, sent, small(sent)) == 0)
		sent++;
	cr_assert_eq(q->ops->tx_commit(q, &open), -EAGAIN);
	for (unsigned i = 0; i < 1000 && bench.ends[1].got < sent; i++)
		bench_turn();
	turns(20);
	memset(open.head, 0xc3, LINK_BENCH_HEAD);
	memcpy(open.head, &sent, sizeof sent);
	memcpy(open.head + 8, &len, sizeof len);
	cr_assert_eq(q->ops->tx_commit(q, &open), 0);
	turns(20);
	cr_assert(bench.ends[1].got == sent + 1 && !bench.ends[1].bad);
	bench_fini();
}

/* What has a cookie is held while others come; it is the bytes that were sent. */
Test(link_data, held)
{
	enum { HELD = 20 };
	struct nic_pkt held[HELD], pkts[16];
	bench_init();
	bench_two(&at_0, &at_1);
	struct nic_queue *q = bench.ends[1].q;
	for (unsigned i = 0; i < HELD; i++) {
		cr_assert_eq(bench_send(0, at_0, i, 5000), 0);
		bench.ends[0].q->ops->flush(bench.ends[0].q);
		cr_assert_eq(q->ops->recv(q, &held[i], 1), 0); /* four fragments */
		unsigned n = 0;
		while (n == 0)
			n = q->ops->recv(q, &held[i], 1);
		cr_assert(held[i].cookie != 0 && held[i].body_len == 5000);
	}
	for (uint64_t i = HELD; i < 600; i++) {
		cr_assert_eq(bench_send(0, at_0, i, small(i)), 0);
		bench.ends[0].q->ops->flush(bench.ends[0].q);
		while (q->ops->recv(q, pkts, 16) == 0)
			;
		struct nic_pkt own[16];
		bench.ends[0].q->ops->recv(bench.ends[0].q, own, 16);
	}
	for (unsigned i = 0; i < HELD; i++) {
		unsigned at = (i * 7) % HELD;
		cr_assert(bench_is(&held[at], at));
		q->ops->release(q, at_1, held[at].cookie);
	}
	bench_fini();
}

/* The driver below is full now and then. Expect nothing lost, and no time-out awaited for it. */
Test(link_data, full_below)
{
	bench_init();
	bench_two(&at_0, &at_1);
	bench.fabric.full_every = 3;
	cr_assert(bench_stream(0, at_0, 1, 500, mixed, 100000));
	bench_fini();
}

/* The path becomes narrower: with packets under way that are too large for it now, and with large messages queued. */
Test(link_data, narrower_path)
{
	for (unsigned drop = 0; drop <= 50; drop += 25) {
		bench_init();
		bench.fabric.packet_max = 60000;
		bench_two(&at_0, &at_1);
		bench.fabric.drop = drop;
		for (uint64_t i = 0; i < 20; i++)
			cr_assert_eq(bench_send(0, at_0, i, 100000), 0);
		bench.fabric.black_hole = 1200; /* what is under way is lost */
		bench.ends[0].q->ops->flush(bench.ends[0].q);
		bench.fabric.packet_max = 1200;
		for (unsigned i = 0; i < 200000 && bench.ends[1].got < 20; i++)
			bench_turn();
		cr_assert(bench.ends[1].got == 20 && !bench.ends[1].bad, "%u packets", (unsigned)bench.ends[1].got);
		cr_assert(bench_stream(0, at_0, 1, 100, mixed, 100000));
		cr_assert_eq(bench.ends[0].downs + bench.ends[1].downs, 0);
		bench_fini();
	}
}

/* Large packets vanish, and nobody says so. */
Test(link_data, black_hole)
{
	bench_init();
	bench.fabric.packet_max = 9000;
	bench.fabric.black_hole = 1300;
	bench_two(&at_0, &at_1);
	cr_assert(bench_stream(0, at_0, 1, 30, mixed, 200000));
	cr_assert_eq(bench.ends[0].downs + bench.ends[1].downs, 0);
	bench_fini();
}

/* Nothing to say: no packet, and no time at which to look. */
Test(link_data, idle_silence)
{
	bench_init();
	bench_two(&at_0, &at_1);
	cr_assert(bench_stream(0, at_0, 1, 100, mixed, 10000));
	turns(3000);
	uint64_t before = bench.fabric.sent;
	bench.step_ns = 100 * BENCH_MS;
	turns(3000);
	cr_assert_eq(bench.fabric.sent, before);
	for (unsigned e = 0; e < 2; e++) {
		cr_assert_eq(bench.ends[e].q->ops->deadline(bench.ends[e].q), UINT64_MAX);
		cr_assert_eq(bench.ends[e].next, UINT64_MAX);
	}
	cr_assert_eq(bench.ends[0].downs + bench.ends[1].downs, 0);
	bench_fini();
}

/* One packet there and one back when messages answer each other: acknowledgements ride on them. */
Test(link_data, acknowledgements_ride)
{
	bench_init();
	bench_two(&at_0, &at_1);
	turns(100);
	uint64_t before = bench.fabric.sent;
	for (uint64_t i = 0; i < 1000; i++) {
		cr_assert_eq(send_now(0, at_0, i, small(i)), 0);
		cr_assert_eq(bench_take(1, 0), 1);
		cr_assert_eq(send_now(1, at_1, i, small(i)), 0);
		cr_assert_eq(bench_take(0, 0), 1);
	}
	cr_assert_eq(bench.fabric.sent - before, 2000);
	/* The last answer is acknowledged alone, after a while. */
	turns(100);
	cr_assert_leq(bench.fabric.sent - before, 2002);
	bench_fini();
}

/* One way only: an acknowledgement for many. */
Test(link_data, acknowledgements_of_many)
{
	bench_init();
	bench_two(&at_0, &at_1);
	turns(100);
	uint64_t before = bench.fabric.sent;
	cr_assert(bench_stream(0, at_0, 1, 10000, lone, 10000));
	cr_assert_leq(bench.fabric.sent - before, 10000 + 10000 / FAR_LINK_ACK_EVERY * 3);
	bench_fini();
}

/* Packets so large that a few fill the window: acknowledged by their bytes. Expect that no time is awaited for it, and
 * an acknowledgement for two packets, not for each. */
Test(link_data, acknowledgements_of_large)
{
	enum { MESSAGES = 4, BYTES = 4 << 20, PACKET = 65507 };
	bench_init();
	bench.fabric.packet_max = PACKET;
	bench_two(&at_0, &at_1);
	turns(100);
	bench.step_ns = 0; /* no time passes */
	uint64_t before = bench.fabric.sent, packets = MESSAGES * (BYTES / (PACKET - 96) + 1);
	for (uint64_t i = 0; i < MESSAGES; i++)
		cr_assert_eq(bench_send(0, at_0, i, BYTES), 0);
	for (unsigned turn = 0; turn < 10000 && bench.ends[1].got < MESSAGES; turn++)
		bench_turn();
	cr_assert(bench.ends[1].got == MESSAGES && !bench.ends[1].bad, "%u", (unsigned)bench.ends[1].got);
	cr_assert_leq(bench.fabric.sent - before, packets + packets * (PACKET - 96) / FAR_LINK_ACK_BYTES + 1);
	bench_fini();
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
Test(link_data, gaps_do_not_wait)
{
	unsigned n = 0;
	struct {
		unsigned from, every;
		unsigned *n;
	} every_tenth = {0, 10, &n};
	bench_init();
	bench_two(&at_0, &at_1);
	turns(100);
	bench.step_ns = 0; /* no time passes */
	bench.fabric.hook = lose;
	bench.fabric.hook_ctx = &every_tenth;
	uint64_t sent = 0;
	for (unsigned turn = 0; turn < 2000 && bench.ends[1].got < 900; turn++) {
		while (sent < 1000 && bench_send(0, at_0, sent, lone(sent)) == 0)
			sent++;
		bench_turn();
	}
	cr_assert(bench.ends[1].got >= 900 && !bench.ends[1].bad, "%u", (unsigned)bench.ends[1].got);
	bench_fini();
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
Test(link_data, dead_peer)
{
	for (unsigned what = 0; what < 3; what++) {
		bool owing = what == 1;
		bench_init();
		bench.limit_ns = 1000 * BENCH_MS;
		end_open(0, 1);
		end_open(1, 1);
		bench.ends[0].q->ops->watch(bench.ends[0].q, owes_all, &owing);
		bench_pair(0, 1, &at_0, &at_1);
		cr_assert_eq(bench_send(0, at_0, 0, 10), 0);
		turns(100);
		bench.fabric.hook = silence;
		if (what == 2)
			cr_assert_eq(bench_send(0, at_0, 1, 10), 0);
		uint64_t from = bench.now, before = bench.fabric.sent;
		cr_assert_eq(bench_until(&bench.ends[0].downs, 1, 50000), what > 0);
		if (what) {
			cr_assert_eq(bench.ends[0].error, -ETIMEDOUT);
			cr_assert_geq(bench.now - from, 900 * BENCH_MS);
			cr_assert_leq(bench.now - from, 1500 * BENCH_MS);
			/* Probed, and not flooded. */
			cr_assert_geq(bench.fabric.sent - before, 3);
			cr_assert_leq(bench.fabric.sent - before, 100);
		}
		bench_fini();
	}
}

/* A slow answer: probes are answered, the peer stays. */
Test(link_data, slow_answer)
{
	bool owing = true;
	bench_init();
	bench.limit_ns = 1000 * BENCH_MS;
	end_open(0, 1);
	end_open(1, 1);
	bench.ends[0].q->ops->watch(bench.ends[0].q, owes_all, &owing);
	bench_pair(0, 1, &at_0, &at_1);
	cr_assert_eq(bench_send(0, at_0, 0, 10), 0);
	turns(100);
	uint64_t before = bench.fabric.sent;
	bench.step_ns = BENCH_MS;
	turns(20000); /* 20 s */
	cr_assert_eq(bench.ends[0].downs, 0);
	cr_assert_geq(bench.fabric.sent - before, 2 * 60);
	cr_assert_leq(bench.fabric.sent - before, 2 * 90); /* a probe each quarter of the limit, and its answer */
	owing = false;
	turns(1000);
	before = bench.fabric.sent;
	turns(10000);
	cr_assert_eq(bench.fabric.sent, before);
	bench_fini();
}

/* Our own process stood still: that says nothing about the peer. */
Test(link_data, own_pause)
{
	bench_init();
	bench.limit_ns = 1000 * BENCH_MS;
	bench_two(&at_0, &at_1);
	for (unsigned i = 0; i < 5; i++) {
		cr_assert_eq(bench_send(0, at_0, i, 10), 0);
		bench.now += 30000 * BENCH_MS;
		turns(50);
	}
	cr_assert(bench.ends[1].got == 5 && !bench.ends[1].bad);
	cr_assert_eq(bench.ends[0].downs, 0);
	bench_fini();
}

/* deadline() is when recv() has something to do: one call then does it. */
Test(link_data, deadlines)
{
	bench_init();
	bench_two(&at_0, &at_1);
	turns(200);
	struct nic_queue *q = bench.ends[0].q;
	struct nic_pkt pkt;
	bench.fabric.hook = silence;
	cr_assert_eq(send_now(0, at_0, 0, 5), 0);
	q->ops->recv(q, &pkt, 1);
	for (unsigned i = 0; i < 5; i++) {
		uint64_t at = q->ops->deadline(q);
		cr_assert(at > bench.now && at <= bench.now + FAR_LINK_RESEND_NS_MAX);
		bench.now = at;
		uint64_t before = bench.fabric.sent;
		q->ops->recv(q, &pkt, 1);
		if (i == 0)
			at = q->ops->deadline(q); /* the first look sets the time */
		else
			cr_assert_gt(bench.fabric.sent, before, "time-out %u", i);
	}
	bench_fini();
}

/* Without wake below: who sleeps says so, and is kicked; one that was not heard is kicked by the resend. */
Test(link_data, kicks)
{
	bench_init();
	bench.fabric.wake = false;
	bench_two(&at_0, &at_1);
	struct nic_caps caps;
	bench.ends[0].port->ops->caps(bench.ends[0].port, &caps);
	cr_assert(caps.wake);
	cr_assert(bench_stream(0, at_0, 1, 10, small, 1000));
	cr_assert(bench_stream(1, at_1, 0, 10, small, 1000));
	turns(1000);
	struct nic_queue *q0 = bench.ends[0].q, *q1 = bench.ends[1].q;
	struct nic_pkt pkts[16];
	q1->ops->arm(q1);
	cr_assert_eq(q1->ops->recv(q1, pkts, 16), 0);
	cr_assert_gt(dgram_waiting(&bench.fabric), 0); /* it says so */
	q0->ops->recv(q0, pkts, 16);
	uint64_t kicks = bench.fabric.kicks, sent = bench.fabric.sent;
	cr_assert_eq(bench_send(0, at_0, 10, 5), 0);
	cr_assert_eq(bench.fabric.kicks, kicks);
	q0->ops->flush(q0);
	q0->ops->flush(q0);
	cr_assert_eq(bench.fabric.kicks, kicks + 1);
	cr_assert_eq(bench.fabric.sent, sent + 1);
	q1->ops->disarm(q1);
	cr_assert(bench_take(1, 0) == 1 && !bench.ends[1].bad);
	cr_assert_eq(send_now(1, at_1, 10, 5), 0);
	cr_assert_eq(bench_take(0, 0), 1);
	/* It is awake now. */
	kicks = bench.fabric.kicks;
	cr_assert_eq(bench_send(0, at_0, 11, 5), 0);
	q0->ops->flush(q0);
	cr_assert_eq(bench.fabric.kicks, kicks);
	/* The word that it sleeps is lost. */
	turns(1000);
	bench.fabric.hook = silence;
	q1->ops->arm(q1);
	q1->ops->flush(q1);
	bench.fabric.hook = NULL;
	kicks = bench.fabric.kicks;
	cr_assert_eq(bench_send(0, at_0, 12, 5), 0);
	q0->ops->flush(q0);
	cr_assert_eq(bench.fabric.kicks, kicks);
	for (unsigned i = 0; i < 1000 && bench.fabric.kicks == kicks; i++) {
		q0->ops->recv(q0, pkts, 16);
		bench.now += 100000;
	}
	cr_assert_gt(bench.fabric.kicks, kicks);
	bench_fini();
}

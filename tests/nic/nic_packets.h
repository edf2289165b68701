/* SPDX-License-Identifier: BSD-3-Clause */
/** Cases of the queue operations; nic_conformance.c includes it. Main thread of each process. */
#ifndef NIC_PACKETS_H
#define NIC_PACKETS_H

#include "nic_fixture.h"
#include "transport/audit.h"

static void case_sizes(void)
{
	uint64_t in_line = caps.inline_bytes_max > HEAD ? caps.inline_bytes_max - HEAD : 32;
	uint64_t sizes[] = {0,
			    1,
			    2,
			    7,
			    8,
			    in_line - 1,
			    in_line,
			    in_line + 1,
			    63,
			    64,
			    65,
			    255,
			    256,
			    257,
			    4095,
			    4096,
			    65537,
			    1000003,
			    caps.body_bytes_max - 1,
			    caps.body_bytes_max};
	two();
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		REQUIRE(send_one(0, at_1, i, sizes[i]) == 0);
		flush(0);
		expect_one(1, at_0, i, sizes[i]);
		REQUIRE(send_one(1, at_0, i, sizes[i]) == 0);
		flush(1);
		expect_one(0, at_1, i, sizes[i]);
	}
}

static void case_too_large(void)
{
	two();
	REQUIRE(send_one(0, at_1, 0, caps.body_bytes_max + 1) == -EMSGSIZE);
	REQUIRE(send_one(0, at_1, 0, UINT64_MAX) == -EMSGSIZE);
	REQUIRE(send_one(0, at_1, 5, 10) == 0);
	flush(0);
	expect_one(1, at_0, 5, 10);
}

static void case_not_attached(void)
{
	two();
	REQUIRE(send_one(0, at_1 + 1, 0, 1) == -EPIPE);
	REQUIRE(send_one(0, NIC_PEER_NONE, 0, 1) == -EPIPE);
	ends[0].ops->detach(ends[0].q, at_1);
	REQUIRE(send_one(0, at_1, 0, 1) == -EPIPE);
	REQUIRE(send_one(0, at_1, 0, 100000) == -EPIPE);
}

static inline uint64_t order_len(uint64_t seq)
{
	return mix(seq) % (seq % 5 ? 32 : 3000);
}

/* In order, exactly once, small and large mixed, in bursts of every size. */
static void case_order(void)
{
	struct nic_pkt pkts[BURST];
	const uint64_t packets = repeats(20000);
	uint64_t sent = 0, got = 0;
	two();
	while (got < packets) {
		/* All have arrived, and the acknowledgements that make room for more may be under way. */
		if (sent == got) {
			REQUIRE(send_soon(0, at_1, sent, order_len(sent)));
			sent++;
		}
		while (sent < packets && send_one(0, at_1, sent, order_len(sent)) == 0)
			sent++;
		flush(0);
		unsigned n = take_soon(1, pkts, (unsigned)(got % BURST) + 1);
		REQUIRE(n > 0);
		for (unsigned i = 0; i < n; i++, got++) {
			pkt_check(&pkts[i], got, order_len(got));
			give(1, &pkts[i]);
		}
	}
	REQUIRE(take(1, pkts, BURST) == 0);
}

/* What has a cookie may be held while others come and go, and is given back in any order. */
static void case_held(void)
{
	enum { HELD = 64 };
	struct nic_pkt held[HELD], pkt;
	/* Over a network what came in one packet is not to be held, it lies where packets arrive. */
	uint64_t len = over_network ? 80000 : 500;
	two();
	for (unsigned round = 0; round < repeats(over_network ? 5 : 20); round++) {
		for (unsigned i = 0; i < HELD; i++) {
			REQUIRE(send_soon(0, at_1, i, len + i * 100));
			flush(0);
			REQUIRE(take_soon(1, &held[i], 1) == 1);
			REQUIRE(held[i].cookie != 0);
		}
		for (unsigned i = 0; i < 2 * caps.slots; i++) {
			REQUIRE(send_soon(0, at_1, 7, i % 33));
			flush(0);
			REQUIRE(take_soon(1, &pkt, 1) == 1);
			give(1, &pkt);
		}
		for (unsigned i = 0; i < HELD; i++) {
			const struct nic_pkt *p = &held[(i * 37 + round) % HELD];
			REQUIRE(body_is(p->body, p->body_len, (i * 37 + round) % HELD));
			give(1, p);
		}
	}
}

/* Over a network what was taken has to be acknowledged first. */
static bool room_again(unsigned e, uint32_t peer)
{
	uint64_t limit = now_ns() + patience_ns;
	while (over_network && ends[e].ops->tx_room(ends[e].q, peer) < caps.slots && now_ns() < limit) {
		pump(NULL);
		step_all();
	}
	return ends[e].ops->tx_room(ends[e].q, peer) >= (over_network ? caps.slots : 1);
}

/* A full ring says so, and has room again when the peer has taken. */
static void case_ring_full(void)
{
	struct nic_pkt pkts[BURST];
	uint64_t sent = 0, got = 0;
	int error = 0;
	two();
	for (unsigned round = 0; round < repeats(10); round++) {
		while ((error = send_one(0, at_1, sent, 8)) == 0)
			sent++;
		REQUIRE(error == -EAGAIN);
		REQUIRE(sent - got >= caps.slots);
		REQUIRE(ends[0].ops->tx_room(ends[0].q, at_1) == 0);
		flush(0);
		unsigned n;
		while (got < sent && (n = take_soon(1, pkts, BURST)))
			for (unsigned i = 0; i < n; i++)
				pkt_check(&pkts[i], got++, 8);
		REQUIRE(got == sent && take(1, pkts, BURST) == 0);
		REQUIRE(room_again(0, at_1));
	}
}

static void case_bulk_full(void)
{
	struct nic_pkt pkts[BURST];
	int error = 0;
	two();
	for (unsigned round = 0; round < repeats(3); round++) {
		uint64_t sent = 0, got = 0;
		while (sent < caps.slots && (error = send_one(0, at_1, sent, caps.body_bytes_max / 2)) == 0)
			sent++;
		REQUIRE(error == -ENOBUFS && sent > 0);
		REQUIRE(send_one(0, at_1, sent, 4) == 0);
		flush(0);
		unsigned n;
		while (got < sent + 1 && (n = take_soon(1, pkts, BURST)))
			for (unsigned i = 0; i < n; i++, got++) {
				pkt_check(&pkts[i], got, got == sent ? 4 : caps.body_bytes_max / 2);
				give(1, &pkts[i]);
			}
		REQUIRE(got == sent + 1 && take(1, pkts, BURST) == 0);
		REQUIRE(room_again(0, at_1));
	}
}

static void case_cancel(void)
{
	enum { OPEN = 1024 };
	static struct nic_tx tx[OPEN];
	unsigned first = 0;
	two();
	for (unsigned round = 0; round < 5; round++) {
		unsigned n = 0;
		while (n < OPEN && ends[0].ops->tx_reserve(ends[0].q, at_1, 200000, &tx[n]) == 0)
			n++;
		REQUIRE(n > 1);
		REQUIRE(round == 0 || n == first);
		first = n;
		for (unsigned i = 0; i < n; i++)
			ends[0].ops->tx_cancel(ends[0].q, &tx[i]);
	}
	REQUIRE(ends[0].ops->tx_reserve(ends[0].q, at_1, 3, &tx[0]) == 0);
	ends[0].ops->tx_cancel(ends[0].q, &tx[0]);
	REQUIRE(send_one(0, at_1, 9, 3) == 0);
	flush(0);
	expect_one(1, at_0, 9, 3);
}

/* Large ones stay open side by side, leave in the order of commit, and meet a ring that became full. */
static void case_open_side_by_side(void)
{
	struct nic_tx tx[8];
	struct nic_pkt pkts[BURST];
	two();
	transport_audit_paused = true;
	for (unsigned i = 0; i < 8; i++) {
		REQUIRE(ends[0].ops->tx_reserve(ends[0].q, at_1, 1000 + i, &tx[i]) == 0);
		head_fill(tx[i].head, i, 1000 + i);
		body_fill(tx[i].body, 1000 + i, i);
	}
	REQUIRE(send_one(0, at_1, 100, 5) == 0);
	for (unsigned i = 0; i < 7; i++)
		REQUIRE(ends[0].ops->tx_commit(ends[0].q, &tx[7 - i]) == 0);
	flush(0);
	for (unsigned got = 0; got < 8;) {
		unsigned n = take_soon(1, pkts, BURST);
		REQUIRE(n > 0 && got + n <= 8);
		for (unsigned i = 0; i < n; i++, got++) {
			pkt_check(&pkts[i], got ? 8 - got : 100, got ? 1008 - got : 5);
			give(1, &pkts[i]);
		}
	}
	uint64_t sent = 0, got = 0;
	while (send_one(0, at_1, sent, 1) == 0)
		sent++;
	/* It may have its place in the ring already. */
	int error = ends[0].ops->tx_commit(ends[0].q, &tx[0]);
	REQUIRE(error == 0 || error == -EAGAIN);
	flush(0);
	while (got < sent) {
		unsigned n = take_soon(1, pkts, (unsigned)(sent - got < BURST ? sent - got : BURST));
		REQUIRE(n > 0);
		got += n;
	}
	REQUIRE(room_again(0, at_1));
	REQUIRE(!error || ends[0].ops->tx_commit(ends[0].q, &tx[0]) == 0);
	transport_audit_paused = false;
	flush(0);
	expect_one(1, at_0, 0, 1000);
}

static bool readable(unsigned e, int timeout_ms)
{
	struct pollfd p = {.fd = ends[e].ops->wake_fd(ends[e].q), .events = POLLIN};
	return poll_for(&p, 1, timeout_ms) == 1;
}

/* Over a network acknowledgements wake too, and what is on its way: until all is quiet. */
static void quieten(unsigned e)
{
	uint64_t until = now_ns() + UINT64_C(20000000);
	while (over_network && now_ns() < until) {
		struct nic_pkt pkt;
		pump(ends[e].q);
		REQUIRE(take(e, &pkt, 1) == 0);
	}
	if (over_network)
		ends[e].ops->wake_clear(ends[e].q);
}

static void case_wake(void)
{
	struct nic_pkt pkt;
	if (!caps.wake) {
		unfit_reason = "it cannot wake";
		return;
	}
	two();
	for (unsigned round = 0; round < repeats(over_network ? 10 : 100); round++) {
		REQUIRE(send_one(0, at_1, 1, 4) == 0);
		flush(0);
		REQUIRE(take_soon(1, &pkt, 1) == 1);
		quieten(1);
		REQUIRE(over_network || !readable(1, 0)); /* not armed: nobody is woken */
		ends[1].ops->arm(ends[1].q);
		REQUIRE(take(1, &pkt, 1) == 0);
		REQUIRE(over_network || !readable(1, 0));
		REQUIRE(send_one(0, at_1, 2, round % 2 ? 4 : 4000) == 0);
		flush(0);
		/* Where it may be lost it is sent again when the sender is polled. */
		uint64_t limit = now_ns() + patience_ns;
		while (over_network && now_ns() < limit && !readable(1, 1))
			pump(ends[1].q);
		REQUIRE(readable(1, (int)(patience_ns / 2000000)));
		ends[1].ops->wake_clear(ends[1].q);
		REQUIRE(over_network || !readable(1, 0));
		ends[1].ops->disarm(ends[1].q);
		expect_one(1, at_0, 2, round % 2 ? 4 : 4000);
	}
	ends[1].ops->wake_clear(ends[1].q); /* with nothing to clear */
	ends[1].ops->wake(ends[1].q);
	REQUIRE(readable(1, 0));
	ends[1].ops->wake_clear(ends[1].q);
	REQUIRE(over_network || !readable(1, 0));
}

/* What came between the last look and arm() is found by the look after arm(). */
static void case_arm_and_look(void)
{
	struct nic_pkt pkt;
	two();
	REQUIRE(take(1, &pkt, 1) == 0);
	REQUIRE(send_one(0, at_1, 1, 4) == 0);
	flush(0);
	ends[1].ops->arm(ends[1].q);
	REQUIRE(take_soon(1, &pkt, 1) == 1);
	ends[1].ops->disarm(ends[1].q);
}

/* "Sees it after flush() at the latest": flush with nothing out, and twice, is fine too. */
static void case_flush(void)
{
	two();
	flush(0);
	for (unsigned n = 1; n < 40; n++) {
		struct nic_pkt pkts[64];
		for (unsigned i = 0; i < n; i++)
			REQUIRE(send_one(0, at_1, i, 4) == 0);
		flush(0);
		flush(0);
		for (unsigned got = 0; got < n;) {
			unsigned some = take_soon(1, pkts, 64);
			REQUIRE(some > 0 && got + some <= n);
			REQUIRE(over_network || some == n);
			for (unsigned i = 0; i < some; i++)
				pkt_check(&pkts[i], got++, 4);
		}
	}
}

static void case_several_peers(void)
{
	uint32_t there[PEERS + 1], here[PEERS + 1];
	uint64_t got[PEERS + 1] = {0};
	struct nic_pkt pkts[BURST];
	if (!ends_are(PEERS + 1))
		return;
	for (unsigned i = 0; i <= PEERS; i++)
		end_open(i);
	for (unsigned i = 1; i <= PEERS; i++)
		pair_up(i, 0, &there[i], &here[i]);
	for (uint64_t seq = 0; seq < 500; seq++)
		for (unsigned i = 1; i <= PEERS; i++) {
			REQUIRE(send_soon(i, there[i], seq * 8 + i, seq % 50));
			flush(i);
			if (seq % 3)
				continue;
			unsigned n = take(0, pkts, BURST);
			for (unsigned k = 0; k < n; k++) {
				unsigned from = 1;
				while (from <= PEERS && here[from] != pkts[k].peer)
					from++;
				REQUIRE(from <= PEERS);
				pkt_check(&pkts[k], got[from] * 8 + from, got[from] % 50);
				got[from]++;
				give(0, &pkts[k]);
			}
		}
	/* A peer that has much to say does not keep the others out. */
	unsigned n;
	while (got[1] + got[2] + got[3] + got[4] < PEERS * 500 && (n = take_soon(0, pkts, BURST)))
		for (unsigned k = 0; k < n; k++) {
			for (unsigned i = 1; i <= PEERS; i++)
				got[i] += pkts[k].peer == here[i];
			give(0, &pkts[k]);
		}
	for (unsigned i = 1; i <= PEERS; i++)
		REQUIRE(got[i] == 500);
}

static void case_fair(void)
{
	uint32_t there[3], here[3];
	struct nic_pkt pkts[BURST];
	if (!ends_are(3))
		return;
	for (unsigned i = 0; i < 3; i++)
		end_open(i);
	for (unsigned i = 1; i < 3; i++)
		pair_up(i, 0, &there[i], &here[i]);
	bool seen = false;
	uint64_t limit = now_ns() + patience_ns;
	REQUIRE(send_one(2, there[2], 1, 4) == 0);
	flush(2);
	for (unsigned pass = 0; (over_network ? now_ns() < limit : pass < 8) && !seen; pass++) {
		while (send_one(1, there[1], 1, 4) == 0)
			;
		flush(1);
		unsigned n = take_soon(0, pkts, BURST);
		for (unsigned k = 0; k < n; k++)
			seen |= pkts[k].peer == here[2];
	}
	REQUIRE(seen);
}

static void case_self(void)
{
	uint32_t self, same;
	end_open(0);
	pair_up(0, 0, &self, &same);
	REQUIRE(self == same);
	for (unsigned i = 0; i < repeats(3000); i++) {
		uint64_t len = i % 7 ? i % 32 : i * 50;
		REQUIRE(send_one(0, self, i, len) == 0);
		flush(0);
		expect_one(0, self, i, len);
	}
}

#endif

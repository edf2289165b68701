/* SPDX-License-Identifier: BSD-3-Clause */
/** What passes what: small messages and large ones that leave at the same time. The test's thread. */
#include "transport_fixture.h"

#include "transport/message.h"
#include "transport/queue.h"
#include "transport/transport.h"
#include "transport/wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

enum { SEQS = 4096 };

static uint32_t at_0, at_1;
static struct {
	uint64_t seqs[SEQS]; /* in the order in which they came */
	unsigned n;
	bool bad;
} got;

static struct nic_queue *queue(unsigned e)
{
	return fixture.ends[e].q;
}

static int commit(unsigned e, uint32_t peer, uint64_t seq, uint64_t len, enum nic_order order)
{
	struct nic_queue *q = queue(e);
	struct nic_tx tx;
	int error = q->ops->tx_reserve(q, peer, len, &tx);
	if (error)
		return error;
	cr_assert_eq(tx.order, NIC_ORDER_ALL);
	fixture_fill(&tx, seq, len);
	tx.order = (uint8_t)order;
	return q->ops->tx_commit(q, &tx);
}

static void flush(unsigned e)
{
	queue(e)->ops->flush(queue(e));
}

/* Takes what there is at `e`. */
static void take(unsigned e)
{
	struct nic_pkt pkts[16];
	unsigned n;
	while ((n = queue(e)->ops->recv(queue(e), pkts, 16)))
		for (unsigned i = 0; i < n; i++) {
			uint64_t seq;
			memcpy(&seq, pkts[i].head, sizeof seq);
			got.bad |= !fixture_is(&pkts[i], seq) || got.n == SEQS;
			if (got.n < SEQS)
				got.seqs[got.n++] = seq;
			if (pkts[i].cookie)
				queue(e)->ops->release(queue(e), pkts[i].peer, pkts[i].cookie);
		}
	flush(e);
}

/* Steps both until `n` have come at end 1. */
static void run_until(unsigned n, unsigned turns)
{
	while (turns-- > 0 && got.n < n) {
		flush(0);
		take(1);
		fixture_take(0, 0);
		fixture.now += 100000;
	}
	cr_assert(got.n >= n && !got.bad, "%u of %u", got.n, n);
}

static void begin(void)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	for (unsigned i = 0; i < 50; i++)
		fixture_turn();
	memset(&got, 0, sizeof got);
}

static bool may_pass(enum nic_order small, enum nic_order large)
{
	return small == NIC_ORDER_NONE || (small == NIC_ORDER_STREAM && large == NIC_ORDER_NONE);
}

/* One large one and a small one behind it, of all orders; the large one not begun, or under way. */
Test(transport_schedule, pairs)
{
	for (unsigned i = 0; i < 18; i++) {
		enum nic_order large = i % 3, small = i / 3 % 3;
		begin();
		cr_assert_eq(commit(0, at_0, 0, UINT64_C(3) << 20, large), 0);
		if (i >= 9)
			flush(0);
		cr_assert_eq(commit(0, at_0, 1, 30, small), 0);
		run_until(2, 1000);
		cr_assert_eq(got.seqs[0], may_pass(small, large) ? 1 : 0, "%u passes %u", small, large);
		fixture_fini();
	}
}

/* What must not pass keeps those back that must not pass it. */
Test(transport_schedule, chain)
{
	static const uint64_t expected[] = {4, 6, 0, 1, 2, 3, 5};
	begin();
	cr_assert_eq(commit(0, at_0, 0, 1 << 20, NIC_ORDER_NONE), 0);
	cr_assert_eq(commit(0, at_0, 1, 10, NIC_ORDER_ALL), 0);
	cr_assert_eq(commit(0, at_0, 2, 10, NIC_ORDER_STREAM), 0);
	cr_assert_eq(commit(0, at_0, 3, 1 << 20, NIC_ORDER_STREAM), 0);
	cr_assert_eq(commit(0, at_0, 4, 10, NIC_ORDER_NONE), 0);
	cr_assert_eq(commit(0, at_0, 5, 10, NIC_ORDER_STREAM), 0);
	cr_assert_eq(commit(0, at_0, 6, 10, NIC_ORDER_NONE), 0);
	run_until(7, 1000);
	for (unsigned i = 0; i < 7; i++)
		cr_assert_eq(got.seqs[i], expected[i], "%u: %u", i, (unsigned)got.seqs[i]);
	fixture_fini();
}

/* A large one has filled its window, and nobody receives. Expect small ones to leave at once none the less. */
Test(transport_schedule, window_left)
{
	begin();
	cr_assert_eq(commit(0, at_0, 0, UINT64_C(4) << 20, NIC_ORDER_NONE), 0);
	for (unsigned i = 0; i < 10; i++)
		flush(0);
	unsigned waiting = dgram_waiting(&fixture.fabric);
	cr_assert_leq(waiting * 1304, FAR_TRANSPORT_WINDOW_BYTES);
	for (uint64_t i = 1; i <= 10; i++) {
		cr_assert_eq(commit(0, at_0, i, 1000, NIC_ORDER_NONE), 0);
		flush(0);
		cr_assert_eq(dgram_waiting(&fixture.fabric), waiting + i);
	}
	run_until(11, 1000);
	for (uint64_t i = 0; i < 10; i++)
		cr_assert_eq(got.seqs[i], i + 1);
	fixture_fini();
}

/* Small ones without end. Expect the large one to come all the same, of any order, and after those that it waits for.
 */
Test(transport_schedule, share)
{
	for (enum nic_order large = NIC_ORDER_ALL; large <= NIC_ORDER_NONE; large++) {
		fixture_init();
		fixture.fabric.packet_max = 9000;
		fixture_two(&at_0, &at_1);
		uint64_t seq = 0, at = 500;
		bool there = false;
		for (unsigned turn = 0; turn < 2000 && !there; turn++) {
			uint64_t most = seq + 600;
			for (; seq < most; seq++)
				if (commit(0, at_0, seq, seq == at ? 5000 : 2000, seq == at ? large : NIC_ORDER_NONE))
					break;
			flush(0);
			got.n = 0;
			take(1);
			fixture_take(0, 0);
			for (unsigned i = 0; i < got.n; i++) {
				there |= got.seqs[i] == at;
				cr_assert(large == NIC_ORDER_NONE || !there || got.seqs[i] >= at);
			}
			cr_assert(!got.bad);
			fixture.now += 10000;
		}
		cr_assert(there, "order %u, after %u", large, (unsigned)seq);
		fixture_fini();
	}
}

static struct {
	unsigned to[4096];
	unsigned n;
} left;

static bool log_peer(void *ctx, unsigned from, unsigned to, unsigned q, uint8_t *bytes, uint32_t *len)
{
	if (from == 0 && bytes[1] == WIRE_MESSAGE && left.n < 4096)
		left.to[left.n++] = to;
	return true;
}

/* Large ones to two peers, a small one to a third, in one flush. Expect the small one first, and turns of the others.
 */
Test(transport_schedule, across_peers)
{
	uint32_t to_1, to_2, to_3, ignored;
	fixture_init();
	for (unsigned e = 0; e < 4; e++)
		end_open(e, 1);
	fixture_pair(0, 1, &to_1, &ignored);
	fixture_pair(0, 2, &to_2, &ignored);
	fixture_pair(0, 3, &to_3, &ignored);
	for (unsigned i = 0; i < 50; i++)
		fixture_turn();
	memset(&left, 0, sizeof left);
	fixture.fabric.hook = log_peer;
	cr_assert_eq(commit(0, to_1, 0, 1 << 20, NIC_ORDER_NONE), 0);
	cr_assert_eq(commit(0, to_2, 0, 1 << 20, NIC_ORDER_NONE), 0);
	cr_assert_eq(commit(0, to_3, 0, 32, NIC_ORDER_ALL), 0);
	flush(0);
	cr_assert_eq(left.to[0], 3);
	for (unsigned i = 0; i < 1000 && left.n <= 400; i++)
		fixture_turn();
	cr_assert_gt(left.n, 400);
	unsigned n[4] = {0};
	for (unsigned i = 0; i < left.n; i++)
		n[left.to[i]]++;
	cr_assert(n[1] > left.n / 3 && n[2] > left.n / 3, "%u and %u", n[1], n[2]);
	for (unsigned i = 0; i < 1000 && fixture.ends[1].got + fixture.ends[2].got + fixture.ends[3].got < 3; i++)
		fixture_turn();
	for (unsigned e = 1; e < 4; e++)
		cr_assert(fixture.ends[e].got == 1 && !fixture.ends[e].bad);
	fixture_fini();
}

static bool fill_ring(void *ctx, unsigned from, unsigned to, unsigned q, uint8_t *bytes, uint32_t *len)
{
	struct wire_message h;
	memcpy(&h, bytes, sizeof h);
	if (from == 0 && h.kind == WIRE_MESSAGE && le32_get(h.length) > FAR_TRANSPORT_SMALL_BYTES)
		fixture.fabric.waiting = UINT64_MAX / 2;
	return log_peer(ctx, from, to, q, bytes, len);
}

/* The ring below has room for a packet now and then, and there is a flush more or less often between. Expect small ones
 * at once; and of large ones most of the one with the least left, and its share of each other. */
Test(transport_schedule, turns_at_a_full_ring)
{
	for (unsigned every = 1; every <= 7; every++) {
		uint32_t to[3], ignored;
		fixture_init();
		for (unsigned e = 0; e < 4; e++)
			end_open(e, 1);
		for (unsigned e = 1; e < 4; e++)
			fixture_pair(0, e, &to[e - 1], &ignored);
		for (unsigned i = 0; i < 50; i++)
			fixture_turn();
		memset(&left, 0, sizeof left);
		fixture.fabric.hook = fill_ring;
		fixture.fabric.waiting = UINT64_MAX / 2;
		for (unsigned e = 0; e < 3; e++)
			cr_assert_eq(commit(0, to[e], e, (UINT64_C(3) << 20) - (e == 1) * 4096, NIC_ORDER_NONE), 0);
		for (unsigned i = 1; i <= 120 * every; i++) {
			if (i % every == 0)
				fixture.fabric.waiting = 0;
			flush(0);
			for (unsigned e = 1; e < 4; e++)
				take(e);
			got.n = 0;
			fixture_take(0, 0);
			fixture.now += 1000;
		}
		cr_assert(left.n >= 100 && left.n <= 120, "%u packets", left.n);
		unsigned n[4] = {0};
		for (unsigned i = 0; i < left.n; i++)
			n[left.to[i]]++;
		for (unsigned e = 1; e < 4; e++)
			cr_assert(n[e] >= left.n / FAR_TRANSPORT_GRANT_SHARE / 3, "every %u: %u, %u and %u", every,
				  n[1], n[2], n[3]);
		cr_assert(n[2] > left.n * 2 / 3, "every %u: %u, %u and %u", every, n[1], n[2], n[3]);
		fixture.fabric.waiting = UINT64_MAX / 2;
		unsigned before = left.n;
		cr_assert_eq(commit(0, to[1], 9, 40, NIC_ORDER_NONE), 0);
		flush(0);
		cr_assert_eq(left.n, before + 1);
		cr_assert_eq(left.to[before], 2);
		fixture_fini();
	}
}

/* Dry with more to send: the ring gets more. Not full, and with nothing to send: it does not. */
Test(transport_schedule, dry_ring)
{
	begin();
	struct transport_queue *q = (struct transport_queue *)queue(0);
	cr_assert_eq(commit(0, at_0, 0, UINT64_C(3) << 20, NIC_ORDER_NONE), 0);
	fixture.fabric.waiting = 100000;
	flush(0);
	cr_assert(q->ring_full && q->ring_most == 0);
	fixture.fabric.waiting = 0;
	flush(0);
	uint32_t once = q->ring_most;
	cr_assert(once >= 4000 && once < 12000, "%u", once);
	run_until(1, 1000);
	uint32_t most = q->ring_most;
	for (unsigned i = 1; i < 20; i++) {
		cr_assert_eq(commit(0, at_0, i, 5000, NIC_ORDER_NONE), 0);
		run_until(i + 1, 1000);
	}
	cr_assert_leq(q->ring_most, most);
	fixture_fini();
}

static uint64_t mixed_len(uint64_t seq)
{
	uint64_t x = (seq + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 20;
	return x % 12 == 0 ? x % 100000 : x % 5 == 0 ? x % 5000 : x % 129;
}

static enum nic_order mixed_order(uint64_t seq)
{
	return (enum nic_order)((seq * UINT64_C(0xd1342543de82ef95) >> 40) % 3);
}

/* Each once, and none before one that it must not pass. */
static void check_order(unsigned n)
{
	static bool came[SEQS];
	memset(came, 0, sizeof came);
	cr_assert_eq(got.n, n);
	for (unsigned i = 0; i < n; i++) {
		uint64_t seq = got.seqs[i];
		cr_assert(seq < n && !came[seq]);
		came[seq] = true;
		enum nic_order order = mixed_order(seq);
		bool small = mixed_len(seq) <= 1000;
		for (uint64_t before = 0; before < seq; before++) {
			bool behind = order == NIC_ORDER_ALL || mixed_order(before) == NIC_ORDER_ALL
					      ? order == NIC_ORDER_ALL || (order == NIC_ORDER_STREAM &&
									   mixed_order(before) == NIC_ORDER_ALL)
					      : order == NIC_ORDER_STREAM && mixed_order(before) == NIC_ORDER_STREAM;
			behind |= order == NIC_ORDER_NONE && mixed_order(before) == NIC_ORDER_NONE && small &&
				  mixed_len(before) <= 1000;
			cr_assert(!behind || came[before], "%u before %u", (unsigned)seq, (unsigned)before);
		}
	}
}

Test(transport_schedule, everything_happens)
{
	enum { MESSAGES = 600 };
	for (uint64_t seed = 1; seed <= 20; seed++) {
		begin();
		fixture.fabric.seed = seed;
		fixture.fabric.drop = fixture.fabric.repeat = fixture.fabric.overtake = fixture.fabric.damage = 50;
		fixture.fabric.misalign = (unsigned)(seed * 7 % 64);
		fixture.fabric.full_every = seed % 3 ? 0 : 7;
		uint64_t seq = 0;
		for (unsigned turn = 0; turn < 100000 && got.n < MESSAGES; turn++) {
			for (unsigned i = 0; seq < MESSAGES && i < seed * 3; i++, seq++)
				if (commit(0, at_0, seq, mixed_len(seq), mixed_order(seq)))
					break;
			flush(0);
			take(1);
			fixture_take(0, 0);
			fixture.now += 100000;
		}
		cr_assert(!got.bad);
		check_order(MESSAGES);
		cr_assert_eq(fixture.ends[0].downs + fixture.ends[1].downs, 0);
		fixture_fini();
	}
}

static struct {
	uint8_t bytes[4096];
	uint32_t len;
	unsigned overtook;
} behind;

static bool overtaken(void *ctx, unsigned from, unsigned to, unsigned q, uint8_t *bytes, uint32_t *len)
{
	const struct wire_message *h = (const struct wire_message *)(const void *)bytes;
	if (from || h->kind != WIRE_MESSAGE)
		return true;
	if (le32_get(h->length) > FAR_TRANSPORT_SMALL_BYTES && le32_get(h->offset) + *len - sizeof *h == 5000 &&
	    !behind.len) {
		cr_assert_leq(*len, sizeof behind.bytes);
		memcpy(behind.bytes, bytes, *len);
		behind.len = *len;
		return false;
	}
	if (le32_get(h->length) <= FAR_TRANSPORT_SMALL_BYTES && ++behind.overtook == 20)
		dgram_inject(&fixture.fabric, to, q, behind.bytes, behind.len);
	return true;
}

/* Small ones overtake the last packet of a large one, as priorities have it. Expect nobody to believe that it is lost.
 */
Test(transport_schedule, priorities)
{
	struct transport_stats stats;
	begin();
	memset(&behind, 0, sizeof behind);
	fixture.fabric.crc = true;
	fixture.fabric.hook = overtaken;
	cr_assert_eq(commit(0, at_0, 0, 5000, NIC_ORDER_NONE), 0);
	flush(0);
	for (uint64_t i = 1; i <= 30; i++) {
		cr_assert_eq(commit(0, at_0, i, 20, NIC_ORDER_NONE), 0);
		flush(0);
		take(1);
		fixture_take(0, 0);
		fixture.now += 1000;
	}
	run_until(31, 100);
	cr_assert_eq(behind.overtook, 30);
	transport_stats_read(fixture.ends[0].port, &stats);
	cr_assert_eq(stats.resent, 0);
	fixture_fini();
}

static struct {
	unsigned small, others, unscheduled_bytes,
		granted[2];    /* bits of priorities; `granted` of end 0, and of end 2 */
	unsigned longer_above; /* packets of the longer one no less urgent than the last of the shorter one */
	unsigned shorter;
	bool shorter_over;
} seen;

static bool note_priority(void *ctx, unsigned from, unsigned to, unsigned q, uint8_t *bytes, uint32_t *len)
{
	struct wire_message h;
	memcpy(&h, bytes, sizeof h);
	unsigned priority = fixture.fabric.priority;
	uint32_t length = le32_get(h.length), offset = le32_get(h.offset);
	if (h.kind != WIRE_MESSAGE)
		seen.others |= 1u << priority;
	else if (length <= FAR_TRANSPORT_SMALL_BYTES)
		seen.small |= 1u << priority;
	else if (offset < FAR_TRANSPORT_UNSCHEDULED_BYTES)
		seen.unscheduled_bytes |= 1u << priority;
	else if (offset >= FAR_TRANSPORT_UNSCHEDULED_BYTES_MAX && !(h.flags & WIRE_RETRANSMIT)) {
		seen.granted[from / 2] |= 1u << priority;
		if (from == 0) {
			seen.shorter = priority;
			seen.shorter_over = offset + *len - sizeof h == length;
		} else {
			seen.longer_above += seen.shorter && !seen.shorter_over && priority >= seen.shorter;
		}
	}
	return true;
}

/* Small ones and whatever is said of a connection are the most urgent, larger ones less the longer they are, and of
 * granted ones the one with the least left. */
Test(transport_schedule, said_to_the_network)
{
	static const uint64_t lens[] = {32, 7000, 60000, 2500000};
	uint32_t at_2, ignored;
	begin();
	end_open(2, 1);
	fixture_pair(2, 1, &at_2, &ignored);
	memset(&seen, 0, sizeof seen);
	fixture.fabric.crc = true;
	fixture.fabric.hook = note_priority;
	for (unsigned i = 0; i < 3; i++) {
		seen.unscheduled_bytes = 0;
		cr_assert_eq(commit(0, at_0, i, lens[i], NIC_ORDER_NONE), 0);
		run_until(i + 1, 1000);
		cr_assert_eq(seen.unscheduled_bytes, i ? 1u << (TRANSPORT_PRIORITY_URGENT - i) : 0, "%x",
			     seen.unscheduled_bytes);
	}
	seen.unscheduled_bytes = 0;
	cr_assert_eq(commit(2, at_2, 4, 3500000, NIC_ORDER_NONE), 0);
	cr_assert_eq(commit(0, at_0, 3, lens[3], NIC_ORDER_NONE), 0);
	for (unsigned i = 0; i < 1000 && got.n < 5; i++) {
		flush(0);
		flush(2);
		take(1);
		fixture_take(0, 0);
		fixture_take(2, 0);
		fixture.now += 100000;
	}
	cr_assert(got.n == 5 && !got.bad);
	cr_assert_eq(seen.small, 1u << TRANSPORT_PRIORITY_URGENT);
	cr_assert_eq(seen.others, 1u << TRANSPORT_PRIORITY_URGENT);
	cr_assert_eq(seen.unscheduled_bytes, 1u << (TRANSPORT_PRIORITY_URGENT - 3));
	cr_assert_eq((seen.granted[0] | seen.granted[1]) & ~3u, 0, "%x, %x", seen.granted[0], seen.granted[1]);
	cr_assert(seen.granted[0] & 2 && seen.granted[1] & 1, "%x, %x", seen.granted[0], seen.granted[1]);
	cr_assert_eq(seen.longer_above, 0);
	fixture_fini();
}

/* The path becomes narrower than small ones are, while a large one is under way. */
Test(transport_schedule, narrower_path)
{
	for (unsigned drop = 0; drop <= 50; drop += 25) {
		enum { SMALL = 40 };
		fixture_init();
		fixture.fabric.packet_max = 60000;
		fixture_two(&at_0, &at_1);
		fixture.fabric.drop = drop;
		memset(&got, 0, sizeof got);
		fixture.fabric.black_hole = 1300; /* what is under way is lost */
		for (uint64_t i = 0; i < SMALL; i++) {
			cr_assert_eq(commit(0, at_0, i, i % 10 ? 4000 : 200000, NIC_ORDER_NONE), 0);
			if (i % 8 == 7)
				flush(0);
			if (i == SMALL / 2)
				fixture.fabric.packet_max = 1300;
		}
		for (unsigned i = 0; i < 200000 && got.n < SMALL; i++) {
			flush(0);
			take(1);
			fixture_take(0, 0);
			fixture.now += 100000;
		}
		cr_assert(got.n == SMALL && !got.bad, "%u", got.n);
		cr_assert_eq(fixture.ends[0].downs + fixture.ends[1].downs, 0);
		fixture_fini();
	}
}

/* What waits goes with the peer, begun or not. */
Test(transport_schedule, detached)
{
	begin();
	for (uint64_t i = 0; i < 30; i++)
		cr_assert_eq(commit(0, at_0, i, i % 3 ? 100 : 300000, (enum nic_order)(i % 3)), 0);
	flush(0);
	queue(0)->ops->detach(queue(0), at_0);
	flush(0);
	fixture.ends[0].port->ops->drop(fixture.ends[0].port, at_0);
	for (unsigned i = 0; i < 50; i++)
		fixture_turn();
	cr_assert_eq(fixture.ends[1].downs, 1);
	fixture_fini();
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Hot and cold links, their doorbells and sleep, with honest peers and with some that lie. The test's thread. */
#include "shm_pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

enum { LINKS = 72, HOT = SHM_HOT_MAX };

static struct test_port a, b;
static uint32_t to_a[LINKS], to_b[LINKS]; /* b's name for a, a's name for b, of each link */
static struct shm_queue *qa;

static struct shm_link *link_at(const struct test_port *p, uint32_t peer)
{
	return ((struct shm_port *)(void *)p->port)->links[peer];
}

static void link_up(unsigned i)
{
	test_ports_connect(&b, &a, &to_a[i], &to_b[i]);
}

static void setup(void)
{
	shm_dir_setup();
	test_port_open(&a, 1);
	test_port_open(&b, 2);
	qa = (struct shm_queue *)(void *)a.q;
	for (unsigned i = 0; i < LINKS; i++)
		link_up(i);
}

static void teardown(void)
{
	test_port_close(&a);
	test_port_close(&b);
	shm_dir_teardown();
}

TestSuite(shm_recv, .init = setup, .fini = teardown);

static int send_seq(unsigned link, uint32_t seq, uint64_t len)
{
	struct nic_tx tx;
	int error = b.q->ops->tx_reserve(b.q, to_a[link], len, &tx);
	if (error)
		return error;
	memset(tx.head, 0, 28);
	memcpy(tx.head, &seq, sizeof seq);
	if (len)
		memset(tx.body, (int)(seq & 0xff), len);
	return b.q->ops->tx_commit(b.q, &tx);
}

static void send_now(unsigned link, uint32_t seq)
{
	cr_assert_eq(send_seq(link, seq, 8), 0);
	b.q->ops->flush(b.q);
}

static unsigned receive(struct nic_pkt *pkts, unsigned max)
{
	return a.q->ops->recv(a.q, pkts, max);
}

static unsigned transport_of(const struct nic_pkt *pkt)
{
	for (unsigned i = 0; i < LINKS; i++)
		if (to_b[i] == pkt->peer)
			return i;
	cr_assert_fail("a packet from peer %u", pkt->peer);
	return 0;
}

static uint32_t seq_of(const struct nic_pkt *pkt)
{
	uint32_t seq;
	cr_assert_not_null(pkt->head);
	memcpy(&seq, pkt->head, sizeof seq);
	return seq;
}

static bool is_hot(unsigned link)
{
	return link_at(&a, to_b[link])->hot;
}

static unsigned rx_state(unsigned link)
{
	return atomic_load(&link_at(&a, to_b[link])->rx->consumer.rx_state);
}

static bool readable(void)
{
	struct pollfd p = {.fd = a.q->ops->wake_fd(a.q), .events = POLLIN};
	return poll(&p, 1, 0) == 1;
}

/* Passes until the packet `seq` of `link` is there; `max` at most. */
static unsigned passes_until(unsigned link, uint32_t seq, unsigned max)
{
	struct nic_pkt pkts[16];
	for (unsigned pass = 1; pass <= max; pass++) {
		unsigned n = receive(pkts, 16);
		for (unsigned k = 0; k < n; k++)
			if (transport_of(&pkts[k]) == link && seq_of(&pkts[k]) == seq)
				return pass;
	}
	cr_assert_fail("nothing from link %u in %u passes", link, max);
	return 0;
}

static void settle(void)
{
	struct nic_pkt pkts[16];
	for (unsigned pass = 0; pass < LINKS; pass++)
		cr_assert_eq(receive(pkts, 16), 0u);
}

Test(shm_recv, few_links_are_all_hot)
{
	for (unsigned i = HOT; i < LINKS; i++)
		a.q->ops->detach(a.q, to_b[i]);
	struct nic_pkt pkts[16];
	for (unsigned round = 0; round < 5000; round++) {
		if (round % 7 == 0)
			send_now(round % HOT, round);
		cr_assert_eq(receive(pkts, 16), round % 7 == 0);
	}
	cr_assert_eq(qa->base.lanes.hot_n, (uint32_t)HOT);
	cr_assert_eq(qa->rings, 0u);
	for (unsigned i = 0; i < HOT; i++)
		cr_assert_eq(rx_state(i), SHM_RX_POLLING);
}

Test(shm_recv, a_cold_link_rings_and_turns_hot)
{
	settle();
	for (uint32_t round = 0; round < 3; round++)
		for (unsigned i = 0; i < LINKS; i++) {
			send_now(i, round);
			passes_until(i, round, 2);
			cr_assert(is_hot(i));
			cr_assert_eq(rx_state(i), SHM_RX_POLLING);
			cr_assert_eq(qa->base.lanes.hot_n, (uint32_t)HOT);
			cr_assert_eq(qa->base.lanes.hot_n + qa->base.lanes.cold_n, (uint32_t)LINKS);
		}
}

Test(shm_recv, idle_links_turn_cold_and_active_ones_stay)
{
	struct nic_pkt pkts[16];
	for (uint32_t i = 0; i < 20000; i++) {
		if (i % 16 == 0)
			send_now(3, i);
		receive(pkts, 16);
	}
	cr_assert(is_hot(3));
	cr_assert_eq(qa->base.lanes.hot_n, 1u);
	cr_assert_eq(rx_state(4), SHM_RX_DOORBELL);
}

/* Random traffic over all links, in bursts of all sizes, between sleeps that are tried: nothing is lost, and each
 * link keeps its order. */
Test(shm_recv, turnover, .timeout = 60)
{
	static uint32_t sent[LINKS], got[LINKS];
	struct nic_pkt pkts[16];
	uint64_t seed = 5, total = 0, want = 0;
	bool armed = false;
	for (unsigned round = 0; round < 60000 || total < want; round++) {
		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		unsigned r = (unsigned)(seed >> 33);
		for (unsigned k = 0; round < 60000 && k < r % 8; k++) {
			/* Now all links alike, now a few of them. */
			unsigned link = (r >> 3) * (k + 1) % (round / 1000 % 2 ? LINKS : 5 + round / 2000);
			if (send_seq(link, sent[link], r % 97 ? r % 33 : r % 3000) == 0) {
				sent[link]++;
				want++;
			}
		}
		b.q->ops->flush(b.q);
		if (r % 5 == 0) {
			if (armed)
				a.q->ops->disarm(a.q);
			else
				a.q->ops->arm(a.q);
			armed = !armed;
		}
		unsigned n = receive(pkts, r % 3 ? 16 : 1 + r % 7);
		/* Armed, it looks at everything: none is none. */
		if (armed && n == 0)
			cr_assert_eq(total, want, "round %u: slept over %u packets", round, (unsigned)(want - total));
		for (unsigned k = 0; k < n; k++) {
			unsigned link = transport_of(&pkts[k]);
			cr_assert_eq(seq_of(&pkts[k]), got[link]);
			if (pkts[k].body_len)
				cr_assert_eq(pkts[k].body[pkts[k].body_len - 1], got[link] & 0xff);
			got[link]++;
			if (pkts[k].cookie)
				a.q->ops->release(a.q, pkts[k].peer, pkts[k].cookie);
		}
		total += n;
		cr_assert_lt(round, 1000000u, "%u packets are lost", (unsigned)(want - total));
	}
	cr_assert_gt(qa->rings, 1000u, "the links did not turn");
	for (unsigned i = 0; i < LINKS; i++)
		cr_assert_eq(got[i], sent[i]);
}

/* ---- sleep ---- */

Test(shm_recv, sleep_writes_few_words)
{
	settle();
	a.q->ops->arm(a.q);
	unsigned asleep = 0;
	for (unsigned i = 0; i < LINKS; i++)
		asleep += rx_state(i) == SHM_RX_ASLEEP;
	cr_assert_eq(asleep, qa->base.lanes.hot_n);
	cr_assert_eq(atomic_load(&qa->bells->asleep), 1u);
	a.q->ops->disarm(a.q);
	cr_assert_eq(atomic_load(&qa->bells->asleep), 0u);
	for (unsigned i = 0; i < LINKS; i++)
		cr_assert_neq(rx_state(i), SHM_RX_ASLEEP);
}

Test(shm_recv, every_link_ends_a_sleep)
{
	struct nic_pkt pkts[16];
	for (unsigned round = 0; round < 3; round++)
		for (unsigned i = 0; i < LINKS; i++) {
			a.q->ops->arm(a.q);
			cr_assert_eq(receive(pkts, 16), 0u);
			cr_assert(!readable());
			send_now(i, round);
			cr_assert(readable(), "link %u does not wake", i);
			a.q->ops->wake_clear(a.q);
			a.q->ops->disarm(a.q);
			passes_until(i, round, 8);
			send_now((i + LINKS / 2) % LINKS, 99);
			cr_assert(!readable(), "woken though awake");
			passes_until((i + LINKS / 2) % LINKS, 99, 2);
		}
}

Test(shm_recv, received_while_armed_it_still_wakes)
{
	struct nic_pkt pkts[16];
	unsigned cold = LINKS - 1;
	settle();
	a.q->ops->arm(a.q);
	for (uint32_t round = 0; round < 5; round++) {
		cr_assert_eq(receive(pkts, 16), 0u);
		send_now(cold, round);
		cr_assert(readable());
		a.q->ops->wake_clear(a.q);
		cr_assert_eq(receive(pkts, 16), 1u);
		cr_assert(!is_hot(cold));
	}
}

/* A caller that does not stop while it is armed: the words of the page take turns all the same. */
Test(shm_recv, floods_while_armed)
{
	static uint32_t sent[LINKS];
	struct nic_pkt pkts[16];
	const unsigned quiet = LINKS - 1;
	settle();
	a.q->ops->arm(a.q);
	for (uint32_t round = 0; round < 20; round++) {
		send_now(quiet, round);
		bool there = false;
		for (unsigned passes = 0; !there; passes++) {
			cr_assert_lt(passes, 4u * LINKS);
			for (unsigned i = HOT; i < quiet; i++)
				while (send_seq(i, sent[i], 4) == 0)
					sent[i]++;
			b.q->ops->flush(b.q);
			unsigned n = receive(pkts, 16);
			for (unsigned k = 0; k < n; k++)
				there |= transport_of(&pkts[k]) == quiet;
		}
	}
}

Test(shm_recv, attached_while_armed)
{
	struct nic_pkt pkts[16];
	a.q->ops->detach(a.q, to_b[1]);         /* hot */
	a.q->ops->detach(a.q, to_b[LINKS - 1]); /* cold */
	settle();
	for (unsigned i = HOT + 1; i < LINKS - 1; i++)
		a.q->ops->detach(a.q, to_b[i]);
	a.q->ops->detach(a.q, to_b[HOT]);
	cr_assert_eq(qa->base.lanes.cold_n, 0u);
	a.q->ops->arm(a.q);
	cr_assert_eq(a.q->ops->attach(a.q, to_b[1]), 0);
	cr_assert(is_hot(1));
	cr_assert_eq(a.q->ops->attach(a.q, to_b[LINKS - 1]), 0);
	cr_assert(!is_hot(LINKS - 1));
	cr_assert_eq(receive(pkts, 16), 0u);
	send_now(1, 5);
	cr_assert(readable());
	a.q->ops->wake_clear(a.q);
	passes_until(1, 5, 1);
	send_now(LINKS - 1, 6);
	cr_assert(readable());
	passes_until(LINKS - 1, 6, 1);
}

/* ---- links that go ---- */

Test(shm_recv, what_is_left_when_hot_ones_go)
{
	settle();
	unsigned left = LINKS - 1;
	for (unsigned i = 0; i < left; i++) {
		a.q->ops->detach(a.q, to_b[i]);
		send_now(left, i);
		passes_until(left, i, 2);
		cr_assert_eq(send_seq(i, 1, 4), 0); /* towards a link that nobody polls */
		b.q->ops->flush(b.q);
	}
	cr_assert_eq(qa->base.lanes.hot_n, 1u);
	cr_assert_eq(qa->base.lanes.cold_n, 0u);
	a.q->ops->detach(a.q, to_b[left]);
	struct nic_pkt pkt;
	cr_assert_eq(receive(&pkt, 1), 0u);
	cr_assert_eq(qa->bells_end, 0u);
}

Test(shm_recv, a_bells_next_owner_is_not_mixed_up)
{
	for (unsigned round = 0; round < 4; round++)
		for (unsigned i = LINKS - 4; i < LINKS; i++) {
			send_now(i, 1000); /* rings, and goes unread */
			a.q->ops->detach(a.q, to_b[i]);
			b.q->ops->detach(b.q, to_a[i]);
			a.port->ops->drop(a.port, to_b[i]);
			a.events_n = b.events_n = 0;
			test_ports_step(&b, 1, NULL, 0);
			b.port->ops->drop(b.port, to_a[i]);
			link_up(i);
			send_now(i, round);
			passes_until(i, round, 4);
		}
}

/* ---- peers that lie ---- */

static void ring_all(void)
{
	memset((void *)(uintptr_t)qa->bells->byte, 0xff, SHM_BELLS);
	memset((void *)(uintptr_t)qa->bells->rung, 0xff, SHM_BELL_LINES);
}

Test(shm_recv, bells_rung_for_nothing)
{
	struct nic_pkt pkts[16];
	uint32_t seq = 0;
	settle();
	for (unsigned round = 0; round < 1000; round++) {
		unsigned cold = LINKS - 1 - round % 8;
		/* An active hot link is neither thrown out nor made to wait. */
		send_now(0, seq);
		ring_all();
		passes_until(0, seq++, 4);
		cr_assert(is_hot(0));
		/* A cold one comes through, though every bell is rung again before each pass. */
		send_now(cold, round);
		unsigned passes = 0;
		for (bool there = false; !there; passes++) {
			cr_assert_lt(passes, LINKS);
			ring_all();
			unsigned n = receive(pkts, 16);
			for (unsigned k = 0; k < n; k++)
				there |= transport_of(&pkts[k]) == cold;
		}
	}
	cr_assert_gt(qa->spurious_rings, 1000u);
	/* Nor does it keep us from finding that there is nothing. */
	a.q->ops->arm(a.q);
	ring_all();
	cr_assert_eq(receive(pkts, 16), 0u);
}

Test(shm_recv, bells_that_are_wiped)
{
	settle();
	for (unsigned i = LINKS - 3; i < LINKS; i++) {
		send_now(i, 7);
		if (i % 2)
			memset((void *)(uintptr_t)qa->bells->byte, 0, SHM_BELLS);
		else
			memset((void *)(uintptr_t)qa->bells->rung, 0, SHM_BELL_LINES);
		/* A round of looks at all cold links. */
		passes_until(i, 7, 256 * 2 * 128);
	}
}

Test(shm_recv, states_that_do_not_exist)
{
	struct shm_link *link = link_at(&b, to_a[0]);
	static const uint32_t lies[] = {3, 77, UINT32_MAX, SHM_RX_DOORBELL, SHM_RX_ASLEEP};
	for (uint32_t i = 0; i < 5; i++) {
		atomic_store(&link->tx->consumer.rx_state, lies[i]);
		send_now(0, i);
		passes_until(0, i, 2);
	}
	a.q->ops->wake_clear(a.q);
	atomic_store(&qa->bells->asleep, UINT32_MAX);
	send_now(LINKS - 1, 1);
	passes_until(LINKS - 1, 1, 2);
}

/* Full rings on many links, always: one that says something now and then is heard. */
Test(shm_recv, busy_links_keep_nobody_out, .timeout = 60)
{
	static uint32_t sent[LINKS];
	struct nic_pkt pkts[16];
	const unsigned quiet = LINKS - 1;
	for (uint32_t round = 0; round < 50; round++) {
		send_now(quiet, round);
		bool there = false;
		unsigned passes = 0;
		for (; !there; passes++) {
			cr_assert_lt(passes, 4u * LINKS);
			for (unsigned i = 0; i < quiet; i++)
				while (send_seq(i, sent[i], 4) == 0)
					sent[i]++;
			b.q->ops->flush(b.q);
			unsigned n = receive(pkts, 1 + round % 16);
			for (unsigned k = 0; k < n; k++)
				there |= transport_of(&pkts[k]) == quiet;
		}
	}
}

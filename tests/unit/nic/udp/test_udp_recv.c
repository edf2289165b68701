/* SPDX-License-Identifier: BSD-3-Clause */
/** Receiving: datagrams and trains, places, many sockets, sleep, and what the kernel cannot do. The test's thread. */
#include "udp_script.h"

#include <poll.h>
#include <unistd.h>

TestSuite(udp_recv, .init = setup, .fini = teardown);

Test(udp_recv, cannot_be_woken)
{
	struct pollfd p = {.fd = udp_queue_ops.wake_fd(qb), .events = POLLIN};
	cr_assert_eq(poll(&p, 1, 0), 0);
	no_epoll = true;
	udp_queue_ops.arm(qb);
	cr_assert_eq(poll(&p, 1, 0), 1, "it must not sleep");
	udp_queue_ops.wake_clear(qb);
	udp_queue_ops.disarm(qb);
	no_epoll = false;
	udp_queue_ops.arm(qb);
	cr_assert_eq(poll(&p, 1, 0), 0);
	commit_row("x", 10);
	flush();
	cr_assert_eq(poll(&p, 1, 10000), 1);
	udp_queue_ops.disarm(qb);
}

Test(udp_recv, kernel_without_receive_offload)
{
	no_options = true;
	for (unsigned i = 0; i < 50; i++) {
		commit_row("abcdefgh", 100);
		flush();
		cr_assert_str_eq(received(), "abcdefgh");
	}
}

enum { HEAD = 8, EACH = 100, BYTES = 250, GUARD = 64 };

static uint8_t memory[BYTES + GUARD];

/* Sends packets of these sizes, whose bytes are 'a', 'b' ..., and receives once, with places. */
static unsigned receive_placed(const unsigned *sizes, unsigned n, struct nic_pkt *pkts)
{
	for (unsigned i = 0; i < n; i++)
		cr_assert_eq(commit(peer, (uint8_t)('a' + i), sizes[i]), 0);
	flush();
	memset(memory, '.', sizeof memory);
	udp_queue_ops.rx_place(qb, HEAD, memory, BYTES, EACH, 0);
	return udp_queue_ops.recv(qb, pkts, n);
}

/* Further packets, which may take a moment to arrive; 20 s at most. */
static unsigned receive_more(struct nic_pkt *pkts, unsigned max)
{
	unsigned n = 0;
	for (unsigned i = 0; i < 20000 && !(n = udp_queue_ops.recv(qb, pkts, max)); i++)
		usleep(1000);
	cr_assert_gt(n, 0u);
	return n;
}

/* The packet is complete, wherever its bytes are. */
static void check_packet(const struct nic_pkt *pkt, char value, unsigned len)
{
	bool placed = pkt->head != pkt->body;
	cr_assert_eq(pkt->body_len, (uint64_t)len);
	for (unsigned i = 0; i < len; i++)
		cr_assert_eq(placed && i >= HEAD ? pkt->head[i - HEAD] : pkt->body[i], (uint8_t)value, "byte %u", i);
}

static void check_guard(void)
{
	for (unsigned i = BYTES; i < sizeof memory; i++)
		cr_assert_eq(memory[i], '.', "it writes beyond the offer");
}

/* What lies behind the heads is where it belongs, the last one shorter; the heads are not. By single reads, and by
 * trains once there are many. */
Test(udp_recv, packets_in_their_places)
{
	struct nic_pkt pkts[4];
	unsigned whole = 0;
	for (unsigned round = 0; round < 2000 && whole < 20; round++) {
		unsigned n = receive_placed((const unsigned[]){HEAD + EACH, HEAD + EACH, HEAD + BYTES % EACH}, 3, pkts);
		check_guard();
		whole += n == 3;
		for (unsigned i = 0; i < 3 && n == 3; i++) {
			cr_assert_eq(pkts[i].head, memory + i * EACH, "round %u", round);
			check_packet(&pkts[i], (char)('a' + i), HEAD + (i < 2 ? EACH : BYTES % EACH));
		}
		while (n < 3) /* they came later */
			n += receive_more(pkts, 4);
	}
	cr_assert_eq(whole, 20u);
}

/* Packets of other sizes than were offered for are complete all the same, and nothing is written beside the offer. */
Test(udp_recv, packets_that_do_not_fit_their_places)
{
	static const unsigned sizes[][3] = {{HEAD + EACH + 20, HEAD + EACH, HEAD + 10},
					    {HEAD + 10, HEAD + EACH, HEAD + EACH},
					    {HEAD, HEAD + EACH, HEAD + BYTES % EACH + 1},
					    {3, 2, 1},
					    {5000, 5000, 5000}};
	struct nic_pkt pkts[4];
	for (unsigned round = 0; round < 40; round++) {
		const unsigned *size = sizes[round % 5];
		for (unsigned n = receive_placed(size, 3, pkts), i = 0; i < 3;) {
			for (unsigned k = 0; k < n; k++, i++)
				check_packet(&pkts[k], (char)('a' + i), size[i]);
			check_guard();
			if (i < 3)
				n = receive_more(pkts, 4);
		}
	}
}

/* An offer is of one recv(), whether it returns something or not. */
Test(udp_recv, an_offer_ends)
{
	struct nic_pkt pkts[4];
	udp_queue_ops.rx_place(qb, HEAD, memory, BYTES, EACH, 0);
	cr_assert_eq(udp_queue_ops.recv(qb, pkts, 4), 0u);
	memset(memory, '.', sizeof memory);
	commit_row("x", HEAD + EACH);
	flush();
	cr_assert_eq(receive_more(pkts, 4), 1u);
	cr_assert_eq(pkts[0].head, pkts[0].body);
	cr_assert_eq(memory[0], '.');
}

static void rounds_of(unsigned packets, unsigned rounds, bool until)
{
	const struct udp_queue *q = (const struct udp_queue *)(void *)qb;
	struct nic_pkt pkts[16];
	for (unsigned i = 0; i < rounds && q->batched != until; i++) {
		for (unsigned k = 0; k < packets; k++)
			cr_assert_eq(commit(peer, 'x', 100), 0);
		flush();
		for (unsigned got = 0; got < packets;)
			got += receive_more(pkts, 16);
	}
	cr_assert_eq(q->batched, until);
}

/* Many packets at a time are read by trains; few are read one by one again. */
Test(udp_recv, load)
{
	rounds_of(8, 1000, true);
	rounds_of(1, 5000, false);
}

/* Sends a train of 8 packets of `len` bytes. */
static void send_train(unsigned len)
{
	commit_row("abcdefgh", len);
	flush();
}

/* Receives half of a train. Expect the queue drained once all of it is received. */
Test(udp_recv, drained)
{
	struct nic_pkt pkts[8];
	rounds_of(8, 1000, true);
	send_train(100);
	cr_assert_eq(receive_more(pkts, 4), 4u);
	cr_assert_not(qb->drained);
	cr_assert_eq(udp_queue_ops.recv(qb, pkts, 4), 4u);
	cr_assert(qb->drained);
	cr_assert_eq(udp_queue_ops.recv(qb, pkts, 4), 0u);
	cr_assert(qb->drained);
}

/* One train at a time waits: reads that request several become rare. Two trains wait: reads request both. */
Test(udp_recv, requested_messages)
{
	enum { ROUNDS = 1000 };
	const struct udp_queue *q = (const struct udp_queue *)(void *)qb;
	struct nic_pkt pkts[16];
	unsigned several = 0;
	rounds_of(8, ROUNDS, true);
	for (unsigned i = 0; i < ROUNDS; i++) {
		several += q->reads_max > 1;
		send_train(100);
		cr_assert_eq(receive_more(pkts, 16), 8u);
	}
	cr_assert_lt(several, ROUNDS / 8);
	for (unsigned i = 0; i < ROUNDS && q->reads_max < 2; i++) {
		send_train(100);
		send_train(50);
		for (unsigned got = 0; got < 16;)
			got += receive_more(pkts, 16);
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		send_train(100);
		send_train(50);
		cr_assert_eq(receive_more(pkts, 16), 16u);
	}
}

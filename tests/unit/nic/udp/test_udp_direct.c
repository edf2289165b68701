/* SPDX-License-Identifier: BSD-3-Clause */
/** Single packets by a connected socket. The test's thread. */
#include "udp_script.h"

TestSuite(udp_direct, .init = setup, .fini = teardown);

static struct udp_queue *queue(void)
{
	return udp_queue_of(qa);
}

static bool now(uint32_t to, uint8_t value)
{
	const uint8_t bytes[] = {value, value};
	return udp_queue_ops.tx_now(qa, to, bytes, sizeof bytes, NIC_PRIORITY_MAX);
}

/* Enough in a row that the socket is connected to this peer. */
static void connect_to(uint32_t to)
{
	for (unsigned i = 0; i < 200 && queue()->direct.peer != to; i++) {
		cr_assert(now(to, 'x'));
		received();
	}
	cr_assert_eq(queue()->direct.peer, to);
}

/* Packets to one peer in a row leave by it, others by the queue's own socket, until there are as many. */
Test(udp_direct, one_peer_at_a_time)
{
	cr_assert(now(peer, 'a') && now(other, 'b') && queue()->direct.peer == NIC_PEER_NONE);
	cr_assert_str_eq(received(), "ab");
	for (unsigned i = 0; i < 200; i++) /* by turns: never */
		cr_assert(now(i % 2 ? peer : other, 'x') && received()[0] == 'x');
	cr_assert_eq(queue()->direct.peer, NIC_PEER_NONE);
	connect_to(peer);
	SCRIPT(0);
	cr_assert(now(peer, 'c') && sends == 0);
	cr_assert(now(other, 'd') && sends == 1);
	commit_row("e", 100);
	flush();
	cr_assert_eq(sends, 2u);
	cr_assert_str_eq(received(), "cde");
	connect_to(other);
	SCRIPT(0);
	cr_assert(now(peer, 'f') && sends == 1 && now(other, 'g') && sends == 1);
	cr_assert_str_eq(received(), "fg");
}

/* The number of a peer may be given to another address. */
Test(udp_direct, detached)
{
	connect_to(peer);
	udp_queue_ops.detach(qa, other);
	cr_assert_eq(queue()->direct.peer, peer);
	udp_queue_ops.detach(qa, peer);
	cr_assert(queue()->direct.peer == NIC_PEER_NONE && queue()->direct.last == NIC_PEER_NONE);
	SCRIPT(0);
	cr_assert(!now(peer, 'a') && sends == 0);
}

static int count_refusals(void *ctx, const struct nic_event *ev)
{
	cr_assert(ev->type == NIC_EVENT_UNREACHABLE && (ev->peer == peer || ev->peer == other));
	++*(unsigned *)ctx;
	return 0;
}

/* The process ends. Expect the report by the next packet, or before the queue sleeps. */
static void refusal(bool sleeps)
{
	unsigned n = 0;
	connect_to(peer);
	nic_udp_port_ops.close(b);
	cr_assert(now(peer, 'a'));
	if (sleeps)
		udp_queue_ops.arm(qa);
	else
		cr_assert(!now(peer, 'b') && queue()->direct.peer == NIC_PEER_NONE);
	nic_udp_port_ops.step(a, 0, count_refusals, &n);
	cr_assert_eq(n, 2u, "%u", n); /* both lead to that port */
	b = port_open(false);
}

Test(udp_direct, refused)
{
	refusal(false);
}

Test(udp_direct, refused_before_a_sleep)
{
	refusal(true);
}

/* Nothing but loopback addresses has such a socket. */
Test(udp_direct, loopback_alone)
{
	cr_assert(queue()->port->dests[peer].direct);
	queue()->port->dests[peer].direct = false;
	for (unsigned i = 0; i < 200; i++)
		cr_assert(now(peer, 'x') && received()[0] == 'x');
	cr_assert_eq(queue()->direct.peer, NIC_PEER_NONE);
}

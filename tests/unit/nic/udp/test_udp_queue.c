/* SPDX-License-Identifier: BSD-3-Clause */
/** Destinations of a queue that come and go, its room, and its wake-ups. The test's thread. */
#include "udp_script.h"

#include <poll.h>

TestSuite(udp_queue, .init = setup, .fini = teardown);

static const struct udp_queue *queue(void)
{
	return (const struct udp_queue *)(void *)qa;
}

/* Every attached destination is in the list, at its place. */
static void check_list(unsigned n)
{
	const struct udp_dest *dests = ((struct udp_port *)(void *)a)->dests;
	cr_assert_eq(queue()->attached_n, n);
	for (unsigned i = 0; i < n; i++) {
		const struct udp_dest *d = &dests[queue()->attached[i]];
		cr_assert(d->attached_at == i && d->attached_to == queue());
	}
}

Test(udp_queue, attached_once_and_by_its_own_queue)
{
	cr_assert_eq(udp_queue_ops.attach(qa, peer), -EINVAL, "a second time");
	cr_assert_eq(udp_queue_ops.attach(qa, other + 1), -EINVAL, "no such destination");
	cr_assert_eq(udp_queue_ops.attach(qa, UDP_DESTS_MAX), -EINVAL);
	cr_assert_eq(udp_queue_ops.attach(qa, UINT32_MAX), -EINVAL);
	cr_assert_eq(udp_queue_ops.attach(qb, peer), -EINVAL);
	udp_queue_ops.detach(qa, UINT32_MAX);
	udp_queue_ops.detach(qa, other + 1);
	udp_queue_ops.detach(qb, peer);
	check_list(2);
	udp_queue_ops.detach(qa, peer);
	udp_queue_ops.detach(qa, peer);
	check_list(1);
	cr_assert_eq(udp_queue_ops.attach(qa, peer), 0);
	check_list(2);
}

/* Detached from the middle, the end and the front. */
Test(udp_queue, the_list_stays_dense)
{
	uint32_t d[6] = {peer, other};
	for (unsigned i = 2; i < 6; i++)
		d[i] = dest();
	check_list(6);
	static const unsigned order[] = {2, 5, 0, 3, 1, 4};
	for (unsigned i = 0; i < 6; i++) {
		udp_queue_ops.detach(qa, d[order[i]]);
		check_list(5 - i);
		cr_assert_eq(udp_queue_ops.tx_room(qa, d[order[i]]), 0u);
		cr_assert_eq(udp_queue_ops.tx_bytes_max(qa, d[order[i]]), 0u);
		for (unsigned k = i + 1; k < 6; k++)
			cr_assert_eq(udp_queue_ops.tx_room(qa, d[order[k]]), UDP_SLOTS);
	}
}

/* What was committed before is sent by detach() itself. */
Test(udp_queue, detach_sends_first)
{
	commit_row("abc", 50);
	udp_queue_ops.detach(qa, peer);
	cr_assert_str_eq(received(), "abc");
	cr_assert_eq(dropped(), 0u);
	cr_assert_eq(commit(peer, 'd', 50), -EPIPE);
}

/* A packet that is open when its destination goes is dropped by its commit. */
Test(udp_queue, open_when_its_destination_goes)
{
	struct nic_tx tx;
	cr_assert_eq(udp_queue_ops.tx_reserve(qa, peer, 20, &tx), 0);
	cr_assert_eq(udp_queue_ops.tx_room(qa, other), UDP_SLOTS - 1);
	memset(tx.body, 'x', 20);
	udp_queue_ops.detach(qa, peer);
	cr_assert_eq(udp_queue_ops.tx_commit(qa, &tx), 0);
	flush();
	cr_assert_str_eq(received(), "");
	cr_assert_eq(udp_queue_ops.tx_room(qa, other), UDP_SLOTS);
	cr_assert_eq(udp_queue_ops.tx_commit(qa, &tx), -EPIPE, "a second commit");
}

Test(udp_queue, woken_by_anybody)
{
	struct pollfd p = {.fd = udp_queue_ops.wake_fd(qa), .events = POLLIN};
	cr_assert_eq(poll(&p, 1, 0), 0);
	udp_queue_ops.wake(qa);
	udp_queue_ops.wake(qa);
	cr_assert_eq(poll(&p, 1, 0), 1);
	udp_queue_ops.wake_clear(qa);
	cr_assert_eq(poll(&p, 1, 0), 0);
	udp_queue_ops.wake_clear(qa); /* of nothing */
	cr_assert_eq(udp_queue_ops.deadline(qa), UINT64_MAX);
	udp_queue_ops.release(qa, peer, 7);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** The operation table of a queue, and the operations outside sending and receiving. Poller; udp_wake(): any thread. */
#include "nic/udp/udp_port.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#define BLOCKED_NS UINT64_C(1000000) /* retry interval while the socket buffer is full */

static int udp_attach(struct nic_queue *nq, uint32_t peer)
{
	struct udp_queue *q = udp_queue_of(nq);
	struct udp_dest *dest = peer < UDP_DESTS_MAX ? &q->port->dests[peer] : NULL;
	if (!dest || dest->queue != q || dest->state != UDP_DEST_UP || dest->attached_to)
		return -EINVAL;
	dest->attached_to = q;
	dest->attached_at = q->attached_n;
	q->attached[q->attached_n++] = peer;
	return 0;
}

static void udp_detach(struct nic_queue *nq, uint32_t peer)
{
	struct udp_queue *q = udp_queue_of(nq);
	struct udp_dest *dest = peer < UDP_DESTS_MAX ? &q->port->dests[peer] : NULL;
	if (!dest || dest->attached_to != q)
		return;
	udp_send_ready(q); /* sends what was committed before */
	udp_send_drop(q, peer);
	udp_direct_leave(q, peer);
	uint32_t last = q->attached[--q->attached_n];
	q->attached[dest->attached_at] = last;
	q->port->dests[last].attached_at = dest->attached_at;
	dest->attached_to = NULL;
}

static void udp_release(struct nic_queue *nq, uint32_t peer, uint64_t cookie)
{
	(void)nq;
	(void)peer;
	(void)cookie; /* received packets have no cookie */
}

static uint32_t udp_tx_room(struct nic_queue *nq, uint32_t peer)
{
	struct udp_queue *q = udp_queue_of(nq);
	const struct udp_dest *dest = peer < UDP_DESTS_MAX ? &q->port->dests[peer] : NULL;
	return dest && dest->attached_to == q ? UDP_SLOTS - q->slots_n : 0;
}

static uint64_t udp_tx_bytes_max(struct nic_queue *nq, uint32_t peer)
{
	struct udp_queue *q = udp_queue_of(nq);
	const struct udp_dest *dest = peer < UDP_DESTS_MAX ? &q->port->dests[peer] : NULL;
	return dest && dest->attached_to == q ? dest->bytes_max : 0;
}

static int udp_wake_fd(const struct nic_queue *nq)
{
	return udp_queue_of(nq)->epoll_fd;
}

static void udp_wake_clear(struct nic_queue *nq)
{
	uint64_t n;
	if (read(udp_queue_of(nq)->event_fd, &n, sizeof n) < 0)
		return; /* EAGAIN: a packet has woken the queue */
}

static void udp_wake(struct nic_queue *nq)
{
	uint64_t one = 1;
	if (write(udp_queue_of(nq)->event_fd, &one, sizeof one) < 0)
		return; /* EAGAIN: the descriptor is readable already */
}

static uint64_t udp_deadline(const struct nic_queue *nq)
{
	struct timespec ts;
	if (!udp_queue_of(nq)->blocked)
		return UINT64_MAX;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec + BLOCKED_NS;
}

const struct nic_queue_ops udp_queue_ops = {
	.attach = udp_attach,
	.detach = udp_detach,
	.recv = udp_recv,
	.rx_place = udp_rx_place,
	.release = udp_release,
	.tx_reserve = udp_tx_reserve,
	.tx_refer = udp_tx_refer,
	.tx_now = udp_tx_now,
	.tx_room = udp_tx_room,
	.tx_bytes_max = udp_tx_bytes_max,
	.tx_commit = udp_tx_commit,
	.tx_cancel = udp_tx_cancel,
	.flush = udp_flush,
	.arm = udp_arm,
	.disarm = udp_disarm,
	.wake_fd = udp_wake_fd,
	.wake_clear = udp_wake_clear,
	.wake = udp_wake,
	.deadline = udp_deadline,
};

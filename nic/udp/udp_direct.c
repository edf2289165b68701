/* SPDX-License-Identifier: BSD-3-Clause */
/** A connected socket for single packets to one loopback peer: the kernel looks the route up once instead of for each
 * packet. It only sends, from a port of its own; packets that reach it are not read. Poller; opened and closed by the
 * control thread. */
#include "nic/udp/udp_port.h"

#include <sys/syscall.h>
#include <unistd.h>

#define DIRECT_AFTER 64u /* single packets in a row to another peer until the socket is connected to that */

void udp_direct_count(struct udp_queue *q, uint32_t peer)
{
	struct udp_direct *d = &q->direct;
	const struct udp_dest *dest = &q->port->dests[peer];
	if (d->last != peer)
		d->n = 0;
	d->last = peer;
	if (++d->n % DIRECT_AFTER == 0 && connect(d->socket.fd, (const struct sockaddr *)&dest->to, dest->to_len) == 0)
		d->peer = peer;
}

bool udp_direct_send(struct udp_queue *q, const void *body, uint32_t len)
{
	/* syscall(), like the reads of udp_recv.c: send() and recv() are cancellation points, with two atomic
	 * operations each in a process of several threads. */
	if (syscall(SYS_sendto, q->direct.socket.fd, body, len, 0, NULL, 0) >= 0)
		return true;
	q->direct.peer = NIC_PEER_NONE;
	udp_errors_take(q, &q->direct.socket);
	return false;
}

void udp_direct_leave(struct udp_queue *q, uint32_t peer)
{
	if (q->direct.peer == peer)
		q->direct.peer = NIC_PEER_NONE;
	if (q->direct.last == peer)
		q->direct.last = NIC_PEER_NONE;
}

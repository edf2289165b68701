/* SPDX-License-Identifier: BSD-3-Clause */
/** Processes ICMP errors. Poller. The kernel reports one as the error of the next call on the socket, with details in
 * the error queue: destination and path MTU. Only the named destinations are affected. A forged error costs at most
 * smaller packets, and a query of the store whether that worker is alive. */
#include "nic/udp/udp_port.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <string.h>
#include <unistd.h>

#define ERRORS_AT_ONCE 64 /* bounds the time that a flood of errors can take; the kernel reports the rest again */

static void lower_path_mtu(struct udp_queue *q, const struct udp_ip *ip, uint32_t mtu)
{
	uint32_t headers = ip->family == AF_INET ? UDP_HEADERS_V4 : UDP_HEADERS_V6;
	uint32_t bytes = mtu > headers + UDP_BYTES_MIN ? mtu - headers : UDP_BYTES_MIN;
	for (uint32_t i = 0; i < q->attached_n; i++) {
		struct udp_dest *dest = &q->port->dests[q->attached[i]];
		struct udp_ip to;
		uint16_t port;
		if (dest->bytes_max > bytes && udp_ip_from_sockaddr((struct sockaddr *)&dest->to, &to, &port) &&
		    udp_ip_same(&to, ip))
			dest->bytes_max = bytes;
	}
}

static bool record_error(struct udp_dest *dest, const struct udp_ip *ip, uint16_t port, int error)
{
	struct udp_ip to;
	uint16_t to_port;
	if (!udp_ip_from_sockaddr((struct sockaddr *)&dest->to, &to, &to_port) || to_port != port ||
	    !udp_ip_same(&to, ip))
		return false;
	atomic_store_explicit(&dest->error, error, memory_order_relaxed);
	return true;
}

/* Reports port unreachable to the control thread, which clears the destination's flag after the port's. The port's flag
 * is set last: pairs with report_refusals() in udp_port.c. */
static void report_port_unreachable(struct udp_port *p, struct udp_dest *dest)
{
	uint64_t one = 1;
	if (atomic_exchange_explicit(&dest->port_unreachable, true, memory_order_acq_rel))
		return;
	atomic_store_explicit(&p->refusals, true, memory_order_release);
	if (write(p->pending_fd, &one, sizeof one) < 0)
		return; /* EAGAIN: the descriptor is readable already */
}

/* Consecutive errors mostly name one destination, so the last one is checked first; but several connections may lead to
 * a closed port. */
static void refused(struct udp_queue *q, const struct udp_ip *ip, uint16_t port, int error)
{
	struct udp_dest *last = q->refused_last < q->attached_n ? &q->port->dests[q->attached[q->refused_last]] : NULL;
	bool port_unreachable = error == ECONNREFUSED;
	if (last && record_error(last, ip, port, error) &&
	    (!port_unreachable || atomic_load_explicit(&last->port_unreachable, memory_order_relaxed)))
		return;
	for (uint32_t i = 0; i < q->attached_n; i++) {
		struct udp_dest *dest = &q->port->dests[q->attached[i]];
		if (!record_error(dest, ip, port, error))
			continue;
		q->refused_last = i;
		if (!port_unreachable)
			return;
		report_port_unreachable(q->port, dest);
	}
}

static void take_one(struct udp_queue *q, struct msghdr *msg)
{
	struct sock_extended_err ee = {.ee_errno = 0};
	struct udp_ip ip;
	uint16_t port;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		bool ours = (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) ||
			    (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR);
		if (ours && c->cmsg_len >= CMSG_LEN(sizeof ee))
			memcpy(&ee, CMSG_DATA(c), sizeof ee);
	}
	if (!ee.ee_errno || !msg->msg_namelen || !udp_ip_from_sockaddr(msg->msg_name, &ip, &port))
		return;
	if (ee.ee_errno == EMSGSIZE)
		lower_path_mtu(q, &ip, ee.ee_info);
	else
		refused(q, &ip, port, (int)ee.ee_errno);
}

void udp_errors_take(struct udp_queue *q, struct udp_socket *s)
{
	for (unsigned n = 0; n < ERRORS_AT_ONCE; n++) {
		struct sockaddr_in6 name;
		alignas(struct cmsghdr) uint8_t control[256];
		uint8_t packet[64]; /* the start of the packet; not used */
		struct iovec iov = {packet, sizeof packet};
		struct msghdr msg = {.msg_name = &name,
				     .msg_namelen = sizeof name,
				     .msg_iov = &iov,
				     .msg_iovlen = 1,
				     .msg_control = control,
				     .msg_controllen = sizeof control};
		memset(&name, 0, sizeof name);
		if (recvmsg(s->fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
			return;
		take_one(q, &msg);
	}
}

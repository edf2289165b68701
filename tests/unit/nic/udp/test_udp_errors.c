/* SPDX-License-Identifier: BSD-3-Clause */
/** ICMP errors, as the kernel's error queue reports them: which destinations each is about, and what forged ones do not
 * change. The test's thread. */
#include "udp_script.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <unistd.h>

static struct udp_queue *q;

static struct udp_dest *at(uint32_t i)
{
	return &((struct udp_port *)(void *)a)->dests[i];
}

/* What the error queue holds. */
static struct {
	struct sock_extended_err ee;
	struct sockaddr_in to;
	int level;
	size_t control, name;
} queued[200];
static unsigned queued_n, next_queued;

static ssize_t from_queue(struct msghdr *msg)
{
	if (next_queued == queued_n) {
		errno = EAGAIN;
		return -1;
	}
	unsigned i = next_queued++;
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	c->cmsg_level = queued[i].level;
	c->cmsg_type = queued[i].level == IPPROTO_IP ? IP_RECVERR : IPV6_RECVERR;
	c->cmsg_len = CMSG_LEN(queued[i].control);
	memcpy(CMSG_DATA(c), &queued[i].ee, queued[i].control);
	msg->msg_controllen = CMSG_SPACE(queued[i].control);
	memcpy(msg->msg_name, &queued[i].to, sizeof queued[i].to);
	msg->msg_namelen = (socklen_t)queued[i].name;
	return 0;
}

/* An error about packets to the address of a destination, at this port. */
static unsigned put(uint32_t dest, uint16_t port, uint32_t error, uint32_t info)
{
	queued[queued_n].ee = (struct sock_extended_err){.ee_errno = error, .ee_info = info};
	memcpy(&queued[queued_n].to, &at(dest)->to, sizeof queued[0].to);
	queued[queued_n].to.sin_port = htons(port);
	queued[queued_n].level = IPPROTO_IP;
	queued[queued_n].control = sizeof queued[0].ee;
	queued[queued_n].name = sizeof queued[0].to;
	return queued_n++;
}

static uint16_t port_of_b(void)
{
	return ((struct udp_port *)(void *)b)->queues[0]->port_number;
}

static void take(void)
{
	udp_errors_take(q, &q->sockets[0]);
}

static void begin(void)
{
	setup();
	q = (struct udp_queue *)(void *)qa;
	error_message = from_queue;
}

TestSuite(udp_errors, .init = begin, .fini = teardown);

/* `other` leads to another address from here on. */
static void move_other(void)
{
	struct sockaddr_in to;
	memcpy(&to, &at(other)->to, sizeof to);
	to.sin_addr.s_addr = htonl(0x7f000002);
	memcpy(&at(other)->to, &to, sizeof to);
}

/* A smaller path MTU holds for all ports of the address, and for no other one; it is never raised. */
Test(udp_errors, path_mtu)
{
	move_other();
	uint32_t before = at(other)->bytes_max;
	put(peer, 1, EMSGSIZE, 1400); /* the port does not matter */
	take();
	cr_assert_eq(at(peer)->bytes_max, 1400 - UDP_HEADERS_V4);
	cr_assert_eq(at(other)->bytes_max, before);
	cr_assert_eq(at(peer)->error, 0);
	put(peer, 1, EMSGSIZE, 1450);
	take();
	cr_assert_eq(at(peer)->bytes_max, 1400 - UDP_HEADERS_V4);
	cr_assert_eq(udp_queue_ops.tx_bytes_max(qa, peer), 1400 - UDP_HEADERS_V4);
	/* Below what every path takes IP cuts. */
	static const uint32_t tiny[] = {0, 68, UDP_BYTES_MIN, UDP_BYTES_MIN + UDP_HEADERS_V4};
	for (unsigned i = 0; i < 4; i++) {
		put(peer, 1, EMSGSIZE, tiny[i]);
		take();
		cr_assert_eq(at(peer)->bytes_max, UDP_BYTES_MIN);
	}
}

/* The refusal is of one port; all connections to it are reported, once each. */
Test(udp_errors, port_unreachable)
{
	struct udp_port *p = (struct udp_port *)(void *)a;
	put(peer, (uint16_t)(port_of_b() + 1), ECONNREFUSED, 0);
	take();
	cr_assert(!at(peer)->error && !at(peer)->port_unreachable && !p->refusals, "another port of the address");
	put(peer, port_of_b(), ECONNREFUSED, 0);
	take();
	cr_assert(at(peer)->port_unreachable && at(other)->port_unreachable && p->refusals);
	cr_assert(at(peer)->error == ECONNREFUSED && at(other)->error == ECONNREFUSED);
	uint64_t n = 0;
	cr_assert_eq(read(p->pending_fd, &n, sizeof n), (ssize_t)sizeof n);
	cr_assert_eq(n, 2u);
	put(peer, port_of_b(), ECONNREFUSED, 0);
	take();
	cr_assert_eq(read(p->pending_fd, &n, sizeof n), -1, "it is reported already");
}

/* Other errors are remarked on, and reported to nobody. */
Test(udp_errors, other_refusals)
{
	struct udp_port *p = (struct udp_port *)(void *)a;
	struct nic_err err = {""};
	move_other();
	put(peer, port_of_b(), EHOSTUNREACH, 0);
	take();
	cr_assert(at(peer)->error == EHOSTUNREACH && !at(peer)->port_unreachable && !p->refusals);
	cr_assert_eq(at(other)->error, 0);
	cr_assert_eq(nic_udp_port_ops.reach(a, &to_b, &err), 0);
	cr_assert(strstr(err.text, own_address()) && strstr(err.text, "was refused"), "%s", err.text);
	put(other, port_of_b(), EACCES, 0);
	take();
	cr_assert(at(other)->error == EACCES && at(peer)->error == EHOSTUNREACH);
}

/* Without a destination, with a control message that is cut or of another kind, or from a detached one. */
Test(udp_errors, of_nobody)
{
	queued[put(peer, port_of_b(), ECONNREFUSED, 0)].name = 0;
	queued[put(peer, port_of_b(), ECONNREFUSED, 0)].control = sizeof queued[0].ee - 1;
	queued[put(peer, port_of_b(), ECONNREFUSED, 0)].level = IPPROTO_UDP;
	put(peer, port_of_b(), 0, 0);
	take();
	cr_assert_eq(next_queued, 4u, "all are taken");
	cr_assert(at(peer)->error == 0 && !at(peer)->port_unreachable);
	udp_queue_ops.detach(qa, other);
	put(peer, port_of_b(), ECONNREFUSED, 0);
	take();
	cr_assert(at(peer)->port_unreachable && !at(other)->port_unreachable);
	udp_queue_ops.detach(qa, peer);
	put(peer, port_of_b(), EHOSTUNREACH, 0);
	take();
	cr_assert_eq(at(peer)->error, ECONNREFUSED);
}

/* A flood does not hold the poller: the kernel reports the rest again. */
Test(udp_errors, some_at_a_time)
{
	for (unsigned i = 0; i < 200; i++)
		put(peer, port_of_b(), EHOSTUNREACH, 0);
	take();
	cr_assert(next_queued > 0 && next_queued <= 64, "%u", next_queued);
	take();
	take();
	take();
	cr_assert_eq(next_queued, 200u);
}

/* The kernel's own: nobody has the port any more. */
Test(udp_errors, of_the_kernel)
{
	error_message = NULL;
	nic_udp_port_ops.close(b);
	for (unsigned i = 0; i < 20000 && !at(peer)->port_unreachable; i++, usleep(1000)) {
		struct nic_pkt pkts[4];
		commit(peer, 'x', 100);
		flush();
		cr_assert_eq(udp_queue_ops.recv(qa, pkts, 4), 0u);
	}
	cr_assert(at(peer)->port_unreachable);
	b = port_open(false);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** The sockets of a queue: ports, families, buffers, routes, and why they cannot be opened. The test's thread. */
#include "udp_script.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

TestSuite(udp_socket, .init = setup, .fini = teardown);

Test(udp_socket, kernel_without_ipv6)
{
	no_v6 = true;
	struct nic_port *p = port_open(true);
	struct nic_addr addr;
	char text[256];
	nic_udp_port_ops.address(p, &addr);
	nic_udp_port_ops.address_text(&addr, text, sizeof text);
	cr_assert(strstr(text, "127.0.0.1:"));
	cr_assert_not(strchr(text, '['), "%s", text);
	nic_udp_port_ops.close(p);
}

static struct nic_err err;

static int open_with(const char *args, unsigned queues, struct nic_port **port)
{
	const struct nic_config config = {.queues = queues, .args = args, .listen = "127.0.0.1"};
	return nic_udp_port_ops.open(&config, port, &err);
}

/* The first queue has the port that was given, the others those after it; each socket is bound to the address. */
Test(udp_socket, ports_in_a_row)
{
	struct nic_port *port = NULL;
	char args[32];
	unsigned first = 20011;
	for (; first < 65000; first += 97) { /* some are taken */
		snprintf(args, sizeof args, "port=%u", first);
		if (open_with(args, 3, &port) == 0)
			break;
		cr_assert(strstr(err.text, "127.0.0.1, port"), "%s", err.text);
	}
	cr_assert_not_null(port);
	for (unsigned i = 0; i < 3; i++) {
		const struct udp_queue *q = ((struct udp_port *)(void *)port)->queues[i];
		struct sockaddr_in at;
		socklen_t len = sizeof at;
		cr_assert(q->sockets_n == 1 && q->port_number == first + i);
		cr_assert_eq(getsockname(q->sockets[0].fd, (struct sockaddr *)&at, &len), 0);
		cr_assert(ntohs(at.sin_port) == first + i && ntohl(at.sin_addr.s_addr) == INADDR_LOOPBACK);
		cr_assert(!q->sockets[0].dual && q->sockets[0].family == AF_INET);
	}
	struct nic_port *again = NULL;
	cr_assert_eq(open_with(args, 1, &again), -EADDRINUSE);
	cr_assert(strstr(err.text, "another program uses that port"), "%s", err.text);
	nic_udp_port_ops.close(port);
}

/* Each packet says what its path takes, and errors come to the socket. */
Test(udp_socket, options)
{
	struct nic_port *port = NULL;
	cr_assert_eq(open_with("dscp=0/8/10/18/26/34/40/46,rcvbuf=65536,sndbuf=32768", 1, &port), 0, "%s", err.text);
	int fd = ((struct udp_port *)(void *)port)->queues[0]->sockets[0].fd, value = 0;
	socklen_t len = sizeof value;
	cr_assert_eq(getsockopt(fd, IPPROTO_IP, IP_TOS, &value, &len), 0);
	cr_assert_eq(value, 46 << 2, "of the highest priority");
	cr_assert_eq(getsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &value, &len), 0);
	cr_assert_eq(value, IP_PMTUDISC_WANT);
	cr_assert_eq(getsockopt(fd, IPPROTO_IP, IP_RECVERR, &value, &len), 0);
	cr_assert_eq(value, 1);
	cr_assert_eq(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, &len), 0);
	cr_assert_eq(value, 2 * 65536, "as the kernel counts it");
	cr_assert_eq(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &value, &len), 0);
	cr_assert_eq(value, 2 * 32768);
	cr_assert_eq(udp_buffer_set(fd, true, 100000), 100000u);
	nic_udp_port_ops.close(port);
}

static int route_to(struct udp_port *p, const char *ip, struct udp_route *route)
{
	*route = (struct udp_route){.socket = 77};
	cr_assert(udp_ip_parse(ip, &route->ip));
	return udp_kernel_route(p, route);
}

/* Loopback from loopback alone, and no family without a socket. */
Test(udp_socket, routes_of_the_kernel)
{
	struct udp_port *p = (struct udp_port *)(void *)a;
	struct udp_route route;
	char text[UDP_IP_TEXT_MAX];
	cr_assert_eq(route_to(p, "127.0.0.9", &route), 0);
	cr_assert(route.socket == 0 && route.mtu >= 1280);
	cr_assert_str_eq(udp_ip_text(&route.from, text), own_address());
	cr_assert_eq(route_to(p, "198.51.100.9", &route), -EAFNOSUPPORT, "not from a loopback address");
	cr_assert_eq(route_to(p, "::1", &route), -EAFNOSUPPORT);
	p->listen.any = true;
	cr_assert_eq(route_to(p, "127.0.0.9", &route), 0);
	cr_assert_eq(route_to(p, "::1", &route), -EAFNOSUPPORT, "the wildcard socket is IPv4");
	p->listen.any = false;
}

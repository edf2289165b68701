/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The sockets of a queue. Control thread. Those that receive are unconnected: a connected socket for each peer would
 * make a send a tenth cheaper, at the cost of a descriptor and a poll per peer.
 *
 * Path MTU: IP_PMTUDISC_WANT. Packets up to the known path MTU carry Don't Fragment. When a router reports a smaller
 * MTU that packet is lost, udp_errors.c lowers the destination's tx_bytes_max, and IP fragments the retransmission,
 * which has the old size. Runs carry no Don't Fragment and are fragmented on the path. So every packet gets through
 * eventually. A path that drops large packets without a report needs nic=udp:mtu=N.
 */
#include "nic/udp/udp_port.h"

#include <errno.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define SAME_PORT_TRIES 64 /* tries to find a port that is free at all addresses */

static bool option(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

unsigned udp_buffer_set(int fd, bool rcv, unsigned bytes)
{
	int got = 0;
	socklen_t len = sizeof got;
	if (!option(fd, SOL_SOCKET, rcv ? SO_RCVBUFFORCE : SO_SNDBUFFORCE, (int)bytes))
		option(fd, SOL_SOCKET, rcv ? SO_RCVBUF : SO_SNDBUF, (int)bytes);
	getsockopt(fd, SOL_SOCKET, rcv ? SO_RCVBUF : SO_SNDBUF, &got, &len);
	return (unsigned)got / 2; /* the kernel doubles it for its own bookkeeping */
}

static int socket_make(const struct udp_args *args, const struct udp_ip *bound, bool any, struct udp_socket *s)
{
	s->family = bound->family;
	s->dual = any && bound->family == AF_INET6;
	s->fd = socket(s->family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s->fd < 0)
		return -errno;
	if (s->family == AF_INET6) {
		option(s->fd, IPPROTO_IPV6, IPV6_V6ONLY, !s->dual);
		option(s->fd, IPPROTO_IPV6, IPV6_RECVERR, 1);
		option(s->fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_WANT);
	}
	option(s->fd, IPPROTO_IP, IP_RECVERR, 1);
	option(s->fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_WANT);
	/* Default TOS of the socket; other priorities set theirs by a cmsg. */
	if (args->dscp.tos[NIC_PRIORITY_MAX]) {
		option(s->fd, IPPROTO_IP, IP_TOS, args->dscp.tos[NIC_PRIORITY_MAX]);
		if (s->family == AF_INET6)
			option(s->fd, IPPROTO_IPV6, IPV6_TCLASS, args->dscp.tos[NIC_PRIORITY_MAX]);
	}
	/* The address may still be under duplicate address detection: it was read from an interface. */
	option(s->fd, IPPROTO_IP, IP_FREEBIND, 1);
	udp_buffer_set(s->fd, true, args->rcvbuf);
	udp_buffer_set(s->fd, false, args->sndbuf);
	return 0;
}

static int bind_one(struct udp_socket *s, const struct udp_ip *ip, uint16_t *port)
{
	struct sockaddr_in6 sa;
	struct udp_ip got;
	socklen_t len = udp_ip_sockaddr(ip, *port, false, &sa);
	if (bind(s->fd, (struct sockaddr *)&sa, len) < 0 || getsockname(s->fd, (struct sockaddr *)&sa, &len) < 0)
		return -errno;
	return udp_ip_from_sockaddr((struct sockaddr *)&sa, &got, port) ? 0 : -EPROTO;
}

void udp_sockets_close(struct udp_queue *q)
{
	for (uint32_t i = 0; i < q->sockets_n; i++)
		close(q->sockets[i].fd);
	q->sockets_n = 0;
	if (q->direct.socket.fd >= 0)
		close(q->direct.socket.fd);
	q->direct.socket.fd = -1;
}

/* Opens all sockets at the same port: `port`, or if that is 0 the one that the first socket gets. */
static int open_all(struct udp_port *p, struct udp_queue *q, uint16_t port, struct udp_ip *at)
{
	struct udp_ip any = {.family = p->listen.v6 ? AF_INET6 : AF_INET};
	unsigned n = p->listen.any ? 1 : p->listen.n;
	for (unsigned i = 0; i < n; i++) {
		*at = p->listen.any ? any : p->listen.ips[i].ip;
		struct udp_socket *s = &q->sockets[i];
		int error = socket_make(&p->args, at, p->listen.any, s);
		if (error)
			return error;
		q->sockets_n++;
		error = bind_one(s, at, &port);
		if (error)
			return error;
	}
	q->port_number = port;
	return 0;
}

/* Falls back to IPv4 if the kernel has no IPv6. */
static bool without_v6(struct udp_port *p)
{
	unsigned n = 0;
	for (unsigned i = 0; i < p->listen.n; i++)
		if (p->listen.ips[i].ip.family == AF_INET)
			p->listen.ips[n++] = p->listen.ips[i];
	bool fewer = n && (n < p->listen.n || p->listen.v6);
	if (fewer)
		p->listen.n = n;
	p->listen.v6 = false;
	return fewer;
}

static const char *open_remedy(int error)
{
	return error == -EMFILE       ? "; each queue needs three descriptors and one for each address (ulimit -n)"
	       : error == -EADDRINUSE ? "; another program uses that port: choose another one by nic=udp:port=N"
	       : error == -EACCES     ? "; ports below net.ipv4.ip_unprivileged_port_start need root"
				      : "";
}

/* Opens the socket of udp_direct.c, like the first one. Optional. */
static void direct_open(struct udp_port *p, struct udp_queue *q)
{
	struct udp_ip like = {.family = q->sockets[0].family};
	struct udp_socket *s = &q->direct.socket;
	if (!p->listen.any && !udp_ip_loopback(&p->listen.ips[0].ip))
		return;
	if (socket_make(&p->args, &like, q->sockets[0].dual, s) == 0)
		udp_buffer_set(s->fd, true, 0);
	else
		s->fd = -1;
}

int udp_sockets_open(struct udp_port *p, struct udp_queue *q, struct nic_err *err)
{
	uint16_t port = p->args.port ? (uint16_t)(p->args.port + q->index) : 0;
	struct udp_ip at = {.family = 0};
	int error = 0;
	for (unsigned tries = 0; tries < SAME_PORT_TRIES; tries++) {
		error = open_all(p, q, port, &at);
		if (!error) {
			direct_open(p, q);
			return 0;
		}
		udp_sockets_close(q);
		/* the kernel has no IPv6; sockets opened before this error are IPv4 */
		if (error == -EAFNOSUPPORT && without_v6(p))
			continue;
		if (port || error != -EADDRINUSE)
			break;
	}
	char text[UDP_IP_TEXT_MAX];
	return udp_error(err, error, "udp: cannot open a socket at %s, port %u: %s%s",
			 at.family ? udp_ip_text(&at, text) : "any address", port, strerror(-error),
			 open_remedy(error));
}

/* Queries route, source and MTU by a socket bound like ours and connected; sends nothing. */
static int route_from(const struct udp_ip *from, struct udp_route *route)
{
	const struct udp_ip *to = &route->ip;
	struct sockaddr_in6 sa;
	uint16_t port;
	int fd = socket(to->family, SOCK_DGRAM | SOCK_CLOEXEC, 0), value = 0, error = 0;
	if (fd < 0)
		return -errno;
	socklen_t len = sizeof value;
	if (from && bind(fd, (struct sockaddr *)&sa, udp_ip_sockaddr(from, 0, false, &sa)) < 0)
		error = -errno;
	if (!error && connect(fd, (struct sockaddr *)&sa, udp_ip_sockaddr(to, 9, false, &sa)) < 0)
		error = -errno;
	if (!error && (to->family == AF_INET ? getsockopt(fd, IPPROTO_IP, IP_MTU, &value, &len)
					     : getsockopt(fd, IPPROTO_IPV6, IPV6_MTU, &value, &len)) < 0)
		error = -errno;
	len = sizeof sa;
	if (!error && (getsockname(fd, (struct sockaddr *)&sa, &len) < 0 ||
		       !udp_ip_from_sockaddr((struct sockaddr *)&sa, &route->from, &port)))
		route->from = (struct udp_ip){.family = 0};
	close(fd);
	route->mtu = (uint32_t)value;
	return error;
}

int udp_kernel_route(void *ctx, struct udp_route *route)
{
	const struct udp_port *p = ctx;
	int error = -EAFNOSUPPORT;
	if (p->listen.any) {
		route->socket = 0;
		return route->ip.family == AF_INET6 && !p->listen.v6 ? error : route_from(NULL, route);
	}
	for (unsigned i = 0; i < p->listen.n; i++) {
		const struct udp_ip *from = &p->listen.ips[i].ip;
		if (from->family != route->ip.family || udp_ip_loopback(from) != udp_ip_loopback(&route->ip))
			continue;
		error = route_from(from, route);
		route->socket = i;
		if (!error)
			return 0;
	}
	return error;
}

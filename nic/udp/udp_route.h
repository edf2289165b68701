/* SPDX-License-Identifier: BSD-3-Clause */
/** Chooses the address of a peer to send to, and the source address. Control thread. */
#ifndef NIC_UDP_ROUTE_H
#define NIC_UDP_ROUTE_H

#include "nic/udp/udp_addr.h"

/** What is known of this port. */
struct udp_self {
	uint64_t host, netns;
	const struct udp_ifaces *ifaces;
	const struct udp_published *ips; /* the addresses that we listen at */
	unsigned ips_n;
};

struct udp_route {
	struct udp_ip ip;
	struct udp_ip from; /* the source address */
	unsigned socket;    /* index of the socket in every queue, [0, UDP_ADDRS_MAX) */
	uint32_t mtu;       /* bytes of an IP packet */
};

/** Queries a route to route->ip without sending, and sets from, socket and mtu: 0 or -errno. */
typedef int udp_route_fn(void *ctx, struct udp_route *route);

/** Chooses the best of the peer's addresses to which `query` finds a route: loopback in the same network namespace of
 * the same host, then addresses of our own, then of our subnets, then others; each in the peer's order. 0, or -errno
 * with both sides and the reasons in `err`. */
int udp_route_choose(const struct udp_self *self, const struct udp_addr *peer, udp_route_fn *query, void *ctx,
		     struct udp_route *out, struct nic_err *err);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** Which of a peer's addresses to send to, and from where. Control core. */
#ifndef NIC_UDP_ROUTE_H
#define NIC_UDP_ROUTE_H

#include "nic/udp/udp_addr.h"

/** What is known of ourselves. */
struct udp_self {
	uint64_t host, netns;
	const struct udp_ifaces *ifaces;
	const struct udp_published *ips; /* that we are reached at */
	unsigned ips_n;
};

struct udp_route {
	struct udp_ip ip;
	struct udp_ip from; /* the source address there */
	unsigned socket;    /* of every queue, [0, UDP_ADDRS_MAX) */
	uint32_t mtu;       /* IP packet */
};

/** Asks the system, without sending, for a way to `route->ip`: fills from, socket and mtu: 0 or -errno. */
typedef int udp_route_fn(void *ctx, struct udp_route *route);

/**
 * The best of the peer's addresses that `ask` knows a way to: loopback in the same network namespace of the same host,
 * then our own, then those of our subnets, then the others, each in the peer's order. 0, or -errno with both sides and
 * the reasons in `err`.
 */
int udp_route_choose(const struct udp_self *self, const struct udp_addr *peer, udp_route_fn *ask, void *ctx,
		     struct udp_route *out, struct nic_err *err);

#endif

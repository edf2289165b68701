/* SPDX-License-Identifier: BSD-3-Clause */
/** Queries the kernel's routes and neighbour table by netlink. Control thread; the kernel answers within the call. */
#ifndef FAR_NIC_DPDK_HOST_ROUTE_H
#define FAR_NIC_DPDK_HOST_ROUTE_H

#include "nic/dpdk/host.h"

/** Writes the next hop of `iface` towards `to`: a router's address, or `to` itself if it is on the link. -ENETUNREACH:
 * no route, or not through this interface. */
int host_route_nexthop(const struct host_iface *iface, bool v6, const uint8_t *to, uint8_t nexthop[16],
		       struct nic_err *err);

/** Reads the MAC address of a neighbour of interface `index` from the kernel's table. False: none, or in a state that
 * is not usable. */
bool host_neighbour_mac(int index, bool v6, const uint8_t *ip, uint8_t mac[6]);

#endif

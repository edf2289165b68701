/* SPDX-License-Identifier: BSD-3-Clause */
/** What the kernel knows of the ways beyond an interface that we share with it. Slow, for the control core; netlink
 * answers within the call. */
#ifndef FAR_NIC_DPDK_HOST_ROUTE_H
#define FAR_NIC_DPDK_HOST_ROUTE_H

#include "nic/dpdk/host.h"

/**
 * The next hop of `iface` towards `to`: a router's address, or `to` itself when that is on the link. -ENETUNREACH: the
 * kernel has no route there, or not by this interface.
 */
int host_route_hop(const struct host_iface *iface, bool v6, const uint8_t *to, uint8_t hop[16], struct nic_err *err);

/** The MAC address that the kernel has for a neighbour of interface `index`. False: none, or none that it trusts. */
bool host_neighbour_mac(int index, bool v6, const uint8_t *ip, uint8_t mac[6]);

#endif

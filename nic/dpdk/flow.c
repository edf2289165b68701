/* SPDX-License-Identifier: BSD-3-Clause */
/** Flow rules: steer packets by UDP port to the receive ring of their queue, if the device's driver supports that.
 * Otherwise RSS selects the ring by a hash of the ports, and the sender tries source ports. Control thread. */
#include "nic/dpdk/dpdk.h"

#include <rte_errno.h>
#include <rte_flow.h>
#include <stdio.h>
#include <string.h>

#define ITEMS_MAX 5u /* Ethernet, VLAN, IP, UDP, end */

/* A pattern and the parts that it points to. */
struct pattern {
	struct rte_flow_item items[ITEMS_MAX];
	unsigned n;
	struct rte_flow_item_vlan vlan, vlan_mask;
	struct rte_flow_item_ipv4 v4, v4_mask;
	struct rte_flow_item_ipv6 v6, v6_mask;
	struct rte_flow_item_udp udp, udp_mask;
};

static void add(struct pattern *to, enum rte_flow_item_type type, const void *spec, const void *mask)
{
	to->items[to->n++] = (struct rte_flow_item){.type = type, .spec = spec, .mask = mask};
}

static void describe(struct pattern *to, const struct dpdk_port *p, unsigned queue)
{
	memset(to, 0, sizeof *to);
	add(to, RTE_FLOW_ITEM_TYPE_ETH, NULL, NULL);
	if (p->args.vlan) {
		to->vlan.tci = frame_be16((uint16_t)p->args.vlan);
		to->vlan_mask.tci = frame_be16(0x0fff);
		add(to, RTE_FLOW_ITEM_TYPE_VLAN, &to->vlan, &to->vlan_mask);
	}
	if (p->blob.v6) {
		memcpy(to->v6.hdr.dst_addr, p->blob.ip, 16);
		memset(to->v6_mask.hdr.dst_addr, 0xff, 16);
		add(to, RTE_FLOW_ITEM_TYPE_IPV6, &to->v6, &to->v6_mask);
	} else {
		memcpy(&to->v4.hdr.dst_addr, p->blob.ip, 4);
		memset(&to->v4_mask.hdr.dst_addr, 0xff, 4);
		add(to, RTE_FLOW_ITEM_TYPE_IPV4, &to->v4, &to->v4_mask);
	}
	to->udp.hdr.dst_port = frame_be16((uint16_t)(p->blob.port + queue));
	to->udp_mask.hdr.dst_port = 0xffff;
	add(to, RTE_FLOW_ITEM_TYPE_UDP, &to->udp, &to->udp_mask);
	add(to, RTE_FLOW_ITEM_TYPE_END, NULL, NULL);
}

/* Creates the queue's rule; without `make` only validates it. */
static int rule(struct dpdk_port *p, unsigned queue, bool make, struct rte_flow_error *why)
{
	const struct rte_flow_attr attr = {.ingress = 1};
	const struct rte_flow_action_queue to = {.index = (uint16_t)queue};
	const struct rte_flow_action actions[] = {{.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to},
						  {.type = RTE_FLOW_ACTION_TYPE_END}};
	struct pattern pattern;
	describe(&pattern, p, queue);
	if (!make)
		return rte_flow_validate(p->ethdev, &attr, pattern.items, actions, why);
	p->flows[queue] = rte_flow_create(p->ethdev, &attr, pattern.items, actions, why);
	return p->flows[queue] ? 0 : -1;
}

void dpdk_flow_open(struct dpdk_port *p)
{
	struct rte_flow_error why = {0};
	bool made = p->steering == NIC_STEER_HASH;
	int error = 0;
	if (p->args.class != DPDK_OWN || (p->forwards_rx && !p->shares_ring))
		return;
	for (unsigned i = 0; !error && i < (made ? p->queues_n : 1); i++)
		error = rule(p, i, made, &why);
	if (error) {
		dpdk_flow_close(p);
		snprintf(p->flow_text, sizeof p->flow_text,
			 "no flow rules (%s): with several rings the sender tries source ports",
			 why.message ? why.message : rte_strerror(rte_errno));
		return;
	}
	snprintf(p->flow_text, sizeof p->flow_text, "flow rules lead to the ring of a shard");
	if (made)
		p->steering = NIC_STEER_QUEUE;
}

void dpdk_flow_close(struct dpdk_port *p)
{
	struct rte_flow_error why;
	for (unsigned i = 0; i < DPDK_QUEUES_MAX; i++)
		if (p->flows[i])
			rte_flow_destroy(p->ethdev, p->flows[i], &why);
	memset(p->flows, 0, sizeof p->flows);
}

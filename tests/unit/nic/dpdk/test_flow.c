/* SPDX-License-Identifier: BSD-3-Clause */
/** Flow rules of a port, given to a device of the test's own: the pattern of each queue, and a device that has none, or
 * too few. The test's thread. */
#include "nic/dpdk/dpdk.h"

#include <criterion/criterion.h>
#include <rte_flow.h>
#include <string.h>

enum { QUEUES = 3 };

/* What the device has been given; its functions stand for those of the same name (--wrap). */
static struct {
	unsigned validated, made, destroyed;
	unsigned fails_at; /* this one, from 1 on; 0: none */
	uint16_t port, queue, tci;
	bool v6;
	uint8_t ip[16];
} device;
static char memory[QUEUES];
static struct dpdk_port p;

int __wrap_rte_flow_validate(uint16_t port_id, const struct rte_flow_attr *attr, const struct rte_flow_item pattern[],
			     const struct rte_flow_action actions[], struct rte_flow_error *error);
struct rte_flow *__wrap_rte_flow_create(uint16_t port_id, const struct rte_flow_attr *attr,
					const struct rte_flow_item pattern[], const struct rte_flow_action actions[],
					struct rte_flow_error *error);
int __wrap_rte_flow_destroy(uint16_t port_id, struct rte_flow *flow, struct rte_flow_error *error);

static void read_pattern(const struct rte_flow_item *i)
{
	cr_assert_eq(i++->type, RTE_FLOW_ITEM_TYPE_ETH);
	device.tci = 0;
	if (i->type == RTE_FLOW_ITEM_TYPE_VLAN) {
		cr_assert_eq(((const struct rte_flow_item_vlan *)i->mask)->tci, frame_be16(0x0fff), "no priority");
		device.tci = frame_be16(((const struct rte_flow_item_vlan *)i++->spec)->tci);
	}
	device.v6 = i->type == RTE_FLOW_ITEM_TYPE_IPV6;
	if (device.v6)
		memcpy(device.ip, ((const struct rte_flow_item_ipv6 *)i->spec)->hdr.dst_addr, 16);
	else
		memcpy(device.ip, &((const struct rte_flow_item_ipv4 *)i->spec)->hdr.dst_addr, 4);
	i++;
	cr_assert_eq(i->type, RTE_FLOW_ITEM_TYPE_UDP);
	device.port = frame_be16(((const struct rte_flow_item_udp *)i->spec)->hdr.dst_port);
	cr_assert_eq(((const struct rte_flow_item_udp *)i++->mask)->hdr.dst_port, 0xffff);
	cr_assert_eq(i->type, RTE_FLOW_ITEM_TYPE_END);
}

static bool takes(uint16_t port_id, const struct rte_flow_item *pattern, const struct rte_flow_action *actions,
		  unsigned number, struct rte_flow_error *error)
{
	cr_assert_eq(port_id, 5);
	read_pattern(pattern);
	cr_assert_eq(actions[0].type, RTE_FLOW_ACTION_TYPE_QUEUE);
	device.queue = ((const struct rte_flow_action_queue *)actions[0].conf)->index;
	cr_assert_eq(actions[1].type, RTE_FLOW_ACTION_TYPE_END);
	error->message = number == device.fails_at ? "table full" : NULL;
	return number != device.fails_at;
}

int __wrap_rte_flow_validate(uint16_t port_id, const struct rte_flow_attr *attr, const struct rte_flow_item pattern[],
			     const struct rte_flow_action actions[], struct rte_flow_error *error)
{
	return takes(port_id, pattern, actions, ++device.validated, error) ? 0 : -1;
}

struct rte_flow *__wrap_rte_flow_create(uint16_t port_id, const struct rte_flow_attr *attr,
					const struct rte_flow_item pattern[], const struct rte_flow_action actions[],
					struct rte_flow_error *error)
{
	cr_assert(attr->ingress && !attr->egress);
	if (!takes(port_id, pattern, actions, device.made + 1, error))
		return NULL;
	cr_assert_eq(device.queue, device.made, "a rule for each queue, in order");
	cr_assert_eq(device.port, 7471 + device.made);
	return (struct rte_flow *)(void *)&memory[device.made++];
}

int __wrap_rte_flow_destroy(uint16_t port_id, struct rte_flow *flow, struct rte_flow_error *error)
{
	cr_assert_eq((char *)(void *)flow, &memory[device.destroyed]);
	device.destroyed++;
	return 0;
}

static void setup(void)
{
	p = (struct dpdk_port){.ethdev = 5, .args.class = DPDK_OWN, .queues_n = QUEUES, .steering = NIC_STEER_HASH};
	p.blob = (struct dpdk_blob){.ip = {10, 8, 0, 1}, .port = 7471};
	memset(&device, 0, sizeof device);
}

TestSuite(dpdk_flow, .init = setup);

Test(dpdk_flow, a_rule_for_each_queue)
{
	dpdk_flow_open(&p);
	cr_assert(device.made == QUEUES && device.validated == 0);
	cr_assert(!device.v6 && memcmp(device.ip, p.blob.ip, 4) == 0 && !device.tci);
	cr_assert_eq(p.steering, NIC_STEER_QUEUE);
	cr_assert_str_eq(p.flow_text, "flow rules lead to the ring of a shard");
	dpdk_flow_close(&p);
	cr_assert_eq(device.destroyed, (unsigned)QUEUES);
	dpdk_flow_close(&p);
	cr_assert_eq(device.destroyed, (unsigned)QUEUES);
}

Test(dpdk_flow, ipv6_with_a_tag)
{
	p.args.vlan = 42;
	p.blob.v6 = 1;
	memset(p.blob.ip, 0xfd, 16);
	dpdk_flow_open(&p);
	cr_assert(device.made == QUEUES && device.v6 && device.tci == 42);
	cr_assert_eq(memcmp(device.ip, p.blob.ip, 16), 0);
}

/* The device takes the first rule, and no second. Expect none left, and the hash to choose the queue. */
Test(dpdk_flow, all_or_none)
{
	device.fails_at = 2;
	dpdk_flow_open(&p);
	cr_assert(device.made == 1 && device.destroyed == 1 && !p.flows[0]);
	cr_assert_eq(p.steering, NIC_STEER_HASH);
	cr_assert_str_eq(p.flow_text, "no flow rules (table full): with several rings the sender tries source ports");
}

/* One ring needs no rule. Expect one to be tried, for the remark alone. */
Test(dpdk_flow, one_ring)
{
	p.steering = NIC_STEER_QUEUE;
	dpdk_flow_open(&p);
	cr_assert(device.validated == 1 && device.made == 0 && p.flow_text[0]);
	cr_assert_eq(p.steering, NIC_STEER_QUEUE);
}

/* An interface of the kernel, and a device that delivers by its rings. */
Test(dpdk_flow, devices_without_rules)
{
	p.args.class = DPDK_IFACE;
	dpdk_flow_open(&p);
	p.args.class = DPDK_OWN;
	p.forwards_rx = true;
	dpdk_flow_open(&p);
	cr_assert(device.validated + device.made == 0 && !p.flow_text[0]);
	p.shares_ring = true;
	dpdk_flow_open(&p);
	cr_assert_eq(device.made, (unsigned)QUEUES);
}

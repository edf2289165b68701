/* SPDX-License-Identifier: BSD-3-Clause */
/** The ethdev of a port: made, owned by one port, removed; what cannot be opened, and why. Devices of DPDK that drop
 * what they are given. The test's thread. */
#include "nic/dpdk/dpdk.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct dpdk_port p, other;
static struct nic_err err;

static void parse(struct dpdk_port *port, const char *args)
{
	memset(port, 0, sizeof *port);
	cr_assert_eq(dpdk_args_parse(args, &port->args, &err), 0, "%s", err.text);
	port->queues_n = 1;
	port->head_len = FRAME_V4_BYTES;
	port->claim = -1;
}

static void setup(void)
{
	cr_assert_eq(dpdk_eal_start(0, false, &err), 0, "%s", err.text);
	parse(&p, "net_null0,no-rx=1");
}

static void teardown(void)
{
	dpdk_device_close(&p);
	dpdk_device_free(&p);
}

TestSuite(dpdk_device, .init = setup, .fini = teardown);

static bool exists(const char *name)
{
	uint16_t id;
	return rte_eth_dev_get_port_by_name(name, &id) == 0;
}

/* `error` 0: whichever DPDK gives. */
static void expect_error(struct dpdk_port *port, int error, const char *part)
{
	int got = dpdk_device_open(port, &err);
	cr_assert(error ? got == error : got < 0, "%d: %s", got, err.text);
	cr_assert(strstr(err.text, part), "\"%s\" lacks \"%s\"", err.text, part);
	dpdk_device_close(port);
	dpdk_device_free(port);
}

Test(dpdk_device, made_and_removed)
{
	for (unsigned i = 0; i < 2; i++) {
		cr_assert_eq(dpdk_device_open(&p, &err), 0, "%s", err.text);
		cr_assert(p.probed && p.started && exists("net_null0") && p.pools[0]);
		cr_assert_eq(p.body_max, 1500u - 28);
		cr_assert(p.steering == NIC_STEER_QUEUE && !p.forwards_rx && !p.shares_ring);
		cr_assert_eq((FRAME_V4_BYTES + p.rx_shift + 64) % 64, DPDK_BODY_ALIGN, "received bodies are aligned");
		cr_assert_eq(dpdk_device_start(&p, &err), 0, "%s", err.text);
		dpdk_device_close(&p);
		cr_assert(!exists("net_null0") && !p.probed && !p.started && p.owner == RTE_ETH_DEV_NO_OWNER);
		dpdk_device_close(&p);
		dpdk_device_free(&p);
		cr_assert_null(p.pools[0]);
	}
}

/* Expect the second port refused, and the first one's device untouched by its end. */
Test(dpdk_device, one_port_has_it)
{
	cr_assert_eq(dpdk_device_open(&p, &err), 0, "%s", err.text);
	parse(&other, "net_null0,no-rx=1");
	expect_error(&other, -EBUSY, "dpdk: net_null0 is in use in this process");
	cr_assert(exists("net_null0"));
	cr_assert_eq(dpdk_device_start(&p, &err), 0, "%s", err.text);
	other.args.class = DPDK_IFACE; /* such a device is never another's */
	expect_error(&other, -EBUSY, "give the device another number");
}

/* No such device, one that the bus does not make, arguments that DPDK refuses, and packets that no ring takes. */
Test(dpdk_device, what_cannot_be_opened)
{
	other = p;
	other.args.bus = NULL;
	snprintf(other.args.name, sizeof other.args.name, "nothing0");
	expect_error(&other, -ENODEV, "\"nothing0\" is neither net_");
	parse(&other, "net_null1,unknown=1");
	expect_error(&other, 0, "dpdk: net_null1 cannot be opened: ");
	parse(&other, "net_nothing0");
	expect_error(&other, 0, "dpdk: net_nothing0 cannot be opened: ");
	parse(&other, "net_null1,no-rx=1,size=0");
	expect_error(&other, 0, "dpdk: net_null1 cannot be set up: ");
	cr_assert_not(exists("net_null1"));
}

/* Two shards, each with a ring. Expect a pool for each, and a hash that chooses the ring. */
Test(dpdk_device, rings_for_each_shard)
{
	p.queues_n = 2;
	p.args.rxd = 64;
	cr_assert_eq(dpdk_device_open(&p, &err), 0, "%s", err.text);
	cr_assert(p.pools[0] && p.pools[1] && p.pools[0] != p.pools[1]);
	cr_assert_eq(p.steering, NIC_STEER_HASH);
	cr_assert_eq(p.rx_ring, 64u);
	cr_assert_eq(dpdk_device_start(&p, &err), 0, "%s", err.text);
	cr_assert(strstr(p.flow_text, "no flow rules ("), "%s", p.flow_text);
}

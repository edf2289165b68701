/* SPDX-License-Identifier: BSD-3-Clause */
/** Ports of an agent: order, what is refused with which remedy, ports that the caller has opened. The test's thread. */
#include "agent/ports.h"
#include "fake_dgram.h"
#include "fake_net.h"
#include "open_files.h"
#include "own_dir.h"

#include <string.h>

static struct far_err err;
static struct ports ports;

static void setup(void)
{
	own_dir_make();
	setenv("XDG_RUNTIME_DIR", top, 1);
	unsetenv("FAR_NIC");
	unsetenv("FAR_LISTEN");
	unsetenv("FAR_ADVERTISE");
	unsetenv("FAR_CHECKSUM");
	unsetenv("FAR_DPDK");
}

TestSuite(ports, .init = setup, .fini = own_dir_remove);

static struct ports_config config(const char *nic)
{
	return (struct ports_config){.nic = nic, .id = 77, .any_user = true, .quiet = true, .queues = 1};
}

static void refused(const struct ports_config *c, enum far_status status, const char *text)
{
	unsigned before = open_files();
	cr_assert_eq(ports_open(c, &ports, &err), status, "%s: %s", text, err.text);
	cr_assert(strstr(err.text, text), "%s", err.text);
	cr_assert_eq(ports.n, 0u);
	cr_assert_eq(open_files(), before, "descriptors are left");
}

/* Expect those of the cheapest calls first, and a shm port for the worker's own sessions that nobody else sees. */
Test(ports, order_and_the_own_one)
{
	struct ports_config c = config("udp,shm");
	cr_assert_eq(ports_open(&c, &ports, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(ports.n, 2u);
	cr_assert_str_eq(ports.at[0]->ops->name, "shm");
	cr_assert_str_eq(ports.at[1]->ops->name, "udp");
	cr_assert(ports.published == 2 && ports.self == 0);
	ports_close(&ports);
	c.nic = "udp";
	cr_assert_eq(ports_open(&c, &ports, &err), FAR_OK, "%s", err.text);
	cr_assert(ports.n == 2 && ports.published == 1 && ports.self == 1);
	cr_assert_str_eq(ports.at[1]->ops->name, "shm");
	ports_close(&ports);
	cr_assert_eq(ports.n, 0u);
}

/* The program goes before the environment; an empty variable is none. */
Test(ports, of_the_environment)
{
	struct ports_config c = config(NULL);
	setenv("FAR_NIC", "shm", 1);
	setenv("FAR_LISTEN", "", 1);
	cr_assert_eq(ports_open(&c, &ports, &err), FAR_OK, "%s", err.text);
	cr_assert(ports.n == 1 && strcmp(ports.at[0]->ops->name, "shm") == 0);
	ports_close(&ports);
	setenv("FAR_NIC", "nonsense", 1);
	refused(&c, FAR_INVALID, "nic \"nonsense\" cannot be opened");
	c.nic = "shm";
	cr_assert_eq(ports_open(&c, &ports, &err), FAR_OK, "%s", err.text);
	ports_close(&ports);
	setenv("FAR_CHECKSUM", "some", 1);
	refused(&c, FAR_INVALID, "checksum is \"some\"");
}

/* One that is named must be there. "auto" goes on without those that cannot be opened, and keeps the reasons. */
Test(ports, named_and_automatic)
{
	struct ports_config c = config("shm;udp:nonsense=1");
	refused(&c, FAR_INVALID, "nic \"udp\" cannot be opened");
	c.nic = "shm:dir";
	refused(&c, FAR_INVALID, "shm takes no arguments");
	c.nic = "auto";
	c.listen = "203.0.113.7"; /* of no interface */
	refused(&c, FAR_UNREACHABLE, "listen is \"203.0.113.7\", but no port has an address: ");
}

/* Addresses without a port that has one. The environment may be that of another group. */
Test(ports, addresses_of_no_port)
{
	struct ports_config c = config("shm");
	c.listen = "127.0.0.1";
	refused(&c, FAR_INVALID, "listen is \"127.0.0.1\", but none of the ports has an address of a network; add udp");
	c.listen = NULL;
	c.advertise = "198.51.100.1";
	refused(&c, FAR_INVALID, "or leave advertise out");
	c.advertise = NULL;
	setenv("FAR_LISTEN", "127.0.0.1", 1);
	cr_assert_eq(ports_open(&c, &ports, &err), FAR_OK, "%s", err.text);
	ports_close(&ports);
}

Test(ports, what_auto_tries)
{
	const char *why;
	cr_assert(ports_automatic("shm", &why));
	cr_assert(ports_automatic("udp", &why));
	cr_assert_not(ports_automatic("lossy", &why));
	cr_assert_str_eq(why, "only when it is named");
	cr_assert_not(ports_automatic("dpdk", &why));
	cr_assert_str_eq(why, "FAR_DPDK names no device");
	setenv("FAR_DPDK", "net_null0", 1);
	cr_assert(ports_automatic("dpdk", &why));
}

/* ---- ports that the caller has opened ---- */

static struct nic_port_ops refused_ops;
static unsigned closed_n;

static void refused_caps(const struct nic_port *port, struct nic_caps *out)
{
	*out = (struct nic_caps){.body_bytes_max = 16, .queues_max = 1};
}

static void refused_address(const struct nic_port *port, struct nic_addr *out)
{
	dgram_address_of(1, out);
}

static void refused_close(struct nic_port *port)
{
	closed_n++;
}

static enum far_status adopt(struct nic_port **of, unsigned n, unsigned self)
{
	struct agent_env env = {
		.clock = &clock_monotonic, .random = &random_kernel, .ports = of, .ports_n = n, .self = self};
	const struct ports_config c = {.queues = 1, .env = &env};
	enum far_status status = ports_adopt(&c, &ports, &err);
	cr_assert_eq(env.ports_n, 0u, "they are taken over");
	return status;
}

/* Neither those before nor those behind one that no transport can go over are left, and none is closed twice. */
Test(ports, adopted_ports_that_are_refused_are_closed_once)
{
	struct dgram_fabric fabric;
	dgram_fabric_init(&fabric);
	struct nic_port *good = dgram_open(&fabric, 1);
	refused_ops = *good->ops;
	refused_ops.caps = refused_caps;
	refused_ops.address = refused_address;
	refused_ops.close = refused_close;
	struct nic_port refuse[2] = {{.ops = &refused_ops}, {.ops = &refused_ops}};
	struct nic_port *of[] = {good, &refuse[0], &refuse[1]};
	cr_assert_eq(adopt(of, 3, 0), FAR_INVALID);
	cr_assert(strstr(err.text, "too small for the transport"), "%s", err.text);
	cr_assert_eq(closed_n, 2, "%u closed of 2", closed_n);
	cr_assert_eq(ports.n, 0u);
	of[0] = &refuse[0];
	cr_assert_eq(adopt(of, 1, 1), FAR_INVALID);
	cr_assert(strstr(err.text, "1 ports, with port 1 for sessions of the worker with itself"), "%s", err.text);
	cr_assert_eq(closed_n, 3);
}

Test(ports, adopted)
{
	struct dgram_fabric fabric;
	dgram_fabric_init(&fabric);
	struct nic_port *of[] = {dgram_open(&fabric, 1), dgram_open(&fabric, 1)};
	cr_assert_eq(adopt(of, 2, 1), FAR_OK, "%s", err.text);
	cr_assert(ports.n == 2 && ports.published == 2 && ports.self == 1);
	ports_close(&ports);
}

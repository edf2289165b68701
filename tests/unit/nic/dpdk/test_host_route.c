/* SPDX-License-Identifier: BSD-3-Clause */
/** Routes and neighbours of the kernel, on a pair of interfaces in a network namespace of each test's own.
 * The test's thread. */
#include "nic/dpdk/host_route.h"
#include "veth.h"

#include <arpa/inet.h>

static struct host_iface iface;
static struct nic_err err;

static void setup(void)
{
	veth_setup();
	iface = veth_read();
}

TestSuite(host_route, .init = setup);

static bool address(const char *text, uint8_t ip[16])
{
	bool v6 = strchr(text, ':') != NULL;
	memset(ip, 0, 16);
	cr_assert_eq(inet_pton(v6 ? AF_INET6 : AF_INET, text, ip), 1, "%s", text);
	return v6;
}

static int nexthop(const char *to, char out[HOST_IP_TEXT_BYTES])
{
	uint8_t ip[16], hop[16];
	bool v6 = address(to, ip);
	memset(hop, 0xee, sizeof hop);
	int error = host_route_nexthop(&iface, v6, ip, hop, &err);
	if (!error)
		host_ip_text(v6, hop, out);
	return error;
}

Test(host_route, on_the_link_or_by_a_router)
{
	static const struct {
		const char *to, *hop;
	} cases[] = {{"10.77.1.9", "10.77.1.9"},    {"10.88.200.1", "10.88.200.1"}, {"10.90.1.1", "10.77.1.254"},
		     {"10.90.1.77", "10.77.1.253"}, {"fd77::9", "fd77::9"},         {"fd90::1", "fd77::254"}};
	char hop[HOST_IP_TEXT_BYTES];
	veth_run("ip route add 10.90.0.0/16 via 10.77.1.254; ip route add 10.90.1.77/32 via 10.77.1.253; "
		 "ip -6 route add fd90::/16 via fd77::254 dev far0");
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		cr_assert_eq(nexthop(cases[i].to, hop), 0, "%s: %s", cases[i].to, err.text);
		cr_assert_str_eq(hop, cases[i].hop);
	}
}

Test(host_route, no_route)
{
	char hop[HOST_IP_TEXT_BYTES];
	cr_assert_eq(nexthop("10.99.0.1", hop), -ENETUNREACH);
	cr_assert(strstr(err.text, "no route to 10.99.0.1") && strstr(err.text, "ip route get 10.99.0.1"), "%s",
		  err.text);
	cr_assert_eq(nexthop("fd99::1", hop), -ENETUNREACH);
	cr_assert_eq(nexthop("127.0.0.1", hop), -ENETUNREACH);
	cr_assert(strstr(err.text, "127.0.0.1 does not leave by far0") && strstr(err.text, "ip route add"), "%s",
		  err.text);
	/* By a router of the other version. */
	if (system("ip route add 10.91.0.0/16 via inet6 fd77::254 dev far0 2>/dev/null") != 0)
		cr_skip_test("this kernel or iproute2 has no routes via a router of the other IP version");
	cr_assert_eq(nexthop("10.91.0.1", hop), -ENETUNREACH);
	cr_assert(strstr(err.text, "a router of the other IP version"), "%s", err.text);
}

Test(host_route, neighbours)
{
	uint8_t ip[16], mac[6] = {1, 1, 1, 1, 1, 1};
	bool v6 = address("10.77.1.9", ip);
	cr_assert_not(host_neighbour_mac(iface.index, v6, ip, mac));
	cr_assert_eq(mac[0], 1, "it is written only when it is found");
	veth_run("ip neigh add 10.77.1.9 lladdr 02:00:00:00:00:09 dev far0");
	cr_assert(host_neighbour_mac(iface.index, v6, ip, mac));
	cr_assert_eq(memcmp(mac, "\2\0\0\0\0\11", 6), 0);
	cr_assert_not(host_neighbour_mac(iface.index + 1, v6, ip, mac), "of another interface");
	veth_run("ip neigh change 10.77.1.9 lladdr 02:00:00:00:00:0a nud stale dev far0");
	cr_assert(host_neighbour_mac(iface.index, v6, ip, mac));
	cr_assert_eq(mac[5], 10);
	/* One that does not answer has no address that could be used. */
	veth_run("ip neigh change 10.77.1.9 nud failed dev far0");
	cr_assert_not(host_neighbour_mac(iface.index, v6, ip, mac));
	v6 = address("fd77::9", ip);
	veth_run("ip neigh add fd77::9 lladdr 02:00:00:00:00:0b nud permanent dev far0");
	cr_assert(host_neighbour_mac(iface.index, v6, ip, mac));
	cr_assert_eq(mac[5], 11);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Which of a peer's addresses is taken, among hosts that are made up. The test's thread. */
#include "nic/udp/udp_route.h"
#include "udp_fake.h"

#include <errno.h>
#include <string.h>

enum { HERE = 100, THERE = 200, NETNS = 7, OTHER_NETNS = 8 };

static struct nic_err err;
static char addressed[256];
static const char *refuse; /* addresses that begin with it have no route */

static int query(void *ctx, struct udp_route *route)
{
	char text[UDP_IP_TEXT_MAX];
	udp_ip_text(&route->ip, text);
	udp_append(addressed, sizeof addressed, "%s%s", *addressed ? " " : "", text);
	if (refuse && strncmp(text, refuse, strlen(refuse)) == 0)
		return -ENETUNREACH;
	route->mtu = 1500;
	return 0;
}

/* The address that is taken, or the error's text; `ips` ends with NULL, '!' marks those of the peer's host only. */
static const char *way(uint64_t host, uint64_t netns, const char *const *ips, bool link_local)
{
	static char text[NIC_TEXT_BYTES_MAX];
	static struct udp_ifaces ifaces;
	struct udp_addr peer = {.host = host, .netns = netns, .queues = 1, .ports = {7000}};
	struct udp_published ours[2] = {{.ip = fake_ip("192.0.2.7")}, {.ip = fake_ip("fe80::7")}};
	struct udp_route route;
	fake_host(&ifaces);
	ours[1].ip.scope = 42;
	struct udp_self self = {.host = HERE, .netns = NETNS, .ifaces = &ifaces, .ips = ours, .ips_n = 1 + link_local};
	for (; *ips; ips++) {
		struct udp_published *p = &peer.ips[peer.ips_n++];
		p->host_only = **ips == '!';
		p->ip = fake_ip(*ips + p->host_only);
	}
	addressed[0] = err.text[0] = 0;
	int error = udp_route_choose(&self, &peer, query, NULL, &route, &err);
	if (error) {
		cr_assert(strstr(err.text, "192.0.2.7"), "our side is named: %s", err.text);
		snprintf(text, sizeof text, "%s", err.text);
		return text;
	}
	cr_assert_eq(route.mtu, 1500u);
	return udp_ip_text(&route.ip, text);
}

#define IPS(...) ((const char *const[]){__VA_ARGS__, NULL})

Test(udp_route, loopback_first_within_the_namespace)
{
	cr_assert_str_eq(way(HERE, NETNS, IPS("192.0.2.7", "127.0.0.1"), false), "127.0.0.1");
	cr_assert_str_eq(way(HERE, NETNS, IPS("192.0.2.7"), false), "192.0.2.7");
}

Test(udp_route, no_loopback_elsewhere)
{
	cr_assert(strstr(way(THERE, NETNS, IPS("127.0.0.1", "::1"), false), "loopback of another host"));
	cr_assert(strstr(err.text, "127.0.0.1, ::1"));
	cr_assert_str_eq(addressed, "");
	cr_assert(strstr(way(HERE, OTHER_NETNS, IPS("127.0.0.1"), false), "loopback of another network namespace"));
	cr_assert(strstr(way(0, 0, IPS("127.0.0.1"), false), "loopback of another host"));
}

Test(udp_route, same_subnet_before_routed)
{
	cr_assert_str_eq(way(THERE, 1, IPS("203.0.113.5", "192.0.2.5"), false), "192.0.2.5");
	cr_assert_str_eq(way(THERE, 1, IPS("203.0.113.5", "fd00::5"), false), "fd00::5");
	cr_assert_str_eq(way(THERE, 1, IPS("203.0.113.5", "203.0.113.6"), false), "203.0.113.5");
	/* What is down has no subnet. */
	cr_assert_str_eq(way(THERE, 1, IPS("203.0.113.5", "198.51.100.5"), false), "203.0.113.5");
}

Test(udp_route, next_when_there_is_no_route)
{
	refuse = "192.0.2";
	cr_assert_str_eq(way(THERE, 1, IPS("203.0.113.5", "192.0.2.5", "10.1.0.5"), false), "10.1.0.5");
	cr_assert_str_eq(addressed, "192.0.2.5 10.1.0.5");
	refuse = "";
	cr_assert(strstr(way(THERE, 1, IPS("203.0.113.5", "192.0.2.5"), false), strerror(ENETUNREACH)));
	cr_assert(strstr(err.text, "203.0.113.5, 192.0.2.5"));
	cr_assert_str_eq(addressed, "192.0.2.5 203.0.113.5");
}

/* Every host of containers has the same bridge: of another host it leads to our own. */
Test(udp_route, bridges_are_of_one_host)
{
	cr_assert_str_eq(way(THERE, 1, IPS("!172.17.0.1", "203.0.113.5"), false), "203.0.113.5");
	cr_assert(strstr(way(THERE, 1, IPS("!172.18.0.1"), false), "an address of a bridge on another host"));
	cr_assert_str_eq(way(HERE, OTHER_NETNS, IPS("!172.17.0.2"), false), "172.17.0.2");
}

Test(udp_route, what_is_ours_is_not_theirs)
{
	cr_assert(strstr(way(THERE, 1, IPS("10.1.0.7"), false), "also an address of this host"));
	cr_assert(strstr(way(HERE, OTHER_NETNS, IPS("10.1.0.7"), false), "also an address of this host"));
	cr_assert_str_eq(way(THERE, 1, IPS("10.1.0.7", "203.0.113.5"), false), "203.0.113.5");
}

Test(udp_route, link_local_by_the_interface_that_is_listened_at)
{
	cr_assert(strstr(way(THERE, 1, IPS("fe80::5"), false), "link-local"));
	const char *taken = way(THERE, 1, IPS("fe80::5"), true);
	cr_assert_eq(strncmp(taken, "fe80::5%", 8), 0, "%s", taken);
}

Test(udp_route, the_longest_texts)
{
	const char *const six[] = {"2001:db8:1111:2222:3333:4444:5555:6661",
				   "2001:db8:1111:2222:3333:4444:5555:6662",
				   "2001:db8:1111:2222:3333:4444:5555:6663",
				   "2001:db8:1111:2222:3333:4444:5555:6664",
				   "2001:db8:1111:2222:3333:4444:5555:6665",
				   "2001:db8:1111:2222:3333:4444:5555:6666",
				   "2001:db8:1111:2222:3333:4444:5555:6667",
				   "2001:db8:1111:2222:3333:4444:5555:6668",
				   NULL};
	refuse = "";
	cr_assert(strstr(way(THERE, 1, six, true), strerror(ENETUNREACH)), "%s", err.text);
}

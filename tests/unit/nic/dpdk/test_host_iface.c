/* SPDX-License-Identifier: BSD-3-Clause */
/** What is read of an interface, on a pair of them in a network namespace of each test's own. The test's thread. */
#include "veth.h"

#include <arpa/inet.h>
#include <net/if.h>

/* The kernel notices a carrier that comes or goes somewhat later. */
static struct host_iface read_far0_running(bool running)
{
	struct host_iface iface = veth_read();
	for (unsigned i = 0; i < 20000 && iface.running != running; i++) {
		usleep(1000);
		iface = veth_read();
	}
	return iface;
}

Test(host_iface, facts, .init = veth_setup)
{
	struct host_iface iface = read_far0_running(true);
	char text[HOST_IP_TEXT_BYTES];
	cr_assert_str_eq(iface.name, "far0");
	cr_assert_str_eq(iface.driver, "veth");
	cr_assert_eq(iface.index, (int)if_nametoindex("far0"));
	cr_assert_eq(memcmp(iface.mac, "\2\0\0\0\7\1", 6), 0);
	cr_assert_eq(iface.mtu, 1400);
	cr_assert_geq(iface.queues, 1);
	cr_assert(iface.up && iface.running);
	cr_assert_geq(iface.ips_n, 4);
	cr_assert_str_eq(host_ip_text(iface.ips[0].v6, iface.ips[0].bytes, text), "10.77.1.5");
	cr_assert_eq(iface.ips[0].prefix, 24);
	cr_assert_str_eq(host_ip_text(iface.ips[2].v6, iface.ips[2].bytes, text), "fd77::5");
	cr_assert_eq(iface.ips[2].prefix, 64);
	cr_assert_eq(iface.ips[3].bytes[0], 0xfe, "what is of the link only comes last");
	cr_assert(host_iface_has_carrier("far0"));
	veth_run("ip link set far1 down");
	iface = read_far0_running(false);
	cr_assert(iface.up && !iface.running && !host_iface_has_carrier("far0"));
	veth_run("ip link set far0 down");
	iface = veth_read();
	cr_assert(!iface.up && !iface.running && !host_iface_has_carrier("far0"));
	cr_assert(host_iface_has_carrier("nowhere"), "nothing is known of it");
}

Test(host_iface, queues, .init = veth_setup)
{
	veth_run("ip link add far2 numrxqueues 3 numtxqueues 3 type veth peer name far3");
	struct host_iface iface;
	cr_assert_eq(host_iface_read("far2", &iface, NULL), 0);
	cr_assert_eq(iface.queues, 3);
	veth_run("ip link add far4 numrxqueues 1 numtxqueues 4 type veth peer name far5");
	cr_assert_eq(host_iface_read("far4", &iface, NULL), 0);
	cr_assert_eq(iface.queues, 1, "pairs");
}

Test(host_iface, not_an_interface, .init = veth_setup)
{
	struct host_iface iface;
	struct nic_err err;
	cr_assert_eq(host_iface_read("nosuch0", &iface, &err), -ENODEV);
	cr_assert(strstr(err.text, "\"nosuch0\""), "%s", err.text);
	cr_assert_eq(host_iface_read("", &iface, &err), -ENODEV);
	cr_assert_eq(host_iface_read("a-name-that-is-too-long", &iface, &err), -ENODEV);
	cr_assert(strstr(err.text, "a-name-that-is-too-long"), "%s", err.text);
	cr_assert_eq(host_iface_read("lo", &iface, &err), -EPROTOTYPE);
	cr_assert(strstr(err.text, "no Ethernet frames"), "%s", err.text);
}

Test(host_iface, address_to_be_reached_at, .init = veth_setup)
{
	static const struct {
		const char *listen, *ip;
		int error;
	} cases[] = {
		{NULL, "10.77.1.5", 0},
		{"far0", "10.77.1.5", 0},
		{"10.88.0.0/16", "10.88.0.1", 0},
		{"10.88.0.1", "10.88.0.1", 0},
		{"0.0.0.0/0", "10.77.1.5", 0},
		{"::/0", "fd77::5", 0},
		{"fd77::/16", "fd77::5", 0},
		{"fe80::/10", NULL, 0},
		{"10.77.1.5/32", "10.77.1.5", 0},
		{"10.77.1.4/31", "10.77.1.5", 0},
		{"10.77.1.6/31", NULL, -EADDRNOTAVAIL},
		{"10.77.1.6", NULL, -EADDRNOTAVAIL},
		{"fd78::/16", NULL, -EADDRNOTAVAIL},
		{"far1", NULL, -EINVAL},
		{"", NULL, -EINVAL},
		{"10.77.1.5/33", NULL, -EINVAL},
		{"fd77::5/129", NULL, -EINVAL},
		{"10.77.1.5/", NULL, -EINVAL},
		{"10.77.1.5/-1", NULL, -EINVAL},
		{"10.77.1.5/8x", NULL, -EINVAL},
		{"10.77.1", NULL, -EINVAL},
		{"fd77:5", NULL, -EINVAL},
	};
	struct host_iface iface = veth_read();
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct host_ip *ip = NULL;
		struct nic_err err = {""};
		char text[HOST_IP_TEXT_BYTES];
		cr_assert_eq(host_iface_ip(&iface, cases[i].listen, &ip, &err), cases[i].error, "%s: %s",
			     cases[i].listen, err.text);
		if (cases[i].ip)
			cr_assert_str_eq(host_ip_text(ip->v6, ip->bytes, text), cases[i].ip);
		if (cases[i].error)
			cr_assert(strstr(err.text, "far0") && (!*cases[i].listen || strstr(err.text, cases[i].listen)),
				  "%s", err.text);
	}
}

Test(host_iface, no_address_yet, .init = veth_setup)
{
	const struct host_ip *ip;
	struct host_iface iface;
	struct nic_err err;
	veth_run("ip link add far6 type veth peer name far7; ip link set far6 addrgenmode none; ip link set far6 up");
	cr_assert_eq(host_iface_read("far6", &iface, NULL), 0);
	cr_assert_eq(host_iface_ip(&iface, NULL, &ip, &err), -EADDRNOTAVAIL);
	cr_assert(strstr(err.text, "no IP address"), "%s", err.text);
	veth_run("ip addr add fd79::1/64 dev far6"); /* without a carrier it stays tentative */
	cr_assert_eq(host_iface_read("far6", &iface, NULL), 0);
	cr_assert_eq(host_iface_ip(&iface, NULL, &ip, &err), -EADDRNOTAVAIL);
	cr_assert(strstr(err.text, "duplicate"), "%s", err.text);
	veth_run("ip link set far6 down");
	cr_assert_eq(host_iface_read("far6", &iface, NULL), 0);
	cr_assert_eq(host_iface_ip(&iface, NULL, &ip, &err), -ENETDOWN);
	cr_assert(strstr(err.text, "far6"), "%s", err.text);
}

Test(host_iface, on_the_link, .init = veth_setup)
{
	struct host_iface iface = veth_read();
	uint8_t ip[16];
	static const struct {
		const char *ip;
		bool on;
	} cases[] = {{"10.77.1.255", true}, {"10.77.2.1", false},     {"10.88.255.1", true}, {"10.89.0.1", false},
		     {"fd77::ffff", true},  {"fd77:0:0:1::5", false}, {"fe80::1:2", true},   {"a4d:105::", false}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		bool v6 = strchr(cases[i].ip, ':');
		cr_assert_eq(inet_pton(v6 ? AF_INET6 : AF_INET, cases[i].ip, ip), 1);
		cr_assert_eq(host_iface_on_link(&iface, v6, ip), cases[i].on, "%s", cases[i].ip);
	}
}

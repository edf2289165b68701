/* SPDX-License-Identifier: BSD-3-Clause */
/** Interfaces of this namespace and of an empty one, what identifies both, and their text. The test's thread. */
#include "udp_fake.h"

#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct udp_ifaces ifaces;

static const struct udp_iface *find(const char *name, const char *ip)
{
	struct udp_ip want = {.family = 0};
	cr_assert(!ip || udp_ip_parse(ip, &want));
	for (unsigned i = 0; i < ifaces.n; i++)
		if (strcmp(ifaces.at[i].name, name) == 0 &&
		    (ip ? udp_ip_same(&ifaces.at[i].ip, &want) : !ifaces.at[i].ip.family))
			return &ifaces.at[i];
	return NULL;
}

Test(udp_ifaces, of_this_namespace)
{
	cr_assert_eq(udp_ifaces_read(&ifaces), 0);
	const struct udp_iface *lo = find("lo", "127.0.0.1");
	cr_assert(lo && lo->loopback && lo->up && !lo->bridge && !lo->preferred && lo->prefix == 8);
	for (unsigned i = 0; i < ifaces.n; i++) {
		const struct udp_iface *at = &ifaces.at[i];
		cr_assert_gt(if_nametoindex(at->name), 0u, "%s", at->name);
		cr_assert_leq(at->prefix, at->ip.family == AF_INET ? 32 : at->ip.family ? 128 : 0);
		cr_assert_eq(at->ip.scope != 0, at->ip.family == AF_INET6 && udp_ip_link_local(&at->ip));
	}
	/* Addresses first, then what has none. */
	bool none = false;
	for (unsigned i = 0; i < ifaces.n; none = !ifaces.at[i++].ip.family)
		cr_assert(!none || !ifaces.at[i].ip.family);
}

static void run(const char *command)
{
	cr_assert_eq(system(command), 0, "%s", command);
}

static void own_namespace(void)
{
	if (unshare(CLONE_NEWNET) < 0)
		cr_skip_test("a network namespace: %s; needs CAP_SYS_ADMIN, as under `unshare -Ur`", strerror(errno));
	if (system("ip link add far0 type veth peer name far1 2>/dev/null") != 0)
		cr_skip_test("`ip link add ... type veth` does not work here: CAP_NET_ADMIN, iproute2, veth");
}

/* The kernel notices a carrier that comes or goes somewhat later. */
static void read_until_up(const char *name, const char *ip, bool up)
{
	const struct udp_iface *at = NULL;
	for (unsigned i = 0; i < 20000; i++, usleep(1000)) {
		cr_assert_eq(udp_ifaces_read(&ifaces), 0);
		at = find(name, ip);
		if (at && at->up == up)
			return;
	}
	cr_assert_fail("%s %s", name, at ? "has another state" : "is not there");
}

Test(udp_ifaces, of_a_namespace_of_its_own, .init = own_namespace)
{
	run("ip addr add 10.77.1.5/23 dev far0; ip link set far0 up; ip link set far1 up; ip link set lo up");
	read_until_up("far0", "10.77.1.5", true);
	const struct udp_iface *far0 = find("far0", "10.77.1.5"), *far1 = find("far1", NULL);
	cr_assert(far0->prefix == 23 && !far0->loopback && !far0->preferred);
	cr_assert(!far1 || !find("far1", "10.77.1.5"));
	run("ip route add default via 10.77.1.1 dev far0");
	read_until_up("far0", "10.77.1.5", true);
	cr_assert(find("far0", "10.77.1.5")->preferred && !find("lo", "127.0.0.1")->preferred);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct udp_ip ip = fake_ip("10.77.1.5"), other = fake_ip("10.77.1.6");
	cr_assert_null(udp_iface_without_carrier(&ifaces, &ip, fd));
	cr_assert_null(udp_iface_without_carrier(&ifaces, &other, fd), "nobody's address");
	run("ip link set far1 down");
	read_until_up("far0", "10.77.1.5", false);
	cr_assert_str_eq(udp_iface_without_carrier(&ifaces, &ip, fd), "far0");
	run("ip link set far0 down");
	cr_assert_null(udp_iface_without_carrier(&ifaces, &ip, fd), "it was set down, and lacks no cable");
	cr_assert_null(udp_iface_without_carrier(&ifaces, &ip, -1), "nothing is known");
	close(fd);
}

Test(udp_ifaces, identity)
{
	uint64_t host = udp_host_id(), netns = udp_netns_id();
	cr_assert(host && netns && host != netns);
	cr_assert(udp_host_id() == host && udp_netns_id() == netns);
	if (unshare(CLONE_NEWNET) < 0)
		cr_skip_test("a network namespace: %s; needs CAP_SYS_ADMIN", strerror(errno));
	cr_assert_eq(udp_host_id(), host);
	cr_assert_neq(udp_netns_id(), netns);
}

/* A text that does not fit is cut, never written beyond `cap`. */
Test(udp_ifaces, text)
{
	static const char want[] = "lo 127.0.0.1, docker0 172.17.0.1, eth1 10.1.0.7, eth0 192.0.2.7, lo ::1, "
				   "eth0 fd00::7, fe80::7, eth2 198.51.100.7 (down), eth3 without an address";
	char text[400] = "it has ", cut[400];
	fake_host(&ifaces);
	ifaces.at[6].ip.scope = 0;
	udp_ifaces_text(&ifaces, text, sizeof text);
	cr_assert_eq(strncmp(text, "it has ", 7), 0);
	cr_assert_str_eq(text + 7, want);
	for (size_t cap = 8; cap < sizeof want; cap++) {
		memset(cut, 'x', sizeof cut);
		cut[0] = 0;
		udp_ifaces_text(&ifaces, cut, cap);
		cr_assert(strlen(cut) < cap && cut[cap] == 'x');
		cr_assert_eq(strncmp(cut, want, 3), 0, "%s", cut);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** What nic=udp:..., listen= and advertise= may say, on a host that is made up. The test's thread. */
#include "nic/udp/udp_config.h"
#include "udp_fake.h"

#include <errno.h>
#include <string.h>

static struct nic_err err;

Test(udp_config, args)
{
	struct udp_args a;
	cr_assert_eq(udp_args_parse(NULL, 1, &a, &err), 0);
	cr_assert(a.port == 0 && a.mtu == UDP_MTU_MAX && a.offload == UDP_OFFLOAD_AUTO);
	cr_assert(a.rcvbuf == UDP_BUFFER_BYTES && a.sndbuf == UDP_BUFFER_BYTES);
	cr_assert_eq(udp_args_parse("", 1, &a, &err), 0);
	cr_assert_eq(udp_args_parse("port=7000,mtu=1400,gso=0,rcvbuf=65536,sndbuf=8192", 16, &a, &err), 0);
	cr_assert(a.port == 7000 && a.mtu == 1400 && a.offload == UDP_OFFLOAD_NEVER);
	cr_assert(a.rcvbuf == 65536 && a.sndbuf == 8192);
	cr_assert_eq(udp_args_parse("gso=1", 1, &a, &err), 0);
	cr_assert_eq(a.offload, UDP_OFFLOAD_ALWAYS);
	cr_assert_eq(udp_args_parse("port=65520", 16, &a, &err), 0);
	cr_assert_eq(a.listen[0], 0);
	cr_assert_eq(udp_args_parse("mtu=1400,listen=10.0.0.0/24,port=7", 1, &a, &err), 0);
	cr_assert_str_eq(a.listen, "10.0.0.0/24");
	cr_assert(a.mtu == 1400 && a.port == 7);
	for (unsigned i = 0; i < 8; i++)
		cr_assert_eq(a.dscp.tos[i], i << 5);
	cr_assert_eq(udp_args_parse("dscp=off", 1, &a, &err), 0);
	for (unsigned i = 0; i < 8; i++)
		cr_assert_eq(a.dscp.tos[i], 0);
	cr_assert_eq(udp_args_parse("mtu=1400,dscp=0/1/2/03/63/40/10/46,port=7", 1, &a, &err), 0);
	cr_assert(a.dscp.tos[0] == 0 && a.dscp.tos[3] == 3 << 2 && a.dscp.tos[4] == 63 << 2 &&
		  a.dscp.tos[7] == 46 << 2 && a.port == 7);
}

Test(udp_config, args_wrong)
{
	static const struct {
		const char *args, *says;
	} wrong[] = {
		{"speed=1", "the keys are port, mtu, gso, rcvbuf, sndbuf"},
		{"port", "port must be a number in [1, 65535]"},
		{"port=", "port must be a number"},
		{"port=0", "port must be a number"},
		{"port=65536", "port must be a number"},
		{"port=70x", "port must be a number"},
		{"port=-1", "port must be a number"},
		{"port=99999999999999999999", "port must be a number"},
		{"port=65521", "leaves no ports for 16 queues; use 65520 at most"},
		{"mtu=1279", "mtu must be a number in [1280, 65535]"},
		{"gso=2", "gso must be a number in [0, 1]"},
		{"gso=1,gso=0", "gso is given twice"},
		{"gso=1,,mtu=1400", "is not a key"},
		{"rcvbuf=10", "rcvbuf must be a number"},
		{"sndbuf=4294967296", "sndbuf must be a number"},
		{"=7", "is not a key"},
		{"listen=", "listen must be an interface, a subnet or an address"},
		{"listen=eth0,listen=eth1", "listen is given twice"},
		{"listen=0123456789012345678901234567890123456789012345678901234567890123", "of 1 to 63 bytes"},
		{"por=7", "nic=udp:por=7"},
		{"ports=7", "is not a key"},
		{"dscp=", "dscp is off, or eight numbers of [0, 63]"},
		{"dscp=on", "dscp is off, or eight numbers"},
		{"dscp=7", "dscp is off, or eight numbers"},
		{"dscp=0/1/2/3/4/5/6", "dscp is off, or eight numbers"},
		{"dscp=0/1/2/3/4/5/6/", "dscp is off, or eight numbers"},
		{"dscp=0/1/2/3/4/5/6/64", "dscp is off, or eight numbers"},
		{"dscp=0/1/2/3/4/5/6/063", "dscp is off, or eight numbers"},
		{"dscp=0/1/2/3/4/5/6/7/8", "dscp is off, or eight numbers"},
		{"dscp=/1/2/3/4/5/6/7", "dscp is off, or eight numbers"},
		{"dscp=0/1/2/-3/4/5/6/7", "dscp is off, or eight numbers"},
		{"dscp=off,dscp=off", "dscp is given twice"},
		{"dscp", "is not a key"},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct udp_args a = {.port = 1};
		err.text[0] = 0;
		cr_expect_eq(udp_args_parse(wrong[i].args, 16, &a, &err), -EINVAL, "%s", wrong[i].args);
		cr_expect(strstr(err.text, wrong[i].says), "%s: %s", wrong[i].args, err.text);
		cr_expect_eq(a.port, 1u, "written on failure");
	}
}

/* "10.0.0.5, fd00::2", with '!' behind those that mean nothing to other hosts. */
static const char *chosen(const char *listen, bool beyond_host, struct udp_listen *l)
{
	static char text[512];
	struct udp_ifaces ifaces;
	fake_host(&ifaces);
	text[0] = err.text[0] = 0;
	int error = udp_listen_choose(&ifaces, listen, beyond_host, l, &err);
	if (error) {
		snprintf(text, sizeof text, "%d", -error);
		return text;
	}
	for (unsigned i = 0; i < l->n; i++) {
		char ip[UDP_IP_TEXT_MAX];
		udp_append(text, sizeof text, "%s%s%s", i ? " " : "", udp_ip_text(&l->ips[i].ip, ip),
			   l->ips[i].host_only ? "!" : "");
	}
	return text;
}

static void same_error(const char *got, int error)
{
	char want[16];
	snprintf(want, sizeof want, "%d", error);
	cr_assert_str_eq(got, want);
	cr_assert(err.text[0]);
}

Test(udp_config, listen_by_default)
{
	struct udp_listen l;
	cr_assert_str_eq(chosen(NULL, false, &l), "127.0.0.1 ::1");
	cr_assert_not(l.any);
	cr_assert_str_eq(chosen("", false, &l), "127.0.0.1 ::1");
}

/* The way to the world first, the bridge only for this host, neither link-local nor what is down, loopback last. */
Test(udp_config, listen_everywhere)
{
	struct udp_listen l;
	cr_assert_str_eq(chosen(NULL, true, &l), "192.0.2.7 fd00::7 10.1.0.7 172.17.0.1! 127.0.0.1 ::1");
	cr_assert(l.any && l.v4 && l.v6);
	cr_assert_str_eq(chosen("::", true, &l), "192.0.2.7 fd00::7 10.1.0.7 172.17.0.1! 127.0.0.1 ::1");
	cr_assert_str_eq(chosen("0.0.0.0", true, &l), "192.0.2.7 10.1.0.7 172.17.0.1! 127.0.0.1");
	cr_assert(l.any && l.v4 && !l.v6);
}

Test(udp_config, listen_named)
{
	struct udp_listen l;
	cr_assert_str_eq(chosen("eth0", true, &l), "192.0.2.7 fd00::7");
	cr_assert_not(l.any);
	cr_assert_str_eq(chosen("docker0", true, &l), "172.17.0.1");
	cr_assert_str_eq(chosen("10.0.0.0/8", true, &l), "10.1.0.7");
	cr_assert_str_eq(chosen("fd00::/16", true, &l), "fd00::7");
	cr_assert_str_eq(chosen("192.0.2.7", true, &l), "192.0.2.7");
	cr_assert_str_eq(chosen("[fd00::7]", true, &l), "fd00::7");
	cr_assert_str_eq(chosen("lo", false, &l), "127.0.0.1 ::1");
	cr_assert_str_eq(chosen("127.0.0.9", false, &l), "127.0.0.9");
	cr_assert_str_eq(chosen("127.0.0.0/8", false, &l), "127.0.0.1");
	cr_assert_str_eq(chosen("::1", false, &l), "::1");
	(void)chosen("fe80::/10", true, &l);
	cr_assert(l.n == 1 && l.ips[0].ip.scope == 42);
	(void)chosen("fe80::7", true, &l);
	cr_assert(l.n == 1 && l.ips[0].ip.scope == 42);
}

Test(udp_config, listen_not_found)
{
	static const char *const absent[] = {"eth9", "10.2.0.0/16", "192.0.2.8",     "fd00::8",
					     "eth2", "eth3",        "198.51.100.7",  "ETH0",
					     "eth",  "fe80::9",     "203.0.113.0/24"};
	struct udp_listen l;
	for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
		same_error(chosen(absent[i], true, &l), EADDRNOTAVAIL);
		cr_assert(strstr(err.text, absent[i]), "%s", err.text);
		cr_assert(strstr(err.text, "eth0 192.0.2.7, lo ::1, eth0 fd00::7"), "%s", err.text);
	}
}

Test(udp_config, listen_stays_on_the_host)
{
	static const char *const beyond[] = {"eth0",       "0.0.0.0", "::",       "192.0.2.7",
					     "10.0.0.0/8", "docker0", "0.0.0.0/0"};
	struct udp_listen l;
	for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
		same_error(chosen(beyond[i], false, &l), EACCES);
		cr_assert(strstr(err.text, "security=none"));
	}
}

Test(udp_config, listen_without_loopback)
{
	struct udp_ifaces none = {.n = 0};
	struct udp_listen l;
	cr_assert_eq(udp_listen_choose(&none, NULL, false, &l, &err), -EADDRNOTAVAIL);
	cr_assert(strstr(err.text, "ip link set lo up"));
	cr_assert_eq(udp_listen_choose(&none, "eth0", true, &l, &err), -EADDRNOTAVAIL);
	cr_assert(strstr(err.text, "none"));
}

/* A host of many: the first ones are published, and loopback all the same. */
Test(udp_config, listen_among_many)
{
	struct udp_ifaces ifaces = {.n = 0};
	struct udp_listen l;
	fake_iface(&ifaces, "lo", "127.0.0.1", 8, FAKE_LOOPBACK);
	for (unsigned i = 1; i < 250; i++) {
		char ip[32];
		snprintf(ip, sizeof ip, "10.0.%u.1", i);
		fake_iface(&ifaces, "eth0", ip, 24, i == 99 ? FAKE_PREFERRED : 0);
	}
	cr_assert_eq(udp_listen_choose(&ifaces, NULL, true, &l, &err), 0);
	cr_assert_eq(l.n, UDP_ADDRS_MAX - 1);
	struct udp_ip first = fake_ip("10.0.99.1");
	cr_assert(udp_ip_same(&l.ips[0].ip, &first));
	cr_assert(udp_ip_loopback(&l.ips[l.n - 1].ip));
	cr_assert_eq(udp_listen_choose(&ifaces, "eth0", true, &l, &err), 0);
	cr_assert_eq(l.n, UDP_ADDRS_MAX);
}

static const char *advertised(const char *text, unsigned queues)
{
	static char out[256];
	struct udp_addr a = {.queues = queues, .ips_n = 2};
	for (unsigned i = 0; i < queues; i++)
		a.ports[i] = (uint16_t)(50000 + 3 * i);
	out[0] = err.text[0] = 0;
	if (udp_advertise(text, &a, &err))
		return NULL;
	udp_addr_text(&a, out, sizeof out);
	return out;
}

Test(udp_config, advertise)
{
	cr_assert_str_eq(advertised("192.0.2.5", 2), "192.0.2.5:50000/50003");
	cr_assert_str_eq(advertised("192.0.2.5:7000", 1), "192.0.2.5:7000");
	cr_assert_str_eq(advertised("192.0.2.5:7000-7003", 4), "192.0.2.5:7000-7003");
	cr_assert_str_eq(advertised("192.0.2.5:7000-7009", 4), "192.0.2.5:7000-7003");
	cr_assert_str_eq(advertised("[2001:db8::5]:7000", 1), "[2001:db8::5]:7000");
	cr_assert_str_eq(advertised("[2001:db8::5]", 1), "[2001:db8::5]:50000");
	cr_assert_str_eq(advertised("2001:db8::5", 1), "[2001:db8::5]:50000");
}

Test(udp_config, advertise_wrong)
{
	static const char *const wrong[] = {
		"host",
		"192.0.2.5:",
		"192.0.2.5:0",
		"192.0.2.5:65536",
		"192.0.2.5:7000-6999",
		"192.0.2.5:7000-",
		"192.0.2.5:-7000",
		"192.0.2.5:7000",
		"192.0.2.5:7000-7002",
		"192.0.2.5:65534-65540",
		"192.0.2.5:7000-7003x",
		"0.0.0.0:7000-7003",
		"224.0.0.1",
		"[192.0.2.5]:7000-7003",
		"[2001:db8::5:7000-7003",
		"[2001:db8::5]7000",
		"",
		":7000-7003",
		"::",
		"ff02::1",
		"192.0.2.5:7000:7001",
		"192.0.2.5.................................................................................."};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		cr_expect_null(advertised(wrong[i], 4), "%s", wrong[i]);
		cr_expect(strstr(err.text, "address[:port[-port]]"), "%s: %s", wrong[i], err.text);
	}
}

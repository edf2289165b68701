/* SPDX-License-Identifier: BSD-3-Clause */
/** Addresses in words and bytes, and what a hostile store may hold in their place. The test's thread. */
#include "udp_fake.h"

#include <stdlib.h>
#include <string.h>

static void parses(const char *text, const char *as)
{
	struct udp_ip ip;
	char out[UDP_IP_TEXT_MAX];
	cr_assert(udp_ip_parse(text, &ip), "%s", text);
	cr_assert_str_eq(udp_ip_text(&ip, out), as);
}

Test(udp_addr, ip_forms)
{
	parses("10.0.0.5", "10.0.0.5");
	parses("fd00::2", "fd00::2");
	parses("[fd00::2]", "fd00::2");
	parses("::ffff:10.0.0.5", "10.0.0.5");
	parses("::", "::");
	parses("fe80::1%lo", "fe80::1%lo");
}

Test(udp_addr, not_an_ip)
{
	static const char *const wrong[] = {"",
					    "10.0.0",
					    "10.0.0.256",
					    "10.0.0.5 ",
					    "host",
					    "[10.0.0.5]",
					    "[]",
					    "[::1",
					    "::1]",
					    "1:2:3",
					    "fe80::1%nosuch0",
					    "fe80::1%",
					    "fe80::1%1x",
					    "::1%lo",
					    "10.0.0.5%lo",
					    "10.0.0.5/8",
					    "0x7f.1"};
	struct udp_ip ip;
	char longest[200];
	memset(longest, '1', sizeof longest);
	longest[sizeof longest - 1] = 0;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		cr_expect_not(udp_ip_parse(wrong[i], &ip), "%s", wrong[i]);
	cr_assert_not(udp_ip_parse(longest, &ip));
}

Test(udp_addr, subnet_forms)
{
	struct udp_ip net;
	unsigned prefix;
	static const char *const wrong[] = {
		"10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/8x",
		"/8",       "::/129",    "eth0/8",      "10.0.0.0/ 8", "10.0.0.0/99999999999999999999"};
	cr_assert(udp_subnet_parse("10.1.0.0/16", &net, &prefix) && prefix == 16);
	cr_assert(udp_subnet_parse("fd00::/64", &net, &prefix) && prefix == 64 && net.family == AF_INET6);
	cr_assert(udp_subnet_parse("::/0", &net, &prefix) && prefix == 0);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		cr_expect_not(udp_subnet_parse(wrong[i], &net, &prefix), "%s", wrong[i]);
}

static bool within(const char *ip, const char *net, unsigned prefix)
{
	struct udp_ip a = fake_ip(ip), b = fake_ip(net);
	return udp_ip_within(&a, &b, prefix);
}

Test(udp_addr, within)
{
	cr_expect(within("10.1.2.3", "10.1.2.3", 32));
	cr_expect_not(within("10.1.2.3", "10.1.2.2", 32));
	cr_expect(within("10.1.2.3", "10.1.2.2", 31));
	cr_expect(within("10.1.2.3", "10.1.0.0", 17));
	cr_expect_not(within("10.1.128.3", "10.1.0.0", 17));
	cr_expect(within("203.0.113.9", "0.0.0.0", 0));
	cr_expect_not(within("203.0.113.9", "::", 0));
	cr_expect(within("fd00::1:2", "fd00::", 64));
	cr_expect_not(within("fd00:0:0:1::2", "fd00::", 64));
	cr_expect_not(within("10.1.2.3", "10.1.2.3", 33));
}

Test(udp_addr, socket_addresses_and_back)
{
	static const char *const ips[] = {"10.0.0.5", "fd00::2", "fe80::1%lo"};
	for (unsigned i = 0; i < 3; i++)
		for (unsigned mapped = 0; mapped < 2; mapped++) {
			struct sockaddr_in6 sa;
			struct udp_ip ip = fake_ip(ips[i]), back;
			uint16_t port = 0;
			socklen_t len = udp_ip_sockaddr(&ip, 7000, mapped, &sa);
			cr_assert_eq(len, i || mapped ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
			cr_assert(udp_ip_from_sockaddr((struct sockaddr *)&sa, &back, &port));
			cr_assert(udp_ip_same(&ip, &back) && port == 7000 && back.scope == ip.scope);
		}
	struct sockaddr other = {.sa_family = AF_UNIX};
	struct udp_ip ip;
	uint16_t port;
	cr_assert_not(udp_ip_from_sockaddr(&other, &ip, &port));
}

static struct udp_addr sample(unsigned queues, unsigned ips)
{
	struct udp_addr a = {.host = UINT64_C(0x1122334455667788), .netns = 9, .queues = queues, .ips_n = ips};
	for (unsigned i = 0; i < queues; i++)
		a.ports[i] = (uint16_t)(7000 + i);
	for (unsigned i = 0; i < ips; i++) {
		char text[32];
		snprintf(text, sizeof text, i % 2 ? "10.0.0.%u" : "fd00::%u", i + 1);
		a.ips[i] = (struct udp_published){.ip = fake_ip(text), .host_only = i % 3 == 2};
	}
	return a;
}

Test(udp_addr, blob_round_trip)
{
	for (unsigned queues = 1; queues <= UDP_QUEUES_MAX; queues++)
		for (unsigned ips = 1; ips <= UDP_ADDRS_MAX; ips++) {
			struct udp_addr a = sample(queues, ips), b;
			uint8_t blob[UDP_BLOB_MAX];
			uint16_t len = udp_addr_encode(&a, blob);
			cr_assert_leq(len, UDP_BLOB_MAX);
			cr_assert(udp_addr_decode(blob, len, &b));
			cr_assert(b.host == a.host && b.netns == a.netns && b.queues == queues && b.ips_n == ips);
			for (unsigned i = 0; i < queues; i++)
				cr_assert_eq(b.ports[i], a.ports[i]);
			for (unsigned i = 0; i < ips; i++)
				cr_assert(udp_ip_same(&a.ips[i].ip, &b.ips[i].ip) &&
					  a.ips[i].host_only == b.ips[i].host_only);
		}
}

/* In memory of its very size, so that a sanitizer sees one byte too many. */
static bool decode_exact(const uint8_t *blob, size_t len)
{
	struct udp_addr a;
	uint8_t *copy = malloc(len ? len : 1);
	memcpy(copy, blob, len);
	bool ok = udp_addr_decode(copy, len, &a);
	if (ok)
		cr_assert(a.queues >= 1 && a.queues <= UDP_QUEUES_MAX && a.ips_n >= 1 && a.ips_n <= UDP_ADDRS_MAX);
	free(copy);
	return ok;
}

Test(udp_addr, blob_cut_or_longer)
{
	struct udp_addr a = sample(3, 4);
	uint8_t blob[NIC_ADDR_BYTES_MAX + 1] = {0};
	uint16_t len = udp_addr_encode(&a, blob);
	for (uint16_t n = 0; n <= NIC_ADDR_BYTES_MAX + 1; n++)
		cr_assert_eq(decode_exact(blob, n), n == len, "%u bytes", n);
}

Test(udp_addr, blob_counts_and_kinds)
{
	struct udp_addr a = sample(2, 2);
	uint8_t blob[UDP_BLOB_MAX];
	uint16_t len = udp_addr_encode(&a, blob);
	static const struct {
		unsigned at;
		uint8_t value;
	} wrong[] = {{0, 0},   {0, 2}, {1, 0},  {1, 17}, {1, 255},   {2, 0},    {2, 9},
		     {2, 255}, {3, 1}, {24, 0}, {24, 5}, {24, 0x84}, {24, 0xff}};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		uint8_t bad[UDP_BLOB_MAX];
		memcpy(bad, blob, len);
		bad[wrong[i].at] = wrong[i].value;
		cr_expect_not(decode_exact(bad, len), "byte %u = %u", wrong[i].at, wrong[i].value);
	}
	uint8_t bad[UDP_BLOB_MAX];
	memcpy(bad, blob, len);
	bad[20] = bad[21] = 0;
	cr_expect_not(decode_exact(bad, len), "a port of 0");
}

/* Nothing that others could make us send to many, or to nobody. */
Test(udp_addr, blob_of_multicast_or_nothing)
{
	static const char *const wrong[] = {"224.0.0.1", "255.255.255.255", "0.0.0.0", "::", "ff02::1"};
	for (unsigned i = 0; i < 5; i++) {
		struct udp_addr a = sample(1, 1);
		uint8_t blob[UDP_BLOB_MAX];
		a.ips[0].ip = fake_ip(wrong[i]);
		cr_expect_not(decode_exact(blob, udp_addr_encode(&a, blob)), "%s", wrong[i]);
	}
}

Test(udp_addr, blob_of_noise)
{
	uint64_t x = 88172645463325252u;
	for (unsigned i = 0; i < 20000; i++) {
		uint8_t blob[NIC_ADDR_BYTES_MAX];
		for (unsigned k = 0; k < sizeof blob; k++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			blob[k] = (uint8_t)x;
		}
		blob[0] = 1;
		blob[1] %= 20;
		blob[2] %= 10;
		blob[3] = 0;
		decode_exact(blob, x % (sizeof blob + 1));
	}
}

Test(udp_addr, texts)
{
	struct udp_addr a = sample(1, 1);
	char out[256] = "";
	udp_addr_text(&a, out, sizeof out);
	cr_assert_str_eq(out, "[fd00::1]:7000");
	a = sample(4, 2);
	out[0] = 0;
	udp_addr_text(&a, out, sizeof out);
	cr_assert_str_eq(out, "[fd00::1]:7000-7003, 10.0.0.2:7000-7003");
	a.ports[2] = 9;
	out[0] = 0;
	udp_addr_text(&a, out, sizeof out);
	cr_assert_str_eq(out, "[fd00::1]:7000/7001/9/7003, 10.0.0.2:7000/7001/9/7003");
	for (size_t cap = 1; cap < 60; cap++) {
		char *exact = malloc(cap);
		exact[0] = 0;
		udp_addr_text(&a, exact, cap);
		cr_assert_lt(strlen(exact), cap);
		free(exact);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** What routers say of narrow ways, built by hand; and what others make up. The test's thread. */
#include "nic/dpdk/pmtu.h"

#include <criterion/criterion.h>

enum { V6 = 1 };

static const struct frame_addr me[2] = {
	{.mac = {2, 0, 0, 0, 0, 1}, .ip = {10, 8, 0, 1}, .port = 7471},
	{.mac = {2, 0, 0, 0, 0, 1}, .v6 = 1, .ip = {0xfd, 0, [15] = 1}, .port = 7471},
};
static const struct frame_addr them[2] = {
	{.mac = {2, 0, 0, 0, 0, 9}, .ip = {10, 9, 0, 5}, .port = 7480},
	{.mac = {2, 0, 0, 0, 0, 9}, .v6 = 1, .ip = {0xfd, 1, [15] = 5}, .port = 7480},
};
static const uint8_t router_ip[2][16] = {{10, 8, 0, 254}, {0xfd, 0, [15] = 254}};

static uint8_t frame[CONTROL_FRAME_BYTES_MAX + 1];
static unsigned frame_len;
static struct frame_path path[2];
static struct pmtu_report news;

static void put16(unsigned at, unsigned x)
{
	frame_store16(frame + at, frame_be16((uint16_t)x));
}

/* Where things are in the frame. */
static unsigned icmp_at(unsigned v6)
{
	return v6 ? 54 : 34;
}
static unsigned quoted_at(unsigned v6)
{
	return icmp_at(v6) + 8;
}

static void seal(unsigned v6)
{
	uint8_t *ip = frame + 14, *icmp = frame + icmp_at(v6);
	unsigned len = frame_len - icmp_at(v6);
	uint64_t pseudo = (uint64_t)frame_sum(ip + 8, 32) + frame_be16((uint16_t)len) + frame_be16(58);
	if (!v6) {
		frame_store16(ip + 10, 0);
		frame_store16(ip + 10, (uint16_t)~frame_fold(frame_sum(ip, 20)));
	}
	frame_store16(icmp + 2, 0);
	frame_store16(icmp + 2, (uint16_t)~frame_fold((v6 ? pseudo : 0) + frame_sum(icmp, len)));
}

/* A router quotes a packet of ours of `body` bytes, for which there is room for `mtu`. */
static void say(unsigned v6, uint32_t mtu, unsigned body)
{
	static uint8_t packet[2048];
	unsigned quoted_bytes = (v6 ? 48 : 28), icmp_len = 8 + quoted_bytes;
	frame_path_init(&path[v6], &me[v6], &them[v6]);
	memset(packet, 7, sizeof packet);
	frame_write(packet, &path[v6], body, packet + path[v6].len, FRAME_SUM_FULL);
	memset(frame, 0, sizeof frame);
	memcpy(frame, me[v6].mac, 6);
	memcpy(frame + 6, them[v6].mac, 6);
	put16(12, v6 ? 0x86dd : 0x0800);
	frame_len = icmp_at(v6) + icmp_len;
	if (v6) {
		frame[14] = 0x60;
		put16(18, icmp_len);
		frame[20] = 58;
		frame[21] = 64;
		memcpy(frame + 22, router_ip[v6], 16);
		memcpy(frame + 38, me[v6].ip, 16);
		frame[54] = 2;
		put16(58, mtu >> 16);
	} else {
		frame[14] = 0x45;
		put16(16, 20 + icmp_len);
		frame[22] = 64;
		frame[23] = 1;
		memcpy(frame + 26, router_ip[v6], 4);
		memcpy(frame + 30, me[v6].ip, 4);
		frame[34] = 3;
		frame[35] = 4;
	}
	put16(icmp_at(v6) + 6, mtu & 0xffff);
	memcpy(frame + quoted_at(v6), packet + 14, quoted_bytes);
	seal(v6);
}

static bool reads(unsigned v6)
{
	return pmtu_read(&me[v6], frame, frame_len, &news);
}

Test(dpdk_pmtu, says_what_fits)
{
	for (unsigned v6 = 0; v6 <= V6; v6++) {
		unsigned heads = v6 ? 48 : 28;
		say(v6, 1400, 1440);
		cr_assert(reads(v6), "IPv%u", v6 ? 6 : 4);
		cr_assert_eq(news.body_bytes_max, 1400 - heads);
		cr_assert_eq(news.packet_bytes, 1440 + heads);
		cr_assert_arr_eq(news.to, them[v6].ip, v6 ? 16 : 4);
		cr_assert(news.from_port == 7471 && news.to_port == 7480 && news.v6 == v6);
		cr_assert(pmtu_matches_path(&news, &path[v6]) && pmtu_matches_destination(&news, &path[v6]));
		/* Routers count hops, and may mark congestion. */
		frame[quoted_at(v6) + (v6 ? 7 : 8)]--;
		frame[quoted_at(v6) + 1] ^= v6 ? 0x30 : 3;
		seal(v6);
		cr_assert(reads(v6), "IPv%u, what routers change", v6 ? 6 : 4);
		/* More may follow: what else was quoted, or padding. */
		frame_len += 20;
		cr_assert(reads(v6));
		frame_len = CONTROL_FRAME_BYTES_MAX;
		cr_assert(reads(v6));
		frame_len++;
		cr_assert_not(reads(v6), "more than goes aside");
	}
}

/* However narrow a way is said to be, a least size is kept: what IPv6 promises, and what the engine's packets need. */
Test(dpdk_pmtu, has_a_least)
{
	for (uint32_t mtu = 0; mtu <= 1052; mtu += 263) {
		say(0, mtu, 1440);
		cr_assert(reads(0));
		cr_assert_eq(news.body_bytes_max, 1024);
		say(0, mtu, 1024);
		cr_assert_not(reads(0), "a packet of the least size");
	}
	for (uint32_t mtu = 0; mtu <= 1280; mtu += 320) {
		say(V6, mtu, 1440);
		cr_assert(reads(V6));
		cr_assert_eq(news.body_bytes_max, 1280 - 48);
		say(V6, mtu, 1280 - 48);
		cr_assert_not(reads(V6), "a packet of the least size");
	}
}

Test(dpdk_pmtu, of_a_packet_that_fits)
{
	say(0, 1400, 1400 - 28);
	cr_assert_not(reads(0));
	say(0, 1400, 1400 - 27);
	cr_assert(reads(0));
	say(V6, 1400, 1400 - 48);
	cr_assert_not(reads(V6));
	say(V6, 0x10000 + 1300, 1440);
	cr_assert_not(reads(V6), "the MTU has 32 bits");
}

/* Of another's packet, or of one that we do not send. */
Test(dpdk_pmtu, of_unexpected_packets)
{
	static const struct {
		unsigned v6, at; /* in the quoted packet */
		uint8_t change;
		const char *what;
	} cases[] = {{0, 15, 1, "from another address"},  {0, 9, 23, "TCP"},          {0, 0, 2, "options"},
		     {0, 7, 1, "a later piece"},          {0, 6, 0x40, "may be cut"}, {0, 6, 0x20, "the first piece"},
		     {V6, 23, 1, "from another address"}, {V6, 6, 23, "TCP"},         {V6, 0, 0x20, "no IPv6"}};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		say(cases[i].v6, 1400, 1440);
		frame[quoted_at(cases[i].v6) + cases[i].at] ^= cases[i].change;
		seal(cases[i].v6);
		cr_assert_not(reads(cases[i].v6), "%s", cases[i].what);
	}
	/* Those that could be ours are compared with where we send. */
	for (unsigned v6 = 0; v6 <= V6; v6++) {
		unsigned udp = v6 ? 40 : 20;
		say(v6, 1400, 1440);
		frame[quoted_at(v6) + udp + 1]++;
		seal(v6);
		cr_assert(reads(v6) && !pmtu_matches_path(&news, &path[v6]) &&
			  pmtu_matches_destination(&news, &path[v6]));
		say(v6, 1400, 1440);
		frame[quoted_at(v6) + udp + 3]++;
		seal(v6);
		cr_assert(reads(v6) && !pmtu_matches_path(&news, &path[v6]));
		say(v6, 1400, 1440);
		frame[quoted_at(v6) + udp - 1]++;
		seal(v6);
		cr_assert(reads(v6) && !pmtu_matches_path(&news, &path[v6]) &&
			  !pmtu_matches_destination(&news, &path[v6]));
		cr_assert_not(pmtu_matches_destination(&news, &path[!v6]));
	}
}

Test(dpdk_pmtu, broken)
{
	static const struct {
		unsigned v6, at;
		uint8_t change;
		const char *what;
	} cases[] = {{0, 5, 1, "to another MAC address"},
		     {0, 0, 1, "to a group's"},
		     {0, 33, 1, "to another address"},
		     {0, 34, 8, "another kind"},
		     {0, 35, 1, "unreachable for another reason"},
		     {0, 14, 2, "options"},
		     {0, 20, 0x20, "a piece"},
		     {0, 17, 0x80, "longer than the frame"},
		     {0, 26, 0xea, "from a group"},
		     {0, 26, 10, "from nobody"},
		     {V6, 53, 1, "to another address"},
		     {V6, 54, 3, "another kind"},
		     {V6, 14, 0x10, "no IPv6"},
		     {V6, 19, 0x80, "longer than the frame"},
		     {V6, 22, 2, "from a group"}};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		say(cases[i].v6, 1400, 1440);
		frame[cases[i].at] ^= cases[i].change;
		seal(cases[i].v6);
		cr_assert_not(reads(cases[i].v6), "%s", cases[i].what);
	}
	for (unsigned v6 = 0; v6 <= V6; v6++) {
		say(v6, 1400, 1440);
		unsigned whole = frame_len;
		for (frame_len = 0; frame_len < whole; frame_len++)
			cr_assert_not(reads(v6), "%u bytes of %u", frame_len, whole);
		cr_assert(reads(v6));
		frame[whole - 1] ^= 1;
		cr_assert_not(reads(v6), "a wrong checksum of the message");
		cr_assert_not(pmtu_read(&me[!v6], frame, frame_len, &news), "the other version of IP");
	}
	say(0, 1400, 1440);
	frame[24] ^= 1;
	cr_assert_not(reads(0), "a wrong checksum of IP's header");
	/* It says that it is longer than the frame, with the checksum of what lies behind. */
	say(V6, 1400, 1440);
	put16(18, 8 + 48 + 16);
	frame_len += 16;
	seal(V6);
	cr_assert(reads(V6));
	frame_len -= 16;
	cr_assert_not(reads(V6));
	/* What it says of its length is too short for what it quotes. */
	say(0, 1400, 1440);
	put16(16, 20 + 8 + 27);
	frame_len--;
	seal(0);
	frame_len++;
	cr_assert_not(reads(0));
	say(V6, 1400, 1440);
	put16(18, 8 + 47);
	frame_len--;
	seal(V6);
	frame_len++;
	cr_assert_not(reads(V6));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Questions for the MAC addresses of routers, and what is heard of them, built by hand. The test's thread. */
#include "nic/dpdk/resolver.h"

#include <criterion/criterion.h>

static const struct frame_addr me4 = {.mac = {2, 0, 0, 0, 0, 1}, .ip = {10, 8, 0, 1}};
static const struct frame_addr me6 = {.mac = {2, 0, 0, 0, 0, 1}, .v6 = 1, .ip = {0xfd, 0, [15] = 1}};
static const struct frame_addr them4 = {.mac = {2, 0, 0, 0, 0, 9}, .ip = {10, 8, 0, 9}};
static const struct frame_addr them6 = {
	.mac = {2, 0, 0, 0, 0, 9}, .v6 = 1, .ip = {0xfd, 0, [13] = 0xaa, [14] = 0xbb, [15] = 0xcc}};

static uint8_t frame[CONTROL_FRAME_BYTES_MAX], reply[CONTROL_FRAME_BYTES_MAX];
static struct resolver_update news;

static void seal(uint8_t *f)
{
	uint8_t *ip = f + 14;
	unsigned len = frame_be16(frame_load16(ip + 4));
	frame_store16(ip + 42, 0);
	frame_store16(ip + 42, (uint16_t)~frame_fold((uint64_t)frame_sum(ip + 8, 32) + frame_be16((uint16_t)len) +
						     frame_be16(58) + frame_sum(ip + 40, len)));
}

static void heard(const struct frame_addr *who, bool has_mac, bool override)
{
	cr_assert_arr_eq(news.ip, who->ip, who->v6 ? 16 : 4);
	cr_assert_eq(news.has_mac, has_mac);
	if (has_mac)
		cr_assert_arr_eq(news.mac, who->mac, 6);
	cr_assert_eq(news.override, override);
}

Test(dpdk_resolver, arp)
{
	static const uint8_t want[42] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0,  1, 8, 6,
					 0,    1,    8,    0,    6,    4,    0, 1, 2, 0, 0,  0, 0, 1,
					 10,   8,    0,    1,    0,    0,    0, 0, 0, 0, 10, 8, 0, 9};
	cr_assert_eq(resolver_write_request(&me4, them4.ip, NULL, frame), 60);
	cr_assert_arr_eq(frame, want, sizeof want);
	/* What a neighbour says is what the code that answers for us says. */
	cr_assert_eq(responder_write(&them4, frame, 60, reply), 60);
	cr_assert(resolver_read(&me4, reply, 60, &news));
	heard(&them4, true, true);
	cr_assert_not(resolver_read(&them4, reply, 60, &news), "who sent it hears nothing");
	resolver_write_request(&me4, them4.ip, them4.mac, frame);
	cr_assert_arr_eq(frame, them4.mac, 6, "to it alone");
	cr_assert_eq(responder_write(&them4, frame, 60, reply), 60);
	/* Its question for us says where it is, too. */
	resolver_write_request(&them4, me4.ip, NULL, frame);
	cr_assert(resolver_read(&me4, frame, 60, &news));
	heard(&them4, true, true);
	/* And what it announces to all, of itself. */
	memcpy(frame + 38, frame + 28, 4);
	cr_assert(resolver_read(&me4, frame, 60, &news));
	heard(&them4, true, true);
	frame[41] = 77;
	cr_assert_not(resolver_read(&me4, frame, 60, &news), "a question for somebody else");
}

static void arp_reply(void)
{
	resolver_write_request(&me4, them4.ip, NULL, frame);
	responder_write(&them4, frame, 60, reply);
}

Test(dpdk_resolver, broken_arp)
{
	for (unsigned len = 0; len < 42; len++) {
		arp_reply();
		cr_assert_not(resolver_read(&me4, reply, len, &news), "%u bytes", len);
	}
	for (unsigned i = 14; i < 21; i++) {
		arp_reply();
		reply[i] ^= 4;
		cr_assert_not(resolver_read(&me4, reply, 60, &news), "byte %u", i);
	}
	static const struct {
		unsigned at;
		uint8_t is;
		const char *what;
	} cases[] = {{21, 3, "neither question nor answer"},
		     {22, 3, "from a group"},
		     {28, 224, "a group's address"},
		     {28, 0, "nobody's address"},
		     {41, 2, "to another"},
		     {0, 4, "to another's MAC"},
		     {27, 1, "our own MAC address"}};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		arp_reply();
		reply[cases[i].at] = cases[i].is;
		cr_assert_not(resolver_read(&me4, reply, 60, &news), "%s", cases[i].what);
	}
	arp_reply();
	memset(reply + 22, 0, 6);
	cr_assert_not(resolver_read(&me4, reply, 60, &news), "no MAC address");
	cr_assert_not(resolver_read(&me6, reply, 60, &news), "we have no IPv4 address");
}

static unsigned advertisement(void)
{
	unsigned len = resolver_write_request(&me6, them6.ip, NULL, frame);
	return responder_write(&them6, frame, len, reply);
}

Test(dpdk_resolver, solicitation)
{
	static const uint8_t group[6] = {0x33, 0x33, 0xff, 0xaa, 0xbb, 0xcc};
	unsigned len = resolver_write_request(&me6, them6.ip, NULL, frame);
	cr_assert_eq(len, 86);
	cr_assert_arr_eq(frame, group, 6);
	cr_assert_eq(frame[21], 255);
	len = responder_write(&them6, frame, len, reply);
	cr_assert_eq(len, 86, "its receiver accepts it");
	cr_assert(resolver_read(&me6, reply, len, &news));
	heard(&them6, true, true);
	len = resolver_write_request(&me6, them6.ip, them6.mac, frame);
	cr_assert_arr_eq(frame, them6.mac, 6);
	cr_assert_arr_eq(frame + 38, them6.ip, 16, "to it alone");
	cr_assert_gt(responder_write(&them6, frame, len, reply), 0);
	/* Its question for us. */
	len = resolver_write_request(&them6, me6.ip, me6.mac, frame);
	cr_assert(resolver_read(&me6, frame, len, &news));
	heard(&them6, true, true);
	/* Without an option: it is there, at the address that was solicited. */
	len = advertisement();
	frame_store16(reply + 18, frame_be16(24));
	seal(reply);
	cr_assert(resolver_read(&me6, reply, len, &news));
	heard(&them6, false, true);
	/* Without the flag of overriding. */
	advertisement();
	reply[58] = 0x40;
	seal(reply);
	cr_assert(resolver_read(&me6, reply, len, &news));
	heard(&them6, true, false);
	/* Announced to all. */
	advertisement();
	memset(reply + 38, 0, 16);
	reply[38] = 0xff, reply[39] = 2, reply[53] = 1;
	reply[0] = reply[1] = 0x33;
	reply[58] = 0x20;
	seal(reply);
	cr_assert(resolver_read(&me6, reply, len, &news));
	heard(&them6, true, true);
	reply[58] = 0x60;
	seal(reply);
	cr_assert_not(resolver_read(&me6, reply, len, &news), "as if it answered all");
}

Test(dpdk_resolver, broken_advertisement)
{
	for (unsigned len = 0; len < 86; len++) {
		advertisement();
		cr_assert_not(resolver_read(&me6, reply, len, &news), "%u bytes", len);
	}
	static const struct {
		unsigned at;
		uint8_t is;
		const char *what;
	} cases[] = {{21, 254, "it came through a router"},
		     {55, 1, "a code"},
		     {79, 0, "an option of no length"},
		     {79, 2, "an option beyond the end"},
		     {62, 0xff, "a group's target"},
		     {22, 0xff, "from a group"},
		     {54, 137, "a redirect"},
		     {14, 0x40, "not IPv6"},
		     {19, 23, "too short"},
		     {19, 33, "too long"},
		     {53, 2, "to another"}};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		unsigned len = advertisement();
		reply[cases[i].at] = cases[i].is;
		seal(reply);
		cr_assert_not(resolver_read(&me6, reply, len, &news), "%s", cases[i].what);
	}
	unsigned len = advertisement();
	reply[85] ^= 1;
	cr_assert_not(resolver_read(&me6, reply, len, &news), "the checksum");
	advertisement();
	reply[80] |= 1;
	seal(reply);
	cr_assert(resolver_read(&me6, reply, len, &news), "a group's MAC address is none");
	cr_assert_not(news.has_mac);
}

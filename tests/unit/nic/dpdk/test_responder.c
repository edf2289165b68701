/* SPDX-License-Identifier: BSD-3-Clause */
/** Questions of neighbours, built by hand, and their answers. The test's thread. */
#include "nic/dpdk/responder.h"

#include <criterion/criterion.h>

static const struct frame_addr me4 = {.mac = {2, 0, 0, 0, 0, 1}, .ip = {10, 8, 0, 1}};
static const struct frame_addr me6 = {
	.mac = {2, 0, 0, 0, 0, 1}, .v6 = 1, .ip = {0xfd, 0, [13] = 0xaa, [14] = 0xbb, [15] = 0xcc}};
static const uint8_t them_mac[6] = {2, 0, 0, 0, 0, 9};
static const uint8_t them6[16] = {0xfd, 0, [15] = 9};

static uint8_t frame[CONTROL_FRAME_BYTES_MAX], out[CONTROL_FRAME_BYTES_MAX];

static void macs(const uint8_t *to, unsigned type)
{
	memset(frame, 0, sizeof frame);
	memcpy(frame, to, 6);
	memcpy(frame + 6, them_mac, 6);
	frame_store16(frame + 12, frame_be16((uint16_t)type));
}

static unsigned arp(void)
{
	static const uint8_t all[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	static const uint8_t question[28] = {0,  1, 8, 0, 6, 4, 0, 1, 2, 0, 0,  0, 0, 9,
					     10, 8, 0, 9, 0, 0, 0, 0, 0, 0, 10, 8, 0, 1};
	macs(all, 0x0806);
	memcpy(frame + 14, question, sizeof question);
	return 60;
}

static void sums4(unsigned payload)
{
	uint8_t *ip = frame + 14, *icmp = ip + 20;
	frame_store16(ip + 10, 0);
	frame_store16(ip + 10, (uint16_t)~frame_fold(frame_sum(ip, 20)));
	frame_store16(icmp + 2, 0);
	frame_store16(icmp + 2, (uint16_t)~frame_fold(frame_sum(icmp, 8 + payload)));
}

static unsigned ping4(unsigned payload)
{
	static const uint8_t ends[8] = {10, 8, 0, 9, 10, 8, 0, 1};
	macs(me4.mac, 0x0800);
	uint8_t *ip = frame + 14;
	ip[0] = 0x45;
	frame_store16(ip + 2, frame_be16((uint16_t)(28 + payload)));
	ip[8] = 3;
	ip[9] = 1;
	memcpy(ip + 12, ends, sizeof ends);
	ip[20] = 8;
	for (unsigned i = 0; i < 4 + payload; i++)
		ip[24 + i] = (uint8_t)(i * 7 + 1);
	sums4(payload);
	return 42 + payload < 60 ? 60 : 42 + payload;
}

static uint16_t sum6(const uint8_t *ip, unsigned len)
{
	return frame_fold((uint64_t)frame_sum(ip + 8, 32) + frame_be16((uint16_t)len) + frame_be16(58) +
			  frame_sum(ip + 40, len));
}

static unsigned v6(const uint8_t *mac, const uint8_t *from, const uint8_t *to, unsigned type, unsigned len)
{
	macs(mac, 0x86dd);
	uint8_t *ip = frame + 14;
	ip[0] = 0x60;
	frame_store16(ip + 4, frame_be16((uint16_t)len));
	ip[6] = 58;
	ip[7] = 255;
	memcpy(ip + 8, from, 16);
	memcpy(ip + 24, to, 16);
	ip[40] = (uint8_t)type;
	for (unsigned i = 8; i < len; i++)
		ip[40 + i] = (uint8_t)(i * 5);
	return 54 + len;
}

static void seal6(unsigned len)
{
	frame_store16(frame + 56, 0);
	frame_store16(frame + 56, (uint16_t)~sum6(frame + 14, len));
}

static unsigned solicitation(const uint8_t *from)
{
	static const uint8_t group_mac[6] = {0x33, 0x33, 0xff, 0xaa, 0xbb, 0xcc};
	static const uint8_t group[16] = {0xff, 2, [11] = 1, [12] = 0xff, 0xaa, 0xbb, 0xcc};
	unsigned len = v6(group_mac, from, group, 135, 24);
	memcpy(frame + 62, me6.ip, 16);
	seal6(24);
	return len;
}

Test(dpdk_responder, arp)
{
	static const uint8_t want[42] = {2, 0, 0, 0, 0, 9, 2, 0,  0, 0, 0, 1, 8, 6, 0, 1, 8, 0,  6, 4, 0,
					 2, 2, 0, 0, 0, 0, 1, 10, 8, 0, 1, 2, 0, 0, 0, 0, 9, 10, 8, 0, 9};
	unsigned len = arp();
	cr_assert_eq(responder_write(&me4, frame, len, out), 60);
	cr_assert_arr_eq(out, want, sizeof want);
	cr_assert_eq(responder_write(&me4, frame, 42, out), 60, "without padding");
	cr_assert_eq(responder_write(&me6, frame, len, out), 0, "we have no IPv4 address");
	frame[41] = 2;
	cr_assert_eq(responder_write(&me4, frame, len, out), 0, "another's address");
	for (unsigned i = 14; i < 22; i++) {
		arp();
		frame[i] ^= 2;
		cr_assert_eq(responder_write(&me4, frame, len, out), 0, "byte %u", i);
	}
	arp();
	frame[22] |= 1;
	cr_assert_eq(responder_write(&me4, frame, len, out), 0, "from a group");
}

Test(dpdk_responder, ping)
{
	static const unsigned sizes[] = {0, 1, 10, 17, 18, 19, 56, 1000, 1472, CONTROL_FRAME_BYTES_MAX - 42};
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		unsigned len = ping4(sizes[i]), n = responder_write(&me4, frame, len, out);
		const uint8_t *ip = out + 14;
		cr_assert_eq(n, len, "%u", sizes[i]);
		cr_assert_arr_eq(out, them_mac, 6);
		cr_assert_arr_eq(out + 6, me4.mac, 6);
		cr_assert_arr_eq(ip + 12, me4.ip, 4);
		cr_assert_eq(ip[19], 9);
		cr_assert_eq(frame_fold(frame_sum(ip, 20)), 0xffff);
		cr_assert_eq(ip[20], 0, "an answer");
		cr_assert_eq(frame_fold(frame_sum(ip + 20, 8 + sizes[i])), 0xffff);
		cr_assert_arr_eq(ip + 24, frame + 38, 4 + sizes[i]);
	}
}

Test(dpdk_responder, broken_pings)
{
	static const struct {
		unsigned at;
		uint8_t flip;
	} broken[] = {{0, 1},  {6, 1},  {14, 1}, {20, 0x20}, {21, 8}, {23, 2}, {26, 0xe0},
		      {24, 1}, {33, 2}, {34, 8}, {35, 1},    {36, 1}, {37, 1}, {50, 1}};
	unsigned len = ping4(56);
	cr_assert(responder_write(&me4, frame, len, out));
	for (unsigned i = 0; i < sizeof broken / sizeof *broken; i++) {
		ping4(56);
		frame[broken[i].at] ^= broken[i].flip;
		if (broken[i].at != 24 && broken[i].at != 36 && broken[i].at != 37 && broken[i].at != 50)
			sums4(56); /* it is not the sum that is wrong */
		cr_assert_eq(responder_write(&me4, frame, len, out), 0, "byte %u", broken[i].at);
	}
	ping4(56);
	for (unsigned cut = 0; cut < 42 + 56; cut++)
		cr_assert_eq(responder_write(&me4, frame, cut, out), 0, "%u bytes", cut);
	ping4(CONTROL_FRAME_BYTES_MAX - 42);
	cr_assert_eq(responder_write(&me4, frame, CONTROL_FRAME_BYTES_MAX + 1, out), 0, "longer than any answer");
}

Test(dpdk_responder, solicitation)
{
	static const uint8_t nobody[16] = {0}, all[16] = {0xff, 2, [15] = 1}, all_mac[6] = {0x33, 0x33, [5] = 1};
	unsigned len = solicitation(them6);
	cr_assert_eq(responder_write(&me6, frame, len, out), 86);
	cr_assert_arr_eq(out, them_mac, 6);
	cr_assert_eq(sum6(out + 14, 32), 0xffff);
	cr_assert_eq(out[21], 255);
	cr_assert_eq(out[54], 136);
	cr_assert_eq(out[58], 0x60, "solicited, override");
	cr_assert_arr_eq(out + 62, me6.ip, 16);
	cr_assert_eq(out[78], 2);
	cr_assert_arr_eq(out + 80, me6.mac, 6);
	cr_assert_arr_eq(out + 38, them6, 16);
	len = solicitation(nobody);
	cr_assert_eq(responder_write(&me6, frame, len, out), 86, "who wants to take our address");
	cr_assert_arr_eq(out, all_mac, 6);
	cr_assert_arr_eq(out + 38, all, 16);
	cr_assert_eq(out[58], 0x20);
	solicitation(them6);
	frame[21] = 254;
	cr_assert_eq(responder_write(&me6, frame, len, out), 0, "from another link");
	solicitation(them6);
	frame[77] ^= 1;
	seal6(24);
	cr_assert_eq(responder_write(&me6, frame, len, out), 0, "another's address");
	solicitation(them6);
	frame[58] ^= 1;
	cr_assert_eq(responder_write(&me6, frame, len, out), 0, "its sum is wrong");
	solicitation(them6);
	for (unsigned cut = 0; cut < len; cut++)
		cr_assert_eq(responder_write(&me6, frame, cut, out), 0, "%u bytes", cut);
}

Test(dpdk_responder, ping6)
{
	unsigned len = v6(me6.mac, them6, me6.ip, 128, 64);
	seal6(64);
	cr_assert_eq(responder_write(&me6, frame, len, out), len);
	cr_assert_eq(out[54], 129);
	cr_assert_eq(sum6(out + 14, 64), 0xffff);
	cr_assert_arr_eq(out + 38, them6, 16);
	cr_assert_arr_eq(out + 58, frame + 58, 60);
	frame[54] = 129;
	seal6(64);
	cr_assert_eq(responder_write(&me6, frame, len, out), 0, "an answer gets none");
	v6(me6.mac, me6.ip, me6.ip, 128, 64);
	frame[22] = 0xff;
	seal6(64);
	cr_assert_eq(responder_write(&me6, frame, len, out), 0, "from a group");
}

Test(dpdk_responder, anything)
{
	uint32_t x = 1;
	for (unsigned round = 0; round < 200000; round++) {
		unsigned len = round % 3 == 0 ? arp() : round % 3 == 1 ? ping4(round % 100) : solicitation(them6);
		for (unsigned i = 0; i < 4; i++) {
			x = x * 1664525 + 1013904223;
			frame[x % len] ^= (uint8_t)(x >> 24);
		}
		x = x * 1664525 + 1013904223;
		unsigned cut = x % 4 ? len : x / 4 % (len + 1);
		uint8_t *exact = malloc(cut ? cut : 1); /* a sanitizer sees a read beyond it */
		memcpy(exact, frame, cut);
		unsigned n = responder_write(round % 2 ? &me4 : &me6, exact, cut, out);
		cr_assert(n == 0 || (n >= CONTROL_FRAME_BYTES_MIN && n <= CONTROL_FRAME_BYTES_MAX));
		free(exact);
	}
}

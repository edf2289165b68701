/* SPDX-License-Identifier: BSD-3-Clause */
/** Replies to ARP, neighbour solicitations and pings. responder_wants(): poller; the rest: control thread. */
#include "nic/dpdk/responder.h"

#define TYPE_ARP  0x0806u
#define TYPE_V4   0x0800u
#define TYPE_V6   0x86ddu
#define ARP_BYTES 28u
#define V4_BYTES  20u
#define V6_BYTES  40u
#define ICMP      1u
#define ICMP6     58u
/* The smallest message: type to checksum, and four bytes. */
#define ICMP_BYTES 8u
#define TTL        64u

enum { ECHO = 8, ECHO_REPLY = 0, ECHO6 = 128, ECHO6_REPLY = 129, SOLICITATION = 135, ADVERTISEMENT = 136 };

/* A neighbour advertisement: flags, target, and one option with our link-layer address. */
#define ADVERTISEMENT_BYTES 32u
#define FLAG_SOLICITED      0x40u
#define FLAG_OVERRIDE       0x20u
#define OPTION_TARGET       2u

static unsigned type_of(const uint8_t *frame)
{
	return frame_be16(frame_load16(frame + 12));
}

/* ff02::1:ffXX:XXXX, the solicited-node multicast address of `me`. */
static bool is_solicited_node(const uint8_t *ip, const struct frame_addr *me)
{
	static const uint8_t prefix[13] = {0xff, 2, [11] = 1, [12] = 0xff};
	return memcmp(ip, prefix, sizeof prefix) == 0 && memcmp(ip + 13, me->ip + 13, 3) == 0;
}

bool responder_wants(const struct frame_addr *me, const uint8_t *frame, unsigned len)
{
	if (len < FRAME_MAC_BYTES + V4_BYTES || len > CONTROL_FRAME_BYTES_MAX)
		return false;
	const uint8_t *ip = frame + FRAME_MAC_BYTES;
	if (memcmp(frame, me->mac, 6) != 0 && !(frame[0] & 1))
		return false;
	if (!me->v6)
		return (type_of(frame) == TYPE_ARP && len >= FRAME_MAC_BYTES + ARP_BYTES &&
			memcmp(ip + 24, me->ip, 4) == 0) ||
		       (type_of(frame) == TYPE_V4 && ip[9] == ICMP && memcmp(ip + 16, me->ip, 4) == 0);
	return type_of(frame) == TYPE_V6 && len >= FRAME_MAC_BYTES + V6_BYTES + ICMP_BYTES && ip[6] == ICMP6 &&
	       (memcmp(ip + 24, me->ip, 16) == 0 || is_solicited_node(ip + 24, me));
}

static void write_macs(uint8_t *out, const uint8_t *to, const struct frame_addr *me, unsigned type)
{
	memcpy(out, to, 6);
	memcpy(out + 6, me->mac, 6);
	frame_store16(out + 12, frame_be16((uint16_t)type));
}

static unsigned padded(uint8_t *out, unsigned len)
{
	if (len < CONTROL_FRAME_BYTES_MIN)
		memset(out + len, 0, CONTROL_FRAME_BYTES_MIN - len);
	return len < CONTROL_FRAME_BYTES_MIN ? CONTROL_FRAME_BYTES_MIN : len;
}

static unsigned reply_arp(const struct frame_addr *me, const uint8_t *frame, uint8_t *out)
{
	/* Ethernet, IPv4, their lengths, a request. */
	static const uint8_t request[8] = {0, 1, 8, 0, 6, 4, 0, 1};
	const uint8_t *arp = frame + FRAME_MAC_BYTES, *from = arp + 8;
	if (memcmp(arp, request, sizeof request) != 0 || from[0] & 1)
		return 0;
	write_macs(out, from, me, TYPE_ARP);
	uint8_t *reply = out + FRAME_MAC_BYTES;
	memcpy(reply, request, sizeof request);
	reply[7] = 2;
	memcpy(reply + 8, me->mac, 6);
	memcpy(reply + 14, me->ip, 4);
	memcpy(reply + 18, from, 10); /* MAC and IP address */
	return padded(out, FRAME_MAC_BYTES + ARP_BYTES);
}

static unsigned reply_v4(const struct frame_addr *me, const uint8_t *frame, unsigned len, uint8_t *out)
{
	const uint8_t *ip = frame + FRAME_MAC_BYTES, *icmp = ip + V4_BYTES;
	unsigned total = frame_be16(frame_load16(ip + 2));
	unsigned fragment = frame_be16(frame_load16(ip + 6)) & 0x3fffu;
	/* Neither options, nor fragments, nor from a multicast or unspecified source, nor to multicast. */
	if (ip[0] != 0x45 || fragment || total < V4_BYTES + ICMP_BYTES || total > len - FRAME_MAC_BYTES ||
	    ip[12] >= 224 || ip[12] == 0 || frame[0] & 1 || frame[6] & 1)
		return 0;
	unsigned icmp_len = total - V4_BYTES;
	if (icmp[0] != ECHO || icmp[1] != 0 || frame_fold(frame_sum(ip, V4_BYTES)) != 0xffff ||
	    frame_fold(frame_sum(icmp, icmp_len)) != 0xffff)
		return 0;
	memcpy(out, frame, FRAME_MAC_BYTES + total);
	write_macs(out, frame + 6, me, TYPE_V4);
	uint8_t *reply = out + FRAME_MAC_BYTES;
	memcpy(reply + 12, me->ip, 4);
	memcpy(reply + 16, ip + 12, 4);
	reply[8] = TTL;
	frame_store16(reply + 10, 0);
	frame_store16(reply + 10, (uint16_t)~frame_fold(frame_sum(reply, V4_BYTES)));
	reply += V4_BYTES;
	reply[0] = ECHO_REPLY;
	frame_store16(reply + 2, 0);
	frame_store16(reply + 2, (uint16_t)~frame_fold(frame_sum(reply, icmp_len)));
	return padded(out, FRAME_MAC_BYTES + total);
}

/* The ICMPv6 checksum of the message at ip + V6_BYTES, pseudo header included. */
static uint16_t sum_v6(const uint8_t *ip, unsigned len)
{
	return frame_fold((uint64_t)frame_sum(ip + 8, 32) + frame_be16((uint16_t)len) + frame_be16(ICMP6) +
			  frame_sum(ip + V6_BYTES, len));
}

static unsigned finish_v6(const struct frame_addr *me, const uint8_t *to, uint8_t hop_limit, unsigned icmp_len,
			  uint8_t *out)
{
	uint8_t *ip = out + FRAME_MAC_BYTES;
	memset(ip, 0, 8);
	ip[0] = 0x60;
	frame_store16(ip + 4, frame_be16((uint16_t)icmp_len));
	ip[6] = ICMP6;
	ip[7] = hop_limit;
	memcpy(ip + 8, me->ip, 16);
	memcpy(ip + 24, to, 16);
	frame_store16(ip + V6_BYTES + 2, 0);
	frame_store16(ip + V6_BYTES + 2, (uint16_t)~sum_v6(ip, icmp_len));
	return padded(out, FRAME_MAC_BYTES + V6_BYTES + icmp_len);
}

/* Writes a neighbour advertisement. A solicitation from the unspecified address is duplicate address detection: the
 * reply goes to all nodes. */
static unsigned advertise(const struct frame_addr *me, const uint8_t *frame, uint8_t *out)
{
	static const uint8_t unspecified[16] = {0}, all[16] = {0xff, 2, [15] = 1}, all_mac[6] = {0x33, 0x33, [5] = 1};
	const uint8_t *from = frame + FRAME_MAC_BYTES + 8;
	bool solicited = memcmp(from, unspecified, sizeof unspecified) != 0;
	uint8_t *icmp = out + FRAME_MAC_BYTES + V6_BYTES;
	write_macs(out, solicited ? frame + 6 : all_mac, me, TYPE_V6);
	memset(icmp, 0, ADVERTISEMENT_BYTES);
	icmp[0] = ADVERTISEMENT;
	icmp[4] = FLAG_OVERRIDE | (solicited ? FLAG_SOLICITED : 0);
	memcpy(icmp + 8, me->ip, 16);
	icmp[24] = OPTION_TARGET;
	icmp[25] = 1; /* in units of 8 bytes */
	memcpy(icmp + 26, me->mac, 6);
	return finish_v6(me, solicited ? from : all, 255, ADVERTISEMENT_BYTES, out);
}

static unsigned reply_v6(const struct frame_addr *me, const uint8_t *frame, unsigned len, uint8_t *out)
{
	const uint8_t *ip = frame + FRAME_MAC_BYTES, *icmp = ip + V6_BYTES;
	unsigned icmp_len = frame_be16(frame_load16(ip + 4));
	if (ip[0] >> 4 != 6 || icmp_len < ICMP_BYTES || icmp_len > len - FRAME_MAC_BYTES - V6_BYTES || ip[8] == 0xff ||
	    frame[6] & 1 || icmp[1] != 0 || sum_v6(ip, icmp_len) != 0xffff)
		return 0;
	if (icmp[0] == SOLICITATION)
		/* A hop limit of 255: the sender is on this link. */
		return ip[7] == 255 && icmp_len >= 24 && memcmp(icmp + 8, me->ip, 16) == 0 ? advertise(me, frame, out)
											   : 0;
	if (icmp[0] != ECHO6 || memcmp(ip + 24, me->ip, 16) != 0)
		return 0;
	memcpy(out + FRAME_MAC_BYTES + V6_BYTES, icmp, icmp_len);
	write_macs(out, frame + 6, me, TYPE_V6);
	out[FRAME_MAC_BYTES + V6_BYTES] = ECHO6_REPLY;
	return finish_v6(me, ip + 8, TTL, icmp_len, out);
}

unsigned responder_write(const struct frame_addr *me, const uint8_t *frame, unsigned len, uint8_t *out)
{
	if (!responder_wants(me, frame, len))
		return 0;
	switch (type_of(frame)) {
	case TYPE_ARP:
		return reply_arp(me, frame, out);
	case TYPE_V4:
		return reply_v4(me, frame, len, out);
	default:
		return reply_v6(me, frame, len, out);
	}
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** ARP requests and neighbour solicitations, and parsing of their replies. resolver_wants(): poller; the rest: control
 * thread. */
#include "nic/dpdk/resolver.h"

#define TYPE_ARP  0x0806u
#define TYPE_V6   0x86ddu
#define ARP_BYTES 28u
#define V6_BYTES  40u
#define ICMP6     58u
/* Neighbour solicitation or advertisement without options: type to checksum, flags, target. */
#define ND_BYTES 24u
/* An option with a link-layer address. */
#define OPTION_BYTES   8u
#define OPTION_SOURCE  1u
#define OPTION_TARGET  2u
#define FLAG_SOLICITED 0x40u
#define FLAG_OVERRIDE  0x20u

enum { REQUEST = 1, REPLY = 2, SOLICITATION = 135, ADVERTISEMENT = 136 };

/* Ethernet, IPv4, their lengths; the operation follows. */
static const uint8_t arp_head[7] = {0, 1, 8, 0, 6, 4, 0};
static const uint8_t unspecified[16] = {0};

static unsigned type_of(const uint8_t *frame)
{
	return frame_be16(frame_load16(frame + 12));
}

static void write_macs(uint8_t *out, const uint8_t *to, const struct frame_addr *me, unsigned type)
{
	memcpy(out, to, 6);
	memcpy(out + 6, me->mac, 6);
	frame_store16(out + 12, frame_be16((uint16_t)type));
}

static uint16_t sum_v6(const uint8_t *ip, unsigned len)
{
	return frame_fold((uint64_t)frame_sum(ip + 8, 32) + frame_be16((uint16_t)len) + frame_be16(ICMP6) +
			  frame_sum(ip + V6_BYTES, len));
}

static unsigned write_arp_request(const struct frame_addr *me, const uint8_t *ip, const uint8_t *mac, uint8_t *out)
{
	static const uint8_t all[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	uint8_t *arp = out + FRAME_MAC_BYTES;
	memset(out, 0, CONTROL_FRAME_BYTES_MIN);
	write_macs(out, mac ? mac : all, me, TYPE_ARP);
	memcpy(arp, arp_head, sizeof arp_head);
	arp[7] = REQUEST;
	memcpy(arp + 8, me->mac, 6);
	memcpy(arp + 14, me->ip, 4);
	memcpy(arp + 24, ip, 4);
	return CONTROL_FRAME_BYTES_MIN;
}

static unsigned write_ns(const struct frame_addr *me, const uint8_t *target, const uint8_t *mac, uint8_t *out)
{
	const uint8_t group_mac[6] = {0x33, 0x33, 0xff, target[13], target[14], target[15]};
	uint8_t *ip = out + FRAME_MAC_BYTES, *icmp = ip + V6_BYTES;
	unsigned icmp_len = ND_BYTES + OPTION_BYTES;
	memset(out, 0, FRAME_MAC_BYTES + V6_BYTES + icmp_len);
	write_macs(out, mac ? mac : group_mac, me, TYPE_V6);
	ip[0] = 0x60;
	frame_store16(ip + 4, frame_be16((uint16_t)icmp_len));
	ip[6] = ICMP6;
	ip[7] = 255;
	memcpy(ip + 8, me->ip, 16);
	if (mac) {
		memcpy(ip + 24, target, 16);
	} else { /* ff02::1:ffXX:XXXX */
		ip[24] = 0xff;
		ip[25] = 2;
		ip[35] = 1;
		ip[36] = 0xff;
		memcpy(ip + 37, target + 13, 3);
	}
	icmp[0] = SOLICITATION;
	memcpy(icmp + 8, target, 16);
	icmp[ND_BYTES] = OPTION_SOURCE;
	icmp[ND_BYTES + 1] = 1; /* in units of 8 bytes */
	memcpy(icmp + ND_BYTES + 2, me->mac, 6);
	frame_store16(icmp + 2, (uint16_t)~sum_v6(ip, icmp_len));
	return FRAME_MAC_BYTES + V6_BYTES + icmp_len;
}

unsigned resolver_write_request(const struct frame_addr *me, const uint8_t *ip, const uint8_t *mac, uint8_t *out)
{
	return me->v6 ? write_ns(me, ip, mac, out) : write_arp_request(me, ip, mac, out);
}

/* ---- parsing ---- */

/* A unicast address other than 0. */
static bool is_unicast_mac(const uint8_t *mac)
{
	return !(mac[0] & 1) && memcmp(mac, unspecified, 6) != 0;
}

static bool is_announcement_v6(const uint8_t *ip)
{
	static const uint8_t all[16] = {0xff, 2, [15] = 1};
	return ip[V6_BYTES] == ADVERTISEMENT && memcmp(ip + 24, all, sizeof all) == 0;
}

bool resolver_wants(const struct frame_addr *me, const uint8_t *frame, unsigned len)
{
	const uint8_t *ip = frame + FRAME_MAC_BYTES;
	if (len < FRAME_MAC_BYTES + ARP_BYTES || len > CONTROL_FRAME_BYTES_MAX ||
	    (memcmp(frame, me->mac, 6) != 0 && !(frame[0] & 1)))
		return false;
	if (!me->v6)
		return type_of(frame) == TYPE_ARP &&
		       (memcmp(ip + 24, me->ip, 4) == 0 || memcmp(ip + 24, ip + 14, 4) == 0);
	return type_of(frame) == TYPE_V6 && len >= FRAME_MAC_BYTES + V6_BYTES + ND_BYTES && ip[6] == ICMP6 &&
	       (memcmp(ip + 24, me->ip, 16) == 0 || is_announcement_v6(ip));
}

static bool read_arp(const struct frame_addr *me, const uint8_t *arp, struct resolver_update *out)
{
	const uint8_t *mac = arp + 8, *ip = arp + 14;
	if (memcmp(arp, arp_head, sizeof arp_head) != 0 || (arp[7] != REQUEST && arp[7] != REPLY) ||
	    !is_unicast_mac(mac) || memcmp(mac, me->mac, 6) == 0 || ip[0] == 0 || ip[0] >= 224)
		return false;
	memcpy(out->ip, ip, 4);
	memcpy(out->mac, mac, 6);
	out->has_mac = out->override = true;
	return true;
}

/* Reads the link-layer address from the option of this kind. False: malformed options, the whole message is invalid. */
static bool read_options(const uint8_t *at, unsigned len, unsigned kind, struct resolver_update *out)
{
	while (len) {
		unsigned bytes = len >= 2 ? at[1] * 8u : 0;
		if (bytes == 0 || bytes > len)
			return false;
		if (at[0] == kind && bytes == OPTION_BYTES && is_unicast_mac(at + 2)) {
			memcpy(out->mac, at + 2, 6);
			out->has_mac = true;
		}
		at += bytes;
		len -= bytes;
	}
	return true;
}

/* Validated as RFC 4861, 7.1, requires. */
static bool read_nd(const struct frame_addr *me, const uint8_t *ip, unsigned room, struct resolver_update *out)
{
	const uint8_t *icmp = ip + V6_BYTES, *from = ip + 8, *target = icmp + 8;
	unsigned len = frame_be16(frame_load16(ip + 4));
	if (ip[0] >> 4 != 6 || ip[7] != 255 || len < ND_BYTES || len > room - V6_BYTES || icmp[1] != 0 ||
	    from[0] == 0xff || target[0] == 0xff || sum_v6(ip, len) != 0xffff)
		return false;
	bool advertised = icmp[0] == ADVERTISEMENT, solicited = icmp[4] & FLAG_SOLICITED;
	if (advertised) {
		if (solicited && ip[24] == 0xff)
			return false;
		memcpy(out->ip, target, 16);
		out->override = icmp[4] & FLAG_OVERRIDE;
	} else {
		if (icmp[0] != SOLICITATION || memcmp(from, unspecified, 16) == 0)
			return false;
		memcpy(out->ip, from, 16);
		out->override = true;
	}
	return read_options(icmp + ND_BYTES, len - ND_BYTES, advertised ? OPTION_TARGET : OPTION_SOURCE, out) &&
	       (out->has_mac ? memcmp(out->mac, me->mac, 6) != 0 : advertised && solicited);
}

bool resolver_read(const struct frame_addr *me, const uint8_t *frame, unsigned len, struct resolver_update *out)
{
	if (!resolver_wants(me, frame, len))
		return false;
	memset(out, 0, sizeof *out);
	return me->v6 ? read_nd(me, frame + FRAME_MAC_BYTES, len - FRAME_MAC_BYTES, out)
		      : read_arp(me, frame + FRAME_MAC_BYTES, out);
}

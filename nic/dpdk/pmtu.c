/* SPDX-License-Identifier: BSD-3-Clause */
/** Parses path MTU reports. pmtu_wants(): poller; the rest: control thread. */
#include "nic/dpdk/pmtu.h"

#define TYPE_V4  0x0800u
#define TYPE_V6  0x86ddu
#define V4_BYTES 20u
#define V6_BYTES 40u
#define ICMP     1u
#define ICMP6    58u
#define UDP      17u
/* Type, code, checksum, MTU; behind them the quoted packet, at least up to its UDP header. */
#define ICMP_BYTES 8u

enum { UNREACHABLE = 3, FRAGMENTATION_NEEDED = 4, TOO_BIG = 2 };

static unsigned be16_at(const uint8_t *at)
{
	return frame_be16(frame_load16(at));
}

static unsigned head_bytes(const struct frame_addr *me)
{
	return me->v6 ? V6_BYTES : V4_BYTES;
}

bool pmtu_wants(const struct frame_addr *me, const uint8_t *frame, unsigned len)
{
	const uint8_t *ip = frame + FRAME_MAC_BYTES, *icmp = ip + head_bytes(me);
	if (len < FRAME_MAC_BYTES + 2 * head_bytes(me) + ICMP_BYTES + FRAME_UDP_BYTES ||
	    len > CONTROL_FRAME_BYTES_MAX || memcmp(frame, me->mac, 6) != 0)
		return false;
	if (me->v6)
		return be16_at(frame + 12) == TYPE_V6 && ip[6] == ICMP6 && memcmp(ip + 24, me->ip, 16) == 0 &&
		       icmp[0] == TOO_BIG;
	return be16_at(frame + 12) == TYPE_V4 && ip[9] == ICMP && memcmp(ip + 16, me->ip, 4) == 0 &&
	       icmp[0] == UNREACHABLE && icmp[1] == FRAGMENTATION_NEEDED;
}

/* Parses the quoted headers, quoted[0, V4_BYTES + FRAME_UDP_BYTES): as frame.h writes them, except for fields that
 * routers change. */
static bool read_quoted_v4(const struct frame_addr *me, const uint8_t *quoted, struct pmtu_report *out)
{
	/* not a fragment, Don't Fragment set */
	if (quoted[0] != 0x45 || quoted[9] != UDP || be16_at(quoted + 6) != 0x4000 ||
	    memcmp(quoted + 12, me->ip, 4) != 0)
		return false;
	memcpy(out->to, quoted + 16, 4);
	out->packet_bytes = be16_at(quoted + 2);
	return true;
}

static bool read_quoted_v6(const struct frame_addr *me, const uint8_t *quoted, struct pmtu_report *out)
{
	if (quoted[0] >> 4 != 6 || quoted[6] != UDP || memcmp(quoted + 8, me->ip, 16) != 0)
		return false;
	memcpy(out->to, quoted + 24, 16);
	out->packet_bytes = V6_BYTES + be16_at(quoted + 4);
	return true;
}

/* Validates the message around the quote: any sender, correct checksums, long enough. */
static bool is_valid_v4(const uint8_t *ip, unsigned room)
{
	unsigned total = be16_at(ip + 2);
	if (ip[0] != 0x45 || be16_at(ip + 6) & 0x3fff || total > room ||
	    total < 2 * V4_BYTES + ICMP_BYTES + FRAME_UDP_BYTES || ip[12] == 0 || ip[12] >= 224)
		return false;
	return frame_fold(frame_sum(ip, V4_BYTES)) == 0xffff &&
	       frame_fold(frame_sum(ip + V4_BYTES, total - V4_BYTES)) == 0xffff;
}

static bool is_valid_v6(const uint8_t *ip, unsigned room)
{
	unsigned len = be16_at(ip + 4);
	if (ip[0] >> 4 != 6 || len > room - V6_BYTES || len < ICMP_BYTES + V6_BYTES + FRAME_UDP_BYTES || ip[8] == 0xff)
		return false;
	return frame_fold((uint64_t)frame_sum(ip + 8, 32) + frame_be16((uint16_t)len) + frame_be16(ICMP6) +
			  frame_sum(ip + V6_BYTES, len)) == 0xffff;
}

bool pmtu_read(const struct frame_addr *me, const uint8_t *frame, unsigned len, struct pmtu_report *out)
{
	if (!pmtu_wants(me, frame, len))
		return false;
	const uint8_t *ip = frame + FRAME_MAC_BYTES, *icmp = ip + head_bytes(me), *quoted = icmp + ICMP_BYTES;
	const uint8_t *udp = quoted + head_bytes(me);
	unsigned room = len - FRAME_MAC_BYTES, least = me->v6 ? PMTU_MIN_V6 : PMTU_MIN_V4;
	if (!(me->v6 ? is_valid_v6(ip, room) : is_valid_v4(ip, room)))
		return false;
	struct pmtu_report news = {
		.v6 = me->v6, .from_port = (uint16_t)be16_at(udp), .to_port = (uint16_t)be16_at(udp + 2)};
	if (!(me->v6 ? read_quoted_v6(me, quoted, &news) : read_quoted_v4(me, quoted, &news)))
		return false;
	/* Routers older than RFC 1191 report 0. */
	uint32_t mtu = be16_at(icmp + 6);
	if (me->v6)
		mtu |= (uint32_t)be16_at(icmp + 4) << 16;
	if (mtu < least)
		mtu = least;
	if (news.packet_bytes <= mtu)
		return false;
	news.body_bytes_max = mtu - head_bytes(me) - FRAME_UDP_BYTES;
	*out = news;
	return true;
}

bool pmtu_matches_destination(const struct pmtu_report *news, const struct frame_path *path)
{
	const uint8_t *to = path->bytes + FRAME_MAC_BYTES + (news->v6 ? 24 : 16);
	return path->len == (news->v6 ? FRAME_V6_BYTES : FRAME_V4_BYTES) &&
	       memcmp(to, news->to, news->v6 ? 16 : 4) == 0;
}

bool pmtu_matches_path(const struct pmtu_report *news, const struct frame_path *path)
{
	const uint8_t *udp = path->bytes + path->len - FRAME_UDP_BYTES;
	return pmtu_matches_destination(news, path) && be16_at(udp) == news->from_port &&
	       be16_at(udp + 2) == news->to_port;
}

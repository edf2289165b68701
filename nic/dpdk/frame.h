/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Writes and parses Ethernet frames that carry one UDP datagram over IPv4 or IPv6. Pure functions: no DPDK, no system
 * call; any thread, pollers on the fast path.
 *
 *	0         14 (Ethernet)      34 (IPv4) or 54 (IPv6)      42 or 62 (UDP)
 *	MACs|type  addresses, length, header checksum  ports|length|checksum  payload
 *
 * IPv4 packets are atomic: Don't Fragment is set and the identification is 0 (RFC 6864). Neither VLAN tags, IP options,
 * extension headers nor fragments are written.
 */
#ifndef FAR_NIC_DPDK_FRAME_H
#define FAR_NIC_DPDK_FRAME_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FRAME_MAC_BYTES 14u
#define FRAME_V4_BYTES  42u /* headers in front of the payload */
#define FRAME_V6_BYTES  62u
#define FRAME_UDP_BYTES 8u
/* The largest UDP payload of both IP versions; devices carry less. */
#define FRAME_PAYLOAD_MAX (65535u - 20u - FRAME_UDP_BYTES)

/** One end of a path. */
struct frame_addr {
	uint8_t mac[6];
	uint8_t v6;     /* 0: IPv4, ip[0, 4); else IPv6 */
	uint8_t ip[16]; /* network byte order */
	uint16_t port;  /* UDP port of queue 0, host byte order; queue i receives at port + i */
};

/** Precomputed headers towards one destination. Read-only after frame_path_init(), but for the MAC address. */
struct frame_path {
	alignas(64) uint8_t bytes[64]; /* the headers; lengths and checksums are 0 */
	uint8_t len;                   /* FRAME_V4_BYTES or FRAME_V6_BYTES */
	uint32_t ip_sum;               /* frame_sum() of the IPv4 header */
	uint32_t udp_sum;              /* frame_sum() of the UDP header and the pseudo header, without lengths */
};

/** Contents of the UDP checksum field. The first two have the values of false and true. */
enum frame_sum {
	FRAME_SUM_NONE,  /* 0, no checksum: allowed by IPv4 only; IPv6 uses FRAME_SUM_FULL instead. Saves the pass over
			    the payload, since the engine's CRC detects more */
	FRAME_SUM_FULL,  /* the checksum */
	FRAME_SUM_PSEUDO /* the sum of the pseudo header, for a device that adds the rest */
};

/** The result of parsing a frame. UNEXPECTED: not addressed to us, which takes our MAC address, IP version, IP address,
 * UDP, and one of our ports. Frames to other addresses (a promiscuous device), broadcast, multicast, VLAN tags, other
 * protocols, IPv6 extension headers, later fragments (they carry no port) and frames without a complete header are
 * UNEXPECTED. MALFORMED: addressed to us, but truncated, with IPv4 options, a first fragment, with contradictory
 * lengths, or with a wrong checksum. */
enum frame_verdict { FRAME_OURS, FRAME_UNEXPECTED, FRAME_MALFORMED };

/** A parsed frame of ours. */
struct frame_in {
	uint16_t payload;       /* offset of the payload in the frame */
	uint16_t len;           /* bytes of the payload; the frame may be longer: Ethernet pads to 60 bytes */
	unsigned queue;         /* destination port - me->port */
	struct frame_addr from; /* source as the frame states it; not authenticated */
};

/** Fills `path` with the headers of packets from `from` to `to`, of the same IP version. `to->port` is the port of the
 * destination queue. */
void frame_path_init(struct frame_path *path, const struct frame_addr *from, const struct frame_addr *to);

/** Sets the destination MAC address; `mac` holds its bytes in memory order. */
static inline void frame_set_mac(uint8_t *frame, uint64_t mac)
{
	memcpy(frame, &mac, 6);
}

static inline uint16_t frame_be16(uint16_t x)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return (uint16_t)(x << 8 | x >> 8);
#else
	return x;
#endif
}

static inline uint16_t frame_load16(const uint8_t *at)
{
	uint16_t x;
	memcpy(&x, at, sizeof x);
	return x;
}

static inline void frame_store16(uint8_t *at, uint16_t x)
{
	memcpy(at, &x, sizeof x);
}

static inline uint16_t frame_fold(uint64_t sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/** The one's complement sum of bytes[0, len), padded by a zero byte if len is odd; in [0, 2^32). It sums 16-bit words
 * in host byte order, which is correct as long as the result is stored in that order too (RFC 1071, 2B). Sums of even
 * lengths can be added in any order. */
static inline uint32_t frame_sum(const uint8_t *bytes, size_t len)
{
	uint64_t a = 0, b = 0;
	for (; len >= 16; bytes += 16, len -= 16) { /* two independent chains of additions, carry included */
		uint64_t x, y;
		memcpy(&x, bytes, sizeof x);
		memcpy(&y, bytes + 8, sizeof y);
		a += x;
		a += a < x;
		b += y;
		b += b < y;
	}
	a += b;
	a += a < b;
	uint64_t sum = (a & 0xffffffff) + (a >> 32);
	for (; len >= 2; bytes += 2, len -= 2)
		sum += frame_load16(bytes);
	if (len) {
		uint8_t last[2] = {bytes[0], 0};
		sum += frame_load16(last);
	}
	return (uint32_t)((sum & 0xffffffff) + (sum >> 32));
}

/** Writes the headers of a datagram of `len` bytes, [0, FRAME_PAYLOAD_MAX], to the start of a frame and returns their
 * length. `payload` is read for FRAME_SUM_FULL only; it may follow the headers directly. */
static inline unsigned frame_write(uint8_t *at, const struct frame_path *path, unsigned len, const uint8_t *payload,
				   enum frame_sum kind)
{
	uint16_t udp_len = frame_be16((uint16_t)(FRAME_UDP_BYTES + len));
	uint8_t *udp;
	if (path->len == FRAME_V4_BYTES) {
		uint16_t ip_len = frame_be16((uint16_t)(20 + FRAME_UDP_BYTES + len));
		memcpy(at, path->bytes, FRAME_V4_BYTES);
		frame_store16(at + 16, ip_len);
		frame_store16(at + 24, (uint16_t)~frame_fold((uint64_t)path->ip_sum + ip_len));
		udp = at + 34;
	} else {
		memcpy(at, path->bytes, FRAME_V6_BYTES);
		frame_store16(at + 18, udp_len);
		udp = at + 54;
		kind = kind == FRAME_SUM_NONE ? FRAME_SUM_FULL : kind;
	}
	frame_store16(udp + 4, udp_len);
	if (kind == FRAME_SUM_FULL) {
		uint16_t sum =
			(uint16_t)~frame_fold((uint64_t)path->udp_sum + udp_len + udp_len + frame_sum(payload, len));
		frame_store16(udp + 6, sum ? sum : 0xffff);
	} else if (kind == FRAME_SUM_PSEUDO) {
		/* Without the UDP header: the device adds it with the payload. */
		uint64_t sum = (uint64_t)path->udp_sum + udp_len;
		sum += (uint16_t)~frame_load16(udp);
		sum += (uint16_t)~frame_load16(udp + 2);
		frame_store16(udp + 6, frame_fold(sum));
	}
	return path->len;
}

/** Sets the TOS or traffic class of a frame that frame_write() has written. */
static inline void frame_set_class(uint8_t *at, const struct frame_path *path, uint8_t tos)
{
	if (path->len == FRAME_V4_BYTES) {
		uint16_t sum = (uint16_t)~frame_load16(at + 24);
		at[15] = tos;
		frame_store16(at + 24, (uint16_t)~frame_fold((uint64_t)sum + frame_be16(tos)));
	} else {
		at[14] |= tos >> 4;
		at[15] = (uint8_t)(tos << 4);
	}
}

/* Parses UDP header and payload, udp[0, room), of an IP packet addressed to us whose header states `ip_len` bytes of
 * payload. Checks the port first: other users of the address may send anything. */
static inline enum frame_verdict frame_read_udp(const uint8_t *udp, unsigned room, unsigned ip_len, bool broken,
						uint16_t port, unsigned queues, struct frame_in *out)
{
	if (room < 4)
		return FRAME_UNEXPECTED;
	unsigned queue = (unsigned)frame_be16(frame_load16(udp + 2)) - port;
	if (queue >= queues)
		return FRAME_UNEXPECTED;
	if (broken || ip_len < FRAME_UDP_BYTES || ip_len > room || frame_be16(frame_load16(udp + 4)) != ip_len)
		return FRAME_MALFORMED;
	out->queue = queue;
	out->len = (uint16_t)(ip_len - FRAME_UDP_BYTES);
	out->from.port = frame_be16(frame_load16(udp));
	return FRAME_OURS;
}

/* True if the checksum of udp[0, len) is right; `addresses` are those of the pseudo header. */
static inline bool frame_udp_sum_right(const uint8_t *addresses, unsigned addresses_len, const uint8_t *udp,
				       unsigned len)
{
	return frame_fold((uint64_t)frame_sum(addresses, addresses_len) + frame_be16(17) + frame_be16((uint16_t)len) +
			  frame_sum(udp, len)) == 0xffff;
}

static inline enum frame_verdict frame_read_v4(const uint8_t *frame, unsigned len, const struct frame_addr *me,
					       unsigned queues, bool sum_checked, struct frame_in *out)
{
	const uint8_t *ip = frame + FRAME_MAC_BYTES;
	unsigned room = len - FRAME_MAC_BYTES; /* [20, …) */
	if (ip[0] >> 4 != 4 || ip[9] != 17 || memcmp(ip + 16, me->ip, 4) != 0)
		return FRAME_UNEXPECTED;
	unsigned head = (ip[0] & 15u) * 4, total = frame_be16(frame_load16(ip + 2));
	unsigned fragment = frame_be16(frame_load16(ip + 6)) & 0x3fffu; /* More Fragments flag and offset */
	if (fragment & 0x1fff || head < 20 || head > room)
		return FRAME_UNEXPECTED;
	bool broken = head != 20 || fragment || total < head;
	if (!sum_checked && !broken)
		broken = frame_fold(frame_sum(ip, 20)) != 0xffff;
	const uint8_t *udp = ip + head;
	enum frame_verdict verdict =
		frame_read_udp(udp, room - head, broken ? 0 : total - head, broken, me->port, queues, out);
	if (verdict != FRAME_OURS)
		return verdict;
	if (!sum_checked && frame_load16(udp + 6) != 0 && !frame_udp_sum_right(ip + 12, 8, udp, total - head))
		return FRAME_MALFORMED;
	out->payload = FRAME_V4_BYTES;
	out->from.v6 = 0;
	memset(out->from.ip, 0, sizeof out->from.ip);
	memcpy(out->from.ip, ip + 12, 4);
	return FRAME_OURS;
}

static inline enum frame_verdict frame_read_v6(const uint8_t *frame, unsigned len, const struct frame_addr *me,
					       unsigned queues, bool sum_checked, struct frame_in *out)
{
	const uint8_t *ip = frame + FRAME_MAC_BYTES, *udp = ip + 40;
	unsigned room = len - FRAME_MAC_BYTES; /* [20, …) */
	if (room < 40 || ip[0] >> 4 != 6 || ip[6] != 17 || memcmp(ip + 24, me->ip, 16) != 0)
		return FRAME_UNEXPECTED;
	unsigned udp_len = frame_be16(frame_load16(ip + 4));
	enum frame_verdict verdict = frame_read_udp(udp, room - 40, udp_len, false, me->port, queues, out);
	if (verdict != FRAME_OURS)
		return verdict;
	if (frame_load16(udp + 6) == 0 || (!sum_checked && !frame_udp_sum_right(ip + 8, 32, udp, udp_len)))
		return FRAME_MALFORMED;
	out->payload = FRAME_V6_BYTES;
	out->from.v6 = 1;
	memcpy(out->from.ip, ip + 8, 16);
	return FRAME_OURS;
}

/** Parses frame[0, len), which may be anything, for the queues [0, queues) of `me`; me->port + queues <= 65536.
 * `sum_checked`: the device has verified the IP and UDP checksums. `out` is set for FRAME_OURS only. */
static inline enum frame_verdict frame_read(const uint8_t *frame, unsigned len, const struct frame_addr *me,
					    unsigned queues, bool sum_checked, struct frame_in *out)
{
	if (len < FRAME_MAC_BYTES + 20 || memcmp(frame, me->mac, 6) != 0)
		return FRAME_UNEXPECTED;
	uint16_t type = frame_load16(frame + 12);
	enum frame_verdict verdict = FRAME_UNEXPECTED;
	if (!me->v6 && type == frame_be16(0x0800))
		verdict = frame_read_v4(frame, len, me, queues, sum_checked, out);
	else if (me->v6 && type == frame_be16(0x86dd))
		verdict = frame_read_v6(frame, len, me, queues, sum_checked, out);
	if (verdict == FRAME_OURS)
		memcpy(out->from.mac, frame + 6, 6);
	return verdict;
}

#endif

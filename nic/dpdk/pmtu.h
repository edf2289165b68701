/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a router says of a way that is narrower than the packet it was to pass on: ICMP's "fragmentation needed" (RFC
 * 792, RFC 1191) and ICMPv6's "packet too big" (RFC 4443, RFC 8201). Pure: no DPDK, no system call, any thread.
 */
#ifndef FAR_NIC_DPDK_PMTU_H
#define FAR_NIC_DPDK_PMTU_H

#include "nic/dpdk/responder.h"

/* What a link may be sent through, whatever a router says: bodies of the least size that nic_queue_ops.tx_bytes_max may
 * sink to; and what every link of IPv6 takes (RFC 8200). */
#define NARROW_MTU_V4 (1024u + FRAME_V4_BYTES - FRAME_MAC_BYTES)
#define NARROW_MTU_V6 1280u

/** Of one packet that we are said to have sent; nothing proves that whoever says it is a router on its way. */
struct narrow_news {
	uint8_t v6;
	uint8_t to[16];              /* whom the packet was for */
	uint16_t from_port, to_port; /* of UDP, in host order */
	uint32_t packet_bytes;       /* of the packet with its IP header; more than fit */
	uint32_t body_bytes_max;     /* of a UDP payload that fits, with the bounds above */
};

/** Whether frame[0, len) may be such a message to `me`, as far as its kind goes: a cheap look for shards. */
bool narrow_wanted(const struct frame_addr *me, const uint8_t *frame, unsigned len);

/**
 * Reads frame[0, len), which may be anything. False: it is none, is broken, is of no packet that `me` could have sent,
 * or of one that fits.
 */
bool narrow_read(const struct frame_addr *me, const uint8_t *frame, unsigned len, struct narrow_news *out);

/** Is the packet one of this path: the same addresses and ports? */
bool narrow_is_of(const struct narrow_news *news, const struct frame_path *path);

/** Does the path lead to the same address, whatever its ports? */
bool narrow_concerns(const struct narrow_news *news, const struct frame_path *path);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** Parses ICMP messages of routers that report a smaller path MTU: "fragmentation needed" (RFC 792, RFC 1191) and
 * "packet too big" of ICMPv6 (RFC 4443, RFC 8201). Pure functions: no DPDK, no system call; pmtu_wants() runs on
 * pollers, the rest on the control thread. */
#ifndef FAR_NIC_DPDK_PMTU_H
#define FAR_NIC_DPDK_PMTU_H

#include "nic/dpdk/responder.h"

/* Lower bounds of a reported MTU: a body of 1024 bytes, below which nic_queue_ops.tx_bytes_max must not sink; and the
 * minimum link MTU of IPv6 (RFC 8200). */
#define PMTU_MIN_V4 (1024u + FRAME_V4_BYTES - FRAME_MAC_BYTES)
#define PMTU_MIN_V6 1280u

/** A report about one packet that we supposedly sent. The sender is not authenticated. */
struct pmtu_report {
	uint8_t v6;
	uint8_t to[16];              /* destination of that packet */
	uint16_t from_port, to_port; /* UDP ports, host byte order */
	uint32_t packet_bytes;       /* size of that packet with its IP header; exceeds the MTU */
	uint32_t body_bytes_max;     /* largest UDP payload that fits, within the bounds above */
};

/** True if frame[0, len) may be such a message to `me`, by its kind alone: a cheap filter for pollers. */
bool pmtu_wants(const struct frame_addr *me, const uint8_t *frame, unsigned len);

/** Parses frame[0, len), which may be anything. False: another kind, malformed, about a packet that `me` cannot have
 * sent, or about one that fits. */
bool pmtu_read(const struct frame_addr *me, const uint8_t *frame, unsigned len, struct pmtu_report *out);

/** True if the reported packet has the addresses and ports of `path`. */
bool pmtu_matches_path(const struct pmtu_report *news, const struct frame_path *path);

/** True if `path` leads to the same address, by any ports. */
bool pmtu_matches_destination(const struct pmtu_report *news, const struct frame_path *path);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** Resolves MAC addresses of next hops: writes ARP requests (RFC 826) and neighbour solicitations (RFC 4861), and
 * parses replies and announcements. Pure functions: no DPDK, no system call; resolver_wants() runs on pollers, the rest
 * on the control thread. */
#ifndef FAR_NIC_DPDK_RESOLVER_H
#define FAR_NIC_DPDK_RESOLVER_H

#include "nic/dpdk/responder.h"

/** Writes a request of `me` for the MAC address of `ip`, of the same IP version, to out[0, CONTROL_FRAME_BYTES_MAX) and
 * returns its length. Unicast to `mac`; NULL: broadcast (ARP) or solicited-node multicast (ND). */
unsigned resolver_write_request(const struct frame_addr *me, const uint8_t *ip, const uint8_t *mac, uint8_t *out);

/** What a frame states about a neighbour. Not authenticated. */
struct resolver_update {
	uint8_t ip[16];
	uint8_t mac[6];
	bool has_mac;  /* false: the neighbour only confirms that it is reachable */
	bool override; /* override: replaces a different address that is known */
};

/** True if frame[0, len) may carry such an update, by its kind alone: a cheap filter for pollers. Accepts frames to
 * `me` and announcements to all nodes. */
bool resolver_wants(const struct frame_addr *me, const uint8_t *frame, unsigned len);

/** Parses frame[0, len), which may be anything. False: no update in it. */
bool resolver_read(const struct frame_addr *me, const uint8_t *frame, unsigned len, struct resolver_update *out);

#endif

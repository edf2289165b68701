/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Asking for the MAC address of a next hop: ARP requests (RFC 826) and IPv6 neighbour solicitations (RFC 4861), and
 * what is heard of them. Pure: no DPDK, no system call, any thread.
 */
#ifndef FAR_NIC_DPDK_RESOLVER_H
#define FAR_NIC_DPDK_RESOLVER_H

#include "nic/dpdk/responder.h"

/**
 * Writes a question of `me` for the MAC address of `ip`, of the same IP version, to out[0, ANSWER_BYTES_MAX): its
 * length. It goes to `mac`, or to all when that is NULL.
 */
unsigned ask_write(const struct frame_addr *me, const uint8_t *ip, const uint8_t *mac, uint8_t *out);

/** What a frame says of a neighbour; nothing proves it. */
struct ask_news {
	uint8_t ip[16];
	uint8_t mac[6];
	bool has_mac;  /* false: only that the neighbour is there, as it was asked */
	bool replaces; /* what was known before is wrong if it differs */
};

/** Whether frame[0, len) may have news, as far as its kind goes: a cheap look for shards. Beside those to `me` these
 * are announcements to everybody. */
bool ask_wanted(const struct frame_addr *me, const uint8_t *frame, unsigned len);

/** Reads frame[0, len), which may be anything. False: it has no news. */
bool ask_read(const struct frame_addr *me, const uint8_t *frame, unsigned len, struct ask_news *out);

#endif

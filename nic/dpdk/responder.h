/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What an address of our own owes the network beside our packets: ARP (RFC 826), IPv6 neighbour solicitations (RFC
 * 4861) and pings (RFC 792, RFC 4443). Pure: no DPDK, no system call, any thread.
 */
#ifndef FAR_NIC_DPDK_RESPONDER_H
#define FAR_NIC_DPDK_RESPONDER_H

#include "nic/dpdk/frame.h"

/** The longest frame that is answered; and the shortest that is written, as Ethernet wants it. */
#define ANSWER_BYTES_MAX 1536u
#define ANSWER_BYTES_MIN 60u

/** Whether frame[0, len) may be a question to `me`, as far as its kind and addresses go: a cheap look for shards. */
bool answer_wanted(const struct frame_addr *me, const uint8_t *frame, unsigned len);

/**
 * Writes the answer to frame[0, len), which may be anything, to out[0, ANSWER_BYTES_MAX): its length; 0: it gets none.
 */
unsigned answer_write(const struct frame_addr *me, const uint8_t *frame, unsigned len, uint8_t *out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** Replies to ARP requests (RFC 826), neighbour solicitations (RFC 4861) and pings (RFC 792, RFC 4443) for an address
 * that the kernel does not own. Pure functions: no DPDK, no system call; responder_wants() runs on pollers,
 * responder_write() on the control thread. */
#ifndef FAR_NIC_DPDK_RESPONDER_H
#define FAR_NIC_DPDK_RESPONDER_H

#include "nic/dpdk/frame.h"

/** Longest frame that is processed, and shortest frame that is written (Ethernet's minimum). */
#define CONTROL_FRAME_BYTES_MAX 1536u
#define CONTROL_FRAME_BYTES_MIN 60u

/** True if frame[0, len) may be a request to `me`, by its kind and addresses alone: a cheap filter for pollers. */
bool responder_wants(const struct frame_addr *me, const uint8_t *frame, unsigned len);

/** Writes the reply to frame[0, len), which may be anything, to out[0, CONTROL_FRAME_BYTES_MAX). Returns its length; 0:
 * no reply. */
unsigned responder_write(const struct frame_addr *me, const uint8_t *frame, unsigned len, uint8_t *out);

#endif

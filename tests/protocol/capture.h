/* SPDX-License-Identifier: BSD-3-Clause */
/** A classic pcap file, whose Ethernet, IPv4 and UDP headers are made up: end i is 10.0.0.(i + 1), port 7000.
 * Main thread. */
#ifndef PROTOCOL_CAPTURE_H
#define PROTOCOL_CAPTURE_H

#include <stdint.h>

/** Begins the one that there is at a time; ends the program when the file cannot be made. */
void capture_begin(const char *path);
/** `now_ns` is since 1970. */
void capture_packet(unsigned from, unsigned to, uint64_t now_ns, const uint8_t *bytes, uint32_t len);
void capture_end(void);

#endif

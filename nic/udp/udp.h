/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions of the udp driver for `farcall info`, beyond its operation tables. Any thread. */
#ifndef NIC_UDP_H
#define NIC_UDP_H

#include <stddef.h>

/** Writes a report on this machine's sockets, one line per topic, with the setting that changes it: socket buffers,
 * descriptors, segmentation and receive offload, address families. Returns the bytes written, without the final NUL;
 * truncated at `cap`. Makes system calls; any thread. */
size_t nic_udp_advice(char *out, size_t cap);

#endif

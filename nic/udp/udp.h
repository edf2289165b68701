/* SPDX-License-Identifier: BSD-3-Clause */
/** What `farcall info` asks of the driver beyond its tables. */
#ifndef NIC_UDP_H
#define NIC_UDP_H

#include <stddef.h>

/**
 * Advice in words about this machine's sockets, a line each, with the setting that changes it: socket buffers,
 * descriptors, segmentation and receive offload, address families. Returns the bytes written, the final NUL not
 * counted; what does not fit in `cap` is left out. Makes system calls; any thread.
 */
size_t nic_udp_advice(char *out, size_t cap);

#endif

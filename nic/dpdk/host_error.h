/* SPDX-License-Identifier: BSD-3-Clause */
/** Error texts of the files that use no DPDK (host_*.c, xdp/). Any thread. */
#ifndef FAR_NIC_DPDK_HOST_ERROR_H
#define FAR_NIC_DPDK_HOST_ERROR_H

#include "nic/nic.h"

#include <stdarg.h>

/** Formats the text into `err`, if not NULL; returns `error`. */
__attribute__((format(printf, 3, 4))) int host_error(struct nic_err *err, int error, const char *format, ...);

#endif

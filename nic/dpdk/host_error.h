/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FAR_NIC_DPDK_HOST_ERROR_H
#define FAR_NIC_DPDK_HOST_ERROR_H

#include "nic/nic.h"

#include <stdarg.h>

/** Writes the text into `err`, when there is one; returns `error`. */
__attribute__((format(printf, 3, 4))) int host_error(struct nic_err *err, int error, const char *format, ...);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** Error texts of the files without DPDK. Any thread. */
#include "nic/dpdk/host_error.h"
#include "base/text.h"

#include <stdio.h>

int host_error(struct nic_err *err, int error, const char *format, ...)
{
	if (err) {
		va_list args;
		va_start(args, format);
		text_setv(err->text, sizeof err->text, format, args);
		va_end(args);
	}
	return error;
}

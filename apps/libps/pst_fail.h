/* SPDX-License-Identifier: BSD-3-Clause */
/** Fills the error of a failed call. Any thread. */
#ifndef PST_FAIL_H
#define PST_FAIL_H

#include <farcall/status.h>
#include <stdarg.h>
#include <stdio.h>

/** Fills `err`, unless it is NULL, and returns `status`. */
__attribute__((format(printf, 4, 5), cold)) static inline enum far_status
pst_fail(struct far_err *err, enum far_status status, int code, const char *format, ...)
{
	if (err) {
		va_list args;
		va_start(args, format);
		*err = (struct far_err){.status = status, .executed = FAR_EXECUTED_NO, .code = code};
		vsnprintf(err->text, sizeof err->text, format, args);
		va_end(args);
	}
	return status;
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions that fill a struct far_err. Any thread. */
#ifndef FAR_BASE_ERROR_H
#define FAR_BASE_ERROR_H

#include <farcall/status.h>
#include <stdarg.h>

/** Fills `err` (NULL: no-op) with executed NO, code 0 and an empty origin; returns `status`. */
__attribute__((format(printf, 3, 4))) enum far_status err_set(struct far_err *err, enum far_status status,
							      const char *format, ...);
enum far_status err_setv(struct far_err *err, enum far_status status, const char *format, va_list args);

/** The same for a failed system call: appends ": strerror(errno_value)" and sets code. */
__attribute__((format(printf, 3, 4))) enum far_status err_sys(struct far_err *err, int errno_value, const char *format,
							      ...);

#endif

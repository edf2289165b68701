/* SPDX-License-Identifier: BSD-3-Clause */
/** Log lines, to the application's hook or stderr. Any thread; never blocks but in stderr's lock. */
#ifndef FAR_BASE_LOG_H
#define FAR_BASE_LOG_H

#include <farcall/log.h>

/** Logs a line of printf style, cut at 1 KiB, with fields[0, n). */
__attribute__((format(printf, 4, 5))) void log_fields(enum far_log_level level, const struct far_log_field *fields,
						      size_t n, const char *format, ...);
#define log_line(level, ...) log_fields(level, NULL, 0, __VA_ARGS__)

/** The level of a word as FAR_LOG has it. −1: there is none. */
int log_level_of(const char *name);

#endif

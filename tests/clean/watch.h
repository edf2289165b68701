/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Watching a thread: from watch_thread() on it may make the declared system calls only, and neither allocate nor take
 * a lock. What it does all the same is reported on stderr, with a backtrace, and ends the process with WATCH_STATUS.
 * Until the thread ends: a filter of system calls cannot be taken off.
 */
#ifndef WATCH_H
#define WATCH_H

#include "e2e/check.h"

#include <stdbool.h>
#include <stddef.h>

enum { WATCH_STATUS = 3, WATCH_SKIP = 77 };

/** In each process, once, before any thread is watched. */
void watch_init(void);

/** Watches the calling thread. `shared`: it may also sleep on a futex, as threads do that share a driver's token. Ends
 * the process with WATCH_SKIP where the system has no filters. Again: nothing. */
void watch_thread(bool shared);

/** Is the calling thread watched. */
bool watched(void);

/** Writes to stderr, from a watched thread too. */
__attribute__((format(printf, 1, 2))) void watch_print(const char *format, ...);

/** Called by replacements of functions that the path must not call: ends the process if the thread is watched. */
void watch_refuse(const char *function, size_t bytes);

/* Those of check.h, for watched threads. */
#undef CHECK
#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			watch_print("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                      \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)
#undef CHECK_STATUS
#define CHECK_STATUS(call, want, err)                                                                                  \
	do {                                                                                                           \
		enum far_status check_status = (call);                                                                 \
		if (check_status != (want)) {                                                                          \
			watch_print("%s:%d: %s is %s, not %s: %s\n", __FILE__, __LINE__, #call,                        \
				    far_status_name(check_status), far_status_name(want),                              \
				    check_status ? (err)->text : "");                                                  \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** An event loop that watches one descriptor: of epoll, libevent or libuv, as the build picks.
 * Main thread of each process. */
#ifndef LOOP_H
#define LOOP_H

#include <stdbool.h>

/** Calls ready() whenever `fd` is readable, until it returns false, or nothing has been readable for `idle_ms` (0: no
 * limit). false: the latter. */
bool loop_run(int fd, bool (*ready)(void *ctx), void *ctx, int idle_ms);

#endif

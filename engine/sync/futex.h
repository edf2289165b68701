/* SPDX-License-Identifier: BSD-3-Clause */
/** Futex calls: sleep on a word of this process, and wake its sleepers. Any thread; makes system calls. */
#ifndef FAR_SYNC_FUTEX_H
#define FAR_SYNC_FUTEX_H

#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/** Sleeps while *word == expected, until a wake or the absolute CLOCK_MONOTONIC time `until` in ns (TIME_NEVER: no
 * limit). May return early for any reason: the caller checks its condition again. */
static inline void futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t until)
{
	struct timespec ts = {(time_t)(until / UINT64_C(1000000000)), (long)(until % UINT64_C(1000000000))};
	syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, expected, until == TIME_NEVER ? NULL : &ts, NULL,
		FUTEX_BITSET_MATCH_ANY);
}

/** Wakes up to `threads` sleepers of the word. */
static inline void futex_wake(_Atomic uint32_t *word, int threads)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

#endif

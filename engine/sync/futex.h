/* SPDX-License-Identifier: BSD-3-Clause */
/** Sleeping on a word, and waking who sleeps there. The word is private to the process. */
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

/** Sleeps while *word == expected, until woken or the absolute time `until` (TIME_NEVER: none). May return early for
 * any reason. */
static inline void futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t until)
{
	struct timespec ts = {(time_t)(until / UINT64_C(1000000000)), (long)(until % UINT64_C(1000000000))};
	syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, expected, until == TIME_NEVER ? NULL : &ts, NULL,
		FUTEX_BITSET_MATCH_ANY);
}

static inline void futex_wake(_Atomic uint32_t *word, int threads)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

#endif

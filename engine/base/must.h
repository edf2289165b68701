/* SPDX-License-Identifier: BSD-3-Clause */
/** Assertions for programmer errors. must(): also in release builds, off the per-packet path. debug_must(): in debug
 * builds only. Any thread. */
#ifndef FAR_BASE_MUST_H
#define FAR_BASE_MUST_H

_Noreturn void must_fail(const char *what, const char *file, int line);

#define must(condition) ((condition) ? (void)0 : must_fail(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define debug_must(condition) ((void)sizeof(condition))
#else
#define debug_must(condition) must(condition)
#endif

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#endif

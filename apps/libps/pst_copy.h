/* SPDX-License-Identifier: BSD-3-Clause */
/** Copies rows. Any thread. */
#ifndef PST_COPY_H
#define PST_COPY_H

#include <stddef.h>
#include <string.h>

/** Has the line of p soon in this core's cache, to be written. On processors that do not know the instruction it does
 * nothing. */
static inline __attribute__((always_inline)) void pst_prefetch_write(const void *p)
{
#if defined __x86_64__
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
	__builtin_prefetch(p, 1);
#endif
}

/** A copy of whole lines is done in place: a call of memcpy for each row costs as much as the copy. */
static inline __attribute__((always_inline)) void pst_copy_row(void *to, const void *from, size_t bytes)
{
	char *t = to;
	const char *f = from;
	if (bytes == 64)
		memcpy(t, f, 64);
	else if (bytes % 64 == 0 && bytes <= 512)
		for (; bytes; bytes -= 64, t += 64, f += 64)
			memcpy(t, f, 64);
	else
		memcpy(t, f, bytes);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** Copies rows. Any thread. */
#ifndef PST_COPY_H
#define PST_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined __SSE2__
#include <emmintrin.h>
#endif

/** A copy of whole lines, or of one number, is done in place: a call of memcpy for each row costs as much as the copy.
 */
static inline __attribute__((always_inline)) void pst_copy_row(void *to, const void *from, size_t bytes)
{
	char *t = to;
	const char *f = from;
	if (bytes == 64)
		memcpy(t, f, 64);
	else if (bytes == sizeof(float))
		memcpy(t, f, sizeof(float));
	else if (bytes % 64 == 0 && bytes <= 512)
		for (; bytes; bytes -= 64, t += 64, f += 64)
			memcpy(t, f, 64);
	else
		memcpy(t, f, bytes);
}

/** A copy of whole lines past the caches, to memory that another core reads next and has read before: a plain store
 * waits until that core has given the line up. `to` is aligned to 16. pst_stream_end() comes before the memory is given
 * to that core. */
static inline __attribute__((always_inline)) void pst_stream_lines(void *to, const void *from, size_t bytes)
{
#if defined __SSE2__
	__m128i *t = to;
	const __m128i *f = from;
	for (size_t i = 0; i < bytes / sizeof *t; i += 4) {
		_mm_stream_si128(t + i, _mm_loadu_si128(f + i));
		_mm_stream_si128(t + i + 1, _mm_loadu_si128(f + i + 1));
		_mm_stream_si128(t + i + 2, _mm_loadu_si128(f + i + 2));
		_mm_stream_si128(t + i + 3, _mm_loadu_si128(f + i + 3));
	}
#else
	pst_copy_row(to, from, bytes);
#endif
}

static inline void pst_stream_end(void)
{
#if defined __SSE2__
	_mm_sfence();
#endif
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Copies larger bodies past the caches. Poller.
 *
 * The peer has read the lines of a freed block, so a plain store waits until its core has given them up; between cores
 * that share no cache this takes some 200 ns a line. A non-temporal store does not wait, and the peer's prefetchers
 * fetch the lines from memory (perf/NOTES.md, 72).
 */
#include "nic/shm/shm.h"

#include <string.h>

#ifdef __SSE2__

#include <emmintrin.h>

#define LINE 64u

static void copy_line(uint8_t *to, const uint8_t *from)
{
	for (unsigned i = 0; i < LINE; i += sizeof(__m128i))
		_mm_stream_si128((__m128i *)(void *)(to + i),
				 _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}

void shm_tx_copy(void *to, const void *from, size_t len)
{
	uint8_t *at = to;
	const uint8_t *bytes = from;
	size_t head = -(uintptr_t)at % LINE;
	if (len < LINE) {
		memcpy(at, bytes, len);
		return;
	}
	memcpy(at, bytes, head);
	for (at += head, bytes += head, len -= head; len >= LINE; at += LINE, bytes += LINE, len -= LINE)
		copy_line(at, bytes);
	memcpy(at, bytes, len);
	_mm_sfence(); /* before the packet is published */
}

#else

void shm_tx_copy(void *to, const void *from, size_t len)
{
	memcpy(to, from, len);
}

#endif

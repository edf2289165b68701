/* SPDX-License-Identifier: BSD-3-Clause */
/** 64-bit FNV-1a with a final mix, for names of workers and functions and for signatures. Part of the wire protocol.
 * Any thread. */
#ifndef FAR_BASE_HASH_H
#define FAR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t hash64(const void *data, size_t len)
{
	const unsigned char *p = data;
	uint64_t h = UINT64_C(0xcbf29ce484222325);
	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	h ^= h >> 32;
	h *= UINT64_C(0xd6e8feb86659fd93);
	return h ^ h >> 32;
}

#endif

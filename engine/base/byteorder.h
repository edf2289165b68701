/* SPDX-License-Identifier: BSD-3-Clause */
/** Little-endian numbers for what leaves the process: types of 16, 32 and 64 bits without alignment, and numbers of any
 * width. Any thread. */
#ifndef FAR_BASE_BYTEORDER_H
#define FAR_BASE_BYTEORDER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "heads of packets and the elements of tensors are sent as they are in memory: this needs a little-endian machine"
#endif

/* le32, le32_of() and le32_get(), and the same of other widths. */
#define LITTLE_ENDIAN_TYPE(bits)                                                                                       \
	typedef struct {                                                                                               \
		uint8_t b[(bits) / 8];                                                                                 \
	} le##bits;                                                                                                    \
	static inline le##bits le##bits##_of(uint##bits##_t x)                                                         \
	{                                                                                                              \
		le##bits r;                                                                                            \
		memcpy(&r, &x, sizeof r);                                                                              \
		return r;                                                                                              \
	}                                                                                                              \
	static inline uint##bits##_t le##bits##_get(le##bits r)                                                        \
	{                                                                                                              \
		uint##bits##_t x;                                                                                      \
		memcpy(&x, &r, sizeof x);                                                                              \
		return x;                                                                                              \
	}
LITTLE_ENDIAN_TYPE(16)
LITTLE_ENDIAN_TYPE(32)
LITTLE_ENDIAN_TYPE(64)
#undef LITTLE_ENDIAN_TYPE

/** Writes the low `bytes` bytes, [1, 8], of `v`; returns what follows them. */
static inline uint8_t *le_put(uint8_t *p, uint64_t v, size_t bytes)
{
	memcpy(p, &v, bytes);
	return p + bytes;
}

/** Reads a number of `bytes` bytes, [1, 8]. */
static inline uint64_t le_get(const uint8_t *p, size_t bytes)
{
	uint64_t v = 0;
	memcpy(&v, p, bytes);
	return v;
}

#endif

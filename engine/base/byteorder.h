/* SPDX-License-Identifier: BSD-3-Clause */
/** Little-endian numbers of 16, 32 and 64 bits as types without alignment, for what leaves the process. Any thread. */
#ifndef FAR_BASE_BYTEORDER_H
#define FAR_BASE_BYTEORDER_H

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "call headers and the elements of tensors are sent as they are in memory: this needs a little-endian machine"
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

#endif

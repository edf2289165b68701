/* SPDX-License-Identifier: BSD-3-Clause */
/** Big-endian numbers of 16, 32 and 64 bits as types without alignment. Any thread. */
#ifndef FAR_BASE_BYTEORDER_H
#define FAR_BASE_BYTEORDER_H

#include <stdint.h>
#include <string.h>

typedef struct {
	uint8_t b[2];
} be16;
typedef struct {
	uint8_t b[4];
} be32;
typedef struct {
	uint8_t b[8];
} be64;

/* By words: compilers do not always see one in bytes that are shifted. */
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define BE_SWAP(bits, x) (x)
#else
#define BE_SWAP(bits, x) __builtin_bswap##bits(x)
#endif

static inline be16 be16_of(uint16_t x)
{
	be16 r;
	x = BE_SWAP(16, x);
	memcpy(&r, &x, sizeof r);
	return r;
}

static inline be32 be32_of(uint32_t x)
{
	be32 r;
	x = BE_SWAP(32, x);
	memcpy(&r, &x, sizeof r);
	return r;
}

static inline be64 be64_of(uint64_t x)
{
	be64 r;
	x = BE_SWAP(64, x);
	memcpy(&r, &x, sizeof r);
	return r;
}

static inline uint16_t be16_get(be16 b)
{
	uint16_t x;
	memcpy(&x, &b, sizeof x);
	return BE_SWAP(16, x);
}

static inline uint32_t be32_get(be32 b)
{
	uint32_t x;
	memcpy(&x, &b, sizeof x);
	return BE_SWAP(32, x);
}

static inline uint64_t be64_get(be64 b)
{
	uint64_t x;
	memcpy(&x, &b, sizeof x);
	return BE_SWAP(64, x);
}

#endif

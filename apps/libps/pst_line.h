/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * One line of the index: five whole keys and the numbers of their rows. The shard thread that owns the table.
 *
 * The keys are in the line itself, so a lookup costs two cache misses: this line and the row. With tags of eight bits
 * in the line and the keys apart, a lookup has to compare the key in a third line.
 */
#ifndef PST_LINE_H
#define PST_LINE_H

#include <assert.h>
#include <stdint.h>
#if defined __SSE2__
#include <emmintrin.h>
#elif defined __ARM_NEON && defined __aarch64__
#include <arm_neon.h>
#endif

#define PST_LINE_KEYS 5u
#define PST_LINE_FULL 0x155u /* `used` of a full line */
#define PST_OVER_MAX  255u   /* of `over`: it stays there until the segment is rebuilt */

struct pst_line {
	uint64_t key[PST_LINE_KEYS];
	uint32_t row[PST_LINE_KEYS];
	uint16_t used; /* bit 2 * i: key i is there */
	uint8_t over;  /* entries that begin their probe at or before this line and are in a later one */
	uint8_t pad;
};
static_assert(sizeof(struct pst_line) == 64, "one cache line");

/* Each variant returns a mask: bit 2 * i is set if key i is there and equal. */
#if defined __SSE2__
static inline unsigned pst_line_match(const struct pst_line *l, uint64_t key)
{
	__m128i k = _mm_set1_epi64x((long long)key);
	__m128i a = _mm_cmpeq_epi32(_mm_load_si128((const __m128i *)(const void *)&l->key[0]), k);
	__m128i b = _mm_cmpeq_epi32(_mm_load_si128((const __m128i *)(const void *)&l->key[2]), k);
	__m128i c = _mm_cmpeq_epi32(_mm_loadl_epi64((const __m128i *)(const void *)&l->key[4]), k);
	unsigned halves = (unsigned)_mm_movemask_epi8(_mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, c)));
	return halves & halves >> 1 & l->used;
}
#elif defined __ARM_NEON && defined __aarch64__
static inline unsigned pst_line_match(const struct pst_line *l, uint64_t key)
{
	static const uint64_t bits[4] = {1u << 0, 1u << 2, 1u << 4, 1u << 6};
	uint64x2_t k = vdupq_n_u64(key);
	uint64x2_t a = vandq_u64(vceqq_u64(vld1q_u64(&l->key[0]), k), vld1q_u64(&bits[0]));
	uint64x2_t b = vandq_u64(vceqq_u64(vld1q_u64(&l->key[2]), k), vld1q_u64(&bits[2]));
	unsigned last = (unsigned)(l->key[4] == key) << 8;
	return ((unsigned)vaddvq_u64(vorrq_u64(a, b)) | last) & l->used;
}
#else
static inline unsigned pst_line_match(const struct pst_line *l, uint64_t key)
{
	unsigned equal = 0;
	for (unsigned i = 0; i < PST_LINE_KEYS; i++)
		equal |= (unsigned)(l->key[i] == key) << 2 * i;
	return equal & l->used;
}
#endif

/** Position of the first entry of a mask that is not 0. */
static inline unsigned pst_line_first(unsigned mask)
{
	return (unsigned)__builtin_ctz(mask) / 2;
}

#endif

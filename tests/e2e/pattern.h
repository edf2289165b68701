/* SPDX-License-Identifier: BSD-3-Clause */
/** Bytes that depend on their position, made and checked a word at a time: long messages are full of them. */
#ifndef PATTERN_H
#define PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t pattern_word(size_t i, uint64_t seed)
{
	uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + seed;
	return x ^ x >> 29;
}

/** Writes bytes [from, from + len) of the pattern; `from` is a multiple of 8. */
static inline void pattern_fill(void *at, size_t from, size_t len, uint64_t seed)
{
	uint8_t *bytes = at;
	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = pattern_word((from + i) / 8, seed);
		memcpy(bytes + i, &word, len - i < 8 ? len - i : 8);
	}
}

static inline bool pattern_holds(const void *at, size_t len, uint64_t seed)
{
	const uint8_t *bytes = at;
	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = pattern_word(i / 8, seed);
		if (memcmp(bytes + i, &word, len - i < 8 ? len - i : 8) != 0)
			return false;
	}
	return true;
}

#endif

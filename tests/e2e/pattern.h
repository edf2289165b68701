/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Bytes that depend on their position and on a seed, made and checked a word at a time: long messages are full of them.
 * Two seeds have no run of four bytes in common but by chance. Main thread of each process.
 */
#ifndef PATTERN_H
#define PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t pattern_word(size_t i, uint64_t seed)
{
	uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + seed * UINT64_C(0xd1342543de82ef95);
	return x ^ x >> 29;
}

/** Writes bytes [from, from + len) of the pattern; `from` is a multiple of 8. */
static inline void pattern_fill(void *at, size_t from, size_t len, uint64_t seed)
{
	uint8_t *bytes = at;
	size_t i = 0;
	uint64_t word;
	for (; i + 8 <= len; i += 8) {
		word = pattern_word((from + i) / 8, seed);
		memcpy(bytes + i, &word, 8);
	}
	if (i < len) {
		word = pattern_word((from + i) / 8, seed);
		memcpy(bytes + i, &word, len - i);
	}
}

static inline bool pattern_holds(const void *at, size_t len, uint64_t seed)
{
	const uint8_t *bytes = at;
	size_t i = 0;
	uint64_t word, there;
	for (; i + 8 <= len; i += 8) {
		memcpy(&there, bytes + i, 8);
		if (there != pattern_word(i / 8, seed))
			return false;
	}
	word = pattern_word(i / 8, seed);
	return len == i || memcmp(bytes + i, &word, len - i) == 0;
}

#endif

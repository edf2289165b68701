/* SPDX-License-Identifier: BSD-3-Clause */
/** Bytes that follow from a number, to be written and to be recognised. The thread of the simulated world. */
#ifndef SIM_LOAD_BYTES_H
#define SIM_LOAD_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t load_word(uint64_t number, uint64_t i)
{
	uint64_t x = number * UINT64_C(0x9e3779b97f4a7c15) + i;
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static inline void load_fill(uint64_t number, void *at, size_t len)
{
	uint8_t *out = at;
	size_t words = len / 8;
	for (size_t i = 0; i < words; i++) {
		uint64_t word = load_word(number, i);
		memcpy(out + i * 8, &word, 8);
	}
	uint64_t last = load_word(number, words);
	if (len % 8)
		memcpy(out + words * 8, &last, len % 8);
}

static inline bool load_fits(uint64_t number, const void *at, size_t len)
{
	const uint8_t *in = at;
	size_t words = len / 8;
	for (size_t i = 0; i < words; i++) {
		uint64_t word;
		memcpy(&word, in + i * 8, 8);
		if (word != load_word(number, i))
			return false;
	}
	uint64_t last = load_word(number, words);
	return len % 8 == 0 || memcmp(in + words * 8, &last, len % 8) == 0;
}

/* The reply to a request has other bytes than the request. */
#define LOAD_REPLY(number) (~(number))

#endif

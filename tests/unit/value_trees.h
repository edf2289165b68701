/* SPDX-License-Identifier: BSD-3-Clause */
/** Trees of values for tests: memory for reading them, comparing, and making random ones. */
#ifndef VALUE_TREES_H
#define VALUE_TREES_H

#include "value/encoding.h"

/** An arena whose memory comes from malloc, allocated to the byte, so that a sanitizer sees a step beside it. */
struct test_arena {
	struct values_arena arena;
	struct test_block *blocks;
	size_t bytes_max; /* `more` fails beyond it */
	char strings[65536];
};
/** `copied`: strings and customs are copied out of the payload. */
void test_arena_init(struct test_arena *a, bool copied);
void test_arena_fini(struct test_arena *a);

/**
 * Are the two the same value, with the same bytes in every place. Views equal the dense tensors they look like. A
 * custom that was read equals the one that was sent, by its hash and the bytes that test_custom's encode makes.
 */
bool tree_same(const struct far_val *a, const struct far_val *b);

/** Do all bytes of the values lie in [src, src + size), aligned as payloads of that size align them. */
bool tree_inside(const struct far_val *v, size_t n, const uint8_t *src, size_t size, bool strings_inside);

/** A value at random: all types, views, nesting up to `depth`. Its memory is the arena's. */
struct far_val tree_random(uint64_t *seed, unsigned depth, struct test_arena *a);
uint64_t tree_random_u64(uint64_t *seed);

/** Its objects are struct test_object. */
struct test_object {
	uint32_t len;
	uint8_t bytes[60];
};
extern const struct far_custom_type test_custom;
extern unsigned test_custom_alive; /* decoded and not destroyed. Not for several threads */

#endif

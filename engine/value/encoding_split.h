/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Payloads of typed values in pieces: large elements stay in the memory of the application, and the reader finds them
 * where they are. Any thread.
 */
#ifndef FAR_VALUE_ENCODING_SPLIT_H
#define FAR_VALUE_ENCODING_SPLIT_H

#include "value/encoding.h"

#include <stdalign.h>

#define VALUES_PARTS_MAX  4u
#define VALUES_HEAD_BYTES ((size_t)1024) /* for what is no large element */

/** A piece of a payload; the pieces in order are the payload. */
struct values_part {
	const void *at;
	size_t len;
};

/**
 * Splits the payload of checked values: dense elements for which `stays` is true, each at a multiple of 64, stay where
 * they are; the rest is written to head[0, VALUES_HEAD_BYTES), aligned to 64, as the payload is. Returns the number of
 * pieces, parts[0, 4); the first one has all descriptors. 0: no element stays, the rest has no room, the pieces are too
 * many, or the values hold others; `head` is undefined then.
 */
unsigned values_split(const struct far_val *v, size_t n, const struct values_plan *plan,
		      bool (*stays)(const void *at, size_t len), uint8_t *head, struct values_part *parts);

/** Where the pieces of a payload lie that is being read. Lies right before the first one. */
struct values_scattered {
	alignas(64) unsigned n;
	struct {
		const uint8_t *at;
		uint64_t len;
	} part[VALUES_PARTS_MAX];
};

static inline const struct values_scattered *values_scattered_of(const void *first)
{
	return (const struct values_scattered *)first - 1;
}

/** Address of payload bytes [at, at + len), `len` not 0; NULL: they are not in one piece. */
const uint8_t *values_scattered_at(const struct values_scattered *from, uint64_t at, uint64_t len);

#endif

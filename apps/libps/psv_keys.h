/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The keys of an operation: each distinct key once, and their division into requests. Both go on from position to
 * position, so that the first requests can be sent before the last keys are looked at. Their order depends on the keys
 * and the view alone. The thread that has the operation; the one that takes answers over reads the entries of divided
 * keys, which do not change.
 */
#ifndef PSV_KEYS_H
#define PSV_KEYS_H

#include "psv_view.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct psv_keys {
	const uint64_t *keys; /* of the caller; NULL: those from `from` on */
	uint64_t from;
	uint32_t n;
	uint32_t numbered; /* positions that were looked at */
	uint32_t distinct; /* keys of these */
	uint32_t divided;  /* of these: keys that a division has, unless it was one of open keys */
	bool in_order;     /* `order` is that of the numbers: all keys have one slot */
	uint32_t *at;      /* [n]: number of the key at a position, in [0, distinct) */
	uint32_t *first;   /* [distinct]: first position of a key */
	uint32_t *again;   /* [n - distinct]: the other positions, in order */
	uint64_t *key;     /* [distinct], in the order of their first positions */
	uint64_t *hash;    /* [distinct] */
	uint32_t *order;   /* [distinct]: numbers of the keys that a division has, grouped by slot */
	void *slots;       /* [slots_mask + 1], table of distinct keys; NULL: each position is a key */
	uint32_t slots_mask;
};

/** Keys [from, from + n) of the order, for one slot. */
struct psv_chunk {
	uint32_t slot, from, n;
	uint32_t index; /* among the chunks of its slot */
};

struct psv_division {
	struct psv_chunk *chunk; /* [n] */
	uint32_t n;
	uint32_t deepest; /* chunks of the slot that has most */
};

/** Bytes of the memory for n keys, aligned to 64. */
size_t psv_keys_bytes(size_t n, bool merge);

/** `memory` has psv_keys_bytes(). `keys` NULL: those from `first` on. `merge`: equal keys are one; else each position
 * has its own, and a division keeps their order within a slot. n <= FAR_PS_KEYS_MAX. */
void psv_keys_init(struct psv_keys *k, void *memory, const uint64_t *keys, uint64_t first, size_t n, bool merge);

/** Looks at the positions up to `to` <= n. */
void psv_keys_number(struct psv_keys *k, uint32_t to);

/** Room for the chunks of an empty division, which the caller free()s. False: no memory. */
bool psv_division_room(struct psv_division *d, uint32_t chunks);

/** Divides keys by the view and adds chunks of at most `most` keys: those whose `open` is set, [distinct], or, if it is
 * NULL, the distinct keys behind the last division. An empty division without room gets it. False: no memory. */
bool psv_keys_divide(struct psv_keys *k, const bool *open, const struct psv_view *view, uint32_t most,
		     struct psv_division *d);

#endif

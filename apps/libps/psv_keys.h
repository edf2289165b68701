/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The keys of an operation: each distinct key once, and their division into requests. Both go on from position to
 * position, so that the first requests can be sent before the last keys are looked at. Their order depends on the keys
 * and the view alone. The thread that has the operation; the one that takes answers over reads the entries of divided
 * keys, which do not change.
 *
 * Of many keys a table of all distinct ones would miss the caches for each position. They are grouped into parts by
 * their hashes first, and equal keys are found part by part.
 */
#ifndef PSV_KEYS_H
#define PSV_KEYS_H

#include "psv_view.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PSV_KEYS_TABLE UINT16_MAX /* positions whose distinct keys have one table; more are grouped into parts */

/* The work on many keys. `hash` and `order` have the keys and their positions, grouped by part, meanwhile. */
struct psv_parts {
	enum { PSV_PARTS_COUNT, PSV_PARTS_GROUP, PSV_PARTS_FIND, PSV_PARTS_NUMBER } phase;
	uint32_t at;    /* position or, of FIND, entry that comes next */
	uint32_t shift; /* the part of a hash: its upper bits */
	uint32_t *end;  /* [part]: entries; of GROUP: where the next entry goes; of FIND: end of the part */
	uint32_t part;  /* of FIND, as those below: the part, its first entry, its distinct keys so far */
	uint32_t from, found;
};

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
	void *slots;       /* [slots_mask + 1], table of distinct keys, or of those of a part; NULL: each position is a
			      key */
	uint32_t slots_mask;
	struct psv_parts parts; /* of more than PSV_KEYS_TABLE keys with a table */
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
	bool short_first; /* of a slot the first chunk has what the others, of `most` keys, leave: set before */
};

/** Bytes of the memory for n keys, aligned to 64. */
size_t psv_keys_bytes(size_t n, bool merge);

/** `memory` has psv_keys_bytes(). `keys` NULL: those from `first` on. `merge`: equal keys are one; else each position
 * has its own, and a division keeps their order within a slot. n <= FAR_PS_KEYS_MAX. */
void psv_keys_init(struct psv_keys *k, void *memory, const uint64_t *keys, uint64_t first, size_t n, bool merge);

/** Looks at the positions up to `to` <= n, with n <= PSV_KEYS_TABLE or without a merge. */
void psv_keys_number(struct psv_keys *k, uint32_t to);

/** Looks at all positions, for a fraction of a millisecond. True: there is more to do, and `numbered` < n. */
bool psv_keys_go_on(struct psv_keys *k);

/** Room for the chunks of an empty division, which the caller free()s. False: no memory. */
bool psv_division_room(struct psv_division *d, uint32_t chunks);

/** Divides keys by the view and adds chunks of at most `most` keys: those whose `open` is set, [distinct], or, if it is
 * NULL, the distinct keys behind the last division. An empty division without room gets it. False: no memory. */
bool psv_keys_divide(struct psv_keys *k, const bool *open, const struct psv_view *view, uint32_t most,
		     struct psv_division *d);

#endif

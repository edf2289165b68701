/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Admission: counts the pushes to keys that have no row yet; a key gets its row with the n-th.
 * The shard thread that owns the table.
 *
 * A set of eight candidates takes one line. A candidate is the lower 56 bits of the key's hash, whose upper bits choose
 * the set, and the count: no two keys share one. A key is admitted exactly at its n-th push as long as its set has
 * room. In a full set a new key takes the place of the candidate with the lowest count (of equal ones, the first),
 * which then begins at 1 again: a key is never admitted early. The memory is fixed.
 */
#ifndef PST_ADMIT_H
#define PST_ADMIT_H

#include "pst_memory.h"
#include <stdbool.h>
#include <stdint.h>

#define PST_ADMIT_WAYS 8u
#define PST_ADMIT_MAX  255u /* pushes */

struct pst_admit_set {
	uint64_t candidate[PST_ADMIT_WAYS]; /* hash << 8 | count; 0: free */
};

struct pst_admit {
	struct pst_admit_set *set; /* [1 << bits] */
	unsigned bits;             /* at least 8 */
	size_t bytes;
	const struct pst_memory *memory;
};

/** Room for at least `candidates` keys. 0 or -ENOMEM. */
int pst_admit_init(struct pst_admit *a, uint64_t candidates, const struct pst_memory *memory);
void pst_admit_fini(struct pst_admit *a);

/* What one pst_admit_push changed. */
struct pst_admit_undo {
	uint64_t *candidate;
	uint64_t was;
};

/** Counts a push to the key of a hash. Returns true, and forgets the key, if it is its n-th. `n` in [2, PST_ADMIT_MAX].
 */
bool pst_admit_push(struct pst_admit *a, uint64_t hash, unsigned n, struct pst_admit_undo *undo);

/** Pushes counted for the key of a hash. */
unsigned pst_admit_count(const struct pst_admit *a, uint64_t hash);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** Counts the pushes to keys without a row. The thread that owns the table. */
#include "pst_admit.h"

#include <errno.h>

int pst_admit_init(struct pst_admit *a, uint64_t candidates, const struct pst_memory *memory)
{
	*a = (struct pst_admit){.bits = 8, .memory = memory};
	while (a->bits < 40 && (UINT64_C(1) << a->bits) * PST_ADMIT_WAYS < candidates)
		a->bits++;
	size_t bytes = sizeof *a->set << a->bits;
	a->bytes = (bytes + PST_HUGE_BYTES - 1) & ~(PST_HUGE_BYTES - 1);
	a->set = memory->get(memory->ctx, a->bytes, PST_PAGES_SMALL);
	return a->set ? 0 : -ENOMEM;
}

void pst_admit_fini(struct pst_admit *a)
{
	if (a->set)
		a->memory->put(a->memory->ctx, a->set, a->bytes, PST_PAGES_SMALL);
	a->set = NULL;
}

static uint64_t *find(const struct pst_admit *a, uint64_t hash)
{
	struct pst_admit_set *s = &a->set[hash >> (64 - a->bits)];
	for (unsigned i = 0; i < PST_ADMIT_WAYS; i++)
		if (s->candidate[i] >> 8 == (hash & UINT64_MAX >> 8) && (s->candidate[i] & 255))
			return &s->candidate[i];
	return NULL;
}

/* A free place, else that of the lowest count. */
static uint64_t *place(const struct pst_admit *a, uint64_t hash)
{
	struct pst_admit_set *s = &a->set[hash >> (64 - a->bits)];
	uint64_t *lowest = &s->candidate[0];
	for (unsigned i = 1; i < PST_ADMIT_WAYS; i++)
		if ((s->candidate[i] & 255) < (*lowest & 255))
			lowest = &s->candidate[i];
	return lowest;
}

bool pst_admit_push(struct pst_admit *a, uint64_t hash, unsigned n, struct pst_admit_undo *undo)
{
	uint64_t *c = find(a, hash);
	unsigned count = c ? (unsigned)(*c & 255) + 1 : 1;
	if (!c)
		c = place(a, hash);
	*undo = (struct pst_admit_undo){c, *c};
	*c = count >= n ? 0 : hash << 8 | count;
	return count >= n;
}

unsigned pst_admit_count(const struct pst_admit *a, uint64_t hash)
{
	const uint64_t *c = find(a, hash);
	return c ? (unsigned)(*c & 255) : 0;
}

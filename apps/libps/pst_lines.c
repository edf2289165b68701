/* SPDX-License-Identifier: BSD-3-Clause */
/** Allocates blocks of lines for the index. The thread that owns the table. */
#include "pst_lines.h"

#include <assert.h>

#define MAP_LINES 64u /* at the start of a slab */

/* At the start of a free block. */
struct links {
	uint32_t prev, next; /* PST_LINES_NONE: none */
};

void pst_lines_init(struct pst_lines *l, const struct pst_memory *memory)
{
	*l = (struct pst_lines){.top = 0};
	pst_slabs_init(&l->slabs, PST_LINES_BYTES, memory);
	assert(l->slabs.shift == PST_LINES_SHIFT);
}

void pst_lines_fini(struct pst_lines *l)
{
	pst_slabs_fini(&l->slabs);
}

static uint64_t *map_of(const struct pst_lines *l, uint32_t line)
{
	uint32_t in_slab = line & ((1u << PST_LINES_SHIFT) - 1);
	uint64_t *maps = pst_lines_at(l, line - in_slab);
	return &maps[in_slab / PST_LINES_BLOCK];
}

static uint64_t bits_of(uint32_t block, unsigned class)
{
	uint64_t all = class == PST_LINES_CLASSES - 1 ? UINT64_MAX : (UINT64_C(1) << (1u << class)) - 1;
	return all << (block % PST_LINES_BLOCK);
}

static void list(struct pst_lines *l, uint32_t block, unsigned class)
{
	struct links *links = pst_lines_at(l, block);
	*links = (struct links){.prev = PST_LINES_NONE, .next = l->lists[class]};
	if (links->next)
		((struct links *)pst_lines_at(l, links->next))->prev = block;
	l->lists[class] = block;
	*map_of(l, block) |= bits_of(block, class);
	l->free += UINT64_C(1) << class;
}

static void unlist(struct pst_lines *l, uint32_t block, unsigned class)
{
	struct links *links = pst_lines_at(l, block);
	if (links->prev)
		((struct links *)pst_lines_at(l, links->prev))->next = links->next;
	else
		l->lists[class] = links->next;
	if (links->next)
		((struct links *)pst_lines_at(l, links->next))->prev = links->prev;
	*map_of(l, block) &= ~bits_of(block, class);
	l->free -= UINT64_C(1) << class;
}

/* A block of the largest class that was never used. */
static uint32_t extend(struct pst_lines *l)
{
	uint32_t in_slab = l->top & ((1u << PST_LINES_SHIFT) - 1);
	uint32_t block = in_slab ? l->top : l->top + MAP_LINES;
	if (block > UINT32_MAX - PST_LINES_BLOCK || pst_slabs_reserve(&l->slabs, (uint64_t)block + PST_LINES_BLOCK))
		return PST_LINES_NONE;
	l->top = block + PST_LINES_BLOCK;
	pst_slabs_used(&l->slabs, l->top);
	return block;
}

uint32_t pst_lines_get(struct pst_lines *l, unsigned class)
{
	unsigned from = class;
	while (from < PST_LINES_CLASSES && !l->lists[from])
		from++;
	uint32_t block;
	if (from < PST_LINES_CLASSES) {
		block = l->lists[from];
		unlist(l, block, from);
	} else {
		from = PST_LINES_CLASSES - 1;
		block = extend(l);
		if (!block)
			return PST_LINES_NONE;
	}
	while (from > class) {
		from--;
		list(l, block + (UINT32_C(1) << from), from);
	}
	return block;
}

void pst_lines_put(struct pst_lines *l, uint32_t block, unsigned class)
{
	for (; class < PST_LINES_CLASSES - 1; class ++) {
		uint32_t buddy = block ^ (UINT32_C(1) << class);
		uint64_t bits = bits_of(buddy, class);
		if ((*map_of(l, buddy) & bits) != bits)
			break;
		unlist(l, buddy, class);
		block &= ~(UINT32_C(1) << class);
	}
	list(l, block, class);
}

size_t pst_lines_bytes(const struct pst_lines *l)
{
	return pst_slabs_bytes(&l->slabs, l->top);
}

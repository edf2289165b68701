/* SPDX-License-Identifier: BSD-3-Clause */
#include "nic/shm/shm_bulk.h"

#include <errno.h>
#include <sys/mman.h>

enum bulk_state { BULK_INNER, BULK_FREE, BULK_QUICK, BULK_USED };

#define STATE(s, order) ((uint8_t)((s) << 5 | (order)))
#define STATE_OF(x)     ((x) >> 5)
#define ORDER_OF(x)     ((x)&31u)

int shm_bulk_init(struct shm_bulk *b)
{
	/* Untouched parts of the table cost address space only. */
	b->map_bytes = SHM_BLOCKS * (size_t)(2 * sizeof(uint32_t) + 1);
	void *m = mmap(NULL, b->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m == MAP_FAILED)
		return -ENOMEM;
	b->next = m;
	b->prev = b->next + SHM_BLOCKS;
	b->state = (uint8_t *)(b->prev + SHM_BLOCKS);
	for (unsigned i = 0; i < SHM_ORDERS; i++)
		b->free_head[i] = SHM_NIL;
	for (unsigned i = 0; i <= SHM_QUICK_ORDER; i++) {
		b->quick_head[i] = SHM_NIL;
		b->quick_n[i] = 0;
	}
	b->in_use = 0;
	b->started = false;
	return 0;
}

void shm_bulk_fini(struct shm_bulk *b)
{
	if (b->next)
		munmap(b->next, b->map_bytes);
	b->next = NULL;
}

static void list_push(struct shm_bulk *b, uint32_t block, unsigned order)
{
	uint32_t head = b->free_head[order];
	b->next[block] = head;
	b->prev[block] = SHM_NIL;
	if (head != SHM_NIL)
		b->prev[head] = block;
	b->free_head[order] = block;
	b->state[block] = STATE(BULK_FREE, order);
}

static void list_remove(struct shm_bulk *b, uint32_t block, unsigned order)
{
	uint32_t next = b->next[block], prev = b->prev[block];
	if (next != SHM_NIL)
		b->prev[next] = prev;
	if (prev != SHM_NIL)
		b->next[prev] = next;
	else
		b->free_head[order] = next;
	b->state[block] = STATE(BULK_INNER, 0);
}

static void start(struct shm_bulk *b)
{
	list_push(b, 0, SHM_ORDERS - 1);
	b->started = true;
}

static void merge(struct shm_bulk *b, uint32_t block, unsigned order)
{
	while (order < SHM_ORDERS - 1) {
		uint32_t buddy = block ^ (1u << order);
		if (b->state[buddy] != STATE(BULK_FREE, order))
			break;
		list_remove(b, buddy, order);
		b->state[block] = STATE(BULK_INNER, 0);
		block &= ~(1u << order);
		order++;
	}
	list_push(b, block, order);
}

static void quick_flush(struct shm_bulk *b)
{
	for (unsigned order = 0; order <= SHM_QUICK_ORDER; order++) {
		while (b->quick_head[order] != SHM_NIL) {
			uint32_t block = b->quick_head[order];
			b->quick_head[order] = b->next[block];
			merge(b, block, order);
		}
		b->quick_n[order] = 0;
	}
}

static uint32_t split(struct shm_bulk *b, unsigned order)
{
	unsigned have = order;
	while (have < SHM_ORDERS && b->free_head[have] == SHM_NIL)
		have++;
	if (have == SHM_ORDERS)
		return SHM_NIL;
	uint32_t block = b->free_head[have];
	list_remove(b, block, have);
	while (have > order) {
		have--;
		list_push(b, block + (1u << have), have);
	}
	return block;
}

uint32_t shm_bulk_alloc(struct shm_bulk *b, uint64_t bytes)
{
	if (bytes > SHM_BODY_MAX || b->in_use == SHM_RETURNS)
		return SHM_NIL;
	uint32_t blocks = bytes ? (uint32_t)((bytes + SHM_BLOCK - 1) / SHM_BLOCK) : 1;
	unsigned order = blocks == 1 ? 0 : 32u - (unsigned)__builtin_clz(blocks - 1);
	uint32_t block;

	if (!b->started)
		start(b);
	if (order <= SHM_QUICK_ORDER && (block = b->quick_head[order]) != SHM_NIL) {
		b->quick_head[order] = b->next[block];
		b->quick_n[order]--;
	} else {
		block = split(b, order);
		if (block == SHM_NIL) {
			quick_flush(b);
			block = split(b, order);
			if (block == SHM_NIL)
				return SHM_NIL;
		}
	}
	b->state[block] = STATE(BULK_USED, order);
	b->in_use++;
	return block;
}

bool shm_bulk_free(struct shm_bulk *b, uint32_t block)
{
	if (block >= SHM_BLOCKS || STATE_OF(b->state[block]) != BULK_USED)
		return false;
	unsigned order = ORDER_OF(b->state[block]);
	b->in_use--;
	if (order <= SHM_QUICK_ORDER && b->quick_n[order] < SHM_QUICK_MAX) {
		b->next[block] = b->quick_head[order];
		b->quick_head[order] = block;
		b->quick_n[order]++;
		b->state[block] = STATE(BULK_QUICK, order);
	} else {
		merge(b, block, order);
	}
	return true;
}

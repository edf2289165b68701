/* SPDX-License-Identifier: BSD-3-Clause */
/** The allocator of a direction's bulk area. Poller of the producing queue; init and fini: control thread. */
#include "nic/shm/shm_bulk.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum bulk_state { BULK_INNER, BULK_FREE, BULK_QUICK, BULK_USED };

#define STATE(s, order) ((uint8_t)((s) << 5 | (order)))
#define STATE_OF(x)     ((x) >> 5)
#define ORDER_OF(x)     ((x)&31u)

int shm_bulk_init(struct shm_bulk *b, uint8_t *area, const struct nic_budget *budget)
{
	b->area = area;
	b->budget = budget;
	/* Untouched parts of the table cost only address space. */
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
		b->quick_n[i] = b->used_n[i] = 0;
	}
	b->in_use = 0;
	b->started = b->refused = false;
	return 0;
}

static uint64_t counted_bytes(const struct shm_bulk *b)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < SHM_PIECES / 64; i++)
		n += (uint64_t)__builtin_popcountll(b->counted[i]);
	return n * SHM_PIECE;
}

void shm_bulk_fini(struct shm_bulk *b)
{
	if (b->budget)
		b->budget->give(counted_bytes(b));
	memset(b->counted, 0, sizeof b->counted);
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

/* Counts pieces [first, last] in the budget, unless counted already; false: the budget is exhausted. */
__attribute__((noinline, cold)) static bool count(struct shm_bulk *b, uint32_t first, uint32_t last)
{
	uint64_t fresh = 0;
	for (uint32_t i = first; i <= last; i++)
		fresh += !(b->counted[i / 64] >> i % 64 & 1);
	if (b->budget && !b->budget->take(fresh * SHM_PIECE)) {
		if (b->in_use || last > 0)
			return false;
		b->budget->force(SHM_PIECE);
	}
	for (uint32_t i = first; i <= last; i++)
		b->counted[i / 64] |= UINT64_C(1) << i % 64;
	return true;
}

static bool is_counted(struct shm_bulk *b, uint32_t block, uint32_t blocks)
{
	uint32_t per = SHM_PIECE / SHM_BLOCK, first = block / per, last = (block + blocks - 1) / per;
	bool all = true;
	for (uint32_t i = first; i <= last; i++)
		all &= b->counted[i / 64] >> i % 64 & 1;
	return all || count(b, first, last);
}

void shm_bulk_trim(struct shm_bulk *b)
{
	if (b->in_use || !b->started)
		return;
	b->refused = false;
	quick_flush(b);
	uint64_t first = b->counted[0] & 1, rest = counted_bytes(b) - first * SHM_PIECE;
	if (rest == 0)
		return;
	if (b->area && madvise(b->area + SHM_PIECE, SHM_BULK_BYTES - SHM_PIECE, MADV_REMOVE) < 0)
		return;
	if (b->budget)
		b->budget->give(rest);
	memset(b->counted, 0, sizeof b->counted);
	b->counted[0] = first;
}

static bool takes_turns(unsigned order)
{
	return order >= SHM_TURN_ORDER && order <= SHM_QUICK_ORDER;
}

/* True if another block is to join those that take turns. */
static bool turn_is_short(const struct shm_bulk *b, unsigned order)
{
	uint32_t most = (uint32_t)(SHM_TURN_BYTES / SHM_BLOCK) >> order;
	return takes_turns(order) && !b->refused &&
	       b->quick_n[order] + b->used_n[order] < (most < SHM_QUICK_MAX ? most : SHM_QUICK_MAX);
}

static uint32_t quick_take(struct shm_bulk *b, unsigned order)
{
	uint32_t block = order <= SHM_QUICK_ORDER ? b->quick_head[order] : SHM_NIL;
	if (block != SHM_NIL) {
		b->quick_head[order] = b->next[block];
		b->quick_n[order]--;
	}
	return block;
}

static void quick_put(struct shm_bulk *b, uint32_t block, unsigned order)
{
	bool last = takes_turns(order) && b->quick_head[order] != SHM_NIL;
	b->next[block] = last ? SHM_NIL : b->quick_head[order];
	if (last)
		b->next[b->quick_tail[order]] = block;
	else
		b->quick_head[order] = block;
	b->quick_tail[order] = block;
	b->quick_n[order]++;
	b->state[block] = STATE(BULK_QUICK, order);
}

static uint32_t used(struct shm_bulk *b, uint32_t block, unsigned order)
{
	if (block == SHM_NIL)
		return SHM_NIL;
	b->state[block] = STATE(BULK_USED, order);
	if (order <= SHM_QUICK_ORDER)
		b->used_n[order]++;
	return block;
}

static void unused(struct shm_bulk *b, unsigned order)
{
	if (order <= SHM_QUICK_ORDER)
		b->used_n[order]--;
}

static uint32_t take(struct shm_bulk *b, unsigned order)
{
	uint32_t block = turn_is_short(b, order) ? split(b, order) : SHM_NIL;
	if (block == SHM_NIL)
		block = quick_take(b, order);
	if (block == SHM_NIL)
		block = split(b, order);
	if (block == SHM_NIL) {
		quick_flush(b);
		block = split(b, order);
	}
	return used(b, block, order);
}

/* The budget has no room for the pieces of the block. Takes one that was used before; if no block is in use, returns
 * all counted pieces and allocates from the beginning of the area. */
__attribute__((noinline, cold)) static uint32_t take_again(struct shm_bulk *b, uint32_t block, unsigned order,
							   uint32_t blocks)
{
	unused(b, order);
	merge(b, block, order);
	b->refused = true;
	if ((block = quick_take(b, order)) != SHM_NIL)
		return used(b, block, order);
	shm_bulk_trim(b);
	if (b->in_use || (block = take(b, order)) == SHM_NIL || is_counted(b, block, blocks))
		return b->in_use ? SHM_NIL : block;
	unused(b, order);
	merge(b, block, order);
	return SHM_NIL;
}

uint32_t shm_bulk_alloc(struct shm_bulk *b, uint64_t bytes)
{
	if (bytes > SHM_BODY_MAX || b->in_use == SHM_RETURNS)
		return SHM_NIL;
	uint32_t blocks = bytes ? (uint32_t)((bytes + SHM_BLOCK - 1) / SHM_BLOCK) : 1;
	unsigned order = blocks == 1 ? 0 : 32u - (unsigned)__builtin_clz(blocks - 1);
	if (!b->started)
		start(b);
	uint32_t block = take(b, order);
	if (block != SHM_NIL && __builtin_expect(!is_counted(b, block, blocks), 0))
		block = take_again(b, block, order, blocks);
	b->in_use += block != SHM_NIL;
	return block;
}

bool shm_bulk_free(struct shm_bulk *b, uint32_t block)
{
	if (block >= SHM_BLOCKS || STATE_OF(b->state[block]) != BULK_USED)
		return false;
	unsigned order = ORDER_OF(b->state[block]);
	b->in_use--;
	unused(b, order);
	if (order <= SHM_QUICK_ORDER && b->quick_n[order] < SHM_QUICK_MAX)
		quick_put(b, block, order);
	else
		merge(b, block, order);
	return true;
}

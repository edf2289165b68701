/* SPDX-License-Identifier: BSD-3-Clause */
/** An allocator that counts, and fails on request; keys of chosen hashes; a generator of numbers. The test's thread. */
#ifndef PST_FIXTURE_H
#define PST_FIXTURE_H

#include "apps/libps/pst_memory.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct fake_memory {
	struct pst_memory memory;
	size_t bytes;     /* held */
	uint64_t blocks;  /* held */
	uint64_t gets;    /* so far */
	uint64_t fail_at; /* `gets` at which one fails; 0: none */
};

static inline void *fake_get(void *ctx, size_t bytes, enum pst_pages pages)
{
	struct fake_memory *f = ctx;
	if (++f->gets == f->fail_at)
		return NULL;
	void *p = pst_memory_default.get(NULL, bytes, pages);
	/* A block of the heap is not zero. */
	if (p && pages == PST_PAGES_HEAP)
		memset(p, 0xa5, bytes);
	f->bytes += bytes;
	f->blocks++;
	return p;
}

static inline void fake_put(void *ctx, void *p, size_t bytes, enum pst_pages pages)
{
	struct fake_memory *f = ctx;
	f->bytes -= bytes;
	f->blocks--;
	pst_memory_default.put(NULL, p, bytes, pages);
}

static inline void fake_memory_init(struct fake_memory *f)
{
	*f = (struct fake_memory){.memory = {.get = fake_get, .put = fake_put, .ctx = f}};
}

/* The key of a hash: pst_hash backwards. */
static inline uint64_t key_of(uint64_t hash)
{
	uint64_t x = hash ^ hash >> 33;
	x *= UINT64_C(0x9cb4b2f8129337db);
	x ^= x >> 33;
	x *= UINT64_C(0x4f74430c22a54005);
	return x ^ x >> 33;
}

/* Steele, Lea and Flood's SplitMix. */
static inline uint64_t draw64(uint64_t *state)
{
	uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static inline float draw_float(uint64_t *state, float low, float high)
{
	return low + (high - low) * (float)(draw64(state) >> 40) * 0x1p-24f;
}

#endif

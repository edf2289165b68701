/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Large memory of the engine, from a replaceable allocator (<farcall/memory.h>). Any thread. The first allocation fixes
 * the allocator: the one set by far_memory_allocator(), else the page runs of this library.
 */
#ifndef FAR_MEMORY_MEM_H
#define FAR_MEMORY_MEM_H

#include <farcall/memory.h>

/** Allocates at least `bytes` at a multiple of `align`, a power of two from 64 to FAR_MEMORY_ALIGN_MAX; NULL: no
 * memory. May lock and make system calls. */
void *mem_alloc(size_t bytes, size_t align);
void mem_free(void *p);

#endif

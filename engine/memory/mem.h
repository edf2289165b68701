/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The seam between the engine and the allocator of large memory, see <farcall/memory.h>. The first allocation fixes
 * which allocator it is: the one given to far_memory_allocator(), else the page runs of this library.
 */
#ifndef FAR_MEMORY_MEM_H
#define FAR_MEMORY_MEM_H

#include <farcall/memory.h>

/** At least `bytes` at a multiple of `align`, a power of two from 64 to FAR_MEMORY_ALIGN_MAX, or NULL. Any thread; may
 * lock and make system calls. */
void *mem_alloc(size_t bytes, size_t align);
void mem_free(void *p);

#endif

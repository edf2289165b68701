/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The memory budget of the process: one count of all memory that grows with traffic and peers, bounded by
 * FAR_MEMORY_MAX, far_memory_limit(), or half of the machine or container. Any thread. In a container with a memory
 * limit the room that is left bounds it as well, since other processes and the application share it.
 *
 *   counted and refused beyond the bound   slabs, page runs (in use and retained), rings and bulk pages of shm
 *   counted, and never refused             sets and messages of transport connections, fiber stacks: they cannot fail
 *                                          where they are taken
 *   not counted                            futures, the tables of a shard, records of peers and sessions, the receive
 *                                          buffers of NIC drivers (fixed at start), the application, the kernel's
 *                                          buffers: the other half of the memory is for them
 *
 * Large takers leave 1/FAR_MEMORY_SLAB_SHARE of the bound to the small ones.
 */
#ifndef FAR_MEMORY_BUDGET_H
#define FAR_MEMORY_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Start only ---- */

/** Sets the bound in bytes, and finds the container; `self` and `root` as for container_find(). Once, before any other
 * function. */
void budget_begin(uint64_t bound, const char *self, const char *root);

/* ---- Any thread ---- */

/** Counts `bytes`; false, without counting: the bound or the container has no room. Without a container one atomic
 * operation; in one it reads files when the credit of the last reading is used up or old. */
bool budget_take(uint64_t bytes);

/**
 * The same for pages [at, at + bytes) of anonymous memory, `fresh` bytes of them are not backed yet. If the container
 * has little room left they are backed on return, so that two processes cannot get the same room. May sleep.
 */
bool budget_take_pages(void *at, uint64_t bytes, uint64_t fresh);

/** Counts memory that cannot be refused. */
void budget_force(uint64_t bytes);
/** Uncounts `bytes`. */
void budget_give(uint64_t bytes);

/** True if freed memory should be returned to the system: a request was refused, and the use has not fallen since. */
bool budget_is_short(void);

/** Records a refusal by the region, which has no address space left. */
void budget_refuse(void);

/** Bytes of freed pages that may be retained for the next use. */
uint64_t budget_retained_max(void);

/** Bytes counted. */
uint64_t budget_used(void);

/** Writes the text of a refusal with the remedy: "64.0 MiB requested, 12 of at most 48 MiB are in use; ...". */
void budget_text(char *out, size_t cap, uint64_t wanted);
#define BUDGET_TEXT_MAX 192

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The memory budget of the process: one count of everything in memory that grows with traffic and peers, bounded by
 * FAR_MEMORY_MAX, far_memory_limit(), or half of the machine or container. Within a container whose memory is limited
 * the room that is really left counts as well, since other processes and the application share it.
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

/** Sets the bound, and finds the container. Once, before any other function. */
void budget_begin(uint64_t bound, const char *self, const char *root);

/** Counts `bytes`: false, and nothing is counted, when the bound or the container has no room. Any thread. Without a
 * container one atomic operation; within one, files are read when the credit of the last reading is used up or old. */
bool budget_take(uint64_t bytes);

/**
 * The same for pages [at, at + bytes) of anonymous memory, `fresh` bytes of which are not backed yet. They are backed
 * on return when the container has little room left, so that two processes cannot be promised the same. May sleep.
 */
bool budget_take_pages(void *at, uint64_t bytes, uint64_t fresh);

/** Counts what cannot be refused. Any thread. */
void budget_force(uint64_t bytes);
void budget_give(uint64_t bytes);

/** Freed memory should go back to the system: something was refused lately, and the room has not returned. */
bool budget_is_short(void);

/** The region has no address space for what is asked: the bound is reached by what lies in its way. */
void budget_refuse(void);

/** Bytes of freed pages that may be kept for the next use. */
uint64_t budget_retained_max(void);

uint64_t budget_used(void);

/** "64.0 MiB asked for, 12 of at most 48 MiB are in use; ...", with the remedy, for an error. */
void budget_text(char *out, size_t cap, uint64_t asked);
#define BUDGET_TEXT_MAX 192

#endif

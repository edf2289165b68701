/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory of this process that peers on the host may map: each one a memfd, sealed against shrinking, growing and new
 * writable mappings, so that a peer reads it without SIGBUS and cannot write it. Any thread. far_alloc_shared()
 * allocates it, the shm driver passes the descriptors.
 *
 * A memory has a key: its slot in the table below, and a number that no later memory of that slot has. So a key that a
 * peer still holds never names other bytes than it did.
 */
#ifndef FAR_BASE_SHARED_H
#define FAR_BASE_SHARED_H

#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHARED_OFFSET_BITS 40u /* of a reference: key above offset */
#define SHARED_BYTES_MAX   (UINT64_C(1) << SHARED_OFFSET_BITS)
#define SHARED_KEY_END     (1u << 24) /* keys are in [FAR_SHARED_MAX, SHARED_KEY_END) */
#define SHARED_SLOT(key)   ((key) % FAR_SHARED_MAX)

/* ---- These lock and make system calls ---- */

/** Allocates `bytes` of zeros, whole pages, [1, SHARED_BYTES_MAX]. NULL: the kernel refuses a sealed memfd, or
 * FAR_SHARED_MAX are in use; `*error` is the -errno. */
void *shared_alloc(size_t bytes, int *error);
/** Frees it; false: `at` is not the first byte of one. Its key is stale from now on. */
bool shared_free(void *at);
/** Duplicates the descriptor of a memory, close-on-exec. -ESTALE: there is none with this key; -errno. */
int shared_fd(uint32_t key, uint64_t *bytes);
/** Writes 1 to eventfd `fd` whenever a memory is freed, until shared_unwatch(). -ENOSPC: too many do. */
int shared_watch(int fd);
void shared_unwatch(int fd);

/* ---- These neither lock nor make system calls ---- */

/** Finds the memory that holds [at, at + len); false: none does. The memory must not be freed meanwhile. */
bool shared_find(const void *at, size_t len, uint32_t *key, uint64_t *offset);
/** Bytes of the memory that begins at `at`; 0: none does. */
size_t shared_size(const void *at);
/** Key of the memory in a slot; 0: none. */
uint32_t shared_key(unsigned slot);

#endif

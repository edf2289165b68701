/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Buffers counted by reference: results that outlive their receive buffer, arguments handed over between threads,
 * answers that wait.
 *
 * Up to BUF_SLAB_MAX bytes they are slabs of the region: classes of powers of two, each a lock-free last-in-first-out
 * list that grows out of the region and never shrinks. Taking one makes no system call and takes no lock. Larger ones
 * come from the allocator behind memory/mem.h, which may do both, and gives their pages back. When the region is used
 * up, allocation fails and the call that needed it ends with FAR_RESOURCE.
 */
#ifndef FAR_MEMORY_BUF_H
#define FAR_MEMORY_BUF_H

#include <farcall/value.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define BUF_CLASS_MIN 8u  /* 256 bytes */
#define BUF_CLASS_MAX 21u /* 2 MiB: a message of 1 MiB and its head fit */
#define BUF_SLAB_MAX  ((size_t)1 << BUF_CLASS_MAX)
#define BUF_IN_FUTURE 1u     /* kind: the head of a struct far_future, which holds the bytes itself */
#define BUF_LARGE     2u     /* kind: memory of the allocator */
#define BUF_TREE      0x100u /* in `kind`, beside the class: it holds a decoded tree, see tree.h */
#define BUF_RREFS     0x200u /* likewise: it holds references */

struct far_buf {
	_Atomic uint32_t
		refs;  /* any thread; the release that reaches 0 pairs with the acquire of the thread that frees */
	uint32_t kind; /* BUF_IN_FUTURE, BUF_LARGE, or the class of a slab */
};

/** At least `bytes` with one reference, or NULL. Data is aligned to 64 bytes. Beyond BUF_SLAB_MAX it may lock and make
 * system calls. */
struct far_buf *buf_alloc(size_t bytes);
void *buf_data(struct far_buf *b);

/** The buffer of a slab's data, which has one reference; else it ends the process. */
struct far_buf *buf_of(void *data);
/** Bytes that fit a slab's data; 0 when it is no slab in use. */
size_t buf_slab_bytes(const void *data);
/** Bytes of the slabs in use, by a walk over the free ones: exact when nobody allocates meanwhile. */
uint64_t buf_slabs_used(void);
/** A pooled buffer as a number other than 0, and back: half the bytes of a pointer. */
uint32_t buf_number(const struct far_buf *b);
struct far_buf *buf_numbered(uint32_t number);

static inline void buf_ref(struct far_buf *b)
{
	atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
}

/** NULL is fine. */
void buf_unref(struct far_buf *b);

#endif

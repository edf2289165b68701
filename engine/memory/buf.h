/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Reference-counted buffers: results that outlive their receive buffer, arguments passed between threads, replies that
 * wait. Any thread.
 *
 * Up to BUF_SLAB_MAX bytes a buffer is a slab of the region: classes of powers of two, each with a lock-free LIFO list
 * that grows out of the region and never shrinks. Allocation makes no system call and takes no lock. Larger buffers
 * come from the allocator of memory/mem.h, which may do both, and returns their pages. When the region is used up,
 * allocation fails and the call that needs it ends with FAR_RESOURCE.
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
#define BUF_IN_FUTURE 1u     /* kind: the head of a struct far_future, which holds the bytes */
#define BUF_LARGE     2u     /* kind: memory of the allocator */
#define BUF_TREE      0x100u /* flag in `kind`: holds a decoded tree, see value/tree.h */
#define BUF_RREFS     0x200u /* flag in `kind`: holds remote references */
#define BUF_ENDS      0x400u /* flag in `kind`: the data begins with a buf_end_fn *, which runs before it is freed */

struct far_buf {
	_Atomic uint32_t
		refs;  /* any thread; the decrement to 0 is acq_rel: the freeing thread sees all others' accesses */
	uint32_t kind; /* BUF_IN_FUTURE, BUF_LARGE or the class of a slab; plus flags */
};

/** Thread of the last reference. */
typedef void buf_end_fn(void *data);

/** Allocates at least `bytes` with one reference; NULL: no memory. Data is aligned to 64 bytes. Beyond BUF_SLAB_MAX it
 * may lock and make system calls. */
struct far_buf *buf_alloc(size_t bytes);
void *buf_data(struct far_buf *b);

/** The buffer of a slab's data, which must have one reference: anything else ends the process. */
struct far_buf *buf_of(void *data);
/** Capacity of a slab's data in bytes; 0: not a slab in use. */
size_t buf_slab_bytes(const void *data);
/** Bytes of the slabs in use, by a walk over the free ones: exact only without concurrent use. */
uint64_t buf_slabs_used(void);
/** Converts a slab to a number other than 0, and back: half the bytes of a pointer. */
uint32_t buf_number(const struct far_buf *b);
struct far_buf *buf_numbered(uint32_t number);

static inline void buf_ref(struct far_buf *b)
{
	atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
}

/** Drops a reference; NULL: no-op. The last one frees the buffer. */
void buf_unref(struct far_buf *b);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Buffers counted by reference: results that outlive their receive buffer, arguments handed over between threads,
 * answers that wait.
 *
 * One pool per process, in a region that is reserved once and never given back: classes of powers of two, each a
 * lock-free last-in-first-out list. Allocation makes no system call and takes no lock. When the region is used up,
 * allocation fails and the call that needed it ends with FAR_RESOURCE.
 */
#ifndef FAR_XCORE_BUF_H
#define FAR_XCORE_BUF_H

#include <farcall/value.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define BUF_CLASS_MIN    8u  /* 256 bytes */
#define BUF_CLASS_MAX    25u /* 32 MiB */
#define BUF_IN_FUTURE    1u  /* kind: the head of a struct far_future, which holds the bytes itself */
#define BUF_REGION_BYTES (UINT64_C(4) << 30)

struct far_buf {
	_Atomic uint32_t
		refs;  /* any thread; the release that reaches 0 pairs with the acquire of the thread that frees */
	uint32_t kind; /* BUF_IN_FUTURE, or the class of a pooled one */
};

/** Reserves the region, once; the first allocation would otherwise. Slow. */
void buf_reserve(void);

/** At least `bytes` with one reference, or NULL. Data is aligned to 64 bytes. */
struct far_buf *buf_alloc(size_t bytes);
void *buf_data(struct far_buf *b);

static inline void buf_ref(struct far_buf *b)
{
	atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
}

/** NULL is fine. */
void buf_unref(struct far_buf *b);

#endif

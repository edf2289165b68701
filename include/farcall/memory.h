/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory of the engine: one region of reserved address space per process. The system provides its pages on first
 * access. Any thread, unless a function names another one.
 *
 * The engine's small buffers are slabs of the region. far_alloc() and the engine's copies of rendezvous messages use an
 * allocator over the region: jemalloc in programs that link it (pkg-config module farcall-jemalloc), else the library's
 * page runs. The application's malloc() is not affected. After fork() without exec() only the parent may use these
 * functions.
 */
#ifndef FARCALL_MEMORY_H
#define FARCALL_MEMORY_H

#include <farcall/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define FAR_ALLOC_ALIGN 64 /* bytes; of everything that far_alloc() returns */

/* ---- Any thread, also in handlers; these may take a lock and make system calls ---- */

/**
 * Allocates at least `bytes` (0 counts as 1), aligned to FAR_ALLOC_ALIGN, not zeroed. The caller's until far_free().
 * Allocate before time-critical calls. NULL on failure, with `err` (may be NULL) filled. Errors: RESOURCE (the region
 * is full), INVALID (malformed FAR_MEMORY_MAX).
 */
void *far_alloc(size_t bytes, struct far_err *err);

/** far_alloc() at a multiple of `align`, a power of two up to 1 GiB, raised to FAR_ALLOC_ALIGN. Other values: INVALID.
 */
void *far_alloc_aligned(size_t align, size_t bytes, struct far_err *err);

/**
 * Allocates memory that workers on this host may map read-only, each allocation by itself: at least `bytes`, whole
 * pages, aligned to a page, zeroed. A message of 64 KiB or more that lies in it and has a release callback is not
 * copied over nic=shm: the receiver's handler reads it in place (far_msg_send_parts(), far_msg_oneway_parts()); so do
 * functions with their arguments (far_rpc_async_zero_copy()). The first messages to a worker travel as others, until
 * that worker has mapped the memory.
 *
 * A worker that got one message out of it can read all of it from then on, also what is written later: allocate it for
 * what such workers may see. No worker can write it. A forked child has no access. Each allocation takes a descriptor,
 * 64 at most are in use, one of them by the engine; beyond that, and where the kernel refuses sealed memfds, this is
 * far_alloc(). Errors: as far_alloc().
 */
void *far_alloc_shared(size_t bytes, struct far_err *err);

/** Frees memory of far_alloc() or far_alloc_shared(). NULL is allowed. A pointer that is detected as invalid aborts the
 * process. */
void far_free(void *p);

/** Usable bytes at `p`, at least those requested; 0 for NULL. */
size_t far_alloc_size(const void *p);

/**
 * Sets the size of the region, [16 MiB, 1 TiB]. Must precede the first far_init_rpc() and far_alloc() of the process.
 * Default: FAR_MEMORY_MAX in the environment (bytes, or a number with K, M, G or T, powers of 1024), else half of the
 * memory of the machine or container, 16 MiB at least. With a limited address space (ulimit -v) at most half of that.
 *
 * A sixteenth of the region is reserved for small buffers. Everything that grows with traffic and peers counts against
 * the region, rings and shared memory of the shm driver included. In a container with a memory limit an allocation also
 * fails if it exceeds the free memory of the container; when little is free, pages of rendezvous messages and of
 * far_alloc() are populated at once. Errors: INVALID, ALREADY_INITIALIZED (the region is in use).
 */
enum far_status far_memory_limit(uint64_t bytes, struct far_err *err);

struct far_agent;

/**
 * Registers base[0, bytes), memory of the application or of far_alloc(), for zero-copy send: a message of 256 KiB or
 * more with a part in it is sent from there if it has a release callback (far_msg_send_parts(),
 * far_msg_oneway_parts()). Messages longer than FAR_MSG_EAGER_MAX need no registration, nor does far_alloc_shared().
 * RDMA devices that read the sender's memory (bulk= of nic=verbs) pin the pages; they can read a message's bytes only,
 * and only for its receiver.
 *
 * The memory stays the application's, and must stay mapped until far_mem_unregister() or shutdown. Blocks while pages
 * are pinned. Errors: INVALID (no memory; overlaps a registered range), RESOURCE (cannot be locked, with the remedy;
 * too many ranges), WOULD_DEADLOCK (inline handler).
 */
enum far_status far_mem_register(struct far_agent *agent, void *base, size_t bytes, struct far_err *err);

/**
 * Ends the registration that begins at `base`. Errors: BUSY (messages are in transfer from it: wait for their release
 * callbacks), INVALID (no registration begins there), WOULD_DEADLOCK (inline handler).
 */
enum far_status far_mem_unregister(struct far_agent *agent, void *base, struct far_err *err);

/** State of the region, in bytes. Read without a lock: exact while no thread allocates. */
struct far_memory {
	uint64_t reserved;         /* address space; 0 before the first use */
	uint64_t committed;        /* that may have pages: slab_committed, large_committed and retained */
	uint64_t slab_committed;   /* slabs of small buffers; they are never given back */
	uint64_t slab_used;        /* of that, in buffers in use */
	uint64_t large_committed;  /* page runs in use, the allocator's own tables included */
	uint64_t large_used;       /* live allocations of far_alloc() and rendezvous messages, by far_alloc_size() */
	uint64_t retained;         /* freed pages kept for later allocations */
	const char *allocator;     /* behind far_alloc(): "page runs", "jemalloc 5.3.0"; static text */
	const char *allocator_why; /* why it is used; static text */
	uint64_t shared; /* far_alloc_shared(), by far_alloc_size(); counts against the region, outside of it */
};
/** far_memory_stats() with the caller's size of the struct. */
void far_memory_stats_sized(struct far_memory *out, size_t bytes);
static inline void far_memory_stats(struct far_memory *out)
{
	far_memory_stats_sized(out, sizeof *out);
}

/* ---- For an allocator over the region: any thread; these may take a lock and make system calls ---- */

/** Allocator behind far_alloc() and rendezvous messages. Its functions must be thread-safe. */
struct far_allocator {
	const char *name;                           /* static text */
	const char *why;                            /* why it is used; static text */
	void *(*alloc)(size_t bytes, size_t align); /* bytes > 0; align a power of two >= FAR_ALLOC_ALIGN; or NULL */
	void (*free)(void *p);
	size_t (*size)(const void *p); /* usable bytes */
	void *reserved[4];             /* NULL */
};

/** Installs allocator `a`, which must stay valid. Errors: INVALID (no name, reason or function), ALREADY_INITIALIZED
 * (after the first allocation of the process). */
enum far_status far_memory_allocator(const struct far_allocator *a, struct far_err *err);

/**
 * Allocates `bytes` (a positive multiple of far_pages_size()) of the region at a multiple of `align` (a power of two).
 * NULL on failure. Zeroed only if `*zeroed` (may be NULL) is set to 1.
 */
void *far_pages_alloc(size_t bytes, size_t align, int *zeroed);
/** Frees pages: the result of a far_pages_alloc(), whole pages of it, or adjacent results together. */
void far_pages_free(void *p, size_t bytes);
/** Bytes of a page. */
size_t far_pages_size(void);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory of the engine: one region of reserved address space per process, whose pages are taken as they are touched.
 *
 * Small buffers of the engine are slabs of this region. What an application takes with far_alloc(), and the engine's
 * copies of large messages, come from an allocator over the same region: jemalloc in programs that link it (pkg-config
 * module farcall-jemalloc), else the library's own page runs. The application's malloc is neither used for them nor
 * replaced. After fork() without exec() only the parent may use these functions.
 */
#ifndef FARCALL_MEMORY_H
#define FARCALL_MEMORY_H

#include <farcall/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAR_ALLOC_ALIGN 64 /* bytes; of everything that far_alloc() returns */

/**
 * At least `bytes` (0 is 1) aligned to FAR_ALLOC_ALIGN, not zeroed; the caller's until far_free(). NULL on failure,
 * with `err` (may be NULL) telling why. Any thread, handlers included. May take a lock and make system calls: take
 * memory before the calls that must be fast. Errors: RESOURCE (the region's bound is reached), INVALID
 * (FAR_MEMORY_MAX).
 */
void *far_alloc(size_t bytes, struct far_err *err);

/** The same at a multiple of `align`, a power of two up to 1 GiB; below FAR_ALLOC_ALIGN it is that. INVALID else. */
void *far_alloc_aligned(size_t align, size_t bytes, struct far_err *err);

/** Gives memory of far_alloc() back, once; NULL is fine. Any thread. Anything else is a mistake in the program and ends
 * the process where it is seen. */
void far_free(void *p);

/** Bytes usable at `p`, at least those asked for; 0 for NULL. Any thread. */
size_t far_alloc_size(const void *p);

/**
 * Bounds the region to `bytes`, in [16 MiB, 1 TiB]. Before the first far_init_rpc() or far_alloc() of the process.
 * Without it the environment's FAR_MEMORY_MAX is the bound (bytes, or a number with K, M, G or T for powers of 1024),
 * else half of the physical memory or of the container's, 16 MiB at least. A process whose address space is limited
 * (ulimit -v) gets at most half of that limit. A sixteenth of the region is kept for small buffers. Everything in
 * memory that grows with traffic and peers counts against the bound, rings and shared memory of shm included. Within a
 * container with a memory limit nothing is taken beyond the room that it has left, whoever uses the rest; with little
 * left pages of large payloads and of far_alloc() are taken at once, not as they are touched. Errors: INVALID,
 * ALREADY_INITIALIZED (the region is in use).
 */
enum far_status far_memory_limit(uint64_t bytes, struct far_err *err);

struct far_agent;

/**
 * Registers base[0, bytes), any memory of the application's, to be sent from: a message of 256 KiB or more with a part
 * there leaves from where it lies when it is given a release callback (far_msg_send_parts(), far_msg_post_parts()), as
 * longer ones than FAR_MSG_WHOLE_MAX do wherever they lie. Devices on which receivers read the sender's memory (bulk=
 * of nic=verbs) learn of it, and keep its pages in memory; they read nothing of it but what is sent, by whom it is sent
 * to. The memory stays the application's, and mapped, until it is taken back or the agent is shut down. What
 * far_alloc() returns may be registered as well. Any thread; takes as long as pinning does. Errors: INVALID (no memory,
 * some of it registered already), RESOURCE (it cannot be locked, with the remedy; too many), WOULD_DEADLOCK (an inline
 * handler).
 */
enum far_status far_mem_register(struct far_agent *agent, void *base, size_t bytes, struct far_err *err);

/**
 * Takes back what was registered there. BUSY: messages are on their way from it; wait for their release callbacks.
 * INVALID: nothing is registered that begins there. WOULD_DEADLOCK: an inline handler. Any thread.
 */
enum far_status far_mem_unregister(struct far_agent *agent, void *base, struct far_err *err);

/** What the region holds, in bytes. Read without stopping anybody: exact when nobody allocates meanwhile. */
struct far_memory {
	uint64_t reserved;        /* address space; 0 before the first use */
	uint64_t committed;       /* that may be backed by pages: slabs, large, retained */
	uint64_t slab_committed;  /* taken for small buffers, and never given back */
	uint64_t slab_used;       /* of that, in buffers in use */
	uint64_t large_committed; /* page runs in use, by the allocator's own tables too */
	uint64_t large_used;      /* of far_alloc() and large messages: live allocations, as far_alloc_size() counts */
	uint64_t retained;        /* freed pages kept for the next allocation; the rest is the system's again */
	const char *allocator;    /* that serves far_alloc(): "page runs", "jemalloc 5.3.0"; static text */
	const char *allocator_why;
};
void far_memory_stats(struct far_memory *out);

/* ---- for an allocator over the region ---- */

/** What serves far_alloc() and large messages. Every function is called by any thread, several at once. */
struct far_allocator {
	const char *name;                           /* static text, as `why` */
	const char *why;                            /* how it came to be the one */
	void *(*alloc)(size_t bytes, size_t align); /* bytes > 0; align a power of two >= FAR_ALLOC_ALIGN; or NULL */
	void (*free)(void *p);
	size_t (*size)(const void *p); /* usable bytes */
};

/** Makes `a`, which must stay, the allocator. Before the first allocation. ALREADY_INITIALIZED after it. */
enum far_status far_memory_allocator(const struct far_allocator *a, struct far_err *err);

/**
 * `bytes` (a multiple of far_pages_size(), not 0) of the region at a multiple of `align` (a power of two), or NULL. Not
 * zeroed unless `*zeroed` (may be NULL) is set to 1. May lock and make system calls.
 */
void *far_pages_alloc(size_t bytes, size_t align, int *zeroed);
/** Gives pages back: what one far_pages_alloc() returned, whole pages of it, or neighbours together. */
void far_pages_free(void *p, size_t bytes);
size_t far_pages_size(void);

#ifdef __cplusplus
}
#endif
#endif

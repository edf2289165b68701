/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * jemalloc as the allocator of large memory: arenas whose extents are page runs of the region. Any thread.
 *
 * Only programs can contain it: its thread-local data use the initial-exec model, which a library loaded at run time
 * may have no room for. So it is a static library of its own, which installs itself as the allocator before main().
 */
#include <farcall/memory.h>
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN void *far_je_mallocx(size_t bytes, int flags);
HIDDEN void far_je_dallocx(void *p, int flags);
HIDDEN size_t far_je_sallocx(const void *p, int flags);
HIDDEN int far_je_mallctl(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes);
HIDDEN char *far_je_getenv(const char *name);
HIDDEN ssize_t far_je_readlink(const char *path, char *out, size_t bytes);
void far_jemalloc(void);

/* Extents are returned at once: the page runs decide what to retain. No thread caches, which would hold payload memory.
 */
extern HIDDEN const char *far_je_malloc_conf;
const char *far_je_malloc_conf = "retain:false,dirty_decay_ms:0,muzzy_decay_ms:0,oversize_threshold:0,tcache:false,"
				 "narenas:1,dss:disabled";

/* Replace the functions by which jemalloc reads its settings: they find none. */
char *far_je_getenv(const char *name)
{
	(void)name;
	return NULL;
}

ssize_t far_je_readlink(const char *path, char *out, size_t bytes)
{
	(void)path;
	(void)out;
	(void)bytes;
	return -1;
}

static void *extent_alloc(extent_hooks_t *hooks, void *want, size_t bytes, size_t align, bool *zero, bool *commit,
			  unsigned arena)
{
	int zeroed = 0;
	(void)hooks;
	(void)arena;
	void *p = want ? NULL : far_pages_alloc(bytes, align, &zeroed);
	if (!p)
		return NULL;
	if (*zero && !zeroed) {
		char *byte = p;
		for (size_t i = 0; i < bytes; i++)
			byte[i] = 0;
	}
	*zero = *zero || zeroed;
	*commit = true;
	return p;
}

static bool extent_dalloc(extent_hooks_t *hooks, void *p, size_t bytes, bool committed, unsigned arena)
{
	(void)hooks;
	(void)committed;
	(void)arena;
	if ((size_t)p % far_pages_size() || bytes % far_pages_size())
		return true; /* not a multiple of the system's page: jemalloc keeps the extent */
	far_pages_free(p, bytes);
	return false;
}

static void extent_destroy(extent_hooks_t *hooks, void *p, size_t bytes, bool committed, unsigned arena)
{
	extent_dalloc(hooks, p, bytes, committed, arena);
}

static bool extent_split(extent_hooks_t *hooks, void *p, size_t bytes, size_t a, size_t b, bool committed,
			 unsigned arena)
{
	(void)hooks;
	(void)p;
	(void)bytes;
	(void)committed;
	(void)arena;
	return a % far_pages_size() || b % far_pages_size();
}

static bool extent_merge(extent_hooks_t *hooks, void *a, size_t a_bytes, void *b, size_t b_bytes, bool committed,
			 unsigned arena)
{
	(void)hooks;
	(void)a;
	(void)a_bytes;
	(void)b;
	(void)b_bytes;
	(void)committed;
	(void)arena;
	return false;
}

static extent_hooks_t hooks = {
	.alloc = extent_alloc,
	.dalloc = extent_dalloc,
	.destroy = extent_destroy,
	.split = extent_split,
	.merge = extent_merge,
};

/* Enough that threads on different cores rarely contend; more arenas would scatter the free memory. */
#define ARENAS 4

static pthread_mutex_t arenas_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned arenas[ARENAS]; /* jemalloc's index + 1; 0: not made yet, since its tables take region memory */

static unsigned arena_make(unsigned slot)
{
	extent_hooks_t *h = &hooks;
	unsigned index = 0;
	size_t bytes = sizeof index;
	pthread_mutex_lock(&arenas_lock);
	unsigned arena = atomic_load_explicit(&arenas[slot], memory_order_relaxed);
	if (!arena && far_je_mallctl("arenas.create", &index, &bytes, &h, sizeof h) == 0)
		atomic_store_explicit(&arenas[slot], arena = index + 1, memory_order_release);
	pthread_mutex_unlock(&arenas_lock);
	return arena;
}

/* Index + 1 of this core's arena, or, without memory to make it, of any other; 0: there is none. */
static unsigned arena_here(void)
{
	int cpu = sched_getcpu();
	for (unsigned i = 0; i < ARENAS; i++) {
		unsigned slot = ((unsigned)(cpu < 0 ? 0 : cpu) + i) % ARENAS;
		unsigned arena = atomic_load_explicit(&arenas[slot], memory_order_acquire);
		if (arena || (arena = arena_make(slot)))
			return arena;
	}
	return 0;
}

static void *je_alloc(size_t bytes, size_t align)
{
	unsigned arena = arena_here();
	if (!arena)
		return NULL;
	return far_je_mallocx(bytes, (int)(MALLOCX_ALIGN(align) | MALLOCX_ARENA(arena - 1) | MALLOCX_TCACHE_NONE));
}

static void je_release(void *p)
{
	far_je_dallocx(p, MALLOCX_TCACHE_NONE);
}

static size_t je_size(const void *p)
{
	return far_je_sallocx(p, 0);
}

#define TEXT(x)  #x
#define VALUE(x) TEXT(x)

static const struct far_allocator jemalloc = {
	.name = "jemalloc " VALUE(JEMALLOC_VERSION_MAJOR) "." VALUE(JEMALLOC_VERSION_MINOR) "." VALUE(
		JEMALLOC_VERSION_BUGFIX),
	.why = "linked into this program",
	.alloc = je_alloc,
	.free = je_release,
	.size = je_size,
};

/* Referenced by `-u far_jemalloc`, so that the linker takes this object from its archive. Runs before main(); if memory
 * was allocated already, the allocator in use stays. */
__attribute__((constructor)) void far_jemalloc(void)
{
	far_memory_allocator(&jemalloc, NULL);
}

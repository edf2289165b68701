/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 2. Main thread of each process; handlers on shard threads. */
/**
 * An application with its own malloc, which counts what it gives and poisons what it gives and gets back. The library,
 * with or without jemalloc, neither replaces it nor takes payload memory from it.
 */
#include "check.h"
#include "handlers.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>

enum { ECHO = 1, CLASSES = 40 };

#define MIB        ((size_t)1 << 20)
#define HEAP_BYTES (256 * MIB)
#define LIVE       UINT64_C(0x6c6976656c697665)
#define DEAD       UINT64_C(0x6465616464656164)

/* Before what malloc() returns. */
struct block {
	struct block *next; /* while free */
	uint64_t state;
	size_t bytes; /* a power of two */
	void *end_of_head;
};

static _Alignas(64) uint8_t heap[HEAP_BYTES];
static size_t heap_used;
static struct block *unused[CLASSES];
static atomic_flag heap_lock = ATOMIC_FLAG_INIT;
static _Atomic uint64_t mallocs, frees, malloced_bytes;

static void lock_heap(void)
{
	while (atomic_flag_test_and_set_explicit(&heap_lock, memory_order_acquire)) {
	}
}

static void unlock_heap(void)
{
	atomic_flag_clear_explicit(&heap_lock, memory_order_release);
}

static void refuse(const char *what)
{
	ssize_t written = write(STDERR_FILENO, what, strlen(what));
	_exit(written < 0 ? 3 : 2);
}

static bool is_mine(const void *p)
{
	return (const uint8_t *)p >= heap && (const uint8_t *)p < heap + HEAP_BYTES;
}

static struct block *block_of(void *p)
{
	struct block *b = (struct block *)p - 1;
	if (!is_mine(p) || b->state != LIVE)
		refuse("own_malloc: free() of what malloc() did not give\n");
	return b;
}

/* Blocks of powers of two; those over 64 bytes lie at multiples of 64, head before. */
void *malloc(size_t bytes)
{
	unsigned class = 6;
	while (class < CLASSES - 1 && (size_t)1 << class < bytes)
		class += 1;
	lock_heap();
	struct block *b = unused[class];
	if (b) {
		unused[class] = b->next;
	} else {
		size_t at = (heap_used + sizeof *b + 63) / 64 * 64;
		if (class == CLASSES - 1 || at + ((size_t)1 << class) > HEAP_BYTES) {
			unlock_heap();
			errno = ENOMEM;
			return NULL;
		}
		heap_used = at + ((size_t)1 << class);
		b = (struct block *)(void *)(heap + at) - 1;
	}
	unlock_heap();
	b->state = LIVE;
	b->bytes = (size_t)1 << class;
	atomic_fetch_add(&mallocs, 1);
	atomic_fetch_add(&malloced_bytes, bytes);
	memset(b + 1, 0xa5, b->bytes);
	return b + 1;
}

void free(void *p)
{
	if (!p)
		return;
	struct block *b = block_of(p);
	memset(p, 0xdf, b->bytes);
	b->state = DEAD;
	atomic_fetch_add(&frees, 1);
	unsigned class = (unsigned)__builtin_ctzll(b->bytes);
	lock_heap();
	b->next = unused[class];
	unused[class] = b;
	unlock_heap();
}

void *calloc(size_t n, size_t bytes)
{
	if (bytes && n > SIZE_MAX / bytes)
		return NULL;
	void *volatile p = malloc(n * bytes); /* volatile: the compiler would call calloc() for the two */
	return p ? memset(p, 0, n * bytes) : NULL;
}

void *realloc(void *p, size_t bytes)
{
	void *q = malloc(bytes);
	if (p && q) {
		size_t old = block_of(p)->bytes;
		memcpy(q, p, old < bytes ? old : bytes);
		free(p);
	}
	return q;
}

void *aligned_alloc(size_t align, size_t bytes)
{
	if (align > 64)
		refuse("own_malloc: alignment beyond 64\n");
	return malloc(bytes);
}

void *memalign(size_t align, size_t bytes)
{
	return aligned_alloc(align, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes)
{
	*out = aligned_alloc(align, bytes);
	return *out ? 0 : ENOMEM;
}

size_t malloc_usable_size(void *p)
{
	return p ? block_of(p)->bytes : 0;
}

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK(!is_mine(data));
	CHECK(far_reply(req, data, len) == FAR_OK);
}

static void one_payload(struct far_agent *a, size_t bytes)
{
	struct far_to to = {1, -1};
	struct far_err err;
	struct far_val v, sent;
	size_t len;
	char *mine = malloc(bytes), *out = far_alloc(bytes, &err), *in = far_alloc_aligned(4096, bytes, &err);
	CHECK(mine && out && in);
	CHECK(is_mine(mine) && !is_mine(out) && !is_mine(in));
	memset(mine, 'm', bytes);
	uint64_t before = atomic_load(&malloced_bytes);
	memcpy(out, mine, bytes);
	CHECK_STATUS(far_msg_call(a, to, ECHO, out, bytes, NULL, in, bytes, &len, &err), FAR_OK, &err);
	CHECK(len == bytes && memcmp(in, mine, bytes) == 0);
	sent = far_bytes(mine, bytes);
	CHECK_STATUS(far_rpc_sync(a, "worker1", "t::same", &sent, 1, NULL, &v, &err), FAR_OK, &err);
	CHECK(!is_mine(v.u.s.data) || bytes <= 64); /* a small result lies in its future */
	CHECK(v.u.s.len == bytes && memcmp(v.u.s.data, mine, bytes) == 0);
	far_val_fini(&v);
	far_free(out);
	far_free(in);
	CHECK(atomic_load(&malloced_bytes) - before < (bytes > MIB ? bytes / 2 : MIB));
	free(mine);
}

int main(void)
{
	static const struct far_function f = {"t::same(bytes b) -> bytes", FAR_KIND_INLINE, handler_echo, NULL};
	static const struct far_msg_handler m = {ECHO, FAR_KIND_INLINE, echo, NULL};
	struct far_opts opts = {.functions = &f, .functions_n = 1, .messages = &m, .messages_n = 1};
	struct far_memory stats;
	CHECK(is_mine(malloc(1)));
	struct far_agent *a = check_join(&opts);
	CHECK(atomic_load(&mallocs) > 10); /* the library's tables come from the application's malloc */
	if (check_rank() == 0) {
		static const size_t sizes[] = {1, 64, 1000, 65536, MIB, 3 * MIB, 12 * MIB};
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
			one_payload(a, sizes[i]);
	}
	far_memory_stats(&stats);
	CHECK(strncmp(stats.allocator, WANT_ALLOCATOR, strlen(WANT_ALLOCATOR)) == 0);
	CHECK(stats.large_used == 0);
	uint64_t freed = atomic_load(&frees);
	check_leave(a);
	CHECK(atomic_load(&frees) > freed);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** far_alloc and its kin, once over the page runs and, in a program of its own, over jemalloc.
 * The test's thread, and threads that it starts. */
#include "memory/buf.h"
#include "memory/region.h"
#include "memory/runs.h"

#include <criterion/criterion.h>
#include <farcall/farcall.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIB ((size_t)1 << 20)

static struct far_memory memory(void)
{
	struct far_memory m;
	far_memory_stats(&m);
	return m;
}

Test(mem, the_allocator_is_the_one_that_was_linked)
{
	cr_assert_eq(strncmp(memory().allocator, WANT_ALLOCATOR, strlen(WANT_ALLOCATOR)), 0, "%s", memory().allocator);
	cr_assert_gt(strlen(memory().allocator_why), 10u);
	cr_assert_eq(memory().reserved, 0u, "nothing before the first use");
}

Test(mem, every_size_is_aligned_writable_and_of_the_region)
{
	static const size_t sizes[] = {0,     1,     64,      100,     4096,         32768,
				       32769, 65536, MIB + 1, 5 * MIB, 16 * MIB + 1, 100 * MIB};
	void *p[sizeof sizes / sizeof *sizes];
	struct far_err err;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		p[i] = far_alloc(sizes[i], &err);
		cr_assert_not_null(p[i], "%zu bytes", sizes[i]);
		cr_assert_eq((uintptr_t)p[i] % FAR_ALLOC_ALIGN, 0u);
		cr_assert(region_holds(p[i]));
		cr_assert_geq(far_alloc_size(p[i]), sizes[i]);
		cr_assert_gt(far_alloc_size(p[i]), 0u);
		memset(p[i], (int)i, far_alloc_size(p[i]));
	}
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		const uint8_t *d = p[i];
		for (size_t k = 0; k < far_alloc_size(p[i]); k += 61)
			cr_assert_eq(d[k], i);
		far_free(p[i]);
	}
	cr_assert_eq(memory().large_used, 0u);
	cr_assert(runs_sane());
}

Test(mem, alignments)
{
	struct far_err err;
	for (size_t align = 1; align <= 64 * MIB; align *= 2) {
		void *p = far_alloc_aligned(align, 100, &err);
		cr_assert_not_null(p, "align %zu", align);
		cr_assert_eq((uintptr_t)p % (align < 64 ? 64 : align), 0u);
		memset(p, 1, 100);
		far_free(p);
	}
	static const size_t bad[] = {0, 3, 65, ((size_t)1 << 30) + 1, (size_t)1 << 31, SIZE_MAX};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		cr_assert_null(far_alloc_aligned(bad[i], 100, &err));
		cr_assert_eq(err.status, FAR_INVALID);
		cr_assert(strstr(err.text, "power of two"));
		cr_assert_null(far_alloc_aligned(bad[i], 100, NULL));
	}
}

Test(mem, exhaustion_is_an_error_of_that_call)
{
	static void *p[1024];
	struct far_err err;
	int n = 0;
	cr_assert_eq(far_memory_limit(64 * MIB, &err), FAR_OK);
	while (n < 1024 && (p[n] = far_alloc(3 * MIB, &err)))
		n++;
	cr_assert_gt(n, 5);
	cr_assert_lt(n, 1024);
	cr_assert_eq(err.status, FAR_RESOURCE);
	cr_assert(strstr(err.text, "FAR_MEMORY_MAX"), "%s", err.text);
	static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 100, (size_t)1 << 62, (size_t)1 << 40, 65 * MIB};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		cr_assert_null(far_alloc(sizes[i], &err), "%zu bytes", sizes[i]);
		cr_assert_eq(err.status, FAR_RESOURCE);
	}
	while (n > 0)
		far_free(p[--n]);
	p[0] = far_alloc(3 * MIB, &err);
	cr_assert_not_null(p[0]);
	far_free(p[0]);
}

Test(mem, a_large_payload_does_not_stay)
{
	size_t bytes = 300 * MIB;
	struct far_err err;
	uint8_t *p = far_alloc(bytes, &err);
	static unsigned char in[300 * 256];
	cr_assert_not_null(p);
	memset(p, 1, bytes);
	cr_assert_geq(memory().committed, bytes);
	size_t page = far_pages_size(), pages = bytes / page, left = 0;
	uint8_t *start = p + (page - (uintptr_t)p % page) % page;
	far_free(p);
	cr_assert_eq(mincore(start, (pages - 1) * page, in), 0);
	for (size_t i = 0; i < pages - 1; i++)
		left += in[i] & 1;
	cr_assert_leq(left * page, 64 * MIB);
	cr_assert_leq(memory().committed, 80 * MIB);
	cr_assert_eq(memory().large_used, 0u);
}

Test(mem, more_than_four_gib)
{
	size_t bytes = ((size_t)4 << 30) + 1;
	cr_assert_eq(far_memory_limit((uint64_t)8 << 30, NULL), FAR_OK);
	for (int i = 0; i < 2; i++) {
		uint8_t *p = far_alloc(bytes, NULL);
		cr_assert_not_null(p);
		cr_assert_geq(far_alloc_size(p), bytes);
		p[0] = 1;
		p[bytes - 1] = 2;
		far_free(p);
		cr_assert_leq(memory().committed, 80 * MIB);
	}
}

Test(mem, null_and_unknown_pointers)
{
	int here;
	far_free(NULL);
	cr_assert_eq(far_alloc_size(NULL), 0u);
	cr_assert_eq(far_alloc_size(&here), 0u);
	free(malloc(10));
}

Test(mem, freeing_an_unknown_pointer_ends_the_process, .signal = SIGABRT)
{
	static int here;
	far_free(far_alloc(1, NULL));
	far_free(&here);
}

/* ---- an allocator of the application's own ---- */

static void *mine_alloc(size_t bytes, size_t align)
{
	size_t whole = (bytes + far_pages_size() - 1) / far_pages_size() * far_pages_size();
	return far_pages_alloc(whole, align, NULL);
}

static void mine_free(void *p)
{
	far_pages_free(p, runs_size(p));
}

static const struct far_allocator mine = {"mine", "of the test", mine_alloc, mine_free, runs_size};

Test(mem, an_allocator_is_fixed_by_the_first_use)
{
	struct far_err err;
	far_free(far_alloc(1, NULL));
	cr_assert_eq(far_memory_allocator(&mine, &err), FAR_ALREADY_INITIALIZED);
	cr_assert(strstr(err.text, memory().allocator));
}

Test(mem, half_an_allocator_is_refused)
{
	struct far_allocator half = mine;
	struct far_err err;
	half.size = NULL;
	cr_assert_eq(far_memory_allocator(&half, &err), FAR_INVALID);
	cr_assert_eq(far_memory_allocator(NULL, &err), FAR_INVALID);
}

#ifdef WITHOUT_JEMALLOC
Test(mem, an_allocator_can_be_given)
{
	cr_assert_eq(far_memory_allocator(&mine, NULL), FAR_OK);
	void *p = far_alloc(1, NULL);
	cr_assert_eq(far_alloc_size(p), far_pages_size());
	cr_assert_str_eq(memory().allocator, "mine");
	cr_assert_eq(memory().large_used, far_pages_size());
	far_free(p);
	cr_assert_eq(memory().large_used, 0u);
}

Test(mem, twice_freed_small_ends_the_process, .signal = SIGABRT)
{
	void *p = far_alloc(100, NULL);
	far_free(p);
	far_free(p);
}

Test(mem, twice_freed_large_ends_the_process, .signal = SIGABRT)
{
	void *p = far_alloc(MIB, NULL);
	far_free(p);
	far_free(p);
}
#endif

/* ---- random sizes against a model ---- */

struct block {
	uint8_t *p;
	size_t bytes;
	uint8_t mark;
};

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

/* One byte in each page and the last one are its own. */
static bool marked(const struct block *b, bool put)
{
	bool same = true;
	for (size_t at = 0; at < b->bytes + 4000; at += 4000) {
		uint8_t *byte = &b->p[at < b->bytes ? at : b->bytes - 1];
		if (put)
			*byte = b->mark;
		same = same && *byte == b->mark;
	}
	return same;
}

static bool random_step(struct block *b, uint32_t *seed)
{
	if (b->p) {
		bool same = marked(b, false);
		far_free(b->p);
		b->p = NULL;
		return same;
	}
	b->bytes = 1 + next_random(seed) % ((size_t)64 << next_random(seed) % 16);
	b->mark = (uint8_t)next_random(seed);
	size_t align = (size_t)1 << next_random(seed) % 14;
	b->p = far_alloc_aligned(align, b->bytes, NULL);
	return !b->p || (marked(b, true) && (uintptr_t)b->p % align == 0);
}

static void *churn(void *arg)
{
	struct block blocks[24] = {{NULL, 0, 0}};
	uint32_t seed = (uint32_t)(uintptr_t)arg;
	for (int i = 0; i < 8000; i++)
		if (!random_step(&blocks[next_random(&seed) % 24], &seed))
			return (void *)1;
	for (int i = 0; i < 24; i++)
		if (blocks[i].p && !random_step(&blocks[i], &seed))
			return (void *)1;
	return NULL;
}

Test(mem, threads_never_share_memory, .timeout = 60)
{
	pthread_t t[4];
	cr_assert_eq(far_memory_limit(64 * MIB, NULL), FAR_OK);
	for (uintptr_t i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&t[i], NULL, churn, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++) {
		void *bad;
		pthread_join(t[i], &bad);
		cr_assert_null(bad);
	}
	cr_assert(runs_sane());
	cr_assert_eq(memory().large_used, 0u);
}

/* Memory taken by one thread and given back by another, the buffers of the engine among it. */
static void *free_all(void *arg)
{
	void **p = arg;
	for (int i = 0; i < 100; i++)
		far_free(p[i]);
	return NULL;
}

Test(mem, another_thread_may_free)
{
	void *p[100];
	pthread_t t;
	for (int i = 0; i < 100; i++)
		p[i] = far_alloc((size_t)i * 5000, NULL);
	cr_assert_eq(pthread_create(&t, NULL, free_all, p), 0);
	pthread_join(t, NULL);
	cr_assert_eq(memory().large_used, 0u);
}

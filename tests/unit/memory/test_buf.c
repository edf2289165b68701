/* SPDX-License-Identifier: BSD-3-Clause */
/** Buffers: sizes, slabs, limits. The test's thread, and threads that it starts. */
#include "memory/buf.h"
#include "memory/region.h"
#include "memory/runs.h"

#include <criterion/criterion.h>
#include <farcall/memory.h>
#include <pthread.h>
#include <string.h>

Test(buf, every_size_is_aligned_and_writable)
{
	static const size_t sizes[] = {0,
				       1,
				       255,
				       256,
				       257,
				       4095,
				       4096,
				       65537,
				       ((size_t)1 << 20) + 4096,
				       BUF_SLAB_MAX,
				       BUF_SLAB_MAX + 1,
				       (size_t)16 << 20};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct far_buf *b = buf_alloc(sizes[i]);
		cr_assert_not_null(b, "%zu bytes", sizes[i]);
		cr_assert_eq((uintptr_t)buf_data(b) % 64, 0u);
		memset(buf_data(b), 0x5a, sizes[i]);
		buf_unref(b);
	}
}

Test(buf, too_large_is_refused)
{
	static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX / 2, (size_t)1 << 47, (size_t)1 << 42};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		cr_assert_null(buf_alloc(sizes[i]), "%zu bytes", sizes[i]);
}

/* What the allocator has handed out. */
static uint64_t large_used(void)
{
	struct far_memory m;
	far_memory_stats(&m);
	return m.large_used;
}

Test(buf, slabs_end_where_the_allocator_begins)
{
	struct far_buf *slab = buf_alloc(BUF_SLAB_MAX);
	cr_assert_eq(large_used(), 0u);
	struct far_buf *large = buf_alloc(BUF_SLAB_MAX + 1);
	cr_assert_geq(large_used(), BUF_SLAB_MAX + 1);
	cr_assert(region_is_slab(slab));
	cr_assert(region_holds(large) && !region_is_slab(large));
	buf_unref(large);
	cr_assert_eq(large_used(), 0u);
	buf_unref(slab);
}

Test(buf, more_than_four_gib)
{
	size_t bytes = ((size_t)4 << 30) + 1;
	cr_assert_eq(far_memory_limit(UINT64_C(8) << 30, NULL), FAR_OK);
	struct far_buf *b = buf_alloc(bytes);
	cr_assert_not_null(b);
	uint8_t *d = buf_data(b);
	cr_assert_eq((uintptr_t)d % 64, 0u);
	d[0] = 1;
	d[bytes - 1] = 2;
	cr_assert_null(buf_alloc(bytes), "the region holds one of them");
	buf_unref(b);
	struct far_memory m;
	far_memory_stats(&m);
	cr_assert_eq(m.large_committed, 0u);
	cr_assert_leq(m.retained, UINT64_C(64) << 20);
	b = buf_alloc(bytes);
	cr_assert_not_null(b);
	buf_unref(b);
}

Test(buf, used_slabs_are_counted)
{
	struct far_memory before, with, after;
	struct far_buf *b[10];
	far_memory_stats(&before);
	for (int i = 0; i < 10; i++)
		b[i] = buf_alloc(1000);
	far_memory_stats(&with);
	cr_assert_geq(with.slab_used, before.slab_used + 10 * 1024);
	cr_assert_geq(with.slab_committed, with.slab_used);
	for (int i = 0; i < 10; i++)
		buf_unref(b[i]);
	far_memory_stats(&after);
	cr_assert_eq(after.slab_used, before.slab_used);
	cr_assert_eq(after.slab_committed, with.slab_committed);
}

Test(buf, neighbours_do_not_overlap)
{
	enum { N = 64 };
	struct far_buf *b[N];
	for (int i = 0; i < N; i++) {
		b[i] = buf_alloc(300);
		memset(buf_data(b[i]), i, 512);
	}
	for (int i = 0; i < N; i++) {
		const uint8_t *d = buf_data(b[i]);
		for (int k = 0; k < 512; k++)
			cr_assert_eq(d[k], i);
	}
	for (int i = 0; i < N; i++)
		buf_unref(b[i]);
}

Test(buf, the_last_reference_gives_it_back)
{
	struct far_buf *b = buf_alloc(1000);
	buf_ref(b);
	buf_unref(b);
	struct far_buf *other = buf_alloc(1000);
	cr_assert_neq(other, b);
	buf_unref(b);
	struct far_buf *again = buf_alloc(1000);
	cr_assert_eq(again, b, "last in, first out");
	buf_unref(again);
	buf_unref(other);
}

static void exhaust(size_t bytes, uint64_t limit)
{
	enum { N = 4096 };
	static struct far_buf *b[N];
	int n = 0;
	cr_assert_eq(far_memory_limit(limit, NULL), FAR_OK);
	while (n < N && (b[n] = buf_alloc(bytes)))
		n++;
	cr_assert_gt(n, 0);
	cr_assert_lt(n, N);
	cr_assert_null(buf_alloc(bytes));
	for (int i = 0; i < n; i++)
		buf_unref(b[i]);
	struct far_buf *again = buf_alloc(bytes);
	cr_assert_not_null(again);
	buf_unref(again);
}

Test(buf, exhaustion_by_slabs_is_null_and_recovers)
{
	exhaust(65536, UINT64_C(64) << 20);
}

Test(buf, exhaustion_by_large_ones_is_null_and_recovers)
{
	exhaust((size_t)3 << 20, UINT64_C(64) << 20);
}

Test(buf, a_borrowed_slab_goes_back_to_its_class)
{
	exhaust(BUF_SLAB_MAX, UINT64_C(64) << 20);
	while (region_carve(64)) {
	}
	struct far_buf *small = buf_alloc(100);
	cr_assert_not_null(small);
	cr_assert_eq(small->kind, BUF_CLASS_MAX);
	buf_unref(small);
	struct far_buf *large = buf_alloc(BUF_SLAB_MAX);
	cr_assert_eq(large, small);
	buf_unref(large);
}

/* Small calls go on when large payloads have taken all they may have. */
Test(buf, large_ones_leave_room_for_slabs)
{
	cr_assert_eq(far_memory_limit(UINT64_C(64) << 20, NULL), FAR_OK);
	while (buf_alloc((size_t)3 << 20) || buf_alloc(BUF_SLAB_MAX + 1)) {
	}
	for (int i = 0; i < 1000; i++)
		cr_assert_not_null(buf_alloc(2000), "%d", i);
}

Test(buf, memory_of_runs_serves_slabs_again)
{
	cr_assert_eq(far_memory_limit(UINT64_C(256) << 20, NULL), FAR_OK);
	struct far_buf *large = buf_alloc((size_t)200 << 20);
	cr_assert_not_null(large);
	memset(buf_data(large), 1, (size_t)200 << 20);
	buf_unref(large);
	for (int i = 0; i < 100; i++)
		cr_assert_not_null(buf_alloc(BUF_SLAB_MAX), "%d", i);
	cr_assert(runs_sane());
}

Test(buf, null_is_fine)
{
	buf_unref(NULL);
	struct far_val v = far_int(1);
	far_val_fini(&v);
	cr_assert_eq(v.type, FAR_TYPE_NONE);
}

Test(buf, a_value_gives_back_what_it_owns)
{
	struct far_buf *b = buf_alloc(100);
	struct far_val v = far_bytes(buf_data(b), 100);
	v.own = b;
	far_val_fini(&v);
	cr_assert_null(v.own);
	struct far_buf *again = buf_alloc(100);
	cr_assert_eq(again, b);
	buf_unref(again);
	far_val_fini(&v);
}

/* Each thread marks its buffers; a buffer handed out twice would show the other's mark. */
static void *churn(void *arg)
{
	uintptr_t mark = (uintptr_t)arg;
	for (unsigned i = 0; i < 20000; i++) {
		struct far_buf *b[3];
		for (unsigned k = 0; k < 3; k++) {
			b[k] = buf_alloc((i % 4 + 1) * 200);
			uintptr_t word = mark << 32 | i << 2 | k;
			memcpy(buf_data(b[k]), &word, sizeof word);
		}
		for (unsigned k = 0; k < 3; k++) {
			uintptr_t word;
			memcpy(&word, buf_data(b[k]), sizeof word);
			if (word != (mark << 32 | i << 2 | k))
				return (void *)1;
			buf_unref(b[k]);
		}
	}
	return NULL;
}

Test(buf, threads_never_share_one, .timeout = 60)
{
	pthread_t t[4];
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, churn, (void *)(i + 1));
	for (int i = 0; i < 4; i++) {
		void *bad;
		pthread_join(t[i], &bad);
		cr_assert_null(bad);
	}
}

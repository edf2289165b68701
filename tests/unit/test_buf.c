/* SPDX-License-Identifier: BSD-3-Clause */
#include "xcore/buf.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

Test(buf, every_size_is_aligned_and_writable)
{
	static const size_t sizes[] = {
		0, 1, 255, 256, 257, 4095, 4096, 65537, (size_t)16 << 20, (size_t)1 << BUF_CLASS_MAX};
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
	cr_assert_null(buf_alloc(((size_t)1 << BUF_CLASS_MAX) + 1));
	cr_assert_null(buf_alloc(SIZE_MAX));
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

Test(buf, exhaustion_is_null_and_recovers)
{
	enum { N = (int)(BUF_REGION_BYTES >> BUF_CLASS_MAX) + 1 };
	static struct far_buf *b[N];
	int n = 0;
	while (n < N && (b[n] = buf_alloc((size_t)1 << BUF_CLASS_MAX)))
		n++;
	cr_assert_gt(n, 0);
	cr_assert_lt(n, N);
	cr_assert_null(buf_alloc((size_t)1 << BUF_CLASS_MAX));
	for (int i = 0; i < n; i++)
		buf_unref(b[i]);
	struct far_buf *again = buf_alloc((size_t)1 << BUF_CLASS_MAX);
	cr_assert_not_null(again);
	buf_unref(again);
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

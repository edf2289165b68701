/* SPDX-License-Identifier: BSD-3-Clause */
/** Received bytes: appended up to a bound, to the byte. The test's thread. */
#include "etcd/buffer.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

Test(buffer, grows_up_to_its_bound)
{
	struct buffer b = {.data = NULL};
	cr_assert(buffer_put(&b, NULL, 0, 10));
	cr_assert(buffer_put(&b, "abc", 3, 10));
	cr_assert(buffer_put(&b, "defghij", 7, 10));
	cr_assert_eq(b.len, 10u);
	cr_assert_arr_eq(b.data, "abcdefghij", 10);
	cr_assert_not(buffer_put(&b, "k", 1, 10), "one byte beyond");
	cr_assert_not(buffer_put(&b, "k", SIZE_MAX, 10), "a length that wraps");
	cr_assert_eq(b.len, 10u, "what was there stays");
	cr_assert(buffer_put(&b, NULL, 0, 10));
	buffer_free(&b);
	cr_assert(!b.data && !b.len && !b.cap);
	cr_assert(buffer_put(&b, "x", 1, 1), "it can be used again");
	buffer_free(&b);
}

Test(buffer, many_short_ones)
{
	struct buffer b = {.data = NULL};
	for (unsigned i = 0; i < 100000; i++) {
		char c = (char)(i % 251);
		cr_assert(buffer_put(&b, &c, 1, 100000));
	}
	for (unsigned i = 0; i < 100000; i++)
		cr_assert_eq(b.data[i], (char)(i % 251));
	buffer_free(&b);
}

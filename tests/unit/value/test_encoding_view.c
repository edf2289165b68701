/* SPDX-License-Identifier: BSD-3-Clause */
/** Strided views are gathered as a walk over their elements, one by one, would. The test's thread. */
#include "value/encoding_view.h"
#include "value_trees.h"

#include <criterion/criterion.h>
#include <string.h>

#define ELEMENTS_MAX 4096

static uint8_t memory[1 << 16], dense[ELEMENTS_MAX * 8 + 1], want[ELEMENTS_MAX * 8];

/** The elements of the view in order, found by their indices alone. Returns how many. */
static size_t walk(const struct far_tensor *t, size_t element)
{
	size_t n = 1, written = 0;
	for (unsigned k = 0; k < t->ndim; k++)
		n *= t->shape[k];
	for (size_t i = 0; i < n; i++, written++) {
		ptrdiff_t at = 0;
		size_t left = i;
		for (unsigned k = t->ndim; k-- > 0; left /= t->shape[k])
			at += (ptrdiff_t)(left % t->shape[k]) * (ptrdiff_t)t->strides[k];
		memcpy(want + written * element, (const uint8_t *)t->data + at * (ptrdiff_t)element, element);
	}
	return n;
}

static void expect_gathered(const struct far_tensor *t, size_t element)
{
	size_t bytes = walk(t, element) * element;
	dense[bytes] = 0xee;
	view_gather(t, element, dense);
	cr_assert_arr_eq(dense, want, bytes);
	cr_assert_eq(dense[bytes], 0xee, "nothing behind the last element");
}

static const enum far_dtype of_bytes[9] = {[1] = FAR_U8, [2] = FAR_I16, [4] = FAR_F32, [8] = FAR_F64};

static void fill(void)
{
	for (size_t i = 0; i < sizeof memory; i++)
		memory[i] = (uint8_t)(i * 131 >> 3 ^ i);
}

Test(encoding_view, transposed_reversed_and_repeated)
{
	fill();
	for (size_t element = 1; element <= 8; element *= 2) {
		const uint64_t shape[3] = {3, 4, 5}, one[1] = {1};
		const int64_t whole[3] = {20, 5, 1}, transposed[3] = {1, 3, 12}, back[3] = {-20, -5, -1},
			      still[3] = {0, 1, 0}, any[1] = {77};
		const uint8_t *middle = memory + sizeof memory / 2;
		const int64_t *const strides[] = {whole, transposed, back, still};
		for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
			struct far_tensor t = far_tensor_nd(of_bytes[element], middle, 3, shape, strides[i]);
			expect_gathered(&t, element);
		}
		struct far_tensor t = far_tensor_nd(of_bytes[element], middle, 1, one, any);
		expect_gathered(&t, element);
		t = far_tensor_nd(of_bytes[element], middle, 0, NULL, NULL);
		expect_gathered(&t, element);
	}
}

static uint64_t below(uint64_t *state, uint64_t n)
{
	return tree_random_u64(state) % n;
}

Test(encoding_view, random_views)
{
	uint64_t state = 1;
	fill();
	for (int i = 0; i < 20000; i++) {
		size_t element = (size_t)1 << below(&state, 4), n = 1;
		unsigned ndim = (unsigned)below(&state, FAR_DIMS_MAX + 1);
		uint64_t shape[FAR_DIMS_MAX];
		int64_t strides[FAR_DIMS_MAX];
		for (unsigned k = 0; k < ndim; k++) {
			shape[k] = 1 + below(&state, n > 200 ? 2 : 5);
			strides[k] = (int64_t)below(&state, 60) - 30;
			n *= shape[k];
		}
		/* Now and then dimensions that are one behind the other, so that they are merged. */
		for (unsigned k = ndim; k-- > 1 && i % 3 == 0;)
			strides[k - 1] = strides[k] * (int64_t)shape[k];
		int64_t low = 0, high = 0;
		for (unsigned k = 0; k < ndim; k++)
			*(strides[k] < 0 ? &low : &high) += strides[k] * (int64_t)(shape[k] - 1);
		if (n > ELEMENTS_MAX || (uint64_t)(high - low + 1) * element > sizeof memory)
			continue;
		struct far_tensor t =
			far_tensor_nd(of_bytes[element], memory - low * (int64_t)element, ndim, shape, strides);
		expect_gathered(&t, element);
	}
}

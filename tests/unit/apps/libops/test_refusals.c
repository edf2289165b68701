/* SPDX-License-Identifier: BSD-3-Clause */
/** What libfarcall-ops refuses: with which status and text, and that outputs stay as they were. The test's thread. */
#include "tensors.h"

TestSuite(refusals, .fini = tensors_free);

/* The call fails with this status and a text that contains all of the words. */
#define REFUSED(wanted, call, ...)                                                                                     \
	do {                                                                                                           \
		struct far_err err = {0};                                                                              \
		enum far_status status = (call);                                                                       \
		cr_assert_eq(status, wanted, "%s: status %d, %s", #call, (int)status, err.text);                       \
		cr_assert_eq(err.status, status);                                                                      \
		const char *words[] = {__VA_ARGS__};                                                                   \
		for (size_t word = 0; word < sizeof words / sizeof words[0]; word++)                                   \
			cr_assert_not_null(strstr(err.text, words[word]), "\"%s\" is not in \"%s\"", words[word],      \
					   err.text);                                                                  \
	} while (0)

Test(refusals, shapes)
{
	struct far_tensor a = T(FAR_F32, 2, 3), b = T(FAR_F32, 4, 5), out = {0}, s = SCALAR(FAR_F32), v = T(FAR_F32, 3);
	struct far_tensor x4 = T(FAR_F32, 1, 3, 5, 5), w4 = T(FAR_F32, 2, 2, 3, 3), big = T(FAR_F32, 2, 3, 9, 9);
	struct far_op_work work = {0};
	REFUSED(FAR_INVALID, far_op_add(&a, &b, &out, &err), "add:", "f32[2,3]", "f32[4,5]", "broadcast");
	REFUSED(FAR_INVALID, far_op_matmul(&a, &b, &out, &work, &err), "matmul:", "f32[2,3]", "f32[4,5]", "3", "4");
	REFUSED(FAR_INVALID, far_op_matmul(&s, &b, &out, &work, &err), "matmul:", "rank 0");
	REFUSED(FAR_INVALID, far_op_linear(&a, &b, NULL, &out, &work, &err), "linear:", "f32[4,5]");
	REFUSED(FAR_INVALID, far_op_conv2d(&x4, &w4, NULL, NULL, &out, &work, &err), "conv2d:", "3 channels");
	REFUSED(FAR_INVALID, far_op_conv2d(&x4, &big, NULL, NULL, &out, &work, &err), "conv2d:", "does not fit");
	REFUSED(FAR_INVALID, far_op_conv2d(&a, &w4, NULL, NULL, &out, &work, &err), "conv2d:", "f32[2,3]");
	REFUSED(FAR_INVALID, far_op_mse(&a, &b, FAR_OP_REDUCE_MEAN, &out, &err), "mse:", "f32[4,5]", "f32[2,3]");
	REFUSED(FAR_INVALID, far_op_mse(&a, &a, (enum far_op_reduction)3, &out, &err), "mse:", "reduction 3");
	REFUSED(FAR_INVALID, far_op_reshape(&a, 1, (const uint64_t[]){5}, &out, &err), "reshape:", "6 elements", "5");
	REFUSED(FAR_INVALID, far_op_add_backward(&a, &b, &b, &out, NULL, &err), "add_backward:", "grad is f32[2,3]",
		"f32[4,5]");
	const struct far_tensor *xs[2] = {&a, &b};
	REFUSED(FAR_INVALID, far_op_cat(xs, 2, 0, &out, &err), "cat:", "f32[2,3]", "f32[4,5]");
	REFUSED(FAR_INVALID, far_op_cat(xs, 0, 0, &out, &err), "cat:", "no tensors");
	int64_t strides[FAR_DIMS_MAX];
	REFUSED(FAR_INVALID, far_op_expand(&a, 2, (const uint64_t[]){2, 4}, strides, &out, &err),
		"expand:", "f32[2,4]");
	REFUSED(FAR_INVALID, far_op_expand(&a, 1, (const uint64_t[]){3}, strides, &out, &err), "expand:", "f32[3]");
	REFUSED(FAR_INVALID, far_op_slice(&a, 1, 2, 1, 1, strides, &out, &err), "slice:", "2:1:1", "axis 1");
	REFUSED(FAR_INVALID, far_op_slice(&a, 1, 0, 4, 1, strides, &out, &err), "slice:", "0:4:1");
	REFUSED(FAR_INVALID, far_op_slice(&a, 1, 0, 2, 0, strides, &out, &err), "slice:", "0:2:0");
	/* An output of another shape or dtype stays as it was. */
	struct far_tensor wrong = T(FAR_F32, 3, 2), kept = wrong, f64 = T(FAR_F64, 2, 3);
	fill(&wrong, 1, 2);
	double before = get(&wrong, 3);
	REFUSED(FAR_INVALID, far_op_add(&a, &v, &wrong, &err), "add:", "out is f32[3,2]", "f32[2,3]");
	REFUSED(FAR_INVALID, far_op_add(&a, &v, &f64, &err), "out is f64[2,3]", "instead of f32[2,3]");
	cr_assert(get(&wrong, 3) == before && wrong.data == kept.data);
}

Test(refusals, axes)
{
	struct far_tensor a = T(FAR_F32, 2, 3), s = SCALAR(FAR_F32), out = {0};
	int64_t strides[FAR_DIMS_MAX];
	REFUSED(FAR_INVALID, far_op_sum(&a, (const int[]){-1}, 1, false, &out, &err), "sum:", "axis -1", "[0, 2)");
	REFUSED(FAR_INVALID, far_op_mean(&a, (const int[]){2}, 1, false, &out, &err), "mean:", "axis 2");
	REFUSED(FAR_INVALID, far_op_sum(&a, (const int[]){1, 1}, 2, false, &out, &err), "axis 1", "twice");
	REFUSED(FAR_INVALID, far_op_softmax(&s, 0, &out, &err), "softmax:", "axis 0", "f32[]");
	REFUSED(FAR_INVALID, far_op_max_axis(&a, -2, false, &out, NULL, &err), "max_axis:", "axis -2");
	REFUSED(FAR_INVALID, far_op_transpose(&a, 0, 2, strides, &out, &err), "transpose:", "axis 2");
	struct far_tensor empty = T(FAR_F32, 2, 0);
	REFUSED(FAR_INVALID, far_op_min_axis(&empty, 1, false, &out, NULL, &err), "min_axis:", "no elements");
}

Test(refusals, dtypes)
{
	struct far_tensor f = T(FAR_F32, 2), d = T(FAR_F64, 2), i = T(FAR_I32, 2), b = T(FAR_BOOL, 2), out = {0};
	struct far_op_work work = {0};
	REFUSED(FAR_INVALID, far_op_mul(&f, &d, &out, &err), "mul:", "f32[2]", "f64[2]", "dtypes");
	REFUSED(FAR_INVALID, far_op_matmul(&f, &d, &out, &work, &err), "matmul:", "dtypes");
	REFUSED(FAR_UNSUPPORTED, far_op_div(&i, &i, &out, &err), "div:", "i32[2]");
	REFUSED(FAR_UNSUPPORTED, far_op_sub(&b, &b, &out, &err), "sub:", "bool[2]");
	REFUSED(FAR_UNSUPPORTED, far_op_exp(&i, &out, &err), "exp:", "i32[2]");
	REFUSED(FAR_UNSUPPORTED, far_op_sum(&i, NULL, 0, false, &out, &err), "sum:", "i32[2]");
	REFUSED(FAR_UNSUPPORTED, far_op_neg_backward(&i, &out, &err), "neg_backward:", "i32[2]");
	struct far_tensor odd = f;
	odd.dtype = 77;
	REFUSED(FAR_INVALID, far_op_exp(&odd, &out, &err), "exp:", "dtype 77");
	REFUSED(FAR_INVALID, far_op_copy(&f, &odd, &err), "copy:", "dtype 77");
}

Test(refusals, indices)
{
	struct far_tensor w = T(FAR_F32, 5, 2), index = T(FAR_I64, 3), x = T(FAR_F32, 3, 4), out = {0},
			  f = T(FAR_F32, 3);
	struct far_tensor offsets = T(FAR_I32, 2), grad = T(FAR_F32, 3, 2), rows = {0}, sums = {0};
	struct far_op_work work = {0};
	size_t unique = 99;
	fill(&index, 0, 4);
	set(&index, 1, 5);
	REFUSED(FAR_INVALID, far_op_embedding(&w, &index, &out, &err), "embedding:", "element 1", "is 5", "[0, 5)");
	set(&index, 1, -1);
	REFUSED(FAR_INVALID, far_op_embedding(&w, &index, &out, &err), "element 1", "is -1");
	REFUSED(FAR_INVALID, far_op_embedding_backward(&grad, &w, &index, &out, &work, &err),
		"embedding_backward:", "-1");
	REFUSED(FAR_INVALID, far_op_cross_entropy(&x, &index, FAR_OP_REDUCE_SUM, &out, &err), "target[1] is -1",
		"[0, 4)");
	REFUSED(FAR_INVALID, far_op_sparse_sum(&index, &grad, 5, &rows, &sums, &unique, &work, &err),
		"sparse_sum:", "-1");
	cr_assert_eq(unique, 99);
	REFUSED(FAR_INVALID, far_op_embedding(&w, &f, &out, &err), "f32[3]", "i32 or i64");
	set(&index, 1, 0);
	set(&offsets, 0, 0);
	set(&offsets, 1, 4);
	REFUSED(FAR_INVALID, far_op_embedding_bag(&w, &index, &offsets, FAR_OP_BAG_SUM, &out, &err), "offsets[1] is 4");
	set(&offsets, 0, 1);
	set(&offsets, 1, 2);
	REFUSED(FAR_INVALID, far_op_embedding_bag(&w, &index, &offsets, FAR_OP_BAG_SUM, &out, &err), "offsets[0] is 1");
	set(&offsets, 0, 0);
	set(&offsets, 1, -1);
	REFUSED(FAR_INVALID, far_op_embedding_bag_backward(&grad, &index, &offsets, FAR_OP_BAG_SUM, &out, &err),
		"offsets[1] is -1");
	REFUSED(FAR_INVALID, far_op_embedding_bag(&w, &index, &offsets, (enum far_op_bag)9, &out, &err), "mode 9");
	struct far_tensor best = T(FAR_I64, 3), g = T(FAR_F32, 3);
	set(&best, 0, 0);
	set(&best, 1, 4);
	set(&best, 2, 0);
	struct far_tensor dx = T(FAR_F32, 3, 4);
	fill(&dx, 1, 2);
	double before = get(&dx, 0);
	REFUSED(FAR_INVALID, far_op_max_axis_backward(&g, &x, &best, 1, false, &dx, &err), "index 4", "[0, 4)");
	cr_assert_eq(get(&dx, 0), before);
}

Test(refusals, sizes)
{
	struct far_tensor huge = ops_dense(FAR_F32, &huge, 3, (const uint64_t[]){1ull << 40, 1ull << 40, 4}), out = {0};
	struct far_tensor hidden = ops_dense(FAR_F32, NULL, 3, (const uint64_t[]){0, 1ull << 63, 1ull << 63});
	REFUSED(FAR_TOO_LARGE, far_op_exp(&huge, &out, &err), "exp:", "1099511627776");
	REFUSED(FAR_TOO_LARGE, far_op_exp(&hidden, &out, &err), "exp:", "9223372036854775808");
	struct far_tensor half =
		ops_dense(FAR_F32, &half, 1, (const uint64_t[]){3ull << 60}); /* less than 2^64 bytes */
	REFUSED(FAR_TOO_LARGE, far_op_exp(&half, &out, &err), "exp:", "3458764513820540928");
	/* Operands that exist, and a result that cannot. */
	static float one;
	static const int64_t zeros[2] = {0, 0};
	struct far_tensor row = far_tensor_nd(FAR_F32, &one, 2, (const uint64_t[]){1ull << 60, 1}, zeros);
	struct far_tensor column = far_tensor_nd(FAR_F32, &one, 2, (const uint64_t[]){1, 1ull << 60}, zeros);
	struct far_op_work work = {0};
	REFUSED(FAR_TOO_LARGE, far_op_add(&row, &column, &out, &err),
		"add:", "out f32[1152921504606846976,1152921504606846976]");
	REFUSED(FAR_TOO_LARGE, far_op_matmul(&row, &column, &out, &work, &err), "matmul:", "out f32");
	static const int64_t wide[2] = {INT64_MAX, INT64_MIN};
	struct far_tensor far = far_tensor_nd(FAR_F32, &one, 2, (const uint64_t[]){2, 2}, wide);
	REFUSED(FAR_TOO_LARGE, far_op_exp(&far, &out, &err), "exp:", "strides", "f32[2,2]");
	struct far_tensor deep = T(FAR_F32, 2);
	deep.ndim = 9;
	REFUSED(FAR_INVALID, far_op_exp(&deep, &out, &err), "9 dimensions");
	struct far_tensor index = T(FAR_I64, 1, 1, 1, 1, 1, 1, 1, 1), w = T(FAR_F32, 1, 1);
	set(&index, 0, 0);
	REFUSED(FAR_INVALID, far_op_embedding(&w, &index, &out, &err), "embedding:", "too many dimensions");
	uint64_t shape[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
	struct far_tensor s = T(FAR_F32, 1);
	REFUSED(FAR_INVALID, far_op_reshape(&s, 9, shape, &out, &err), "9 dimensions");
	struct far_op_conv conv = {.padding = {UINT32_MAX, UINT32_MAX}};
	struct far_tensor x = T(FAR_F32, 1, 1, 2, 2), kernel = T(FAR_F32, 1, 1, 2, 2);
	REFUSED(FAR_TOO_LARGE, far_op_conv2d(&x, &kernel, NULL, &conv, &out, &work, &err), "conv2d:");
}

Test(refusals, memory)
{
	struct far_tensor a = T(FAR_F32, 4), none = ops_dense(FAR_F32, NULL, 1, (const uint64_t[]){4}),
			  out = T(FAR_F32, 4);
	struct far_tensor odd = a, part = T(FAR_F32, 8), left = part, right = part;
	struct far_op_work work = {0};
	REFUSED(FAR_INVALID, far_op_exp(NULL, &out, &err), "exp:", "x is NULL");
	REFUSED(FAR_INVALID, far_op_exp(&a, NULL, &err), "exp:", "out is NULL");
	REFUSED(FAR_INVALID, far_op_exp(&none, &out, &err), "exp:", "x f32[4] has no memory");
	REFUSED(FAR_INVALID, far_op_exp(&a, &none, &err), "exp:", "out f32[4] has no memory");
	odd.data = (char *)a.data + 1;
	REFUSED(FAR_INVALID, far_op_exp(&odd, &out, &err), "exp:", "aligned");
	odd = a;
	odd.domain = 1;
	REFUSED(FAR_INVALID, far_op_exp(&odd, &out, &err), "domain 1");
	left.shape[0] = right.shape[0] = 4;
	right.data = (char *)part.data + 4;
	REFUSED(FAR_INVALID, far_op_exp(&left, &right, &err), "exp:", "overlaps", "x");
	REFUSED(FAR_INVALID, far_op_softmax(&a, 0, &a, &err), "softmax:", "overlaps");
	static const int64_t strides[1] = {2}, zero[1] = {0};
	struct far_tensor loose = far_tensor_nd(FAR_F32, part.data, 1, (const uint64_t[]){4}, strides);
	struct far_tensor pressed = far_tensor_nd(FAR_F32, part.data, 1, (const uint64_t[]){4}, zero);
	REFUSED(FAR_INVALID, far_op_exp(&a, &loose, &err), "exp:", "view");
	REFUSED(FAR_INVALID, far_op_copy(&a, &pressed, &err), "copy:", "stride 0");
	REFUSED(FAR_INVALID, far_op_reshape(&loose, 1, (const uint64_t[]){4}, &odd, &err), "reshape:", "view");
	struct far_tensor m = T(FAR_F32, 9, 9), p = T(FAR_F32, 9, 9);
	fill(&m, 0, 1);
	REFUSED(FAR_INVALID, far_op_matmul(&m, &m, &p, NULL, &err), "matmul:", "work is NULL");
	OK(far_op_matmul(&m, &m, &p, &work, &err));
	work.data = take(work.bytes);
	work.bytes--;
	REFUSED(FAR_RESOURCE, far_op_matmul(&m, &m, &p, &work, &err), "matmul:", "workspace");
	struct far_tensor same = T(FAR_F32, 4);
	REFUSED(FAR_INVALID, far_op_mul_backward(&a, &out, &out, &same, &same, &err), "mul_backward:", "overlaps");
	/* Without an err it only returns the status. */
	cr_assert_eq(far_op_exp(NULL, &out, NULL), FAR_INVALID);
	REFUSED(FAR_INVALID, far_op_dropout(&a, 1.5, 0, 0, &out, &err), "dropout:", "1.5");
	REFUSED(FAR_INVALID, far_op_dropout(&a, NAN, 0, 0, &out, &err), "dropout:", "nan");
}

Test(refusals, cells)
{
	struct far_tensor x = T(FAR_F32, 2, 3), h = T(FAR_F32, 2, 4), wi = T(FAR_F32, 16, 3), wh = T(FAR_F32, 16, 4);
	struct far_tensor bias = T(FAR_F32, 12), out = {0}, c = {0};
	struct far_op_work work = {0};
	struct far_op_cell cell = {&wi, &wh, &bias, NULL}, none = {0};
	REFUSED(FAR_INVALID, far_op_lstm_cell(&x, &h, &h, &cell, &out, &c, NULL, &work, &err),
		"lstm_cell:", "bias_input", "f32[12]", "f32[16]");
	REFUSED(FAR_INVALID, far_op_gru_cell(&x, &h, &cell, &out, NULL, &work, &err), "gru_cell:", "w_input",
		"f32[16,3]", "f32[12,3]");
	REFUSED(FAR_INVALID, far_op_gru_cell(&x, &h, &none, &out, NULL, &work, &err), "w_input is NULL");
	REFUSED(FAR_INVALID, far_op_gru_cell(&x, &h, NULL, &out, NULL, &work, &err), "cell is NULL");
	cell.bias_input = NULL;
	REFUSED(FAR_INVALID, far_op_lstm_cell(&x, &h, &x, &cell, &out, &c, NULL, &work, &err), "c is f32[2,3]",
		"f32[2,4]");
}

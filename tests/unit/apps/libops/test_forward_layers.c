/* SPDX-License-Identifier: BSD-3-Clause */
/** Products, cells and embeddings of libfarcall-ops against the plainest loops there are. The test's thread. */
#include "tensors.h"

static void begin(void)
{
	setenv("FAR_OPS_BLAS", "none", 1); /* test_matmul compares it with the library's own loops */
}

TestSuite(forward_layers, .init = begin, .fini = tensors_free);

/* ---- products ---- */

Test(forward_layers, products)
{
	for (size_t d = 0; d < 4; d++) {
		struct far_tensor a = random_tensor(floats[d], 4, (const uint64_t[]){2, 1, 3, 70}, -1, 1);
		struct far_tensor b = random_tensor(floats[d], 3, (const uint64_t[]){4, 70, 5}, -1, 1);
		struct far_tensor out = T(floats[d], 2, 4, 3, 5);
		WITH_WORK(false, far_op_matmul(&a, &b, &out, &work, &err));
		for (uint64_t i = 0; i < ops_count(&out); i++) {
			uint64_t column = i % 5, row = i / 5 % 3, second = i / 15 % 4, first = i / 60;
			double sum = 0;
			for (uint64_t k = 0; k < 70; k++)
				sum += get(&a, (first * 3 + row) * 70 + k) * get(&b, (second * 70 + k) * 5 + column);
			cr_assert(near(get(&out, i), sum, 2 * tolerance(floats[d])), "%s: %g, not %g",
				  ops_dtype_name(floats[d]), get(&out, i), sum);
		}
		struct far_tensor x = random_tensor(floats[d], 3, (const uint64_t[]){2, 3, 70}, -1, 1);
		struct far_tensor w = random_tensor(floats[d], 2, (const uint64_t[]){5, 70}, -1, 1);
		struct far_tensor bias = random_tensor(floats[d], 1, (const uint64_t[]){5}, -1, 1);
		struct far_tensor y = T(floats[d], 2, 3, 5);
		WITH_WORK(false, far_op_linear(&x, &w, &bias, &y, &work, &err));
		for (uint64_t i = 0; i < 30; i++) {
			double sum = get(&bias, i % 5);
			for (uint64_t k = 0; k < 70; k++)
				sum += get(&x, i / 5 * 70 + k) * get(&w, i % 5 * 70 + k);
			cr_assert(near(get(&y, i), sum, 2 * tolerance(floats[d])));
		}
	}
	/* No terms: zeros, or the bias. */
	struct far_tensor a = T(FAR_F32, 2, 0), b = T(FAR_F32, 0, 3), out = T(FAR_F32, 2, 3);
	WITH_WORK(false, far_op_matmul(&a, &b, &out, &work, &err));
	for (uint64_t i = 0; i < 6; i++)
		cr_assert_eq(get(&out, i), 0);
}

Test(forward_layers, conv2d)
{
	for (size_t d = 0; d < 4; d++) {
		struct far_op_conv conv = {{2, 1}, {1, 2}, {2, 2}, 2};
		struct far_tensor x = random_tensor(floats[d], 4, (const uint64_t[]){2, 4, 6, 5}, -1, 1);
		struct far_tensor w = random_tensor(floats[d], 4, (const uint64_t[]){6, 2, 3, 2}, -1, 1);
		struct far_tensor bias = random_tensor(floats[d], 1, (const uint64_t[]){6}, -1, 1);
		struct far_tensor out = {0};
		WITH_WORK(true, far_op_conv2d(&x, &w, &bias, &conv, &out, &work, &err));
		cr_assert(out.shape[2] == 2 && out.shape[3] == 7);
		allocate(&out);
		WITH_WORK(false, far_op_conv2d(&x, &w, &bias, &conv, &out, &work, &err));
		for (uint64_t i = 0; i < ops_count(&out); i++) {
			int64_t column = i % 7, row = i / 7 % 2;
			uint64_t o = i / 14 % 6, n = i / 84;
			double sum = get(&bias, o);
			for (uint64_t c = 0; c < 2; c++)
				for (int64_t ky = 0; ky < 3; ky++)
					for (int64_t kx = 0; kx < 2; kx++) {
						int64_t y = row * 2 + ky * 2 - 1, at = column + kx * 2 - 2;
						if (y < 0 || y >= 6 || at < 0 || at >= 5)
							continue;
						sum += get(&x, ((n * 4 + o / 3 * 2 + c) * 6 + (uint64_t)y) * 5 +
								       (uint64_t)at) *
						       get(&w, ((o * 2 + c) * 3 + (uint64_t)ky) * 2 + (uint64_t)kx);
					}
			cr_assert(near(get(&out, i), sum, 2 * tolerance(floats[d])), "%s [%zu]: %g, not %g",
				  ops_dtype_name(floats[d]), (size_t)i, get(&out, i), sum);
		}
	}
}

static double gate(const struct far_tensor *x, const struct far_tensor *w, const struct far_tensor *bias, uint64_t n,
		   uint64_t row)
{
	double sum = get(bias, row);
	for (uint64_t k = 0; k < w->shape[1]; k++)
		sum += get(x, n * w->shape[1] + k) * get(w, row * w->shape[1] + k);
	return sum;
}

Test(forward_layers, cells)
{
	for (size_t d = 0; d < 4; d++) {
		enum far_dtype t = floats[d];
		struct far_tensor x = random_tensor(t, 2, (const uint64_t[]){3, 4}, -1, 1);
		struct far_tensor h = random_tensor(t, 2, (const uint64_t[]){3, 5}, -1, 1);
		struct far_tensor c = random_tensor(t, 2, (const uint64_t[]){3, 5}, -1, 1);
		for (uint64_t gates = 3; gates <= 4; gates++) {
			uint64_t rows = gates * 5;
			struct far_tensor wi = random_tensor(t, 2, (const uint64_t[]){rows, 4}, -1, 1);
			struct far_tensor wh = random_tensor(t, 2, (const uint64_t[]){rows, 5}, -1, 1);
			struct far_tensor bi = random_tensor(t, 1, &rows, -1, 1),
					  bh = random_tensor(t, 1, &rows, -1, 1);
			struct far_op_cell cell = {&wi, &wh, &bi, &bh};
			struct far_tensor h_next = T(t, 3, 5), c_next = T(t, 3, 5);
			if (gates == 4)
				WITH_WORK(false,
					  far_op_lstm_cell(&x, &h, &c, &cell, &h_next, &c_next, NULL, &work, &err));
			else
				WITH_WORK(false, far_op_gru_cell(&x, &h, &cell, &h_next, NULL, &work, &err));
			for (uint64_t i = 0; i < 15; i++) {
				uint64_t n = i / 5, u = i % 5;
				double g[4], in[4], hidden[4];
				for (uint64_t k = 0; k < gates; k++) {
					in[k] = gate(&x, &wi, &bi, n, k * 5 + u);
					hidden[k] = gate(&h, &wh, &bh, n, k * 5 + u);
					g[k] = in[k] + hidden[k];
				}
				double result;
				if (gates == 4) {
					double next = sigmoid(g[1]) * get(&c, i) + sigmoid(g[0]) * tanh(g[2]);
					cr_assert(near(get(&c_next, i), next, 2 * tolerance(t)));
					result = sigmoid(g[3]) * tanh(next);
				} else {
					double fresh = tanh(in[2] + sigmoid(g[0]) * hidden[2]);
					result = (1 - sigmoid(g[1])) * fresh + sigmoid(g[1]) * get(&h, i);
				}
				cr_assert(near(get(&h_next, i), result, 2 * tolerance(t)), "%s: %g, not %g",
					  ops_dtype_name(t), get(&h_next, i), result);
			}
		}
	}
}

/* ---- embeddings ---- */

Test(forward_layers, embeddings)
{
	static const enum far_dtype all[] = {FAR_F32, FAR_BF16, FAR_I8, FAR_F64};
	for (size_t d = 0; d < 4; d++) {
		struct far_tensor w = random_tensor(all[d], 2, (const uint64_t[]){9, 300}, 0, 5);
		struct far_tensor index = random_tensor(d % 2 ? FAR_I32 : FAR_I64, 2, (const uint64_t[]){2, 3}, 0, 9);
		struct far_tensor out = T(all[d], 2, 3, 300);
		OK(far_op_embedding(&w, &index, &out, &err));
		for (uint64_t i = 0; i < 1800; i++)
			cr_assert_eq(get(&out, i), get(&w, (uint64_t)get(&index, i / 300) * 300 + i % 300));
	}
	for (size_t d = 0; d < 4; d++)
		for (int mode = 0; mode < 2; mode++) {
			struct far_tensor w = random_tensor(floats[d], 2, (const uint64_t[]){9, 300}, -1, 1);
			struct far_tensor index = random_tensor(FAR_I64, 1, (const uint64_t[]){7}, 0, 9);
			struct far_tensor offsets = T(FAR_I64, 3), out = T(floats[d], 3, 300);
			static const uint64_t ends[4] = {0, 4, 4, 7};
			for (uint64_t i = 0; i < 3; i++)
				set(&offsets, i, (double)ends[i]);
			OK(far_op_embedding_bag(&w, &index, &offsets, (enum far_op_bag)mode, &out, &err));
			for (uint64_t i = 0; i < 900; i++) {
				uint64_t bag = i / 300;
				double sum = 0, n = (double)(ends[bag + 1] - ends[bag]);
				for (uint64_t k = ends[bag]; k < ends[bag + 1]; k++)
					sum += get(&w, (uint64_t)get(&index, k) * 300 + i % 300);
				sum = mode == FAR_OP_BAG_MEAN && n > 0 ? sum / n : sum;
				cr_assert(near(get(&out, i), sum, tolerance(floats[d])));
			}
		}
}

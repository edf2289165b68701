/* SPDX-License-Identifier: BSD-3-Clause */
/** Derivatives of products, cells, embeddings and changes of shape against central differences, in f64.
 * The test's thread. */
#include "problem.h"

TestSuite(backward_layers, .init = problems_begin, .fini = tensors_free);

/* ---- products ---- */

static void matmul_forward(struct problem *p)
{
	WITH_WORK(is_shape_query(&p->out[0]), far_op_matmul(&p->in[0], &p->in[1], &p->out[0], &work, &err));
}

static void matmul_derive(struct problem *p)
{
	WITH_WORK(is_shape_query(&p->din[0]),
		  far_op_matmul_backward(&p->grad[0], &p->in[0], &p->in[1], &p->din[0], &p->din[1], &work, &err));
}

Test(backward_layers, matmul)
{
	static const struct {
		unsigned na, nb;
		uint64_t a[4], b[4];
	} products[] = {
		{2, 2, {3, 4}, {4, 5}},       {1, 1, {6}, {6}},
		{1, 2, {4}, {4, 3}},          {2, 1, {3, 4}, {4}},
		{3, 2, {2, 3, 4}, {4, 2}},    {3, 3, {2, 3, 4}, {2, 4, 2}},
		{3, 3, {1, 3, 4}, {3, 4, 2}}, {4, 3, {2, 1, 2, 3}, {3, 3, 2}},
		{2, 3, {3, 4}, {2, 4, 2}},    {2, 2, {3, 0}, {0, 5}},
		{2, 2, {0, 3}, {3, 2}},       {3, 3, {0, 2, 3}, {1, 3, 2}},
		{1, 3, {4}, {2, 4, 3}},       {3, 1, {2, 3, 4}, {4}},
		{2, 2, {20, 300}, {300, 30}},
	};
	for (size_t k = 0; k < sizeof products / sizeof products[0]; k++)
		for (int again = 0; again < 2; again++) {
			struct problem p = {.name = "matmul", .n = 2, .outs = 1};
			p.in[0] = random_tensor(FAR_F64, products[k].na, products[k].a, -1, 1);
			p.in[1] = random_tensor(FAR_F64, products[k].nb, products[k].b, -1, 1);
			p.forward = matmul_forward;
			p.backward = matmul_derive;
			check(&p);
		}
}

static void linear_forward(struct problem *p)
{
	WITH_WORK(is_shape_query(&p->out[0]),
		  far_op_linear(&p->in[0], &p->in[1], p->bias ? &p->in[2] : NULL, &p->out[0], &work, &err));
}

static void linear_derive(struct problem *p)
{
	WITH_WORK(is_shape_query(&p->din[0]),
		  far_op_linear_backward(&p->grad[0], &p->in[0], &p->in[1], &p->din[0], &p->din[1],
					 p->bias ? &p->din[2] : NULL, &work, &err));
}

Test(backward_layers, linear)
{
	for (size_t k = 1; k < SHAPES; k++)
		for (int bias = 0; bias < 2; bias++) {
			uint64_t in = shapes[k].shape[shapes[k].n - 1];
			struct problem p = {.name = "linear", .n = 2 + (unsigned)bias, .outs = 1, .bias = bias};
			p.in[0] = random_tensor(FAR_F64, shapes[k].n, shapes[k].shape, -1, 1);
			p.in[1] = random_tensor(FAR_F64, 2, (const uint64_t[]){3, in}, -1, 1);
			p.in[2] = random_tensor(FAR_F64, 1, (const uint64_t[]){3}, -1, 1);
			p.forward = linear_forward;
			p.backward = linear_derive;
			check(&p);
		}
}

static void conv2d_forward(struct problem *p)
{
	const struct far_tensor *bias = p->bias ? &p->in[2] : NULL;
	WITH_WORK(is_shape_query(&p->out[0]),
		  far_op_conv2d(&p->in[0], &p->in[1], bias, &p->conv, &p->out[0], &work, &err));
}

static void conv2d_derive(struct problem *p)
{
	WITH_WORK(is_shape_query(&p->din[0]),
		  far_op_conv2d_backward(&p->grad[0], &p->in[0], &p->in[1], &p->conv, &p->din[0], &p->din[1],
					 p->bias ? &p->din[2] : NULL, &work, &err));
}

Test(backward_layers, conv2d)
{
	static const struct {
		uint64_t x[4], w[4];
		struct far_op_conv conv;
	} layers[] = {
		{{2, 3, 5, 6}, {4, 3, 3, 2}, {{0, 0}, {0, 0}, {0, 0}, 0}},
		{{1, 2, 5, 5}, {2, 2, 3, 3}, {{2, 1}, {1, 2}, {1, 2}, 1}},
		{{2, 4, 4, 3}, {6, 2, 2, 2}, {{1, 2}, {1, 0}, {0, 0}, 2}},
		{{2, 3, 3, 4}, {5, 3, 1, 1}, {{0, 0}, {0, 0}, {0, 0}, 0}},
		{{0, 3, 3, 3}, {2, 3, 2, 2}, {{0, 0}, {0, 0}, {0, 0}, 0}},
		{{1, 4, 3, 3}, {4, 1, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, 4}},
	};
	for (size_t k = 0; k < sizeof layers / sizeof layers[0]; k++)
		for (int bias = 0; bias < 2; bias++) {
			struct problem p = {.name = "conv2d", .n = 2 + (unsigned)bias, .outs = 1, .bias = bias};
			p.conv = layers[k].conv;
			p.in[0] = random_tensor(FAR_F64, 4, layers[k].x, -1, 1);
			p.in[1] = random_tensor(FAR_F64, 4, layers[k].w, -1, 1);
			p.in[2] = random_tensor(FAR_F64, 1, layers[k].w, -1, 1);
			p.forward = conv2d_forward;
			p.backward = conv2d_derive;
			check(&p);
		}
}

/* ---- cells: x, h, [c,] w_input, w_hidden, bias_input, bias_hidden ---- */

static struct far_op_cell cell_of(struct problem *p, unsigned first)
{
	struct far_op_cell cell = {&p->in[first], &p->in[first + 1], p->bias ? &p->in[first + 2] : NULL,
				   p->bias ? &p->in[first + 3] : NULL};
	return cell;
}

static struct far_op_cell_gradients gradients_of(struct problem *p, unsigned first)
{
	struct far_op_cell_gradients g = {&p->din[0],
					  &p->din[1],
					  first == 3 ? &p->din[2] : NULL,
					  &p->din[first],
					  &p->din[first + 1],
					  p->bias ? &p->din[first + 2] : NULL,
					  p->bias ? &p->din[first + 3] : NULL};
	return g;
}

static void lstm_forward(struct problem *p)
{
	struct far_op_cell cell = cell_of(p, 3);
	WITH_WORK(is_shape_query(&p->out[0]), far_op_lstm_cell(&p->in[0], &p->in[1], &p->in[2], &cell, &p->out[0],
							       &p->out[1], &p->out[2], &work, &err));
}

static void lstm_derive(struct problem *p)
{
	struct far_op_cell cell = cell_of(p, 3);
	struct far_op_cell_gradients g = gradients_of(p, 3);
	WITH_WORK(is_shape_query(&p->din[0]),
		  far_op_lstm_cell_backward(p->no_grad[0] ? NULL : &p->grad[0], p->no_grad[1] ? NULL : &p->grad[1],
					    &p->in[0], &p->in[1], &p->in[2], &cell, &p->out[1], &p->out[2], &g, &work,
					    &err));
}

static void gru_forward(struct problem *p)
{
	struct far_op_cell cell = cell_of(p, 2);
	WITH_WORK(is_shape_query(&p->out[0]),
		  far_op_gru_cell(&p->in[0], &p->in[1], &cell, &p->out[0], &p->out[1], &work, &err));
}

static void gru_derive(struct problem *p)
{
	struct far_op_cell cell = cell_of(p, 2);
	struct far_op_cell_gradients g = gradients_of(p, 2);
	WITH_WORK(is_shape_query(&p->din[0]),
		  far_op_gru_cell_backward(&p->grad[0], &p->in[0], &p->in[1], &cell, &p->out[1], &g, &work, &err));
}

Test(backward_layers, cells)
{
	static const uint64_t sizes[][3] = {{2, 3, 4}, {1, 1, 1}, {3, 2, 5}, {0, 2, 3}, {2, 0, 3}, {3, 40, 2}};
	for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
		for (int kind = 0; kind < 8; kind++) {
			uint64_t n = sizes[k][0], in = sizes[k][1], m = sizes[k][2];
			bool lstm = kind & 1;
			unsigned first = lstm ? 3 : 2;
			uint64_t rows = (lstm ? 4 : 3) * m;
			struct problem p = {.name = lstm ? "lstm" : "gru", .bias = kind & 2};
			p.n = first + (p.bias ? 4 : 2);
			p.outs = lstm ? 3 : 2;
			p.no_grad[p.outs - 1] = true; /* the gates */
			if (lstm && kind & 4)
				p.no_grad[k % 2] = true;
			p.in[0] = random_tensor(FAR_F64, 2, (const uint64_t[]){n, in}, -1, 1);
			p.in[1] = random_tensor(FAR_F64, 2, (const uint64_t[]){n, m}, -1, 1);
			p.in[2] = random_tensor(FAR_F64, 2, (const uint64_t[]){n, m}, -1, 1);
			p.in[first] = random_tensor(FAR_F64, 2, (const uint64_t[]){rows, in}, -1, 1);
			p.in[first + 1] = random_tensor(FAR_F64, 2, (const uint64_t[]){rows, m}, -1, 1);
			p.in[first + 2] = random_tensor(FAR_F64, 1, &rows, -1, 1);
			p.in[first + 3] = random_tensor(FAR_F64, 1, &rows, -1, 1);
			p.forward = lstm ? lstm_forward : gru_forward;
			p.backward = lstm ? lstm_derive : gru_derive;
			check(&p);
		}
}

/* ---- embeddings ---- */

static void embedding_forward(struct problem *p)
{
	OK(far_op_embedding(&p->in[0], &p->extra, &p->out[0], &err));
}

static void embedding_derive(struct problem *p)
{
	WITH_WORK(is_shape_query(&p->din[0]),
		  far_op_embedding_backward(&p->grad[0], &p->in[0], &p->extra, &p->din[0], &work, &err));
}

static void bag_forward(struct problem *p)
{
	OK(far_op_embedding_bag(&p->in[0], &p->extra, &p->offsets, p->mode, &p->out[0], &err));
}

/** The dense gradient from the sparse one: its rows, then its sums. */
static void bag_derive(struct problem *p)
{
	struct far_tensor rows = {0}, index = {0}, sums = {0};
	size_t unique = 0;
	OK(far_op_embedding_bag_backward(&p->grad[0], &p->extra, &p->offsets, p->mode, &rows, &err));
	if (p->din[0].dtype == FAR_DTYPE_NONE) {
		p->din[0] = ops_dense(FAR_F64, NULL, 2, p->in[0].shape);
		return;
	}
	allocate(&rows);
	OK(far_op_embedding_bag_backward(&p->grad[0], &p->extra, &p->offsets, p->mode, &rows, &err));
	struct far_op_work question = {0};
	OK(far_op_sparse_sum(&p->extra, &rows, p->in[0].shape[0], &index, &sums, &unique, &question, &err));
	allocate(&index);
	allocate(&sums);
	WITH_WORK(false, far_op_sparse_sum(&p->extra, &rows, p->in[0].shape[0], &index, &sums, &unique, &work, &err));
	uint64_t width = p->in[0].shape[1];
	memset(p->din[0].data, 0, ops_count(&p->din[0]) * sizeof(double));
	for (size_t i = 0; i < unique; i++) {
		cr_assert(i == 0 || get(&index, i - 1) < get(&index, i), "indices ascend, each once");
		for (uint64_t k = 0; k < width; k++)
			set(&p->din[0], (uint64_t)get(&index, i) * width + k, get(&sums, i * width + k));
	}
}

Test(backward_layers, embeddings)
{
	static const uint64_t tables[][2] = {{5, 3}, {4, 1}, {3, 300}, {2, 0}};
	for (size_t k = 0; k < sizeof tables / sizeof tables[0]; k++)
		for (size_t s = 0; s < SHAPES; s++) {
			struct problem p = {.name = "embedding", .n = 1, .outs = 1};
			p.in[0] = random_tensor(FAR_F64, 2, tables[k], -1, 1);
			p.extra = random_tensor(s % 2 ? FAR_I32 : FAR_I64, shapes[s].n, shapes[s].shape, 0,
						(double)tables[k][0]);
			p.forward = embedding_forward;
			p.backward = embedding_derive;
			check(&p);
		}
	for (size_t k = 0; k < sizeof tables / sizeof tables[0]; k++)
		for (int mode = 0; mode < 2; mode++) {
			struct problem p = {.name = "embedding_bag", .n = 1, .outs = 1, .mode = (enum far_op_bag)mode};
			p.in[0] = random_tensor(FAR_F64, 2, tables[k], -1, 1);
			p.extra = random_tensor(FAR_I64, 1, (const uint64_t[]){9}, 0, (double)tables[k][0]);
			p.offsets = T(FAR_I32, 4);
			set(&p.offsets, 0, 0);
			set(&p.offsets, 1, 4);
			set(&p.offsets, 2, 4); /* an empty bag */
			set(&p.offsets, 3, 5);
			p.forward = bag_forward;
			p.backward = bag_derive;
			check(&p);
		}
}

/* ---- shapes ---- */

static void slice_forward(struct problem *p)
{
	int64_t strides[FAR_DIMS_MAX];
	struct far_tensor part;
	uint64_t size = p->in[0].shape[p->axis];
	OK(far_op_slice(&p->in[0], p->axis, size > 1, size, 2, strides, &part, &err));
	OK(far_op_copy(&part, &p->out[0], &err));
}

static void slice_derive(struct problem *p)
{
	uint64_t size = p->in[0].shape[p->axis];
	OK(far_op_slice_backward(&p->grad[0], &p->in[0], p->axis, size > 1, size, 2, &p->din[0], &err));
}

static void expand_forward(struct problem *p)
{
	int64_t strides[FAR_DIMS_MAX];
	struct far_tensor all;
	OK(far_op_expand(&p->in[0], p->extra.ndim, p->extra.shape, strides, &all, &err));
	OK(far_op_copy(&all, &p->out[0], &err));
}

static void expand_derive(struct problem *p)
{
	OK(far_op_expand_backward(&p->grad[0], &p->in[0], &p->din[0], &err));
}

static void cat_forward(struct problem *p)
{
	const struct far_tensor *xs[3] = {&p->in[0], &p->in[1], &p->in[2]};
	OK(far_op_cat(xs, 3, p->axis, &p->out[0], &err));
}

static void cat_derive(struct problem *p)
{
	const struct far_tensor *xs[3] = {&p->in[0], &p->in[1], &p->in[2]};
	struct far_tensor *dxs[3] = {&p->din[0], &p->din[1], &p->din[2]};
	OK(far_op_cat_backward(&p->grad[0], xs, 3, p->axis, dxs, &err));
}

static void transpose_forward(struct problem *p)
{
	int64_t strides[FAR_DIMS_MAX];
	struct far_tensor turned, shaped;
	uint64_t count = ops_count(&p->in[0]);
	OK(far_op_transpose(&p->in[0], 0, p->axis, strides, &turned, &err));
	if (!p->out[0].data) {
		p->out[0] = ops_dense(FAR_F64, NULL, 1, &count);
		return;
	}
	OK(far_op_reshape(&p->out[0], turned.ndim, turned.shape, &shaped, &err));
	OK(far_op_copy(&turned, &shaped, &err));
}

static void transpose_derive(struct problem *p)
{
	int64_t strides[FAR_DIMS_MAX];
	uint64_t shape[FAR_DIMS_MAX];
	struct far_tensor dense = {0}, shaped, turned;
	memcpy(shape, p->in[0].shape, sizeof shape);
	shape[0] = p->in[0].shape[p->axis];
	shape[p->axis] = p->in[0].shape[0];
	OK(far_op_copy(&p->grad[0], &dense, &err));
	allocate(&dense);
	OK(far_op_copy(&p->grad[0], &dense, &err));
	OK(far_op_reshape(&dense, p->in[0].ndim, shape, &shaped, &err));
	OK(far_op_transpose(&shaped, 0, p->axis, strides, &turned, &err));
	OK(far_op_copy(&turned, &p->din[0], &err));
}

Test(backward_layers, shapes_change)
{
	for (size_t k = 1; k < SHAPES; k++)
		for (int axis = 0; axis < (int)shapes[k].n; axis++) {
			struct problem p = {.name = "slice", .n = 1, .outs = 1, .axis = axis};
			p.in[0] = random_tensor(FAR_F64, shapes[k].n, shapes[k].shape, -1, 1);
			p.forward = slice_forward;
			p.backward = slice_derive;
			check(&p);
			uint64_t other[4];
			memcpy(other, shapes[k].shape, sizeof other);
			other[axis] = 3;
			p.name = "cat";
			p.n = 3;
			p.in[1] = random_tensor(FAR_F64, shapes[k].n, other, -1, 1);
			other[axis] = 0;
			p.in[2] = random_tensor(FAR_F64, shapes[k].n, other, -1, 1);
			p.forward = cat_forward;
			p.backward = cat_derive;
			check(&p);
			/* One dimension of 1, and one more in front. */
			uint64_t wide[5] = {2};
			memcpy(wide + 1, shapes[k].shape, sizeof other);
			memcpy(other, shapes[k].shape, sizeof other);
			other[axis] = 1;
			p.name = "expand";
			p.n = 1;
			p.in[0] = random_tensor(FAR_F64, shapes[k].n, other, -1, 1);
			p.extra = ops_dense(FAR_F64, NULL, shapes[k].n + 1, wide);
			p.forward = expand_forward;
			p.backward = expand_derive;
			check(&p);
		}
}

Test(backward_layers, transpose_and_reshape)
{
	for (size_t k = 1; k < SHAPES; k++)
		for (int axis = 0; axis < (int)shapes[k].n; axis++) {
			struct problem p = {.name = "transpose", .n = 1, .outs = 1, .axis = axis};
			p.in[0] = random_tensor(FAR_F64, shapes[k].n, shapes[k].shape, -1, 1);
			p.forward = transpose_forward;
			p.backward = transpose_derive;
			check(&p);
		}
}

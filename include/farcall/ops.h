/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Operators on tensors and their derivatives. A library of its own, libfarcall-ops; needs no agent.
 *
 * Thread: any. No function blocks, starts a thread or keeps a reference to an argument; calls on different outputs may
 * run in parallel. Stack: 32 KiB at most.
 *
 * Memory: the caller gives the memory of outputs and workspaces; no function allocates. (OpenBLAS, where it is
 * installed, keeps buffers of its own from the first matrix product on.)
 *
 * Outputs: `out->dtype` of FAR_DTYPE_NONE requests the shape. The function then checks its inputs, makes `*out` a dense
 * tensor of the result's dtype and shape without data, and computes nothing. Otherwise `*out` must have this dtype and
 * shape, be dense unless the function allows a view, and have memory. An output must not overlap an input. Element-wise
 * functions allow exactly the same elements: the same data, dtype and shape of a dense tensor.
 *
 *   struct far_tensor y = {0};
 *   far_op_add(&a, &b, &y, &err);
 *   y.data = malloc(far_tensor_bytes(&y));
 *   far_op_add(&a, &b, &y, &err);
 *
 * Workspaces: a function with `work` computes nothing if `work->data` is NULL. It then checks its arguments and sets
 * `work->bytes` to what this call needs, at least 64; it depends on dtypes and shapes, on whether inputs are dense and
 * on which optional arguments are NULL. Any alignment. The contents need not be kept between calls.
 *
 * Derivatives: far_op_X_backward() takes `grad`, the gradient of the loss with respect to the result of far_op_X(),
 * with its dtype and shape, and writes the gradients with respect to inputs, each with the dtype and shape of its
 * input. A gradient that is NULL is not computed. Sums over broadcast dimensions are included. Views and shapes:
 *
 *   far_op_reshape      far_op_reshape() of grad to the old shape (grad dense)
 *   far_op_transpose    far_op_transpose() of grad with the same axes
 *   far_op_expand       far_op_expand_backward()
 *   far_op_copy         far_op_copy() of grad to the old dtype
 *
 * dtypes: F is f32, f64, bf16 or f16. All tensors of a call have the same dtype, unless stated otherwise. bf16 and f16
 * are computed in f32 and rounded once at the end, to nearest, ties to even; NaN stays NaN. Sums over axes are
 * accumulated in f64. Element-wise functions and sums return the same bits on every processor; matrix products (matmul,
 * linear, conv2d, LSTM and GRU cells) may differ by rounding.
 *
 * Inputs may be views with any strides. Axes are in [0, ndim): there are no negative ones.
 *
 * Errors, with a text that names the operator, shapes and dtypes: INVALID (shapes or dtypes that do not fit, an axis or
 * index out of range, memory that is missing, unaligned or overlaps), UNSUPPORTED (no such operator on this dtype),
 * TOO_LARGE (a tensor of more than PTRDIFF_MAX bytes, zero dimensions counted as one), RESOURCE (workspace too small).
 * Outputs are undefined after an error, but unchanged if arguments did not fit.
 *
 * Functions of workers: an agent that finds this library registers these, which others call by name. All run inline,
 * matmul on a thread of the pool. Axes below 0 count from the last. Shapes are an int or an i64 tensor of rank 1.
 *
 *   far::add, sub, mul, div, min, max (a, b)      tensors or scalars, of any dtypes; result as in PyTorch. add and sub
 *                                                 take a third argument alpha: a + alpha * b
 *   far::neg, relu, sigmoid, tanh, exp, log, sqrt (x)
 *   far::sum, mean (x), (x, axis, keepdim=false)  far::amin, amax (x, axis, keepdim=false)
 *   far::softmax, log_softmax (x, axis=-1)        far::matmul (a, b)
 *   far::embedding (table, index)                 far::nonzero (x): rows of indexes, i64
 *   far::zeros, ones (shape)                      far::rand, randn (shape, seed): f32
 *   far::reshape (x, shape)                       one dimension may be -1
 *   far::transpose (x, a, b)                      far::slice (x, axis, start, stop, step=1)
 *   far::cat (list, axis=0)                       up to 256 tensors
 */
#ifndef FARCALL_OPS_H
#define FARCALL_OPS_H

#include <farcall/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Memory for intermediate results. */
struct far_op_work {
	void *data;   /* NULL: requests `bytes` */
	size_t bytes; /* size of `data`, or what is needed */
};

/** What becomes of the losses of single elements or rows. */
enum far_op_reduction {
	FAR_OP_REDUCE_NONE, /* stay as they are */
	FAR_OP_REDUCE_MEAN, /* their mean, rank 0; NaN if there are none */
	FAR_OP_REDUCE_SUM   /* their sum, rank 0 */
};

/* ---- Element-wise with two operands ----
 *
 * Shapes broadcast as in numpy: aligned at the last dimension; a missing dimension and one of size 1 are repeated. */

/** out = a + b, a - b, a * b. F and integers, which wrap around. Of bool tensors add is "or", mul is "and"; sub is
 * UNSUPPORTED. */
enum far_status far_op_add(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			   struct far_err *err);
enum far_status far_op_sub(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			   struct far_err *err);
enum far_status far_op_mul(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			   struct far_err *err);
/** out = a / b. F. */
enum far_status far_op_div(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			   struct far_err *err);
/** The smaller, the larger of two elements; NaN if one is NaN. F, integers, bool. */
enum far_status far_op_min(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			   struct far_err *err);
enum far_status far_op_max(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			   struct far_err *err);

/** Comparisons: `out` is a bool tensor. F, integers, bool. Comparisons with NaN are false, but for ne. */
enum far_status far_op_eq(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			  struct far_err *err);
enum far_status far_op_ne(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			  struct far_err *err);
enum far_status far_op_lt(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			  struct far_err *err);
enum far_status far_op_le(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			  struct far_err *err);
enum far_status far_op_gt(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			  struct far_err *err);
enum far_status far_op_ge(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			  struct far_err *err);

/** Derivatives, F. `a` and `b` are the operands; add and sub use only their shapes. Equal elements of min and max
 * receive half of the gradient each. */
enum far_status far_op_add_backward(const struct far_tensor *grad, const struct far_tensor *a,
				    const struct far_tensor *b, struct far_tensor *da, struct far_tensor *db,
				    struct far_err *err);
enum far_status far_op_sub_backward(const struct far_tensor *grad, const struct far_tensor *a,
				    const struct far_tensor *b, struct far_tensor *da, struct far_tensor *db,
				    struct far_err *err);
enum far_status far_op_mul_backward(const struct far_tensor *grad, const struct far_tensor *a,
				    const struct far_tensor *b, struct far_tensor *da, struct far_tensor *db,
				    struct far_err *err);
enum far_status far_op_div_backward(const struct far_tensor *grad, const struct far_tensor *a,
				    const struct far_tensor *b, struct far_tensor *da, struct far_tensor *db,
				    struct far_err *err);
enum far_status far_op_min_backward(const struct far_tensor *grad, const struct far_tensor *a,
				    const struct far_tensor *b, struct far_tensor *da, struct far_tensor *db,
				    struct far_err *err);
enum far_status far_op_max_backward(const struct far_tensor *grad, const struct far_tensor *a,
				    const struct far_tensor *b, struct far_tensor *da, struct far_tensor *db,
				    struct far_err *err);

/* ---- Element-wise with one operand ---- */

/** out = -x. F and integers, which wrap around. */
enum far_status far_op_neg(const struct far_tensor *x, struct far_tensor *out, struct far_err *err);
/** out = max(x, 0); NaN stays. F, as those below. */
enum far_status far_op_relu(const struct far_tensor *x, struct far_tensor *out, struct far_err *err);
/** out = 1 / (1 + exp(-x)). */
enum far_status far_op_sigmoid(const struct far_tensor *x, struct far_tensor *out, struct far_err *err);
/** Hyperbolic tangent. */
enum far_status far_op_tanh(const struct far_tensor *x, struct far_tensor *out, struct far_err *err);
/** e to the power of x. */
enum far_status far_op_exp(const struct far_tensor *x, struct far_tensor *out, struct far_err *err);
/** Natural logarithm. */
enum far_status far_op_log(const struct far_tensor *x, struct far_tensor *out, struct far_err *err);
/** Square root. */
enum far_status far_op_sqrt(const struct far_tensor *x, struct far_tensor *out, struct far_err *err);
/** out = factor * x. The derivative is far_op_scale() of the gradient. */
enum far_status far_op_scale(const struct far_tensor *x, double factor, struct far_tensor *out, struct far_err *err);

/** Derivatives. `y` is the result of the operator, `x` its input. That of relu at 0 is 0. */
enum far_status far_op_neg_backward(const struct far_tensor *grad, struct far_tensor *dx, struct far_err *err);
enum far_status far_op_relu_backward(const struct far_tensor *grad, const struct far_tensor *y, struct far_tensor *dx,
				     struct far_err *err);
enum far_status far_op_sigmoid_backward(const struct far_tensor *grad, const struct far_tensor *y,
					struct far_tensor *dx, struct far_err *err);
enum far_status far_op_tanh_backward(const struct far_tensor *grad, const struct far_tensor *y, struct far_tensor *dx,
				     struct far_err *err);
enum far_status far_op_exp_backward(const struct far_tensor *grad, const struct far_tensor *y, struct far_tensor *dx,
				    struct far_err *err);
enum far_status far_op_log_backward(const struct far_tensor *grad, const struct far_tensor *x, struct far_tensor *dx,
				    struct far_err *err);
enum far_status far_op_sqrt_backward(const struct far_tensor *grad, const struct far_tensor *y, struct far_tensor *dx,
				     struct far_err *err);

/* ---- Reductions ---- */

/**
 * Sum and mean over `axes[0, n)`, which are different; n 0: over all axes. `keep`: reduced dimensions stay, with
 * size 1. F. The mean of no elements is NaN, their sum 0.
 */
enum far_status far_op_sum(const struct far_tensor *x, const int *axes, size_t n, bool keep, struct far_tensor *out,
			   struct far_err *err);
enum far_status far_op_mean(const struct far_tensor *x, const int *axes, size_t n, bool keep, struct far_tensor *out,
			    struct far_err *err);
/** `x` is the operator's input, used for its shape only; `axes` and `keep` as there. */
enum far_status far_op_sum_backward(const struct far_tensor *grad, const struct far_tensor *x, const int *axes,
				    size_t n, bool keep, struct far_tensor *dx, struct far_err *err);
enum far_status far_op_mean_backward(const struct far_tensor *grad, const struct far_tensor *x, const int *axes,
				     size_t n, bool keep, struct far_tensor *dx, struct far_err *err);

/**
 * Smallest and largest element along `axis`, and its position there: `index`, an i64 tensor of the same shape, NULL:
 * not wanted. The first of equal elements; the first NaN if there is one. F, integers, bool. INVALID if the axis has no
 * elements but the result has.
 */
enum far_status far_op_min_axis(const struct far_tensor *x, int axis, bool keep, struct far_tensor *out,
				struct far_tensor *index, struct far_err *err);
enum far_status far_op_max_axis(const struct far_tensor *x, int axis, bool keep, struct far_tensor *out,
				struct far_tensor *index, struct far_err *err);
/** Derivative of both: the gradient at `index`, 0 elsewhere. `x`: as for far_op_sum_backward(). */
enum far_status far_op_min_axis_backward(const struct far_tensor *grad, const struct far_tensor *x,
					 const struct far_tensor *index, int axis, bool keep, struct far_tensor *dx,
					 struct far_err *err);
enum far_status far_op_max_axis_backward(const struct far_tensor *grad, const struct far_tensor *x,
					 const struct far_tensor *index, int axis, bool keep, struct far_tensor *dx,
					 struct far_err *err);

/** exp(x) divided by its sum along `axis`, and the logarithm of this. F. Rank 0 has no axis: INVALID. */
enum far_status far_op_softmax(const struct far_tensor *x, int axis, struct far_tensor *out, struct far_err *err);
enum far_status far_op_log_softmax(const struct far_tensor *x, int axis, struct far_tensor *out, struct far_err *err);
/** `y`: result of the operator. */
enum far_status far_op_softmax_backward(const struct far_tensor *grad, const struct far_tensor *y, int axis,
					struct far_tensor *dx, struct far_err *err);
enum far_status far_op_log_softmax_backward(const struct far_tensor *grad, const struct far_tensor *y, int axis,
					    struct far_tensor *dx, struct far_err *err);

/* ---- Losses: F ---- */

/**
 * -log(softmax(x)[target]) of each row: `x` is [n, classes], `target` [n] of i32 or i64 in [0, classes). INVALID names
 * a target out of range. `out` is [n], or rank 0.
 */
enum far_status far_op_cross_entropy(const struct far_tensor *x, const struct far_tensor *target,
				     enum far_op_reduction reduction, struct far_tensor *out, struct far_err *err);
enum far_status far_op_cross_entropy_backward(const struct far_tensor *grad, const struct far_tensor *x,
					      const struct far_tensor *target, enum far_op_reduction reduction,
					      struct far_tensor *dx, struct far_err *err);
/** Binary cross entropy of logits: -target * log(sigmoid(x)) - (1 - target) * log(1 - sigmoid(x)). Same shapes. */
enum far_status far_op_bce_with_logits(const struct far_tensor *x, const struct far_tensor *target,
				       enum far_op_reduction reduction, struct far_tensor *out, struct far_err *err);
enum far_status far_op_bce_with_logits_backward(const struct far_tensor *grad, const struct far_tensor *x,
						const struct far_tensor *target, enum far_op_reduction reduction,
						struct far_tensor *dx, struct far_tensor *dtarget, struct far_err *err);
/** Squared difference: (a - b)^2. Same shapes. */
enum far_status far_op_mse(const struct far_tensor *a, const struct far_tensor *b, enum far_op_reduction reduction,
			   struct far_tensor *out, struct far_err *err);
enum far_status far_op_mse_backward(const struct far_tensor *grad, const struct far_tensor *a,
				    const struct far_tensor *b, enum far_op_reduction reduction, struct far_tensor *da,
				    struct far_tensor *db, struct far_err *err);

/* ---- Matrix products: F ---- */

/**
 * Products of the last two dimensions, [..., m, k] and [..., k, n]; the others broadcast. A tensor of rank 1 is a row
 * on the left and a column on the right, and its dimension is not in the result. Rank 0 is INVALID.
 */
enum far_status far_op_matmul(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			      struct far_op_work *work, struct far_err *err);
enum far_status far_op_matmul_backward(const struct far_tensor *grad, const struct far_tensor *a,
				       const struct far_tensor *b, struct far_tensor *da, struct far_tensor *db,
				       struct far_op_work *work, struct far_err *err);

/** out = x wᵀ + bias: `x` is [..., in], `w` [out, in], `bias` [out] or NULL. */
enum far_status far_op_linear(const struct far_tensor *x, const struct far_tensor *w, const struct far_tensor *bias,
			      struct far_tensor *out, struct far_op_work *work, struct far_err *err);
enum far_status far_op_linear_backward(const struct far_tensor *grad, const struct far_tensor *x,
				       const struct far_tensor *w, struct far_tensor *dx, struct far_tensor *dw,
				       struct far_tensor *dbias, struct far_op_work *work, struct far_err *err);

/** Geometry of a convolution. All zero: stride, dilation and groups 1, no padding. Index 0 is the height. */
struct far_op_conv {
	uint32_t stride[2];   /* 0: 1 */
	uint32_t padding[2];  /* zeros on each of the two borders */
	uint32_t dilation[2]; /* distance of the kernel's elements; 0: 1 */
	uint32_t groups;      /* of channels; divides `channels` and `out`; 0: 1 */
};

/**
 * Two-dimensional convolution (cross-correlation): `x` is [n, channels, height, width], `w` [out, channels / groups,
 * kernel height, kernel width], `bias` [out] or NULL. `conv` NULL: all zero.
 */
enum far_status far_op_conv2d(const struct far_tensor *x, const struct far_tensor *w, const struct far_tensor *bias,
			      const struct far_op_conv *conv, struct far_tensor *out, struct far_op_work *work,
			      struct far_err *err);
enum far_status far_op_conv2d_backward(const struct far_tensor *grad, const struct far_tensor *x,
				       const struct far_tensor *w, const struct far_op_conv *conv,
				       struct far_tensor *dx, struct far_tensor *dw, struct far_tensor *dbias,
				       struct far_op_work *work, struct far_err *err);

/**
 * Implementation of matrix products: "OpenBLAS", loaded at the first product, or "loops", this library's own.
 * FAR_OPS_BLAS in the environment, read once, is the file name of an OpenBLAS to load, or "none". OpenBLAS is set to
 * one thread, which also holds for other users of the same library in the process.
 */
const char *far_op_matmul_implementation(void);

/* ---- Cells of recurrent networks: F ---- */

/** Parameters of a cell with inputs of size `in` and `hidden` units; G is 4 for LSTM, 3 for GRU. */
struct far_op_cell {
	const struct far_tensor *w_input;     /* [G * hidden, in] */
	const struct far_tensor *w_hidden;    /* [G * hidden, hidden] */
	const struct far_tensor *bias_input;  /* [G * hidden], or NULL */
	const struct far_tensor *bias_hidden; /* [G * hidden], or NULL */
};

/** Gradients of a cell. NULL: not wanted. */
struct far_op_cell_gradients {
	struct far_tensor *x; /* [n, in] */
	struct far_tensor *h; /* [n, hidden] */
	struct far_tensor *c; /* [n, hidden]; LSTM only, ignored for GRU */
	struct far_tensor *w_input, *w_hidden, *bias_input, *bias_hidden;
};

/**
 * A step of an LSTM. `x` is [n, in], `h` and `c` the state [n, hidden]. Gates in the order i, f, g, o:
 * c' = f c + i g, h' = o tanh(c'). `gates`: [n, 4 * hidden], the gates' values, for the derivative; NULL: not wanted.
 */
enum far_status far_op_lstm_cell(const struct far_tensor *x, const struct far_tensor *h, const struct far_tensor *c,
				 const struct far_op_cell *cell, struct far_tensor *h_next, struct far_tensor *c_next,
				 struct far_tensor *gates, struct far_op_work *work, struct far_err *err);
/** `dh_next` or `dc_next` NULL: zero. `c_next`, `gates`: results of the step. The cell's biases may be NULL. */
enum far_status far_op_lstm_cell_backward(const struct far_tensor *dh_next, const struct far_tensor *dc_next,
					  const struct far_tensor *x, const struct far_tensor *h,
					  const struct far_tensor *c, const struct far_op_cell *cell,
					  const struct far_tensor *c_next, const struct far_tensor *gates,
					  const struct far_op_cell_gradients *gradients, struct far_op_work *work,
					  struct far_err *err);
/**
 * A step of a GRU. Gates in the order r, z, n: n = tanh(x_n + r h_n), h' = (1 - z) n + z h, where x_n and h_n are the
 * products with their biases. `gates`: [n, 4 * hidden]: r, z, n, h_n; NULL: not wanted.
 */
enum far_status far_op_gru_cell(const struct far_tensor *x, const struct far_tensor *h, const struct far_op_cell *cell,
				struct far_tensor *h_next, struct far_tensor *gates, struct far_op_work *work,
				struct far_err *err);
enum far_status far_op_gru_cell_backward(const struct far_tensor *dh_next, const struct far_tensor *x,
					 const struct far_tensor *h, const struct far_op_cell *cell,
					 const struct far_tensor *gates, const struct far_op_cell_gradients *gradients,
					 struct far_op_work *work, struct far_err *err);

/* ---- Embeddings ---- */

enum far_op_bag { FAR_OP_BAG_SUM, FAR_OP_BAG_MEAN };

/**
 * Rows of a table: `w` is [rows, width] of any dtype, `index` of any shape, i32 or i64 in [0, rows), `out` [shape of
 * index..., width]. INVALID names an index out of range.
 */
enum far_status far_op_embedding(const struct far_tensor *w, const struct far_tensor *index, struct far_tensor *out,
				 struct far_err *err);
/** The dense derivative: `w` gives the shape, `dw` is 0 in rows without an index. F. */
enum far_status far_op_embedding_backward(const struct far_tensor *grad, const struct far_tensor *w,
					  const struct far_tensor *index, struct far_tensor *dw,
					  struct far_op_work *work, struct far_err *err);

/**
 * Sums or means of rows: `index` is [n]; bag b has the indices [offsets[b], offsets[b + 1]), the last one those up to
 * n. `offsets` is [bags], i32 or i64, ascending, the first 0. An empty bag gives 0. `out` is [bags, width]. F.
 */
enum far_status far_op_embedding_bag(const struct far_tensor *w, const struct far_tensor *index,
				     const struct far_tensor *offsets, enum far_op_bag mode, struct far_tensor *out,
				     struct far_err *err);
/** The gradient of each index's row: `rows` is [n, width]. With `index` it is the sparse gradient of `w`. F. */
enum far_status far_op_embedding_bag_backward(const struct far_tensor *grad, const struct far_tensor *index,
					      const struct far_tensor *offsets, enum far_op_bag mode,
					      struct far_tensor *rows, struct far_err *err);

/**
 * Sums the rows of a sparse gradient with the same index. `index` has n elements, `rows` n * width: the gradient of
 * far_op_embedding() as it is, with any shape of `index`. Writes the different indices in ascending order to
 * `unique_index` [n], i64, their sums to `unique_rows` [n, width], and their number to `*unique`; entries past it are
 * unchanged. `table_rows`: indices are in [0, table_rows). F.
 */
enum far_status far_op_sparse_sum(const struct far_tensor *index, const struct far_tensor *rows, uint64_t table_rows,
				  struct far_tensor *unique_index, struct far_tensor *unique_rows, size_t *unique,
				  struct far_op_work *work, struct far_err *err);

/* ---- Shapes ----
 *
 * Views: `*out` shares the data of `x` and is written whole. `strides` is the caller's, stays valid as long as the view
 * and may be that of `x`. Any dtype. */

/** The same elements in another shape, of `ndim` dimensions. `x` is dense (far_op_copy() makes it so). */
enum far_status far_op_reshape(const struct far_tensor *x, unsigned ndim, const uint64_t *shape, struct far_tensor *out,
			       struct far_err *err);
/** Two axes exchanged. */
enum far_status far_op_transpose(const struct far_tensor *x, int axis_a, int axis_b, int64_t strides[FAR_DIMS_MAX],
				 struct far_tensor *out, struct far_err *err);
/** Elements start, start + step, … below `stop` of an axis. 0 <= start <= stop <= size, step >= 1. */
enum far_status far_op_slice(const struct far_tensor *x, int axis, uint64_t start, uint64_t stop, uint64_t step,
			     int64_t strides[FAR_DIMS_MAX], struct far_tensor *out, struct far_err *err);
/** Broadcasts to a shape of `ndim` dimensions. */
enum far_status far_op_expand(const struct far_tensor *x, unsigned ndim, const uint64_t *shape,
			      int64_t strides[FAR_DIMS_MAX], struct far_tensor *out, struct far_err *err);

/** Derivatives of slice (`x` gives the shape; 0 outside the slice) and of expand (`x` likewise). F for expand, any
 * dtype for slice. */
enum far_status far_op_slice_backward(const struct far_tensor *grad, const struct far_tensor *x, int axis,
				      uint64_t start, uint64_t stop, uint64_t step, struct far_tensor *dx,
				      struct far_err *err);
enum far_status far_op_expand_backward(const struct far_tensor *grad, const struct far_tensor *x, struct far_tensor *dx,
				       struct far_err *err);

/**
 * Copies and converts: `out` has the shape of `x` and any dtype, and may be a view. From floats to integers: towards 0,
 * to the nearest limit out of range, NaN to 0; from wider integers: the low bits; to bool: false is 0. Other
 * conversions round once, to nearest, ties to even.
 */
enum far_status far_op_copy(const struct far_tensor *x, struct far_tensor *out, struct far_err *err);
/** Sets all elements of `out`, which may be a view, to `value`, converted as by far_op_copy(). */
enum far_status far_op_fill(double value, struct far_tensor *out, struct far_err *err);

/** Tensors of the same dtype and rank one after the other along `axis`; other dimensions are equal. n >= 1. */
enum far_status far_op_cat(const struct far_tensor *const *xs, size_t n, int axis, struct far_tensor *out,
			   struct far_err *err);
/** Parts of the gradient. `dxs[i]` is NULL or the gradient of `xs[i]`, which is used for its shape only. */
enum far_status far_op_cat_backward(const struct far_tensor *grad, const struct far_tensor *const *xs, size_t n,
				    int axis, struct far_tensor *const *dxs, struct far_err *err);

/* ---- Random numbers: F ----
 *
 * Philox4x32-10 with the key `seed`; element i uses block i / 4 (f64: i / 2) of `stream`. The same on every machine.
 * Use another stream for each tensor. `out` must have a dtype and shape and be dense. */

/** Uniform in [0, 1), multiples of 2^-24 (f32), 2^-53 (f64), 2^-8 (bf16), 2^-11 (f16). */
enum far_status far_op_rand(uint64_t seed, uint64_t stream, struct far_tensor *out, struct far_err *err);
/** Normal with mean 0 and variance 1 (Box and Muller's method). */
enum far_status far_op_randn(uint64_t seed, uint64_t stream, struct far_tensor *out, struct far_err *err);
/** out = x / (1 - p) with probability 1 - p, else 0. p in [0, 1]. The derivative is far_op_dropout() of the gradient
 * with the same p, seed and stream. */
enum far_status far_op_dropout(const struct far_tensor *x, double p, uint64_t seed, uint64_t stream,
			       struct far_tensor *out, struct far_err *err);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** Softmax, cross entropy and other losses. Any thread. */
#include "space.h"
#include "vector_math.h"

#include <inttypes.h>

/* A tensor as lines along one axis, and two operands of it. */
struct lines {
	struct ops_space lines, axis;
	struct ops_operand lines_of[3], axis_of[3]; /* out, then inputs */
	enum far_dtype arithmetic;
};

static struct lines lines_make(int axis, const struct far_tensor *out, const struct far_tensor *x,
			       const struct far_tensor *y)
{
	struct lines l;
	const struct far_tensor *t[3] = {out, x, y};
	unsigned along = 1u << axis;
	unsigned others = ((1u << x->ndim) - 1) & ~along;
	l.lines = ops_space(x->ndim, x->shape, others);
	l.axis = ops_space(x->ndim, x->shape, along);
	l.arithmetic = ops_arithmetic((enum far_dtype)x->dtype);
	for (unsigned i = 0; i < 3; i++) {
		l.lines_of[i] = ops_operand(t[i], x->ndim, x->shape, others);
		l.axis_of[i] = ops_operand(t[i], x->ndim, x->shape, along);
	}
	ops_space_fold(&l.lines, (struct ops_operand *[]){&l.lines_of[0], &l.lines_of[1], &l.lines_of[2]}, 3);
	ops_space_fold(&l.axis, (struct ops_operand *[]){&l.axis_of[0], &l.axis_of[1], &l.axis_of[2]}, 3);
	return l;
}

/* What a block holds: elements of one line, or of the same position on several lines. */
struct block_of {
	const struct lines *l;
	bool along;
	uint64_t other; /* the line, or the position on the axis */
	uint64_t at;    /* first element */
	size_t n;
};

static const void *block_read(const struct block_of *b, unsigned i, union ops_block *block)
{
	const struct lines *l = b->l;
	if (b->along)
		return ops_read(&l->axis, &l->axis_of[i], ops_offset(&l->lines, &l->lines_of[i], b->other), b->at, b->n,
				block);
	return ops_read(&l->lines, &l->lines_of[i], ops_offset(&l->axis, &l->axis_of[i], b->other), b->at, b->n, block);
}

/** out = kernel(inputs) for a block. */
static void block_map(const struct block_of *b, ops_map_kernel *kernel, const void *const *in)
{
	union ops_block result;
	const struct lines *l = b->l;
	const struct ops_space *space = b->along ? &l->axis : &l->lines;
	const struct ops_operand *out = b->along ? &l->axis_of[0] : &l->lines_of[0];
	int64_t base = b->along ? ops_offset(&l->lines, &l->lines_of[0], b->other)
				: ops_offset(&l->axis, &l->axis_of[0], b->other);
	void *to = ops_target(out, base, b->at, &result);
	kernel(to, in, 1, b->n);
	ops_write(space, out, base, b->at, b->n, to);
}

static double element(const struct lines *l, const void *block, size_t i)
{
	return l->arithmetic == FAR_F64 ? ((const double *)block)[i] : (double)((const float *)block)[i];
}

static void set_element(const struct lines *l, union ops_block *block, size_t i, double x)
{
	if (l->arithmetic == FAR_F64)
		block->f64[i] = x;
	else
		block->f32[i] = (float)x;
}

static void set_elements(const struct lines *l, union ops_block *block, size_t n, double x)
{
	for (size_t i = 0; i < n; i++)
		set_element(l, block, i, x);
}

static double block_sum(const struct lines *l, const void *block, size_t n)
{
	return l->arithmetic == FAR_F64 ? ops_kernels()->sum_f64(block, n) : ops_kernels()->sum_f32(block, n);
}

static void block_accumulate(const struct lines *l, double *sums, const void *block, size_t n)
{
	if (l->arithmetic == FAR_F64)
		ops_kernels()->accumulate_f64(sums, block, n);
	else
		ops_kernels()->accumulate_f32(sums, block, n);
}

/** The largest element of a line, and the sum of exp(x - largest). */
static void line_sum(const struct lines *l, uint64_t line, unsigned x, double *largest, double *sum)
{
	union ops_block block, maximum, result;
	ops_map_kernel *kernel = ops_kernel(OPS_EXP_DIFF, l->arithmetic);
	struct block_of b = {l, true, line, 0, 0};
	*largest = -INFINITY;
	for (b.at = 0; b.at < l->axis.count; b.at += OPS_BLOCK) {
		b.n = l->axis.count - b.at < OPS_BLOCK ? (size_t)(l->axis.count - b.at) : OPS_BLOCK;
		const void *from = block_read(&b, x, &block);
		for (size_t i = 0; i < b.n; i++) {
			double e = element(l, from, i);
			*largest = e > *largest || e != e ? e : *largest;
		}
	}
	*sum = 0;
	set_elements(l, &maximum, l->axis.count < OPS_BLOCK ? (size_t)l->axis.count : OPS_BLOCK, *largest);
	for (b.at = 0; b.at < l->axis.count; b.at += OPS_BLOCK) {
		b.n = l->axis.count - b.at < OPS_BLOCK ? (size_t)(l->axis.count - b.at) : OPS_BLOCK;
		const void *in[2] = {block_read(&b, x, &block), &maximum};
		kernel(&result, in, 0, b.n);
		*sum += block_sum(l, &result, b.n);
	}
}

static bool along_is_better(const struct lines *l)
{
	return l->axis_of[0].direct || l->lines.count < 16;
}

static void softmax_along(const struct lines *l, ops_map_kernel *kernel, bool logarithm)
{
	for (uint64_t line = 0; line < l->lines.count; line++) {
		union ops_block block, maximum, second;
		double largest, sum;
		struct block_of b = {l, true, line, 0, 0};
		line_sum(l, line, 1, &largest, &sum);
		size_t filled = l->axis.count < OPS_BLOCK ? (size_t)l->axis.count : OPS_BLOCK;
		set_elements(l, &maximum, filled, largest);
		set_elements(l, &second, filled, logarithm ? log_f64(sum) : sum);
		for (b.at = 0; b.at < l->axis.count; b.at += OPS_BLOCK) {
			b.n = l->axis.count - b.at < OPS_BLOCK ? (size_t)(l->axis.count - b.at) : OPS_BLOCK;
			block_map(&b, kernel, (const void *[]){block_read(&b, 1, &block), &maximum, &second});
		}
	}
}

static void softmax_across(const struct lines *l, ops_map_kernel *kernel, bool logarithm)
{
	ops_map_kernel *larger = ops_kernel(OPS_MAX, l->arithmetic);
	ops_map_kernel *difference = ops_kernel(OPS_EXP_DIFF, l->arithmetic);
	for (uint64_t at = 0; at < l->lines.count; at += OPS_BLOCK) {
		union ops_block block, maximum, second;
		double sums[OPS_BLOCK] = {0};
		struct block_of b = {l, false, 0, at, 0};
		b.n = l->lines.count - at < OPS_BLOCK ? (size_t)(l->lines.count - at) : OPS_BLOCK;
		set_elements(l, &maximum, b.n, -INFINITY);
		for (b.other = 0; b.other < l->axis.count; b.other++)
			larger(&maximum, (const void *[]){&maximum, block_read(&b, 1, &block)}, 0, b.n);
		for (b.other = 0; b.other < l->axis.count; b.other++) {
			difference(&second, (const void *[]){block_read(&b, 1, &block), &maximum}, 0, b.n);
			block_accumulate(l, sums, &second, b.n);
		}
		for (size_t i = 0; i < b.n; i++)
			set_element(l, &second, i, logarithm ? log_f64(sums[i]) : sums[i]);
		for (b.other = 0; b.other < l->axis.count; b.other++)
			block_map(&b, kernel, (const void *[]){block_read(&b, 1, &block), &maximum, &second});
	}
}

static enum far_status softmax(const char *op, bool logarithm, const struct far_tensor *x, int axis,
			       struct far_tensor *out, struct far_err *err)
{
	TRY(ops_check_float(op, "x", x, err));
	TRY(ops_check_axis(op, "x", axis, x, err));
	TRY(ops_output(op, "out", out, (enum far_dtype)x->dtype, x->ndim, x->shape, err));
	TRY(ops_apart(op, "out", out, "x", x, false, err));
	if (!ops_wanted(out))
		return FAR_OK;
	struct lines l = lines_make(axis, out, x, x);
	ops_map_kernel *kernel = ops_kernel(logarithm ? OPS_LOG_SOFTMAX : OPS_SOFTMAX, (enum far_dtype)x->dtype);
	if (along_is_better(&l))
		softmax_along(&l, kernel, logarithm);
	else
		softmax_across(&l, kernel, logarithm);
	return FAR_OK;
}

enum far_status far_op_softmax(const struct far_tensor *x, int axis, struct far_tensor *out, struct far_err *err)
{
	return softmax("softmax", false, x, axis, out, err);
}

enum far_status far_op_log_softmax(const struct far_tensor *x, int axis, struct far_tensor *out, struct far_err *err)
{
	return softmax("log_softmax", true, x, axis, out, err);
}

static enum far_status softmax_backward(const char *op, bool logarithm, const struct far_tensor *grad,
					const struct far_tensor *y, int axis, struct far_tensor *dx,
					struct far_err *err)
{
	TRY(ops_check_float(op, "y", y, err));
	TRY(ops_check_axis(op, "y", axis, y, err));
	TRY(ops_check_shape(op, "grad", grad, (enum far_dtype)y->dtype, y->ndim, y->shape, err));
	TRY(ops_output(op, "dx", dx, (enum far_dtype)y->dtype, y->ndim, y->shape, err));
	TRY(ops_apart(op, "dx", dx, "grad", grad, false, err));
	TRY(ops_apart(op, "dx", dx, "y", y, false, err));
	if (!ops_wanted(dx))
		return FAR_OK;
	struct lines l = lines_make(axis, dx, grad, y);
	ops_map_kernel *kernel = ops_kernel(logarithm ? OPS_LOG_SOFTMAX_D : OPS_SOFTMAX_D, l.arithmetic);
	ops_map_kernel *multiply = ops_kernel(OPS_MUL, l.arithmetic);
	bool along = along_is_better(&l);
	const struct ops_space *outer = along ? &l.lines : &l.axis; /* of the blocks */
	const struct ops_space *inner = along ? &l.axis : &l.lines;
	union ops_block blocks[2], product;
	/* For each line, or each block of lines: the sums of grad * y or grad, then the blocks of the result. */
	for (uint64_t line = 0; line < l.lines.count; line += along ? 1 : OPS_BLOCK) {
		double sums[OPS_BLOCK] = {0};
		uint64_t passes = along ? (inner->count + OPS_BLOCK - 1) / OPS_BLOCK : outer->count;
		for (unsigned pass = 0; pass < 2; pass++) {
			union ops_block total;
			if (pass == 1)
				for (size_t i = 0; i < OPS_BLOCK && i < inner->count; i++)
					set_element(&l, &total, i, along ? sums[0] : sums[i]);
			for (uint64_t step = 0; step < passes; step++) {
				struct block_of b = {&l, along, along ? line : step, along ? step * OPS_BLOCK : line,
						     0};
				b.n = inner->count - b.at < OPS_BLOCK ? (size_t)(inner->count - b.at) : OPS_BLOCK;
				const void *in[3] = {block_read(&b, 1, &blocks[0]), block_read(&b, 2, &blocks[1]),
						     &total};
				if (pass == 1) {
					block_map(&b, kernel, in);
					continue;
				}
				const void *summands = in[0];
				if (!logarithm) {
					multiply(&product, in, 0, b.n);
					summands = &product;
				}
				if (along)
					sums[0] += block_sum(&l, summands, b.n);
				else
					block_accumulate(&l, sums, summands, b.n);
			}
		}
	}
	return FAR_OK;
}

enum far_status far_op_softmax_backward(const struct far_tensor *grad, const struct far_tensor *y, int axis,
					struct far_tensor *dx, struct far_err *err)
{
	return softmax_backward("softmax_backward", false, grad, y, axis, dx, err);
}

enum far_status far_op_log_softmax_backward(const struct far_tensor *grad, const struct far_tensor *y, int axis,
					    struct far_tensor *dx, struct far_err *err)
{
	return softmax_backward("log_softmax_backward", true, grad, y, axis, dx, err);
}

/* ---- cross entropy ---- */

static enum far_status check_reduction(const char *op, enum far_op_reduction reduction, struct far_err *err)
{
	if (reduction != FAR_OP_REDUCE_NONE && reduction != FAR_OP_REDUCE_MEAN && reduction != FAR_OP_REDUCE_SUM)
		return ops_fail(err, FAR_INVALID, "%s: there is no reduction %d", op, (int)reduction);
	return FAR_OK;
}

static int64_t target_of(const struct far_tensor *target, uint64_t row)
{
	int64_t at = (int64_t)row * ops_stride(target, 0);
	return target->dtype == FAR_I64 ? ((const int64_t *)target->data)[at] : ((const int32_t *)target->data)[at];
}

static enum far_status check_targets(const char *op, const struct far_tensor *x, const struct far_tensor *target,
				     struct far_err *err)
{
	char text[OPS_TEXT];
	char text_target[OPS_TEXT];
	TRY(ops_check_float(op, "x", x, err));
	TRY(ops_check_index(op, "target", target, err));
	if (x->ndim != 2 || target->ndim != 1 || target->shape[0] != x->shape[0])
		return ops_fail(err, FAR_INVALID, "%s: x %s must be [n,classes] and target %s [n]", op,
				ops_text(x, text), ops_text(target, text_target));
	for (uint64_t i = 0; i < x->shape[0] && target->data; i++) {
		int64_t t = target_of(target, i);
		if (t < 0 || (uint64_t)t >= x->shape[1])
			return ops_fail(err, FAR_INVALID,
					"%s: target[%" PRIu64 "] is %" PRId64 ", not in [0, %" PRIu64
					"), the classes of x %s",
					op, i, t, x->shape[1], ops_text(x, text));
	}
	return FAR_OK;
}

/** x[row][column] of a line. */
static double line_element(const struct lines *l, uint64_t line, unsigned i, uint64_t at)
{
	union ops_block block;
	struct block_of b = {l, true, line, at, 1};
	return element(l, block_read(&b, i, &block), 0);
}

/** Writes one element of a dense tensor. */
static void write_element(const struct far_tensor *out, uint64_t at, double x)
{
	union ops_block block;
	struct ops_space space = {.ndim = 1, .shape = {at + 1}, .count = at + 1};
	struct ops_operand to = {.data = out->data,
				 .dtype = (enum far_dtype)out->dtype,
				 .size = (uint8_t)ops_size((enum far_dtype)out->dtype),
				 .direct = true};
	void *target = ops_target(&to, 0, at, &block);
	if (out->dtype == FAR_F64)
		*(double *)target = x;
	else
		*(float *)target = (float)x;
	ops_write(&space, &to, 0, at, 1, target);
}

enum far_status far_op_cross_entropy(const struct far_tensor *x, const struct far_tensor *target,
				     enum far_op_reduction reduction, struct far_tensor *out, struct far_err *err)
{
	static const char op[] = "cross_entropy";
	TRY(check_reduction(op, reduction, err));
	TRY(check_targets(op, x, target, err));
	TRY(ops_output(op, "out", out, (enum far_dtype)x->dtype, reduction == FAR_OP_REDUCE_NONE ? 1 : 0, x->shape,
		       err));
	TRY(ops_apart(op, "out", out, "x", x, false, err));
	TRY(ops_apart(op, "out", out, "target", target, false, err));
	if (!ops_wanted(out))
		return FAR_OK;
	struct lines l = lines_make(1, x, x, x);
	double total = 0;
	for (uint64_t i = 0; i < x->shape[0]; i++) {
		double largest, sum;
		line_sum(&l, i, 1, &largest, &sum);
		double loss = log_f64(sum) + largest - line_element(&l, i, 1, (uint64_t)target_of(target, i));
		if (reduction == FAR_OP_REDUCE_NONE)
			write_element(out, i, loss);
		total += loss;
	}
	if (reduction != FAR_OP_REDUCE_NONE)
		write_element(out, 0, reduction == FAR_OP_REDUCE_MEAN ? total / (double)x->shape[0] : total);
	return FAR_OK;
}

enum far_status far_op_cross_entropy_backward(const struct far_tensor *grad, const struct far_tensor *x,
					      const struct far_tensor *target, enum far_op_reduction reduction,
					      struct far_tensor *dx, struct far_err *err)
{
	static const char op[] = "cross_entropy_backward";
	bool each = reduction == FAR_OP_REDUCE_NONE;
	TRY(check_reduction(op, reduction, err));
	TRY(check_targets(op, x, target, err));
	TRY(ops_check_shape(op, "grad", grad, (enum far_dtype)x->dtype, each ? 1 : 0, x->shape, err));
	TRY(ops_output(op, "dx", dx, (enum far_dtype)x->dtype, 2, x->shape, err));
	TRY(ops_apart(op, "dx", dx, "grad", grad, false, err));
	TRY(ops_apart(op, "dx", dx, "x", x, false, err));
	TRY(ops_apart(op, "dx", dx, "target", target, false, err));
	if (!ops_wanted(dx))
		return FAR_OK;
	struct far_tensor rows = *grad; /* [n, classes], the same along a row */
	int64_t strides[2] = {each ? ops_stride(grad, 0) : 0, 0};
	rows.ndim = 2;
	rows.strides = strides;
	memcpy(rows.shape, x->shape, 2 * sizeof *x->shape);
	struct lines l = lines_make(1, dx, x, &rows);
	ops_map_kernel *kernel = ops_kernel(OPS_EXP_DIFF_SCALED, l.arithmetic);
	double divisor = reduction == FAR_OP_REDUCE_MEAN ? (double)x->shape[0] : 1;
	for (uint64_t i = 0; i < x->shape[0]; i++) {
		union ops_block block, shift, result;
		double largest, sum;
		double g = line_element(&l, i, 2, 0) / divisor;
		uint64_t at_target = (uint64_t)target_of(target, i);
		int64_t base = ops_offset(&l.lines, &l.lines_of[0], i);
		line_sum(&l, i, 1, &largest, &sum);
		set_elements(&l, &shift, x->shape[1] < OPS_BLOCK ? (size_t)x->shape[1] : OPS_BLOCK,
			     largest + log_f64(sum));
		for (uint64_t at = 0; at < x->shape[1]; at += OPS_BLOCK) {
			struct block_of b = {&l, true, i, at, 0};
			b.n = x->shape[1] - at < OPS_BLOCK ? (size_t)(x->shape[1] - at) : OPS_BLOCK;
			kernel(&result, (const void *[]){block_read(&b, 1, &block), &shift}, g, b.n);
			if (at_target >= at && at_target < at + b.n)
				set_element(&l, &result, (size_t)(at_target - at),
					    element(&l, &result, (size_t)(at_target - at)) - g);
			void *to = ops_target(&l.axis_of[0], base, at, &result);
			if (to != &result)
				memcpy(to, &result, b.n * ops_size(l.arithmetic));
			ops_write(&l.axis, &l.axis_of[0], base, at, b.n, &result);
		}
	}
	return FAR_OK;
}

/* ---- losses of pairs of elements ---- */

static enum far_status pairs(const char *op, enum ops_map map, const char *name_a, const struct far_tensor *a,
			     const char *name_b, const struct far_tensor *b, enum far_op_reduction reduction,
			     struct far_tensor *out, struct far_err *err)
{
	bool each = reduction == FAR_OP_REDUCE_NONE;
	TRY(check_reduction(op, reduction, err));
	TRY(ops_check_float(op, name_a, a, err));
	TRY(ops_check_shape(op, name_b, b, (enum far_dtype)a->dtype, a->ndim, a->shape, err));
	TRY(ops_output(op, "out", out, (enum far_dtype)a->dtype, each ? a->ndim : 0, a->shape, err));
	TRY(ops_apart(op, "out", out, name_a, a, false, err));
	TRY(ops_apart(op, "out", out, name_b, b, false, err));
	if (!ops_wanted(out))
		return FAR_OK;
	struct ops_sum sum = {ops_kernel(map, (enum far_dtype)a->dtype), 1,
			      reduction == FAR_OP_REDUCE_MEAN ? (double)ops_count(a) : 1};
	ops_sum(&sum, out, (const struct far_tensor *[]){a, b}, 2, a->ndim, a->shape, each ? 0 : (1u << a->ndim) - 1);
	return FAR_OK;
}

/** Checks the arguments of a derivative. */
static enum far_status pairs_check(const char *op, const struct far_tensor *grad, const char *name_a,
				   const struct far_tensor *a, const char *name_b, const struct far_tensor *b,
				   enum far_op_reduction reduction, struct far_tensor *da, struct far_tensor *db,
				   struct far_err *err)
{
	TRY(check_reduction(op, reduction, err));
	TRY(ops_check_float(op, name_a, a, err));
	TRY(ops_check_shape(op, name_b, b, (enum far_dtype)a->dtype, a->ndim, a->shape, err));
	TRY(ops_check_shape(op, "grad", grad, (enum far_dtype)a->dtype, reduction == FAR_OP_REDUCE_NONE ? a->ndim : 0,
			    a->shape, err));
	struct far_tensor *outs[2] = {da, db};
	for (unsigned i = 0; i < 2; i++) {
		const char *name = i ? "the second gradient" : "the first gradient";
		TRY(ops_gradient(op, name, outs[i], a, err));
		TRY(ops_apart(op, name, outs[i], "grad", grad, false, err));
		TRY(ops_apart(op, name, outs[i], name_a, a, false, err));
		TRY(ops_apart(op, name, outs[i], name_b, b, false, err));
	}
	return db ? ops_apart(op, "the first gradient", da, "the second gradient", db, false, err) : FAR_OK;
}

static void pairs_derive(enum ops_map map, unsigned n, const struct far_tensor *const *in,
			 enum far_op_reduction reduction, struct far_tensor *out)
{
	double p = reduction == FAR_OP_REDUCE_MEAN ? 1 / (double)ops_count(out) : 1;
	struct ops_sum sum = {ops_kernel(map, (enum far_dtype)out->dtype), p, 1};
	if (ops_wanted(out))
		ops_sum(&sum, out, in, n, out->ndim, out->shape, 0);
}

enum far_status far_op_bce_with_logits(const struct far_tensor *x, const struct far_tensor *target,
				       enum far_op_reduction reduction, struct far_tensor *out, struct far_err *err)
{
	return pairs("bce_with_logits", OPS_BCE, "x", x, "target", target, reduction, out, err);
}

enum far_status far_op_bce_with_logits_backward(const struct far_tensor *grad, const struct far_tensor *x,
						const struct far_tensor *target, enum far_op_reduction reduction,
						struct far_tensor *dx, struct far_tensor *dtarget, struct far_err *err)
{
	TRY(pairs_check("bce_with_logits_backward", grad, "x", x, "target", target, reduction, dx, dtarget, err));
	const struct far_tensor *in[3] = {grad, x, target};
	if (dx)
		pairs_derive(OPS_BCE_D, 3, in, reduction, dx);
	if (dtarget)
		pairs_derive(OPS_BCE_DT, 2, in, reduction, dtarget);
	return FAR_OK;
}

enum far_status far_op_mse(const struct far_tensor *a, const struct far_tensor *b, enum far_op_reduction reduction,
			   struct far_tensor *out, struct far_err *err)
{
	return pairs("mse", OPS_MSE, "a", a, "b", b, reduction, out, err);
}

enum far_status far_op_mse_backward(const struct far_tensor *grad, const struct far_tensor *a,
				    const struct far_tensor *b, enum far_op_reduction reduction, struct far_tensor *da,
				    struct far_tensor *db, struct far_err *err)
{
	TRY(pairs_check("mse_backward", grad, "a", a, "b", b, reduction, da, db, err));
	if (da)
		pairs_derive(OPS_MSE_D, 3, (const struct far_tensor *[]){grad, a, b}, reduction, da);
	if (db)
		pairs_derive(OPS_MSE_D, 3, (const struct far_tensor *[]){grad, b, a}, reduction, db);
	return FAR_OK;
}

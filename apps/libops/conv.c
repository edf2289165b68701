/* SPDX-License-Identifier: BSD-3-Clause */
/** Two-dimensional convolutions as matrix products: the patches under the kernel become columns. Any thread. */
#include "work.h"

#include <inttypes.h>

struct geometry {
	uint64_t n, groups;
	uint64_t channels, out;      /* of one group */
	uint64_t size[2], kernel[2]; /* height and width */
	uint64_t stride[2], padding[2], dilation[2];
	uint64_t result[2];
	uint64_t patch;     /* rows of the matrix of patches: channels * kernel */
	uint64_t positions; /* its columns */
	bool plain;         /* it is the image itself */
};

static enum far_status geometry_make(const char *op, const struct far_tensor *x, const struct far_tensor *w,
				     const struct far_op_conv *conv, struct geometry *g, struct far_err *err)
{
	static const struct far_op_conv defaults;
	char text_x[OPS_TEXT];
	char text_w[OPS_TEXT];
	conv = conv ? conv : &defaults;
	TRY(ops_check_float(op, "x", x, err));
	TRY(ops_check_like(op, "w", w, "x", x, err));
	ops_text(x, text_x);
	ops_text(w, text_w);
	if (x->ndim != 4 || w->ndim != 4)
		return ops_fail(
			err, FAR_INVALID,
			"%s: x %s must be [n,channels,height,width] and w %s [out,channels/groups,height,width]", op,
			text_x, text_w);
	g->groups = conv->groups ? conv->groups : 1;
	g->n = x->shape[0];
	g->channels = w->shape[1];
	g->out = w->shape[0] / g->groups;
	if (w->shape[0] % g->groups != 0 || x->shape[1] % g->groups != 0 || x->shape[1] / g->groups != w->shape[1])
		return ops_fail(err, FAR_INVALID,
				"%s: x %s has %" PRIu64 " channels, w %s with %" PRIu64 " groups takes %" PRIu64
				" per group; groups divide both channels",
				op, text_x, x->shape[1], text_w, g->groups, w->shape[1]);
	g->plain = true;
	for (unsigned i = 0; i < 2; i++) {
		g->size[i] = x->shape[2 + i];
		g->kernel[i] = w->shape[2 + i];
		g->stride[i] = conv->stride[i] ? conv->stride[i] : 1;
		g->padding[i] = conv->padding[i];
		g->dilation[i] = conv->dilation[i] ? conv->dilation[i] : 1;
		uint64_t padded = g->size[i] + 2 * g->padding[i];
		uint64_t span;
		if (g->kernel[i] == 0 || __builtin_mul_overflow(g->kernel[i] - 1, g->dilation[i], &span) ||
		    span >= padded)
			return ops_fail(err, FAR_INVALID,
					"%s: the kernel of w %s with dilation %" PRIu64
					" does not fit axis %u of x %s with padding %" PRIu64,
					op, text_w, g->dilation[i], 2 + i, text_x, g->padding[i]);
		g->result[i] = (padded - span - 1) / g->stride[i] + 1;
		g->plain = g->plain && g->kernel[i] == 1 && g->stride[i] == 1 && g->padding[i] == 0;
	}
	uint64_t bytes;
	if (__builtin_mul_overflow(g->result[0], g->result[1], &g->positions) ||
	    __builtin_mul_overflow(g->positions, sizeof(double), &bytes) || bytes > PTRDIFF_MAX)
		return ops_fail(err, FAR_TOO_LARGE, "%s: x %s with this padding has too many positions", op, text_x);
	g->patch = g->channels * g->kernel[0] * g->kernel[1];
	return FAR_OK;
}

static void result_shape(const struct geometry *g, const struct far_tensor *w, uint64_t shape[4])
{
	shape[0] = g->n;
	shape[1] = w->shape[0];
	shape[2] = g->result[0];
	shape[3] = g->result[1];
}

/* Patches of an image, [patch, positions], and back: elements are added where they came from. */
#define PATCHES(name, T)                                                                                               \
	static void patches_##name(const struct geometry *g, T *image, T *patches, bool back)                          \
	{                                                                                                              \
		for (uint64_t row = 0; row < g->patch; row++) {                                                        \
			uint64_t kx = row % g->kernel[1], ky = row / g->kernel[1] % g->kernel[0];                      \
			T *plane = image + row / (g->kernel[0] * g->kernel[1]) * g->size[0] * g->size[1];              \
			T *line = patches + row * g->positions;                                                        \
			for (uint64_t y = 0; y < g->result[0]; y++, line += g->result[1]) {                            \
				uint64_t iy = y * g->stride[0] + ky * g->dilation[0] - g->padding[0];                  \
				bool inside = iy < g->size[0]; /* below 0 it wraps */                                  \
				for (uint64_t x = 0; x < g->result[1]; x++) {                                          \
					uint64_t ix = x * g->stride[1] + kx * g->dilation[1] - g->padding[1];          \
					bool hit = inside && ix < g->size[1];                                          \
					if (!back)                                                                     \
						line[x] = hit ? plane[iy * g->size[1] + ix] : 0;                       \
					else if (hit)                                                                  \
						plane[iy * g->size[1] + ix] += line[x];                                \
				}                                                                                      \
			}                                                                                              \
		}                                                                                                      \
	}
PATCHES(f32, float)
PATCHES(f64, double)

static void patches(enum far_dtype dtype, const struct geometry *g, void *image, void *columns, bool back)
{
	if (dtype == FAR_F64)
		patches_f64(g, image, columns, back);
	else
		patches_f32(g, image, columns, back);
}

struct plan {
	struct ops_source x, w, grad;
	struct ops_sink out, dx, dw;
	void *columns, *gemm;
};

static void *columns_plan(struct ops_arena *arena, const struct geometry *g, enum far_dtype dtype)
{
	uint64_t count;
	if (g->plain)
		return NULL;
	if (__builtin_mul_overflow(g->patch, g->positions, &count))
		count = UINT64_MAX; /* which ops_take() refuses */
	return ops_take(arena, count, ops_size(ops_arithmetic(dtype)));
}

static void plan_make(struct plan *p, struct ops_arena *arena, const struct geometry *g, const struct far_tensor *x,
		      const struct far_tensor *w, const struct far_tensor *out)
{
	ops_source_plan(&p->x, arena, x, true);
	ops_source_plan(&p->w, arena, w, true);
	ops_sink_plan(&p->out, arena, out);
	p->columns = columns_plan(arena, g, (enum far_dtype)x->dtype);
	p->gemm = ops_gemm_plan(arena, (enum far_dtype)x->dtype, g->out, g->positions, g->patch);
}

static void *at(const void *data, uint64_t index, enum far_dtype dtype)
{
	return (char *)(uintptr_t)data + index * ops_size(dtype);
}

enum far_status far_op_conv2d(const struct far_tensor *x, const struct far_tensor *w, const struct far_tensor *bias,
			      const struct far_op_conv *conv, struct far_tensor *out, struct far_op_work *work,
			      struct far_err *err)
{
	struct geometry g;
	struct plan p;
	struct ops_arena arena = {0};
	uint64_t shape[4];
	TRY(geometry_make("conv2d", x, w, conv, &g, err));
	if (bias)
		TRY(ops_check_shape("conv2d", "bias", bias, (enum far_dtype)x->dtype, 1, w->shape, err));
	result_shape(&g, w, shape);
	TRY(ops_output("conv2d", "out", out, (enum far_dtype)x->dtype, 4, shape, err));
	TRY(ops_apart("conv2d", "out", out, "x", x, false, err));
	TRY(ops_apart("conv2d", "out", out, "w", w, false, err));
	TRY(ops_apart("conv2d", "out", out, "bias", bias, false, err));
	plan_make(&p, &arena, &g, x, w, out);
	TRY(ops_work("conv2d", work, arena.used, &arena, err));
	if (!arena.base || !ops_wanted(out))
		return FAR_OK;
	plan_make(&p, &arena, &g, x, w, out);
	ops_source_load(&p.x);
	ops_source_load(&p.w);
	enum far_dtype dtype = (enum far_dtype)p.x.t.dtype;
	if (bias) { /* every position of a channel begins with its bias */
		int64_t strides[4] = {0, ops_stride(bias, 0), 0, 0};
		struct far_tensor from = *bias;
		from.ndim = 4;
		from.strides = strides;
		memcpy(from.shape, shape, sizeof shape);
		struct far_tensor to = ops_dense(dtype, p.out.data, 4, shape);
		ops_copy(&from, &to);
	}
	uint64_t image = g.channels * g.size[0] * g.size[1];
	for (uint64_t i = 0; i < g.n * g.groups; i++) { /* groups of an image are consecutive */
		void *from = at(p.x.t.data, i * image, dtype);
		if (!g.plain)
			patches(dtype, &g, from, p.columns, false);
		struct ops_product product = {g.out,
					      g.positions,
					      g.patch,
					      at(p.w.t.data, i % g.groups * g.out * g.patch, dtype),
					      g.plain ? from : p.columns,
					      at(p.out.data, i * g.out * g.positions, dtype),
					      (ptrdiff_t)g.patch,
					      1,
					      (ptrdiff_t)g.positions,
					      1,
					      (ptrdiff_t)g.positions,
					      bias != NULL};
		ops_multiply(dtype, &product, p.gemm);
	}
	ops_sink_store(&p.out);
	return FAR_OK;
}

static void backward_plan(struct plan *p, struct ops_arena *arena, const struct geometry *g,
			  const struct far_tensor *grad, const struct far_tensor *x, const struct far_tensor *w,
			  const struct far_tensor *dx, const struct far_tensor *dw)
{
	enum far_dtype dtype = (enum far_dtype)x->dtype;
	ops_source_plan(&p->x, arena, x, true);
	ops_source_plan(&p->w, arena, w, true);
	ops_source_plan(&p->grad, arena, grad, true);
	ops_sink_plan(&p->dx, arena, dx);
	ops_sink_plan(&p->dw, arena, dw);
	p->columns = columns_plan(arena, g, dtype);
	struct ops_arena first = *arena;
	ops_gemm_plan(&first, dtype, g->patch, g->positions, g->out);
	p->gemm = ops_gemm_plan(arena, dtype, g->out, g->patch, g->positions);
	arena->used = arena->used > first.used ? arena->used : first.used;
}

/** The gradients of one group of one image. */
static void backward_image(const struct plan *p, const struct geometry *g, enum far_dtype dtype, uint64_t i, bool dx,
			   bool dw)
{
	uint64_t image = g->channels * g->size[0] * g->size[1];
	uint64_t weights = i % g->groups * g->out * g->patch;
	void *grad = at(p->grad.t.data, i * g->out * g->positions, dtype);
	ptrdiff_t positions = (ptrdiff_t)g->positions;
	ptrdiff_t patch = (ptrdiff_t)g->patch;
	if (dw) {
		void *from = at(p->x.t.data, i * image, dtype);
		if (!g->plain)
			patches(dtype, g, from, p->columns, false);
		struct ops_product product = {g->out,
					      g->patch,
					      g->positions,
					      grad,
					      g->plain ? from : p->columns,
					      at(p->dw.data, weights, dtype),
					      positions,
					      1,
					      1,
					      positions,
					      patch,
					      true};
		ops_multiply(dtype, &product, p->gemm);
	}
	if (dx) {
		void *to = at(p->dx.data, i * image, dtype);
		struct ops_product product = {g->patch,  g->positions,
					      g->out,    at(p->w.t.data, weights, dtype),
					      grad,      g->plain ? to : p->columns,
					      1,         patch,
					      positions, 1,
					      positions, false};
		ops_multiply(dtype, &product, p->gemm);
		if (!g->plain)
			patches(dtype, g, to, p->columns, true);
	}
}

enum far_status far_op_conv2d_backward(const struct far_tensor *grad, const struct far_tensor *x,
				       const struct far_tensor *w, const struct far_op_conv *conv,
				       struct far_tensor *dx, struct far_tensor *dw, struct far_tensor *dbias,
				       struct far_op_work *work, struct far_err *err)
{
	static const char op[] = "conv2d_backward";
	struct geometry g;
	struct plan p;
	struct ops_arena arena = {0};
	uint64_t shape[4];
	TRY(geometry_make(op, x, w, conv, &g, err));
	result_shape(&g, w, shape);
	TRY(ops_check_shape(op, "grad", grad, (enum far_dtype)x->dtype, 4, shape, err));
	TRY(ops_gradient(op, "dx", dx, x, err));
	TRY(ops_gradient(op, "dw", dw, w, err));
	if (dbias)
		TRY(ops_output(op, "dbias", dbias, (enum far_dtype)x->dtype, 1, w->shape, err));
	struct far_tensor *outs[3] = {dx, dw, dbias};
	static const char *const names[3] = {"dx", "dw", "dbias"};
	for (unsigned i = 0; i < 3; i++) {
		TRY(ops_apart(op, names[i], outs[i], "grad", grad, false, err));
		TRY(ops_apart(op, names[i], outs[i], "x", x, false, err));
		TRY(ops_apart(op, names[i], outs[i], "w", w, false, err));
		for (unsigned k = 0; k < i; k++)
			TRY(ops_apart(op, names[i], outs[i], names[k], outs[k], false, err));
	}
	backward_plan(&p, &arena, &g, grad, x, w, dx, dw);
	TRY(ops_work(op, work, arena.used, &arena, err));
	if (!arena.base)
		return FAR_OK;
	backward_plan(&p, &arena, &g, grad, x, w, dx, dw);
	ops_source_load(&p.x);
	ops_source_load(&p.w);
	ops_source_load(&p.grad);
	ops_sink_zero(&p.dx);
	ops_sink_zero(&p.dw);
	for (uint64_t i = 0; i < g.n * g.groups; i++)
		backward_image(&p, &g, (enum far_dtype)p.x.t.dtype, i, ops_wanted(dx), ops_wanted(dw));
	ops_sink_store(&p.dx);
	ops_sink_store(&p.dw);
	struct ops_sum sum = {NULL, 0, 1};
	if (ops_wanted(dbias))
		ops_sum(&sum, dbias, &grad, 1, 4, grad->shape, 1u << 0 | 1u << 2 | 1u << 3);
	return FAR_OK;
}

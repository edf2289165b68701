/* SPDX-License-Identifier: BSD-3-Clause */
/** Matrix products, linear layers and their derivatives. Any thread. */
#include "work.h"

#include <inttypes.h>

/* The operands of a product as batches of matrices. */
struct batches {
	struct far_tensor a, b; /* of rank 2 at least */
	unsigned ndim;          /* of `full` */
	uint64_t full[FAR_DIMS_MAX + 1];
	unsigned batch; /* bits of the dimensions before the matrices */
	uint64_t m, n, k;
	bool row, column; /* `a` or `b` had rank 1 */
	int64_t strides_a[2], strides_b[2];
};

static enum far_status batches_make(const char *op, const struct far_tensor *a, const struct far_tensor *b,
				    struct batches *s, struct far_err *err)
{
	char text_a[OPS_TEXT];
	char text_b[OPS_TEXT];
	TRY(ops_check_float(op, "a", a, err));
	TRY(ops_check_like(op, "b", b, "a", a, err));
	if (a->ndim == 0 || b->ndim == 0)
		return ops_fail(err, FAR_INVALID, "%s: a %s and b %s: rank 0 has no product, use mul", op,
				ops_text(a, text_a), ops_text(b, text_b));
	s->a = *a;
	s->b = *b;
	s->row = a->ndim == 1;
	s->column = b->ndim == 1;
	if (s->row) {
		s->strides_a[0] = 0;
		s->strides_a[1] = ops_stride(a, 0);
		s->a.ndim = 2;
		s->a.shape[0] = 1;
		s->a.shape[1] = a->shape[0];
		s->a.strides = a->strides ? s->strides_a : NULL;
	}
	if (s->column) {
		s->strides_b[0] = ops_stride(b, 0);
		s->strides_b[1] = 0;
		s->b.ndim = 2;
		s->b.shape[1] = 1;
		s->b.strides = b->strides ? s->strides_b : NULL;
	}
	s->m = s->a.shape[s->a.ndim - 2];
	s->k = s->a.shape[s->a.ndim - 1];
	s->n = s->b.shape[s->b.ndim - 1];
	if (s->b.shape[s->b.ndim - 2] != s->k)
		return ops_fail(err, FAR_INVALID,
				"%s: a %s and b %s: the rows of a have %" PRIu64 " elements, the columns of b %" PRIu64,
				op, ops_text(a, text_a), ops_text(b, text_b), s->k, s->b.shape[s->b.ndim - 2]);
	s->ndim = s->a.ndim > s->b.ndim ? s->a.ndim : s->b.ndim;
	s->batch = (1u << (s->ndim - 2)) - 1;
	for (unsigned i = 0; i < s->ndim - 2; i++) {
		unsigned from_end = s->ndim - i;
		uint64_t size_a = from_end <= s->a.ndim ? s->a.shape[s->a.ndim - from_end] : 1;
		uint64_t size_b = from_end <= s->b.ndim ? s->b.shape[s->b.ndim - from_end] : 1;
		if (size_a != size_b && size_a != 1 && size_b != 1)
			return ops_fail(err, FAR_INVALID,
					"%s: a %s and b %s: axis %u of the batches does not broadcast", op,
					ops_text(a, text_a), ops_text(b, text_b), i);
		s->full[i] = size_a == 1 ? size_b : size_a;
	}
	s->full[s->ndim - 2] = s->m;
	s->full[s->ndim - 1] = s->n;
	return FAR_OK;
}

/** The shape of the result. */
static unsigned batches_shape(const struct batches *s, uint64_t *shape)
{
	unsigned ndim = s->ndim - 2;
	memcpy(shape, s->full, ndim * sizeof *shape);
	if (!s->row)
		shape[ndim++] = s->m;
	if (!s->column)
		shape[ndim++] = s->n;
	return ndim;
}

/* A tensor as matrices: where each batch begins, and the strides of a matrix. */
struct matrices {
	struct ops_operand operand;
	ptrdiff_t row, column;
};

static struct matrices matrices(const struct batches *s, const struct far_tensor *t)
{
	struct matrices m;
	m.operand = ops_operand(t, s->ndim, s->full, s->batch);
	m.row = ops_stride(t, t->ndim - 2u);
	m.column = ops_stride(t, t->ndim - 1u);
	return m;
}

static void *matrix(const struct matrices *m, const struct ops_space *space, uint64_t batch)
{
	if (!m->operand.data) /* no elements */
		return NULL;
	return m->operand.data + ops_offset(space, &m->operand, batch) * m->operand.size;
}

/** c = a · b for all batches; c adds up those that share a matrix of it. */
static void multiply_all(const struct batches *s, const struct matrices *a, const struct matrices *b,
			 const struct matrices *c, const uint64_t sizes[3], bool accumulate, void *work)
{
	struct ops_space space = ops_space(s->ndim, s->full, s->batch);
	for (uint64_t i = 0; i < space.count; i++) {
		struct ops_product p = {sizes[0],
					sizes[1],
					sizes[2],
					matrix(a, &space, i),
					matrix(b, &space, i),
					matrix(c, &space, i),
					a->row,
					a->column,
					b->row,
					b->column,
					c->row,
					accumulate};
		ops_multiply(c->operand.dtype, &p, work);
	}
}

static struct matrices transposed(struct matrices m)
{
	ptrdiff_t row = m.row;
	m.row = m.column;
	m.column = row;
	return m;
}

struct matmul_plan {
	struct ops_source a, b, grad;
	struct ops_sink out[2];
	void *gemm;
};

static struct far_tensor batches_result(const struct batches *s, enum far_dtype dtype, void *data)
{
	return ops_dense(dtype, data, s->ndim, s->full);
}

static void matmul_plan(struct matmul_plan *p, struct ops_arena *arena, const struct batches *s,
			const struct far_tensor *out)
{
	ops_source_plan(&p->a, arena, &s->a, false);
	ops_source_plan(&p->b, arena, &s->b, false);
	ops_sink_plan(&p->out[0], arena, out);
	uint64_t rows = s->b.ndim == 2 ? ops_space(s->ndim, s->full, s->batch).count * s->m : s->m;
	p->gemm = ops_gemm_plan(arena, (enum far_dtype)s->a.dtype, rows, s->n, s->k);
}

enum far_status far_op_matmul(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			      struct far_op_work *work, struct far_err *err)
{
	struct batches s;
	struct matmul_plan p;
	struct ops_arena arena = {0};
	uint64_t shape[FAR_DIMS_MAX];
	TRY(batches_make("matmul", a, b, &s, err));
	unsigned ndim = batches_shape(&s, shape);
	TRY(ops_output("matmul", "out", out, (enum far_dtype)a->dtype, ndim, shape, err));
	TRY(ops_apart("matmul", "out", out, "a", a, false, err));
	TRY(ops_apart("matmul", "out", out, "b", b, false, err));
	matmul_plan(&p, &arena, &s, out);
	TRY(ops_work("matmul", work, arena.used, &arena, err));
	if (!arena.base || !ops_wanted(out))
		return FAR_OK;
	matmul_plan(&p, &arena, &s, out);
	ops_source_load(&p.a);
	ops_source_load(&p.b);
	enum far_dtype dtype = (enum far_dtype)p.a.t.dtype;
	struct far_tensor result = batches_result(&s, dtype, p.out[0].data);
	if (s.b.ndim == 2 && ops_is_dense(&p.a.t)) { /* one matrix of all rows */
		struct ops_product whole = {ops_count(out) / s.n,
					    s.n,
					    s.k,
					    p.a.t.data,
					    p.b.t.data,
					    p.out[0].data,
					    (ptrdiff_t)s.k,
					    1,
					    ops_stride(&p.b.t, 0),
					    ops_stride(&p.b.t, 1),
					    (ptrdiff_t)s.n,
					    false};
		ops_multiply(dtype, &whole, p.gemm);
	} else {
		struct matrices of_a = matrices(&s, &p.a.t);
		struct matrices of_b = matrices(&s, &p.b.t);
		struct matrices of_out = matrices(&s, &result);
		multiply_all(&s, &of_a, &of_b, &of_out, (const uint64_t[]){s.m, s.n, s.k}, false, p.gemm);
	}
	ops_sink_store(&p.out[0]);
	return FAR_OK;
}

static void matmul_backward_plan(struct matmul_plan *p, struct ops_arena *arena, const struct batches *s,
				 const struct far_tensor *grad, const struct far_tensor *da,
				 const struct far_tensor *db)
{
	enum far_dtype dtype = (enum far_dtype)s->a.dtype;
	ops_source_plan(&p->a, arena, &s->a, false);
	ops_source_plan(&p->b, arena, &s->b, false);
	ops_source_plan(&p->grad, arena, grad, true);
	ops_sink_plan(&p->out[0], arena, da);
	ops_sink_plan(&p->out[1], arena, db);
	/* m × k and k × n products, one after the other in the same memory. */
	struct ops_arena first = *arena;
	ops_gemm_plan(&first, dtype, s->m, s->k, s->n);
	p->gemm = ops_gemm_plan(arena, dtype, s->k, s->n, s->m);
	arena->used = arena->used > first.used ? arena->used : first.used;
}

enum far_status far_op_matmul_backward(const struct far_tensor *grad, const struct far_tensor *a,
				       const struct far_tensor *b, struct far_tensor *da, struct far_tensor *db,
				       struct far_op_work *work, struct far_err *err)
{
	static const char op[] = "matmul_backward";
	struct batches s;
	struct matmul_plan p;
	struct ops_arena arena = {0};
	uint64_t shape[FAR_DIMS_MAX];
	TRY(batches_make(op, a, b, &s, err));
	unsigned ndim = batches_shape(&s, shape);
	TRY(ops_check_shape(op, "grad", grad, (enum far_dtype)a->dtype, ndim, shape, err));
	TRY(ops_gradient(op, "da", da, a, err));
	TRY(ops_gradient(op, "db", db, b, err));
	for (unsigned i = 0; i < 2; i++) {
		const struct far_tensor *out = i ? db : da;
		const char *name = i ? "db" : "da";
		TRY(ops_apart(op, name, out, "grad", grad, false, err));
		TRY(ops_apart(op, name, out, "a", a, false, err));
		TRY(ops_apart(op, name, out, "b", b, false, err));
	}
	if (db)
		TRY(ops_apart(op, "da", da, "db", db, false, err));
	matmul_backward_plan(&p, &arena, &s, grad, da, db);
	TRY(ops_work(op, work, arena.used, &arena, err));
	if (!arena.base)
		return FAR_OK;
	matmul_backward_plan(&p, &arena, &s, grad, da, db);
	ops_source_load(&p.a);
	ops_source_load(&p.b);
	ops_source_load(&p.grad);
	enum far_dtype dtype = (enum far_dtype)p.a.t.dtype;
	struct far_tensor result = batches_result(&s, dtype, p.grad.t.data);
	struct matrices of_a = matrices(&s, &p.a.t);
	struct matrices of_b = matrices(&s, &p.b.t);
	struct matrices of_grad = matrices(&s, &result);
	if (ops_wanted(da)) {
		struct far_tensor t = ops_dense(dtype, p.out[0].data, s.a.ndim, s.a.shape);
		struct matrices of_out = matrices(&s, &t);
		struct matrices by = transposed(of_b);
		bool shared = ops_repeated(&t, s.ndim, s.full) & s.batch;
		if (shared)
			ops_sink_zero(&p.out[0]);
		multiply_all(&s, &of_grad, &by, &of_out, (const uint64_t[]){s.m, s.k, s.n}, shared, p.gemm);
		ops_sink_store(&p.out[0]);
	}
	if (ops_wanted(db)) {
		struct far_tensor t = ops_dense(dtype, p.out[1].data, s.b.ndim, s.b.shape);
		struct matrices of_out = matrices(&s, &t);
		struct matrices by = transposed(of_a);
		bool shared = ops_repeated(&t, s.ndim, s.full) & s.batch;
		if (shared)
			ops_sink_zero(&p.out[1]);
		multiply_all(&s, &by, &of_grad, &of_out, (const uint64_t[]){s.k, s.n, s.m}, shared, p.gemm);
		ops_sink_store(&p.out[1]);
	}
	return FAR_OK;
}

/* ---- linear layers ---- */

/** Checks `x` and `w`, and makes the shape of the result. */
static enum far_status linear_check(const char *op, const struct far_tensor *x, const struct far_tensor *w,
				    uint64_t *shape, struct far_err *err)
{
	char text_x[OPS_TEXT];
	char text_w[OPS_TEXT];
	TRY(ops_check_float(op, "x", x, err));
	TRY(ops_check_like(op, "w", w, "x", x, err));
	if (x->ndim == 0 || w->ndim != 2 || w->shape[1] != x->shape[x->ndim - 1])
		return ops_fail(err, FAR_INVALID, "%s: x %s must be [...,in] and w %s [out,in]", op,
				ops_text(x, text_x), ops_text(w, text_w));
	memcpy(shape, x->shape, x->ndim * sizeof *shape);
	shape[x->ndim - 1] = w->shape[0];
	return FAR_OK;
}

/** Elements of all dimensions of `t` but the last. */
static uint64_t rows_of(const struct far_tensor *t)
{
	uint64_t rows = 1;
	for (unsigned k = 0; k + 1 < t->ndim; k++)
		rows *= t->shape[k];
	return rows;
}

struct linear_plan {
	struct ops_source x, w, grad;
	struct ops_sink out, dw;
	void *gemm;
};

static void linear_plan(struct linear_plan *p, struct ops_arena *arena, const struct far_tensor *x,
			const struct far_tensor *w, const struct far_tensor *out)
{
	ops_source_plan(&p->x, arena, x, true);
	ops_source_plan(&p->w, arena, w, false);
	ops_sink_plan(&p->out, arena, out);
	p->gemm = ops_gemm_plan(arena, (enum far_dtype)x->dtype, rows_of(x), w->shape[0], w->shape[1]);
}

enum far_status far_op_linear(const struct far_tensor *x, const struct far_tensor *w, const struct far_tensor *bias,
			      struct far_tensor *out, struct far_op_work *work, struct far_err *err)
{
	struct linear_plan p;
	struct ops_arena arena = {0};
	uint64_t shape[FAR_DIMS_MAX];
	TRY(linear_check("linear", x, w, shape, err));
	if (bias)
		TRY(ops_check_shape("linear", "bias", bias, (enum far_dtype)x->dtype, 1, w->shape, err));
	TRY(ops_output("linear", "out", out, (enum far_dtype)x->dtype, x->ndim, shape, err));
	TRY(ops_apart("linear", "out", out, "x", x, false, err));
	TRY(ops_apart("linear", "out", out, "w", w, false, err));
	TRY(ops_apart("linear", "out", out, "bias", bias, false, err));
	linear_plan(&p, &arena, x, w, out);
	TRY(ops_work("linear", work, arena.used, &arena, err));
	if (!arena.base || !ops_wanted(out))
		return FAR_OK;
	linear_plan(&p, &arena, x, w, out);
	ops_source_load(&p.x);
	ops_source_load(&p.w);
	enum far_dtype dtype = (enum far_dtype)p.x.t.dtype;
	uint64_t rows = rows_of(x), in = w->shape[1], n = w->shape[0];
	if (bias)
		ops_fill_rows(dtype, p.out.data, rows, n, bias);
	struct ops_product product = {rows,
				      n,
				      in,
				      p.x.t.data,
				      p.w.t.data,
				      p.out.data,
				      (ptrdiff_t)in,
				      1,
				      ops_stride(&p.w.t, 1),
				      ops_stride(&p.w.t, 0),
				      (ptrdiff_t)n,
				      bias != NULL};
	ops_multiply(dtype, &product, p.gemm);
	ops_sink_store(&p.out);
	return FAR_OK;
}

static void linear_backward_plan(struct linear_plan *p, struct ops_arena *arena, const struct far_tensor *grad,
				 const struct far_tensor *x, const struct far_tensor *w, const struct far_tensor *dx,
				 const struct far_tensor *dw)
{
	enum far_dtype dtype = (enum far_dtype)x->dtype;
	uint64_t rows = rows_of(x), in = w->shape[1], n = w->shape[0];
	ops_source_plan(&p->x, arena, x, true);
	ops_source_plan(&p->w, arena, w, false);
	ops_source_plan(&p->grad, arena, grad, true);
	ops_sink_plan(&p->out, arena, dx);
	ops_sink_plan(&p->dw, arena, dw);
	struct ops_arena first = *arena;
	ops_gemm_plan(&first, dtype, rows, in, n);
	p->gemm = ops_gemm_plan(arena, dtype, n, in, rows);
	arena->used = arena->used > first.used ? arena->used : first.used;
}

enum far_status far_op_linear_backward(const struct far_tensor *grad, const struct far_tensor *x,
				       const struct far_tensor *w, struct far_tensor *dx, struct far_tensor *dw,
				       struct far_tensor *dbias, struct far_op_work *work, struct far_err *err)
{
	static const char op[] = "linear_backward";
	struct linear_plan p;
	struct ops_arena arena = {0};
	uint64_t shape[FAR_DIMS_MAX];
	TRY(linear_check(op, x, w, shape, err));
	TRY(ops_check_shape(op, "grad", grad, (enum far_dtype)x->dtype, x->ndim, shape, err));
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
	linear_backward_plan(&p, &arena, grad, x, w, dx, dw);
	TRY(ops_work(op, work, arena.used, &arena, err));
	if (!arena.base)
		return FAR_OK;
	linear_backward_plan(&p, &arena, grad, x, w, dx, dw);
	ops_source_load(&p.x);
	ops_source_load(&p.w);
	ops_source_load(&p.grad);
	enum far_dtype dtype = (enum far_dtype)p.x.t.dtype;
	uint64_t rows = rows_of(x), in = w->shape[1], n = w->shape[0];
	if (ops_wanted(dx)) {
		struct ops_product product = {
			rows,          in,           n, p.grad.t.data,         p.w.t.data,
			p.out.data,    (ptrdiff_t)n, 1, ops_stride(&p.w.t, 0), ops_stride(&p.w.t, 1),
			(ptrdiff_t)in, false};
		ops_multiply(dtype, &product, p.gemm);
		ops_sink_store(&p.out);
	}
	if (ops_wanted(dw)) {
		struct ops_product product = {n,
					      in,
					      rows,
					      p.grad.t.data,
					      p.x.t.data,
					      p.dw.data,
					      1,
					      (ptrdiff_t)n,
					      (ptrdiff_t)in,
					      1,
					      (ptrdiff_t)in,
					      false};
		ops_multiply(dtype, &product, p.gemm);
		ops_sink_store(&p.dw);
	}
	struct ops_sum sum = {NULL, 0, 1};
	if (ops_wanted(dbias))
		ops_sum(&sum, dbias, &grad, 1, grad->ndim, grad->shape, (1u << (grad->ndim - 1)) - 1);
	return FAR_OK;
}

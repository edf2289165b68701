/* SPDX-License-Identifier: BSD-3-Clause */
/** Steps of LSTM and GRU networks and their derivatives. Any thread. */
#include "work.h"

struct step {
	enum far_dtype dtype, arithmetic;
	uint64_t n, in, hidden;
	uint64_t gates; /* per unit, with weights: 4 or 3 */
};

/** The shape [n, columns], or [columns]. */
static enum far_status check_matrix(const char *op, const char *name, const struct far_tensor *t, const struct step *s,
				    uint64_t rows, uint64_t columns, struct far_err *err)
{
	return ops_check_shape(op, name, t, s->dtype, 2, (const uint64_t[]){rows, columns}, err);
}

static enum far_status check_step(const char *op, uint64_t gates, const struct far_tensor *x,
				  const struct far_tensor *h, const struct far_op_cell *cell, struct step *s,
				  struct far_err *err)
{
	char text_x[OPS_TEXT];
	char text_h[OPS_TEXT];
	TRY(ops_check_float(op, "x", x, err));
	TRY(ops_check_like(op, "h", h, "x", x, err));
	if (x->ndim != 2 || h->ndim != 2 || x->shape[0] != h->shape[0])
		return ops_fail(err, FAR_INVALID, "%s: x %s must be [n,in] and h %s [n,hidden]", op,
				ops_text(x, text_x), ops_text(h, text_h));
	s->dtype = (enum far_dtype)x->dtype;
	s->arithmetic = ops_arithmetic(s->dtype);
	s->n = x->shape[0];
	s->in = x->shape[1];
	s->hidden = h->shape[1];
	s->gates = gates;
	uint64_t size;
	if (__builtin_mul_overflow(s->hidden, (uint64_t)4, &size) || size > PTRDIFF_MAX)
		return ops_fail(err, FAR_TOO_LARGE, "%s: h %s has too many units", op, ops_text(h, text_h));
	size = gates * s->hidden;
	if (!cell)
		return ops_fail(err, FAR_INVALID, "%s: cell is NULL", op);
	TRY(check_matrix(op, "w_input", cell->w_input, s, size, s->in, err));
	TRY(check_matrix(op, "w_hidden", cell->w_hidden, s, size, s->hidden, err));
	if (cell->bias_input)
		TRY(ops_check_shape(op, "bias_input", cell->bias_input, s->dtype, 1, &size, err));
	if (cell->bias_hidden)
		TRY(ops_check_shape(op, "bias_hidden", cell->bias_hidden, s->dtype, 1, &size, err));
	return FAR_OK;
}

static enum far_status apart_from_all(const char *op, const char *name, const struct far_tensor *out,
				      const struct far_tensor *const *in, size_t n, struct far_err *err)
{
	for (size_t i = 0; i < n; i++)
		TRY(ops_apart(op, name, out, "an argument", in[i], false, err));
	return FAR_OK;
}

static enum far_status output(const char *op, const char *name, struct far_tensor *out, const struct step *s,
			      uint64_t columns, const struct far_tensor *const *in, size_t n, struct far_err *err)
{
	TRY(ops_output(op, name, out, s->dtype, 2, (const uint64_t[]){s->n, columns}, err));
	return apart_from_all(op, name, out, in, n, err);
}

/* What a step needs in the dtype of the arithmetic. */
struct forward {
	struct ops_source x, h, c, w_input, w_hidden;
	struct ops_sink h_next, c_next, gates;
	void *of_input, *of_hidden; /* products [n, gates * hidden]; the same for an LSTM */
	void *gemm;
};

static void *gemm_both(struct ops_arena *arena, const struct step *s, uint64_t m, uint64_t n, uint64_t k)
{
	struct ops_arena first = *arena;
	ops_gemm_plan(&first, s->dtype, m, n, s->in > k ? s->in : k);
	void *gemm = ops_gemm_plan(arena, s->dtype, m, n, k);
	arena->used = arena->used > first.used ? arena->used : first.used;
	return gemm;
}

static void forward_plan(struct forward *f, struct ops_arena *arena, const struct step *s, const struct far_tensor *x,
			 const struct far_tensor *h, const struct far_tensor *c, const struct far_op_cell *cell,
			 const struct far_tensor *h_next, const struct far_tensor *c_next,
			 const struct far_tensor *gates)
{
	ops_source_plan(&f->x, arena, x, true);
	ops_source_plan(&f->h, arena, h, true);
	ops_source_plan(&f->c, arena, c, true);
	ops_source_plan(&f->w_input, arena, cell->w_input, true);
	ops_source_plan(&f->w_hidden, arena, cell->w_hidden, true);
	ops_sink_plan(&f->h_next, arena, h_next);
	ops_sink_plan(&f->c_next, arena, c_next);
	ops_sink_plan(&f->gates, arena, gates);
	uint64_t rows;
	if (__builtin_mul_overflow(s->n, s->gates * s->hidden, &rows))
		rows = UINT64_MAX; /* which ops_take() refuses */
	f->of_input = ops_take(arena, rows, ops_size(s->arithmetic));
	f->of_hidden = s->gates == 4 ? f->of_input : ops_take(arena, rows, ops_size(s->arithmetic));
	f->gemm = gemm_both(arena, s, s->n, s->gates * s->hidden, s->hidden);
}

/** to = from wᵀ + bias, or added to what is there. */
static void project(const struct step *s, const struct ops_source *from, const struct ops_source *w,
		    const struct far_tensor *bias, void *to, bool add, void *gemm)
{
	uint64_t columns = s->gates * s->hidden;
	ptrdiff_t depth = (ptrdiff_t)w->t.shape[1];
	if (bias && !add)
		ops_fill_rows(s->arithmetic, to, s->n, columns, bias);
	struct ops_product product = {s->n, columns, w->t.shape[1], from->t.data,       w->t.data,  to, depth,
				      1,    1,       depth,         (ptrdiff_t)columns, add || bias};
	ops_multiply(s->arithmetic, &product, gemm);
}

/** to[i][j] += bias[j] */
static void add_bias(const struct step *s, const struct far_tensor *bias, void *to)
{
	uint64_t shape[2] = {s->n, s->gates * s->hidden};
	struct far_tensor t = ops_dense(s->arithmetic, to, 2, shape);
	struct ops_space space = ops_space(2, shape, 3);
	struct ops_operand in[2] = {ops_operand(&t, 2, shape, 3), ops_operand(bias, 2, shape, 3)};
	struct ops_operand out = in[0];
	ops_space_fold(&space, (struct ops_operand *[]){&in[0], &in[1], &out}, 3);
	ops_map(ops_kernel(OPS_ADD, s->arithmetic), 1, &space, &out, in, 2);
}

static void load_all(struct forward *f)
{
	struct ops_source *all[] = {&f->x, &f->h, &f->c, &f->w_input, &f->w_hidden};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		ops_source_load(all[i]);
}

static void apply(enum ops_map map, const struct step *s, void *data, uint64_t n)
{
	ops_kernel(map, s->arithmetic)(data, (const void *[]){data}, 1, n);
}

static void *elements(const void *data, uint64_t at, const struct step *s)
{
	return (char *)(uintptr_t)data + at * ops_size(s->arithmetic);
}

/* One row. Gates are activated; their layout is that of `gates`. */
#define CELLS(name, T)                                                                                                 \
	static void lstm_##name(uint64_t n, const T *gate, const T *c, T *c_next)                                      \
	{                                                                                                              \
		for (uint64_t i = 0; i < n; i++)                                                                       \
			c_next[i] = gate[n + i] * c[i] + gate[i] * gate[2 * n + i];                                    \
	}                                                                                                              \
	/* `tangent`: tanh(c_next); gradients of the state may be NULL: zero. */                                       \
	static void lstm_backward_##name(uint64_t n, const T *gate, const T *c, const T *tangent, const T *dh,         \
					 const T *dc, T *dgate, T *dc_out)                                             \
	{                                                                                                              \
		for (uint64_t k = 0; k < n; k++) {                                                                     \
			T i = gate[k], f = gate[n + k], g = gate[2 * n + k], o = gate[3 * n + k];                      \
			T t = tangent[k];                                                                              \
			T h = dh ? dh[k] : 0;                                                                          \
			T d = (dc ? dc[k] : 0) + h * o * (1 - t * t);                                                  \
			T old = c[k];                                                                                  \
			dgate[k] = d * g * i * (1 - i);                                                                \
			dgate[n + k] = d * old * f * (1 - f);                                                          \
			dgate[2 * n + k] = d * i * (1 - g * g);                                                        \
			dgate[3 * n + k] = h * t * o * (1 - o);                                                        \
			if (dc_out)                                                                                    \
				dc_out[k] = d * f;                                                                     \
		}                                                                                                      \
	}                                                                                                              \
	/* `gate`: r, z, n, and h_n. */                                                                                \
	static void gru_backward_##name(uint64_t m, const T *gate, const T *h, const T *dh, T *dinput, T *dhidden,     \
					T *dh_out)                                                                     \
	{                                                                                                              \
		for (uint64_t k = 0; k < m; k++) {                                                                     \
			T r = gate[k], z = gate[m + k], n = gate[2 * m + k], hidden = gate[3 * m + k];                 \
			T dn = dh[k] * (1 - z) * (1 - n * n);                                                          \
			dinput[k] = dhidden[k] = dn * hidden * r * (1 - r);                                            \
			dinput[m + k] = dhidden[m + k] = dh[k] * (h[k] - n) * z * (1 - z);                             \
			dinput[2 * m + k] = dn;                                                                        \
			dhidden[2 * m + k] = dn * r;                                                                   \
			if (dh_out)                                                                                    \
				dh_out[k] = dh[k] * z;                                                                 \
		}                                                                                                      \
	}
CELLS(f32, float)
CELLS(f64, double)

static void lstm_rows(const struct forward *f, const struct step *s)
{
	uint64_t m = s->hidden;
	for (uint64_t i = 0; i < s->n; i++) {
		void *gate = elements(f->of_input, i * 4 * m, s);
		void *c_next = elements(f->c_next.data, i * m, s);
		void *h_next = elements(f->h_next.data, i * m, s);
		const void *c = elements(f->c.t.data, i * m, s);
		apply(OPS_SIGMOID, s, gate, 2 * m);
		apply(OPS_TANH, s, elements(gate, 2 * m, s), m);
		apply(OPS_SIGMOID, s, elements(gate, 3 * m, s), m);
		if (s->arithmetic == FAR_F64)
			lstm_f64(m, gate, c, c_next);
		else
			lstm_f32(m, gate, c, c_next);
		ops_kernel(OPS_TANH, s->arithmetic)(h_next, (const void *[]){c_next}, 1, m);
		ops_kernel(OPS_MUL, s->arithmetic)(h_next, (const void *[]){elements(gate, 3 * m, s), h_next}, 1, m);
		if (f->gates.to)
			memcpy(elements(f->gates.data, i * 4 * m, s), gate, 4 * m * ops_size(s->arithmetic));
	}
}

enum far_status far_op_lstm_cell(const struct far_tensor *x, const struct far_tensor *h, const struct far_tensor *c,
				 const struct far_op_cell *cell, struct far_tensor *h_next, struct far_tensor *c_next,
				 struct far_tensor *gates, struct far_op_work *work, struct far_err *err)
{
	static const char op[] = "lstm_cell";
	struct step s;
	struct forward f;
	struct ops_arena arena = {0};
	TRY(check_step(op, 4, x, h, cell, &s, err));
	TRY(check_matrix(op, "c", c, &s, s.n, s.hidden, err));
	const struct far_tensor *in[9] = {x, h, c, cell->w_input, cell->w_hidden, cell->bias_input, cell->bias_hidden};
	TRY(output(op, "h_next", h_next, &s, s.hidden, in, 7, err));
	in[7] = h_next;
	TRY(output(op, "c_next", c_next, &s, s.hidden, in, 8, err));
	in[8] = c_next;
	if (gates)
		TRY(output(op, "gates", gates, &s, 4 * s.hidden, in, 9, err));
	forward_plan(&f, &arena, &s, x, h, c, cell, h_next, c_next, gates);
	TRY(ops_work(op, work, arena.used, &arena, err));
	if (!arena.base || !ops_wanted(h_next) || !ops_wanted(c_next) || (gates && !ops_wanted(gates)))
		return FAR_OK;
	forward_plan(&f, &arena, &s, x, h, c, cell, h_next, c_next, gates);
	load_all(&f);
	project(&s, &f.x, &f.w_input, cell->bias_input, f.of_input, false, f.gemm);
	project(&s, &f.h, &f.w_hidden, NULL, f.of_input, true, f.gemm);
	if (cell->bias_hidden)
		add_bias(&s, cell->bias_hidden, f.of_input);
	lstm_rows(&f, &s);
	ops_sink_store(&f.h_next);
	ops_sink_store(&f.c_next);
	if (gates)
		ops_sink_store(&f.gates);
	return FAR_OK;
}

static void gru_rows(const struct forward *f, const struct step *s)
{
	uint64_t m = s->hidden;
	ops_map_kernel *add = ops_kernel(OPS_ADD, s->arithmetic);
	ops_map_kernel *multiply = ops_kernel(OPS_MUL, s->arithmetic);
	for (uint64_t i = 0; i < s->n; i++) {
		void *gate = elements(f->of_input, i * 3 * m, s);
		void *third = elements(gate, 2 * m, s);
		void *h_next = elements(f->h_next.data, i * m, s);
		const void *hidden = elements(f->of_hidden, i * 3 * m, s);
		const void *hidden_third = elements(hidden, 2 * m, s);
		add(gate, (const void *[]){gate, hidden}, 1, 2 * m);
		apply(OPS_SIGMOID, s, gate, 2 * m);
		multiply(h_next, (const void *[]){gate, hidden_third}, 1, m);
		add(third, (const void *[]){third, h_next}, 1, m);
		apply(OPS_TANH, s, third, m);
		ops_kernel(OPS_GRU_BLEND, s->arithmetic)(
			h_next, (const void *[]){elements(gate, m, s), third, elements(f->h.t.data, i * m, s)}, 1, m);
		if (f->gates.to) {
			void *to = elements(f->gates.data, i * 4 * m, s);
			memcpy(to, gate, 3 * m * ops_size(s->arithmetic));
			memcpy(elements(to, 3 * m, s), hidden_third, m * ops_size(s->arithmetic));
		}
	}
}

enum far_status far_op_gru_cell(const struct far_tensor *x, const struct far_tensor *h, const struct far_op_cell *cell,
				struct far_tensor *h_next, struct far_tensor *gates, struct far_op_work *work,
				struct far_err *err)
{
	static const char op[] = "gru_cell";
	struct step s;
	struct forward f;
	struct ops_arena arena = {0};
	TRY(check_step(op, 3, x, h, cell, &s, err));
	const struct far_tensor *in[7] = {x, h, cell->w_input, cell->w_hidden, cell->bias_input, cell->bias_hidden};
	TRY(output(op, "h_next", h_next, &s, s.hidden, in, 6, err));
	in[6] = h_next;
	if (gates)
		TRY(output(op, "gates", gates, &s, 4 * s.hidden, in, 7, err));
	forward_plan(&f, &arena, &s, x, h, NULL, cell, h_next, NULL, gates);
	TRY(ops_work(op, work, arena.used, &arena, err));
	if (!arena.base || !ops_wanted(h_next) || (gates && !ops_wanted(gates)))
		return FAR_OK;
	forward_plan(&f, &arena, &s, x, h, NULL, cell, h_next, NULL, gates);
	load_all(&f);
	project(&s, &f.x, &f.w_input, cell->bias_input, f.of_input, false, f.gemm);
	project(&s, &f.h, &f.w_hidden, cell->bias_hidden, f.of_hidden, false, f.gemm);
	gru_rows(&f, &s);
	ops_sink_store(&f.h_next);
	if (gates)
		ops_sink_store(&f.gates);
	return FAR_OK;
}

/* ---- derivatives ---- */

struct backward {
	struct ops_source dh, dc, x, h, c, c_next, gates, w_input, w_hidden;
	struct ops_sink out[5];     /* x, h, c, w_input, w_hidden */
	void *of_input, *of_hidden; /* gradients of the products [n, gates * hidden] */
	void *tangent;              /* [hidden] */
	void *gemm;
};

static void backward_plan(struct backward *b, struct ops_arena *arena, const struct step *s,
			  const struct far_tensor *const in[7], const struct far_op_cell *cell,
			  const struct far_op_cell_gradients *g)
{
	struct ops_source *sources[7] = {&b->dh, &b->dc, &b->x, &b->h, &b->c, &b->c_next, &b->gates};
	const struct far_tensor *outs[5] = {g->x, g->h, s->gates == 4 ? g->c : NULL, g->w_input, g->w_hidden};
	uint64_t columns = s->gates * s->hidden;
	uint64_t rows;
	for (unsigned i = 0; i < 7; i++)
		ops_source_plan(sources[i], arena, in[i], true);
	ops_source_plan(&b->w_input, arena, cell->w_input, true);
	ops_source_plan(&b->w_hidden, arena, cell->w_hidden, true);
	for (unsigned i = 0; i < 5; i++)
		ops_sink_plan(&b->out[i], arena, outs[i]);
	if (__builtin_mul_overflow(s->n, columns, &rows))
		rows = UINT64_MAX; /* which ops_take() refuses */
	b->of_input = ops_take(arena, rows, ops_size(s->arithmetic));
	b->of_hidden = s->gates == 4 ? b->of_input : ops_take(arena, rows, ops_size(s->arithmetic));
	b->tangent = ops_take(arena, s->hidden, ops_size(s->arithmetic));
	/* Products of four shapes, one after the other in the same memory. */
	uint64_t wide = s->in > s->hidden ? s->in : s->hidden;
	struct ops_arena first = *arena;
	ops_gemm_plan(&first, s->dtype, s->n, wide, columns);
	b->gemm = ops_gemm_plan(arena, s->dtype, columns, wide, s->n);
	arena->used = arena->used > first.used ? arena->used : first.used;
}

/** Checks and makes the gradients; `in`: all inputs. */
static enum far_status check_gradients(const char *op, const struct step *s, const struct far_tensor *x,
				       const struct far_tensor *h, const struct far_tensor *c,
				       const struct far_op_cell *cell, const struct far_op_cell_gradients *g,
				       const struct far_tensor *const *in, size_t n, struct far_err *err)
{
	uint64_t size = s->gates * s->hidden;
	if (!g)
		return ops_fail(err, FAR_INVALID, "%s: gradients is NULL", op);
	TRY(ops_gradient(op, "the gradient of x", g->x, x, err));
	TRY(ops_gradient(op, "the gradient of h", g->h, h, err));
	if (c)
		TRY(ops_gradient(op, "the gradient of c", g->c, c, err));
	TRY(ops_gradient(op, "the gradient of w_input", g->w_input, cell->w_input, err));
	TRY(ops_gradient(op, "the gradient of w_hidden", g->w_hidden, cell->w_hidden, err));
	if (g->bias_input)
		TRY(ops_output(op, "the gradient of bias_input", g->bias_input, s->dtype, 1, &size, err));
	if (g->bias_hidden)
		TRY(ops_output(op, "the gradient of bias_hidden", g->bias_hidden, s->dtype, 1, &size, err));
	struct far_tensor *outs[7] = {g->x,        g->h,          c ? g->c : NULL, g->w_input,
				      g->w_hidden, g->bias_input, g->bias_hidden};
	for (unsigned i = 0; i < 7; i++) {
		TRY(apart_from_all(op, "a gradient", outs[i], in, n, err));
		for (unsigned k = 0; k < i; k++)
			TRY(ops_apart(op, "a gradient", outs[i], "another gradient", outs[k], false, err));
	}
	return FAR_OK;
}

/** Gradients of inputs and weights from those of one of the two products. `add`: to what `of_from` has. */
static void project_back(const struct step *s, const void *of_product, const struct ops_source *from,
			 const struct ops_source *w, const struct ops_sink *of_from, bool add,
			 const struct ops_sink *of_w, const struct far_tensor *of_bias, void *gemm)
{
	uint64_t columns = s->gates * s->hidden;
	uint64_t width = w->t.shape[1];
	if (ops_wanted(of_from->to)) {
		struct ops_product product = {s->n,
					      width,
					      columns,
					      of_product,
					      w->t.data,
					      of_from->data,
					      (ptrdiff_t)columns,
					      1,
					      (ptrdiff_t)width,
					      1,
					      (ptrdiff_t)width,
					      add};
		ops_multiply(s->arithmetic, &product, gemm);
		ops_sink_store(of_from);
	}
	if (ops_wanted(of_w->to)) {
		struct ops_product product = {columns,
					      width,
					      s->n,
					      of_product,
					      from->t.data,
					      of_w->data,
					      1,
					      (ptrdiff_t)columns,
					      (ptrdiff_t)width,
					      1,
					      (ptrdiff_t)width,
					      false};
		ops_multiply(s->arithmetic, &product, gemm);
		ops_sink_store(of_w);
	}
	if (ops_wanted(of_bias)) {
		uint64_t shape[2] = {s->n, columns};
		struct ops_sum sum = {NULL, 0, 1};
		struct far_tensor t = ops_dense(s->arithmetic, (void *)(uintptr_t)of_product, 2, shape);
		ops_sum(&sum, of_bias, (const struct far_tensor *[]){&t}, 1, 2, shape, 1);
	}
}

static void backward_load(struct backward *b)
{
	struct ops_source *all[9] = {&b->dh,     &b->dc,    &b->x,       &b->h,       &b->c,
				     &b->c_next, &b->gates, &b->w_input, &b->w_hidden};
	for (unsigned i = 0; i < 9; i++)
		ops_source_load(all[i]);
}

enum far_status far_op_lstm_cell_backward(const struct far_tensor *dh_next, const struct far_tensor *dc_next,
					  const struct far_tensor *x, const struct far_tensor *h,
					  const struct far_tensor *c, const struct far_op_cell *cell,
					  const struct far_tensor *c_next, const struct far_tensor *gates,
					  const struct far_op_cell_gradients *gradients, struct far_op_work *work,
					  struct far_err *err)
{
	static const char op[] = "lstm_cell_backward";
	struct step s;
	struct backward b;
	struct ops_arena arena = {0};
	TRY(check_step(op, 4, x, h, cell, &s, err));
	TRY(check_matrix(op, "c", c, &s, s.n, s.hidden, err));
	TRY(check_matrix(op, "c_next", c_next, &s, s.n, s.hidden, err));
	TRY(check_matrix(op, "gates", gates, &s, s.n, 4 * s.hidden, err));
	if (dh_next)
		TRY(check_matrix(op, "dh_next", dh_next, &s, s.n, s.hidden, err));
	if (dc_next)
		TRY(check_matrix(op, "dc_next", dc_next, &s, s.n, s.hidden, err));
	const struct far_tensor *in[9] = {dh_next, dc_next, x, h, c, c_next, gates, cell->w_input, cell->w_hidden};
	TRY(check_gradients(op, &s, x, h, c, cell, gradients, in, 9, err));
	backward_plan(&b, &arena, &s, in, cell, gradients);
	TRY(ops_work(op, work, arena.used, &arena, err));
	if (!arena.base)
		return FAR_OK;
	backward_plan(&b, &arena, &s, in, cell, gradients);
	backward_load(&b);
	uint64_t m = s.hidden;
	bool of_c = ops_wanted(gradients->c);
	for (uint64_t i = 0; i < s.n && m > 0; i++) {
		const void *gate = elements(b.gates.t.data, i * 4 * m, &s);
		const void *old = elements(b.c.t.data, i * m, &s);
		const void *dh = dh_next ? elements(b.dh.t.data, i * m, &s) : NULL;
		const void *dc = dc_next ? elements(b.dc.t.data, i * m, &s) : NULL;
		void *dgate = elements(b.of_input, i * 4 * m, &s);
		void *dc_out = of_c ? elements(b.out[2].data, i * m, &s) : NULL;
		ops_kernel(OPS_TANH, s.arithmetic)(b.tangent, (const void *[]){elements(b.c_next.t.data, i * m, &s)}, 1,
						   m);
		if (s.arithmetic == FAR_F64)
			lstm_backward_f64(m, gate, old, b.tangent, dh, dc, dgate, dc_out);
		else
			lstm_backward_f32(m, gate, old, b.tangent, dh, dc, dgate, dc_out);
	}
	if (of_c)
		ops_sink_store(&b.out[2]);
	project_back(&s, b.of_input, &b.x, &b.w_input, &b.out[0], false, &b.out[3], gradients->bias_input, b.gemm);
	project_back(&s, b.of_hidden, &b.h, &b.w_hidden, &b.out[1], false, &b.out[4], gradients->bias_hidden, b.gemm);
	return FAR_OK;
}

enum far_status far_op_gru_cell_backward(const struct far_tensor *dh_next, const struct far_tensor *x,
					 const struct far_tensor *h, const struct far_op_cell *cell,
					 const struct far_tensor *gates, const struct far_op_cell_gradients *gradients,
					 struct far_op_work *work, struct far_err *err)
{
	static const char op[] = "gru_cell_backward";
	struct step s;
	struct backward b;
	struct ops_arena arena = {0};
	TRY(check_step(op, 3, x, h, cell, &s, err));
	TRY(check_matrix(op, "gates", gates, &s, s.n, 4 * s.hidden, err));
	TRY(check_matrix(op, "dh_next", dh_next, &s, s.n, s.hidden, err));
	const struct far_tensor *in[9] = {dh_next, NULL, x, h, NULL, NULL, gates, cell->w_input, cell->w_hidden};
	TRY(check_gradients(op, &s, x, h, NULL, cell, gradients, in, 9, err));
	backward_plan(&b, &arena, &s, in, cell, gradients);
	TRY(ops_work(op, work, arena.used, &arena, err));
	if (!arena.base)
		return FAR_OK;
	backward_plan(&b, &arena, &s, in, cell, gradients);
	backward_load(&b);
	uint64_t m = s.hidden;
	bool of_h = ops_wanted(gradients->h);
	for (uint64_t i = 0; i < s.n && m > 0; i++) {
		const void *gate = elements(b.gates.t.data, i * 4 * m, &s);
		const void *old = elements(b.h.t.data, i * m, &s);
		const void *dh = elements(b.dh.t.data, i * m, &s);
		void *dinput = elements(b.of_input, i * 3 * m, &s);
		void *dhidden = elements(b.of_hidden, i * 3 * m, &s);
		void *dh_out = of_h ? elements(b.out[1].data, i * m, &s) : NULL;
		if (s.arithmetic == FAR_F64)
			gru_backward_f64(m, gate, old, dh, dinput, dhidden, dh_out);
		else
			gru_backward_f32(m, gate, old, dh, dinput, dhidden, dh_out);
	}
	project_back(&s, b.of_input, &b.x, &b.w_input, &b.out[0], false, &b.out[3], gradients->bias_input, b.gemm);
	project_back(&s, b.of_hidden, &b.h, &b.w_hidden, &b.out[1], true, &b.out[4], gradients->bias_hidden, b.gemm);
	return FAR_OK;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Optimizers against rules written down here once more, element by element in f64. The test's thread. */
#include "train_fixture.h"

#include <farcall/optim.h>

#define N     1300 /* more than two blocks */
#define STEPS 7

/* ---- references: state of one element ---- */

struct element {
	double w, a, b, c;
};

typedef void reference_fn(const struct far_optimizer_opts *o, struct element *e, double g, int t);

static void sgd(const struct far_optimizer_opts *o, struct element *e, double g, int t)
{
	g += o->weight_decay * e->w;
	if (o->momentum != 0) {
		e->a = t == 1 ? g : o->momentum * e->a + (1 - o->dampening) * g;
		g = o->nesterov ? g + o->momentum * e->a : e->a;
	}
	e->w -= o->lr * g;
}

static void adam_step(const struct far_optimizer_opts *o, struct element *e, double g, int t)
{
	e->a = o->beta1 * e->a + (1 - o->beta1) * g;
	e->b = o->beta2 * e->b + (1 - o->beta2) * g * g;
	if (e->b > e->c)
		e->c = e->b;
	double m = e->a / (1 - pow(o->beta1, t));
	double v = (o->amsgrad ? e->c : e->b) / (1 - pow(o->beta2, t));
	e->w -= o->lr * m / (sqrt(v) + o->eps);
}

static void adam(const struct far_optimizer_opts *o, struct element *e, double g, int t)
{
	adam_step(o, e, g + o->weight_decay * e->w, t);
}

static void adamw(const struct far_optimizer_opts *o, struct element *e, double g, int t)
{
	e->w -= o->lr * o->weight_decay * e->w;
	adam_step(o, e, g, t);
}

static void adagrad(const struct far_optimizer_opts *o, struct element *e, double g, int t)
{
	g += o->weight_decay * e->w;
	if (t == 1)
		e->a = o->initial;
	e->a += pow(g, 2);
	e->w -= o->lr / (1 + (t - 1) * o->lr_decay) * g / (sqrt(e->a) + o->eps);
}

static void adadelta(const struct far_optimizer_opts *o, struct element *e, double g, int t)
{
	g += o->weight_decay * e->w;
	e->a = o->rho * e->a + (1 - o->rho) * g * g;
	double delta = g * sqrt((e->b + o->eps) / (e->a + o->eps));
	e->b = o->rho * e->b + (1 - o->rho) * delta * delta;
	e->w -= o->lr * delta;
}

static void rmsprop(const struct far_optimizer_opts *o, struct element *e, double g, int t)
{
	g += o->weight_decay * e->w;
	e->a = o->alpha * e->a + (1 - o->alpha) * g * g;
	e->b = o->alpha * e->b + (1 - o->alpha) * g;
	double average = sqrt(o->centered ? e->a - e->b * e->b : e->a) + o->eps;
	e->c = o->momentum * e->c + g / average;
	e->w -= o->lr * (o->momentum > 0 ? e->c : g / average);
}

static void adamax(const struct far_optimizer_opts *o, struct element *e, double g, int t)
{
	g += o->weight_decay * e->w;
	e->a = o->beta1 * e->a + (1 - o->beta1) * g;
	e->b = fmax(o->beta2 * e->b, fabs(g) + o->eps);
	e->w -= o->lr / (1 - pow(o->beta1, t)) * e->a / e->b;
}

static void rprop(const struct far_optimizer_opts *o, struct element *e, double g, int t)
{
	if (t == 1)
		e->b = o->lr;
	double agree = e->a * g;
	if (agree > 0)
		e->b = fmin(e->b * o->eta_plus, o->step_max);
	if (agree < 0) {
		e->b = fmax(e->b * o->eta_minus, o->step_min);
		g = 0;
	}
	e->a = g;
	if (g != 0)
		e->w += g > 0 ? -e->b : e->b;
}

static void ftrl(const struct far_optimizer_opts *o, struct element *e, double g, int t)
{
	if (t == 1)
		e->b = o->initial;
	double sigma = (sqrt(e->b + g * g) - sqrt(e->b)) / o->lr;
	e->a += g - sigma * e->w;
	e->b += g * g;
	double z = e->a > o->l1 ? e->a - o->l1 : e->a < -o->l1 ? e->a + o->l1 : 0;
	e->w = -z / ((o->beta + sqrt(e->b)) / o->lr + o->l2);
}

/* ---- comparison ---- */

static double unit_of(enum far_dtype dtype)
{
	return dtype == FAR_BF16 ? 0x1p-8 : 1e-6;
}

static double round_to(enum far_dtype dtype, double x)
{
	uint16_t half;
	float f;
	double d;
	struct far_tensor from = shaped(FAR_F64, 0, NULL), to = shaped(dtype, 0, NULL), back = from;
	if (dtype == FAR_F64)
		return x;
	from.data = &x;
	back.data = &d;
	to.data = dtype == FAR_BF16 ? (void *)&half : (void *)&f;
	OK(far_op_copy(&from, &to, &err));
	OK(far_op_copy(&to, &back, &err));
	return d;
}

static void give_gradient(struct far_var *var, double *g)
{
	struct far_gradient gradient = {.values = *far_var_tensor(var)};
	gradient.values.dtype = FAR_F64;
	gradient.values.data = g;
	OK(far_grads_add(grads, var, &gradient, &err));
}

/* Each step begins with the weights of both equal: errors do not add up. */
static void compare(const struct far_optimizer_opts *opts, reference_fn *reference, enum far_dtype dtype)
{
	static struct element elements[N];
	static double g[N], got[N];
	struct far_var *w = leaf(SHAPE(dtype, N));
	struct far_optimizer *o;
	OK(far_optimizer_new(pool, opts, &w, 1, &o, &err));
	memset(elements, 0, sizeof elements);
	for (int t = 1; t <= STEPS; t++) {
		read_f64(far_var_tensor(w), got);
		for (int i = 0; i < N; i++) {
			elements[i].w = got[i];
			g[i] = i % 11 ? round_to(dtype, random_in(-1, 1) * (i % 3 ? 1 : 1e-3)) : 0;
			reference(opts, &elements[i], g[i], t);
		}
		far_grads_clear(grads);
		give_gradient(w, g);
		OK(far_optimizer_step(o, grads, &err));
		read_f64(far_var_tensor(w), got);
		for (int i = 0; i < N; i++)
			cr_assert(fabs(got[i] - elements[i].w) <= unit_of(dtype) * (0.1 + fabs(elements[i].w)),
				  "%s, %s, step %d, element %d: %.10g instead of %.10g", far_optimizer_name(opts->kind),
				  far_dtype_name(dtype), t, i, got[i], elements[i].w);
	}
	far_optimizer_free(o);
}

static void compare_all(const struct far_optimizer_opts *opts, reference_fn *reference)
{
	compare(opts, reference, FAR_F64);
	compare(opts, reference, FAR_F32);
	compare(opts, reference, FAR_BF16);
}

#define RULE(kind, reference, ...)                                                                                     \
	do {                                                                                                           \
		struct far_optimizer_opts o = far_optimizer_defaults(FAR_OPTIMIZER_##kind);                            \
		__VA_ARGS__;                                                                                           \
		compare_all(&o, reference);                                                                            \
	} while (0)

CASE(optimizer, sgd)
{
	RULE(SGD, sgd, (void)0);
	RULE(SGD, sgd, o.lr = 0.1, o.weight_decay = 0.2);
	RULE(SGD, sgd, o.lr = 0.1, o.momentum = 0.9, o.dampening = 0.3);
	RULE(SGD, sgd, o.lr = 0.1, o.momentum = 0.9, o.nesterov = true, o.weight_decay = 0.1);
}

CASE(optimizer, adam)
{
	RULE(ADAM, adam, (void)0);
	RULE(ADAM, adam, o.lr = 0.1, o.weight_decay = 0.2, o.amsgrad = true, o.beta1 = 0.5, o.beta2 = 0.6);
	RULE(ADAMW, adamw, o.lr = 0.05);
	RULE(ADAMW, adamw, o.lr = 0.05, o.weight_decay = 0.3, o.amsgrad = true, o.beta2 = 0.5);
}

CASE(optimizer, adagrad)
{
	RULE(ADAGRAD, adagrad, (void)0);
	RULE(ADAGRAD, adagrad, o.lr = 0.1, o.lr_decay = 0.5, o.weight_decay = 0.1, o.initial = 0.2);
}

CASE(optimizer, adadelta)
{
	RULE(ADADELTA, adadelta, (void)0);
	RULE(ADADELTA, adadelta, o.lr = 0.5, o.rho = 0.7, o.weight_decay = 0.1);
}

CASE(optimizer, rmsprop)
{
	RULE(RMSPROP, rmsprop, (void)0);
	RULE(RMSPROP, rmsprop, o.alpha = 0.7, o.weight_decay = 0.1, o.momentum = 0.8);
	RULE(RMSPROP, rmsprop, o.alpha = 0.7, o.centered = true, o.eps = 1e-3);
	RULE(RMSPROP, rmsprop, o.alpha = 0.7, o.centered = true, o.eps = 1e-3, o.momentum = 0.8);
}

CASE(optimizer, adamax_and_rprop)
{
	RULE(ADAMAX, adamax, (void)0);
	RULE(ADAMAX, adamax, o.lr = 0.1, o.weight_decay = 0.1, o.beta1 = 0.5, o.beta2 = 0.6);
	RULE(RPROP, rprop, (void)0);
	RULE(RPROP, rprop, o.lr = 0.1, o.step_max = 0.11, o.step_min = 0.03);
}

CASE(optimizer, ftrl)
{
	RULE(FTRL, ftrl, (void)0);
	RULE(FTRL, ftrl, o.lr = 0.5, o.l1 = 0.8, o.l2 = 0.1, o.beta = 0.5, o.initial = 0.1);
}

/* ---- sparse gradients ---- */

#define ROWS  6
#define WIDTH 700 /* more than a block */

/* Row 1 twice, rows 4 and 5 once; the others have no gradient. */
static const int64_t touched[4] = {4, 1, 5, 1};

static void give_rows(struct far_var *table, double *rows)
{
	struct far_gradient gradient = {.values = SHAPE(FAR_F64, 4, WIDTH), .index = SHAPE(FAR_I64, 4)};
	gradient.values.data = rows;
	gradient.index.data = (void *)(uintptr_t)touched;
	OK(far_grads_add(grads, table, &gradient, &err));
}

static double row_gradient(const double *rows, int row, int column)
{
	double g = 0;
	for (int k = 0; k < 4; k++)
		if (touched[k] == row)
			g += rows[k * WIDTH + column];
	return g;
}

static void compare_sparse(const struct far_optimizer_opts *opts, reference_fn *reference)
{
	static struct element elements[ROWS * WIDTH];
	static double rows[4 * WIDTH], got[ROWS * WIDTH];
	struct far_var *table = leaf(SHAPE(FAR_F32, ROWS, WIDTH));
	struct far_optimizer *o;
	OK(far_optimizer_new(pool, opts, &table, 1, &o, &err));
	memset(elements, 0, sizeof elements);
	for (int t = 1; t <= 3; t++) {
		read_f64(far_var_tensor(table), got);
		for (int i = 0; i < 4 * WIDTH; i++)
			rows[i] = round_to(FAR_F32, random_in(-1, 1));
		for (int i = 0; i < ROWS * WIDTH; i++) {
			int row = i / WIDTH;
			elements[i].w = got[i];
			if (row == 1 || row >= 4)
				reference(opts, &elements[i], row_gradient(rows, row, i % WIDTH), t);
		}
		far_grads_clear(grads);
		give_rows(table, rows);
		OK(far_optimizer_step(o, grads, &err));
		read_f64(far_var_tensor(table), got);
		for (int i = 0; i < ROWS * WIDTH; i++)
			cr_assert(fabs(got[i] - elements[i].w) <= 1e-6 * (0.1 + fabs(elements[i].w)),
				  "%s, step %d, element %d: %.10g instead of %.10g", far_optimizer_name(opts->kind), t,
				  i, got[i], elements[i].w);
	}
	far_optimizer_free(o);
}

CASE(optimizer, sparse)
{
	struct far_optimizer_opts o = far_optimizer_defaults(FAR_OPTIMIZER_SGD);
	compare_sparse(&o, sgd);
	o = far_optimizer_defaults(FAR_OPTIMIZER_ADAGRAD);
	compare_sparse(&o, adagrad);
	o = far_optimizer_defaults(FAR_OPTIMIZER_FTRL);
	o.l1 = 0.3;
	compare_sparse(&o, ftrl);
}

/* The same sums of squares for a whole row; a dense gradient is a gradient of all rows. */
static void compare_rowwise(bool sparse, double weight_decay)
{
	static double rows[4 * WIDTH], dense[ROWS * WIDTH], got[ROWS * WIDTH], before[ROWS * WIDTH];
	double sums[ROWS];
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_ROWWISE_ADAGRAD);
	struct far_var *table = leaf(SHAPE(FAR_F32, ROWS, WIDTH));
	struct far_optimizer *o;
	opts.lr = 0.1;
	opts.initial = 0.3;
	opts.weight_decay = weight_decay;
	OK(far_optimizer_new(pool, &opts, &table, 1, &o, &err));
	for (int row = 0; row < ROWS; row++)
		sums[row] = opts.initial;
	for (int t = 1; t <= 3; t++) {
		read_f64(far_var_tensor(table), before);
		for (int i = 0; i < 4 * WIDTH; i++)
			rows[i] = round_to(FAR_F32, random_in(-1, 1));
		for (int i = 0; i < ROWS * WIDTH; i++)
			dense[i] = round_to(FAR_F32, row_gradient(rows, i / WIDTH, i % WIDTH));
		far_grads_clear(grads);
		if (sparse)
			give_rows(table, rows);
		else
			give_gradient(table, dense);
		OK(far_optimizer_step(o, grads, &err));
		read_f64(far_var_tensor(table), got);
		for (int row = 0; row < ROWS; row++) {
			double squares = 0;
			bool moves = !sparse || row == 1 || row >= 4;
			for (int i = row * WIDTH; i < (row + 1) * WIDTH; i++)
				squares += pow(dense[i] + weight_decay * before[i], 2);
			sums[row] += moves ? squares / WIDTH : 0;
			for (int i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
				double step =
					opts.lr * (dense[i] + weight_decay * before[i]) / (sqrt(sums[row]) + opts.eps);
				double wanted = before[i] - (moves ? step : 0);
				cr_assert(fabs(got[i] - wanted) <= 1e-6 * (0.1 + fabs(wanted)),
					  "step %d, element %d: %.10g instead of %.10g", t, i, got[i], wanted);
			}
		}
	}
	far_optimizer_free(o);
}

CASE(optimizer, rowwise_adagrad)
{
	compare_rowwise(true, 0);
	compare_rowwise(false, 0);
	compare_rowwise(false, 0.5);
}

CASE(optimizer, sparse_gradients_are_refused)
{
	static double rows[4 * WIDTH], before[ROWS * WIDTH], got[ROWS * WIDTH], g[2] = {1, 1};
	struct far_var *params[2] = {leaf(SHAPE(FAR_F64, 2)), leaf(SHAPE(FAR_F64, ROWS, WIDTH))};
	struct far_optimizer *o;
	read_f64(far_var_tensor(params[0]), before);
	for (int kind = 0; kind < FAR_OPTIMIZER_COUNT; kind++) {
		struct far_optimizer_opts opts = far_optimizer_defaults((enum far_optimizer_kind)kind);
		bool decays = kind == FAR_OPTIMIZER_SGD || kind == FAR_OPTIMIZER_ADAGRAD;
		if (kind == FAR_OPTIMIZER_FTRL || kind == FAR_OPTIMIZER_ROWWISE_ADAGRAD)
			continue;
		opts.weight_decay = decays ? 0.1 : 0;
		OK(far_optimizer_new(pool, &opts, params, 2, &o, &err));
		far_grads_clear(grads);
		give_gradient(params[0], g);
		give_rows(params[1], rows);
		FAILS(FAR_UNSUPPORTED, "parameter 1 is sparse", far_optimizer_step(o, grads, &err));
		far_optimizer_free(o);
	}
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_SGD);
	opts.momentum = 0.5;
	OK(far_optimizer_new(pool, &opts, params, 2, &o, &err));
	FAILS(FAR_UNSUPPORTED, "SGD: the gradient", far_optimizer_step(o, grads, &err));
	far_optimizer_free(o);
	read_f64(far_var_tensor(params[0]), got);
	cr_assert(got[0] == before[0] && got[1] == before[1]);
}

/* An index that changed after the pass is refused, in ascending order or not. */
CASE(optimizer, rows_beyond_the_table)
{
	static const int64_t bad[][2] = {{1, ROWS}, {-1, 1}, {ROWS, 1}};
	double rows[2 * WIDTH] = {1};
	int64_t at[2] = {0, 1};
	struct far_var *table = leaf(SHAPE(FAR_F64, ROWS, WIDTH));
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_SGD);
	struct far_gradient g = {.values = SHAPE(FAR_F64, 2, WIDTH), .index = SHAPE(FAR_I64, 2)};
	struct far_optimizer *o;
	g.values.data = rows;
	g.index.data = at;
	OK(far_optimizer_new(pool, &opts, &table, 1, &o, &err));
	OK(far_grads_add(grads, table, &g, &err));
	OK(far_optimizer_step(o, grads, &err));
	cr_assert(far_grads_get(grads, table, &g));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		memcpy(g.index.data, bad[i], sizeof bad[i]);
		FAILS(FAR_INVALID, "not in [0, ", far_optimizer_step(o, grads, &err));
	}
	far_optimizer_free(o);
}

/* ---- parameters ---- */

/* Neither the parameter nor its count of steps moves without a gradient. */
CASE(optimizer, parameters_without_a_gradient)
{
	double g[2] = {1, -1}, a[2], b[2], first[2];
	struct far_var *params[2] = {leaf(SHAPE(FAR_F64, 2)), leaf(SHAPE(FAR_F64, 2))};
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_ADAM);
	struct far_optimizer *o;
	opts.lr = 0.1;
	opts.weight_decay = 0.1;
	OK(far_optimizer_new(pool, &opts, params, 2, &o, &err));
	read_f64(far_var_tensor(params[1]), first);
	for (int t = 0; t < 5; t++) {
		far_grads_clear(grads);
		give_gradient(params[0], g);
		OK(far_optimizer_step(o, grads, &err));
	}
	read_f64(far_var_tensor(params[1]), b);
	cr_assert(b[0] == first[0] && b[1] == first[1]);
	struct element element = {first[0], 0, 0, 0};
	give_gradient(params[1], g);
	OK(far_optimizer_step(o, grads, &err));
	adam(&opts, &element, 1, 1);
	read_f64(far_var_tensor(params[1]), b);
	read_f64(far_var_tensor(params[0]), a);
	cr_assert(fabs(b[0] - element.w) < 1e-12, "%.12g instead of %.12g", b[0], element.w);
	far_optimizer_free(o);
}

/* f32 is computed in f64 and rounded once. */
CASE(optimizer, sgd_rounds_once)
{
	double g[N], before[N], after[N];
	struct far_var *x = leaf(SHAPE(FAR_F32, N));
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_SGD);
	struct far_optimizer *o;
	opts.lr = 0.3;
	for (int i = 0; i < N; i++)
		g[i] = round_to(FAR_F32, random_in(-1, 1));
	OK(far_optimizer_new(pool, &opts, &x, 1, &o, &err));
	read_f64(far_var_tensor(x), before);
	give_gradient(x, g);
	OK(far_optimizer_step(o, grads, &err));
	read_f64(far_var_tensor(x), after);
	for (int i = 0; i < N; i++)
		cr_assert_eq(after[i], round_to(FAR_F32, before[i] - opts.lr * g[i]), "element %d", i);
	far_optimizer_free(o);
}

/* A graph that saved a parameter knows of the step. */
CASE(optimizer, steps_change_parameters)
{
	double g[2] = {1, 1};
	struct far_var *x = leaf(SHAPE(FAR_F64, 2));
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_SGD);
	struct far_optimizer *o;
	OK(far_optimizer_new(pool, &opts, &x, 1, &o, &err));
	struct far_var *root = sum_of(far_tape_mul(tape, x, x));
	give_gradient(x, g);
	OK(far_optimizer_step(o, grads, &err));
	FAILS(FAR_INVALID, "was changed", far_grads_backward(grads, &root, 1, NULL, &err));
	far_optimizer_free(o);
}

CASE(optimizer, learning_rate)
{
	double g[2] = {1, 1}, before[2], got[2];
	struct far_var *x = leaf(SHAPE(FAR_F64, 2));
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_SGD);
	struct far_optimizer *o;
	OK(far_optimizer_new(pool, &opts, &x, 1, &o, &err));
	cr_assert_eq(far_optimizer_get_lr(o), 0.01);
	OK(far_optimizer_set_lr(o, 0.25, &err));
	FAILS(FAR_INVALID, "SGD: lr is -1", far_optimizer_set_lr(o, -1, &err));
	read_f64(far_var_tensor(x), before);
	give_gradient(x, g);
	OK(far_optimizer_step(o, grads, &err));
	read_f64(far_var_tensor(x), got);
	cr_assert_eq(got[0], before[0] - 0.25);
	far_optimizer_free(o);
}

CASE(optimizer, refusals)
{
	struct far_var *x = leaf(SHAPE(FAR_F64, 2)), *constant = zeros(SHAPE(FAR_F64, 2), false);
	struct far_optimizer *o;
	struct far_optimizer_opts d = far_optimizer_defaults(FAR_OPTIMIZER_ADAM), opts;
#define REFUSED(part, ...)                                                                                             \
	do {                                                                                                           \
		opts = d;                                                                                              \
		__VA_ARGS__;                                                                                           \
		FAILS(FAR_INVALID, part, far_optimizer_new(pool, &opts, &x, 1, &o, &err));                             \
	} while (0)
	REFUSED("Adam: lr is -1", opts.lr = -1);
	REFUSED("Adam: lr is nan", opts.lr = NAN);
	REFUSED("lr is inf", opts.lr = INFINITY);
	REFUSED("beta1 is 1", opts.beta1 = 1);
	REFUSED("beta2 is -0.1", opts.beta2 = -0.1);
	REFUSED("eps is -1", opts.eps = -1);
	REFUSED("weight_decay is -1", opts.weight_decay = -1);
	REFUSED("momentum is -1", opts.momentum = -1);
	REFUSED("eta_minus is 1", opts.eta_minus = 1);
	REFUSED("step_min is 60", opts.step_min = 60);
	REFUSED("FTRL: lr is 0", opts = far_optimizer_defaults(FAR_OPTIMIZER_FTRL), opts.lr = 0);
	REFUSED("nesterov", opts = far_optimizer_defaults(FAR_OPTIMIZER_SGD), opts.nesterov = true);
	REFUSED("the kind 10 is unknown", opts.kind = FAR_OPTIMIZER_COUNT);
	REFUSED("parameter 0 is f64[2], not [rows,width]", opts.kind = FAR_OPTIMIZER_ROWWISE_ADAGRAD);
	FAILS(FAR_INVALID, "Adam: 0 parameters", far_optimizer_new(pool, &d, &x, 0, &o, &err));
	FAILS(FAR_INVALID, "parameter 1 is not a leaf that requires",
	      far_optimizer_new(pool, &d, (struct far_var *[]){x, constant}, 2, &o, &err));
	FAILS(FAR_INVALID, "parameters 0 and 1 are the same",
	      far_optimizer_new(pool, &d, (struct far_var *[]){x, x}, 2, &o, &err));
	cr_assert_str_eq(far_optimizer_name(FAR_OPTIMIZER_COUNT), "?");
}

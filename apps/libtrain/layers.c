/* SPDX-License-Identifier: BSD-3-Clause */
/** The modules of this library. Any thread. */
#include "module.h"

#include "variable.h"

#include <math.h>

/** Ends the making of a module: frees it after an error. */
static enum far_status made(struct far_module *module, enum far_status status, struct far_module **out)
{
	if (status)
		far_module_free(module);
	else
		*out = module;
	return status;
}

/* ---- linear ---- */

static struct far_var *linear_forward(struct far_module *m, struct far_tape *tape, struct far_var *x)
{
	return far_tape_linear(tape, x, module_own(m, "weight"), module_own(m, "bias"));
}

enum far_status far_module_linear(struct far_pool *pool, struct far_init *init, uint64_t in, uint64_t out, bool bias,
				  struct far_module **module, struct far_err *err)
{
	static const struct layer layer = {"linear", linear_forward, NULL};
	double bound = 1 / sqrt((double)in);
	struct far_module *m;
	TRY(module_make(pool, &layer, &m, err));
	enum far_status status = module_random(m, init, "weight", 2, (uint64_t[]){out, in}, bound, err);
	if (!status && bias)
		status = module_random(m, init, "bias", 1, &out, bound, err);
	return made(m, status, module);
}

/* ---- embedding ---- */

static struct far_var *embedding_forward(struct far_module *m, struct far_tape *tape, struct far_var *x)
{
	return far_tape_embedding(tape, module_own(m, "weight"), x, m->sparse);
}

enum far_status far_module_embedding(struct far_pool *pool, struct far_init *init, uint64_t rows, uint64_t width,
				     bool sparse, struct far_module **module, struct far_err *err)
{
	static const struct layer layer = {"embedding", embedding_forward, NULL};
	struct far_module *m;
	TRY(module_make(pool, &layer, &m, err));
	m->sparse = sparse;
	return made(m, module_random(m, init, "weight", 2, (uint64_t[]){rows, width}, 0, err), module);
}

/* ---- convolution ---- */

static struct far_var *conv2d_forward(struct far_module *m, struct far_tape *tape, struct far_var *x)
{
	return far_tape_conv2d(tape, x, module_own(m, "weight"), module_own(m, "bias"), &m->conv);
}

enum far_status far_module_conv2d(struct far_pool *pool, struct far_init *init, uint64_t channels, uint64_t out,
				  const uint64_t kernel[2], const struct far_op_conv *conv, bool bias,
				  struct far_module **module, struct far_err *err)
{
	static const struct layer layer = {"conv2d", conv2d_forward, NULL};
	uint64_t groups = conv && conv->groups ? conv->groups : 1;
	struct far_module *m;
	if (channels % groups != 0 || out % groups != 0)
		return fail(err, FAR_INVALID, "conv2d: %llu groups do not divide %llu channels and %llu outputs",
			    (unsigned long long)groups, (unsigned long long)channels, (unsigned long long)out);
	uint64_t shape[4] = {out, channels / groups, kernel[0], kernel[1]};
	double bound = 1 / sqrt((double)shape[1] * (double)shape[2] * (double)shape[3]);
	TRY(module_make(pool, &layer, &m, err));
	if (conv)
		m->conv = *conv;
	enum far_status status = module_random(m, init, "weight", 4, shape, bound, err);
	if (!status && bias)
		status = module_random(m, init, "bias", 1, &out, bound, err);
	return made(m, status, module);
}

/* ---- recurrent ---- */

static struct far_var *zero_state(const struct far_module *m, struct far_tape *tape, const struct far_tensor *x)
{
	struct far_var *zero = far_tape_constant(tape, (enum far_dtype)x->dtype, 0);
	return far_tape_expand(tape, zero, 2, (uint64_t[]){x->shape[1], m->hidden});
}

/** The cell over all steps. `c`: NULL for a GRU. */
static struct far_var *unroll(struct far_module *m, struct far_tape *tape, struct far_var *x, struct far_var **h,
			      struct far_var **c)
{
	const struct far_tensor *t = &x->value.t;
	struct far_cell cell = {module_own(m, "weight_ih_l0"), module_own(m, "weight_hh_l0"),
				module_own(m, "bias_ih_l0"), module_own(m, "bias_hh_l0")};
	uint64_t steps = t->shape[0];
	struct far_err err;
	struct far_var **results = pool_take(far_tape_pool(tape), steps * sizeof(struct far_var *));
	if (!results) {
		fail_memory(&err, far_module_kind(m), steps * sizeof *results);
		far_tape_fail(tape, &err);
		return NULL;
	}
	for (uint64_t i = 0; i < steps; i++) {
		struct far_var *now = far_tape_slice(tape, x, 0, i, i + 1, 1);
		now = far_tape_reshape(tape, now, 2, t->shape + 1);
		*h = c ? far_tape_lstm_cell(tape, now, *h, *c, &cell, c) : far_tape_gru_cell(tape, now, *h, &cell);
		results[i] = far_tape_reshape(tape, *h, 3, (uint64_t[]){1, t->shape[1], m->hidden});
	}
	struct far_var *all = far_tape_cat(tape, results, steps, 0);
	pool_give(results);
	return all;
}

static struct far_var *recurrent(struct far_module *m, struct far_tape *tape, struct far_var *x,
				 struct far_var *state[2], bool lstm)
{
	struct far_err err;
	char text[TENSOR_TEXT];
	if (!x || x->value.t.ndim != 3 || x->value.t.shape[0] == 0) {
		fail(&err, FAR_INVALID, "%s: x is %s, not [time,n,in] with a step at least", far_module_kind(m),
		     x ? tensor_text(&x->value.t, text) : "NULL");
		far_tape_fail(tape, &err);
		return NULL;
	}
	if (!state[0])
		state[0] = zero_state(m, tape, &x->value.t);
	if (lstm && !state[1])
		state[1] = zero_state(m, tape, &x->value.t);
	return unroll(m, tape, x, &state[0], lstm ? &state[1] : NULL);
}

static struct far_var *lstm_state(struct far_module *m, struct far_tape *tape, struct far_var *x,
				  struct far_var *state[2])
{
	return recurrent(m, tape, x, state, true);
}

static struct far_var *lstm_forward(struct far_module *m, struct far_tape *tape, struct far_var *x)
{
	return recurrent(m, tape, x, (struct far_var *[2]){NULL, NULL}, true);
}

static struct far_var *gru_state(struct far_module *m, struct far_tape *tape, struct far_var *x,
				 struct far_var *state[2])
{
	return recurrent(m, tape, x, state, false);
}

static struct far_var *gru_forward(struct far_module *m, struct far_tape *tape, struct far_var *x)
{
	return recurrent(m, tape, x, (struct far_var *[2]){NULL, NULL}, false);
}

static enum far_status recurrent_make(struct far_pool *pool, const struct layer *layer, uint64_t gates,
				      struct far_init *init, uint64_t in, uint64_t hidden, bool bias,
				      struct far_module **module, struct far_err *err)
{
	struct far_module *m;
	uint64_t rows;
	double bound = 1 / sqrt((double)hidden);
	if (__builtin_mul_overflow(gates, hidden, &rows))
		return fail(err, FAR_TOO_LARGE, "%s: %llu hidden units", layer->name, (unsigned long long)hidden);
	TRY(module_make(pool, layer, &m, err));
	m->hidden = hidden;
	enum far_status status = module_random(m, init, "weight_ih_l0", 2, (uint64_t[]){rows, in}, bound, err);
	if (!status)
		status = module_random(m, init, "weight_hh_l0", 2, (uint64_t[]){rows, hidden}, bound, err);
	if (!status && bias)
		status = module_random(m, init, "bias_ih_l0", 1, &rows, bound, err);
	if (!status && bias)
		status = module_random(m, init, "bias_hh_l0", 1, &rows, bound, err);
	return made(m, status, module);
}

enum far_status far_module_lstm(struct far_pool *pool, struct far_init *init, uint64_t in, uint64_t hidden, bool bias,
				struct far_module **module, struct far_err *err)
{
	static const struct layer layer = {"LSTM", lstm_forward, lstm_state};
	return recurrent_make(pool, &layer, 4, init, in, hidden, bias, module, err);
}

enum far_status far_module_gru(struct far_pool *pool, struct far_init *init, uint64_t in, uint64_t hidden, bool bias,
			       struct far_module **module, struct far_err *err)
{
	static const struct layer layer = {"GRU", gru_forward, gru_state};
	return recurrent_make(pool, &layer, 3, init, in, hidden, bias, module, err);
}

/* ---- layer norm ---- */

static struct far_var *layer_norm_forward(struct far_module *m, struct far_tape *tape, struct far_var *x)
{
	struct far_err err;
	char text[TENSOR_TEXT];
	struct far_var *weight = module_own(m, "weight");
	if (!x || x->value.t.ndim == 0 || x->value.t.shape[x->value.t.ndim - 1] != weight->value.t.shape[0]) {
		fail(&err, FAR_INVALID, "layer_norm: x is %s, not [...,%llu]",
		     x ? tensor_text(&x->value.t, text) : "NULL", (unsigned long long)weight->value.t.shape[0]);
		far_tape_fail(tape, &err);
		return NULL;
	}
	int axis = x->value.t.ndim - 1;
	struct far_var *centered = far_tape_sub(tape, x, far_tape_mean(tape, x, &axis, 1, true));
	struct far_var *variance = far_tape_mean(tape, far_tape_mul(tape, centered, centered), &axis, 1, true);
	struct far_var *eps = far_tape_constant(tape, (enum far_dtype)x->value.t.dtype, m->eps);
	struct far_var *scaled = far_tape_div(tape, centered, far_tape_sqrt(tape, far_tape_add(tape, variance, eps)));
	return far_tape_add(tape, far_tape_mul(tape, scaled, weight), module_own(m, "bias"));
}

enum far_status far_module_layer_norm(struct far_pool *pool, struct far_init *init, uint64_t width, double eps,
				      struct far_module **module, struct far_err *err)
{
	static const struct layer layer = {"layer_norm", layer_norm_forward, NULL};
	struct far_module *m;
	if (!(eps >= 0) || !isfinite(eps))
		return fail(err, FAR_INVALID, "layer_norm: eps is %g; it must be >= 0", eps);
	TRY(module_make(pool, &layer, &m, err));
	m->eps = eps;
	enum far_status status = module_filled(m, init, "weight", 1, &width, 1, err);
	if (!status)
		status = module_filled(m, init, "bias", 1, &width, 0, err);
	return made(m, status, module);
}

/* ---- dropout ---- */

/* Streams of a module: far from those of parameters, which are counted from 0. */
#define DROPOUT_STREAMS ((uint64_t)1 << 40)

static struct far_var *dropout_forward(struct far_module *m, struct far_tape *tape, struct far_var *x)
{
	if (!m->training)
		return x;
	uint64_t stream = atomic_fetch_add_explicit(&m->stream, 1, memory_order_relaxed);
	return far_tape_dropout(tape, x, m->p, m->seed, m->stream_base + stream);
}

enum far_status far_module_dropout(struct far_pool *pool, struct far_init *init, double p, struct far_module **module,
				   struct far_err *err)
{
	static const struct layer layer = {"dropout", dropout_forward, NULL};
	struct far_module *m;
	if (!(p >= 0 && p <= 1))
		return fail(err, FAR_INVALID, "dropout: the probability %g is not in [0, 1]", p);
	TRY(module_make(pool, &layer, &m, err));
	m->p = p;
	m->seed = init->seed;
	m->stream_base = ++init->stream * DROPOUT_STREAMS;
	*module = m;
	return FAR_OK;
}

/* ---- functions and sequences ---- */

static struct far_var *map_forward(struct far_module *m, struct far_tape *tape, struct far_var *x)
{
	uint64_t shape[2] = {0, 1};
	switch (m->map) {
	case FAR_MODULE_RELU:
		return far_tape_relu(tape, x);
	case FAR_MODULE_TANH:
		return far_tape_tanh(tape, x);
	case FAR_MODULE_SIGMOID:
		return far_tape_sigmoid(tape, x);
	default:
		for (unsigned k = 0; x && k < x->value.t.ndim; k++)
			if (k == 0)
				shape[0] = x->value.t.shape[0];
			else
				shape[1] *= x->value.t.shape[k];
		return far_tape_reshape(tape, x, 2, shape);
	}
}

enum far_status far_module_map(struct far_pool *pool, enum far_module_map map, struct far_module **module,
			       struct far_err *err)
{
	static const struct layer layers[] = {
		{"relu", map_forward, NULL},
		{"tanh", map_forward, NULL},
		{"sigmoid", map_forward, NULL},
		{"flatten", map_forward, NULL},
	};
	if ((unsigned)map >= sizeof layers / sizeof *layers)
		return fail(err, FAR_INVALID, "module: the map %d is unknown", (int)map);
	TRY(module_make(pool, &layers[map], module, err));
	(*module)->map = map;
	return FAR_OK;
}

static struct far_var *sequential_forward(struct far_module *m, struct far_tape *tape, struct far_var *x)
{
	for (const struct part *part = m->parts; part; part = part->next)
		if (part->module)
			x = far_module_forward(part->module, tape, x);
	return x;
}

enum far_status far_module_sequential(struct far_pool *pool, struct far_module *const *modules, size_t n,
				      struct far_module **module, struct far_err *err)
{
	static const struct layer layer = {"sequential", sequential_forward, NULL};
	struct far_module *m;
	char name[24];
	enum far_status status = FAR_OK;
	size_t added = 0;
	TRY(module_make(pool, &layer, &m, err));
	for (; added < n && !status; added += !status) {
		snprintf(name, sizeof name, "%zu", added);
		status = far_module_add(m, name, modules[added], err);
	}
	if (!status) {
		*module = m;
		return FAR_OK;
	}
	/* The modules stay the caller's. */
	for (struct part *part = m->parts; part; part = part->next) {
		part->module->owned = false;
		part->module = NULL;
	}
	far_module_free(m);
	return status;
}

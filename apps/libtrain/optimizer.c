/* SPDX-License-Identifier: BSD-3-Clause */
/** Optimizers: parameters, their state, and steps over gradients. Any thread; one step at a time. */
#include "grads.h"
#include "rows.h"
#include "rules.h"

#include <math.h>
#include <pthread.h>

#define BLOCK 512 /* elements that a rule sees at once */

struct parameter {
	struct far_var *var;
	struct far_tensor state[RULE_STATES_MAX]; /* the parameter's shape; row-wise: [rows] */
	uint64_t steps;
};

struct far_optimizer {
	struct far_pool *pool;
	pthread_mutex_t lock; /* of opts.lr, states, steps, and the writes to parameters */
	struct far_optimizer_opts opts;
	struct rule rule;
	size_t n;
	struct parameter params[];
};

/* ---- making ---- */

static enum far_status check_params(const struct far_optimizer_opts *opts, struct far_var *const *params, size_t n,
				    struct far_err *err)
{
	char text[TENSOR_TEXT];
	const char *name = far_optimizer_name(opts->kind);
	if (n == 0 || n > UINT32_MAX)
		return fail(err, FAR_INVALID, "%s: %zu parameters", name, n);
	for (size_t i = 0; i < n; i++) {
		if (!params[i] || !params[i]->requires_grad || params[i]->node)
			return fail(err, FAR_INVALID, "%s: parameter %zu is not a leaf that requires a gradient", name,
				    i);
		const struct far_tensor *t = &params[i]->value.t;
		if (opts->kind == FAR_OPTIMIZER_ROWWISE_ADAGRAD && t->ndim != 2)
			return fail(err, FAR_INVALID, "%s: parameter %zu is %s, not [rows,width]", name, i,
				    tensor_text(t, text));
		if (!tensor_is_dense(t))
			return fail(err, FAR_INVALID, "%s: parameter %zu %s is a view; it must be dense", name, i,
				    tensor_text(t, text));
	}
	return FAR_OK;
}

static enum far_status add_state(struct far_optimizer *o, struct parameter *param, unsigned k, struct far_err *err)
{
	const struct far_tensor *w = &param->var->value.t;
	enum far_dtype dtype = w->dtype == FAR_F64 ? FAR_F64 : FAR_F32;
	struct far_tensor state = tensor_dense(dtype, NULL, o->rule.apply ? w->ndim : 1, w->shape);
	state.data = pool_take(o->pool, far_tensor_bytes(&state));
	if (!state.data)
		return fail_memory(err, far_optimizer_name(o->opts.kind), far_tensor_bytes(&state));
	far_op_fill(rule_initial(&o->opts, k), &state, NULL);
	param->state[k] = state;
	return FAR_OK;
}

/** A parameter must be there once: two threads of a pass need not know, but the sum of two steps would be wrong. */
static enum far_status check_unique(struct far_optimizer *o, struct far_err *err)
{
	for (size_t i = 0; i < o->n; i++)
		for (size_t k = 0; k < i; k++)
			if (o->params[i].var == o->params[k].var)
				return fail(err, FAR_INVALID, "%s: parameters %zu and %zu are the same",
					    far_optimizer_name(o->opts.kind), k, i);
	return FAR_OK;
}

enum far_status far_optimizer_new(struct far_pool *pool, const struct far_optimizer_opts *opts,
				  struct far_var *const *params, size_t n, struct far_optimizer **out,
				  struct far_err *err)
{
	TRY(rule_check(opts, err));
	TRY(check_params(opts, params, n, err));
	size_t bytes = sizeof(struct far_optimizer) + n * sizeof(struct parameter);
	struct far_optimizer *o = pool_zero(pool, bytes);
	if (!o)
		return fail_memory(err, far_optimizer_name(opts->kind), bytes);
	o->pool = pool;
	pthread_mutex_init(&o->lock, NULL);
	o->opts = *opts;
	o->rule = rule_of(opts);
	o->n = n;
	for (size_t i = 0; i < n; i++)
		o->params[i].var = far_var_ref(params[i]);
	enum far_status status = check_unique(o, err);
	for (size_t i = 0; i < n && !status; i++)
		for (unsigned k = 0; k < o->rule.states && !status; k++)
			status = add_state(o, &o->params[i], k, err);
	if (status) {
		far_optimizer_free(o);
		return status;
	}
	*out = o;
	return FAR_OK;
}

void far_optimizer_free(struct far_optimizer *o)
{
	if (!o)
		return;
	for (size_t i = 0; i < o->n; i++) {
		for (unsigned k = 0; k < RULE_STATES_MAX; k++)
			pool_give(o->params[i].state[k].data);
		far_var_free(o->params[i].var);
	}
	pthread_mutex_destroy(&o->lock);
	pool_give(o);
}

/* ---- steps ---- */

/** Elements [at, at + n) of a dense tensor. */
static struct far_tensor part(const struct far_tensor *t, uint64_t at, size_t n)
{
	uint64_t shape = n;
	char *data = t->data;
	return tensor_dense((enum far_dtype)t->dtype, data + at * far_dtype_size((enum far_dtype)t->dtype), 1, &shape);
}

static void load(const struct far_tensor *t, uint64_t at, size_t n, double *block)
{
	uint64_t shape = n;
	if (t->dtype == FAR_F32) {
		const float *elements = (const float *)t->data + at;
		for (size_t i = 0; i < n; i++)
			block[i] = elements[i];
		return;
	}
	struct far_tensor from = part(t, at, n);
	struct far_tensor to = tensor_dense(FAR_F64, block, 1, &shape);
	far_op_copy(&from, &to, NULL);
}

static void save(const struct far_tensor *t, uint64_t at, size_t n, double *block)
{
	uint64_t shape = n;
	if (t->dtype == FAR_F32) {
		float *elements = (float *)t->data + at;
		for (size_t i = 0; i < n; i++)
			elements[i] = (float)block[i];
		return;
	}
	struct far_tensor from = tensor_dense(FAR_F64, block, 1, &shape);
	struct far_tensor to = part(t, at, n);
	far_op_copy(&from, &to, NULL);
}

/** f32 by SGD without momentum and decay: to the bit what its rule does, in one pass. */
static void update_plain(float *restrict w, const float *restrict g, uint64_t n, double lr)
{
	for (uint64_t i = 0; i < n; i++)
		w[i] = (float)((double)w[i] - lr * (double)g[i]);
}

static bool is_plain(const struct far_optimizer_opts *opts, const struct far_tensor *w, const struct far_tensor *g)
{
	return opts->kind == FAR_OPTIMIZER_SGD && opts->momentum <= 0 && opts->weight_decay <= 0 &&
	       w->dtype == FAR_F32 && g->dtype == FAR_F32;
}

/** Elements [at, at + n) of the parameter with those of the gradient from `from` on. */
static void update(struct far_optimizer *o, struct parameter *param, const struct step *step, uint64_t at, uint64_t n,
		   const struct far_tensor *gradient, uint64_t from)
{
	double w[BLOCK], g[BLOCK], states[RULE_STATES_MAX][BLOCK];
	double *const state[RULE_STATES_MAX] = {states[0], states[1], states[2]};
	const struct far_tensor *value = &param->var->value.t;
	if (is_plain(&o->opts, value, gradient)) {
		update_plain((float *)value->data + at, (const float *)gradient->data + from, n, o->opts.lr);
		return;
	}
	for (uint64_t done = 0; done < n; done += BLOCK) {
		size_t length = n - done < BLOCK ? (size_t)(n - done) : BLOCK;
		load(&param->var->value.t, at + done, length, w);
		load(gradient, from + done, length, g);
		for (unsigned k = 0; k < o->rule.states; k++)
			load(&param->state[k], at + done, length, state[k]);
		o->rule.apply(step, w, g, state, length);
		save(&param->var->value.t, at + done, length, w);
		for (unsigned k = 0; k < o->rule.states; k++)
			save(&param->state[k], at + done, length, state[k]);
	}
}

/** A row of row-wise Adagrad. */
static void update_row(struct far_optimizer *o, struct parameter *param, uint64_t row, uint64_t width,
		       const struct far_tensor *gradient, uint64_t from)
{
	const struct far_optimizer_opts *opts = &o->opts;
	double w[BLOCK], g[BLOCK], squares = 0, sum;
	for (uint64_t done = 0; done < width; done += BLOCK) {
		size_t length = width - done < BLOCK ? (size_t)(width - done) : BLOCK;
		load(&param->var->value.t, row * width + done, length, w);
		load(gradient, from * width + done, length, g);
		for (size_t i = 0; i < length; i++) {
			double d = g[i] + opts->weight_decay * w[i];
			squares += d * d;
		}
	}
	load(&param->state[0], row, 1, &sum);
	sum += width ? squares / (double)width : 0;
	save(&param->state[0], row, 1, &sum);
	double factor = opts->lr / (sqrt(sum) + opts->eps);
	for (uint64_t done = 0; done < width; done += BLOCK) {
		size_t length = width - done < BLOCK ? (size_t)(width - done) : BLOCK;
		load(&param->var->value.t, row * width + done, length, w);
		load(gradient, from * width + done, length, g);
		for (size_t i = 0; i < length; i++)
			w[i] -= factor * (g[i] + opts->weight_decay * w[i]);
		save(&param->var->value.t, row * width + done, length, w);
	}
}

static void step_dense(struct far_optimizer *o, struct parameter *param, const struct step *step,
		       const struct far_tensor *gradient)
{
	const struct far_tensor *w = &param->var->value.t;
	if (o->rule.apply) {
		update(o, param, step, 0, far_tensor_count(w), gradient, 0);
		return;
	}
	for (uint64_t row = 0; row < w->shape[0]; row++)
		update_row(o, param, row, w->shape[1], gradient, row);
}

#define ROWS_AHEAD  8 /* of a table that is larger than the cache, and whose pages the processor has to look up */
#define LINES_AHEAD 8 /* of each; it finds further ones by itself */

static void prefetch_row(const struct far_tensor *w, uint64_t row)
{
	size_t bytes = w->shape[1] * far_dtype_size((enum far_dtype)w->dtype);
	for (size_t at = 0; at < bytes && at < 64 * LINES_AHEAD; at += 64)
		__builtin_prefetch((const char *)w->data + row * bytes + at, 1);
}

/** Updates rows, each index once. */
static void update_rows(struct far_optimizer *o, struct parameter *param, const struct step *step,
			const struct far_tensor *rows, const struct far_tensor *index)
{
	const int64_t *at = index->data;
	uint64_t width = param->var->value.t.shape[1];
	for (uint64_t i = 0; i < index->shape[0]; i++) {
		if (i + ROWS_AHEAD < index->shape[0])
			prefetch_row(&param->var->value.t, (uint64_t)at[i + ROWS_AHEAD]);
		if (o->rule.apply)
			update(o, param, step, (uint64_t)at[i] * width, width, rows, i * width);
		else
			update_row(o, param, (uint64_t)at[i], width, rows, i);
	}
}

/** Indices in [0, rows) in ascending order, each once. */
static bool is_ascending(const struct far_tensor *index, uint64_t rows)
{
	const int64_t *at = index->data;
	uint64_t n = index->shape[0];
	for (uint64_t i = 1; i < n; i++)
		if (at[i] <= at[i - 1])
			return false;
	return n == 0 || (at[0] >= 0 && (uint64_t)at[n - 1] < rows);
}

static enum far_status step_sparse(struct far_optimizer *o, struct parameter *param, const struct step *step,
				   const struct far_gradient *gradient, struct far_err *err)
{
	struct gradient sum;
	uint64_t rows = param->var->value.t.shape[0];
	if (is_ascending(&gradient->index, rows)) { /* nothing is to be summed */
		update_rows(o, param, step, &gradient->values, &gradient->index);
		return FAR_OK;
	}
	TRY(rows_sum(o->pool, &gradient->index, &gradient->values, rows, &sum, err));
	update_rows(o, param, step, &sum.values.t, &sum.index.t);
	gradient_drop(&sum);
	return FAR_OK;
}

static enum far_status step_param(struct far_optimizer *o, struct parameter *param, const struct far_gradient *gradient,
				  struct far_err *err)
{
	double t = (double)(param->steps + 1);
	struct step step = {&o->opts, param->steps + 1, 1 - pow(o->opts.beta1, t), 1 - pow(o->opts.beta2, t)};
	if (gradient->index.dtype == FAR_DTYPE_NONE)
		step_dense(o, param, &step, &gradient->values);
	else
		TRY(step_sparse(o, param, &step, gradient, err));
	param->steps++;
	atomic_fetch_add_explicit(&param->var->value.store->version, 1, memory_order_relaxed);
	return FAR_OK;
}

static enum far_status step_all(struct far_optimizer *o, struct far_grads *grads, struct far_err *err)
{
	struct far_gradient gradient;
	for (size_t i = 0; i < o->n && !o->rule.sparse; i++)
		if (far_grads_get(grads, o->params[i].var, &gradient) && gradient.index.dtype != FAR_DTYPE_NONE)
			return fail(err, FAR_UNSUPPORTED,
				    "%s%s: the gradient of parameter %zu is sparse: use SGD without momentum, Adagrad, "
				    "row-wise "
				    "Adagrad, all without weight decay, or FTRL; or a dense embedding",
				    far_optimizer_name(o->opts.kind),
				    o->opts.weight_decay > 0 ? " with weight decay" : "", i);
	for (size_t i = 0; i < o->n; i++)
		if (far_grads_get(grads, o->params[i].var, &gradient))
			TRY(step_param(o, &o->params[i], &gradient, err));
	return FAR_OK;
}

enum far_status far_optimizer_step(struct far_optimizer *o, struct far_grads *grads, struct far_err *err)
{
	pthread_mutex_lock(&o->lock);
	enum far_status status = step_all(o, grads, err);
	pthread_mutex_unlock(&o->lock);
	return status;
}

#define SHORT_ELEMENTS 8192 /* of all gradients: some 0.1 ms of the slowest rule */

static bool is_short(const struct far_optimizer *o, struct far_grads *grads)
{
	struct far_gradient gradient;
	uint64_t elements = 0;
	for (size_t i = 0; i < o->n; i++)
		if (far_grads_get(grads, o->params[i].var, &gradient))
			elements += far_tensor_count(&gradient.values);
	return elements <= SHORT_ELEMENTS;
}

bool optimizer_step_short(struct far_optimizer *o, struct far_grads *grads, enum far_status *status,
			  struct far_err *err)
{
	if (!is_short(o, grads) || pthread_mutex_trylock(&o->lock))
		return false;
	*status = step_all(o, grads, err);
	pthread_mutex_unlock(&o->lock);
	return true;
}

enum far_status far_optimizer_set_lr(struct far_optimizer *o, double lr, struct far_err *err)
{
	pthread_mutex_lock(&o->lock);
	struct far_optimizer_opts opts = o->opts;
	opts.lr = lr;
	enum far_status status = rule_check(&opts, err);
	if (!status)
		o->opts.lr = lr;
	pthread_mutex_unlock(&o->lock);
	return status;
}

double far_optimizer_get_lr(struct far_optimizer *o)
{
	pthread_mutex_lock(&o->lock);
	double lr = o->opts.lr;
	pthread_mutex_unlock(&o->lock);
	return lr;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Runs registered functions at the rows of a request, and binds the user's optimizer to a table. The thread that polls
 * the shard. */
#include "psv_functions.h"
#include "psv_job.h"

#include "pst_fail.h"
#include <stdlib.h>
#include <string.h>

static enum far_status lacks(const struct psv_shard *s, const char *what, const char *name, const char *call,
			     struct far_err *err)
{
	struct far_worker_info self;
	far_worker_self(s->server->agent, &self);
	return pst_fail(err, FAR_NO_FUNCTION, 0, "worker \"%s\" has no %s \"%s\": register it there with %s()",
			self.name, what, name, call);
}

/* ---- Functions ---- */

struct run {
	const struct psv_function *function;
	struct far_ps_fn_args args;
	enum far_ps_reduce reduce;
	unsigned width;
	double *made; /* values of the reply */
	double *one;  /* [width]; of a reduction: those of the present key */
};

static enum far_status run_one(void *ctx, uint32_t i, uint64_t key, bool made, float *row, float *state)
{
	struct run *r = ctx;
	struct far_ps_fn_args *a = &r->args;
	a->key = key;
	a->made = made;
	a->row = row;
	a->state = state;
	a->values = r->reduce == FAR_PS_EACH ? r->made + (size_t)i * r->width : r->one;
	memset(a->values, 0, r->width * sizeof *a->values);
	enum far_status status = r->function->fn.run(a, r->function->fn.user);
	return (unsigned)status < PST_FAILED - 1u ? status : FAR_REMOTE;
}

static void end_one(void *ctx, uint32_t i, enum far_status status)
{
	struct run *r = ctx;
	(void)i;
	if (status)
		memset(r->args.values, 0, r->width * sizeof *r->args.values);
	else if (r->reduce != FAR_PS_EACH)
		psv_reduce(r->reduce, r->width, r->made, r->one);
}

/* Values of a call in which no function has run. */
static enum far_status begin(struct psv_job *j, struct far_err *err)
{
	size_t n = psv_call_values(j->q->n, j->q->worker, j->q->wire);
	j->made = malloc((n + j->q->worker + 1) * sizeof(double));
	if (!j->made)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for the numbers of function \"%s\"", j->name);
	j->made_len = n * sizeof(double);
	psv_reduce_begin((enum far_ps_reduce)j->q->wire, n, (double *)(void *)j->made);
	return FAR_OK;
}

static enum far_status check(const struct psv_shard *s, const struct psv_job *j, const struct psv_function *f,
			     struct far_err *err)
{
	bool reads = j->q->kind == PSV_CALL_READ;
	if (!f)
		return lacks(s, "function", j->name, "far_ps_fn_register", err);
	if (f->fn.width != j->q->worker)
		return pst_fail(err, FAR_INVALID, 0, "function \"%s\" returns %u numbers for a key; width is %u",
				j->name, f->fn.width, j->q->worker);
	if (f->fn.reads != reads)
		return pst_fail(err, FAR_INVALID, 0, "function \"%s\" %s: call it %s opts.read", j->name,
				reads ? "changes rows" : "reads", reads ? "without" : "with");
	return FAR_OK;
}

static enum far_status run(struct psv_shard *s, struct psv_job *j, const struct psv_function *f, struct far_err *err)
{
	const struct psv_request *q = j->q;
	bool reads = q->kind == PSV_CALL_READ, dense = j->t->schema.full == PSV_DENSE;
	enum far_status status = begin(j, err);
	if (status)
		return status;
	struct run r = {.function = f,
			.args = {.schema = &j->t->of_user,
				 .state_floats = pst_table_state(j->t->rows),
				 .arg = j->arg,
				 .arg_len = q->bags},
			.reduce = (enum far_ps_reduce)q->wire,
			.width = q->worker,
			.made = (double *)(void *)j->made,
			.one = (double *)(void *)(j->made + j->made_len)};
	struct pst_call how = {.run = run_one,
			       .ended = end_one,
			       .ctx = &r,
			       .make = !reads && (dense || (q->flags & PSV_MAKE)),
			       .initial = dense,
			       .changes = !reads,
			       .now_ms = j->now_ms};
	*(reads ? &j->t->keys_pulled : &j->t->keys_pushed) += q->n;
	psv_hot_use(&j->t->hot, j->keys, q->n);
	return pst_call(j->t->rows, j->keys, q->n, &how, s->status, err);
}

enum far_status psv_run(struct psv_shard *s, struct psv_job *j, struct far_err *err)
{
	struct psv_function *f = psv_function_get(j->name);
	enum far_status status = check(s, j, f, err);
	if (!status)
		status = run(s, j, f, err);
	if (f)
		psv_function_put(f);
	return status;
}

enum far_status psv_run_again(struct psv_shard *s, struct psv_job *j, struct far_err *err)
{
	memset(s->status, FAR_PS_APPLIED, j->q->n);
	return begin(j, err);
}

/* ---- Optimizers ---- */

static void apply(void *ctx, float *row, float *state, const float *grad, unsigned dim, float rate)
{
	const struct psv_user_rule *u = ctx;
	const struct far_ps_rule_fn *f = &u->function->rule;
	f->apply(&u->rule, row, state, grad, dim, rate, f->user);
}

static enum far_status check_state(const struct psv_function *f, const struct far_ps_rule *rule, unsigned dim,
				   struct far_err *err)
{
	uint64_t state = psv_rule_state(f, dim);
	if (state == rule->state)
		return FAR_OK;
	return pst_fail(err, FAR_INVALID, 0, "rule \"%s\" keeps %llu floats for a row of %u; rule.state is %u",
			rule->name, (unsigned long long)state, dim, rule->state);
}

enum far_status psv_rule_bind(const struct psv_shard *s, struct psv_table *t, const struct far_ps_schema *schema,
			      struct pst_rule *rule, struct far_err *err)
{
	t->of_user = *schema;
	if (schema->rule.kind != FAR_PS_USER)
		return FAR_OK;
	struct psv_function *f = psv_rule_get(schema->rule.name);
	if (!f)
		return lacks(s, "rule", schema->rule.name, "far_ps_rule_register", err);
	enum far_status status = check_state(f, &schema->rule, schema->dim, err);
	psv_function_put(f);
	t->user = (struct psv_user_rule){f, schema->rule};
	rule->user = apply;
	rule->user_ctx = &t->user;
	return status;
}

enum far_status psv_rule_hold(const struct psv_shard *s, const struct psv_table *t, struct far_err *err)
{
	if (!t->user.function)
		return FAR_OK;
	if (!psv_function_hold(t->user.function))
		return lacks(s, "rule", t->user.rule.name, "far_ps_rule_register", err);
	enum far_status status = check_state(t->user.function, &t->user.rule, t->schema.dim, err);
	if (status)
		psv_function_put(t->user.function);
	return status;
}

void psv_rule_release(const struct psv_table *t)
{
	if (t->user.function)
		psv_function_put(t->user.function);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Requests of a backward pass from other workers. Fibers; what is not light computes on a thread for blocking
 * handlers. */
#include "rows.h"
#include "spread.h"

/** For calls of a handler: 0 is no time, not the default. */
static uint64_t time_left(const struct far_req *req)
{
	uint64_t left = far_req_time_left_ns(req);
	return left ? left : 1;
}

/** The context of a request, and its task. A status: the request is answered. */
static enum far_status receive(struct far_train *train, struct far_req *req, const struct far_val *args,
			       struct far_context **context, struct task **task)
{
	struct far_deferred *request;
	*context = context_here(train, (uint64_t)args[0].u.i);
	if (!*context)
		return far_fail(req, FAR_INVALID, 0, "context %llu is not here", (unsigned long long)args[0].u.i);
	enum far_status status = far_defer(req, &request);
	if (!status && !(*task = task_new(train->pool, train_agent(train, req), request, NULL)))
		far_deferred_fail(request, FAR_RESOURCE, 0, "backward: no memory");
	if (status || !*task) {
		far_context_free(*context);
		*context = NULL;
	}
	return status;
}

static struct far_var *sent(struct far_context *context, uint64_t id, struct far_err *err)
{
	struct far_var *var = id > 0 && id <= context->sent_n ? context->sent[id - 1]->var : NULL;
	if (!var || !var->requires_grad) {
		fail(err, FAR_INVALID, "backward: variable %llu of context %llu was not sent from here",
		     (unsigned long long)id, (unsigned long long)context->id);
		return NULL;
	}
	return var;
}

enum far_status spread_expect(struct spread *s, const struct far_val *args, struct far_err *err)
{
	const struct far_tensor *ids = far_val_tensor(&args[3]);
	if (ids->dtype != FAR_U64 || ids->ndim != 1)
		return fail(err, FAR_INVALID, "backward: numbers of variables are u64");
	for (uint64_t i = 0; i < ids->shape[0]; i++) {
		struct far_var *var = sent(s->context, ((const uint64_t *)ids->data)[i], err);
		if (!var)
			return FAR_INVALID;
		TRY(pass_expect(&s->pass, var, err));
	}
	return spread_follow(s, err);
}

static enum far_status check_rows(const struct far_tensor *index, uint64_t rows, struct far_err *err)
{
	const int64_t *at = index->data;
	for (uint64_t i = 0; i < index->shape[0]; i++)
		if (at[i] < 0 || (uint64_t)at[i] >= rows)
			return fail(err, FAR_INVALID, "backward: row %lld is not in [0, %llu)", (long long)at[i],
				    (unsigned long long)rows);
	return FAR_OK;
}

/** Does a received gradient fit the variable. */
static enum far_status check_gradient(const struct far_tensor *of, const struct far_tensor *values,
				      const struct far_tensor *index, struct far_err *err)
{
	char text[TENSOR_TEXT], wanted[TENSOR_TEXT];
	bool fits = values->dtype == of->dtype;
	if (!index)
		fits &= tensor_same_shape(values, of);
	else
		fits &= of->ndim == 2 && values->ndim == 2 && index->ndim == 1 && index->dtype == FAR_I64 &&
			values->shape[0] == index->shape[0] && values->shape[1] == of->shape[1];
	if (!fits)
		return fail(err, FAR_INVALID, "backward: a gradient %s does not fit the variable %s",
			    tensor_text(values, text), tensor_text(of, wanted));
	return index ? check_rows(index, of->shape[0], err) : FAR_OK;
}

static bool copy(struct far_pool *pool, const struct far_tensor *t, struct held *out)
{
	return held_new(out, pool, (enum far_dtype)t->dtype, t->ndim, t->shape) &&
	       (far_tensor_count(t) == 0 || far_op_copy(t, &out->t, NULL) == FAR_OK);
}

/** Delivers a gradient: number, values, index. */
static enum far_status deliver(struct spread *s, const struct far_val *id, const struct far_val *values,
			       const struct far_val *index, struct far_err *err)
{
	struct gradient g = {0};
	struct far_var *var = id->type == FAR_TYPE_INT ? sent(s->context, (uint64_t)id->u.i, err) : NULL;
	if (!var)
		return id->type == FAR_TYPE_INT ? FAR_INVALID : fail(err, FAR_INVALID, "backward: no number");
	const struct far_tensor *rows = index->type == FAR_TYPE_TENSOR ? far_val_tensor(index) : NULL;
	enum far_status status = FAR_OK;
	if (values->type == FAR_TYPE_TENSOR) {
		const struct far_tensor *t = far_val_tensor(values);
		TRY(check_gradient(&var->value.t, t, rows, err));
		g.set = copy(s->pass.pool, t, &g.values) && (!rows || copy(s->pass.pool, rows, &g.index));
		if (!g.set)
			status = fail_memory(err, "gradient", far_tensor_bytes(t));
		else if (rows && var->node)
			status = rows_to_dense(s->pass.pool, "backward", &g, &var->value.t, err);
	}
	if (!status)
		status = pass_deliver(&s->pass, var, &g, err);
	gradient_drop(&g);
	return status;
}

enum far_status spread_deliver(struct spread *s, const struct far_val *args, struct far_err *err)
{
	const struct far_val *list = &args[2];
	if (far_len(list) % 3)
		return fail(err, FAR_INVALID, "backward: gradients are number, values, index");
	for (size_t i = 0; i < far_len(list); i += 3)
		TRY(deliver(s, far_list_get(list, i), far_list_get(list, i + 1), far_list_get(list, i + 2), err));
	return FAR_OK;
}

static enum far_status deliver_on_fiber(struct spread *s, const struct far_val *args, struct far_err *err)
{
	TRY(spread_deliver(s, args, err));
	s->waits = s->pass.ready_n > 0 && !pass_is_light(&s->pass);
	return s->waits ? FAR_OK : pass_run(&s->pass, err);
}

static enum far_status deliver_and_run(struct spread *s, const struct far_val *args, struct far_err *err)
{
	TRY(spread_deliver(s, args, err));
	return pass_run(&s->pass, err);
}

static enum far_status run_all(struct spread *s, const struct far_val *args, struct far_err *err)
{
	(void)args;
	return pass_run(&s->pass, err);
}

/** Locks. A fiber does not block its shard while another thread computes. */
static enum far_status lock(struct far_context *context, struct far_err *err)
{
	while (pthread_mutex_trylock(&context->lock))
		TRY(task_nap(err));
	return FAR_OK;
}

/** Serves a request for the pass args[1] of the context args[0] with a step of it. `flags`: of a pass that begins with
 * this request if it has not begun; NULL: it has ended then, with which run_all() is content. */
static enum far_status serve(struct far_train *train, struct far_req *req, const struct far_val *args,
			     const struct far_val *flags,
			     enum far_status (*step)(struct spread *s, const struct far_val *args, struct far_err *err))
{
	struct far_context *context;
	struct task *task = NULL;
	struct far_err err = {0};
	uint64_t left = time_left(req), id = (uint64_t)args[1].u.i;
	enum far_status status = receive(train, req, args, &context, &task);
	if (!task)
		return status;
	if ((status = lock(context, &err))) {
		task_done(task, status, &err);
		far_context_free(context);
		return FAR_OK;
	}
	struct spread *s = spread_find(context, id);
	if (!s && flags)
		s = spread_new(context, id, flags->u.i);
	if (s) {
		spread_step_done(s, task, left, step(s, args, &err), &err);
	} else {
		pthread_mutex_unlock(&context->lock);
		if (step != run_all)
			status = flags ? fail_memory(&err, "backward", sizeof *s)
				       : fail(&err, FAR_INVALID, "backward: the pass has ended");
		task_done(task, status, &err);
	}
	far_context_free(context);
	return FAR_OK;
}

enum far_status pass_expect_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return serve(user, req, args, &args[2], spread_expect);
}

enum far_status pass_gradient_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return serve(user, req, args, NULL, deliver_on_fiber);
}

enum far_status pass_large_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return serve(user, req, args, NULL, deliver_and_run);
}

enum far_status pass_run_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return serve(user, req, args, NULL, run_all);
}

enum far_status pass_abort_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_train *train = user;
	struct far_context *context = context_here(train, (uint64_t)args[0].u.i);
	struct far_err err = {0};
	enum far_status status = context ? lock(context, &err) : FAR_OK;
	(void)n;
	if (context && !status) {
		struct spread *s = spread_find(context, (uint64_t)args[1].u.i);
		if (s && !s->root)
			spread_abort(s, train_agent(train, req));
		else
			pthread_mutex_unlock(&context->lock);
	}
	far_context_free(context);
	return status ? far_fail(req, status, err.code, "%s", err.text) : far_return_none(req);
}

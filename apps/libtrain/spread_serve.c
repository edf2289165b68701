/* SPDX-License-Identifier: BSD-3-Clause */
/** Requests of a backward pass from other workers. Fibers; what is not light computes on a thread for blocking
 * handlers. */
#include "compress.h"
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

enum far_status spread_expect(struct spread *s, const struct far_val *args, int32_t from, struct far_err *err)
{
	const struct far_tensor *ids = far_val_tensor(&args[3]);
	if (s->pass.started)
		return fail(err, FAR_INVALID, "backward: the pass has begun its second part");
	if (ids->dtype != FAR_U64 || ids->ndim != 1)
		return fail(err, FAR_INVALID, "backward: numbers of variables are u64");
	for (uint64_t i = 0; i < ids->shape[0]; i++) {
		struct far_var *var = sent(s->context, ((const uint64_t *)ids->data)[i], err);
		if (!var)
			return FAR_INVALID;
		TRY(pass_expect(&s->pass, var, err));
	}
	return spread_complete(s, from, args[2].u.i, err);
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
enum far_status check_gradient(const struct far_tensor *of, const struct far_tensor *values,
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

#define KEPT_MIN 4096 /* bytes that stay in the memory of their request; fewer are copied for less */

/** Keeps a tensor of the request in its memory. */
static enum far_status keep(struct spread *s, const struct far_req *req, const struct far_tensor *t, struct held *out,
			    struct far_err *err)
{
	struct far_val v = far_tensor_val(t), kept;
	TRY(far_req_keep(req, &v, &kept, err));
	bool copied = kept.u.t.data != t->data;
	atomic_fetch_add_explicit(copied ? &s->context->bytes_copied : &s->context->bytes_kept, far_tensor_bytes(t),
				  memory_order_relaxed);
	if (held_take(out, s->pass.pool, &kept))
		return FAR_OK;
	far_val_fini(&kept);
	return fail_memory(err, "gradient", sizeof kept);
}

/** Keeps a tensor of the answer in its memory. */
static enum far_status keep_answered(struct spread *s, struct answered *answer, const struct far_tensor *t,
				     struct held *out, struct far_err *err)
{
	if (!held_adopt(out, s->pass.pool, t, answered_unref, answer))
		return fail_memory(err, "gradient", sizeof *out);
	atomic_fetch_add_explicit(&answer->refs, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&s->context->bytes_kept, far_tensor_bytes(t), memory_order_relaxed);
	return FAR_OK;
}

/** A tensor that stays after the request or the answer. */
static enum far_status own(struct spread *s, const struct delivery *d, const struct far_tensor *t, struct held *out,
			   struct far_err *err)
{
	size_t bytes = far_tensor_bytes(t);
	if (bytes >= KEPT_MIN)
		return d->answer ? keep_answered(s, d->answer, t, out, err) : keep(s, d->req, t, out, err);
	if (!held_new(out, s->pass.pool, (enum far_dtype)t->dtype, t->ndim, t->shape))
		return fail_memory(err, "gradient", bytes);
	atomic_fetch_add_explicit(&s->context->bytes_copied, bytes, memory_order_relaxed);
	return bytes == 0 ? FAR_OK : far_op_copy(t, &out->t, err);
}

/* What a received gradient comes as. */
struct received {
	const struct far_tensor *of;     /* of the variable */
	const struct far_tensor *values; /* NULL: zero */
	const struct far_tensor *index;  /* NULL: dense */
};

static enum far_status take(struct spread *s, const struct received *r, const struct delivery *d, struct gradient *g,
			    struct far_err *err)
{
	if (d->packed && is_compressed(r->of, r->values, r->index))
		return decompress(s->pass.pool, r->of, r->values, r->index, g, err);
	TRY(check_gradient(r->of, r->values, r->index, err));
	if (d->loan && far_tensor_bytes(r->values) < KEPT_MIN)
		held_set(&g->values, r->values, d->loan);
	else
		TRY(own(s, d, r->values, &g->values, err));
	if (r->index)
		TRY(own(s, d, r->index, &g->index, err));
	g->set = true;
	return FAR_OK;
}

/** Delivers a gradient: number, values, index. */
static enum far_status deliver(struct spread *s, const struct far_val *item[3], const struct delivery *d,
			       struct far_err *err)
{
	struct gradient g = {0};
	if (item[0]->type != FAR_TYPE_INT)
		return fail(err, FAR_INVALID, "backward: no number");
	struct far_var *var = sent(s->context, (uint64_t)item[0]->u.i, err);
	if (!var)
		return FAR_INVALID;
	const struct received r = {&var->value.t, item[1]->type == FAR_TYPE_TENSOR ? far_val_tensor(item[1]) : NULL,
				   item[2]->type == FAR_TYPE_TENSOR ? far_val_tensor(item[2]) : NULL};
	enum far_status status = r.values ? take(s, &r, d, &g, err) : FAR_OK;
	if (!status && g.set && g.index.t.dtype != FAR_DTYPE_NONE && var->node)
		status = rows_to_dense(s->pass.pool, "backward", &g, &var->value.t, err);
	if (!status)
		status = pass_deliver(&s->pass, var, &g, err);
	gradient_drop(&g);
	return status;
}

enum far_status spread_deliver(struct spread *s, const struct far_val *list, const struct delivery *d,
			       struct far_err *err)
{
	if (far_len(list) % 3)
		return fail(err, FAR_INVALID, "backward: gradients are number, values, index");
	for (size_t i = 0; i < far_len(list); i += 3) {
		const struct far_val *item[3] = {far_list_get(list, i), far_list_get(list, i + 1),
						 far_list_get(list, i + 2)};
		TRY(deliver(s, item, d, err));
	}
	return FAR_OK;
}

enum far_status spread_return(struct spread *s, struct far_err *err)
{
	const struct store *loan = &s->loan;
	const struct pass *p = &s->pass;
	for (size_t i = 0; i < p->n && atomic_load_explicit(&loan->refs, memory_order_relaxed) > 1; i++) {
		const struct entry *entry = &p->entries[i];
		for (unsigned k = 0; k < (entry->node ? entry->node->m : 1); k++) {
			struct gradient *g = &entry->slots[k];
			if (g->values.store != loan)
				continue;
			atomic_fetch_add_explicit(&s->context->bytes_copied, far_tensor_bytes(&g->values.t),
						  memory_order_relaxed);
			TRY(gradient_own(p->pool, g, err));
		}
	}
	return FAR_OK;
}

/** Delivers gradients and runs what that makes ready. Short ones stay in the memory of the request until this returns.
 */
static enum far_status deliver_and_run(struct spread *s, struct sending *to, const struct far_val *args, bool packed,
				       struct far_err *err)
{
	struct store *loan = s->running ? NULL : &s->loan;
	TRY(spread_start(s, err));
	TRY(spread_deliver(s, &args[2], &(struct delivery){to->req, NULL, packed, loan}, err));
	TRY(spread_run(s, to, err));
	return loan ? spread_return(s, err) : FAR_OK;
}

static enum far_status deliver_on_fiber(struct spread *s, struct sending *to, const struct far_val *args, bool packed,
					struct far_err *err)
{
	if (pass_is_light(&s->pass))
		return deliver_and_run(s, to, args, packed, err);
	bool first = !s->pass.started;
	TRY(spread_start(s, err));
	TRY(spread_deliver(s, &args[2], &(struct delivery){to->req, NULL, packed, NULL}, err));
	if (first)
		TRY(spread_send(s, to, err));
	return spread_run_elsewhere(s, to, err);
}

/* ---- steps ---- */

static enum far_status expect_step(struct spread *s, struct sending *to, const struct far_val *args,
				   struct far_err *err)
{
	int32_t from = far_req_from(to->req).worker;
	s->calls_self |= s->root && from == far_self(to->task->agent).worker;
	TRY(spread_expect(s, args, from, err));
	TRY(spread_deliver(s, &args[4], &(struct delivery){to->req, NULL, false, &s->loan}, err));
	TRY(spread_follow(s, err));
	if (args[2].u.i & FLAG_ANSWER)
		TRY(spread_send_back(s, to->task, from, err));
	TRY(spread_send(s, to, err));
	return spread_return(s, err);
}

static enum far_status gradient_step(struct spread *s, struct sending *to, const struct far_val *args,
				     struct far_err *err)
{
	return deliver_on_fiber(s, to, args, false, err);
}

static enum far_status packed_step(struct spread *s, struct sending *to, const struct far_val *args,
				   struct far_err *err)
{
	return deliver_on_fiber(s, to, args, true, err);
}

static enum far_status large_step(struct spread *s, struct sending *to, const struct far_val *args, struct far_err *err)
{
	return deliver_and_run(s, to, args, false, err);
}

static enum far_status packed_large_step(struct spread *s, struct sending *to, const struct far_val *args,
					 struct far_err *err)
{
	return deliver_and_run(s, to, args, true, err);
}

static enum far_status run_step(struct spread *s, struct sending *to, const struct far_val *args, struct far_err *err)
{
	(void)args;
	TRY(spread_start(s, err));
	return spread_run(s, to, err);
}

static enum far_status finish_step(struct spread *s, struct sending *to, const struct far_val *args,
				   struct far_err *err)
{
	if (pass_is_light(&s->pass))
		return run_step(s, to, args, err);
	TRY(spread_start(s, err));
	TRY(spread_send(s, to, err));
	return spread_run_elsewhere(s, to, err);
}

/** Locks. A fiber does not block its shard while another thread computes. */
static enum far_status lock(struct far_context *context, struct far_err *err)
{
	while (pthread_mutex_trylock(&context->lock))
		TRY(task_nap(err));
	return FAR_OK;
}

/** Serves a request for the pass args[1] of the context args[0] with a step of it. `flags`: of a pass that begins with
 * this request if it has not begun; NULL: it has ended then, with which run_step() and finish_step() are content. */
static enum far_status serve(struct far_train *train, struct far_req *req, const struct far_val *args,
			     const struct far_val *flags, spread_step_fn *step)
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
	if (s && flags)
		spread_engage(s, task);
	if (s) {
		spread_step(s, task, left, step, args, req);
	} else {
		pthread_mutex_unlock(&context->lock);
		if (step != run_step && step != finish_step)
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
	return serve(user, req, args, &args[2], expect_step);
}

enum far_status pass_gradient_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return serve(user, req, args, NULL, gradient_step);
}

enum far_status pass_large_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return serve(user, req, args, NULL, large_step);
}

enum far_status pass_packed_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return serve(user, req, args, NULL, packed_step);
}

enum far_status pass_packed_large_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return serve(user, req, args, NULL, packed_large_step);
}

enum far_status pass_run_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return serve(user, req, args, NULL, run_step);
}

enum far_status pass_finish_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return serve(user, req, args, NULL, finish_step);
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

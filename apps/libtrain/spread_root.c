/* SPDX-License-Identifier: BSD-3-Clause */
/** A backward pass at its root. The thread that calls far_backward(). */
#include "spread.h"

/* A pass at its root. */
struct root {
	struct spread *s;
	uint64_t started, limit;  /* of its time */
	bool held;                /* something waits for the second part, on another worker */
	struct answered *answers; /* with gradients of the first part, to be read */
};

/** Its time that is left. */
static enum far_status time_of(const struct root *root, uint64_t *left, struct far_err *err)
{
	*left = root->limit;
	if (root->limit == FAR_FOREVER)
		return FAR_OK;
	uint64_t used = root->s->context->train->now_ns() - root->started;
	if (used >= root->limit)
		return fail(err, FAR_TIMEOUT, "backward: the deadline passed before the gradients were sent");
	*left -= used;
	return FAR_OK;
}

/** Runs a step of the pass at the root, which may read an answer, then all calls that it makes necessary. */
static enum far_status run_step(struct root *r, spread_step_fn *step, struct answered *reads, struct far_err *err)
{
	struct spread *s = r->s;
	uint64_t timeout_ns;
	struct far_context *context = s->context;
	struct far_future *root = NULL;
	TRY(time_of(r, &timeout_ns, err));
	TRY(far_future_create(&root, err));
	struct task *task = task_new(context->train->pool, train_agent(context->train, NULL), NULL, root);
	enum far_status status = task ? FAR_OK : fail_memory(err, "backward", sizeof *task);
	if (task) {
		task->reads = reads;
		pthread_mutex_lock(&context->lock);
		spread_step(s, task, timeout_ns, step, NULL, NULL);
		struct far_val v = far_none();
		status = far_future_wait(root, FAR_FOREVER, &v, err);
		r->held |= !status && v.u.b;
		far_val_fini(&v);
		struct answered *answers = task_take_answers(task), **end = &answers;
		while (*end)
			end = &(*end)->next;
		*end = r->answers;
		r->answers = answers;
	}
	far_future_free(root);
	return status;
}

static enum far_status follow(struct spread *s, struct sending *to, const struct far_val *args, struct far_err *err)
{
	(void)args;
	to->flags |= FLAG_ANSWER;
	TRY(spread_follow(s, err));
	return spread_send(s, to, err);
}

/** Follows the graph from variables that another worker has answered with. */
static enum far_status follow_answer(struct spread *s, struct sending *to, const struct far_val *args,
				     struct far_err *err)
{
	struct answered *answer = to->task->reads;
	const struct far_val *list = &answer->value;
	(void)args;
	if (far_len(list) != 4 || far_list_get(list, 1)->type != FAR_TYPE_INT ||
	    far_list_get(list, 2)->type != FAR_TYPE_TENSOR || far_list_get(list, 3)->type != FAR_TYPE_LIST)
		return fail(err, FAR_INVALID, "backward: a malformed answer of node %d", answer->rank);
	const struct far_val expect[] = {far_none(), far_none(), *far_list_get(list, 1), *far_list_get(list, 2)};
	TRY(spread_expect(s, expect, answer->rank, err));
	TRY(spread_deliver(s, far_list_get(list, 3), &(struct delivery){NULL, answer, false, &s->loan}, err));
	TRY(follow(s, to, NULL, err));
	return spread_return(s, err);
}

/** The first part: from the roots, then from what the answers bring. */
static enum far_status first_part(struct root *r, struct far_err *err)
{
	enum far_status status = run_step(r, follow, NULL, err);
	while (!status && r->answers) {
		struct answered *answer = r->answers;
		r->answers = answer->next;
		answer->next = NULL;
		status = run_step(r, follow_answer, answer, err);
		answered_free(answer);
	}
	return status;
}

static enum far_status start(struct spread *s, struct sending *to, const struct far_val *args, struct far_err *err)
{
	(void)args;
	TRY(spread_start(s, err));
	return spread_run(s, to, err);
}

/** A new pass with its roots. `*out` has one user. */
static enum far_status begin(struct far_context *context, struct far_var *const *roots, size_t n,
			     const struct far_backward_opts *opts, struct spread **out, struct far_err *err)
{
	struct pass flags = {.opts = opts ? *opts : (struct far_backward_opts){0}};
	uint64_t rank = (uint64_t)far_self(train_agent(context->train, NULL)).worker;
	enum far_status status = FAR_OK;
	pthread_mutex_lock(&context->lock);
	struct spread *s = spread_new(context, rank << 48 | context->passes_begun++, spread_flags(&flags));
	if (s) {
		s->root = true;
		s->users = 1;
	}
	for (size_t i = 0; s && i < n && !status; i++)
		status = pass_root(&s->pass, roots[i], err);
	pthread_mutex_unlock(&context->lock);
	*out = s;
	return s ? status : fail_memory(err, "backward", sizeof *s);
}

/** Waits until no other thread is in a pass that has ended: it may be in a node, which the caller frees afterwards.
 * With the lock. */
static void wait_for_others(struct spread *s)
{
	struct far_context *context = s->context;
	enum far_status status = FAR_OK;
	while (s->users > 1 && status != FAR_SHUTDOWN) {
		pthread_mutex_unlock(&context->lock);
		status = task_nap(NULL);
		pthread_mutex_lock(&context->lock);
	}
}

/** Ends the pass at the root. */
static void finish(struct spread *s, enum far_status status)
{
	struct far_context *context = s->context;
	pthread_mutex_lock(&context->lock);
	if (status && !s->pass.ended) {
		spread_abort(s, train_agent(context->train, NULL));
		pthread_mutex_lock(&context->lock);
	}
	wait_for_others(s);
	s->users--;
	if (!s->pass.ended)
		spread_remove(s);
	else if (s->users == 0)
		spread_free(s);
	pthread_mutex_unlock(&context->lock);
}

/** The second part where only the root has anything left: it calls no other worker. */
static enum far_status start_here(struct spread *s, struct far_err *err)
{
	enum far_status status = FAR_OK;
	pthread_mutex_lock(&s->context->lock);
	s->running = true;
	if (s->pass.ended)
		status = fail(err, FAR_INVALID, "backward: the pass has ended");
	else if (s->pass.left > 0)
		status = pass_start(&s->pass, err);
	if (!status)
		status = pass_run(&s->pass, err);
	s->running = false;
	pthread_mutex_unlock(&s->context->lock);
	return status;
}

enum far_status far_backward(struct far_context *context, struct far_var *const *roots, size_t n,
			     const struct far_backward_opts *opts, uint64_t timeout_ns, struct far_err *err)
{
	struct far_err unwanted;
	struct spread *s;
	uint64_t left;
	if (!err)
		err = &unwanted;
	if (!context)
		return fail(err, FAR_INVALID, "backward: there is no context");
	TRY(pass_check_roots(roots, n, err));
	TRY(context_check(context, err));
	struct root r = {.started = context->train->now_ns(),
			 .limit = timeout_ns ? timeout_ns : far_rpc_timeout_ns(train_agent(context->train, NULL))};
	enum far_status status = begin(context, roots, n, opts, &s, err);
	if (!s)
		return status;
	r.s = s;
	if (!status)
		status = first_part(&r, err);
	pthread_mutex_lock(&context->lock);
	r.held |= s->calls_self;
	pthread_mutex_unlock(&context->lock);
	if (!status && r.held)
		status = run_step(&r, start, NULL, err);
	else if (!status && !(status = time_of(&r, &left, err)))
		status = start_here(s, err);
	answered_free(r.answers);
	finish(s, status);
	return status;
}

enum far_status far_rref_backward(struct far_context *context, struct far_rref *rref,
				  const struct far_backward_opts *opts, uint64_t timeout_ns, struct far_err *err)
{
	struct far_val v = {0};
	struct far_tape *tape;
	if (!context)
		return fail(err, FAR_INVALID, "far_rref_backward: there is no context");
	TRY(far_rref_to_here(rref, timeout_ns, &v, err));
	if (!wire_of(&v)) {
		enum far_status status = fail(err, FAR_INVALID,
					      "far_rref_backward: the reference is to a %s, not a "
					      "far::Var",
					      far_type_name((enum far_type)v.type));
		far_val_fini(&v);
		return status;
	}
	enum far_status status = far_tape_new(context->train->pool, &tape, err);
	if (!status) {
		/* The root is an operator of the variable: a leaf is no root. */
		struct far_var *root = far_tape_scale(tape, far_tape_recv(tape, context, &v), 1);
		status = far_tape_status(tape, err);
		if (!status)
			status = far_backward(context, &root, 1, opts, timeout_ns, err);
		far_tape_free(tape);
	}
	far_val_fini(&v);
	return status;
}

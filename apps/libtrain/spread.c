/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Backward passes over several workers. The thread that calls far_backward(), and threads for blocking handlers.
 *
 * A pass has two parts. First each worker that the graph leads to receives the numbers of the variables that it sent
 * and whose gradients will come (far::backward::expect); it follows its graph from them, and notifies further workers.
 * Then gradients flow against the calls (far::backward::gradient): a node runs once all of its gradients are there.
 * A call of either kind is answered when all calls that it made necessary are answered, or with the first error of
 * them. So the root returns when nothing is under way any more.
 */
#include "rows.h"
#include "train.h"

#include <stdlib.h>
#include <time.h>

/* ---- a call with the calls that it makes necessary ---- */

struct task {
	struct far_agent *agent;
	pthread_mutex_t lock;
	unsigned open; /* calls, and one of the maker */
	bool answered;
	struct far_deferred *request; /* of a handler; NULL: the root's future */
	struct far_future *root;
};

/* A call of a task. */
struct child {
	struct task *task;
	int32_t rank;
};

static struct task *task_new(struct far_agent *agent, struct far_deferred *request, struct far_future *root)
{
	struct task *task = calloc(1, sizeof *task);
	if (!task)
		return NULL;
	pthread_mutex_init(&task->lock, NULL);
	task->agent = agent;
	task->open = 1;
	task->request = request;
	task->root = far_future_ref(root);
	return task;
}

static void task_answer(struct task *task, enum far_status status, const struct far_err *err)
{
	if (task->request && status)
		far_deferred_fail(task->request, status, err->code, "%s", err->text);
	else if (task->request)
		far_deferred_return(task->request, NULL);
	else if (status)
		far_future_set_error(task->root, status, err->code, "%s", err->text);
	else
		far_future_set_value(task->root, NULL, NULL);
}

/** One of `open` is done. */
static void task_done(struct task *task, enum far_status status, const struct far_err *err)
{
	pthread_mutex_lock(&task->lock);
	bool last = --task->open == 0;
	bool answer = !task->answered && (status || last);
	task->answered |= answer;
	pthread_mutex_unlock(&task->lock);
	if (answer)
		task_answer(task, status, err);
	if (!last)
		return;
	far_future_free(task->root);
	pthread_mutex_destroy(&task->lock);
	free(task);
}

static void on_child(struct far_future *f, void *user)
{
	struct child *child = user;
	struct far_err err;
	enum far_status status = far_future_value(f, NULL, &err);
	if (status)
		error_on_node(child->task->agent, child->rank, &err);
	task_done(child->task, status, &err);
	free(child);
}

#define BUSY_NAP_NS 50000

/** Calls `function` on a worker for a task. Waits while the queue is full. */
static enum far_status task_call(struct task *task, int32_t rank, const char *function, const struct far_val *args,
				 size_t n, uint64_t timeout_ns, struct far_err *err)
{
	struct far_call_opts opts = {.timeout_ns = timeout_ns};
	struct far_to to = {rank, -1};
	struct far_future *f = NULL;
	struct child *child = malloc(sizeof *child);
	if (!child)
		return fail_memory(err, "backward", sizeof *child);
	*child = (struct child){task, rank};
	enum far_status status;
	while ((status = far_rpc_async_to(task->agent, to, function, args, n, &opts, &f, err)) == FAR_BUSY)
		nanosleep(&(struct timespec){0, BUSY_NAP_NS}, NULL);
	if (status) {
		free(child);
		error_on_node(task->agent, rank, err);
		return status;
	}
	pthread_mutex_lock(&task->lock);
	task->open++;
	pthread_mutex_unlock(&task->lock);
	status = far_future_on_done(f, on_child, child, err);
	if (status) {
		free(child);
		task_done(task, status, err);
	}
	far_future_free(f);
	return status;
}

/* ---- the part of a pass on this worker ---- */

/* What goes to one worker. */
struct outbox {
	struct outbox *next;
	int32_t rank;
	uint64_t *ids;
	struct gradient *gradients; /* of the second part */
	size_t n, ids_capacity, gradients_capacity;
};

/* Workers that a pass has reached from here. */
struct reached {
	struct reached *next;
	int32_t rank;
};

/* With context->lock, but for `id`. */
struct spread {
	struct spread *next;
	struct far_context *context;
	uint64_t id; /* rank of the root << 48, plus a number */
	bool root;
	unsigned users; /* threads in it */
	bool dead;      /* an error ended it */
	struct pass pass;
	size_t announced; /* entries of the pass whose sender was notified */
	struct outbox *outboxes;
	struct reached *reached;
};

#define FLAG_RETAIN  1
#define FLAG_CHANGED 2
#define IDS_MAX      4096 /* variables of one call */

static void outboxes_free(struct outbox *list)
{
	while (list) {
		struct outbox *box = list;
		list = box->next;
		for (size_t i = 0; i < box->n && box->gradients; i++)
			gradient_drop(&box->gradients[i]);
		pool_give(box->gradients);
		pool_give(box->ids);
		free(box);
	}
}

static void spread_free(struct spread *s)
{
	while (s->reached) {
		struct reached *last = s->reached;
		s->reached = last->next;
		free(last);
	}
	outboxes_free(s->outboxes);
	pass_end(&s->pass);
	free(s);
}

void spreads_free(struct far_context *context)
{
	while (context->spreads) {
		struct spread *s = context->spreads;
		context->spreads = s->next;
		spread_free(s);
	}
}

uint64_t spreads_count(const struct far_context *context)
{
	uint64_t n = 0;
	for (const struct spread *s = context->spreads; s; s = s->next)
		n++;
	return n;
}

static struct spread *spread_find(struct far_context *context, uint64_t id)
{
	struct spread *s = context->spreads;
	while (s && s->id != id)
		s = s->next;
	return s;
}

/** Takes it off the list; it is freed when no thread is in it. */
static void spread_remove(struct spread *s)
{
	struct spread **at = &s->context->spreads;
	while (*at && *at != s)
		at = &(*at)->next;
	if (*at)
		*at = s->next;
	s->dead = true;
	if (s->users == 0)
		spread_free(s);
}

/** The outbox for a worker, with room for one more. NULL: no memory. */
static struct outbox *outbox_for(struct spread *s, int32_t rank, bool gradients)
{
	struct far_pool *pool = s->pass.pool;
	struct outbox *box = s->outboxes;
	while (box && box->rank != rank)
		box = box->next;
	if (!box) {
		box = calloc(1, sizeof *box);
		if (!box)
			return NULL;
		box->rank = rank;
		box->next = s->outboxes;
		s->outboxes = box;
	}
	if (!pool_grow(pool, (void **)&box->ids, &box->ids_capacity, box->n, sizeof *box->ids) ||
	    (gradients &&
	     !pool_grow(pool, (void **)&box->gradients, &box->gradients_capacity, box->n, sizeof *box->gradients)))
		return NULL;
	return box;
}

/** The gradient of a leaf that another worker sent goes there. */
static enum far_status take_leaf(void *user, struct far_var *leaf, struct gradient *sum, bool *taken,
				 struct far_err *err)
{
	struct spread *s = user;
	if (leaf->sent_id == 0 || leaf->sent_context != s->context->id)
		return FAR_OK;
	*taken = true;
	struct outbox *box = outbox_for(s, leaf->sent_rank, true);
	if (!box)
		return fail_memory(err, "backward", sizeof *box);
	memset(&box->gradients[box->n], 0, sizeof *box->gradients);
	gradient_move(&box->gradients[box->n], sum);
	box->ids[box->n++] = leaf->sent_id;
	return FAR_OK;
}

static struct spread *spread_new(struct far_context *context, uint64_t id, int64_t flags)
{
	struct spread *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->context = context;
	s->id = id;
	s->pass.pool = context->train->pool;
	s->pass.grads = context->grads;
	s->pass.opts.retain_graph = flags & FLAG_RETAIN;
	s->pass.opts.allow_changed = flags & FLAG_CHANGED;
	s->pass.leaf = take_leaf;
	s->pass.user = s;
	s->next = context->spreads;
	context->spreads = s;
	return s;
}

static int64_t flags_of(const struct pass *pass)
{
	return (pass->opts.retain_graph ? FLAG_RETAIN : 0) | (pass->opts.allow_changed ? FLAG_CHANGED : 0);
}

static bool reach(struct spread *s, int32_t rank)
{
	struct reached *r = s->reached;
	while (r && r->rank != rank)
		r = r->next;
	if (r)
		return true;
	r = malloc(sizeof *r);
	if (!r)
		return false;
	*r = (struct reached){s->reached, rank};
	s->reached = r;
	return true;
}

/** Follows the graph and writes the numbers of what other workers sent to the outboxes. */
static enum far_status follow(struct spread *s, struct far_err *err)
{
	TRY(pass_discover(&s->pass, err));
	for (; s->announced < s->pass.n; s->announced++) {
		const struct far_var *leaf = s->pass.entries[s->announced].leaf;
		if (!leaf || leaf->sent_id == 0 || leaf->sent_context != s->context->id)
			continue;
		struct outbox *box = outbox_for(s, leaf->sent_rank, false);
		if (!box || !reach(s, leaf->sent_rank))
			return fail_memory(err, "backward", sizeof *box);
		box->ids[box->n++] = leaf->sent_id;
	}
	return FAR_OK;
}

/* ---- sending: without the lock ---- */

/* The pass of an outbox, for its calls. */
struct sending {
	struct task *task;
	uint64_t context, pass, timeout_ns;
	int64_t flags;
};

static enum far_status send_ids(const struct sending *to, const struct outbox *box, struct far_err *err)
{
	for (size_t at = 0; at < box->n; at += IDS_MAX) {
		size_t n = box->n - at < IDS_MAX ? box->n - at : IDS_MAX;
		struct far_tensor ids = far_tensor_1d(FAR_U64, box->ids + at, n);
		TRY(task_call(to->task, box->rank, "far::backward::expect",
			      FAR_ARGS((int64_t)to->context, (int64_t)to->pass, to->flags, &ids), to->timeout_ns, err));
	}
	return FAR_OK;
}

/** A list of number, values, index for each; none for a gradient of zero, and for the index of a dense one. */
static enum far_status send_some(const struct sending *to, const struct outbox *box, size_t at, size_t n,
				 struct far_err *err)
{
	struct far_val *items = calloc(n, 3 * sizeof *items);
	if (!items)
		return fail_memory(err, "backward", n * 3 * sizeof *items);
	for (size_t i = 0; i < n; i++) {
		const struct gradient *g = &box->gradients[at + i];
		items[3 * i] = far_int((int64_t)box->ids[at + i]);
		if (g->set)
			items[3 * i + 1] = far_tensor_val(&g->values.t);
		if (g->set && g->index.t.dtype != FAR_DTYPE_NONE)
			items[3 * i + 2] = far_tensor_val(&g->index.t);
	}
	struct far_val list = far_list(items, 3 * n);
	enum far_status status =
		task_call(to->task, box->rank, "far::backward::gradient",
			  FAR_ARGS((int64_t)to->context, (int64_t)to->pass, list), to->timeout_ns, err);
	free(items);
	return status;
}

static enum far_status send_gradients(const struct sending *to, const struct outbox *box, struct far_err *err)
{
	for (size_t at = 0; at < box->n; at += IDS_MAX)
		TRY(send_some(to, box, at, box->n - at < IDS_MAX ? box->n - at : IDS_MAX, err));
	return FAR_OK;
}

static enum far_status send_all(const struct sending *to, struct outbox *list, struct far_err *err)
{
	for (struct outbox *box = list; box; box = box->next)
		TRY(box->gradients ? send_gradients(to, box, err) : send_ids(to, box, err));
	return FAR_OK;
}

static void ignore(struct far_future *f, void *user)
{
	(void)f;
	(void)user;
}

/** Ends a pass that failed, here and on the workers that it has reached from here. With the lock, which it drops. */
static void abort_spread(struct spread *s, struct far_agent *agent)
{
	struct far_context *context = s->context;
	uint64_t id = s->id;
	struct reached *list = s->reached;
	s->reached = NULL;
	spread_remove(s);
	pthread_mutex_unlock(&context->lock);
	while (list) {
		struct reached *to = list;
		struct far_future *f = NULL;
		list = to->next;
		/* Where it does not arrive, the end of the context frees the pass. */
		if (far_rpc_async_to(agent, (struct far_to){to->rank, -1}, "far::backward::abort",
				     FAR_ARGS((int64_t)context->id, (int64_t)id), NULL, &f, NULL) == FAR_OK)
			far_future_on_done(f, ignore, NULL, NULL);
		far_future_free(f);
		free(to);
	}
}

/**
 * Sends what a step of the pass left in the outboxes, after the step with this result. With the lock, which it drops.
 * The task's own part is done then.
 */
static void step_done(struct spread *s, struct task *task, uint64_t timeout_ns, enum far_status status,
		      struct far_err *err)
{
	struct far_context *context = s->context;
	struct sending to = {task, context->id, s->id, timeout_ns, flags_of(&s->pass)};
	struct outbox *list = s->outboxes;
	struct far_agent *agent = task->agent;
	s->outboxes = NULL;
	s->users++;
	pthread_mutex_unlock(&context->lock);
	if (!status)
		status = send_all(&to, list, err);
	outboxes_free(list);
	pthread_mutex_lock(&context->lock);
	s->users--;
	if (s->dead) {
		if (s->users == 0)
			spread_free(s);
		pthread_mutex_unlock(&context->lock);
	} else if (status) {
		abort_spread(s, agent);
	} else {
		if (s->pass.left == 0 && !s->root)
			spread_remove(s);
		pthread_mutex_unlock(&context->lock);
	}
	task_done(task, status, err);
}

/* ---- handlers ---- */

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
	if (!status && !(*task = task_new(train_agent(train, req), request, NULL)))
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

static enum far_status expect(struct spread *s, const struct far_tensor *ids, struct far_err *err)
{
	if (ids->dtype != FAR_U64 || ids->ndim != 1)
		return fail(err, FAR_INVALID, "backward: numbers of variables are u64");
	for (uint64_t i = 0; i < ids->shape[0]; i++) {
		struct far_var *var = sent(s->context, ((const uint64_t *)ids->data)[i], err);
		if (!var)
			return FAR_INVALID;
		TRY(pass_expect(&s->pass, var, err));
	}
	return follow(s, err);
}

enum far_status pass_expect_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_context *context;
	struct task *task = NULL;
	struct far_err err = {0};
	uint64_t left = time_left(req);
	enum far_status status = receive(user, req, args, &context, &task);
	(void)n;
	if (!task)
		return status;
	pthread_mutex_lock(&context->lock);
	struct spread *s = spread_find(context, (uint64_t)args[1].u.i);
	if (!s)
		s = spread_new(context, (uint64_t)args[1].u.i, args[2].u.i);
	if (s) {
		step_done(s, task, left, expect(s, far_val_tensor(&args[3]), &err), &err);
	} else {
		pthread_mutex_unlock(&context->lock);
		task_done(task, fail_memory(&err, "backward", sizeof *s), &err);
	}
	far_context_free(context);
	return FAR_OK;
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

static enum far_status deliver_all(struct spread *s, const struct far_val *list, struct far_err *err)
{
	if (far_len(list) % 3)
		return fail(err, FAR_INVALID, "backward: gradients are number, values, index");
	for (size_t i = 0; i < far_len(list); i += 3)
		TRY(deliver(s, far_list_get(list, i), far_list_get(list, i + 1), far_list_get(list, i + 2), err));
	return pass_run(&s->pass, err);
}

enum far_status pass_gradient_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_context *context;
	struct task *task = NULL;
	struct far_err err = {0};
	uint64_t left = time_left(req);
	enum far_status status = receive(user, req, args, &context, &task);
	(void)n;
	if (!task)
		return status;
	pthread_mutex_lock(&context->lock);
	struct spread *s = spread_find(context, (uint64_t)args[1].u.i);
	if (s) {
		step_done(s, task, left, deliver_all(s, &args[2], &err), &err);
	} else {
		pthread_mutex_unlock(&context->lock);
		task_done(task, fail(&err, FAR_INVALID, "backward: the pass has ended"), &err);
	}
	far_context_free(context);
	return FAR_OK;
}

enum far_status pass_abort_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_train *train = user;
	struct far_context *context = context_here(train, (uint64_t)args[0].u.i);
	(void)n;
	if (context) {
		pthread_mutex_lock(&context->lock);
		struct spread *s = spread_find(context, (uint64_t)args[1].u.i);
		if (s && !s->root)
			abort_spread(s, train_agent(train, req));
		else
			pthread_mutex_unlock(&context->lock);
		far_context_free(context);
	}
	return far_return_none(req);
}

/* ---- the root ---- */

/** Runs one part of the pass at the root: a step, then all calls that it makes necessary. */
static enum far_status run_part(struct spread *s, enum far_status (*step)(struct spread *s, struct far_err *err),
				uint64_t timeout_ns, struct far_err *err)
{
	struct far_context *context = s->context;
	struct far_future *root = NULL;
	TRY(far_future_create(&root, err));
	struct task *task = task_new(train_agent(context->train, NULL), NULL, root);
	enum far_status status = task ? FAR_OK : fail_memory(err, "backward", sizeof *task);
	if (task) {
		struct far_err first = {0};
		pthread_mutex_lock(&context->lock);
		step_done(s, task, timeout_ns, step(s, &first), &first);
		status = far_future_wait(root, FAR_FOREVER, NULL, err);
	}
	far_future_free(root);
	return status;
}

static enum far_status start(struct spread *s, struct far_err *err)
{
	TRY(pass_start(&s->pass, err));
	return pass_run(&s->pass, err);
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * FAR_SEC + (uint64_t)t.tv_nsec;
}

/** A new pass with its roots. `*out` has one user. */
static enum far_status begin(struct far_context *context, struct far_var *const *roots, size_t n,
			     const struct far_backward_opts *opts, struct spread **out, struct far_err *err)
{
	struct pass flags = {.opts = opts ? *opts : (struct far_backward_opts){0}};
	uint64_t rank = (uint64_t)far_self(train_agent(context->train, NULL)).worker;
	enum far_status status = FAR_OK;
	pthread_mutex_lock(&context->lock);
	struct spread *s = spread_new(context, rank << 48 | context->passes_begun++, flags_of(&flags));
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

/** Ends the pass at the root. */
static void finish(struct spread *s, enum far_status status)
{
	struct far_context *context = s->context;
	pthread_mutex_lock(&context->lock);
	s->users--;
	if (status && !s->dead) {
		abort_spread(s, train_agent(context->train, NULL));
		return;
	}
	if (!s->dead)
		spread_remove(s);
	else if (s->users == 0)
		spread_free(s);
	pthread_mutex_unlock(&context->lock);
}

enum far_status far_backward(struct far_context *context, struct far_var *const *roots, size_t n,
			     const struct far_backward_opts *opts, uint64_t timeout_ns, struct far_err *err)
{
	struct far_err unwanted;
	struct spread *s;
	if (!err)
		err = &unwanted;
	if (!context)
		return fail(err, FAR_INVALID, "backward: there is no context");
	TRY(pass_check_roots(roots, n, err));
	TRY(context_check(context, err));
	uint64_t limit = timeout_ns ? timeout_ns : far_rpc_timeout_ns(train_agent(context->train, NULL));
	uint64_t started = now_ns();
	enum far_status status = begin(context, roots, n, opts, &s, err);
	if (!s)
		return status;
	if (!status)
		status = run_part(s, follow, limit, err);
	uint64_t used = now_ns() - started;
	if (!status && limit != FAR_FOREVER && used >= limit)
		status = fail(err, FAR_TIMEOUT, "backward: the deadline passed before the gradients were sent");
	if (!status)
		status = run_part(s, start, limit == FAR_FOREVER ? limit : limit - used, err);
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

/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls that one call makes necessary, and its answer after them. Any thread; completions run on the poller. */
#include "spread.h"

static struct child *child_make(struct task *task, int32_t rank, const char *function)
{
	struct child *child = task->first.task ? pool_take(task->pool, sizeof *child) : &task->first;
	if (child)
		*child = (struct child){task, rank, function};
	return child;
}

static void child_give(struct child *child)
{
	if (child != &child->task->first)
		pool_give(child);
}

/** Names the worker in an error of a call to it. */
static void explain(const struct child *child, enum far_status status, struct far_err *err)
{
	if (status == FAR_NO_FUNCTION && strncmp(child->function, "far::backward::packed", 21) == 0)
		snprintf(err->text, sizeof err->text,
			 "it reads no compressed gradients: update its libfarcall-train, or send them without a "
			 "far_compressor");
	if (child->rank != RANK_HERE)
		error_on_node(child->task->agent, child->rank, err);
}

struct task *task_new(struct far_pool *pool, struct far_agent *agent, struct far_deferred *request,
		      struct far_future *root)
{
	struct task *task = pool_zero(pool, sizeof *task);
	if (!task)
		return NULL;
	pthread_mutex_init(&task->lock, NULL);
	task->pool = pool;
	task->agent = agent;
	task->open = 1;
	atomic_init(&task->refs, root ? 2 : 1);
	task->request = request;
	task->root = far_future_ref(root);
	return task;
}

void answered_unref(void *answered)
{
	struct answered *a = answered;
	if (atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) != 1)
		return;
	far_val_fini(&a->value);
	pool_give(a);
}

void answered_free(struct answered *list)
{
	while (list) {
		struct answered *first = list;
		list = first->next;
		answered_unref(first);
	}
}

static void task_unref(struct task *task)
{
	if (atomic_fetch_sub_explicit(&task->refs, 1, memory_order_acq_rel) != 1)
		return;
	answered_free(task->answers);
	outboxes_free(task->back);
	far_future_free(task->root);
	pthread_mutex_destroy(&task->lock);
	pool_give(task);
}

struct answered *task_take_answers(struct task *task)
{
	pthread_mutex_lock(&task->lock);
	struct answered *list = task->answers;
	task->answers = NULL;
	pthread_mutex_unlock(&task->lock);
	task_unref(task);
	return list;
}

static void task_answer(struct task *task, enum far_status status, const struct far_err *err)
{
	struct far_val held = far_bool(task->held);
	if (task->context) {
		held = far_bool(spread_answer(task));
		if (task->back && !status) {
			spread_answer_list(task, held.u.b);
			task->request = NULL;
		}
		far_context_free(task->context);
	}
	if (task->request && status)
		far_deferred_fail(task->request, status, err->code, "%s", err->text);
	else if (task->request)
		far_deferred_return(task->request, task->context ? &held : NULL);
	else if (task->root && status)
		far_future_set_error(task->root, status, err->code, "%s", err->text);
	else if (task->root)
		far_future_set_value(task->root, &held, NULL);
}

void task_done(struct task *task, enum far_status status, const struct far_err *err)
{
	pthread_mutex_lock(&task->lock);
	bool last = --task->open == 0;
	bool answer = !task->answered && (status || last);
	task->answered |= answer;
	pthread_mutex_unlock(&task->lock);
	if (answer)
		task_answer(task, status, err);
	if (last)
		task_unref(task);
}

static void task_hold(struct task *task)
{
	pthread_mutex_lock(&task->lock);
	task->held = true;
	pthread_mutex_unlock(&task->lock);
}

/** Keeps the answer of a call for the root, with the gradients in it. */
static enum far_status keep_answer(const struct child *child, struct far_val *list, struct far_err *err)
{
	struct task *task = child->task;
	const struct far_val *held = far_list_get(list, 0);
	if (!task->root || !held || held->type != FAR_TYPE_BOOL)
		return fail(err, FAR_INVALID, "backward: an answer with gradients for another worker");
	if (held->u.b)
		task_hold(task);
	struct answered *kept = pool_take(task->pool, sizeof *kept);
	if (!kept)
		return fail_memory(err, "backward", sizeof *kept);
	*kept = (struct answered){.refs = 1, .rank = child->rank, .value = *list};
	*list = far_none();
	pthread_mutex_lock(&task->lock);
	kept->next = task->answers;
	task->answers = kept;
	pthread_mutex_unlock(&task->lock);
	return FAR_OK;
}

static void on_child(struct far_future *f, void *user)
{
	struct child *child = user;
	struct far_err err;
	struct far_val held = far_none();
	struct task *task = child->task;
	enum far_status status = far_future_value(f, &held, &err);
	if (status)
		explain(child, status, &err);
	if (held.type == FAR_TYPE_BOOL && held.u.b)
		task_hold(task);
	else if (held.type == FAR_TYPE_LIST && !status)
		status = keep_answer(child, &held, &err);
	far_val_fini(&held);
	child_give(child);
	task_done(task, status, &err);
}

#define NAP_NS 50000

enum far_status task_nap(struct far_err *err)
{
	struct far_future *never = NULL;
	TRY(far_future_create(&never, err));
	enum far_status status = far_future_wait(never, NAP_NS, NULL, err);
	far_future_free(never);
	return status == FAR_PENDING ? FAR_OK : status;
}

enum far_status task_call(struct task *task, int32_t rank, const char *function, const struct far_val *args, size_t n,
			  uint64_t timeout_ns, struct far_err *err)
{
	struct far_call_opts opts = {.timeout_ns = timeout_ns};
	struct far_to to = {rank == RANK_HERE ? far_self(task->agent).worker : rank, -1};
	struct far_future *f = NULL;
	struct child *child = child_make(task, rank, function);
	if (!child)
		return fail_memory(err, "backward", sizeof *child);
	enum far_status status;
	const struct far_call_opts *given = timeout_ns == far_rpc_timeout_ns(task->agent) ? NULL : &opts;
	while ((status = far_rpc_async_to(task->agent, to, function, args, n, given, &f, err)) == FAR_BUSY)
		if ((status = task_nap(err)))
			break;
	if (status) {
		explain(child, status, err);
		child_give(child);
		return status;
	}
	pthread_mutex_lock(&task->lock);
	task->open++;
	pthread_mutex_unlock(&task->lock);
	status = far_future_on_done(f, on_child, child, err);
	if (status) {
		child_give(child);
		task_done(task, status, err);
	}
	far_future_free(f);
	return status;
}

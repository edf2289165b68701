/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The part of a backward pass on one worker, and what it sends to others. The thread that calls far_backward(), fibers,
 * and threads for blocking handlers.
 */
#include "spread.h"

#include "rows.h"

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

#define FLAG_RETAIN  1
#define FLAG_CHANGED 2
#define IDS_MAX      4096  /* variables of one call */
#define LARGE        65536 /* bytes of gradients whose receiver does not copy them on a fiber */

void outboxes_free(struct outbox *list)
{
	while (list) {
		struct outbox *box = list;
		list = box->next;
		for (size_t i = 0; i < box->n && box->gradients; i++)
			gradient_drop(&box->gradients[i]);
		pool_give(box->gradients);
		pool_give(box->ids);
		pool_give(box);
	}
}

void spread_free(struct spread *s)
{
	while (s->reached) {
		struct reached *last = s->reached;
		s->reached = last->next;
		pool_give(last);
	}
	outboxes_free(s->outboxes);
	pass_end(&s->pass);
	pool_give(s);
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

struct spread *spread_find(struct far_context *context, uint64_t id)
{
	struct spread *s = context->spreads;
	while (s && s->id != id)
		s = s->next;
	return s;
}

void spread_remove(struct spread *s)
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
		box = pool_zero(pool, sizeof *box);
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

struct spread *spread_new(struct far_context *context, uint64_t id, int64_t flags)
{
	struct spread *s = pool_zero(context->train->pool, sizeof *s);
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

int64_t spread_flags(const struct pass *pass)
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
	r = pool_take(s->pass.pool, sizeof *r);
	if (!r)
		return false;
	*r = (struct reached){s->reached, rank};
	s->reached = r;
	return true;
}

enum far_status spread_follow(struct spread *s, struct far_err *err)
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
	size_t bytes = 0;
	struct far_val *items = pool_zero(to->task->pool, n * 3 * sizeof *items);
	if (!items)
		return fail_memory(err, "backward", n * 3 * sizeof *items);
	for (size_t i = 0; i < n; i++) {
		const struct gradient *g = &box->gradients[at + i];
		items[3 * i] = far_int((int64_t)box->ids[at + i]);
		if (g->set)
			items[3 * i + 1] = far_tensor_val(&g->values.t);
		bytes += g->set ? far_tensor_bytes(&g->values.t) : 0;
		if (g->set && g->index.t.dtype != FAR_DTYPE_NONE)
			items[3 * i + 2] = far_tensor_val(&g->index.t);
	}
	struct far_val list = far_list(items, 3 * n);
	enum far_status status =
		task_call(to->task, box->rank, bytes < LARGE ? "far::backward::gradient" : "far::backward::large",
			  FAR_ARGS((int64_t)to->context, (int64_t)to->pass, list), to->timeout_ns, err);
	pool_give(items);
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

void spread_abort(struct spread *s, struct far_agent *agent)
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
		pool_give(to);
	}
}

void spread_step_done(struct spread *s, struct task *task, uint64_t timeout_ns, enum far_status status,
		      struct far_err *err)
{
	struct far_context *context = s->context;
	struct sending to = {task, context->id, s->id, timeout_ns, spread_flags(&s->pass)};
	struct outbox *list = s->outboxes;
	struct far_agent *agent = task->agent;
	bool run = s->waits;
	s->waits = false;
	s->outboxes = NULL;
	s->users++;
	pthread_mutex_unlock(&context->lock);
	if (!status)
		status = send_all(&to, list, err);
	if (!status && run)
		status = task_call(task, RANK_HERE, "far::backward::run",
				   FAR_ARGS((int64_t)to.context, (int64_t)to.pass), timeout_ns, err);
	outboxes_free(list);
	pthread_mutex_lock(&context->lock);
	s->users--;
	if (s->dead) {
		if (s->users == 0)
			spread_free(s);
		pthread_mutex_unlock(&context->lock);
	} else if (status) {
		spread_abort(s, agent);
	} else {
		if (s->pass.left == 0 && !s->root)
			spread_remove(s);
		pthread_mutex_unlock(&context->lock);
	}
	task_done(task, status, err);
}

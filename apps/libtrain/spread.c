/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The part of a backward pass on one worker, and what it sends to others. The thread that calls far_backward(), fibers,
 * and threads for blocking handlers.
 */
#include "spread.h"

#include "compress.h"
#include "rows.h"

/* A gradient for another worker. */
struct parcel {
	uint64_t id;
	struct gradient g;
	struct far_compressor *compressor; /* referred to; NULL: it is sent as it is */
	uint64_t slot;                     /* of the compressor */
};

#define FEW 2 /* variables that cost no memory of the pool of their own */

/* What goes to one worker. */
struct outbox {
	struct outbox *next;
	int32_t rank;
	uint64_t *ids; /* of the first part */
	size_t ids_n, ids_capacity;
	struct parcel *parcels; /* of the second part */
	size_t parcels_n, parcels_capacity;
	uint64_t few_ids[FEW];
	struct parcel few_parcels[FEW];
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
		for (size_t i = 0; i < box->parcels_n; i++) {
			gradient_drop(&box->parcels[i].g);
			far_compressor_free(box->parcels[i].compressor);
		}
		if (box->parcels != box->few_parcels)
			pool_give(box->parcels);
		if (box->ids != box->few_ids)
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
	s->pass.ended = true;
	if (s->users == 0)
		spread_free(s);
}

/** The outbox for a worker. NULL: no memory. */
static struct outbox *outbox_for(struct spread *s, int32_t rank)
{
	struct outbox *box = s->outboxes;
	while (box && box->rank != rank)
		box = box->next;
	if (box || !(box = pool_take(s->pass.pool, sizeof *box)))
		return box;
	box->rank = rank;
	box->ids = box->few_ids;
	box->parcels = box->few_parcels;
	box->ids_capacity = box->parcels_capacity = FEW;
	box->ids_n = box->parcels_n = 0;
	box->next = s->outboxes;
	s->outboxes = box;
	return box;
}

/** Its gradient goes to the worker that sent the variable. */
static bool has_sender(const struct spread *s, const struct far_var *leaf)
{
	return leaf->sent_id > 0 && leaf->sent_context == s->context->id;
}

/** The gradient of a leaf that another worker sent goes there. */
static enum far_status take_leaf(void *user, struct far_var *leaf, struct gradient *sum, bool *taken,
				 struct far_err *err)
{
	struct spread *s = user;
	if (!has_sender(s, leaf))
		return FAR_OK;
	*taken = true;
	struct outbox *box = outbox_for(s, leaf->sent_rank);
	if (!box || !pool_grow_few(s->pass.pool, (void **)&box->parcels, &box->parcels_capacity, box->parcels_n,
				   sizeof *box->parcels, box->few_parcels))
		return fail_memory(err, "backward", sizeof *box);
	struct parcel *parcel = &box->parcels[box->parcels_n++];
	*parcel = (struct parcel){.id = leaf->sent_id, .slot = leaf->sent_id};
	gradient_move(&parcel->g, sum);
	if (leaf->compressor) {
		parcel->compressor = compressor_ref(leaf->compressor);
		parcel->slot = leaf->compressor_slot;
	} else if (s->context->compressor) {
		parcel->compressor = compressor_ref(s->context->compressor);
	}
	return FAR_OK;
}

static enum far_status flush(void *user, struct far_err *err)
{
	struct spread *s = user;
	return spread_send(s, s->to, err);
}

/** Of the memory of a request: it is neither written nor kept. */
static void kept(void *user)
{
	(void)user;
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
	s->pass.flush = flush;
	s->pass.user = s;
	s->pass.lock = &context->lock;
	atomic_init(&s->loan.refs, 1); /* of the struct: it is never given to the pool */
	s->loan.release = kept;
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
		if (!leaf || !has_sender(s, leaf))
			continue;
		struct outbox *box = outbox_for(s, leaf->sent_rank);
		if (!box || !reach(s, leaf->sent_rank) ||
		    !pool_grow_few(s->pass.pool, (void **)&box->ids, &box->ids_capacity, box->ids_n, sizeof *box->ids,
				   box->few_ids))
			return fail_memory(err, "backward", sizeof *box);
		box->ids[box->ids_n++] = leaf->sent_id;
	}
	return FAR_OK;
}

/* ---- sending: without the lock ---- */

/** The time that a call of the step has. */
static uint64_t time_left(const struct sending *to, const struct far_train *train)
{
	if (to->timeout_ns == FAR_FOREVER || to->started_ns == 0)
		return to->timeout_ns;
	uint64_t used = train->now_ns() - to->started_ns;
	return used < to->timeout_ns ? to->timeout_ns - used : 1;
}

static enum far_status send_ids(const struct sending *to, const struct outbox *box, uint64_t timeout_ns,
				struct far_err *err)
{
	for (size_t at = 0; at < box->ids_n; at += IDS_MAX) {
		size_t n = box->ids_n - at < IDS_MAX ? box->ids_n - at : IDS_MAX;
		struct far_tensor ids = far_tensor_1d(FAR_U64, box->ids + at, n);
		TRY(task_call(to->task, box->rank, "far::backward::expect",
			      FAR_ARGS((int64_t)to->context, (int64_t)to->pass, to->flags, &ids), timeout_ns, err));
	}
	return FAR_OK;
}

/* Gradients of a call. */
struct batch {
	size_t bytes;         /* of elements and indices */
	uint64_t largest;     /* bytes of the gradients that the receiver makes of them, at most */
	bool packed;          /* some are compressed */
	struct far_val *list; /* number, values, index for each; none for a gradient of zero, and for the index of a
			       * dense one */
};

static enum far_status pack(struct batch *batch, struct far_val *items, struct parcel *parcel, int32_t rank,
			    struct far_err *err)
{
	struct gradient *g = &parcel->g;
	items[0] = far_int((int64_t)parcel->id);
	if (!g->set)
		return FAR_OK;
	if (g->values.t.strides)
		g->values.t.strides = g->values.strides; /* parcels move when there are more */
	batch->largest += far_tensor_bytes(&g->values.t);
	if (parcel->compressor)
		TRY(compress(parcel->compressor, rank, parcel->slot, g, &batch->packed, err));
	items[1] = far_tensor_val(&g->values.t);
	batch->bytes += far_tensor_bytes(&g->values.t);
	if (g->index.t.dtype == FAR_DTYPE_NONE)
		return FAR_OK;
	items[2] = far_tensor_val(&g->index.t);
	batch->bytes += far_tensor_bytes(&g->index.t);
	return FAR_OK;
}

static const char *receiver_of(const struct batch *batch)
{
	if (batch->largest < LARGE)
		return batch->packed ? "far::backward::packed" : "far::backward::gradient";
	return batch->packed ? "far::backward::packed_large" : "far::backward::large";
}

static void count(struct far_context *context, const struct batch *batch, size_t n)
{
	atomic_fetch_add_explicit(&context->messages_sent, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&context->gradients_sent, n, memory_order_relaxed);
	atomic_fetch_add_explicit(&context->bytes_sent, batch->bytes, memory_order_relaxed);
}

static enum far_status send_some(struct far_context *context, const struct sending *to, const struct outbox *box,
				 size_t at, size_t n, uint64_t timeout_ns, struct far_err *err)
{
	struct far_val few[3 * FEW];
	struct batch batch = {.list = n <= FEW ? few : pool_take(to->task->pool, n * 3 * sizeof *batch.list)};
	if (!batch.list)
		return fail_memory(err, "backward", n * 3 * sizeof *batch.list);
	enum far_status status = FAR_OK;
	memset(batch.list, 0, n * 3 * sizeof *batch.list);
	for (size_t i = 0; i < n && !status; i++)
		status = pack(&batch, batch.list + 3 * i, &box->parcels[at + i], box->rank, err);
	struct far_val list = far_list(batch.list, 3 * n);
	if (!status) {
		count(context, &batch, n);
		status = task_call(to->task, box->rank, receiver_of(&batch),
				   FAR_ARGS((int64_t)to->context, (int64_t)to->pass, list), timeout_ns, err);
	}
	if (batch.list != few)
		pool_give(batch.list);
	return status;
}

static enum far_status send_all(struct far_context *context, const struct sending *to, struct outbox *list,
				struct far_err *err)
{
	uint64_t timeout_ns = time_left(to, context->train);
	for (struct outbox *box = list; box; box = box->next) {
		TRY(send_ids(to, box, timeout_ns, err));
		for (size_t at = 0; at < box->parcels_n; at += IDS_MAX)
			TRY(send_some(context, to, box, at,
				      box->parcels_n - at < IDS_MAX ? box->parcels_n - at : IDS_MAX, timeout_ns, err));
	}
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

/* ---- steps ---- */

static enum far_status ended(const struct spread *s, enum far_status status, struct far_err *err)
{
	return !status && s->pass.ended ? fail(err, FAR_INVALID, "backward: the pass has ended") : status;
}

enum far_status spread_send(struct spread *s, const struct sending *to, struct far_err *err)
{
	struct far_context *context = s->context;
	struct outbox *list = s->outboxes;
	if (!list)
		return FAR_OK;
	s->outboxes = NULL;
	pthread_mutex_unlock(&context->lock);
	enum far_status status = send_all(context, to, list, err);
	outboxes_free(list);
	pthread_mutex_lock(&context->lock);
	return ended(s, status, err);
}

enum far_status spread_run(struct spread *s, struct sending *to, struct far_err *err)
{
	enum far_status status = FAR_OK;
	if (s->running)
		return FAR_OK;
	if (!pass_is_light(&s->pass))
		to->started_ns = s->context->train->now_ns();
	s->running = true;
	s->to = to;
	do {
		status = pass_run(&s->pass, err);
		if (!status)
			status = spread_send(s, to, err);
	} while (!status && pass_is_ready(&s->pass));
	s->running = false;
	return status;
}

enum far_status spread_run_elsewhere(struct spread *s, const struct sending *to, struct far_err *err)
{
	if (s->running || !pass_is_ready(&s->pass))
		return FAR_OK;
	pthread_mutex_unlock(&s->context->lock);
	enum far_status status = task_call(to->task, RANK_HERE, "far::backward::run",
					   FAR_ARGS((int64_t)to->context, (int64_t)to->pass), to->timeout_ns, err);
	pthread_mutex_lock(&s->context->lock);
	return ended(s, status, err);
}

void spread_step(struct spread *s, struct task *task, uint64_t timeout_ns, spread_step_fn *step,
		 const struct far_val *args)
{
	struct far_context *context = s->context;
	struct far_agent *agent = task->agent;
	struct far_err err = {0};
	struct sending to = {task, context->id, s->id, timeout_ns, 0, spread_flags(&s->pass)};
	s->users++;
	enum far_status status = step(s, &to, args, &err);
	s->users--;
	if (s->pass.ended) {
		if (s->users == 0)
			spread_free(s);
		pthread_mutex_unlock(&context->lock);
	} else if (status) {
		spread_abort(s, agent);
	} else {
		if (s->pass.left == 0 && !s->root && !s->running)
			spread_remove(s);
		pthread_mutex_unlock(&context->lock);
	}
	task_done(task, status, &err);
}

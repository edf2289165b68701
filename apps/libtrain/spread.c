/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The part of a backward pass on one worker. The thread that calls far_backward(), fibers,
 * and threads for blocking handlers.
 */
#include "outbox.h"

#define SENT_FEW  256   /* variables sent in a context, to look at in each request */
#define EARLY_MAX 32768 /* bytes of a gradient of the first part, which its receiver reads on a fiber */

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
	while (s->peers) {
		struct peer *last = s->peers;
		s->peers = last->next;
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
	box->finish = box->complete = false;
	box->ids = box->few_ids;
	box->parcels = box->few_parcels;
	box->ids_capacity = box->parcels_capacity = FEW;
	box->ids_n = box->parcels_n = 0;
	box->next = s->outboxes;
	s->outboxes = box;
	return box;
}

/** NULL: no memory. */
static struct peer *peer_of(struct spread *s, int32_t rank)
{
	struct peer *peer = s->peers;
	while (peer && peer->rank != rank)
		peer = peer->next;
	if (peer || !(peer = pool_take(s->pass.pool, sizeof *peer)))
		return peer;
	*peer = (struct peer){.next = s->peers, .rank = rank};
	s->peers = peer;
	return peer;
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
	struct peer *peer = peer_of(s, leaf->sent_rank);
	if (!box || !peer ||
	    !pool_grow_few(s->pass.pool, (void **)&box->parcels, &box->parcels_capacity, box->parcels_n,
			   sizeof *box->parcels, box->few_parcels))
		return fail_memory(err, "backward", sizeof *box);
	struct parcel *parcel = &box->parcels[box->parcels_n++];
	*parcel = (struct parcel){.id = leaf->sent_id, .slot = leaf->sent_id};
	gradient_move(&parcel->g, sum);
	peer->taken++;
	if (leaf->compressor) {
		parcel->compressor = compressor_ref(leaf->compressor);
		parcel->slot = leaf->compressor_slot;
	} else if (s->context->compressor) {
		parcel->compressor = compressor_ref(s->context->compressor);
	}
	return FAR_OK;
}

/**
 * May a leaf run in the first part. Its gradient then goes with its number, so that it cannot come before; what is long
 * or compressed goes in the second part.
 */
static bool is_early(void *user, uint32_t at)
{
	const struct spread *s = user;
	const struct entry *entry = &s->pass.entries[at];
	const struct far_var *leaf = entry->leaf;
	if (!has_sender(s, leaf))
		return s->pass.known;
	if (at < s->announced || leaf->compressor || s->context->compressor ||
	    far_tensor_bytes(&leaf->value.t) > EARLY_MAX)
		return false;
	return pass_is_closed(&s->pass, entry);
}

static enum far_status flush(void *user, struct far_err *err)
{
	struct spread *s = user;
	return spread_send(s, s->to, err);
}

struct spread *spread_new(struct far_context *context, uint64_t id, int64_t flags)
{
	struct spread *s = pool_zero(context->train->pool, sizeof *s);
	if (!s)
		return NULL;
	s->context = context;
	s->id = id;
	s->serial = context->spreads_made++;
	s->pass.pool = context->train->pool;
	s->pass.grads = context->grads;
	s->pass.opts.retain_graph = flags & FLAG_RETAIN;
	s->pass.opts.allow_changed = flags & FLAG_CHANGED;
	s->pass.leaf = take_leaf;
	s->pass.early = is_early;
	s->pass.flush = flush;
	s->pass.user = s;
	s->pass.lock = &context->lock;
	atomic_init(&s->loan.refs, 1); /* of the struct: it is never given to the pool */
	s->loan.borrowed = true;
	s->next = context->spreads;
	context->spreads = s;
	return s;
}

int64_t spread_flags(const struct pass *pass)
{
	return (pass->opts.retain_graph ? FLAG_RETAIN : 0) | (pass->opts.allow_changed ? FLAG_CHANGED : 0);
}

/** Went a variable to one worker alone, which has announced all that it has. */
static bool is_settled(const struct spread *s, const struct wire *wire)
{
	const struct peer *peer = s->peers;
	while (peer && peer->rank != wire->answer_to)
		peer = peer->next;
	return peer && peer->complete && atomic_load_explicit(&wire->copies, memory_order_relaxed) <= 1;
}

/** Finds out whether edges from other workers may be unknown, and to which entries. */
static void settle(struct spread *s)
{
	const struct far_context *context = s->context;
	bool sees = context->forwards == wire_forwards() && context->sent_n <= SENT_FEW;
	s->pass.known = sees;
	for (size_t i = 0; i < s->pass.n; i++)
		s->pass.entries[i].open = !sees;
	for (size_t i = 0; i < context->sent_n && sees; i++) {
		const struct wire *wire = context->sent[i];
		if (wire->id == 0 || is_settled(s, wire))
			continue;
		struct entry *entry = pass_entry(&s->pass, wire->var);
		s->pass.known = false;
		if (entry)
			entry->open = true;
	}
}

enum far_status spread_complete(struct spread *s, int32_t from, int64_t flags, struct far_err *err)
{
	struct peer *peer = flags & FLAG_COMPLETE ? peer_of(s, from) : NULL;
	if (flags & FLAG_COMPLETE && !peer)
		return fail_memory(err, "backward", sizeof *peer);
	if (peer)
		peer->complete = true;
	return FAR_OK;
}

enum far_status spread_follow(struct spread *s, struct far_err *err)
{
	TRY(pass_discover(&s->pass, err));
	if (pass_is_light(&s->pass)) {
		settle(s);
		TRY(pass_early(&s->pass, err));
	}
	for (; s->announced < s->pass.n; s->announced++) {
		const struct far_var *leaf = s->pass.entries[s->announced].leaf;
		if (!leaf || !has_sender(s, leaf))
			continue;
		struct outbox *box = outbox_for(s, leaf->sent_rank);
		struct peer *peer = peer_of(s, leaf->sent_rank);
		if (!box || !peer ||
		    !pool_grow_few(s->pass.pool, (void **)&box->ids, &box->ids_capacity, box->ids_n, sizeof *box->ids,
				   box->few_ids))
			return fail_memory(err, "backward", sizeof *box);
		box->ids[box->ids_n++] = leaf->sent_id;
		peer->reached = true;
		peer->announced++;
		box->complete = box->ids_n == peer->announced && box->ids_n <= IDS_MAX &&
				s->context->forwards == wire_forwards() &&
				peer->announced == context_received(s->context, peer->rank);
	}
	return FAR_OK;
}

enum far_status spread_start(struct spread *s, struct far_err *err)
{
	if (s->pass.started)
		return FAR_OK;
	TRY(pass_start(&s->pass, err));
	for (const struct peer *peer = s->peers; peer; peer = peer->next) {
		if (peer->taken == 0)
			continue;
		struct outbox *box = outbox_for(s, peer->rank);
		if (!box)
			return fail_memory(err, "backward", sizeof *box);
		box->finish = true;
	}
	return FAR_OK;
}

/* ---- the end of the first part ---- */

void spread_engage(struct spread *s, struct task *task)
{
	s->open++;
	if (!s->root && !s->engaged)
		s->engaged = task;
	task->context = context_ref(s->context);
	task->pass = s->id;
	task->serial = s->serial;
}

static bool is_over(const struct spread *s)
{
	return s->pass.left == 0 && !s->root && s->users == 0 && s->open == 0 && (s->pass.started || !s->held);
}

bool spread_answer(const struct task *task)
{
	struct far_context *context = task->context;
	bool held = task->held;
	pthread_mutex_lock(&context->lock);
	struct spread *s = spread_find(context, task->pass);
	if (s && s->serial == task->serial) {
		s->open--;
		s->held |= held;
		if (s->engaged == task) {
			s->engaged = NULL;
			held |= s->pass.left > 0;
		}
		if (is_over(s))
			spread_remove(s);
	}
	pthread_mutex_unlock(&context->lock);
	return held;
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
	struct peer *list = s->peers;
	s->peers = NULL;
	spread_remove(s);
	pthread_mutex_unlock(&context->lock);
	while (list) {
		struct peer *to = list;
		struct far_future *f = NULL;
		list = to->next;
		/* Where it does not arrive, the end of the context frees the pass. */
		if (to->reached &&
		    far_rpc_async_to(agent, (struct far_to){to->rank, -1}, "far::backward::abort",
				     FAR_ARGS((int64_t)context->id, (int64_t)id), NULL, &f, NULL) == FAR_OK)
			far_future_on_done(f, ignore, NULL, NULL);
		far_future_free(f);
		pool_give(to);
	}
}

/* ---- steps ---- */

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
	return spread_status(s, status, err);
}

void spread_step(struct spread *s, struct task *task, uint64_t timeout_ns, spread_step_fn *step,
		 const struct far_val *args, const struct far_req *req)
{
	struct far_context *context = s->context;
	struct far_agent *agent = task->agent;
	struct far_err err = {0};
	struct sending to = {task, context->id, s->id, timeout_ns, 0, spread_flags(&s->pass), req};
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
		if (is_over(s))
			spread_remove(s);
		pthread_mutex_unlock(&context->lock);
	}
	task_done(task, status, &err);
}

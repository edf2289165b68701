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
	bool finish;   /* it has gradients of the first part, and is to begin its second */
	bool complete; /* `ids` are the last ones that there can be, and all in one call */
	uint64_t *ids; /* of the first part */
	size_t ids_n, ids_capacity;
	struct parcel *parcels; /* with `ids`: of these; else of the second part */
	size_t parcels_n, parcels_capacity;
	uint64_t few_ids[FEW];
	struct parcel few_parcels[FEW];
};

/* A worker that the pass has reached from here, or that has reached this one. */
struct peer {
	struct peer *next;
	int32_t rank;
	bool reached;
	bool complete;             /* it has announced all of its variables that are from here */
	uint64_t announced, taken; /* variables from there; of these, whose gradients were written to its outbox */
};

#define FLAG_RETAIN   1
#define FLAG_CHANGED  2
#define FLAG_COMPLETE 4     /* no other variables from there are here */
#define IDS_MAX       4096  /* variables of one call */
#define LARGE         65536 /* bytes of gradients whose receiver does not copy them on a fiber */
#define SENT_FEW      256   /* variables sent in a context, to look at in each request */
#define EARLY_MAX     4096  /* bytes of a gradient of the first part, which its receiver may have to copy */

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

/* ---- sending: without the lock ---- */

/** The time that a call of the step has. */
static uint64_t time_left(const struct sending *to, const struct far_train *train)
{
	if (to->timeout_ns == FAR_FOREVER || to->started_ns == 0)
		return to->timeout_ns;
	uint64_t used = train->now_ns() - to->started_ns;
	return used < to->timeout_ns ? to->timeout_ns - used : 1;
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

/* A part of what is in an outbox. */
struct part {
	size_t ids_at, ids_n; /* 0: of the second part of the pass */
	size_t parcels_at, parcels_n;
	bool complete; /* the receiver gets FLAG_COMPLETE */
};

static enum far_status send_part(struct far_context *context, const struct sending *to, const struct outbox *box,
				 const struct part *part, uint64_t timeout_ns, struct far_err *err)
{
	struct far_val few[3 * FEW];
	size_t n = part->parcels_n;
	struct batch batch = {.list = n <= FEW ? few : pool_take(to->task->pool, n * 3 * sizeof *batch.list)};
	if (!batch.list)
		return fail_memory(err, "backward", n * 3 * sizeof *batch.list);
	enum far_status status = FAR_OK;
	memset(batch.list, 0, n * 3 * sizeof *batch.list);
	for (size_t i = 0; i < n && !status; i++)
		status = pack(&batch, batch.list + 3 * i, &box->parcels[part->parcels_at + i], box->rank, err);
	struct far_val list = far_list(batch.list, 3 * n);
	struct far_tensor ids = far_tensor_1d(FAR_U64, box->ids + part->ids_at, part->ids_n);
	if (!status && n > 0)
		count(context, &batch, n);
	if (!status && part->ids_n > 0)
		status = task_call(to->task, box->rank, "far::backward::expect",
				   FAR_ARGS((int64_t)to->context, (int64_t)to->pass,
					    to->flags | (part->complete ? FLAG_COMPLETE : 0), &ids, list),
				   timeout_ns, err);
	else if (!status)
		status = task_call(to->task, box->rank, receiver_of(&batch),
				   FAR_ARGS((int64_t)to->context, (int64_t)to->pass, list), timeout_ns, err);
	if (batch.list != few)
		pool_give(batch.list);
	return status;
}

static size_t next_part(size_t at, size_t n)
{
	return n - at < IDS_MAX ? n - at : IDS_MAX;
}

/** Gradients of the first part are few, and go with the first numbers: those are all. */
static enum far_status send_box(struct far_context *context, const struct sending *to, const struct outbox *box,
				uint64_t timeout_ns, struct far_err *err)
{
	struct part part = {.parcels_n = box->ids_n > 0 ? box->parcels_n : 0, .complete = box->complete};
	for (; part.ids_at < box->ids_n; part.ids_at += part.ids_n, part.parcels_n = 0) {
		part.ids_n = next_part(part.ids_at, box->ids_n);
		TRY(send_part(context, to, box, &part, timeout_ns, err));
	}
	if (box->ids_n > 0)
		return FAR_OK;
	if (box->finish)
		TRY(task_call(to->task, box->rank, "far::backward::finish",
			      FAR_ARGS((int64_t)to->context, (int64_t)to->pass), timeout_ns, err));
	for (; part.parcels_at < box->parcels_n; part.parcels_at += part.parcels_n) {
		part.parcels_n = next_part(part.parcels_at, box->parcels_n);
		TRY(send_part(context, to, box, &part, timeout_ns, err));
	}
	return FAR_OK;
}

static enum far_status send_all(struct far_context *context, const struct sending *to, struct outbox *list,
				struct far_err *err)
{
	uint64_t timeout_ns = time_left(to, context->train);
	for (struct outbox *box = list; box; box = box->next)
		TRY(send_box(context, to, box, timeout_ns, err));
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

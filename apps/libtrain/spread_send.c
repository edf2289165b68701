/* SPDX-License-Identifier: BSD-3-Clause */
/** Sends what is in the outboxes of a backward pass, in calls and answers. The threads of spread.c. */
#include "outbox.h"
#include "rows.h"

#define LARGE 65536 /* bytes of gradients whose receiver does not copy them on a fiber */

/* ---- without context->lock ---- */

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

/** Makes batch->list, in `few` if it is short; batch_end() follows. */
static enum far_status pack_part(struct far_context *context, const struct outbox *box, const struct part *part,
				 struct far_val few[3 * FEW], struct batch *batch, struct far_err *err)
{
	size_t n = part->parcels_n;
	enum far_status status = FAR_OK;
	*batch = (struct batch){.list = n <= FEW ? few : pool_take(context->train->pool, n * 3 * sizeof *batch->list)};
	if (!batch->list)
		return fail_memory(err, "backward", n * 3 * sizeof *batch->list);
	memset(batch->list, 0, n * 3 * sizeof *batch->list);
	for (size_t i = 0; i < n && !status; i++)
		status = pack(batch, batch->list + 3 * i, &box->parcels[part->parcels_at + i], box->rank, err);
	if (!status && n > 0)
		count(context, batch, n);
	return status;
}

static void batch_end(struct batch *batch, const struct far_val few[3 * FEW])
{
	if (batch->list != few)
		pool_give(batch->list);
}

static enum far_status send_part(struct far_context *context, const struct sending *to, const struct outbox *box,
				 const struct part *part, uint64_t timeout_ns, struct far_err *err)
{
	struct far_val few[3 * FEW];
	struct batch batch;
	enum far_status status = pack_part(context, box, part, few, &batch, err);
	struct far_val list = far_list(batch.list, 3 * part->parcels_n);
	struct far_tensor ids = far_tensor_1d(FAR_U64, box->ids + part->ids_at, part->ids_n);
	if (!status && part->ids_n > 0)
		status = task_call(to->task, box->rank, "far::backward::expect",
				   FAR_ARGS((int64_t)to->context, (int64_t)to->pass,
					    to->flags | (part->complete ? FLAG_COMPLETE : 0), &ids, list),
				   timeout_ns, err);
	else if (!status)
		status = task_call(to->task, box->rank, receiver_of(&batch),
				   FAR_ARGS((int64_t)to->context, (int64_t)to->pass, list), timeout_ns, err);
	batch_end(&batch, few);
	return status;
}

void spread_answer_list(struct task *task, bool held)
{
	struct outbox *box = task->back;
	struct far_val few[3 * FEW];
	struct part part = {.parcels_n = box->parcels_n};
	struct batch batch;
	struct far_err err = {0};
	enum far_status status = pack_part(task->context, box, &part, few, &batch, &err);
	struct far_tensor ids = far_tensor_1d(FAR_U64, box->ids, box->ids_n);
	const struct far_val items[] = {far_bool(held), far_int(box->complete ? FLAG_COMPLETE : 0),
					far_tensor_val(&ids), far_list(batch.list, 3 * box->parcels_n)};
	struct far_val list = far_list(items, sizeof items / sizeof *items);
	if (status)
		far_deferred_fail(task->request, status, err.code, "%s", err.text);
	else
		far_deferred_return(task->request, &list);
	batch_end(&batch, few);
}

/* ---- with context->lock ---- */

enum far_status spread_send_back(struct spread *s, struct task *task, int32_t to, struct far_err *err)
{
	struct outbox *box = s->outboxes;
	if (s->root || !box || box->next || box->rank != to || box->ids_n == 0 || box->ids_n > IDS_MAX)
		return FAR_OK;
	for (size_t i = 0; i < box->parcels_n; i++) /* the pass, and what it has of the request, may end first */
		if (box->parcels[i].g.set)
			TRY(gradient_own(s->pass.pool, &box->parcels[i].g, err));
	task->back = box;
	s->outboxes = NULL;
	return FAR_OK;
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

enum far_status spread_status(const struct spread *s, enum far_status status, struct far_err *err)
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
	return spread_status(s, status, err);
}

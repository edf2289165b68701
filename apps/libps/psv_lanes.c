/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Sends the requests of a round and takes the answers over where they arrive, without a copy. A lane sends one request
 * after the other: of a small operation each request is a lane, of a large one each shard has one, so that a request of
 * another operation waits for one of them at most. Started by any thread; continued by the thread that polls the shard.
 */
#include "psv_op.h"

#include "ps_mutant.h"
#include "psv_env.h"
#include <farcall/message.h>
#include <stdio.h>

struct psv_lane {
	struct psv_op *op;
	uint32_t chunk; /* of this round: the one that is sent */
	bool alone;     /* the lane has no other */
	struct far_future *sent;
};

static bool must_stop(struct psv_op *op)
{
	pthread_mutex_lock(&op->lanes_lock);
	bool stop = op->again || (op->err.status && !op->partial);
	pthread_mutex_unlock(&op->lanes_lock);
	return stop;
}

static void take(struct psv_lane *l, const char *reply)
{
	pthread_mutex_lock(&l->op->lanes_lock);
	psv_take(l->op, l->chunk, reply);
	pthread_mutex_unlock(&l->op->lanes_lock);
}

static void take_error(struct psv_lane *l, enum far_status status, const struct far_err *err)
{
	struct far_target_result *r = &l->op->results[l->chunk];
	*r = (struct far_target_result){
		.status = status, .executed = err->executed, .code = err->code, .from = l->op->targets[l->chunk].to};
	snprintf(r->text, sizeof r->text, "%.*s", (int)sizeof r->text - 1, err->text);
	take(l, NULL);
}

bool psv_lanes_end(struct psv_op *op)
{
	return atomic_fetch_sub_explicit(&op->lanes_left, 1, memory_order_acq_rel) == 1;
}

static void end(struct psv_op *op)
{
	if (psv_lanes_end(op))
		psv_round_over(op);
}

/* The next chunk of the lane's slot. False: there is none. */
static bool next_chunk(struct psv_lane *l)
{
	const struct psv_op *op = l->op;
	if (l->alone) /* and chunks may still be added */
		return false;
	uint32_t n = op->to - op->from, c = l->chunk + 1;
	while (c < n && op->d.chunk[op->from + c].slot != op->d.chunk[op->from + l->chunk].slot)
		c++;
	if (c < n)
		l->chunk = c;
	return c < n;
}

static void go(struct psv_lane *l);

static void go_on(struct psv_lane *l)
{
	if (must_stop(l->op) || !next_chunk(l))
		end(l->op);
	else
		go(l);
}

static void on_reply(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	struct psv_lane *l = user;
	if (status) {
		take_error(l, status, err);
	} else {
		l->op->results[l->chunk] = (struct far_target_result){.len = len, .from = l->op->targets[l->chunk].to};
		take(l, data);
	}
	go_on(l);
}

static void on_waited(struct far_future *f, void *user)
{
	struct psv_lane *l = user;
	take(l, l->op->targets[l->chunk].recv_buf);
	go_on(l);
	far_future_free(f);
}

/* Sends the lane's chunk once the shard has room for it. */
static enum far_status send_later(struct psv_lane *l, uint64_t left_ns, struct far_err *err)
{
	struct psv_op *op = l->op;
	struct far_fanout_opts opts = {.timeout_ns = left_ns, .partial = true, .errors = FAR_ERRORS_COLLECT};
	enum far_status status = far_msg_fanout(op->ps->agent, op->ps->message, NULL, 0, &op->targets[l->chunk], 1,
						&opts, &op->results[l->chunk], &l->sent, err);
	if (status)
		return status;
	struct far_future *sent = l->sent;
	status = far_future_on_done(sent, on_waited, l, err); /* which may run here, and end the operation */
	if (status)
		far_future_free(sent);
	return status;
}

/* Sends the lane's chunk. Values, and those of functions, are read after the answer was taken over: they are copied. */
static enum far_status send_chunk(struct psv_lane *l, uint64_t left_ns, struct far_err *err)
{
	const struct psv_op *op = l->op;
	const struct far_target *t = &op->targets[l->chunk];
	struct far_call_opts opts = {.timeout_ns = left_ns};
	if (op->kind == PSV_GET_VALUES || psv_is_call(op->kind))
		opts.recv_buf = (struct far_recv_buf){.data = t->recv_buf, .cap = t->cap};
	enum far_status status =
		far_msg_send(op->ps->agent, t->to, op->ps->message, t->data, t->len, &opts, on_reply, l, err);
	return status == FAR_BUSY ? send_later(l, left_ns, err) : status;
}

/* Sends the lane's chunk, or ends the lane. */
static void go(struct psv_lane *l)
{
	struct psv_op *op = l->op;
	struct far_err err;
	uint64_t now = psv_now_ns(), end_ns = op->deadline_ns;
	if (now < end_ns) {
		uint64_t left =
			end_ns == UINT64_MAX ? FAR_FOREVER : (end_ns - now) * (PS_MUTANT(DEADLINE_LATE) ? 10 : 1);
		enum far_status status = psv_op_fill(op, l->chunk, &err);
		if (!status)
			status = send_chunk(l, left, &err);
		if (!status)
			return;
		take_error(l, status, &err);
	}
	end(op);
}

size_t psv_lane_bytes(const struct psv_op *op)
{
	size_t most = 0;
	for (uint32_t c = op->from; c < op->to; c++) {
		size_t bytes = psv_op_request_bytes(op, &op->d.chunk[c]);
		most = bytes > most ? bytes : most;
	}
	return (most + 7) / 8 * 8;
}

void psv_op_address(struct psv_op *op, uint32_t from, char **out, char **in)
{
	for (uint32_t c = from; c < op->to - op->from; c++) {
		const struct psv_chunk *chunk = &op->d.chunk[op->from + c];
		size_t bytes = psv_op_request_bytes(op, chunk), room = psv_reply_room(op, chunk);
		op->targets[c] = (struct far_target){.to = op->view->slot[chunk->slot],
						     .data = *out + chunk->slot * op->lane_bytes,
						     .len = bytes,
						     .recv_buf = *in,
						     .cap = room};
		*out += op->lane_bytes ? 0 : (bytes + 7) / 8 * 8;
		*in += room;
	}
}

size_t psv_lanes_bytes(uint32_t lanes)
{
	return lanes * sizeof(struct psv_lane);
}

void psv_lanes_begin(struct psv_op *op, void *memory)
{
	op->lanes = memory;
	op->lanes_n = 0;
	atomic_store_explicit(&op->lanes_left, 1, memory_order_relaxed);
}

void psv_lanes_send(struct psv_op *op, uint32_t from)
{
	struct psv_lane *lanes = op->lanes;
	bool has_lane[FAR_PS_SHARDS_MAX] = {false}, alone = !op->large;
	uint32_t first = op->lanes_n, n = first;
	for (uint32_t c = from; op->from + c < op->to; c++) {
		bool *has = &has_lane[op->d.chunk[op->from + c].slot];
		if (alone || !*has)
			lanes[n++] = (struct psv_lane){.op = op, .chunk = c, .alone = alone};
		*has = true;
	}
	op->lanes_n = n;
	atomic_fetch_add_explicit(&op->lanes_left, n - first, memory_order_relaxed);
	for (uint32_t i = first; i < n; i++)
		go(&lanes[i]);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Sends the requests of a large operation to each shard one after the other: a request of another operation waits for
 * one of them at most. Each shard has a lane, which goes on by itself. Started by any thread; continued by the thread
 * that polls the shard.
 */
#include "psv_op.h"

#include "psv_env.h"
#include <stdio.h>

struct psv_lane {
	struct psv_op *op;
	uint32_t chunk; /* of this round: the one that is sent */
	struct far_future *sent;
};

static bool must_stop(struct psv_op *op)
{
	pthread_mutex_lock(&op->lanes_lock);
	bool stop = op->again || (op->err.status && !op->partial);
	pthread_mutex_unlock(&op->lanes_lock);
	return stop;
}

static void take(struct psv_lane *l)
{
	pthread_mutex_lock(&l->op->lanes_lock);
	psv_take(l->op, l->chunk);
	pthread_mutex_unlock(&l->op->lanes_lock);
}

/* The round is over with the last lane. */
static void end(struct psv_op *op)
{
	if (atomic_fetch_sub_explicit(&op->lanes_left, 1, memory_order_acq_rel) == 1)
		psv_round_over(op);
}

/* The next chunk of the lane's slot. False: there is none. */
static bool next_chunk(struct psv_lane *l)
{
	const struct psv_op *op = l->op;
	uint32_t n = op->to - op->from, c = l->chunk + 1;
	while (c < n && op->d.chunk[op->from + c].slot != op->d.chunk[op->from + l->chunk].slot)
		c++;
	if (c < n)
		l->chunk = c;
	return c < n;
}

static void go(struct psv_lane *l);

static void on_sent(struct far_future *f, void *user)
{
	struct psv_lane *l = user;
	struct psv_op *op = l->op;
	take(l);
	if (must_stop(op) || !next_chunk(l))
		end(op);
	else
		go(l);
	far_future_free(f);
}

/* Sends the lane's chunk. */
static enum far_status send_chunk(struct psv_lane *l, uint64_t left_ns, struct far_err *err)
{
	struct psv_op *op = l->op;
	struct far_fanout_opts opts = {.timeout_ns = left_ns, .partial = true, .errors = FAR_ERRORS_COLLECT};
	enum far_status status = far_msg_fanout(op->ps->agent, op->ps->message, NULL, 0, &op->targets[l->chunk], 1,
						&opts, &op->results[l->chunk], &l->sent, err);
	if (status)
		return status;
	struct far_future *sent = l->sent;
	status = far_future_on_done(sent, on_sent, l, err); /* which may run here, and end the operation */
	if (status)
		far_future_free(sent);
	return status;
}

/* Sends the lane's chunk, or ends the lane. */
static void go(struct psv_lane *l)
{
	struct psv_op *op = l->op;
	struct far_err err;
	uint64_t now = psv_now_ns(), end_ns = op->deadline_ns;
	if (now >= end_ns) {
		end(op);
		return;
	}
	enum far_status status = send_chunk(l, end_ns == UINT64_MAX ? FAR_FOREVER : end_ns - now, &err);
	if (!status)
		return;
	struct far_target_result *r = &op->results[l->chunk];
	*r = (struct far_target_result){.status = status, .code = err.code, .from = op->targets[l->chunk].to};
	snprintf(r->text, sizeof r->text, "%.*s", (int)sizeof r->text - 1, err.text);
	take(l);
	end(op);
}

size_t psv_lanes_bytes(const struct psv_op *op)
{
	return op->view->slots * sizeof(struct psv_lane);
}

void psv_lanes_begin(struct psv_op *op, void *memory)
{
	struct psv_lane *lanes = memory;
	bool has_lane[FAR_PS_SHARDS_MAX] = {false};
	uint32_t n = 0;
	for (uint32_t c = 0; op->from + c < op->to && n < op->view->slots; c++) {
		bool *has = &has_lane[op->d.chunk[op->from + c].slot];
		if (!*has)
			lanes[n++] = (struct psv_lane){.op = op, .chunk = c};
		*has = true;
	}
	/* One more, so that the operation exists until all are begun. */
	atomic_store_explicit(&op->lanes_left, n + 1, memory_order_relaxed);
	for (uint32_t i = 0; i < n; i++)
		go(&lanes[i]);
	end(op);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The sum of an array over the workers [0, workers), which all call the same function: x[0, n) becomes the sum, with
 * the same bits everywhere. One thread of each worker. Slots of the inbox: the ring uses [0, 2 * (workers - 1)), the
 * tree those from TREE_SLOT on.
 */
#ifndef EXAMPLES_ALLREDUCE_H
#define EXAMPLES_ALLREDUCE_H

#include "inbox.h"

enum { TREE_SLOT = INBOX_SLOTS - 4, PING_SLOT = INBOX_SLOTS - 1, WORKERS_MAX = TREE_SLOT / 2 };

/** Takes n floats from a slot: adds them to x, or copies them. */
static enum far_status take_floats(int slot, float *x, size_t n, bool add, struct far_err *err)
{
	struct far_val v;
	if (inbox_take(slot, &v, err))
		return err->status;
	const float *in = v.u.t.data;
	bool fits = v.u.t.dtype == FAR_F32 && far_tensor_count(&v.u.t) == n;
	for (size_t i = 0; fits && i < n; i++)
		x[i] = add ? x[i] + in[i] : in[i];
	far_val_fini(&v);
	if (!fits)
		*err = (struct far_err){.status = FAR_BAD_ARGS, .text = "all-reduce: the arrays differ in length"};
	return err->status;
}

static enum far_status send_floats(struct far_agent *agent, int to, int slot, const float *x, size_t n,
				   struct far_err *err)
{
	struct far_tensor t = far_tensor_1d(FAR_F32, x, n);
	return inbox_send(agent, to, slot, &t, err);
}

/** Waits for what was sent, unless there was an error before. */
static enum far_status end_scope(struct far_scope *sent, struct far_err *err)
{
	if (err->status)
		far_scope_abandon(sent);
	else
		far_scope_end(sent, 0, err);
	return err->status;
}

/**
 * Each worker sends a part of 1/workers to the next one, which adds its own and passes it on; then the sums go round
 * once more. 2 * (workers - 1) messages of n / workers floats, one after the other.
 */
static enum far_status ring_all_reduce(struct far_agent *agent, int workers, float *x, size_t n, struct far_err *err)
{
	int me = far_self(agent).worker;
	struct far_scope sent;
	far_scope_begin(&sent);
	for (int s = 0; s < 2 * (workers - 1) && !err->status; s++) {
		size_t out = (size_t)(me - s + 2 * workers) % (size_t)workers, w = (size_t)workers;
		size_t in = (out + w - 1) % w, from = n * out / w, at = n * in / w;
		send_floats(agent, (me + 1) % workers, s, x + from, n * (out + 1) / w - from, err);
		if (!err->status)
			take_floats(s, x + at, n * (in + 1) / w - at, s < workers - 1, err);
	}
	return end_scope(&sent, err);
}

/** Worker k sums what workers 2k + 1 and 2k + 2 send, and sends the sum to (k - 1) / 2; the total comes back the same
 * way. As many messages of n floats one after the other as two times the depth of the tree. */
static enum far_status tree_all_reduce(struct far_agent *agent, int workers, float *x, size_t n, struct far_err *err)
{
	int me = far_self(agent).worker;
	struct far_scope sent;
	far_scope_begin(&sent);
	for (int k = 0; k < 2 && 2 * me + 1 + k < workers && !err->status; k++)
		take_floats(TREE_SLOT + k, x, n, true, err);
	if (me > 0 && !err->status && !send_floats(agent, (me - 1) / 2, TREE_SLOT + (me - 1) % 2, x, n, err))
		take_floats(TREE_SLOT + 2, x, n, false, err);
	for (int k = 0; k < 2 && 2 * me + 1 + k < workers && !err->status; k++)
		send_floats(agent, 2 * me + 1 + k, TREE_SLOT + 2, x, n, err);
	return end_scope(&sent, err);
}

/** Prints the time of all-reduces beside the floor: that of their messages one after the other. */
static enum far_status all_reduce_measure(struct far_agent *agent, int workers, struct far_err *err)
{
	enum { LONG = 1 << 16, REPEAT = 50 };
	static float numbers[LONG];
	int me = far_self(agent).worker;
	double t[5] = {now()};
	size_t part[] = {LONG / (size_t)workers, LONG};
	for (int k = 0; k < 2; t[++k] = now()) /* messages of both lengths between workers 0 and 1, to and fro */
		for (int i = 0; i < REPEAT && me < 2 && workers > 1 && !err->status; i++)
			if (me || !send_floats(agent, 1, PING_SLOT, numbers, part[k], err))
				if (!take_floats(PING_SLOT, numbers, part[k], false, err) && me)
					send_floats(agent, 0, PING_SLOT, numbers, part[k], err);
	for (int k = 0; k < 2; t[k++ + 3] = now())
		for (int i = 0; i < REPEAT && !err->status; i++)
			(k ? tree_all_reduce : ring_all_reduce)(agent, workers, numbers, LONG, err);
	int depth = 0;
	while (workers >> (depth + 1))
		depth++;
	if (me == 0 && !err->status)
		printf("all-reduce of %d floats: ring %.0f us (floor %.0f), tree %.0f us (floor %.0f)\n", LONG,
		       1e6 / REPEAT * (t[3] - t[2]), 1e6 / REPEAT * (t[1] - t[0]) * (workers - 1),
		       1e6 / REPEAT * (t[4] - t[3]), 1e6 / REPEAT * (t[2] - t[1]) * depth);
	return err->status;
}

#endif

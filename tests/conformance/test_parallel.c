/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Data-parallel training beside calls: each worker is a trainer with a copy of the dense layer and data of its own, and
 * a parameter on another worker. Gradients of the dense layer are averaged by an all-gather. N3.
 */
#include "train.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 2, COLUMNS = 3 };

/** The average over the workers of a gradient that each has, or not: the same bits everywhere. */
static void average(struct far_context *c, struct far_var *leaf, double parts, float *out)
{
	struct far_gradient g;
	struct far_val mine = full(WIDTH, WIDTH, 0), all;
	const size_t n = WIDTH * WIDTH;
	if (far_grads_get(far_context_grads(c), leaf, &g))
		mine = far_tensor_val(&g.values);
	OK(far_all_gather(agent, NULL, 0, &mine, 0, &all, &err));
	memset(out, 0, n * sizeof *out);
	for (size_t r = 0; r < WORLD; r++)
		for (size_t i = 0; i < n; i++)
			out[i] += ((const float *)far_val_tensor(far_list_get(&all, r))->data)[i];
	for (size_t i = 0; i < n; i++)
		out[i] = (float)(out[i] / parts);
	far_val_fini(&all);
}

static void close_to(const float *a, const float *b)
{
	for (int i = 0; i < WIDTH * WIDTH; i++)
		HOLDS(fabsf(a[i] - b[i]) <= 1e-6f * (1 + fabsf(b[i])));
}

/* ---- the model: a remote weight, the dense layer, and what comes after it ---- */

/** The values of t::weight. */
static struct far_var *weight_here(void)
{
	struct far_var *v = leaf_of(WIDTH, WIDTH, 0, true);
	struct far_tensor t;
	OK(far_var_edit(v, &t, &err));
	for (int i = 0; i < WIDTH * WIDTH; i++)
		((float *)t.data)[i] = 0.5f + 0.25f * (float)i;
	return v;
}

static struct far_var *weight_there(struct far_context *c, struct far_rref *r)
{
	struct far_val v = {0};
	OK(far_rref_rpc_sync(r, "get", FAR_ARGS((int64_t)far_context_id(c)), NULL, &v, &err));
	struct far_var *var = far_tape_recv(tape, c, &v);
	far_val_fini(&v);
	return var;
}

/** What the dense layer gives for the data of a trainer. */
static struct far_var *forward(struct far_var *weight, struct far_var *layer, struct far_var *x)
{
	return far_tape_matmul(tape, layer, far_tape_tanh(tape, far_tape_matmul(tape, weight, x)));
}

static struct far_var *square_sum(struct far_var *y)
{
	return total(far_tape_mul(tape, y, y));
}

/** The data of a trainer. */
static struct far_var *data_of(int trainer, size_t columns)
{
	return far_tape_detach(tape, ramp(WIDTH, columns, 0.1 + 0.2 * trainer));
}

/** The gradient of the dense layer over the data of all trainers, computed here. */
static void whole_batch(const size_t *columns, double parts, float *out)
{
	struct far_var *weight = weight_here(), *layer = ramp(WIDTH, WIDTH, 0.4), *loss = NULL;
	struct far_grads *grads;
	struct far_gradient g;
	for (int r = 0; r < WORLD; r++) {
		if (columns[r] == 0)
			continue;
		struct far_var *part = square_sum(forward(weight, layer, data_of(r, columns[r])));
		loss = loss ? far_tape_add(tape, loss, part) : part;
	}
	OK(far_grads_new(pool, &grads, &err));
	OK(far_grads_backward(grads, &loss, 1, NULL, &err));
	HOLDS(far_grads_get(grads, layer, &g));
	for (int i = 0; i < WIDTH * WIDTH; i++)
		out[i] = (float)(((const float *)g.values.data)[i] / parts);
	far_grads_free(grads);
}

/** A step of all trainers; `inside`: what comes after the dense layer is on a third worker. Compares with the whole
 * batch. */
static void step(const size_t *columns, double parts, bool inside)
{
	float got[WIDTH * WIDTH], want[WIDTH * WIDTH];
	struct far_rref *r = REMOTE(peer(1), "t::weight", FAR_ARGS(0));
	struct far_context *c = begin();
	struct far_var *layer = ramp(WIDTH, WIDTH, 0.4);
	if (columns[rank] > 0) {
		struct far_var *y = forward(weight_there(c, r), layer, data_of(rank, columns[rank]));
		BACKWARD(c, inside ? total(CALL_VAR(c, peer(2), "t::mul", PAIR(c, y, y))) : square_sum(y));
	}
	average(c, layer, parts, got);
	whole_batch(columns, parts, want);
	close_to(got, want);
	far_context_end(c);
	far_rref_free(r);
}

TRAIN(N3, backward_ddp_outside)
{
	step((const size_t[WORLD]){COLUMNS, COLUMNS, COLUMNS, COLUMNS}, WORLD, false);
}

/* Each trainer has another number of samples, and counts with it. */
TRAIN(N3, backward_ddp_outside_uneven_inputs)
{
	step((const size_t[WORLD]){1, 2, 3, 4}, 1 + 2 + 3 + 4, false);
}

TRAIN(N3, backward_ddp_inside)
{
	step((const size_t[WORLD]){COLUMNS, COLUMNS, COLUMNS, COLUMNS}, WORLD, true);
}

/* With the same data everywhere, the average has the bits of each. */
TRAIN(N3, ddp_comparison)
{
	float got[WIDTH * WIDTH];
	struct far_gradient g;
	struct far_rref *r = REMOTE(peer(1), "t::weight", FAR_ARGS(0));
	struct far_context *c = begin();
	struct far_var *layer = ramp(WIDTH, WIDTH, 0.4);
	BACKWARD(c, square_sum(forward(weight_there(c, r), layer, data_of(0, COLUMNS))));
	HOLDS(far_grads_get(far_context_grads(c), layer, &g));
	average(c, layer, WORLD, got);
	HOLDS(!memcmp(got, g.values.data, sizeof got));
	far_context_end(c);
	far_rref_free(r);
}

/* Trainers that have run out of data take part with zeros. */
TRAIN(N3, ddp_comparison_uneven_inputs)
{
	step((const size_t[WORLD]){COLUMNS, COLUMNS, 0, 0}, WORLD, false);
	step((const size_t[WORLD]){COLUMNS, 1, 0, 1}, WORLD, true);
}

/* The same model with the weight there and here: the same bits, for the dense layer and for the data. */
TRAIN(N3, ddp_dist_autograd_local_vs_remote)
{
	struct far_rref *r = REMOTE(peer(1), "t::weight", FAR_ARGS(0));
	struct far_context *c = begin();
	struct far_var *layer = ramp(WIDTH, WIDTH, 0.4), *x = ramp(WIDTH, COLUMNS, 0.1 * (1 + rank));
	struct far_var *local = square_sum(forward(weight_here(), layer, x));
	struct far_grads *want;
	OK(far_grads_new(pool, &want, &err));
	OK(far_grads_backward(want, &local, 1, NULL, &err));
	BACKWARD(c, square_sum(forward(weight_there(c, r), layer, x)));
	SAME_GRADIENT(c, layer, want);
	SAME_GRADIENT(c, x, want);
	far_grads_free(want);
	far_context_end(c);
	far_rref_free(r);
}

/* Each trainer has a copy of a table: the average is that of the rows that any of them used. */
TRAIN(N3, ddp_dist_autograd_sparse_grads)
{
	enum { ROWS = 6 };
	const int64_t ids[] = {rank, rank + 1, rank + 1};
	struct far_tensor index = far_tensor_1d(FAR_I64, (void *)(uintptr_t)ids, 3);
	struct far_context *c = begin();
	struct far_gradient g;
	struct far_val all;
	double sums[ROWS] = {0};
	struct far_var *table = ramp(ROWS, WIDTH, 0.2), *ones = leaf_of(3, WIDTH, 1, false);
	struct far_var *rows = far_tape_embedding(tape, table, far_tape_input(tape, &index), true);
	BACKWARD(c, total(CALL_VAR(c, peer(1), "t::mul", PAIR(c, rows, ones))));
	HOLDS(far_grads_get(far_context_grads(c), table, &g) && g.index.dtype == FAR_I64);
	struct far_val items[] = {far_tensor_val(&g.index), far_tensor_val(&g.values)}, mine = far_list(items, 2);
	OK(far_all_gather(agent, NULL, 0, &mine, 0, &all, &err));
	for (size_t t = 0; t < WORLD; t++) {
		const struct far_val *of = far_list_get(&all, t);
		const struct far_tensor *at = far_val_tensor(far_list_get(of, 0));
		const float *values = far_val_tensor(far_list_get(of, 1))->data;
		for (size_t i = 0; i < far_tensor_count(at); i++)
			sums[((const int64_t *)at->data)[i]] += (double)values[i * WIDTH] / WORLD;
	}
	/* Trainer t used row t once and row t + 1 twice. */
	for (int i = 0; i < ROWS; i++)
		HOLDS(sums[i] == ((i < WORLD) + 2 * (i > 0 && i <= WORLD)) / (double)WORLD);
	far_val_fini(&all);
	far_context_end(c);
}

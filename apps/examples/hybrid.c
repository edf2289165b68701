/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Data-parallel training with a remote embedding: the last worker has a table of vectors, the others are trainers, each
 * with a copy of the dense layers and data of its own: bags of ids. Each id has a hidden value; a bag is good if their
 * sum is positive. A trainer looks up the vectors of its bags by a call. An all-reduce sums the gradients of the dense
 * layers; those of the table go back through the call. Main thread of each worker; handlers run on shard threads.
 *
 *	farcall run -n 5 -- ./hybrid
 */
#include "allreduce.h"
#include "args.h"
#include <farcall/train.h>

enum {
	IDS = 500,
	WIDTH = 16,
	HIDDEN = 32,
	ROWS = 64,
	BAG = 8,
	STEPS = 300,
	PARAMS = 4,
	FLOATS = WIDTH * HIDDEN + HIDDEN + HIDDEN + 1
};

static struct far_pool *pool;
static struct far_train *train;
static struct far_agent *agent;
static struct far_tape *tape;
static struct far_var *table, *params[PARAMS]; /* on the server; of the dense layers */
static struct far_module *dense;
static int me, trainers;

/** On the server: the vectors of ids [rows, bag]. */
FAR_HANDLER(lookup)
{
	struct far_tape *t;
	struct far_err err;
	struct far_context *context = far_context_of(train, req, &args[0], &err);
	if (!context || far_tape_new(pool, &t, &err))
		return far_fail(req, err.status, 0, "%s", err.text);
	far_tape_return(t, context, far_tape_embedding(t, table, far_tape_recv(t, context, &args[0]), true), req);
	far_tape_free(t), far_context_free(context);
	return FAR_OK;
}

FAR_HANDLER(table_reference)
{
	return far_return_object(req, far_var_ref(table));
}

/** Sums the gradients of the dense layers over the trainers, and makes a step with the sums. */
static enum far_status step_dense(struct far_grads *mine, struct far_grads *all, struct far_optimizer *optimizer,
				  struct far_err *err)
{
	struct far_gradient g[PARAMS];
	float sums[FLOATS], *at = sums;
	for (int i = 0; i < PARAMS && far_grads_get(mine, params[i], &g[i]); i++) {
		g[i].values.data = memcpy(at, g[i].values.data, far_tensor_bytes(&g[i].values));
		at += far_tensor_count(&g[i].values);
	}
	ring_all_reduce(agent, trainers, sums, FLOATS, err);
	far_grads_clear(all);
	for (int i = 0; i < PARAMS && !err->status; i++)
		far_grads_add(all, params[i], &g[i], err);
	return err->status ? err->status : far_optimizer_step(optimizer, all, err);
}

/** A step of this trainer with new bags; counts those that it judges right. */
static enum far_status step(int number, struct far_optimizer *local, struct far_dist_optimizer *remote,
			    struct far_grads *grads, float *right, struct far_err *err)
{
	static float noise[ROWS * BAG], good[ROWS];
	static int64_t ids[ROWS * BAG];
	struct far_tensor t = far_tensor_1d(FAR_F32, noise, ROWS * BAG), target = far_tensor_2d(FAR_F32, good, ROWS, 1);
	struct far_tensor index = far_tensor_2d(FAR_I64, ids, ROWS, BAG);
	struct far_context *context;
	struct far_val out = far_none();
	far_op_rand((uint64_t)number, (uint64_t)me, &t, NULL);
	memset(good, 0, sizeof good), *right = 0;
	for (int i = 0; i < ROWS * BAG; i++) {
		ids[i] = (int64_t)(noise[i] * IDS);
		good[i / BAG] += (float)(ids[i] * 7919 % 97) - 48; /* the hidden value */
	}
	if (far_context_begin(train, &context, err))
		return err->status;
	struct far_val in = far_context_send(context, far_tape_input(tape, &index), err);
	far_rpc_sync_to(agent, (struct far_to){trainers, -1}, "table::lookup", &in, 1, NULL, &out, err);
	struct far_var *x = err->status ? NULL : far_tape_recv(tape, context, &out);
	struct far_var *y = x ? far_module_forward(dense, tape, far_tape_sum(tape, x, (int[]){1}, 1, false)) : NULL;
	for (int i = 0; i < ROWS; i++)
		*right += y && (((const float *)far_var_tensor(y)->data)[i] > 0) == (good[i] > 0),
			good[i] = good[i] > 0;
	y = far_tape_bce_with_logits(tape, y, far_tape_input(tape, &target), FAR_OP_REDUCE_MEAN);
	if (!err->status && !far_tape_status(tape, err) && !far_backward(context, &y, 1, NULL, 0, err) &&
	    !step_dense(far_context_grads(context), grads, local, err))
		far_dist_optimizer_step(remote, context, 0, err);
	far_val_fini(&out), far_context_end(context), far_tape_reset(tape);
	return err->status;
}

static enum far_status learn(struct far_err *err)
{
	struct far_optimizer_opts adam = far_optimizer_defaults(FAR_OPTIMIZER_ADAM);
	struct far_optimizer_opts adagrad = far_optimizer_defaults(FAR_OPTIMIZER_ADAGRAD); /* takes sparse gradients */
	struct far_optimizer *local;
	struct far_dist_optimizer *remote;
	struct far_grads *grads;
	struct far_rref *ref;
	float right;
	adagrad.lr = 0.1;
	if (far_remote_to(agent, (struct far_to){trainers, -1}, "table::ref", FAR_NOARGS, NULL, &ref, err) ||
	    far_dist_optimizer_new(train, &adagrad, &ref, 1, 0, &remote, err) || far_grads_new(pool, &grads, err) ||
	    far_optimizer_new(pool, &adam, params, PARAMS, &local, err))
		return err->status;
	for (int i = 0; i < STEPS && !err->status; i++)
		step(i, local, remote, grads, &right, err);
	if (!err->status && !ring_all_reduce(agent, trainers, &right, 1, err) && me == 0)
		printf("%d trainers: %.2f %% of new bags right\n", trainers, 100 * right / (float)(trainers * ROWS));
	far_dist_optimizer_free(remote), far_optimizer_free(local), far_grads_free(grads), far_rref_free(ref);
	return err->status;
}

int main(int argc, char **argv)
{
	const struct far_function functions[] = {
		INBOX_FUNCTION,
		{"table::lookup(far::Var ids) -> far::Var", FAR_KIND_BLOCKING, lookup, NULL, 0},
		{"table::ref() -> far::Parameter", FAR_KIND_INLINE, table_reference, NULL, 0}};
	struct far_opts opts = {.functions = functions, .functions_n = 3};
	struct far_init init = {.dtype = FAR_F32, .seed = 1};
	struct far_module *l[3];
	struct far_tensor zeros = far_tensor_2d(FAR_F32, NULL, IDS, WIDTH);
	struct far_err err = {0};
	args_read(argc, argv, "farcall run -n 5 -- ", "Data-parallel trainers, and a table on a server.", NULL, 0);
	if (inbox_init(&err) || far_pool_new(0, &pool, &err) || far_train_new(pool, &train, &err) ||
	    far_tape_new(pool, &tape, &err) || far_var_new(pool, &zeros, true, &table, &err) ||
	    far_module_linear(pool, &init, WIDTH, HIDDEN, true, &l[0], &err) ||
	    far_module_map(pool, FAR_MODULE_RELU, &l[1], &err) ||
	    far_module_linear(pool, &init, HIDDEN, 1, true, &l[2], &err) ||
	    far_module_sequential(pool, l, 3, &dense, &err) ||
	    far_train_init_rpc(train, "worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err))
		return far_err_print(stderr, &err);
	me = far_self(agent).worker, trainers = far_world_size(agent) - 1;
	far_module_parameters(dense, params, PARAMS);
	if ((me < trainers ? learn(&err) || all_reduce_measure(agent, trainers, &err) : far_serve(agent, 0, &err)) ||
	    far_shutdown(agent, 0, &err))
		return far_err_print(stderr, &err);
	return 0;
}

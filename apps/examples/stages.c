/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Training in a pipeline: 1, 2 or 4 workers share the layers of a network that learns the colours of a chessboard. A
 * stage runs a forward pass for each stage behind it, then backward and forward passes in turn (1F1B), MICRO per step.
 *
 *	farcall run -n 4 -- ./stages
 */
#include "args.h"
#include "inbox.h"
#include <farcall/module.h>
#include <farcall/optim.h>

enum { WIDTH = 96, LAYERS = 4, SQUARES = 2, MICRO = 8, ROWS = 64, STEPS = 100 }; /* LAYERS between first and last */

static struct far_agent *agent;
static int rank, stages;
static struct far_module *module;
static struct far_optimizer *optimizer;
static struct far_grads *grads;
static struct far_tape *tapes[MICRO];
static struct far_var *xs[MICRO], *ys[MICRO]; /* input, and result or loss */
static double busy, total, loss, right;       /* seconds in passes and in steps; loss and right points of a step */

static enum far_status forward(int step, int m, struct far_err *err)
{
	static int64_t colours[MICRO][ROWS]; /* the tape refers to them */
	float xy[ROWS][2];
	struct far_tensor first = far_tensor_2d(FAR_F32, xy, ROWS, 2);
	struct far_tensor target = far_tensor_1d(FAR_I64, colours[m], ROWS);
	struct far_val in = far_none();
	struct far_var *found = NULL;
	if (rank && inbox_take(m, &in, err))
		return err->status;
	double started = now();
	far_op_rand((uint64_t)(step * MICRO + m), 0, &first, NULL);
	for (int i = 0; i < ROWS; i++)
		colours[m][i] = ((int)(SQUARES * xy[i][0]) + (int)(SQUARES * xy[i][1])) % 2;
	far_tape_reset(tapes[m]), far_var_free(xs[m]);
	far_var_new(far_tape_pool(tapes[m]), rank ? &in.u.t : &first, rank > 0, &xs[m], err);
	far_val_fini(&in);
	ys[m] = err->status ? NULL : far_module_forward(module, tapes[m], xs[m]);
	if (ys[m] && rank == stages - 1) {
		far_tape_max_axis(tapes[m], ys[m], 1, false, &found);
		for (int i = 0; found && i < ROWS; i++)
			right += ((const int64_t *)far_var_tensor(found)->data)[i] == colours[m][i];
		ys[m] = far_tape_cross_entropy(tapes[m], ys[m], far_tape_input(tapes[m], &target), FAR_OP_REDUCE_MEAN);
		ys[m] = far_tape_scale(tapes[m], ys[m], 1.0 / MICRO);
		loss += far_var_scalar(ys[m]);
	}
	busy += now() - started;
	if (err->status || far_tape_status(tapes[m], err) || rank == stages - 1)
		return err->status;
	return inbox_send(agent, rank + 1, m, far_var_tensor(ys[m]), err);
}

/** The gradients of a stage are those of the sum of its result times the gradient from the next stage. */
static enum far_status backward(int m, struct far_err *err)
{
	struct far_val in = far_none();
	struct far_gradient dx;
	struct far_var *root = ys[m];
	if (rank < stages - 1 && inbox_take(MICRO + m, &in, err))
		return err->status;
	double started = now();
	if (rank < stages - 1)
		root = far_tape_mul(tapes[m], root, far_tape_input(tapes[m], &in.u.t));
	root = far_tape_sum(tapes[m], root, NULL, 0, false);
	if (!far_tape_status(tapes[m], err))
		far_grads_backward(grads, &root, 1, NULL, err);
	busy += now() - started;
	far_val_fini(&in);
	if (err->status || rank == 0)
		return err->status;
	far_grads_get(grads, xs[m], &dx);
	return inbox_send(agent, rank - 1, MICRO + m, &dx.values, err);
}

static enum far_status learn(struct far_err *err)
{
	struct far_scope sent;
	for (int step = 0, f, b; step < STEPS && !err->status; step++) {
		double started = now();
		loss = right = 0, far_grads_clear(grads), far_scope_begin(&sent);
		for (f = b = 0; b < MICRO && !err->status;) /* b + 1 + the stages behind: forward passes before b */
			(void)(f < MICRO && f < b + stages - rank ? forward(step, f++, err) : backward(b++, err));
		total += now() - started;
		if (!err->status && !far_scope_end(&sent, 0, err))
			far_optimizer_step(optimizer, grads, err);
	}
	return err->status;
}

/** The layers of this stage. A layer has the same parameters whatever the number of stages. */
static enum far_status make(struct far_pool *pool, struct far_err *err)
{
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_ADAM);
	struct far_module *layers[2 * LAYERS + 3];
	struct far_var *params[2 * LAYERS + 4];
	size_t n = 0;
	int begin = rank * LAYERS / stages + (rank > 0), end = (rank + 1) * LAYERS / stages + (rank == stages - 1);
	for (int k = begin; k <= end; k++) {
		struct far_init init = {.dtype = FAR_F32, .seed = 1, .stream = 2 * (uint64_t)k};
		if (far_module_linear(pool, &init, k ? WIDTH : 2, k <= LAYERS ? WIDTH : 2, true, &layers[n++], err) ||
		    (k <= LAYERS && far_module_map(pool, FAR_MODULE_RELU, &layers[n++], err)))
			return err->status;
	}
	for (int m = 0; m < MICRO; m++)
		far_tape_new(pool, &tapes[m], err);
	if (err->status || far_module_sequential(pool, layers, n, &module, err) || far_grads_new(pool, &grads, err))
		return err->status;
	opts.lr = 0.003, n = far_module_parameters(module, params, 2 * LAYERS + 4);
	return far_optimizer_new(pool, &opts, params, n, &optimizer, err);
}

/** Worker 0 gathers what came of it and prints it. */
static enum far_status report(struct far_err *err)
{
	double mine[] = {busy, loss, right}, sum = 0, *theirs = mine;
	struct far_tensor t = far_tensor_1d(FAR_F64, mine, 3);
	struct far_val v = far_none();
	inbox_send(agent, 0, 2 * MICRO + rank, &t, err);
	for (int k = 0; rank == 0 && k < stages && !err->status; k++) {
		far_val_fini(&v);
		if (!inbox_take(2 * MICRO + k, &v, err))
			theirs = v.u.t.data, sum += theirs[0];
	}
	if (rank == 0 && !err->status)
		printf("%d stages: loss %.6g, %.2f %% right; bubble %.1f %%, in theory %.1f %%\n", stages, theirs[1],
		       100 * theirs[2] / (MICRO * ROWS), 100 - 100 * sum / total / stages,
		       100.0 * (stages - 1) / (MICRO + stages - 1));
	far_val_fini(&v);
	return err->status;
}

int main(int argc, char **argv)
{
	struct far_opts opts = {.functions = (struct far_function[]){INBOX_FUNCTION}, .functions_n = 1};
	struct far_pool *pool;
	struct far_err err = {0};
	args_read(argc, argv, "farcall run -n 4 -- ", "Training in a pipeline of 1, 2 or 4 stages.", NULL, 0);
	if (inbox_init(&err) || far_init_rpc("stage%d", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err))
		return far_err_print(stderr, &err);
	rank = far_self(agent).worker, stages = far_world_size(agent);
	if (LAYERS % stages)
		args_wrong(argv[0], "give it 1, 2 or 4 workers, not %d", stages);
	if (!far_pool_new(0, &pool, &err) && !make(pool, &err) && !learn(&err) && !report(&err))
		far_shutdown(agent, 0, &err);
	return err.status ? (int)far_err_print(stderr, &err) : 0;
}

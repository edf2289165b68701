/* SPDX-License-Identifier: BSD-3-Clause */
/** Small models of what people run: K0, O1. */
#include "functions.h"

/* Worker 0 serves; it asks the others to train, and they push to it. */
static void parameter_server(const char *kind, int rounds)
{
	struct far_future *f[WORLD];
	if (rank != 0)
		return;
	for (int r = 1; r < WORLD; r++)
		f[r] = ASYNC(conform_name(r), "c::ps_train", FAR_ARGS(kind, rounds));
	for (int r = 1; r < WORLD; r++)
		IS_INT(TAKE(f[r]), rounds);
}

CONFORM(K0, my_parameter_server)
{
	parameter_server("dense", 1);
}

CONFORM(X5, my_parameter_server_sparse)
{
	parameter_server("sparse", 1);
}

CONFORM(K0, batch_updating_parameter_server)
{
	parameter_server("dense", 5);
	if (rank == 0) {
		struct far_future *f[4];
		for (int i = 0; i < 4; i++)
			f[i] = ASYNC(peer(0), "c::batched", FAR_ARGS(4));
		for (int i = 0; i < 4; i++)
			IS_INT(TAKE(f[i]), 4);
	}
}

/* Worker 0 is the agent, the others its observers, told by a reference to it whom to ask. */
CONFORM(K0, rl_rpc)
{
	enum { STEPS = 50, EPISODES = 2 };
	struct far_future *f[WORLD];
	if (rank != 0)
		return;
	struct far_rref *self = REMOTE(peer(0), "far::identity", FAR_ARGS("agent"));
	for (int episode = 1; episode <= EPISODES; episode++) {
		for (int r = 1; r < WORLD; r++)
			f[r] = ASYNC(conform_name(r), "c::rl_run_episode", FAR_ARGS(self, STEPS));
		for (int r = 1; r < WORLD; r++)
			IS_INT(TAKE(f[r]), STEPS);
		HOLDS(functions_steps() == (WORLD - 1) * STEPS * episode);
		HOLDS(functions_reward() == (WORLD - 1) * STEPS * episode);
	}
	far_rref_free(self);
}

/* Remote sums of two, four times over, one on oneself, and their sum: repeated. The backward pass is not part of it. */
CONFORM(O1, TestE2ETensorPipe_TestTrainingLoop)
{
	enum { ROUNDS = 10, SUMS = 6 };
	for (int round = 0; round < ROUNDS; round++) {
		struct far_future *f[SUMS];
		struct far_rref *r[SUMS], *own;
		double x = round + rank, total = 0;
		for (int i = 0; i < SUMS; i++)
			f[i] = ASYNC(peer(1 + i % 3), "far::add", FAR_ARGS(full(1, 1, x), full(1, 1, i)));
		for (int i = 0; i < SUMS; i++) {
			struct far_val v = TAKE(f[i]);
			HOLDS(v.type == FAR_TYPE_TENSOR && far_tensor_count(&v.u.t) == 1);
			total += ((const float *)v.u.t.data)[0];
			r[i] = REMOTE(peer(1 + i % 3), "far::mul", FAR_ARGS(v, 2));
			far_val_fini(&v);
		}
		own = REMOTE(peer(0), "far::add", FAR_ARGS(full(1, 1, total), full(1, 1, 1)));
		IS_FULL(FETCH_LAST(own), 1, 1, SUMS * x + 15 + 1);
		for (int i = 0; i < SUMS; i++)
			IS_FULL(FETCH_LAST(r[i]), 1, 1, 2 * (x + i));
	}
}

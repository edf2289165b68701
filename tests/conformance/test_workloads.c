/* SPDX-License-Identifier: BSD-3-Clause */
/** Small models of what people run: K0. Main thread of each process. */
#include "objects.h"

/* Worker 0 serves; it requests that the others train, and they push to it. */
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

/* Worker 0 calls three trainers. The last gradient of a batch updates the model; all three requests are answered with
 * it at once. Kills: a drain of the answers that sends only the newest. */
CONFORM(K0, batch_updating_parameter_server)
{
	struct far_future *f[WORLD];
	struct far_rref *ps;
	workloads_register(HERE);
	if (rank != 0)
		return;
	ps = REMOTE(peer(0), "c::BatchServer", FAR_ARGS(WORLD - 1));
	for (int r = 1; r < WORLD; r++)
		f[r] = ASYNC(conform_name(r), "c::batch_train", FAR_ARGS(ps));
	OK(far_future_wait_all(f + 1, WORLD - 1, 0, &err));
	for (int r = 1; r < WORLD; r++)
		IS_INT(TAKE(f[r]), BATCHES + 1); /* the first model, and that after each batch */
	far_rref_free(ps);
}

/* Worker 0 is the agent, and has an observer object on each other one. Their methods and the agent's are called through
 * references until the running reward exceeds the threshold. Kills: a method call that sends its first argument only.
 */
CONFORM(K0, rl_rpc)
{
	enum { STEPS = 5000 / (WORLD - 1), STEPS_DONE = 10, EPISODES_MAX = 100 };
	struct far_rref *self, *observer[WORLD];
	struct far_future *f[WORLD];
	struct far_val v;
	double running = 0;
	int episode = 0;
	workloads_register(HERE);
	if (rank != 0)
		return;
	self = REMOTE(peer(0), "c::Agent", FAR_NOARGS);
	for (int r = 1; r < WORLD; r++)
		observer[r] = REMOTE(conform_name(r), "c::Observer", FAR_NOARGS);
	while (running <= 475.0 && episode++ < EPISODES_MAX) {
		for (int r = 1; r < WORLD; r++)
			OK(far_rref_rpc_async(observer[r], "run_episode", FAR_ARGS(self, STEPS), NULL, &f[r], &err));
		for (int r = 1; r < WORLD; r++)
			IS_INT(TAKE(f[r]), STEPS_DONE * episode); /* the observer's own count */
		OK(far_rref_rpc_sync(self, "finish_episode", FAR_NOARGS, NULL, &v, &err));
		running = far_list_get(&v, 0)->u.f;
		HOLDS(far_list_get(&v, 1)->u.i == (WORLD - 1) * STEPS_DONE * episode);
		far_val_fini(&v);
	}
	HOLDS(running > 475.0);
	far_rref_free(self);
	for (int r = 1; r < WORLD; r++)
		far_rref_free(observer[r]);
}

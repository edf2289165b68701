/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Reinforcement learning with batched observers: worker 0 learns to balance poles on carts, which the others simulate.
 * An observer sends the states of its poles and gets a push for each. One forward pass answers all observers.
 *
 *	farcall run -n 4 -- ./cartpole
 */
#include "args.h"
#include <farcall/farcall.h>
#include <farcall/module.h>
#include <farcall/optim.h>
#include <math.h>

enum { OBSERVERS = 3, POLES = 10, ALL = OBSERVERS * POLES, STATE = 4, LIMIT = 200, GOAL = 195, ROUNDS = 500 };

/* The pole has not fallen, and the cart has not left the track: 12 degrees, 2.4 m. */
#define STANDS(s) (fabsf((s)[0]) <= 2.4f && fabsf((s)[2]) <= 0.2094f)

/** Moves a cart by one step of 20 ms: 1 kg, and a pole of 0.1 kg and 1 m, pushed with 10 N. */
static void move(float *s, bool right)
{
	float push = ((right ? 10 : -10) + 0.05f * s[3] * s[3] * sinf(s[2])) / 1.1f, cosine = cosf(s[2]);
	float turn = (9.8f * sinf(s[2]) - cosine * push) / (2.0f / 3 - 0.05f * cosine * cosine / 1.1f);
	s[0] += 0.02f * s[1], s[1] += 0.02f * (push - 0.05f * turn * cosine / 1.1f);
	s[2] += 0.02f * s[3], s[3] += 0.02f * turn;
}

/** An observer: an episode of its poles. A fiber, because it waits for the answers. */
FAR_HANDLER(episode)
{
	float x[POLES * STATE];
	struct far_tensor t = far_tensor_2d(FAR_F32, x, POLES, STATE);
	int observer = far_self(far_req_agent(req)).worker - 1;
	far_op_rand((uint64_t)args[0].u.i, (uint64_t)observer, &t, NULL);
	for (int i = 0; i < POLES * STATE; i++)
		x[i] = 0.1f * x[i] - 0.05f;
	for (int step = 0; step < LIMIT; step++) {
		struct far_val v;
		if (far_rpc_sync(far_req_agent(req), "worker0", "rl::act", FAR_ARGS(observer, &t), NULL, &v, NULL))
			return FAR_REMOTE;
		for (int p = 0; p < POLES; p++)
			if (STANDS(x + p * STATE))
				move(x + p * STATE, ((const uint8_t *)v.u.s.data)[p]);
		far_val_fini(&v);
	}
	return far_return_none(req);
}

static struct far_agent *agent;
static struct far_tape *tape;
static struct far_module *policy;
static struct far_optimizer *optimizer;
static struct far_grads *grads;
static int now, waiting; /* step of the episode, and requests of this step */
static struct far_deferred *requests[OBSERVERS];
static float states[LIMIT * ALL * STATE], weights[LIMIT * ALL]; /* of the episode; in the loss */
static int64_t pushes[LIMIT * ALL];

/** Keeps an observer's states. The last one's let it answer all: pushes, as probable as the policy gives them. */
FAR_HANDLER(act)
{
	uint8_t right[ALL];
	struct far_tensor x = far_tensor_2d(FAR_F32, states + now * ALL * STATE, ALL, STATE);
	int64_t o = args[0].u.i;
	if (o < 0 || o >= OBSERVERS || now >= LIMIT || requests[o] ||
	    far_tensor_bytes(&args[1].u.t) != POLES * STATE * sizeof(float))
		return far_fail(req, FAR_BAD_ARGS, 0, "no such observer or step");
	memcpy(states + (now * ALL + o * POLES) * STATE, args[1].u.t.data, POLES * STATE * sizeof(float));
	enum far_status status = far_defer(req, &requests[o]);
	if (status || ++waiting < OBSERVERS)
		return status;
	far_tape_reset(tape), far_tape_record(tape, false);
	struct far_var *y = far_tape_softmax(tape, far_module_forward(policy, tape, far_tape_input(tape, &x)), 1);
	for (int p = 0; p < ALL; p++)
		pushes[now * ALL + p] = right[p] =
			y && rand() < ((float *)far_var_tensor(y)->data)[2 * p + 1] * (float)RAND_MAX;
	for (waiting = 0, now++, o = 0; o < OBSERVERS; o++) {
		struct far_val v = far_bytes(right + o * POLES, POLES);
		far_deferred_return(requests[o], &v), requests[o] = NULL;
	}
	return FAR_OK;
}

/** A step of the policy: pushes after which a pole stood longer than average become more likely (REINFORCE). */
static void learn(double *reward, struct far_err *err)
{
	struct far_tensor x = far_tensor_2d(FAR_F32, states, LIMIT * ALL, STATE);
	struct far_tensor y = far_tensor_1d(FAR_I64, pushes, LIMIT * ALL);
	struct far_tensor w = far_tensor_1d(FAR_F32, weights, LIMIT * ALL);
	double sum = 0, squares = 0, n = 0;
	for (int i = LIMIT * ALL - 1; i >= 0; i--) { /* discounted steps from here to the fall */
		float rest = i + ALL < LIMIT * ALL ? weights[i + ALL] : 0;
		weights[i] = rest = STANDS(states + i * STATE) ? 1 + 0.99f * rest : 0;
		n += rest > 0, sum += rest, squares += rest * rest;
	}
	double deviation = 1e-3 + sqrt(squares / n - sum * sum / n / n);
	for (int i = 0; i < LIMIT * ALL; i++)
		weights[i] = weights[i] > 0 ? (float)((weights[i] - sum / n) / deviation / n) : 0;
	*reward = 0.8 * *reward + 0.2 * n / ALL;
	far_tape_reset(tape), far_tape_record(tape, true), far_grads_clear(grads);
	struct far_var *loss = far_module_forward(policy, tape, far_tape_input(tape, &x));
	loss = far_tape_cross_entropy(tape, loss, far_tape_input(tape, &y), FAR_OP_REDUCE_NONE);
	loss = far_tape_sum(tape, far_tape_mul(tape, loss, far_tape_input(tape, &w)), NULL, 0, false);
	if (!far_tape_status(tape, err) && !far_grads_backward(grads, &loss, 1, NULL, err))
		far_optimizer_step(optimizer, grads, err);
}

/** Episodes of all poles, until their running mean reward is the goal. */
static void run(struct far_err *err)
{
	const struct far_target observers[OBSERVERS] = {{.to = {1, -1}}, {.to = {2, -1}}, {.to = {3, -1}}};
	double reward = 0;
	int round = 0;
	for (; round < ROUNDS && reward < GOAL && !err->status; round++, now = 0) {
		struct far_future *f = NULL;
		if (!far_rpc_fanout(agent, "rl::episode", FAR_ARGS(round), observers, OBSERVERS, NULL, NULL, &f, err) &&
		    !far_future_wait(f, 0, NULL, err))
			learn(&reward, err);
		far_future_free(f);
	}
	printf("%d rounds of %d episodes: running mean reward %.1f\n", round, ALL, reward);
}

int main(int argc, char **argv)
{
	const struct far_function functions[] = {
		{"rl::act(int observer, Tensor states) -> bytes", FAR_KIND_INLINE, act, NULL, 0},
		{"rl::episode(int round) -> none", FAR_KIND_FIBER, episode, NULL, 0}};
	struct far_opts opts = {.functions = functions, .functions_n = 2};
	struct far_optimizer_opts adam = far_optimizer_defaults(FAR_OPTIMIZER_ADAM);
	struct far_init init = {.dtype = FAR_F32, .seed = 1};
	struct far_module *l[3];
	struct far_var *params[4];
	struct far_pool *pool;
	struct far_err err = {0};
	args_read(argc, argv, "farcall run -n 4 -- ", "A policy learns to balance poles.", NULL, 0);
	if (far_pool_new(0, &pool, &err) || far_tape_new(pool, &tape, &err) || far_grads_new(pool, &grads, &err) ||
	    far_module_linear(pool, &init, STATE, 64, true, &l[0], &err) ||
	    far_module_map(pool, FAR_MODULE_RELU, &l[1], &err) ||
	    far_module_linear(pool, &init, 64, 2, true, &l[2], &err) ||
	    far_module_sequential(pool, l, 3, &policy, &err) ||
	    far_optimizer_new(pool, &adam, params, far_module_parameters(policy, params, 4), &optimizer, &err) ||
	    far_optimizer_set_lr(optimizer, 0.01, &err) ||
	    far_init_rpc("worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err) ||
	    (far_self(agent).worker == 0 ? run(&err), err.status : far_serve(agent, 0, &err)) ||
	    far_shutdown(agent, 0, &err))
		return far_err_print(stderr, &err);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** The workloads' functions: a parameter server that answers when all have come, and an agent with its observers. */
#include "functions.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRAINERS_MAX = 8 };

/* Waits for `trainers` gradients, adds them up, and answers all with the sum. */
static struct {
	pthread_mutex_t lock;
	struct far_deferred *open[TRAINERS_MAX];
	int64_t n;
	struct far_val sum;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER};

static enum far_status add_gradient(const struct far_val *g)
{
	struct sum s;
	if (server.n == 0)
		return far_val_dup(g, &server.sum, NULL);
	enum far_status status = sum_of(&s, &server.sum, g);
	if (status)
		return status;
	far_val_fini(&server.sum);
	status = far_val_dup(&s.value, &server.sum, NULL);
	sum_fini(&s);
	return status;
}

HANDLER(ps_push)
{
	struct far_deferred *d;
	int64_t trainers = args[1].u.i;
	pthread_mutex_lock(&server.lock);
	enum far_status status = trainers > 0 && trainers <= TRAINERS_MAX ? add_gradient(&args[0]) : FAR_BAD_ARGS;
	if (!status)
		status = far_defer(req, &d);
	if (!status)
		server.open[server.n++] = d;
	if (!status && server.n == trainers) {
		for (int64_t i = 0; i < trainers; i++)
			far_deferred_return(server.open[i], &server.sum);
		far_val_fini(&server.sum);
		server.n = 0;
	}
	pthread_mutex_unlock(&server.lock);
	return status;
}

/* What a trainer does, asked by the server: so many rounds of its gradient, which is that of its rank and round; the
 * sum of all trainers' comes back. `make` is what gradients look like. */
HANDLER(ps_train)
{
	const struct operands *o = strcmp(args[0].u.s.data, "sparse") == 0 ? &sparse : &dense;
	int me = functions_rank(req);
	int64_t rounds = args[1].u.i, trainers = WORLD - 1;
	for (int64_t i = 0; i < rounds; i++) {
		struct far_val g = o->make((double)(me * (i + 1))), sum;
		struct far_err e;
		enum far_status status = far_rpc_sync_to(far_req_agent(req), far_req_from(req), "c::ps_push",
							 FAR_ARGS(g, trainers), NULL, &sum, &e);
		if (status)
			return fail_with(req, status, &e);
		o->is(HERE, sum, (double)((1 + 2 + 3) * (i + 1)));
	}
	struct far_val v = far_int(rounds);
	return far_return(req, &v);
}

/* ---- an agent that observers ask what to do ---- */

static _Atomic int64_t steps_seen, reward_seen;

HANDLER(rl_select_action)
{
	const struct far_tensor *state = &args[1].u.t;
	int64_t best = 0;
	for (uint64_t i = 1; i < far_tensor_count(state); i++)
		if (((const float *)state->data)[i] > ((const float *)state->data)[best])
			best = (int64_t)i;
	atomic_fetch_add(&steps_seen, 1);
	struct far_val v = far_int(best);
	return far_return(req, &v);
}

HANDLER(rl_report_reward)
{
	atomic_fetch_add(&reward_seen, args[1].u.i);
	return far_return(req, NULL);
}

/* An observer's episode: its states are such that the right action is the step's number modulo 4. */
HANDLER(rl_run_episode)
{
	struct far_agent *a = far_req_agent(req);
	struct far_err e;
	const char *owner = far_rref_owner_name(args[0].u.rref);
	int64_t me = functions_rank(req), right = 0;
	for (int64_t step = 0; step < args[1].u.i; step++) {
		float state[4] = {0};
		struct far_tensor t = far_tensor_1d(FAR_F32, state, 4);
		struct far_val action;
		state[(step + me) % 4] = 1;
		enum far_status status =
			far_rpc_sync(a, owner, "c::rl_select_action", FAR_ARGS(me, &t), NULL, &action, &e);
		if (status)
			return fail_with(req, status, &e);
		right += action.u.i == (step + me) % 4;
	}
	enum far_status status = far_rpc_sync(a, owner, "c::rl_report_reward", FAR_ARGS(me, right), NULL, NULL, &e);
	if (status)
		return fail_with(req, status, &e);
	struct far_val v = far_int(right);
	return far_return(req, &v);
}

int64_t functions_steps(void)
{
	return atomic_load(&steps_seen);
}

int64_t functions_reward(void)
{
	return atomic_load(&reward_seen);
}

/* ---- arguments with defaults ---- */

/* Each argument beside its keyword, as they arrived. */
HANDLER(assorted)
{
	char text[64];
	snprintf(text, sizeof text, "%s%s", (const char *)args[1].u.s.data, (const char *)args[4].u.s.data);
	struct far_val v = FAR_LIST(args[0].u.i + args[3].u.i, text, args[2].u.f + args[5].u.f);
	return far_return(req, &v);
}

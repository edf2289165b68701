/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Reinforcement learning. Each observer has a world of its own. At every step it sends the reward of the step before to
 * an agent, which answers with the next action. Both are objects: worker0 calls the observers by reference and passes
 * them a reference to the agent. Main thread of each worker; handlers run on shard threads.
 *
 *	farcall run -n 4 -- ./observers
 *
 * The world is a corridor. Each step costs 1, and the last cell ends the episode. The best walk is straight to it.
 */
#include "args.h"

#include <farcall/farcall.h>

enum { CELLS = 10, EPISODES = 40, STEPS_MAX = 1000, OBSERVERS_MAX = 32 };

/* ---- the agent: Q-learning, from the steps of all observers ---- */

/* Its methods run on its home shard, one at a time, so it needs no lock. */
struct brain {
	float q[CELLS][2]; /* expected reward of a step left or right */
	struct {
		int64_t cell, action;
	} last[OBSERVERS_MAX]; /* current step of each observer */
};

static enum far_status brain_new(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)args, (void)n, (void)user;
	struct brain *b = calloc(1, sizeof *b);
	/* On success the engine owns the object and calls brain_free(). Otherwise the returned status is the answer. */
	enum far_status status = b ? far_return_object(req, b) : FAR_RESOURCE;
	if (status)
		free(b);
	return status;
}

static void brain_free(void *object, void *user)
{
	(void)user;
	free(object);
}

/* Learns from the reward of the observer's last step (0: the first one), and answers with the next action. */
static enum far_status brain_step(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	struct brain *b = object;
	int64_t who = args[0].u.i, cell = args[1].u.i;
	(void)n, (void)user;
	if (who < 0 || who >= OBSERVERS_MAX || cell < 0 || cell >= CELLS)
		return far_fail(req, FAR_BAD_ARGS, 0, "no such observer or cell");
	float *next = b->q[cell], *q = &b->q[b->last[who].cell][b->last[who].action];
	if (args[2].u.f != 0)
		*q += 0.5f * ((float)args[2].u.f + (next[0] > next[1] ? next[0] : next[1]) - *q);
	b->last[who].cell = cell;
	b->last[who].action = next[1] > next[0];
	struct far_val action = far_int(b->last[who].action);
	return far_return(req, &action);
}

/* ---- an observer ---- */

static enum far_status observer_new(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	static int64_t who; /* one per worker; nothing to free */
	(void)n, (void)user;
	who = args[0].u.i;
	return far_return_object(req, &who);
}

/* A fiber, because it waits for the agent at every step. Answers with the steps of the first and the last episode. */
static enum far_status observer_run(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	const int64_t *who = object;
	int64_t steps[EPISODES] = {0};
	struct far_err err;
	(void)n, (void)user;
	for (int e = 0; e < EPISODES; e++) {
		struct far_val action;
		double reward = 0;
		for (int64_t cell = 0; steps[e] < STEPS_MAX; steps[e]++, reward = -1) {
			if (far_rref_rpc_sync(args[0].u.rref, "step", FAR_ARGS(*who, cell, reward), NULL, &action,
					      &err))
				return far_fail(req, err.status, err.code, "%s", err.text);
			if (cell == CELLS - 1)
				break;
			cell += action.u.i ? 1 : cell ? -1 : 0;
		}
	}
	struct far_val both = FAR_LIST(steps[0], steps[EPISODES - 1]);
	return far_return(req, &both);
}

static const struct far_function makers[] = {
	{"rl::Agent() -> rl::Agent", FAR_KIND_INLINE, brain_new, NULL},
	{"rl::Observer(int who) -> rl::Observer", FAR_KIND_INLINE, observer_new, NULL}};
static const struct far_method step = {"step(int who, int cell, float reward) -> int", FAR_KIND_INLINE, brain_step,
				       NULL},
			       episodes = {"run(rref agent) -> List", FAR_KIND_FIBER, observer_run, NULL};
static const struct far_class classes[] = {{"rl::Agent", &makers[0], 1, &step, 1, brain_free, NULL, NULL},
					   {"rl::Observer", &makers[1], 1, &episodes, 1, NULL, NULL, NULL}};

/* ---- worker0 ---- */

static enum far_status run(struct far_agent *agent, int n, struct far_err *err)
{
	struct far_rref *brain = NULL, *observers[OBSERVERS_MAX] = {NULL};
	struct far_future *f[OBSERVERS_MAX] = {NULL};
	enum far_status status = far_remote(agent, "worker0", "rl::Agent", FAR_NOARGS, NULL, &brain, err);
	for (int i = 0; i < n && !status; i++) { /* shard -1: default */
		status = far_remote_to(agent, (struct far_to){i + 1, -1}, "rl::Observer", FAR_ARGS(i), NULL,
				       &observers[i], err);
		if (!status) /* the call waits there until the observer was made */
			status = far_rref_rpc_async(observers[i], "run", FAR_ARGS(brain), NULL, &f[i], err);
	}
	for (int i = 0; i < n; i++) {
		struct far_val out;
		if (!status && !(status = far_future_wait(f[i], 0, &out, err))) {
			printf("observer %d: %lld steps in the first of %d episodes, %lld in the last\n", i,
			       (long long)far_list_get(&out, 0)->u.i, EPISODES, (long long)far_list_get(&out, 1)->u.i);
			far_val_fini(&out);
		}
		far_future_free(f[i]);
		far_rref_free(observers[i]);
	}
	far_rref_free(brain);
	return status;
}

int main(int argc, char **argv)
{
	struct far_opts opts = {.classes = classes, .classes_n = 2};
	struct far_agent *agent;
	struct far_err err = {0}; /* written on failure only */
	args_read(argc, argv, "farcall run -n 4 -- ", "Observers call an agent that learns.", NULL, 0);
	if (far_init_rpc("worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err))
		return far_err_print(stderr, &err);
	int observers = far_world_size(agent) - 1;
	if (observers < 1 || observers > OBSERVERS_MAX)
		fprintf(stderr, "usage: farcall run -n 2..%d -- observers\n", OBSERVERS_MAX + 1),
			err.status = FAR_INVALID;
	else if (far_self(agent).worker == 0 ? run(agent, observers, &err) : far_serve(agent, 0, &err))
		far_err_print(stderr, &err);
	if (far_shutdown(agent, 0, &err))
		far_err_print(stderr, &err);
	return err.status;
}

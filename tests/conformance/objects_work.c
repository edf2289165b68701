/* SPDX-License-Identifier: BSD-3-Clause */
/** Classes of the workloads, K0: an agent and its observers, and a parameter server that has a model.
 * Handlers: shard threads, fibers and threads of the agent. */
#include "objects.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- c::Agent, whose methods observers call ---- */

enum { STATES = 4, EPISODE_STEPS = 10 };

struct policy {
	float weights[STATES][STATES]; /* [action][state] */
	double rewards[WORLD];         /* of the episode, by observer */
	double running;
	int64_t requested;
};

static enum far_status agent_new(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct policy *p = calloc(1, sizeof *p);
	if (!p)
		return far_fail(req, FAR_RESOURCE, 0, "no memory");
	for (int i = 0; i < STATES; i++)
		p->weights[(i + 1) % STATES][i] = 1;
	enum far_status status = far_return_object(req, p);
	if (status)
		free(p);
	return status;
}

static void forget(void *object, void *user)
{
	free(object);
}

/* The action of the highest score. */
static enum far_status select_action(struct far_req *req, void *object, const struct far_val *args, size_t n,
				     void *user)
{
	struct policy *p = object;
	const struct far_tensor *state = &args[1].u.t;
	float best = -1;
	int64_t action = 0;
	if (args[0].u.i < 1 || args[0].u.i >= WORLD || far_tensor_count(state) != STATES)
		return far_fail(req, FAR_BAD_ARGS, 0, "neither an observer nor its state");
	p->requested++;
	for (int a = 0; a < STATES; a++) {
		float score = 0;
		for (int i = 0; i < STATES; i++)
			score += p->weights[a][i] * ((const float *)state->data)[i];
		action = score > best ? a : action;
		best = score > best ? score : best;
	}
	struct far_val v = far_int(action);
	return far_return(req, &v);
}

static enum far_status report_reward(struct far_req *req, void *object, const struct far_val *args, size_t n,
				     void *user)
{
	struct policy *p = object;
	if (args[0].u.i < 1 || args[0].u.i >= WORLD)
		return far_fail(req, FAR_BAD_ARGS, 0, "no such observer");
	p->rewards[args[0].u.i] += args[1].u.f;
	return far_return(req, NULL);
}

/* The least of the observers' rewards goes into the running one, which is the answer, beside how often it was
 * requested. */
static enum far_status finish_episode(struct far_req *req, void *object, const struct far_val *args, size_t n,
				      void *user)
{
	struct policy *p = object;
	double least = p->rewards[1];
	for (int i = 1; i < WORLD; i++) {
		least = p->rewards[i] < least ? p->rewards[i] : least;
		p->rewards[i] = 0;
	}
	p->running = 0.05 * least + 0.95 * p->running;
	struct far_val v = FAR_LIST(p->running, p->requested);
	return far_return(req, &v);
}

/* ---- c::Observer, of every other worker ---- */

static enum far_status observer_new(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	int64_t *steps = calloc(1, sizeof *steps);
	enum far_status status = steps ? far_return_object(req, steps) : FAR_RESOURCE;
	if (status)
		free(steps);
	return status;
}

/* The environment is in one of four states and rewards one action in each: its neighbour. It ends after so many. */
static enum far_status run_episode(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	int64_t me = functions_rank(req), *steps = object, step = 0;
	struct far_err e;
	for (; step < args[1].u.i && step < EPISODE_STEPS; step++) {
		float state[STATES] = {0};
		struct far_tensor t = far_tensor_1d(FAR_F32, state, STATES);
		struct far_val action;
		int64_t at = (step + me) % STATES;
		state[at] = 1;
		enum far_status status =
			far_rref_rpc_sync(args[0].u.rref, "select_action", FAR_ARGS(me, &t), NULL, &action, &e);
		if (status)
			return fail_with(req, status, &e);
		double reward = action.u.i == (at + 1) % STATES ? 100.0 + (double)me : 0.0;
		status = far_rref_rpc_sync(args[0].u.rref, "report_reward", FAR_ARGS(me, reward), NULL, NULL, &e);
		if (status)
			return fail_with(req, status, &e);
	}
	*steps += step;
	struct far_val v = far_int(*steps);
	return far_return(req, &v);
}

/* ---- c::BatchServer: all trainers get the model that the last of them completed ---- */

struct batch_server {
	pthread_mutex_t lock;
	struct far_deferred *open[WORLD];
	int64_t trainers, n;
	float model[MODEL_SIZE], gradient[MODEL_SIZE], momentum[MODEL_SIZE];
};

void model_begin(float *model)
{
	for (int i = 0; i < MODEL_SIZE; i++)
		model[i] = (float)i / MODEL_SIZE;
}

void model_step(float *model, float *momentum, const float *gradient, float trainers)
{
	for (int i = 0; i < MODEL_SIZE; i++) {
		momentum[i] = 0.9F * momentum[i] + gradient[i] / trainers;
		model[i] -= 0.001F * momentum[i];
	}
}

static enum far_status batch_server_new(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct batch_server *s = calloc(1, sizeof *s);
	if (!s || args[0].u.i < 1 || args[0].u.i > WORLD) {
		free(s);
		return far_fail(req, FAR_BAD_ARGS, 0, "not so many trainers");
	}
	pthread_mutex_init(&s->lock, NULL);
	s->trainers = args[0].u.i;
	model_begin(s->model);
	enum far_status status = far_return_object(req, s);
	if (status)
		free(s);
	return status;
}

static struct far_val model_of(struct batch_server *s, struct far_tensor *t)
{
	*t = far_tensor_1d(FAR_F32, s->model, MODEL_SIZE);
	return far_tensor_val(t);
}

static enum far_status get_model(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	struct far_tensor t;
	struct far_val v = model_of(object, &t);
	return far_return(req, &v);
}

/* A function that is given the reference, as the reference's static method is. */
static enum far_status update_and_fetch(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct batch_server *s;
	struct far_deferred *d;
	struct far_tensor t;
	struct far_err e;
	void *object;
	enum far_status status = far_rref_object(args[0].u.rref, "c::BatchServer", 0, &object, &e);
	if (status)
		return fail_with(req, status, &e);
	s = object;
	if (far_tensor_count(&args[1].u.t) != MODEL_SIZE || far_defer(req, &d))
		return far_fail(req, FAR_BAD_ARGS, 0, "not a gradient of the model, or no room");
	pthread_mutex_lock(&s->lock);
	for (int i = 0; i < MODEL_SIZE; i++)
		s->gradient[i] += ((const float *)args[1].u.t.data)[i];
	s->open[s->n++] = d;
	if (s->n == s->trainers) {
		model_step(s->model, s->momentum, s->gradient, (float)s->trainers);
		memset(s->gradient, 0, sizeof s->gradient);
		struct far_val v = model_of(s, &t);
		for (; s->n; s->n--)
			far_deferred_return(s->open[s->n - 1], &v);
	}
	pthread_mutex_unlock(&s->lock);
	return FAR_OK;
}

/* The model is what the server says, or how far an element of it is off. */
static double off(const struct far_val *v, const float *model)
{
	double most = v->type == FAR_TYPE_TENSOR && far_tensor_count(&v->u.t) == MODEL_SIZE ? 0 : 1;
	for (int i = 0; i < MODEL_SIZE && most < 1; i++) {
		double d = (double)((const float *)v->u.t.data)[i] - (double)model[i];
		most = d > most ? d : -d > most ? -d : most;
	}
	return most;
}

/* A trainer: its gradients are its rank times the number of the batch, so it knows the model that must come. Returns
 * the batches whose model was right. */
static enum far_status batch_train(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	static float model[MODEL_SIZE], momentum[MODEL_SIZE], mine[MODEL_SIZE], all[MODEL_SIZE];
	int64_t me = functions_rank(req), right = 0;
	struct far_tensor t = far_tensor_1d(FAR_F32, mine, MODEL_SIZE);
	struct far_val v;
	struct far_err e;
	model_begin(model);
	enum far_status status = far_rref_rpc_sync(args[0].u.rref, "get_model", FAR_NOARGS, NULL, &v, &e);
	if (status)
		return fail_with(req, status, &e);
	right += off(&v, model) < 1e-6;
	far_val_fini(&v);
	for (int batch = 1; batch <= BATCHES; batch++) {
		for (int i = 0; i < MODEL_SIZE; i++) {
			mine[i] = (float)(me * batch);
			all[i] = (float)((1 + 2 + 3) * batch);
		}
		model_step(model, momentum, all, WORLD - 1);
		status = far_rpc_sync_to(far_req_agent(req), far_rref_owner(args[0].u.rref), "c::update_and_fetch",
					 FAR_ARGS(args[0].u.rref, &t), NULL, &v, &e);
		if (status)
			return fail_with(req, status, &e);
		right += off(&v, model) < 1e-6;
		far_val_fini(&v);
	}
	v = far_int(right);
	return far_return(req, &v);
}

static const struct far_function agents[] = {{"c::Agent() -> c::Agent", FAR_KIND_INLINE, agent_new, NULL}},
				 observers[] = {{"c::Observer() -> c::Observer", FAR_KIND_INLINE, observer_new, NULL}},
				 servers[] = {{"c::BatchServer(int trainers) -> c::BatchServer", FAR_KIND_INLINE,
					       batch_server_new, NULL}};
static const struct far_method agent_methods[] = {
	{"select_action(int observer, Tensor state) -> int", FAR_KIND_INLINE, select_action, NULL},
	{"report_reward(int observer, float reward) -> none", FAR_KIND_INLINE, report_reward, NULL},
	{"finish_episode() -> List", FAR_KIND_INLINE, finish_episode, NULL},
};
static const struct far_method observer_methods[] = {
	{"run_episode(rref agent, int steps) -> int", FAR_KIND_FIBER, run_episode, NULL}};
static const struct far_method server_methods[] = {{"get_model() -> Tensor", FAR_KIND_INLINE, get_model, NULL}};
static const struct far_class classes[] = {
	{.name = "c::Agent",
	 .constructors = agents,
	 .constructors_n = 1,
	 .methods = agent_methods,
	 .methods_n = sizeof agent_methods / sizeof *agent_methods,
	 .destroy = forget},
	{.name = "c::Observer",
	 .constructors = observers,
	 .constructors_n = 1,
	 .methods = observer_methods,
	 .methods_n = 1,
	 .destroy = forget},
	{.name = "c::BatchServer",
	 .constructors = servers,
	 .constructors_n = 1,
	 .methods = server_methods,
	 .methods_n = 1,
	 .destroy = forget},
};
static const struct far_function functions[] = {
	{"c::update_and_fetch(rref ps, Tensor gradient) -> Tensor", FAR_KIND_FIBER, update_and_fetch, NULL},
	{"c::batch_train(rref ps) -> int", FAR_KIND_BLOCKING, batch_train, NULL},
};

void workloads_register(const char *here)
{
	conform_at(here);
	for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
		conform_want(here, classes[i].name, far_register_class(agent, &classes[i], &err), FAR_OK);
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
		conform_want(here, functions[i].signature, far_register_function(agent, &functions[i], &err), FAR_OK);
	conform_want(here, "the barrier", far_barrier(agent, NULL, 0, 0, &err), FAR_OK);
}

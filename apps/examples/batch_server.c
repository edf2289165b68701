/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A parameter server that updates in batches. A trainer pushes its gradient and gets the new weights as the answer. The
 * server defers the answers of a batch until its k-th gradient has arrived; a deferred request takes no thread.
 *
 *	farcall run -n 4 -- ./batch_server 2      three trainers; a batch is any two gradients
 *
 * The model is y = w · x with three weights, on data without noise, so the result is known.
 */
#include "args.h"

#include <farcall/farcall.h>

#define WEIGHTS      3
#define TRAINERS_MAX 64
#define STEPS        400
#define ROWS         32 /* of each trainer's data */
#define RATE         0.3f

static const float wanted[WEIGHTS] = {3, -2, 0.5f};

/* ---- the server ---- */

/* Inline handlers of one shard run one at a time, so the server needs no lock. */
struct server {
	float weights[WEIGHTS], gradient[WEIGHTS]; /* `gradient`: sum of this batch */
	struct far_deferred *waiting[TRAINERS_MAX];
	unsigned waiting_n, batch, left, updates; /* `left`: trainers that have left */
};

/* One step with the mean gradient. Answers all waiting trainers with the weights. */
static void update(struct server *s)
{
	struct far_tensor weights = far_tensor_1d(FAR_F32, s->weights, WEIGHTS);
	struct far_val answer = far_tensor_val(&weights);
	for (int i = 0; i < WEIGHTS; i++) {
		s->weights[i] -= RATE * s->gradient[i] / (float)s->waiting_n;
		s->gradient[i] = 0;
	}
	s->updates++;
	/* Ignore errors: the answer to a trainer that died fails, the others do not. */
	for (unsigned i = 0; i < s->waiting_n; i++)
		(void)far_deferred_return(s->waiting[i], &answer);
	s->waiting_n = 0;
}

static void update_when_due(struct server *s, const struct far_req *req)
{
	unsigned trainers = (unsigned)far_world_size(far_req_agent(req)) - 1 - s->left;
	unsigned due = s->batch < trainers ? s->batch : trainers;
	if (s->waiting_n && s->waiting_n >= due)
		update(s);
}

static enum far_status push(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct server *s = user;
	const struct far_tensor *g = &args[0].u.t;
	(void)n;
	if (g->dtype != FAR_F32 || far_tensor_count(g) != WEIGHTS)
		return far_fail(req, FAR_BAD_ARGS, 0, "the gradient has %d floats", WEIGHTS);
	if (s->waiting_n == TRAINERS_MAX)
		return far_fail(req, FAR_RESOURCE, 0, "more than %d trainers", TRAINERS_MAX);
	/* The request stays open after the handler, but its arguments do not: add the gradient now. */
	enum far_status status = far_defer(req, &s->waiting[s->waiting_n]);
	if (status)
		return status;
	s->waiting_n++;
	for (int i = 0; i < WEIGHTS; i++)
		s->gradient[i] += ((const float *)g->data)[i];
	update_when_due(s, req);
	return FAR_OK;
}

/* A trainer stops pushing: the others do not wait for it. */
static enum far_status leave(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct server *s = user;
	struct far_val none = far_none();
	(void)args, (void)n;
	s->left++;
	update_when_due(s, req);
	return far_return(req, &none);
}

/* ---- a trainer ---- */

static float data_x(int rank, int row, int i)
{
	return (float)((row * 7 + i * 5 + rank * 3) % 11) / 5.5f - 1;
}

/* Gradient of the mean squared error over this trainer's rows. */
static void gradient_of(const float *w, int rank, float *g)
{
	for (int i = 0; i < WEIGHTS; i++)
		g[i] = 0;
	for (int row = 0; row < ROWS; row++) {
		float error = 0;
		for (int i = 0; i < WEIGHTS; i++)
			error += (w[i] - wanted[i]) * data_x(rank, row, i);
		for (int i = 0; i < WEIGHTS; i++)
			g[i] += 2 * error * data_x(rank, row, i) / ROWS;
	}
}

static enum far_status train(struct far_agent *agent, int rank, struct far_err *err)
{
	float w[WEIGHTS] = {0}, g[WEIGHTS] = {0};
	struct far_tensor gradient = far_tensor_1d(FAR_F32, g, WEIGHTS);
	struct far_call_opts opts = {.recv_buf = {w, sizeof w}}; /* receive buffer of the answer */
	enum far_status status = FAR_OK;
	for (int step = 0; step < STEPS && !status; step++) {
		gradient_of(w, rank, g);
		status = far_rpc_sync(agent, "worker0", "ps::push", FAR_ARGS(&gradient), &opts, NULL, err);
	}
	return status ? status : far_rpc_sync(agent, "worker0", "ps::leave", FAR_NOARGS, NULL, NULL, err);
}

int main(int argc, char **argv)
{
	struct server s = {.batch = TRAINERS_MAX};
	const struct arg k = {"K", "gradients of a batch; at most one of each trainer", &s.batch, 1, TRAINERS_MAX};
	const struct far_function functions[] = {{"ps::push(Tensor gradient) -> Tensor", FAR_KIND_INLINE, push, &s},
						 {"ps::leave() -> none", FAR_KIND_INLINE, leave, &s}};
	struct far_opts opts = {.functions = functions, .functions_n = 2};
	struct far_agent *agent;
	struct far_err err;
	args_read(argc, argv, "farcall run -n 4 -- ", "A parameter server that updates in batches.", &k, 1);
	if (far_init_rpc("worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err))
		return far_err_print(stderr, &err);
	int rank = far_self(agent).worker, trainers = far_world_size(agent) - 1;
	if (trainers < 1 || trainers > TRAINERS_MAX) {
		fprintf(stderr, "batch_server: give it 2 to %d workers (farcall run)\n", TRAINERS_MAX + 1);
		far_shutdown(agent, 0, NULL);
		return FAR_INVALID;
	}
	/* The server serves until all trainers have called far_shutdown(). */
	enum far_status status = rank ? train(agent, rank, &err) : far_serve(agent, 0, &err);
	if (status)
		far_err_print(stderr, &err);
	if (far_shutdown(agent, 0, &err))
		return far_err_print(stderr, &err);
	if (rank == 0)
		printf("%d trainers, batches of %u: %u updates, weights %.3f %.3f %.3f\n", trainers,
		       s.batch < (unsigned)trainers ? s.batch : (unsigned)trainers, s.updates, (double)s.weights[0],
		       (double)s.weights[1], (double)s.weights[2]);
	return status;
}

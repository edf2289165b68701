/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A model in two stages, objects on two workers, with micro-batches passing through both. The master holds references
 * only: stage 2 fetches the output of stage 1 directly from it. `farcall run -n 3 -- ./pipeline`
 *
 * Main thread of each worker; handlers run on shard threads.
 */
#include "args.h"

#include <farcall/farcall.h>

enum { IN = 8, HIDDEN = 2048, OUT = 2, ROWS = 4, MICRO = 8 }; /* ROWS of each of MICRO micro-batches */

/* ---- a stage: y = max(0, x w) ---- */

struct stage {
	int in, out, seed;
};

/* The weights depend on a seed only, so the master can check the result. */
static float weight(const struct stage *s, int i)
{
	return (float)((i + s->seed) * 37 % 64) / 32 - 1;
}

static void stage_run(const struct stage *s, const float *x, float *y, int rows)
{
	for (int r = 0; r < rows; r++)
		for (int o = 0; o < s->out; o++) {
			float sum = 0;
			for (int i = 0; i < s->in; i++)
				sum += x[r * s->in + i] * weight(s, i * s->out + o);
			*y++ = sum > 0 ? sum : 0;
		}
}

/* The constructor: far_remote() runs it on the owner. Then the engine owns the object. */
static enum far_status stage_new(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n, (void)user;
	struct stage *s = malloc(sizeof *s);
	if (s)
		*s = (struct stage){(int)args[0].u.i, (int)args[1].u.i, (int)args[2].u.i};
	enum far_status status = s ? far_return_object(req, s) : FAR_RESOURCE;
	if (status) /* still the handler's */
		free(s);
	return status;
}

static void stage_free(void *object, void *user)
{
	(void)user;
	free(object); /* no reference is left */
}

/* A fiber, because it waits for its input: the stage serves other micro-batches meanwhile. */
static enum far_status stage_forward(struct far_req *req, void *object, const struct far_val *args, size_t n, void *u)
{
	const struct stage *s = object;
	struct far_val x;
	void *y;
	(void)n, (void)u;
	enum far_status status = far_rref_to_here(args[0].u.rref, 0, &x, NULL);
	if (status)
		return status;
	const struct far_tensor *t = &x.u.t;
	if (x.type != FAR_TYPE_TENSOR || t->dtype != FAR_F32 || t->ndim != 2 || t->shape[1] != (uint64_t)s->in)
		status = far_fail(req, FAR_BAD_ARGS, 0, "the stage takes rows of %d floats", s->in);
	else if (!(status = far_return_tensor(req, FAR_F32, 2, (uint64_t[]){t->shape[0], (uint64_t)s->out}, &y)))
		stage_run(s, t->data, y, (int)t->shape[0]);
	far_val_fini(&x);
	return status;
}

static const struct far_function make = {"demo::Stage(int in, int out, int seed) -> demo::Stage", FAR_KIND_INLINE,
					 stage_new, NULL};
static const struct far_method forward = {"forward(rref x) -> Tensor", FAR_KIND_FIBER, stage_forward, NULL};
static const struct far_class stage_class = {"demo::Stage", &make, 1, &forward, 1, stage_free, NULL, NULL};

/* ---- the master ---- */

/* Sends one micro-batch. Does not wait: the next one may follow before stage 1 has begun this one. */
static enum far_status send(struct far_agent *agent, const float *input, struct far_rref **stages,
			    struct far_future **out, struct far_err *err)
{
	struct far_tensor t = far_tensor_2d(FAR_F32, input, ROWS, IN);
	struct far_rref *x = NULL, *y = NULL;
	/* A reference to a value here, then one to the output of stage 1, which stays there. */
	enum far_status status = far_remote(agent, "worker0", "far::identity", FAR_ARGS(&t), NULL, &x, err);
	if (!status)
		status = far_rref_remote(stages[0], "forward", FAR_ARGS(x), NULL, &y, err);
	if (!status)
		status = far_rref_rpc_async(stages[1], "forward", FAR_ARGS(y), NULL, out, err);
	far_rref_free(x); /* the stages have references of their own */
	far_rref_free(y);
	return status;
}

static enum far_status run(struct far_agent *agent, struct far_err *err)
{
	static float input[MICRO][ROWS * IN], hidden[ROWS * HIDDEN], output[ROWS * OUT];
	static const struct stage local[2] = {{IN, HIDDEN, 1}, {HIDDEN, OUT, 2}};
	struct far_rref *stages[2] = {NULL};
	struct far_future *f[MICRO] = {NULL};
	struct far_counters counters;
	enum far_status status = FAR_OK;
	int same = 0;
	for (int k = 0; k < 2 && !status; k++)
		status = far_remote(agent, k ? "worker2" : "worker1", "demo::Stage",
				    FAR_ARGS(local[k].in, local[k].out, local[k].seed), NULL, &stages[k], err);
	for (int k = 0; k < MICRO && !status; k++) {
		for (int i = 0; i < ROWS * IN; i++)
			input[k][i] = (float)((k + 3 * i) % 17) / 8 - 1;
		status = send(agent, input[k], stages, &f[k], err);
	}
	for (int k = 0; k < MICRO; k++) {
		struct far_val out;
		if (!status && !(status = far_future_wait(f[k], 0, &out, err))) {
			stage_run(&local[0], input[k], hidden, ROWS);
			stage_run(&local[1], hidden, output, ROWS);
			same += out.u.t.shape[0] == ROWS && memcmp(out.u.t.data, output, sizeof output) == 0;
			far_val_fini(&out);
		}
		far_future_free(f[k]);
	}
	for (int k = 0; k < 2; k++)
		far_rref_free(stages[k]);
	far_counters_read(agent, &counters);
	printf("%d of %d micro-batches as one worker computes them; activations seen by the master: %s\n", same, MICRO,
	       counters.bytes_received < sizeof hidden ? "none" : "some");
	return status;
}

int main(int argc, char **argv)
{
	struct far_opts opts = {.classes = &stage_class, .classes_n = 1};
	struct far_agent *agent;
	struct far_err err = {0}; /* written on failure only */
	args_read(argc, argv, "farcall run -n 3 -- ", "Micro-batches through a model in two stages.", NULL, 0);
	if (far_init_rpc("worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err))
		return far_err_print(stderr, &err);
	if (far_self(agent).worker == 0 ? run(agent, &err) : far_serve(agent, 0, &err))
		far_err_print(stderr, &err);
	if (far_shutdown(agent, 0, &err))
		far_err_print(stderr, &err);
	return err.status;
}

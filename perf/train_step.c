/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * For train.sh: steps of training across two workers, and what one takes. Worker 0 trains, worker 1 has parameters.
 * train_torch.py does the same with torch.distributed.autograd: same values, same losses. Main thread of each process.
 *
 *	farcall run -n 2 -- train_step FIGURE SECONDS
 *
 * Prints "FIGURE MEDIAN_NS STEPS LOSS", with the loss of step CHECKED. `hop` prints the backward pass of an empty graph
 * on the other worker, there and back; then, by turns with it, "local", the pass of the same graph here alone, and
 * "call", a typed call of two floats.
 */
#include <farcall/train.h>

#include <farcall/farcall.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHECKED = 10, SAMPLES = 1 << 20, ROWS = 1000000, WIDTH = 64, IDS = 2000, BATCH = 32, MICRO = 4, STAGE = 256 };
#define LR 0.1

static const char *const figures[] = {"add", "mlp", "embedding", "pipeline", "hop"};
enum figure { ADD, MLP, EMBEDDING, PIPELINE, HOP, FIGURES };

static enum figure figure;
static struct far_agent *agent;
static struct far_train *train;
static struct far_pool *pool;
static struct far_tape *tape; /* of the trainer */
static struct far_var *here[2], *there[2];
static struct far_dist_optimizer *optimizer;
static struct far_err err;

static void die(void)
{
	far_err_print(stderr, &err);
	exit(1);
}

static void check(enum far_status status)
{
	if (status)
		die();
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/** The element i of what both programs begin with. */
static float value(uint64_t i, uint64_t salt)
{
	return ((float)((i * 7919 + salt) % 1009) / 1009 - 0.5f) * 0.25f;
}

static struct far_var *filled(uint64_t rows, uint64_t width, uint64_t salt, bool grad)
{
	struct far_tensor t = far_tensor_2d(FAR_F32, NULL, rows, width);
	struct far_var *var;
	check(far_var_new(pool, &t, grad, &var, &err));
	check(far_var_edit(var, &t, &err));
	for (uint64_t i = 0; i < rows * width; i++)
		((float *)t.data)[i] = value(i, salt);
	return var;
}

/* ---- the worker with parameters ---- */

static void make_there(void)
{
	static const uint64_t shapes[FIGURES][2] = {{1, 2}, {128, WIDTH}, {ROWS, WIDTH}, {STAGE, STAGE}, {1, 2}};
	there[0] = filled(shapes[figure][0], shapes[figure][1], 1, true);
}

static enum far_status answer(struct far_req *req, struct far_context *context, struct far_tape *of, struct far_var *y)
{
	enum far_status status = far_tape_return(of, context, y, req);
	far_tape_free(of);
	far_context_free(context);
	return status;
}

FAR_HANDLER(forward)
{
	struct far_err e;
	struct far_tape *of;
	struct far_context *context = far_context_of(train, req, &args[0], &e);
	(void)n;
	(void)user;
	if (!context || far_tape_new(pool, &of, &e))
		return far_fail(req, e.status, e.code, "%s", e.text);
	struct far_var *x = far_tape_recv(of, context, &args[0]);
	if (figure == ADD)
		x = far_tape_add(of, x, there[0]);
	else if (figure == MLP || figure == PIPELINE)
		x = far_tape_relu(of, far_tape_linear(of, x, there[0], NULL));
	return answer(req, context, of, x);
}

FAR_HANDLER(rows)
{
	struct far_err e;
	struct far_tape *of;
	struct far_context *context;
	(void)n;
	(void)user;
	if (far_context_find(train, req, (uint64_t)args[0].u.i, &context, &e) || far_tape_new(pool, &of, &e))
		return far_fail(req, e.status, e.code, "%s", e.text);
	struct far_var *ids = far_tape_recv(of, context, &args[1]); /* a copy: the graph outlasts the request */
	return answer(req, context, of, far_tape_embedding(of, there[0], ids, true));
}

FAR_HANDLER(parameter)
{
	(void)args;
	(void)n;
	(void)user;
	return far_return_object(req, far_var_ref(there[0]));
}

/* ---- the trainer ---- */

static struct far_var *received(struct far_context *context, struct far_val *v)
{
	struct far_var *var = far_tape_recv(tape, context, v);
	far_val_fini(v);
	check(far_tape_status(tape, &err));
	return var;
}

static struct far_var *remote(struct far_context *context, struct far_var *x)
{
	struct far_val v = far_context_send(context, x, &err), out;
	check(v.type == FAR_TYPE_NONE ? err.status
				      : far_rpc_sync(agent, "worker1", "bench::forward", &v, 1, NULL, &out, &err));
	return received(context, &out);
}

static struct far_var *remote_rows(struct far_context *context)
{
	static int64_t ids[IDS];
	struct far_tensor t = far_tensor_1d(FAR_I64, ids, IDS);
	struct far_val out;
	for (int64_t i = 0; i < IDS; i++)
		ids[i] = i * 499 % ROWS;
	check(far_rpc_sync(agent, "worker1", "bench::rows", FAR_ARGS((int64_t)far_context_id(context), &t), NULL, &out,
			   &err));
	return received(context, &out);
}

static struct far_var *mean_square(struct far_var *y)
{
	return far_tape_mean(tape, far_tape_mul(tape, y, y), NULL, 0, false);
}

static struct far_var *classes_loss(struct far_var *y)
{
	static int64_t classes[BATCH];
	struct far_tensor t = far_tensor_1d(FAR_I64, classes, BATCH);
	for (int64_t i = 0; i < BATCH; i++)
		classes[i] = i % 10;
	return far_tape_cross_entropy(tape, far_tape_linear(tape, y, here[0], NULL), far_tape_input(tape, &t),
				      FAR_OP_REDUCE_MEAN);
}

/** The first stage is here, the second there; all micro-batches are under way at once. */
static size_t pipeline(struct far_context *context, struct far_var **roots)
{
	struct far_future *f[MICRO];
	for (int m = 0; m < MICRO; m++) {
		struct far_var *y = far_tape_relu(tape, far_tape_linear(tape, here[1], here[0], NULL));
		struct far_val v = far_context_send(context, y, &err);
		check(v.type == FAR_TYPE_NONE
			      ? err.status
			      : far_rpc_async(agent, "worker1", "bench::forward", &v, 1, NULL, &f[m], &err));
	}
	for (int m = 0; m < MICRO; m++) {
		struct far_val out;
		check(far_future_wait(f[m], 0, &out, &err));
		far_future_free(f[m]);
		roots[m] = mean_square(received(context, &out));
	}
	return MICRO;
}

static size_t passes(struct far_context *context, struct far_var **roots)
{
	switch (figure) {
	case MLP:
		roots[0] = classes_loss(remote(context, here[1]));
		return 1;
	case EMBEDDING:
		roots[0] = mean_square(remote_rows(context));
		return 1;
	case PIPELINE:
		return pipeline(context, roots);
	case ADD:
	case HOP:
	case FIGURES:
		break;
	}
	roots[0] = mean_square(remote(context, here[0]));
	return 1;
}

/** Returns the nanoseconds of a step; of `hop` those of the backward pass. */
static uint64_t step(double *loss)
{
	struct far_context *context;
	struct far_var *roots[MICRO];
	uint64_t started = now_ns(), forward_ns;
	check(far_context_begin(train, &context, &err));
	size_t n = passes(context, roots);
	check(far_tape_status(tape, &err));
	*loss = 0;
	for (size_t i = 0; i < n; i++)
		*loss += far_var_scalar(roots[i]);
	forward_ns = figure == HOP ? now_ns() - started : 0;
	check(far_backward(context, roots, n, NULL, 0, &err));
	if (optimizer)
		check(far_dist_optimizer_step(optimizer, context, 0, &err));
	uint64_t backward_over = now_ns();
	far_context_end(context);
	far_tape_reset(tape);
	return (figure == HOP ? backward_over : now_ns()) - started - forward_ns;
}

/** The backward pass of `hop` without its hops. */
static uint64_t local(double *loss)
{
	struct far_context *context;
	check(far_context_begin(train, &context, &err));
	struct far_var *root = mean_square(here[0]);
	check(far_tape_status(tape, &err));
	*loss = far_var_scalar(root);
	uint64_t started = now_ns();
	check(far_backward(context, &root, 1, NULL, 0, &err));
	uint64_t ns = now_ns() - started;
	far_context_end(context);
	far_tape_reset(tape);
	return ns;
}

static uint64_t call(double *last)
{
	float two[2] = {1, 2};
	struct far_tensor t = far_tensor_1d(FAR_F32, two, 2);
	struct far_val out;
	uint64_t started = now_ns();
	check(far_rpc_sync(agent, "worker1", "far::identity", FAR_ARGS(&t), NULL, &out, &err));
	*last = (double)((const float *)far_val_tensor(&out)->data)[1];
	far_val_fini(&out);
	return now_ns() - started;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static void print(const char *what, uint64_t *ns, size_t n, double loss)
{
	qsort(ns, n, sizeof *ns, compare);
	printf("%s %llu %zu %.6g\n", what, (unsigned long long)ns[n / 2], n, loss);
}

/** Measures steps, and `hop` by turns with typed calls: both then find the other worker alike. */
static void measure(double seconds)
{
	static uint64_t ns[SAMPLES], local_ns[SAMPLES], call_ns[SAMPLES];
	double loss = 0, checked = 0, last = 0, here_loss = 0;
	size_t n = 0;
	for (int i = 0; i <= CHECKED; i++) {
		step(&loss);
		checked = loss;
	}
	for (uint64_t until = now_ns() + (uint64_t)(seconds * 1e9); n < SAMPLES && (n < 3 || now_ns() < until); n++) {
		ns[n] = step(&loss);
		if (figure != HOP)
			continue;
		local_ns[n] = local(&here_loss);
		call_ns[n] = call(&last);
	}
	print(figures[figure], ns, n, checked);
	if (figure != HOP)
		return;
	print("local", local_ns, n, here_loss);
	print("call", call_ns, n, last);
}

static void make_here(void)
{
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_SGD);
	struct far_rref *params[2];
	size_t n = 1;
	here[0] = figure == MLP        ? filled(10, 128, 2, true)
		  : figure == PIPELINE ? filled(STAGE, STAGE, 2, true)
				       : filled(1, 2, 2, true);
	here[1] = filled(BATCH, figure == PIPELINE ? STAGE : WIDTH, 3, figure == MLP);
	if (figure == HOP)
		return;
	opts.lr = LR;
	check(far_remote(agent, "worker1", "bench::parameter", FAR_NOARGS, NULL, &params[0], &err));
	if (figure == MLP || figure == PIPELINE)
		check(far_var_rref(train, here[0], &params[n++], &err));
	check(far_dist_optimizer_new(train, &opts, params, n, 0, &optimizer, &err));
	while (n > 0)
		far_rref_free(params[--n]);
}

int main(int argc, char **argv)
{
	const struct far_function functions[] = {
		{"bench::forward(far::Var x) -> far::Var", FAR_KIND_FIBER, forward, NULL, 0},
		{"bench::rows(int context, Tensor ids) -> far::Var", FAR_KIND_FIBER, rows, NULL, 0},
		{"bench::parameter() -> far::Parameter", FAR_KIND_INLINE, parameter, NULL, 0}};
	struct far_opts opts = {.functions = functions, .functions_n = 3};
	double seconds = argc == 3 ? strtod(argv[2], NULL) : 0;
	while (argc == 3 && figure < FIGURES && strcmp(argv[1], figures[figure]))
		figure++;
	bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
	if (help || !(seconds > 0) || figure == FIGURES)
		return fprintf(help ? stdout : stderr, "usage: train_step add|mlp|embedding|pipeline|hop SECONDS\n"),
		       help ? 0 : 2;
	check(far_pool_new(0, &pool, &err));
	check(far_train_new(pool, &train, &err));
	check(far_tape_new(pool, &tape, &err));
	make_there();
	check(far_train_init_rpc(train, "worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err));
	if (far_self(agent).worker == 0) {
		make_here();
		check(far_shard_acquire(agent, FAR_SEC, &err));
		measure(seconds);
		far_shard_release(agent);
		far_dist_optimizer_free(optimizer);
	} else {
		check(far_serve(agent, 0, &err));
	}
	check(far_shutdown(agent, 0, &err));
	return 0;
}

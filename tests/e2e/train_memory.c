/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Steps of training across two workers whose shapes occurred before take no memory from the system: malloc and its
 * relatives are counted on both workers, in all threads. What a step frees after the next one has begun costs a block
 * more, a few times: fewer than half of the steps may allocate. One allocation of each step would be twice that.
 */
#include <farcall/farcall.h>
#include <farcall/train.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 32, INPUTS = 64, SMALL = 128, LARGE = 512, FIRST = 20, STEPS = 60 };

static _Atomic uint64_t allocations;

/* The linker has the library and this program call these (--wrap); libc's own calls, of fopen() say, do not count. */
extern void *__real_malloc(size_t n);
extern void *__real_calloc(size_t n, size_t size);
extern void *__real_realloc(void *p, size_t n);
extern void *__real_aligned_alloc(size_t alignment, size_t n);
extern int __real_posix_memalign(void **p, size_t alignment, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
int __wrap_posix_memalign(void **p, size_t alignment, size_t n);

void *__wrap_malloc(size_t n)
{
	allocations++;
	return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	allocations++;
	return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	allocations++;
	return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
	allocations++;
	return __real_aligned_alloc(alignment, n);
}

int __wrap_posix_memalign(void **p, size_t alignment, size_t n)
{
	allocations++;
	return __real_posix_memalign(p, alignment, n);
}

static struct far_agent *agent;
static struct far_train *train;
static struct far_pool *pool;
static struct far_var
	*weights[2]; /* of worker 1: gradients for one are received on a fiber, for the other on a thread */
static struct far_err err;

static void check(enum far_status status)
{
	if (status) {
		far_err_print(stderr, &err);
		exit(1);
	}
}

static struct far_var *weight(uint64_t rows, uint64_t width)
{
	struct far_tensor t = far_tensor_2d(FAR_F32, NULL, rows, width);
	struct far_var *var;
	check(far_var_new(pool, &t, true, &var, &err));
	check(far_var_edit(var, &t, &err));
	for (uint64_t i = 0; i < rows * width; i++)
		((float *)t.data)[i] = (float)(i % 17) / 170 - 0.05f;
	return var;
}

/** What both programs have taken from the system: calls of malloc, and of the pool. */
static int64_t taken(void)
{
	struct far_pool_stats stats;
	far_pool_get_stats(pool, &stats);
	return (int64_t)(allocations + stats.system_requests);
}

/* ---- worker 1 ---- */

FAR_HANDLER(forward)
{
	struct far_err e;
	struct far_tape *tape;
	struct far_context *context = far_context_of(train, req, &args[0], &e);
	(void)n;
	(void)user;
	if (!context || far_tape_new(pool, &tape, &e))
		return far_fail(req, e.status, e.code, "%s", e.text);
	struct far_var *x = far_tape_recv(tape, context, &args[0]);
	x = far_tape_relu(tape, far_tape_linear(tape, x, weights[args[1].u.i], NULL));
	enum far_status status = far_tape_return(tape, context, x, req);
	far_tape_free(tape);
	far_context_free(context);
	return status;
}

FAR_HANDLER(parameter)
{
	(void)n;
	(void)user;
	return far_return_object(req, far_var_ref(weights[args[0].u.i]));
}

FAR_HANDLER(count)
{
	struct far_val v = far_int(taken());
	(void)args;
	(void)n;
	(void)user;
	return far_return(req, &v);
}

/* ---- worker 0 ---- */

static struct far_var *through(struct far_tape *tape, struct far_context *context, struct far_var *x, int which)
{
	struct far_val args[] = {far_context_send(context, x, &err), far_int(which)}, out;
	check(far_rpc_sync(agent, "worker1", "mem::forward", args, 2, NULL, &out, &err));
	struct far_var *y = far_tape_recv(tape, context, &out);
	far_val_fini(&out);
	return y;
}

static void step(struct far_tape *tape, struct far_var *x, struct far_dist_optimizer *optimizer)
{
	struct far_context *context;
	check(far_context_begin(train, &context, &err));
	struct far_var *y = through(tape, context, through(tape, context, x, 0), 1);
	struct far_var *root = far_tape_mean(tape, far_tape_mul(tape, y, y), NULL, 0, false);
	check(far_tape_status(tape, &err));
	check(far_backward(context, &root, 1, NULL, 0, &err));
	check(far_dist_optimizer_step(optimizer, context, 0, &err));
	far_context_end(context);
	far_tape_reset(tape);
}

static int64_t taken_there(void)
{
	struct far_val v;
	check(far_rpc_sync(agent, "worker1", "mem::count", FAR_NOARGS, NULL, &v, &err));
	int64_t n = v.u.i;
	far_val_fini(&v);
	return n;
}

/** True: the steps allocated next to nothing. */
static bool steps(void)
{
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_ADAM);
	struct far_rref *params[2];
	struct far_dist_optimizer *optimizer;
	struct far_tape *tape;
	struct far_var *x = weight(BATCH, INPUTS);
	for (int i = 0; i < 2; i++)
		check(far_remote(agent, "worker1", "mem::parameter", FAR_ARGS(i), NULL, &params[i], &err));
	check(far_dist_optimizer_new(train, &opts, params, 2, 0, &optimizer, &err));
	check(far_tape_new(pool, &tape, &err));
	for (int i = 0; i < FIRST; i++)
		step(tape, x, optimizer);
	int64_t here = taken(), there = taken_there();
	for (int i = 0; i < STEPS; i++)
		step(tape, x, optimizer);
	here = taken() - here;
	there = taken_there() - there;
	printf("%d steps: %lld allocations here, %lld there\n", STEPS, (long long)here, (long long)there);
	far_tape_free(tape);
	far_dist_optimizer_free(optimizer);
	for (int i = 0; i < 2; i++)
		far_rref_free(params[i]);
	far_var_free(x);
	return here < STEPS / 2 && there < STEPS / 2;
}

int main(void)
{
	const struct far_function functions[] = {
		{"mem::forward(far::Var x, int which) -> far::Var", FAR_KIND_FIBER, forward, NULL, 0},
		{"mem::parameter(int which) -> far::Parameter", FAR_KIND_INLINE, parameter, NULL, 0},
		{"mem::count() -> int", FAR_KIND_INLINE, count, NULL, 0}};
	struct far_opts opts = {.functions = functions, .functions_n = sizeof functions / sizeof *functions};
	bool good = true;
	check(far_pool_new(0, &pool, &err));
	check(far_train_new(pool, &train, &err));
	weights[0] = weight(SMALL, INPUTS);
	weights[1] = weight(LARGE, SMALL);
	check(far_train_init_rpc(train, "worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err));
	if (far_self(agent).worker == 0)
		good = steps();
	else
		check(far_serve(agent, 0, &err));
	check(far_shutdown(agent, 0, &err));
	far_train_free(train);
	for (int i = 0; i < 2; i++)
		far_var_free(weights[i]);
	far_pool_free(pool);
	return good ? 0 : 1;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Threads that train the same module: tapes of their own, gradients and pool in common, variables that other threads
 * free. A step of the optimizer is between two barriers. */
#include "base/must.h"

#include <farcall/module.h>
#include <farcall/optim.h>
#include <pthread.h>
#include <stdlib.h>

#define THREADS 4
#define STEPS   40

static struct far_pool *pool;
static struct far_grads *grads;
static struct far_module *model;
static struct far_optimizer *optimizer;
static pthread_barrier_t barrier;
static struct far_var *passed_on[THREADS]; /* by thread i to thread i + 1 */

/** A loss over this tape's forward. */
static struct far_var *forward(struct far_tape *tape, struct far_var *x)
{
	struct far_var *y = far_module_forward(model, tape, x);
	return far_tape_sum(tape, far_tape_mul(tape, y, y), NULL, 0, false);
}

static void *train(void *user)
{
	size_t i = (size_t)(uintptr_t)user;
	struct far_tape *tape;
	float values[8] = {1, 2, 3, 4, (float)i, 6, 7, 8};
	struct far_tensor t = {.data = values, .dtype = FAR_F32, .ndim = 2, .shape = {2, 4}};
	must(far_tape_new(pool, &tape, NULL) == FAR_OK);
	for (int step = 0; step < STEPS; step++) {
		struct far_var *loss = forward(tape, far_tape_input(tape, &t));
		must(far_tape_status(tape, NULL) == FAR_OK);
		must(far_grads_backward(grads, &loss, 1, NULL, NULL) == FAR_OK);
		passed_on[i] = far_var_ref(forward(tape, far_tape_input(tape, &t)));
		far_tape_reset(tape);
		pthread_barrier_wait(&barrier);
		struct far_var *other = passed_on[(i + 1) % THREADS];
		must(far_grads_backward(grads, &other, 1, NULL, NULL) == FAR_OK);
		far_var_free(other);
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
			must(far_optimizer_step(optimizer, grads, NULL) == FAR_OK);
			far_grads_clear(grads);
		}
		pthread_barrier_wait(&barrier);
	}
	far_tape_free(tape);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	struct far_init init = {.dtype = FAR_F32, .seed = 1};
	struct far_module *layers[3];
	struct far_var *params[8];
	struct far_pool_stats stats;
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_ADAM);
	must(far_pool_new(0, &pool, NULL) == FAR_OK && far_grads_new(pool, &grads, NULL) == FAR_OK);
	must(far_module_linear(pool, &init, 4, 8, true, &layers[0], NULL) == FAR_OK);
	must(far_module_dropout(pool, &init, 0.1, &layers[1], NULL) == FAR_OK);
	must(far_module_linear(pool, &init, 8, 2, true, &layers[2], NULL) == FAR_OK);
	must(far_module_sequential(pool, layers, 3, &model, NULL) == FAR_OK);
	size_t n = far_module_parameters(model, params, 8);
	must(far_optimizer_new(pool, &opts, params, n, &optimizer, NULL) == FAR_OK);
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (uintptr_t i = 0; i < THREADS; i++)
		must(pthread_create(&threads[i], NULL, train, (void *)i) == 0);
	for (size_t i = 0; i < THREADS; i++)
		must(pthread_join(threads[i], NULL) == 0);
	far_optimizer_free(optimizer);
	far_module_free(model);
	far_grads_free(grads);
	far_pool_get_stats(pool, &stats);
	must(stats.used_bytes == 0);
	far_pool_free(pool);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** A training step whose shapes occurred before allocates nothing: malloc and its relatives are counted. With
 * OpenBLAS's oldest kernels: those for AVX-512 allocate memory of their own in each small product.
 * The test's thread. */
#include "train_fixture.h"

#include <farcall/module.h>
#include <farcall/optim.h>

#ifndef UNDER_SANITIZER
static _Thread_local uint64_t allocations;
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t alignment, size_t n);
void *malloc(size_t n)
{
	allocations++;
	return __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
	allocations++;
	return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
	allocations++;
	return __libc_realloc(p, n);
}
void *aligned_alloc(size_t alignment, size_t n)
{
	allocations++;
	return __libc_memalign(alignment, n);
}
int posix_memalign(void **p, size_t alignment, size_t n)
{
	allocations++;
	*p = __libc_memalign(alignment, n);
	return *p ? 0 : 12;
}
#else
static uint64_t allocations; /* the sanitizer has malloc: the pool's own count is what is left */
#endif

static struct far_module *embedding, *lstm, *head;

static struct far_module *make_head(struct far_init *init)
{
	struct far_module *parts[5], *m;
	OK(far_module_layer_norm(pool, init, 16, 1e-5, &parts[0], &err));
	OK(far_module_linear(pool, init, 16, 32, true, &parts[1], &err));
	OK(far_module_map(pool, FAR_MODULE_RELU, &parts[2], &err));
	OK(far_module_dropout(pool, init, 0.1, &parts[3], &err));
	OK(far_module_linear(pool, init, 32, 5, true, &parts[4], &err));
	OK(far_module_sequential(pool, parts, 5, &m, &err));
	return m;
}

static void step(struct far_var *index, struct far_var *target, struct far_optimizer *dense,
		 struct far_optimizer *sparse)
{
	far_tape_reset(tape);
	far_grads_clear(grads);
	struct far_var *x = far_module_forward(embedding, tape, index);
	x = far_module_forward(lstm, tape, x);
	x = far_module_forward(head, tape, far_tape_reshape(tape, x, 2, (uint64_t[]){24, 16}));
	struct far_var *loss = far_tape_cross_entropy(tape, x, target, FAR_OP_REDUCE_MEAN);
	OK(far_tape_status(tape, &err));
	OK(far_grads_backward(grads, &loss, 1, NULL, &err));
	OK(far_optimizer_step(dense, grads, &err));
	OK(far_optimizer_step(sparse, grads, &err));
}

CASE(memory, steps_allocate_nothing)
{
	struct far_init init = {.dtype = FAR_F32, .seed = 1};
	struct far_var *params[32], *table;
	struct far_optimizer *dense, *sparse;
	struct far_pool_stats before, after;
	setenv("OPENBLAS_CORETYPE", "Prescott", 1); /* read when OpenBLAS is loaded, by the first product */
	OK(far_module_embedding(pool, &init, 50, 8, true, &embedding, &err));
	OK(far_module_lstm(pool, &init, 8, 16, true, &lstm, &err));
	head = make_head(&init);
	size_t n = far_module_parameters(lstm, params, 32);
	n += far_module_parameters(head, params + n, 32 - n);
	table = far_module_parameter(embedding, "weight");
	struct far_optimizer_opts opts = far_optimizer_defaults(FAR_OPTIMIZER_ADAM);
	OK(far_optimizer_new(pool, &opts, params, n, &dense, &err));
	opts = far_optimizer_defaults(FAR_OPTIMIZER_ROWWISE_ADAGRAD);
	OK(far_optimizer_new(pool, &opts, &table, 1, &sparse, &err));
	struct far_var *index = zeros(SHAPE(FAR_I64, 6, 4), false), *target = zeros(SHAPE(FAR_I64, 24), false);
	step(index, target, dense, sparse);
	far_pool_get_stats(pool, &before);
	uint64_t counted = allocations;
	for (int i = 0; i < 20; i++) {
		int64_t *at = far_var_tensor(index)->data;
		for (int k = 0; k < 24; k++)
			at[k] = (i * 31 + k * k) % 50;
		step(index, target, dense, sparse);
	}
	far_pool_get_stats(pool, &after);
	cr_assert_eq(allocations, counted, "%llu allocations", (unsigned long long)(allocations - counted));
	cr_assert_eq(after.system_requests, before.system_requests);
	cr_assert_eq(after.held_bytes, before.held_bytes);
	far_optimizer_free(dense);
	far_optimizer_free(sparse);
	far_module_free(embedding);
	far_module_free(lstm);
	far_module_free(head);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Gradients that move without a copy, and contexts in several threads. L8, X4e. */
#include "train.h"

#include <pthread.h>
#include <string.h>

/* ---- L8 ---- */

enum { WIDTH = 3, DX_MAX = 2 };
static const void *dx_at[DX_MAX]; /* where the derivative wrote */

static enum far_status first_of(void *user, const struct far_tensor *const *inputs, size_t n,
				struct far_tensor *const *out, size_t m, struct far_err *e)
{
	(void)user;
	(void)n;
	(void)m;
	if (out[0]->dtype == FAR_DTYPE_NONE) {
		*out[0] = *inputs[0];
		out[0]->data = NULL;
		return FAR_OK;
	}
	return far_op_copy(inputs[0], out[0], e);
}

static enum far_status note_where(void *user, const struct far_tensor *const *grads, size_t m,
				  const struct far_tensor *const *inputs, size_t n, const struct far_tensor *const *out,
				  struct far_tensor *const *dx, struct far_err *e)
{
	enum far_status status = FAR_OK;
	(void)user;
	(void)m;
	(void)inputs;
	(void)out;
	for (size_t i = 0; i < n && !status; i++) {
		dx_at[i] = dx[i]->data;
		status = far_op_copy(grads[0], dx[i], e);
	}
	return status;
}

static struct far_var *noted(struct far_var *const *inputs, size_t n)
{
	static const struct far_tape_function function = {"note_where", first_of, note_where, NULL};
	struct far_var *y;
	far_tape_apply(tape, &function, inputs, n, &y, 1);
	OK(far_tape_status(tape, &err));
	return y;
}

static struct far_gradient got(struct far_context *c, struct far_var *leaf)
{
	struct far_gradient g;
	HOLDS(far_grads_get(far_context_grads(c), leaf, &g));
	return g;
}

static uint64_t copied(struct far_context *c)
{
	struct far_context_counts k;
	far_context_counts_read(c, &k);
	return k.bytes_copied;
}

/* Two gradients of a function, each with an owner of its own, are kept where it wrote them. One that two leaves share
 * is copied for all but one of them. */
TRAIN(L8, no_grad_copy)
{
	struct far_context *c = begin();
	struct far_var *a = ramp(WIDTH, WIDTH, 1), *b = ramp(WIDTH, WIDTH, 2);
	BACKWARD(c, total(noted((struct far_var *[]){a, b}, 2)));
	HOLDS(got(c, a).values.data == dx_at[0] && got(c, b).values.data == dx_at[1] && copied(c) == 0);
	far_context_end(c);

	c = begin();
	BACKWARD(c, total(far_tape_add(tape, a, b)));
	HOLDS(got(c, a).values.data != got(c, b).values.data);
	GRADIENT_IS(c, a, 1);
	GRADIENT_IS(c, b, 1);
	HOLDS(copied(c) > 0);
	far_context_end(c);
}

static struct far_var *rows_of(struct far_var *table, const int64_t *at, size_t n)
{
	struct far_tensor index = far_tensor_1d(FAR_I64, (void *)(uintptr_t)at, n);
	return far_tape_embedding(tape, table, far_tape_input(tape, &index), true);
}

/* Values of rows are kept where the function after them wrote its derivative. */
TRAIN(L8, no_grad_copy_sparse)
{
	static const int64_t at[] = {1, 4};
	struct far_context *c = begin();
	struct far_var *table = ramp(5, WIDTH, 1), *rows = rows_of(table, at, 2);
	BACKWARD(c, total(noted(&rows, 1)));
	HOLDS(got(c, table).index.dtype == FAR_I64 && got(c, table).values.data == dx_at[0] && copied(c) == 0);
	far_context_end(c);
}

/* The caller has the positions, too: what it does with them does not change the gradient. */
TRAIN(L8, grad_copy_sparse_indices_extra_ref)
{
	int64_t at[] = {1, 4};
	struct far_context *c = begin();
	struct far_var *table = ramp(5, WIDTH, 1);
	BACKWARD(c, total(rows_of(table, at, 2)));
	at[0] = at[1] = 0;
	const int64_t *index = got(c, table).index.data;
	HOLDS(index != at && index[0] == 1 && index[1] == 4);
	GRADIENT_IS(c, table, 1);
	far_context_end(c);
}

/* ---- X4e ---- */

/* A part of a step on a thread of its own. */
struct branch {
	pthread_t thread;
	uint64_t context; /* id */
	struct far_var *a, *b;
	const char *wrong;
};

/** Finds the context by its id, and runs forward and backward in it, with a tape of its own. */
static const char *branch_step(const struct branch *at)
{
	struct far_context *c;
	struct far_tape *t;
	struct far_val out = {0};
	struct far_err e;
	if (far_context_find(train, NULL, at->context, &c, &e) || far_tape_new(pool, &t, &e))
		return "no context";
	struct far_val args[] = {far_context_send(c, at->a, &e), far_context_send(c, at->b, &e)};
	const char *wrong = far_rpc_sync(agent, peer(1), "t::mul", args, 2, NULL, &out, &e) ? "the call failed" : NULL;
	struct far_var *root = wrong ? NULL : far_tape_sum(t, far_tape_recv(t, c, &out), NULL, 0, false);
	if (root && far_backward(c, &root, 1, NULL, 0, &e))
		wrong = "backward failed";
	far_val_fini(&out);
	far_tape_free(t);
	far_context_free(c);
	return wrong;
}

static void *branch_run(void *user)
{
	struct branch *at = user;
	at->wrong = branch_step(at);
	return NULL;
}

/* A step forks into branches, which all add to the gradients of the one context. */
TRAIN(X4e, jit_fork_within_context)
{
	enum { BRANCHES = 4 };
	struct branch branches[BRANCHES];
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true);
	for (int i = 0; i < BRANCHES; i++) {
		branches[i] = (struct branch){.context = far_context_id(c), .a = a, .b = leaf_of(2, 2, i + 1, true)};
		HOLDS(pthread_create(&branches[i].thread, NULL, branch_run, &branches[i]) == 0);
	}
	for (int i = 0; i < BRANCHES; i++)
		pthread_join(branches[i].thread, NULL);
	for (int i = 0; i < BRANCHES; i++) {
		if (branches[i].wrong)
			conform_fail(HERE, "branch %d: %s", i, branches[i].wrong);
		GRADIENT_IS(c, branches[i].b, 3);
	}
	GRADIENT_IS(c, a, 1 + 2 + 3 + 4);
	far_context_end(c);
}

/** Goes on with a step when the call of its first half is complete. */
static enum far_status continues(struct far_future *f, struct far_val *out, struct far_err *e, void *user)
{
	struct far_context *c;
	struct far_val v;
	enum far_status status = far_future_value(f, &v, e);
	if (status || (status = far_context_find(train, NULL, *(const uint64_t *)user, &c, e)))
		return status;
	*out = far_int((int64_t)far_context_id(c));
	far_val_fini(&v);
	far_context_free(c);
	return FAR_OK;
}

/* A continuation, on whatever thread, works in the context of what it continues; so does the thread that waited. */
TRAIN(X4e, restore_context_after_swtich_to_jit_thread)
{
	struct far_context *c = begin();
	uint64_t id = far_context_id(c);
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true);
	struct far_future *first = ASYNC(peer(1), "t::add", PAIR(c, a, b)), *then = NULL;
	OK(far_future_then(first, continues, &id, &then, &err));
	far_future_free(first);
	IS_INT(TAKE(then), (int64_t)id);
	BACKWARD(c, total(CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b))));
	GRADIENT_IS(c, a, 5);
	far_context_end(c);
}

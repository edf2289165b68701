/* SPDX-License-Identifier: BSD-3-Clause */
/** Distributed autograd: backward passes and their gradients. I8, L5, L6, L8, L9, O1, X4e.
 * Main thread of each process; threads that it starts. */
#include "train.h"

#include <pthread.h>

/** What backward() must give: a local pass from the same leaves. */
static struct far_grads *local(struct far_var *root)
{
	struct far_grads *g;
	OK(far_grads_new(pool, &g, &err));
	OK(far_grads_backward(g, &root, 1, NULL, &err));
	return g;
}

/* ---- L5: each graph gives what the same one gives here; l5_torch.py compares it with PyTorch's ---- */

/** The gradients of these leaves are those of a local pass. */
static void as_local(struct far_context *c, struct far_var *root, struct far_var *const *leaves, size_t n)
{
	struct far_grads *want = local(root);
	for (size_t i = 0; i < n; i++)
		SAME_GRADIENT(c, leaves[i], want);
	far_grads_free(want);
}
#define AS_LOCAL(c, y, ...)                                                                                            \
	as_local(c, total(y), (struct far_var *[]){__VA_ARGS__},                                                       \
		 sizeof((struct far_var *[]){__VA_ARGS__}) / sizeof(struct far_var *))

/* Calls `fn` on a worker with two leaves, and compares the gradients with those of the same operator here. */
static void square(size_t n, const char *to, const char *fn,
		   struct far_var *(*operator)(struct far_tape *tape, struct far_var *a, struct far_var *b))
{
	struct far_context *c = begin();
	struct far_var *a = ramp(n, n, 0.2), *b = ramp(n, n, -0.7);
	struct far_var *y = CALL_VAR(c, to, fn, PAIR(c, a, b));
	struct far_grads *want = local(total(operator(tape, a, b)));
	BACKWARD(c, total(y));
	SAME_GRADIENT(c, a, want);
	SAME_GRADIENT(c, b, want);
	far_grads_free(want);
	far_context_end(c);
}

static void simple(const char *to, const char *fn,
		   struct far_var *(*operator)(struct far_tape *tape, struct far_var *a, struct far_var *b))
{
	square(3, to, fn, operator);
}

/* Too much for a fiber is to be computed with the second size, and to be received with the third. */
TRAIN(L5, backward_simple)
{
	simple(peer(1), "t::mul", far_tape_mul);
	square(110, peer(1), "t::mul", far_tape_mul);
	square(160, peer(1), "t::mul", far_tape_mul);
}

TRAIN(L5, backward_simple_self)
{
	simple(peer(0), "t::mul", far_tape_mul);
}

TRAIN(L5, backward_simple_python_udf)
{
	simple(peer(1), "t::matmul", far_tape_matmul);
}

TRAIN(L5, backward_simple_script_call)
{
	simple(peer(2), "t::matmul", far_tape_matmul);
}

TRAIN(L5, backward_no_grad_on_tensor)
{
	struct far_context *c = begin();
	struct far_var *a = ramp(3, 3, 1), *b = leaf_of(3, 3, 2, false);
	struct far_var *y = CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b));
	struct far_var *root = total(y);
	BACKWARD(c, root);
	GRADIENT_IS(c, a, 2);
	HOLDS(!has_gradient(c, b) && far_grads_count(far_context_grads(c)) == 1);
	AS_LOCAL(c, far_tape_mul(tape, a, b), a);
	FAILS(FAR_INVALID, far_backward(c, &root, 1, NULL, 0, &err)); /* the graph is gone */
	far_context_end(c);
}

TRAIN(L5, backward_rref)
{
	struct far_context *c = begin();
	struct far_var *a = ramp(3, 3, 0.1), *b = ramp(3, 3, 0.4);
	struct far_rref *r = REMOTE(peer(1), "t::mul", PAIR(c, a, b));
	struct far_grads *want = local(total(far_tape_mul(tape, a, b)));
	BACKWARD(c, total(FETCH_VAR(c, r)));
	SAME_GRADIENT(c, a, want);
	SAME_GRADIENT(c, b, want);
	far_rref_free(r);
	far_grads_free(want);
	far_context_end(c);
}

/* Two fetches of one value both count. */
TRAIN(L5, backward_rref_multi)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true);
	struct far_rref *r = REMOTE(peer(1), "t::mul", PAIR(c, a, b));
	struct far_var *y = far_tape_add(tape, FETCH_VAR(c, r), FETCH_VAR(c, r));
	BACKWARD(c, total(y));
	GRADIENT_IS(c, a, 10);
	GRADIENT_IS(c, b, 6);
	AS_LOCAL(c, far_tape_add(tape, far_tape_mul(tape, a, b), far_tape_mul(tape, a, b)), a, b);
	far_rref_free(r);
	far_context_end(c);
}

/* The value is on one worker, used by a second, the loss on a third. */
TRAIN(L5, backward_rref_nested)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true), *x = leaf_of(2, 2, 1, true);
	struct far_rref *r = REMOTE(peer(1), "t::mul", PAIR(c, a, b));
	struct far_val args[2] = {sent(c, x), far_rref_val(r)};
	BACKWARD(c, total(CALL_VAR(c, peer(2), "t::add_rref", args, 2)));
	GRADIENT_IS(c, a, 5);
	GRADIENT_IS(c, b, 3);
	GRADIENT_IS(c, x, 1);
	AS_LOCAL(c, far_tape_add(tape, x, far_tape_mul(tape, a, b)), a, b, x);
	far_rref_free(r);
	far_context_end(c);
}

TRAIN(L5, backward_multiple_round_trips)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 1, true);
	struct far_val args[2] = {sent(c, a), far_int(3)};
	struct far_var *y = CALL_VAR(c, peer(1), "t::bounce", args, 2);
	BACKWARD(c, total(y));
	/* f(x, 0) = 2x, f(x, n) = f(2x, n - 1) + x: f(x, 3) = 16 + 4 + 2 + 1 times x */
	HOLDS(((float *)far_var_tensor(y)->data)[0] == 23);
	GRADIENT_IS(c, a, 23);
	y = far_tape_scale(tape, a, 16); /* and here */
	for (int i = 4; i > 0; i /= 2)
		y = far_tape_add(tape, y, far_tape_scale(tape, a, i));
	AS_LOCAL(c, y, a);
	far_context_end(c);
}

TRAIN(L5, backward_different_tensor_dims)
{
	struct far_context *c = begin();
	struct far_var *a = ramp(4, 6, 0.3), *b = ramp(6, 5, 0.1), *d = ramp(5, 7, 0.9);
	struct far_var *ab = CALL_VAR(c, peer(1), "t::matmul", PAIR(c, a, b));
	struct far_var *y = CALL_VAR(c, peer(2), "t::matmul", PAIR(c, ab, d));
	struct far_grads *want = local(total(far_tape_matmul(tape, far_tape_matmul(tape, a, b), d)));
	BACKWARD(c, total(y));
	SAME_GRADIENT(c, a, want);
	SAME_GRADIENT(c, b, want);
	SAME_GRADIENT(c, d, want);
	far_grads_free(want);
	far_context_end(c);
}

/* A variable that was sent and not used there, and one whose result is not used here. */
TRAIN(L5, backward_unused_tensors)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 1, true), *b = leaf_of(2, 2, 2, true), *unused = leaf_of(2, 2, 3, true);
	CALL_VAR(c, peer(1), "t::add", PAIR(c, unused, a));
	BACKWARD(c, total(CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b))));
	GRADIENT_IS(c, a, 2);
	GRADIENT_IS(c, b, 1);
	HOLDS(!has_gradient(c, unused));
	AS_LOCAL(c, far_tape_mul(tape, a, b), a, b);
	far_context_end(c);
}

TRAIN(L5, backward_multiple_output_tensors)
{
	struct far_context *c = begin();
	struct far_var *a = ramp(6, 2, 1);
	struct far_val v = sent(c, a);
	struct far_var *got = CALL_VAR(c, peer(1), "t::identity", &v, 1);
	struct far_var *first = far_tape_slice(tape, got, 0, 0, 2, 1), *last = far_tape_slice(tape, got, 0, 4, 6, 1);
	struct far_var *root = total(CALL_VAR(c, peer(2), "t::mul", PAIR(c, first, last)));
	struct far_grads *want = local(
		total(far_tape_mul(tape, far_tape_slice(tape, a, 0, 0, 2, 1), far_tape_slice(tape, a, 0, 4, 6, 1))));
	BACKWARD(c, root);
	SAME_GRADIENT(c, a, want);
	far_grads_free(want);
	far_context_end(c);
}

TRAIN(L5, backward_without_rpc)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 2, true), *b = leaf_of(2, 2, 7, true);
	BACKWARD(c, total(far_tape_mul(tape, a, b)));
	GRADIENT_IS(c, a, 7);
	GRADIENT_IS(c, b, 2);
	AS_LOCAL(c, far_tape_mul(tape, a, b), a, b);
	far_context_end(c);
}

TRAIN(L5, backward_multiple_roots)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true);
	struct far_var *roots[] = {total(CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b))),
				   total(CALL_VAR(c, peer(2), "t::add", PAIR(c, a, b)))};
	OK(far_backward(c, roots, 2, NULL, 0, &err));
	GRADIENT_IS(c, a, 6);
	GRADIENT_IS(c, b, 4);
	AS_LOCAL(c, far_tape_add(tape, far_tape_mul(tape, a, b), far_tape_add(tape, a, b)), a, b);
	far_context_end(c);
}

TRAIN(L5, backward_different_dtypes)
{
	struct far_context *c = begin();
	struct far_var *a = ramp(3, 3, 0.5);
	struct far_var *wide = far_tape_cast(tape, a, FAR_F64);
	struct far_var *y = CALL_VAR(c, peer(1), "t::mul", PAIR(c, wide, wide));
	HOLDS(far_var_tensor(y)->dtype == FAR_F64);
	struct far_grads *want =
		local(total(far_tape_mul(tape, far_tape_cast(tape, a, FAR_F64), far_tape_cast(tape, a, FAR_F64))));
	BACKWARD(c, total(y));
	SAME_GRADIENT(c, a, want);
	far_grads_free(want);
	far_context_end(c);
}

TRAIN(L5, backward_complex_python_udf)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true);
	struct far_val items[] = {sent(c, a), sent(c, b), sent(c, a)};
	struct far_val list = far_list(items, 3);
	struct far_var *y = CALL_VAR(c, peer(1), "t::sum", &list, 1);
	BACKWARD(c, total(CALL_VAR(c, peer(1), "t::mul", PAIR(c, y, y))));
	GRADIENT_IS(c, a, 44); /* (2a + b)^2: 2 (2a + b) 2 */
	GRADIENT_IS(c, b, 22);
	y = far_tape_add(tape, far_tape_add(tape, a, b), a);
	AS_LOCAL(c, far_tape_mul(tape, y, y), a, b);
	far_context_end(c);
}

TRAIN(L5, backwards_nested_python_udf)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true);
	struct far_val args[] = {sent(c, a), sent(c, b), far_str(peer(2))};
	struct far_var *y = CALL_VAR(c, peer(1), "t::nested", args, 3);
	BACKWARD(c, total(far_tape_mul(tape, y, a)));
	GRADIENT_IS(c, a, 11); /* (a + b) a */
	GRADIENT_IS(c, b, 3);
	AS_LOCAL(c, far_tape_mul(tape, far_tape_add(tape, a, b), a), a, b);
	far_context_end(c);
}

TRAIN(L5, mixed_requires_grad)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, false);
	struct far_var *y = CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b));
	struct far_var *z = CALL_VAR(c, peer(1), "t::mul", PAIR(c, b, b));
	HOLDS(far_var_requires_grad(y) && !far_var_requires_grad(z));
	BACKWARD(c, total(far_tape_add(tape, y, z)));
	GRADIENT_IS(c, a, 5);
	HOLDS(far_grads_count(far_context_grads(c)) == 1);
	AS_LOCAL(c, far_tape_add(tape, far_tape_mul(tape, a, b), far_tape_mul(tape, b, b)), a);
	far_context_end(c);
}

/* Each worker is a trainer, and the server of the one before it. */
static void trainer_ps(void)
{
	struct far_context *c = begin();
	struct far_rref *w = REMOTE(peer(1), "t::weight", FAR_ARGS(0));
	struct far_val v = {0};
	OK(far_rref_rpc_sync(w, "get", FAR_ARGS((int64_t)far_context_id(c)), NULL, &v, &err));
	struct far_var *weight = far_tape_recv(tape, c, &v), *x = ramp(2, 2, 1);
	far_val_fini(&v);
	struct far_var *root = total(far_tape_matmul(tape, weight, x));
	BACKWARD(c, root);
	/* The gradient of the parameter is with its owner, not here. */
	HOLDS(has_gradient(c, x) && !has_gradient(c, weight));
	AS_LOCAL(c, far_tape_matmul(tape, far_tape_detach(tape, weight), x), x);
	far_context_end(c);
	far_rref_free(w);
}

TRAIN(L5, trainer_ps)
{
	trainer_ps();
}

TRAIN(L5, trainer_ps_torchscript_functions)
{
	trainer_ps();
}

/* ---- O1 ---- */

/* Remote sums, one on oneself, and a backward pass through all of them, repeated. */
TRAIN(O1, TestE2ETensorPipe_TestTrainingLoop)
{
	enum { ROUNDS = 10, SUMS = 6 };
	struct far_var *a = leaf_of(5, 5, 1, true), *b = leaf_of(5, 5, 2, true);
	for (int round = 0; round < ROUNDS; round++) {
		struct far_context *c = begin();
		struct far_var *y = a;
		for (int i = 0; i < SUMS; i++)
			y = CALL_VAR(c, peer(1 + i % 3), "t::add", PAIR(c, y, b));
		struct far_rref *own = REMOTE(peer(0), "t::add", PAIR(c, y, a));
		y = FETCH_VAR(c, own);
		far_rref_free(own);
		HOLDS(((float *)far_var_tensor(y)->data)[24] == 2 * 1 + SUMS * 2);
		BACKWARD(c, total(y));
		GRADIENT_IS(c, a, 2);
		GRADIENT_IS(c, b, SUMS);
		far_context_end(c);
		far_tape_reset(tape);
	}
	GONE();
}

/* ---- L6 ---- */

TRAIN(L6, backward_accumulate_grads)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true);
	struct far_var *root = total(CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b)));
	struct far_backward_opts keep = {.retain_graph = true};
	for (int i = 1; i <= 3; i++) {
		OK(far_backward(c, &root, 1, &keep, 0, &err));
		GRADIENT_IS(c, a, 5 * i);
	}
	BACKWARD(c, root);
	GRADIENT_IS(c, a, 20);
	FAILS(FAR_INVALID, far_backward(c, &root, 1, NULL, 0, &err));
	SAYS("retain_graph");
	far_context_end(c);
}

TRAIN(L6, nested_backward_accumulate_grads)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true);
	struct far_val args[] = {sent(c, a), sent(c, b), far_str(peer(2))};
	struct far_var *root = total(CALL_VAR(c, peer(1), "t::nested", args, 3));
	struct far_backward_opts keep = {.retain_graph = true};
	OK(far_backward(c, &root, 1, &keep, 0, &err));
	BACKWARD(c, root);
	GRADIENT_IS(c, a, 2);
	GRADIENT_IS(c, b, 2);
	far_context_end(c);
}

TRAIN(L6, multiple_backward)
{
	for (int i = 0; i < 200; i++) {
		struct far_context *c = begin();
		struct far_var *a = leaf_of(2, 2, i, true), *b = leaf_of(2, 2, 5, true);
		BACKWARD(c, total(CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b))));
		GRADIENT_IS(c, b, i);
		far_context_end(c);
		far_tape_reset(tape);
	}
}

struct hammer {
	pthread_t thread;
	int number;
	const char *wrong;
};

/* Own tape and context: forward and backward over a server that all hammer at. */
static const char *hammer_once(struct far_var *a, struct far_var *b, int times)
{
	struct far_tape *t;
	struct far_context *c;
	struct far_val out = {0};
	struct far_err e;
	struct far_gradient g;
	const char *wrong = NULL;
	if (far_tape_new(pool, &t, &e) || far_context_begin(train, &c, &e))
		return "no context";
	struct far_val args[2] = {far_context_send(c, a, &e), far_context_send(c, b, &e)};
	if (far_rpc_sync(agent, conform_name(0), "t::mul", args, 2, NULL, &out, &e)) {
		fprintf(stderr, "%s\n", e.text);
		wrong = "the call failed";
	}
	struct far_var *root = wrong ? NULL : far_tape_sum(t, far_tape_recv(t, c, &out), NULL, 0, false);
	if (!wrong && far_backward(c, &root, 1, NULL, 0, &e)) {
		fprintf(stderr, "%s\n", e.text);
		wrong = "backward failed";
	}
	if (!wrong && (!far_grads_get(far_context_grads(c), a, &g) || ((float *)g.values.data)[0] != (float)times))
		wrong = "the gradient is wrong";
	far_val_fini(&out);
	far_tape_free(t);
	far_context_end(c);
	return wrong;
}

static void *hammer(void *user)
{
	struct hammer *h = user;
	struct far_var *a, *b;
	float one = 1, many = (float)h->number;
	struct far_tensor t = far_tensor_1d(FAR_F32, &one, 1), m = far_tensor_1d(FAR_F32, &many, 1);
	if (far_var_new(pool, &t, true, &a, NULL) || far_var_new(pool, &m, true, &b, NULL)) {
		h->wrong = "no memory";
		return NULL;
	}
	for (int i = 0; i < 20 && !h->wrong; i++)
		h->wrong = hammer_once(a, b, h->number);
	far_var_free(a);
	far_var_free(b);
	return NULL;
}

/* 20 threads on each of three workers, all of them at the first. */
TRAIN(L6, async_dist_autograd)
{
	enum { N = 20 };
	static struct hammer h[N];
	if (rank == 0)
		return;
	for (int i = 0; i < N; i++) {
		h[i].number = i + 2;
		HOLDS(pthread_create(&h[i].thread, NULL, hammer, &h[i]) == 0);
	}
	for (int i = 0; i < N; i++)
		pthread_join(h[i].thread, NULL);
	for (int i = 0; i < N; i++)
		if (h[i].wrong)
			conform_fail(HERE, "thread %d: %s", i, h[i].wrong);
}

/* ---- L8 ---- */

static enum far_status doubles(void *user, struct far_var *var, struct far_gradient *g, struct far_err *e)
{
	(void)var;
	(void)e;
	float *v = g->values.data;
	for (size_t i = 0; i < far_tensor_count(&g->values); i++)
		v[i] *= 2;
	++*(int *)user;
	return FAR_OK;
}

TRAIN(L8, backward_verify_hooks)
{
	int runs = 0, remote_runs = 0;
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true);
	struct far_var *y = CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b));
	OK(far_var_hook(a, FAR_HOOK_BEFORE, doubles, &runs, &err));
	OK(far_var_hook(y, FAR_HOOK_BEFORE, doubles, &remote_runs, &err)); /* on the way to the other worker */
	BACKWARD(c, total(y));
	HOLDS(runs == 1 && remote_runs == 1);
	GRADIENT_IS(c, a, 20);
	GRADIENT_IS(c, b, 6);
	far_context_end(c);
}

static enum far_status counts_it(void *user, struct far_var *var, struct far_gradient *g, struct far_err *e)
{
	(void)var;
	(void)e;
	*(double *)user += ((float *)g->values.data)[0];
	return FAR_OK;
}

TRAIN(L8, post_hooks)
{
	double seen = 0;
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true);
	OK(far_var_hook(a, FAR_HOOK_AFTER, counts_it, &seen, &err));
	BACKWARD(c, total(CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b))));
	HOLDS(seen == 5);
	BACKWARD(c, total(CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b))));
	HOLDS(seen == 5 + 10); /* the hook sees the sum */
	far_context_end(c);
}

/* ---- L9 ---- */

TRAIN(L9, debug_info)
{
	struct far_context_counts k;
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true);
	struct far_var *root = total(CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b)));
	far_context_counts_read(c, &k);
	HOLDS(k.passes == 0 && k.sent == 2 && k.received == 1);
	HOLDS(far_train_contexts(train) >= 1);
	BACKWARD(c, root);
	far_context_counts_read(c, &k);
	HOLDS(k.passes == 0);
	struct far_val id = far_int((int64_t)far_context_id(c));
	struct far_val v = conform_call(HERE, peer(1), "t::counts", &id, 1);
	HOLDS(far_list_get(&v, 2)->u.i == 0);
	far_val_fini(&v);
	far_context_end(c);
	GONE();
}

/* ---- I8 ---- */

static void rref_backward(const char *to)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(1, 1, 3, true), *b = leaf_of(1, 1, 5, true);
	struct far_rref *r = REMOTE(to, "t::mul", PAIR(c, a, b));
	struct far_rref *number = REMOTE(to, "t::contexts", FAR_NOARGS);
	struct far_rref *wide = REMOTE(to, "t::mul", PAIR(c, leaf_of(2, 2, 1, true), leaf_of(2, 2, 1, true)));
	struct far_rref *flat = REMOTE(to, "t::mul", PAIR(c, leaf_of(1, 1, 1, false), leaf_of(1, 1, 1, false)));
	struct far_backward_opts keep = {.retain_graph = true};
	OK(far_rref_backward(c, r, &keep, 0, &err));
	GRADIENT_IS(c, a, 5);
	OK(far_rref_backward(c, r, NULL, 0, &err));
	GRADIENT_IS(c, a, 10);
	GRADIENT_IS(c, b, 6);
	FAILS(FAR_INVALID, far_rref_backward(c, r, NULL, 0, &err));
	SAYS("retain_graph");
	FAILS(FAR_INVALID, far_rref_backward(NULL, r, NULL, 0, &err));
	SAYS("there is no context");
	FAILS(FAR_INVALID, far_rref_backward(c, number, NULL, 0, &err));
	SAYS("not a far::Var");
	FAILS(FAR_INVALID, far_rref_backward(c, wide, NULL, 0, &err));
	SAYS("not a scalar");
	FAILS(FAR_INVALID, far_rref_backward(c, flat, NULL, 0, &err));
	SAYS("requires no gradient");
	far_rref_free(r);
	far_rref_free(number);
	far_rref_free(wide);
	far_rref_free(flat);
	far_context_end(c);
}

TRAIN(I8, owner_rref_backward)
{
	rref_backward(peer(0));
}

TRAIN(I8, user_rref_backward)
{
	rref_backward(peer(1));
}

/* ---- X4e ---- */

TRAIN(X4e, get_gradients)
{
	struct far_context *c = begin();
	struct far_var *a = ramp(3, 3, 1), *b = ramp(3, 3, 2);
	struct far_grads *want = local(total(far_tape_add(tape, a, b)));
	BACKWARD(c, total(far_tape_add(tape, a, b)));
	HOLDS(far_grads_count(far_context_grads(c)) == 2);
	SAME_GRADIENT(c, a, want);
	far_grads_free(want);
	far_context_end(c);
}

TRAIN(X4e, dist_backward)
{
	simple(peer(1), "t::add", far_tape_add);
}

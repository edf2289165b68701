/* SPDX-License-Identifier: BSD-3-Clause */
/** Errors of backward passes, and sparse gradients. L7, X5b. Main thread of each process. */
#include "train.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* ---- L7 ---- */

/* The reference waits for ever here. */
TRAIN(L7, backward_unused_send_function)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true);
	CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b));
	BACKWARD(c, total(CALL_VAR(c, peer(1), "t::add", PAIR(c, a, b))));
	GRADIENT_IS(c, a, 1);
	GRADIENT_IS(c, b, 1);
	far_context_end(c);
}

static struct far_var *failing(struct far_context *c, int hops)
{
	struct far_var *y = leaf_of(2, 2, 3, true);
	for (int i = 0; i < hops; i++) {
		struct far_val v = sent(c, y);
		y = CALL_VAR(c, peer(1 + i), i == 0 ? "t::fails_backward" : "t::identity", &v, 1);
	}
	return total(y);
}

TRAIN(L7, backward_autograd_engine_error)
{
	struct far_context *c = begin();
	char node[32];
	struct far_var *root = failing(c, 3);
	FAILS(FAR_REMOTE, far_backward(c, &root, 1, NULL, 0, &err));
	SAYS("Simulate error on backward pass");
	HOLDS(err.code == 42);
	/* Each worker on the way is named. The third has done its part before: what it sent waited at the root. */
	for (int i = 1; i <= 2; i++) {
		snprintf(node, sizeof node, "error on node %d (%s)", peer_rank(i), peer(i));
		SAYS(node);
	}
	far_context_end(c);
}

/* A pass that failed leaves nothing that the next one meets. */
TRAIN(L7, backward_python_udf_error)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true);
	struct far_var *bad = failing(c, 2);
	FAILS(FAR_REMOTE, far_backward(c, &bad, 1, NULL, 0, &err));
	BACKWARD(c, total(CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b))));
	GRADIENT_IS(c, a, 5);
	far_context_end(c);
}

TRAIN(L7, multiple_backward_with_errors)
{
	for (int i = 0; i < 50; i++) {
		struct far_context *c = begin();
		struct far_var *a = leaf_of(1, 1, i, true);
		struct far_var *root = i % 3 ? total(CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, a))) : failing(c, 2);
		enum far_status status = far_backward(c, &root, 1, NULL, 0, &err);
		HOLDS(status == (i % 3 ? FAR_OK : FAR_REMOTE));
		if (i % 3)
			GRADIENT_IS(c, a, 2 * i);
		far_context_end(c);
		far_tape_reset(tape);
	}
	GONE();
}

/** The answer of a worker that waits for the second part of a pass. */
static void waits(struct far_val v)
{
	HOLDS(v.type == FAR_TYPE_BOOL && v.u.b);
}

/* What a malformed or late message of a pass meets. */
static void refused_messages(struct far_context *c)
{
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true);
	int64_t id = (int64_t)far_context_id(c);
	uint64_t numbers[] = {1, 2};
	struct far_tensor one = far_tensor_1d(FAR_U64, numbers, 1), beyond = far_tensor_1d(FAR_U64, numbers + 1, 1);
	struct far_tensor wrong = far_tensor_1d(FAR_I64, numbers, 1);
	struct far_val g[] = {far_int(1), full(3, 2, 1), far_none()}, small[] = {far_int(1), full(2, 2, 1), far_none()};
	struct far_val none = far_list(NULL, 0);
	CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b));
	CALL_FAILS(FAR_INVALID, peer(1), "far::backward::expect", FAR_ARGS(id + 40, 1, 0, &one, none));
	SAYS("is not here");
	CALL_FAILS(FAR_INVALID, peer(1), "far::backward::expect", FAR_ARGS(id, 1, 0, &beyond, none));
	SAYS("was not sent from here");
	CALL_FAILS(FAR_INVALID, peer(1), "far::backward::expect", FAR_ARGS(id, 1, 0, &wrong, none));
	SAYS("u64");
	CALL_FAILS(FAR_INVALID, peer(1), "far::backward::gradient", FAR_ARGS(id, 1, far_list(small, 3)));
	SAYS("has ended");
	for (int i = 0; i < 3; i++) {
		/* Each of these ends the pass that it meets. */
		waits(CALL(peer(1), "far::backward::expect", FAR_ARGS(id, 2, 0, &one, none)));
		CALL_FAILS(FAR_INVALID, peer(1), "far::backward::gradient",
			   FAR_ARGS(id, 2, far_list(i == 0 ? g : small, i == 1 ? 2 : 3 - (i == 2))));
		SAYS(i == 0 ? "does not fit" : "number, values, index");
	}
	waits(CALL(peer(1), "far::backward::expect", FAR_ARGS(id, 3, 0, &one, none)));
	IS_NONE(CALL(peer(1), "far::backward::gradient", FAR_ARGS(id, 3, far_list(small, 3))));
	GRADIENT_IS(c, a, 5); /* as if a pass of that worker had begun there */
	CALL_FAILS(FAR_INVALID, peer(1), "far::backward::gradient", FAR_ARGS(id, 3, far_list(small, 3)));
	SAYS("has ended");
}

TRAIN(L7, backward_invalid_args)
{
	struct far_context *c = begin();
	struct far_var *leaf = leaf_of(1, 1, 1, true), *plain = leaf_of(1, 1, 1, false);
	struct far_var *wide = far_tape_add(tape, leaf_of(2, 2, 1, true), leaf_of(2, 2, 1, true));
	FAILS(FAR_INVALID, far_backward(c, NULL, 0, NULL, 0, &err));
	SAYS("no roots");
	FAILS(FAR_INVALID, far_backward(c, &plain, 1, NULL, 0, &err));
	SAYS("requires no gradient");
	FAILS(FAR_INVALID, far_backward(c, &wide, 1, NULL, 0, &err));
	SAYS("not a scalar");
	FAILS(FAR_INVALID, far_backward(c, &leaf, 1, NULL, 0, &err));
	SAYS("no gradient function");
	refused_messages(c);
	far_context_end(c);
}

/* The last worker dies between the forward and the backward pass. */
static void node_failure(const char *fn)
{
	enum { DEAD = WORLD - 1 };
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 3, true), *b = leaf_of(2, 2, 5, true);
	OK(far_barrier(agent, NULL, 0, 0, &err));
	if (rank == DEAD) {
		conform_may_die();
		conform_publish(HERE, 1);
		while (conform_published(0) + conform_published(1) + conform_published(2) < 3)
			conform_nap(FAR_MS);
		raise(SIGKILL);
	}
	struct far_var *root = total(CALL_VAR(c, conform_name(DEAD), fn, PAIR(c, a, b)));
	struct far_worker_info info = {.alive = true};
	conform_publish(HERE, 1);
	while (info.alive) {
		conform_nap(FAR_MS);
		OK(far_worker_by_rank(agent, DEAD, &info, &err));
	}
	FAILS(FAR_PEER_LOST, far_backward(c, &root, 1, NULL, 0, &err));
	SAYS("error on node 3 (worker3)");
	far_context_end(c);
	while (far_train_contexts(train) > 0)
		conform_nap(FAR_MS); /* those of the dead worker too */
	OK(far_shutdown_local(agent, &err));
	fflush(NULL);
	_exit(0);
}

CONFORM_BARE(L7, backward_node_failure)
{
	train_join(HERE);
	node_failure("t::mul");
}

CONFORM_BARE(L7, backward_node_failure_python_udf)
{
	train_join(HERE);
	node_failure("t::matmul");
}

/* ---- X5b: gradients of rows ---- */

static struct far_var *rows_of(struct far_var *table, size_t n, const int64_t *at)
{
	struct far_tensor index = far_tensor_1d(FAR_I64, at, n);
	struct far_var *v = far_tape_embedding(tape, table, far_tape_input(tape, &index), true);
	OK(far_tape_status(tape, &err));
	return v;
}

/* A table fetched as a value: the gradient goes back to its owner as rows, and the owner updates these alone. */
static void table(const char *to)
{
	static const int64_t at[] = {0, 1, 0};
	struct far_optimizer_opts o = far_optimizer_defaults(FAR_OPTIMIZER_ADAGRAD);
	struct far_rref *w = REMOTE(to, "t::weight", FAR_ARGS(0));
	struct far_dist_optimizer *optimizer = NULL;
	struct far_val v = {0}, old = {0};
	struct far_context *c = begin();
	OK(far_dist_optimizer_new(train, &o, &w, 1, 0, &optimizer, &err));
	OK(far_rref_rpc_sync(w, "value", FAR_NOARGS, NULL, &old, &err));
	OK(far_rref_rpc_sync(w, "get", FAR_ARGS((int64_t)far_context_id(c)), NULL, &v, &err));
	struct far_var *weight = far_tape_recv(tape, c, &v);
	far_val_fini(&v);
	BACKWARD(c, total(rows_of(weight, 1, at)));
	OK(far_dist_optimizer_step(optimizer, c, 0, &err));
	OK(far_rref_rpc_sync(w, "value", FAR_NOARGS, NULL, &v, &err));
	const float *is = far_val_tensor(&v)->data, *was = far_val_tensor(&old)->data;
	HOLDS(is[0] != was[0] && is[1] != was[1] && is[2] == was[2] && is[3] == was[3]);
	far_val_fini(&v);
	far_val_fini(&old);
	far_dist_optimizer_free(optimizer);
	far_rref_free(w);
	far_context_end(c);
}

TRAIN(X5b, trainer_ps_sparse)
{
	table(peer(1));
}

TRAIN(X5b, backward_simple_self_sparse)
{
	table(peer(0));
}

/* Rows of a table here, whose sum is computed elsewhere: the leaf's gradient stays sparse. */
static void rows_through(const char *to, bool remote)
{
	static const int64_t at[] = {3, 1, 3};
	struct far_gradient g;
	struct far_context *c = begin();
	struct far_var *t = ramp(5, 4, 0.1), *ones = leaf_of(3, 4, 1, true), *y;
	struct far_var *rows = rows_of(t, 3, at);
	if (remote) {
		struct far_rref *r = REMOTE(to, "t::mul", PAIR(c, rows, ones));
		y = FETCH_VAR(c, r);
		far_rref_free(r);
	} else {
		y = CALL_VAR(c, to, "t::mul", PAIR(c, rows, ones));
	}
	BACKWARD(c, total(y));
	HOLDS(far_grads_get(far_context_grads(c), t, &g) && g.index.dtype == FAR_I64);
	double sums[5] = {0};
	for (size_t i = 0; i < g.index.shape[0]; i++)
		sums[((int64_t *)g.index.data)[i]] += ((float *)g.values.data)[i * 4];
	HOLDS(sums[0] == 0 && sums[1] == 1 && sums[2] == 0 && sums[3] == 2 && sums[4] == 0);
	far_context_end(c);
}

TRAIN(X5b, backward_simple_sparse)
{
	rows_through(peer(1), false);
}

TRAIN(X5b, backward_simple_python_udf_sparse)
{
	rows_through(peer(2), false);
}

TRAIN(X5b, backward_rref_sparse)
{
	rows_through(peer(1), true);
}

TRAIN(X5b, backward_rref_multi_sparse)
{
	rows_through(peer(1), true);
	rows_through(peer(2), true);
}

TRAIN(X5b, multiple_backward_sparse)
{
	for (int i = 0; i < 50; i++) {
		rows_through(peer(1), false);
		far_tape_reset(tape);
	}
}

TRAIN(X5b, context_cleanup_tensor_with_grad_sparse)
{
	rows_through(peer(1), false);
	GONE();
}

/* Bags of rows without a gradient, beside a table that has one. */
TRAIN(X5b, embedding_bag_with_no_grad_tensors)
{
	static const int64_t at[] = {1, 2, 4, 1}, starts[] = {0, 2};
	struct far_tensor index = far_tensor_1d(FAR_I64, at, 4), offsets = far_tensor_1d(FAR_I64, starts, 2);
	struct far_gradient g;
	struct far_context *c = begin();
	struct far_var *frozen = leaf_of(5, 4, 2, false), *t = ramp(5, 4, 0.1);
	struct far_var *i = far_tape_input(tape, &index), *o = far_tape_input(tape, &offsets);
	struct far_var *a = far_tape_embedding_bag(tape, frozen, i, o, FAR_OP_BAG_SUM, true);
	struct far_var *b = far_tape_embedding_bag(tape, t, i, o, FAR_OP_BAG_SUM, true);
	BACKWARD(c, total(CALL_VAR(c, peer(1), "t::mul", PAIR(c, a, b))));
	HOLDS(far_grads_get(far_context_grads(c), t, &g) && g.index.dtype == FAR_I64);
	HOLDS(!has_gradient(c, frozen));
	far_context_end(c);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Distributed autograd: contexts, graphs, clean-up. K4, L1 to L4.
 * Main thread of each process; threads that it starts. */
#include "train.h"

#include <farcall/testing.h>
#include <pthread.h>
#include <string.h>

static void together(void)
{
	OK(far_barrier(agent, NULL, 0, 0, &err));
}

/* ---- L1 ---- */

TRAIN(L1, autograd_context)
{
	enum { N = 20 };
	struct far_context *c[N], *again;
	struct far_worker_info self;
	for (int i = 0; i < N; i++) {
		c[i] = begin();
		HOLDS(far_context_id(c[i]) >> 48 == (uint64_t)rank);
		HOLDS(i == 0 || far_context_id(c[i]) == far_context_id(c[i - 1]) + 1);
	}
	/* Another incarnation has other ids. */
	OK(far_worker_by_rank(agent, rank, &self, &err));
	HOLDS((far_context_id(c[0]) & ((1ull << 47) - 1)) == (self.incarnation & ((1ull << 47) - 1)));
	OK(far_context_find(train, NULL, far_context_id(c[3]), &again, &err));
	HOLDS(again == c[3]);
	far_context_free(again);
	uint64_t id = far_context_id(c[3]);
	for (int i = 0; i < N; i++)
		far_context_end(c[i]);
	FAILS(FAR_INVALID, far_context_find(train, NULL, id, &again, &err));
	SAYS("has ended");
	FAILS(FAR_INVALID, far_context_find(train, NULL, (uint64_t)WORLD << 48, &again, &err));
	SAYS("is of no worker");
}

/* A context is a value here, not a state of the thread: a second one does not disturb the first. */
TRAIN(L1, nested_context)
{
	struct far_context *a = begin(), *b = begin();
	struct far_var *w = leaf_of(2, 2, 3, true), *x = leaf_of(2, 2, 2, true);
	struct far_var *in_a = total(CALL_VAR(a, peer(1), "t::mul", PAIR(a, w, x)));
	struct far_var *in_b = total(CALL_VAR(b, peer(1), "t::add", PAIR(b, w, x)));
	BACKWARD(b, in_b);
	BACKWARD(a, in_a);
	GRADIENT_IS(a, w, 2);
	GRADIENT_IS(b, w, 1);
	far_context_end(a);
	far_context_end(b);
}

TRAIN(L1, worker_ids_recorded)
{
	struct far_context *c = begin();
	struct far_var *w = leaf_of(2, 2, 1, true);
	together();
	IS_INT(CALL(peer(0), "t::contexts", FAR_NOARGS), 1);
	together();
	CALL_VAR(c, peer(1), "t::add", PAIR(c, w, w));
	together();
	/* My own, and that of the worker before me; nobody else's. */
	IS_INT(CALL(peer(0), "t::contexts", FAR_NOARGS), 2);
	together();
	far_context_end(c);
}

TRAIN(L1, backward_without_context)
{
	struct far_context *c = begin();
	struct far_var *root = total(leaf_of(2, 2, 1, true));
	FAILS(FAR_INVALID, far_backward(NULL, &root, 1, NULL, 0, &err));
	SAYS("there is no context");
	far_context_end(c);
}

TRAIN(L1, thread_local_context_id)
{
	struct far_context *c = begin();
	struct far_var *w = leaf_of(2, 2, 1, true);
	struct far_val v = sent(c, w);
	IS_INT(conform_call(HERE, peer(1), "t::context_of", &v, 1), (int64_t)far_context_id(c));
	far_context_end(c);
}

/* ---- L2: what is recorded, in the call's worker and in mine ---- */

static void graph_of_call(const char *fn)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(3, 3, 1, true), *b = leaf_of(3, 3, 2, true);
	struct far_var *y = CALL_VAR(c, peer(1), fn, PAIR(c, a, b));
	HOLDS(far_var_requires_grad(y) && far_var_tensor(y)->shape[0] == 3);
	COUNTS_ON(peer(0), c, 2, 1);
	COUNTS_ON(peer(1), c, 1, 2);
	COUNTS_ON(peer(2), c, 0, 0);
	far_context_end(c);
}

static void graph_of_remote(const char *fn)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(3, 3, 1, true), *b = leaf_of(3, 3, 2, true);
	struct far_rref *r = REMOTE(peer(1), fn, PAIR(c, a, b));
	struct far_var *y = FETCH_VAR(c, r);
	far_rref_free(r);
	HOLDS(far_var_requires_grad(y));
	COUNTS_ON(peer(0), c, 2, 1);
	COUNTS_ON(peer(1), c, 1, 2);
	far_context_end(c);
}

static void graph_of_nested(const char *to, bool remote)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(3, 3, 1, true), *b = leaf_of(3, 3, 2, true), *y;
	struct far_val args[] = {sent(c, a), sent(c, b), far_str(to)};
	if (remote) {
		struct far_rref *r = REMOTE(peer(1), "t::nested", args, 3);
		y = FETCH_VAR(c, r);
		far_rref_free(r);
	} else {
		y = CALL_VAR(c, peer(1), "t::nested", args, 3);
	}
	HOLDS(far_var_requires_grad(y));
	COUNTS_ON(peer(1), c, 3, 3); /* two there and the result; passed on likewise */
	if (strcmp(to, peer(0))) {
		COUNTS_ON(peer(0), c, 2, 1);
		COUNTS_ON(to, c, 1, 2);
	} else {
		COUNTS_ON(peer(0), c, 3, 3);
	}
	BACKWARD(c, total(y));
	GRADIENT_IS(c, a, 1);
	GRADIENT_IS(c, b, 1);
	far_context_end(c);
}

TRAIN(L2, graph_for_builtin_call)
{
	graph_of_call("t::matmul");
}

TRAIN(L2, graph_for_python_call)
{
	graph_of_call("t::add");
}

TRAIN(L2, graph_for_builtin_remote_call)
{
	graph_of_remote("t::matmul");
}

TRAIN(L2, graph_for_python_remote_call)
{
	graph_of_remote("t::add");
}

TRAIN(L2, graph_for_py_nested_call)
{
	graph_of_nested(peer(2), false);
}

TRAIN(L2, graph_for_py_nested_remote_call)
{
	graph_of_nested(peer(2), true);
}

TRAIN(L2, graph_for_py_nested_call_itself)
{
	graph_of_nested(peer(0), false);
}

TRAIN(L2, graph_for_py_nested_remote_call_itself)
{
	graph_of_nested(peer(0), true);
}

/* ---- L3 ---- */

static void no_graph(bool remote)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(3, 3, 1, false), *b = leaf_of(3, 3, 2, false), *y;
	if (remote) {
		struct far_rref *r = REMOTE(peer(1), "t::add", PAIR(c, a, b));
		y = FETCH_VAR(c, r);
		far_rref_free(r);
	} else {
		y = CALL_VAR(c, peer(1), "t::add", PAIR(c, a, b));
	}
	HOLDS(!far_var_requires_grad(y) && ((float *)far_var_tensor(y)->data)[4] == 3);
	COUNTS_ON(peer(0), c, 0, 0);
	COUNTS_ON(peer(1), c, 0, 0);
	far_context_end(c);
}

TRAIN(L3, no_graph_with_tensors_not_require_grad)
{
	no_graph(false);
}

TRAIN(L3, no_graph_with_tensors_not_require_grad_remote)
{
	no_graph(true);
}

static void grad_only_on_return(bool remote)
{
	struct far_context *c = begin();
	struct far_var *y;
	const struct far_val id = far_int((int64_t)far_context_id(c));
	if (remote) {
		struct far_rref *r = REMOTE(peer(1), "t::makes_leaf", &id, 1);
		y = FETCH_VAR(c, r);
		far_rref_free(r);
	} else {
		y = CALL_VAR(c, peer(1), "t::makes_leaf", &id, 1);
	}
	HOLDS(far_var_requires_grad(y));
	COUNTS_ON(peer(0), c, 0, 1);
	COUNTS_ON(peer(1), c, 1, 0);
	far_context_end(c);
}

TRAIN(L3, grad_only_on_return_value)
{
	grad_only_on_return(false);
}

TRAIN(L3, grad_only_on_return_value_remote)
{
	grad_only_on_return(true);
}

static void complex_args(bool remote)
{
	enum { N = 10 };
	struct far_context *c = begin();
	struct far_var *x[N], *y, *want;
	struct far_val items[N];
	for (int i = 0; i < N; i++) {
		x[i] = leaf_of(2, 2, i, i % 2 == 0);
		items[i] = sent(c, x[i]);
	}
	struct far_val list = far_list(items, N);
	if (remote) {
		struct far_rref *r = REMOTE(peer(1), "t::sum", &list, 1);
		y = FETCH_VAR(c, r);
		far_rref_free(r);
	} else {
		y = CALL_VAR(c, peer(1), "t::sum", &list, 1);
	}
	want = x[0];
	for (int i = 1; i < N; i++)
		want = far_tape_add(tape, want, x[i]);
	HOLDS(!memcmp(far_var_tensor(y)->data, far_var_tensor(want)->data, 4 * sizeof(float)));
	COUNTS_ON(peer(0), c, N / 2, 1);
	COUNTS_ON(peer(1), c, 1, N / 2);
	BACKWARD(c, total(y));
	for (int i = 0; i < N; i++)
		HOLDS(has_gradient(c, x[i]) == (i % 2 == 0));
	far_context_end(c);
}

TRAIN(L3, rpc_complex_args)
{
	complex_args(false);
}

TRAIN(L3, remote_complex_args)
{
	complex_args(true);
}

/* ---- L4, K4: the end of a context ---- */

static void cleanup(bool grad, bool nested)
{
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 1, grad), *b = leaf_of(2, 2, 2, grad);
	if (nested)
		CALL_VAR(c, peer(1), "t::nested", ((struct far_val[]){sent(c, a), sent(c, b), far_str(peer(2))}), 3);
	else
		for (int i = 1; i < WORLD; i++)
			CALL_VAR(c, peer(i), "t::add", PAIR(c, a, b));
	far_context_end(c);
	GONE();
}

TRAIN(L4, context_cleanup_tensor_with_grad)
{
	cleanup(true, false);
}

TRAIN(L4, context_cleanup_tensor_no_grad)
{
	cleanup(false, false);
}

TRAIN(L4, context_cleanup_no_tensors)
{
	struct far_context *c = begin();
	COUNTS_ON(peer(1), c, 0, 0); /* takes the id alone */
	far_context_end(c);
	GONE();
}

TRAIN(L4, context_cleanup_nested_rpc)
{
	cleanup(true, true);
}

TRAIN(L4, error_in_context)
{
	struct far_context *c = begin();
	struct far_val v = sent(c, leaf_of(2, 2, 1, true));
	conform_refused(HERE, FAR_REMOTE, peer(1), "t::raises", &v, 1);
	SAYS("Expected error");
	struct far_val bad[2] = {sent(c, leaf_of(2, 2, 1, true)), sent(c, leaf_of(5, 3, 1, true))};
	conform_refused(HERE, FAR_INVALID, peer(1), "t::matmul", bad, 2);
	far_context_end(c);
	GONE();
}

static bool nothing_held(void *user)
{
	(void)user;
	return far_train_contexts(train) == 0;
}

static uint64_t replies_failed(void)
{
	struct far_fault_counts k;
	far_fault_counts_read(agent, &k);
	return k.of[FAR_FAULT_REPLY].failed;
}

static bool all_failed(void *user)
{
	(void)user;
	return replies_failed() == WORLD - 1;
}

/* The end of a context is the answer to a call of each worker that has it: these answers fail. */
TRAIN(K4, context_cleanup_tensor_with_grad)
{
	const struct far_fault fault = {.fail_sends = 3, .messages = WORLD - 1};
	struct far_context *c = begin();
	struct far_var *a = leaf_of(2, 2, 1, true), *b = leaf_of(2, 2, 2, true);
	for (int i = 1; i < WORLD; i++)
		CALL_VAR(c, peer(i), "t::add", PAIR(c, a, b));
	conform_meet(HERE); /* without calls: each answer that comes now is such an end */
	OK(far_fault_set(agent, FAR_FAULT_REPLY, &fault, &err));
	far_context_end(c);
	UNTIL(nothing_held, NULL);
	UNTIL(all_failed, NULL);
	OK(far_faults_clear(agent, &err));
}

TRAIN(K4, verify_backend_options)
{
	const struct far_fault fault = {.fail_sends = 3};
	FAILS(FAR_INVALID, far_fault_set(agent, FAR_FAULT_COUNT, &fault, &err));
	OK(far_fault_set(agent, FAR_FAULT_REPLY, &fault, &err));
	OK(far_fault_set(agent, FAR_FAULT_REPLY, NULL, &err));
	conform_meet(HERE);
	cleanup(true, false);
	HOLDS(replies_failed() == 0);
}

static void *end_context(void *user)
{
	conform_nap(2 * FAR_MS);
	far_context_end(user);
	return NULL;
}

/* The pass ends well or with an error, whatever it was at; nobody waits, and nothing is left. */
TRAIN(L4, clean_context_during_backward)
{
	for (int i = 0; i < 20; i++) {
		struct far_context *c = begin(), *mine;
		uint64_t id = far_context_id(c);
		pthread_t thread;
		struct far_var *a = leaf_of(20, 20, 1, true);
		struct far_val args[2] = {sent(c, a), far_int(20)};
		struct far_var *root = total(CALL_VAR(c, peer(1), "t::bounce", args, 2));
		OK(far_context_find(train, NULL, id, &mine, &err));
		HOLDS(pthread_create(&thread, NULL, end_context, c) == 0);
		enum far_status status = far_backward(mine, &root, 1, NULL, 0, &err);
		HOLDS(status == FAR_OK || status == FAR_INVALID);
		pthread_join(thread, NULL);
		far_context_free(mine);
		far_tape_reset(tape);
	}
	GONE();
}

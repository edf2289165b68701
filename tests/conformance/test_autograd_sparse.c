/* SPDX-License-Identifier: BSD-3-Clause */
/** Distributed autograd of sparse matrices: positions and values. X5b; those of gradients of rows are beside L7. */
#include "train_sparse.h"

#include <string.h>

enum { N = 3 }; /* elements of a matrix */

/** Sends two matrices as a function of theirs expects them: in a list, or one by one. */
struct pair {
	struct matrix m[2];
	struct far_val items[2][2], terms[3];
};

static void pair_send(struct pair *p, struct far_context *c)
{
	for (int i = 0; i < 2; i++)
		p->terms[i] = matrix_sent(c, &p->m[i], p->items[i]);
}

static void pair_make(struct pair *p, struct far_context *c, bool first, bool second)
{
	p->m[0] = matrix_of(1, first);
	p->m[1] = matrix_of(10, second);
	pair_send(p, c);
}

static struct matrix taken(struct far_context *c, struct far_val v)
{
	struct matrix m = matrix_read(tape, c, &v);
	far_val_fini(&v);
	OK(far_tape_status(tape, &err));
	return m;
}

/** Calls a function, directly or through a reference to its result. */
static struct matrix called(struct far_context *c, bool remote, const char *to, const char *fn,
			    const struct far_val *args, size_t n)
{
	return taken(c, remote ? FETCH_LAST(REMOTE(to, fn, args, n)) : CALL(to, fn, args, n));
}

static struct matrix summed(struct far_context *c, bool remote, const char *to, const char *fn, struct pair *p)
{
	/* A copy of the list alone: the terms are the pair's. */
	const struct far_val list = far_list(p->terms, 2);
	return called(c, remote, to, fn, &list, 1);
}

/** Each value weighs something else, so that no gradient is right by accident. */
static struct far_var *weighed(const struct matrix *m, size_t n)
{
	struct far_var *w = far_tape_reshape(tape, ramp(1, n, 0.3), 1, (uint64_t[]){n});
	return total(far_tape_mul(tape, m->values, far_tape_detach(tape, w)));
}

/** The positions and values are those of the sum computed here. */
static void same_matrix(const struct matrix *a, const struct matrix *b)
{
	const struct far_tensor *x[] = {far_var_tensor(a->at), far_var_tensor(a->values)};
	const struct far_tensor *y[] = {far_var_tensor(b->at), far_var_tensor(b->values)};
	for (int i = 0; i < 2; i++)
		HOLDS(far_tensor_bytes(x[i]) == far_tensor_bytes(y[i]) &&
		      !memcmp(x[i]->data, y[i]->data, far_tensor_bytes(x[i])));
}

/** The gradients of both leaves are those of a local pass from `local`, where they require one. */
static void as_here(struct far_context *c, struct far_var *root, struct far_var *local, const struct pair *p)
{
	struct far_grads *want;
	const struct far_backward_opts keep = {.retain_graph = true}; /* the leaves are in both graphs */
	size_t leaves = 0;
	OK(far_grads_new(pool, &want, &err));
	OK(far_grads_backward(want, &local, 1, &keep, &err));
	BACKWARD(c, root);
	for (int i = 0; i < 2; i++) {
		HOLDS(has_gradient(c, p->m[i].leaf) == far_var_requires_grad(p->m[i].leaf));
		if (!has_gradient(c, p->m[i].leaf))
			continue;
		SAME_GRADIENT(c, p->m[i].leaf, want);
		leaves++;
	}
	HOLDS(far_grads_count(far_context_grads(c)) == leaves);
	far_grads_free(want);
}

/* ---- L2: what is recorded ---- */

static void graph_of_sum(bool remote, const char *fn)
{
	struct far_context *c = begin();
	struct pair p;
	pair_make(&p, c, true, true);
	struct matrix y = summed(c, remote, peer(1), fn, &p), want = matrix_sum(tape, p.m, 2);
	HOLDS(far_var_requires_grad(y.values));
	same_matrix(&y, &want);
	COUNTS_ON(peer(0), c, 2, 1);
	COUNTS_ON(peer(1), c, 1, 2);
	COUNTS_ON(peer(2), c, 0, 0);
	far_context_end(c);
}

TRAIN(X5b, graph_for_builtin_call_sparse)
{
	graph_of_sum(false, "s::sum");
}

TRAIN(X5b, graph_for_python_call_sparse)
{
	graph_of_sum(false, "s::sum_blocking");
}

TRAIN(X5b, graph_for_builtin_remote_call_sparse)
{
	graph_of_sum(true, "s::sum");
}

TRAIN(X5b, graph_for_python_remote_call_sparse)
{
	graph_of_sum(true, "s::sum_blocking");
}

static void graph_of_nested(const char *to, bool remote)
{
	struct far_context *c = begin();
	struct pair p;
	pair_make(&p, c, true, true);
	p.terms[2] = far_str(to);
	struct matrix y = called(c, remote, peer(1), "s::nested", p.terms, 3), want = matrix_sum(tape, p.m, 2);
	same_matrix(&y, &want);
	COUNTS_ON(peer(1), c, 3, 3); /* two there and the result; passed on likewise */
	if (strcmp(to, peer(0))) {
		COUNTS_ON(peer(0), c, 2, 1);
		COUNTS_ON(to, c, 1, 2);
	} else {
		COUNTS_ON(peer(0), c, 3, 3);
	}
	as_here(c, weighed(&y, 2 * N), weighed(&want, 2 * N), &p);
	far_context_end(c);
}

TRAIN(X5b, graph_for_py_nested_call_sparse)
{
	graph_of_nested(peer(2), false);
}

TRAIN(X5b, graph_for_py_nested_remote_call_sparse)
{
	graph_of_nested(peer(2), true);
}

TRAIN(X5b, graph_for_py_nested_call_itself_sparse)
{
	graph_of_nested(peer(0), false);
}

TRAIN(X5b, graph_for_py_nested_remote_call_itself_sparse)
{
	graph_of_nested(peer(0), true);
}

/* ---- L3 ---- */

static void no_graph(bool remote)
{
	struct far_context *c = begin();
	struct pair p;
	pair_make(&p, c, false, false);
	struct matrix y = summed(c, remote, peer(1), "s::sum", &p), want = matrix_sum(tape, p.m, 2);
	same_matrix(&y, &want);
	HOLDS(!far_var_requires_grad(y.values));
	COUNTS_ON(peer(0), c, 0, 0);
	COUNTS_ON(peer(1), c, 0, 0);
	far_context_end(c);
}

TRAIN(X5b, no_graph_with_tensors_not_require_grad_sparse)
{
	no_graph(false);
}

TRAIN(X5b, no_graph_with_tensors_not_require_grad_remote_sparse)
{
	no_graph(true);
}

/* A list of matrices, half of them with a gradient. */
static void complex_args(bool remote)
{
	enum { TERMS = 10 };
	struct far_context *c = begin();
	struct matrix m[TERMS];
	struct far_val items[TERMS][2], terms[TERMS];
	for (int i = 0; i < TERMS; i++) {
		m[i] = matrix_of(i, i % 2 == 0);
		terms[i] = matrix_sent(c, &m[i], items[i]);
	}
	const struct far_val list = far_list(terms, TERMS);
	struct matrix y = called(c, remote, peer(1), "s::sum", &list, 1), want = matrix_sum(tape, m, TERMS);
	same_matrix(&y, &want);
	COUNTS_ON(peer(0), c, TERMS / 2, 1);
	COUNTS_ON(peer(1), c, 1, TERMS / 2);
	BACKWARD(c, total(y.values));
	for (int i = 0; i < TERMS; i++) {
		HOLDS(has_gradient(c, m[i].leaf) == (i % 2 == 0));
		if (i % 2 == 0)
			GRADIENT_IS(c, m[i].leaf, 1);
	}
	far_context_end(c);
}

TRAIN(X5b, rpc_complex_args_sparse)
{
	complex_args(false);
}

TRAIN(X5b, remote_complex_args_sparse)
{
	complex_args(true);
}

/* ---- L4 ---- */

TRAIN(X5b, context_cleanup_tensor_no_grad_sparse)
{
	struct far_context *c = begin();
	struct pair p;
	pair_make(&p, c, false, false);
	for (int i = 1; i < WORLD; i++)
		summed(c, false, peer(i), "s::sum", &p);
	far_context_end(c);
	GONE();
}

TRAIN(X5b, context_cleanup_nested_rpc_sparse)
{
	struct far_context *c = begin();
	struct pair p;
	pair_make(&p, c, true, true);
	p.terms[2] = far_str(peer(2));
	called(c, false, peer(1), "s::nested", p.terms, 3);
	far_context_end(c);
	GONE();
}

/* ---- L5, L6 ---- */

static void sum_as_here(const char *fn, bool first, bool second)
{
	struct far_context *c = begin();
	struct pair p;
	pair_make(&p, c, first, second);
	struct matrix y = summed(c, false, peer(1), fn, &p), want = matrix_sum(tape, p.m, 2);
	as_here(c, weighed(&y, 2 * N), weighed(&want, 2 * N), &p);
	far_context_end(c);
}

TRAIN(X5b, backward_no_grad_on_tensor_sparse)
{
	sum_as_here("s::sum", true, false);
	sum_as_here("s::sum", false, true);
}

TRAIN(X5b, backward_simple_script_call_sparse)
{
	sum_as_here("s::sum_blocking", true, true);
}

/* A sum with a gradient and one without it, added here. */
TRAIN(X5b, mixed_requires_grad_sparse)
{
	struct far_context *c = begin();
	struct pair p, plain;
	pair_make(&p, c, true, false);
	pair_make(&plain, c, false, false);
	struct matrix y[] = {summed(c, false, peer(1), "s::sum", &p), summed(c, false, peer(1), "s::sum", &plain)};
	struct matrix want[] = {matrix_sum(tape, p.m, 2), matrix_sum(tape, plain.m, 2)};
	HOLDS(far_var_requires_grad(y[0].values) && !far_var_requires_grad(y[1].values));
	struct matrix all = matrix_sum(tape, y, 2), here = matrix_sum(tape, want, 2);
	as_here(c, weighed(&all, 4 * N), weighed(&here, 4 * N), &p);
	far_context_end(c);
}

/* The matrix is on one worker, used by a second, the loss on a third. */
TRAIN(X5b, backward_rref_nested_sparse)
{
	struct far_context *c = begin();
	struct pair p;
	pair_make(&p, c, true, true);
	struct matrix x = matrix_of(5, false), terms[3] = {x, p.m[0], p.m[1]};
	const struct far_val list = far_list(p.terms, 2);
	struct far_rref *r = REMOTE(peer(1), "s::sum", &list, 1);
	struct far_val items[2], args[2] = {matrix_sent(c, &x, items), far_rref_val(r)};
	struct matrix y = called(c, false, peer(2), "s::add_rref", args, 2), want = matrix_sum(tape, terms, 3);
	same_matrix(&y, &want);
	as_here(c, weighed(&y, 3 * N), weighed(&want, 3 * N), &p);
	far_rref_free(r);
	far_context_end(c);
}

/* f(x, 0) = 2x, f(x, n) = x + f(2x, n - 1), as a list of terms. */
TRAIN(X5b, backward_multiple_round_trips_sparse)
{
	struct far_context *c = begin();
	struct pair p;
	pair_make(&p, c, true, false);
	const struct far_val args[2] = {p.terms[0], far_int(3)};
	struct matrix y = called(c, false, peer(1), "s::bounce", args, 2), terms[4];
	for (int i = 0; i < 4; i++)
		terms[i] = (struct matrix){.at = p.m[0].at,
					   .values = far_tape_scale(tape, p.m[0].values, i == 3 ? 16 : 1 << i)};
	struct matrix want = matrix_sum(tape, terms, 4);
	same_matrix(&y, &want);
	as_here(c, weighed(&y, 4 * N), weighed(&want, 4 * N), &p);
	far_context_end(c);
}

TRAIN(X5b, backward_different_dtypes_sparse)
{
	struct far_context *c = begin();
	struct pair p;
	pair_make(&p, c, true, true);
	for (int i = 0; i < 2; i++)
		p.m[i].values = far_tape_cast(tape, p.m[i].values, FAR_F64);
	pair_send(&p, c);
	struct matrix y = summed(c, false, peer(1), "s::sum", &p), want = matrix_sum(tape, p.m, 2);
	HOLDS(far_var_tensor(y.values)->dtype == FAR_F64);
	same_matrix(&y, &want);
	as_here(c, total(far_tape_mul(tape, y.values, far_tape_detach(tape, y.values))),
		total(far_tape_mul(tape, want.values, far_tape_detach(tape, want.values))), &p);
	far_context_end(c);
}

TRAIN(X5b, backwards_nested_python_udf_sparse)
{
	struct far_context *c = begin();
	struct pair p;
	pair_make(&p, c, true, true);
	p.terms[2] = far_str(peer(2));
	struct matrix y[] = {called(c, false, peer(1), "s::nested", p.terms, 3), p.m[0]};
	struct matrix want[] = {matrix_sum(tape, p.m, 2), p.m[0]};
	struct matrix all = matrix_sum(tape, y, 2), here = matrix_sum(tape, want, 2);
	as_here(c, weighed(&all, 3 * N), weighed(&here, 3 * N), &p);
	far_context_end(c);
}

TRAIN(X5b, nested_backward_accumulate_grads_sparse)
{
	struct far_context *c = begin();
	struct pair p;
	pair_make(&p, c, true, true);
	const struct far_backward_opts keep = {.retain_graph = true};
	p.terms[2] = far_str(peer(2));
	struct matrix y = called(c, false, peer(1), "s::nested", p.terms, 3);
	struct far_var *root = total(y.values);
	OK(far_backward(c, &root, 1, &keep, 0, &err));
	GRADIENT_IS(c, p.m[0].leaf, 1);
	BACKWARD(c, root);
	for (int i = 0; i < 2; i++)
		GRADIENT_IS(c, p.m[i].leaf, 2);
	far_context_end(c);
}

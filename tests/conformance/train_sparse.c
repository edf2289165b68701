/* SPDX-License-Identifier: BSD-3-Clause */
/** Sparse matrices, and functions of them that workers offer: fibers and threads for blocking handlers. */
#include "train_sparse.h"

enum { TERMS_MAX = 16 };

struct matrix matrix_of(double from, bool grad)
{
	static const int64_t at[] = {0, 2, 1, 0, 1, 2};
	const struct far_tensor t = far_tensor_2d(FAR_I64, (void *)(uintptr_t)at, 3, 2);
	struct matrix m = {.at = far_tape_input(tape, &t), .leaf = leaf_of(1, 3, 0, grad)};
	struct far_tensor values;
	OK(far_var_edit(m.leaf, &values, &err));
	for (int i = 0; i < 3; i++)
		((float *)values.data)[i] = (float)(from + i);
	m.values = far_tape_reshape(tape, m.leaf, 1, (uint64_t[]){3});
	return m;
}

struct matrix matrix_sum(struct far_tape *on, const struct matrix *a, size_t n)
{
	struct far_var *at[TERMS_MAX], *values[TERMS_MAX];
	for (size_t i = 0; i < n; i++) {
		at[i] = a[i].at;
		values[i] = a[i].values;
	}
	return (struct matrix){.at = far_tape_cat(on, at, n, 0), .values = far_tape_cat(on, values, n, 0)};
}

struct far_val matrix_sent(struct far_context *c, const struct matrix *m, struct far_val items[2])
{
	struct far_err e;
	items[0] = far_tensor_val(far_var_tensor(m->at));
	items[1] = far_context_send(c, m->values, &e);
	return far_list(items, 2);
}

struct matrix matrix_read(struct far_tape *on, struct far_context *c, const struct far_val *v)
{
	return (struct matrix){.at = far_tape_recv(on, NULL, far_list_get(v, 0)),
			       .values = far_tape_recv(on, c, far_list_get(v, 1))};
}

/* ---- handlers ---- */

/* A handler's tape and context. */
struct work {
	struct far_tape *tape;
	struct far_context *c; /* NULL: no argument has a gradient */
};

/** The context is that of the first values that have one. */
static struct work work_begin(struct far_req *req, const struct far_val *const *matrices, size_t n)
{
	struct work w = {0};
	struct far_err e;
	far_tape_new(pool, &w.tape, &e);
	for (size_t i = 0; i < n && !w.c; i++) {
		const struct far_val *v = far_list_get(matrices[i], 1);
		if (v->type == FAR_TYPE_CUSTOM && !(w.c = far_context_of(train, req, v, &e)))
			far_tape_fail(w.tape, &e);
	}
	return w;
}

static enum far_status work_end(struct work *w, struct far_req *req, const struct matrix *m)
{
	struct far_err e;
	enum far_status status = far_tape_status(w->tape, &e);
	if (status) {
		status = far_fail(req, status, e.code, "%s", e.text);
	} else {
		struct far_val items[2], list = matrix_sent(w->c, m, items);
		status = far_return(req, &list);
	}
	far_tape_free(w->tape);
	far_context_free(w->c);
	return status;
}

/** Calls a function with arguments, and reads the matrix that it returns. */
static struct matrix call_on(struct work *w, struct far_req *req, const char *to, const char *fn,
			     const struct far_val *args, size_t n)
{
	struct far_val out = {0};
	struct matrix m = {0};
	struct far_err e;
	if (far_rpc_sync(far_req_agent(req), to, fn, args, n, NULL, &out, &e))
		far_tape_fail(w->tape, &e);
	else
		m = matrix_read(w->tape, w->c, &out);
	far_val_fini(&out);
	return m;
}

enum far_status sparse_sum(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct far_val *terms[TERMS_MAX] = {0};
	struct matrix m[TERMS_MAX] = {0};
	size_t count = far_len(&args[0]);
	(void)n;
	(void)user;
	if (count > TERMS_MAX)
		return far_fail(req, FAR_BAD_ARGS, 0, "too many terms");
	for (size_t i = 0; i < count; i++)
		terms[i] = far_list_get(&args[0], i);
	struct work w = work_begin(req, terms, count);
	for (size_t i = 0; i < count; i++)
		m[i] = matrix_read(w.tape, w.c, terms[i]);
	m[0] = matrix_sum(w.tape, m, count);
	return work_end(&w, req, m);
}

/** The sum of two, computed by another worker. */
enum far_status sparse_nested(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct far_val *pair[] = {&args[0], &args[1]};
	struct far_val items[2][2], terms[2];
	(void)n;
	(void)user;
	struct work w = work_begin(req, pair, 2);
	for (int i = 0; i < 2; i++) {
		struct matrix m = matrix_read(w.tape, w.c, pair[i]);
		terms[i] = matrix_sent(w.c, &m, items[i]);
	}
	struct far_val list = far_list(terms, 2);
	struct matrix sum = call_on(&w, req, args[2].u.s.data, "s::sum", &list, 1);
	return work_end(&w, req, &sum);
}

/** Back and forth between two workers. Each doubles the matrix and adds its own. */
enum far_status sparse_bounce(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct far_val *one = &args[0];
	int64_t left = args[1].u.i;
	(void)n;
	(void)user;
	struct work w = work_begin(req, &one, 1);
	struct matrix m[2] = {matrix_read(w.tape, w.c, one)};
	struct matrix twice = {.at = m[0].at, .values = far_tape_scale(w.tape, m[0].values, 2)};
	if (left == 0)
		return work_end(&w, req, &twice);
	struct far_worker_info from;
	struct far_val items[2], pass[2] = {matrix_sent(w.c, &twice, items), far_int(left - 1)};
	far_worker_by_rank(far_req_agent(req), far_req_from(req).worker, &from, NULL);
	m[1] = call_on(&w, req, from.name, "s::bounce", pass, 2);
	m[0] = matrix_sum(w.tape, m, 2);
	return work_end(&w, req, m);
}

/** A matrix plus that of a reference. */
enum far_status sparse_add_rref(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct far_val *one = &args[0];
	struct far_val v = {0};
	struct far_err e;
	(void)n;
	(void)user;
	struct work w = work_begin(req, &one, 1);
	struct matrix m[2] = {matrix_read(w.tape, w.c, one)};
	if (far_rref_to_here(args[1].u.rref, 0, &v, &e))
		far_tape_fail(w.tape, &e);
	else
		m[1] = matrix_read(w.tape, w.c, &v);
	m[0] = matrix_sum(w.tape, m, 2);
	far_val_fini(&v);
	return work_end(&w, req, m);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** What workers that train offer to each other, and how a test uses it.
 * Handlers: shard threads, fibers and threads of the agent. */
#include "train_sparse.h"

#include <math.h>
#include <string.h>

struct far_train *train;
struct far_pool *pool;
struct far_tape *tape;
const char *train_test;

static struct far_var *leaves[512];
static size_t leaves_n;

/* ---- functions ---- */

/* A handler's tape and context. */
struct step {
	struct far_context *c;
	struct far_tape *tape;
};

static const struct far_val *first_var(const struct far_val *args, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (args[i].type == FAR_TYPE_CUSTOM)
			return &args[i];
		if (args[i].type == FAR_TYPE_LIST && far_len(&args[i]))
			return first_var(far_list_get(&args[i], 0), far_len(&args[i]));
	}
	return NULL;
}

static struct step step_begin(struct far_req *req, const struct far_val *args, size_t n)
{
	struct step s = {0};
	const struct far_val *v = first_var(args, n);
	struct far_err e;
	far_tape_new(pool, &s.tape, &e);
	if (v)
		s.c = far_context_of(train, req, v, &e);
	if (v && !s.c)
		far_tape_fail(s.tape, &e);
	return s;
}

static struct far_var *in(struct step *s, const struct far_val *v)
{
	return far_tape_recv(s->tape, s->c, v);
}

static enum far_status step_end(struct step *s, struct far_req *req, struct far_var *y)
{
	enum far_status status = far_tape_return(s->tape, s->c, y, req);
	far_tape_free(s->tape);
	far_context_free(s->c);
	return status;
}

FAR_HANDLER(add)
{
	struct step s = step_begin(req, args, n);
	return step_end(&s, req, far_tape_add(s.tape, in(&s, &args[0]), in(&s, &args[1])));
}

FAR_HANDLER(mul)
{
	struct step s = step_begin(req, args, n);
	return step_end(&s, req, far_tape_mul(s.tape, in(&s, &args[0]), in(&s, &args[1])));
}

FAR_HANDLER(matmul)
{
	struct step s = step_begin(req, args, n);
	return step_end(&s, req, far_tape_matmul(s.tape, in(&s, &args[0]), in(&s, &args[1])));
}

FAR_HANDLER(identity)
{
	struct step s = step_begin(req, args, n);
	return step_end(&s, req, in(&s, &args[0]));
}

FAR_HANDLER(sum)
{
	struct step s = step_begin(req, args, n);
	struct far_var *y = in(&s, far_list_get(&args[0], 0));
	for (size_t i = 1; i < far_len(&args[0]); i++)
		y = far_tape_add(s.tape, y, in(&s, far_list_get(&args[0], i)));
	return step_end(&s, req, y);
}

/** Passes variables on to a function of another worker. */
FAR_HANDLER(nested)
{
	struct step s = step_begin(req, args, n);
	struct far_val out = {0}, pass[2];
	struct far_err e;
	struct far_var *y = NULL;
	pass[0] = far_context_send(s.c, in(&s, &args[0]), &e);
	pass[1] = far_context_send(s.c, in(&s, &args[1]), &e);
	const char *to = args[2].u.s.data;
	if (far_rpc_sync(far_req_agent(req), to, "t::add", pass, 2, NULL, &out, &e))
		far_tape_fail(s.tape, &e);
	else
		y = in(&s, &out);
	enum far_status status = step_end(&s, req, y);
	far_val_fini(&out);
	return status;
}

/** Back and forth between two workers, one addition each. */
FAR_HANDLER(bounce)
{
	struct step s = step_begin(req, args, n);
	struct far_val out = {0};
	struct far_err e;
	struct far_var *x = in(&s, &args[0]);
	struct far_var *y = far_tape_scale(s.tape, x, 2);
	int64_t left = args[1].u.i;
	if (left > 0) {
		struct far_worker_info from;
		struct far_val pass[2] = {far_context_send(s.c, y, &e), far_int(left - 1)};
		far_worker_by_rank(far_req_agent(req), far_req_from(req).worker, &from, NULL);
		if (far_rpc_sync(far_req_agent(req), from.name, "t::bounce", pass, 2, NULL, &out, &e))
			far_tape_fail(s.tape, &e);
		else
			y = far_tape_add(s.tape, in(&s, &out), x);
	}
	enum far_status status = step_end(&s, req, y);
	far_val_fini(&out);
	return status;
}

static enum far_status fail_forward(void *user, const struct far_tensor *const *inputs, size_t n,
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

static enum far_status fail_backward(void *user, const struct far_tensor *const *grads, size_t m,
				     const struct far_tensor *const *inputs, size_t n,
				     const struct far_tensor *const *out, struct far_tensor *const *dx,
				     struct far_err *e)
{
	(void)user;
	(void)grads;
	(void)m;
	(void)inputs;
	(void)n;
	(void)out;
	(void)dx;
	e->code = 42;
	strcpy(e->text, "Simulate error on backward pass");
	return FAR_REMOTE;
}

const struct far_tape_function fails = {"fails", fail_forward, fail_backward, NULL};

FAR_HANDLER(fails_backward)
{
	struct step s = step_begin(req, args, n);
	struct far_var *x = in(&s, &args[0]), *y = NULL;
	far_tape_apply(s.tape, &fails, &x, 1, &y, 1);
	return step_end(&s, req, y);
}

/** A leaf of this worker, in a context that no argument carries. */
FAR_HANDLER(makes_leaf)
{
	struct step s = {0};
	struct far_err e;
	struct far_var *leaf = NULL;
	float one[4] = {1, 1, 1, 1};
	struct far_tensor t = far_tensor_2d(FAR_F32, one, 2, 2);
	far_tape_new(pool, &s.tape, &e);
	if (far_context_find(train, req, (uint64_t)args[0].u.i, &s.c, &e) ||
	    far_var_new(pool, &t, args[1].u.b, &leaf, &e))
		far_tape_fail(s.tape, &e);
	enum far_status status = step_end(&s, req, leaf);
	far_var_free(leaf);
	return status;
}

FAR_HANDLER(context_of)
{
	struct step s = step_begin(req, args, n);
	enum far_status status = far_return_int(req, (int64_t)far_context_id(s.c));
	far_tape_free(s.tape);
	far_context_free(s.c);
	return status;
}

/** Starts a context where none came, to see that it is not there. */
FAR_HANDLER(counts)
{
	struct far_context *c;
	struct far_context_counts k;
	struct far_err e;
	if (far_context_find(train, req, (uint64_t)args[0].u.i, &c, &e))
		return far_fail(req, e.status, e.code, "%s", e.text);
	far_context_counts_read(c, &k);
	far_context_free(c);
	struct far_val list[3] = {far_int((int64_t)k.sent), far_int((int64_t)k.received), far_int((int64_t)k.passes)};
	struct far_val v = far_list(list, 3);
	return far_return(req, &v);
}

FAR_HANDLER(raises)
{
	struct step s = step_begin(req, args, n);
	in(&s, &args[0]);
	far_tape_free(s.tape);
	far_context_free(s.c);
	return far_fail(req, FAR_REMOTE, 7, "Expected error");
}

FAR_HANDLER(contexts)
{
	return far_return_int(req, (int64_t)far_train_contexts(train));
}

/* The fetched variable of a reference, plus another. */
FAR_HANDLER(add_rref)
{
	struct step s = step_begin(req, args, n);
	struct far_val v = {0};
	struct far_err e;
	struct far_var *y = NULL;
	if (far_rref_to_here(args[1].u.rref, 0, &v, &e))
		far_tape_fail(s.tape, &e);
	else
		y = far_tape_add(s.tape, in(&s, &args[0]), in(&s, &v));
	enum far_status status = step_end(&s, req, y);
	far_val_fini(&v);
	return status;
}

/* ---- objects ---- */

/** A parameter [2, 2], 0.5 + its distance. */
FAR_HANDLER(weight)
{
	struct far_var *var;
	struct far_err e;
	float w[4];
	for (int i = 0; i < 4; i++)
		w[i] = 0.5f + 0.25f * (float)i + (float)args[0].u.i;
	struct far_tensor t = far_tensor_2d(FAR_F32, w, 2, 2);
	if (far_var_new(pool, &t, true, &var, &e))
		return far_fail(req, e.status, e.code, "%s", e.text);
	return far_return_object(req, var);
}

FAR_HANDLER(linear)
{
	struct far_init init = {.seed = (uint64_t)args[2].u.i};
	struct far_module *layers[3] = {0}, *m;
	struct far_err e;
	if (far_module_linear(pool, &init, (uint64_t)args[0].u.i, (uint64_t)args[1].u.i, true, &layers[0], &e) ||
	    far_module_map(pool, FAR_MODULE_TANH, &layers[1], &e) ||
	    far_module_dropout(pool, &init, 0.5, &layers[2], &e) || far_module_sequential(pool, layers, 3, &m, &e)) {
		for (int i = 0; i < 3; i++)
			far_module_free(layers[i]);
		return far_fail(req, e.status, e.code, "%s", e.text);
	}
	return far_return_object(req, m);
}

static const struct far_function functions[] = {
	{"t::add(far::Var|Tensor a, far::Var|Tensor b) -> far::Var|Tensor", FAR_KIND_BLOCKING, add, NULL, 0},
	{"t::mul(far::Var|Tensor a, far::Var|Tensor b) -> far::Var|Tensor", FAR_KIND_BLOCKING, mul, NULL, 0},
	{"t::matmul(far::Var|Tensor a, far::Var|Tensor b) -> far::Var|Tensor", FAR_KIND_FIBER, matmul, NULL, 0},
	{"t::identity(far::Var a) -> far::Var", FAR_KIND_FIBER, identity, NULL, 0},
	{"t::sum(List xs) -> far::Var|Tensor", FAR_KIND_FIBER, sum, NULL, 0},
	{"t::nested(far::Var a, far::Var b, str to) -> far::Var|Tensor", FAR_KIND_FIBER, nested, NULL, 0},
	{"t::bounce(far::Var a, int left) -> far::Var", FAR_KIND_FIBER, bounce, NULL, 0},
	{"t::fails_backward(far::Var x) -> far::Var", FAR_KIND_FIBER, fails_backward, NULL, 0},
	{"t::makes_leaf(int context, bool grad=true) -> far::Var", FAR_KIND_FIBER, makes_leaf, NULL, 0},
	{"t::context_of(far::Var x) -> int", FAR_KIND_INLINE, context_of, NULL, 0},
	{"t::counts(int context) -> List", FAR_KIND_BLOCKING, counts, NULL, 0},
	{"t::raises(far::Var x) -> far::Var", FAR_KIND_FIBER, raises, NULL, 0},
	{"t::contexts() -> int", FAR_KIND_INLINE, contexts, NULL, 0},
	{"t::add_rref(far::Var x, rref r) -> far::Var", FAR_KIND_FIBER, add_rref, NULL, 0},
	{"t::weight(int distance=0) -> far::Parameter", FAR_KIND_FIBER, weight, NULL, 0},
	{"s::sum(List terms) -> List", FAR_KIND_FIBER, sparse_sum, NULL, 0},
	{"s::sum_blocking(List terms) -> List", FAR_KIND_BLOCKING, sparse_sum, NULL, 0},
	{"s::nested(List a, List b, str to) -> List", FAR_KIND_FIBER, sparse_nested, NULL, 0},
	{"s::bounce(List a, int left) -> List", FAR_KIND_FIBER, sparse_bounce, NULL, 0},
	{"s::add_rref(List a, rref r) -> List", FAR_KIND_FIBER, sparse_add_rref, NULL, 0},
	{"t::linear(int inputs, int outputs, int seed=1) -> far::Module", FAR_KIND_FIBER, linear, NULL, 0},
};

/* ---- the tests' side ---- */

void train_join(const char *here)
{
	conform_at(here);
	conform_opts.functions = functions;
	conform_opts.functions_n = sizeof functions / sizeof *functions;
	conform_want(here, "a pool", far_pool_new(0, &pool, &err), FAR_OK);
	conform_want(here, "a tape", far_tape_new(pool, &tape, &err), FAR_OK);
	conform_want(here, "training", far_train_new(pool, &train, &err), FAR_OK);
	conform_want(here, "joining",
		     far_train_init_rpc(train, conform_name(rank), rank, WORLD, &conform_opts, &agent, &err), FAR_OK);
	conform_joined(here);
}

static bool no_contexts(void *user)
{
	(void)user;
	return far_train_contexts(train) == 0;
}

void train_leave(const char *here)
{
	struct far_pool_stats stats;
	conform_until(here, no_contexts, NULL);
	conform_flushed(here);
	conform_leave(here);
	far_train_free(train);
	far_tape_free(tape);
	while (leaves_n > 0)
		far_var_free(leaves[--leaves_n]);
	far_pool_get_stats(pool, &stats);
	if (stats.used_bytes)
		conform_fail(here, "%zu bytes of the pool are in use", stats.used_bytes);
	far_pool_free(pool);
}

static struct far_var *keep(struct far_var *v)
{
	leaves[leaves_n++] = v;
	return v;
}

struct far_var *leaf_of(size_t rows, size_t cols, double x, bool grad)
{
	struct far_var *v;
	struct far_val t = full(rows, cols, x);
	OK(far_var_new(pool, far_val_tensor(&t), grad, &v, &err));
	return keep(v);
}

struct far_var *ramp(size_t rows, size_t cols, double from)
{
	struct far_var *v = leaf_of(rows, cols, 0, true);
	struct far_tensor t;
	OK(far_var_edit(v, &t, &err));
	for (size_t i = 0; i < rows * cols; i++)
		((float *)t.data)[i] = (float)(from + 0.37 * (double)i - 0.01 * (double)(i * i));
	return v;
}

struct far_context *begin(void)
{
	struct far_context *c;
	OK(far_context_begin(train, &c, &err));
	return c;
}

struct far_val sent(struct far_context *c, struct far_var *v)
{
	struct far_val x = far_context_send(c, v, &err);
	HOLDS(x.type != FAR_TYPE_NONE);
	return x;
}

static struct far_var *taken(const char *here, struct far_context *c, struct far_val *v)
{
	struct far_var *y = far_tape_recv(tape, c, v);
	far_val_fini(v);
	conform_want(here, "a variable", far_tape_status(tape, &err), FAR_OK);
	return y;
}

struct far_var *call_vars(const char *here, struct far_context *c, const char *to, const char *fn,
			  const struct far_val *args, size_t n)
{
	struct far_val v = conform_call(here, to, fn, args, n);
	return taken(here, c, &v);
}

struct far_var *fetch_var(const char *here, struct far_context *c, struct far_rref *r)
{
	struct far_val v = conform_fetch(here, r);
	return taken(here, c, &v);
}

struct far_var *total(struct far_var *x)
{
	struct far_var *y = far_tape_sum(tape, x, NULL, 0, false);
	OK(far_tape_status(tape, &err));
	return y;
}

void backward(const char *here, struct far_context *c, struct far_var *root)
{
	conform_at(here);
	conform_want(here, "backward", far_backward(c, &root, 1, NULL, 0, &err), FAR_OK);
}

bool has_gradient(struct far_context *c, struct far_var *leaf)
{
	struct far_gradient g;
	return far_grads_get(far_context_grads(c), leaf, &g);
}

/** Appends the gradient of a small leaf to the file that FAR_CONFORM_GRADIENTS names, for l5_torch.py. */
static void record(const struct far_gradient *g)
{
	const char *path = getenv("FAR_CONFORM_GRADIENTS");
	char line[2048];
	size_t n = far_tensor_count(&g->values);
	if (!path || rank > 0 || n > 64 || g->values.dtype != FAR_F32)
		return;
	int at = snprintf(line, sizeof line, "%s", train_test);
	for (size_t i = 0; i < n; i++)
		at += snprintf(line + at, sizeof line - (size_t)at, " %.9g", (double)((float *)g->values.data)[i]);
	FILE *f = fopen(path, "a");
	HOLDS(f && fprintf(f, "%s\n", line) > 0 && fclose(f) == 0);
}

void same_gradient(const char *here, struct far_context *c, struct far_var *leaf, struct far_grads *grads)
{
	struct far_gradient a, b;
	if (!far_grads_get(far_context_grads(c), leaf, &a) || !far_grads_get(grads, leaf, &b))
		conform_fail(here, "a leaf has no gradient");
	if (a.values.dtype != b.values.dtype || far_tensor_bytes(&a.values) != far_tensor_bytes(&b.values) ||
	    memcmp(a.values.data, b.values.data, far_tensor_bytes(&a.values)))
		conform_fail(here, "the gradient differs from the local one");
	record(&a);
}

void gradient_is(const char *here, struct far_context *c, struct far_var *leaf, double x)
{
	struct far_gradient g;
	if (!far_grads_get(far_context_grads(c), leaf, &g))
		conform_fail(here, "a leaf has no gradient");
	const float *v = g.values.data;
	for (size_t i = 0; i < far_tensor_count(&g.values); i++)
		if (fabs(v[i] - x) > 1e-6)
			conform_fail(here, "element %zu of the gradient is %g, not %g", i, (double)v[i], x);
}

void counts_on(const char *here, const char *worker, struct far_context *c, uint64_t sent, uint64_t received)
{
	struct far_val id = far_int((int64_t)far_context_id(c));
	struct far_val v = conform_call(here, worker, "t::counts", &id, 1);
	int64_t s = far_list_get(&v, 0)->u.i, r = far_list_get(&v, 1)->u.i;
	far_val_fini(&v);
	if ((uint64_t)s != sent || (uint64_t)r != received)
		conform_fail(here, "%s has sent %d and received %d", worker, (int)s, (int)r);
}

static bool none_left(void *user)
{
	(void)user;
	int64_t n = 0;
	for (int i = 0; i < WORLD; i++) {
		struct far_val v = {0};
		if (far_rpc_sync(agent, conform_name(i), "t::contexts", NULL, 0, NULL, &v, NULL) == FAR_OK)
			n += v.u.i;
	}
	return n == 0;
}

void gone_everywhere(const char *here)
{
	conform_until(here, none_left, NULL);
}

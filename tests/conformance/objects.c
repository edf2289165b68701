/* SPDX-License-Identifier: BSD-3-Clause */
/** A counter with methods of every kind, and a matrix whose methods describe it.
 * Handlers: shard threads, fibers and threads of the agent. */
#include "objects.h"

#include <stdlib.h>
#include <string.h>

static _Atomic int alive;

int objects_alive(void)
{
	return atomic_load(&alive);
}

#define METHOD(name)                                                                                                   \
	static enum far_status name(struct far_req *req, void *object __attribute__((unused)),                         \
				    const struct far_val *args __attribute__((unused)),                                \
				    size_t n __attribute__((unused)), void *user __attribute__((unused)))

/* ---- c::Counter ---- */

struct counter {
	int64_t n;
};

static enum far_status counter_new(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct counter *c = malloc(sizeof *c);
	if (!c)
		return far_fail(req, FAR_RESOURCE, 0, "no memory");
	c->n = args[0].u.i;
	enum far_status status = far_return_object(req, c);
	if (status)
		free(c);
	else
		atomic_fetch_add(&alive, 1);
	return status;
}

static enum far_status counter_slow_new(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	enum far_status status = functions_park((uint64_t)args[1].u.i * FAR_MS);
	return status ? status : counter_new(req, args, n, user);
}

static enum far_status counter_broken(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, FAR_REMOTE, 9, "Expected error of a constructor");
}

static void object_free(void *object, void *user)
{
	atomic_fetch_sub(&alive, 1);
	free(object);
}

METHOD(counter_add)
{
	struct counter *c = object;
	struct far_val v = far_int(c->n += args[0].u.i);
	return far_return(req, &v);
}

METHOD(counter_slow_add)
{
	struct counter *c = object;
	enum far_status status = functions_park((uint64_t)args[1].u.i * FAR_MS);
	if (status)
		return status;
	struct far_val v = far_int(c->n += args[0].u.i);
	return far_return(req, &v);
}

METHOD(counter_raise)
{
	return far_fail(req, FAR_REMOTE, 6, "Expected error of a method");
}

/* Its number and that of another one, wherever that is. */
METHOD(counter_plus)
{
	struct far_val v;
	struct far_err e;
	enum far_status status = far_rref_rpc_sync(args[0].u.rref, "add", FAR_ARGS(0), NULL, &v, &e);
	if (status)
		return fail_with(req, status, &e);
	v = far_int(v.u.i + ((const struct counter *)object)->n);
	return far_return(req, &v);
}

/* Methods that answer later, by calls of another worker's. */
METHOD(counter_async_add)
{
	return async_add(req, args, n, NULL);
}

METHOD(counter_async_chained)
{
	return async_add_chained(req, args, n, NULL);
}

/* ---- c::Matrix ---- */

struct matrix {
	uint64_t rows, cols;
	float data[];
};

static enum far_status matrix_new(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	const struct far_tensor *t = &args[0].u.t;
	if (t->dtype != FAR_F32 || t->ndim != 2)
		return far_fail(req, FAR_BAD_ARGS, 0, "a matrix of floats, please");
	struct matrix *m = malloc(sizeof *m + far_tensor_bytes(t));
	if (!m)
		return far_fail(req, FAR_RESOURCE, 0, "no memory");
	m->rows = t->shape[0];
	m->cols = t->shape[1];
	memcpy(m->data, t->data, far_tensor_bytes(t));
	enum far_status status = far_return_object(req, m);
	if (status)
		free(m);
	else
		atomic_fetch_add(&alive, 1);
	return status;
}

METHOD(matrix_size)
{
	const struct matrix *m = object;
	struct far_val v = FAR_LIST(m->rows, m->cols);
	return far_return(req, &v);
}

/* The same elements in another shape. */
METHOD(matrix_view)
{
	const struct matrix *m = object;
	uint64_t rows = (uint64_t)args[0].u.i, cols = (uint64_t)args[1].u.i;
	if (rows * cols != m->rows * m->cols)
		return far_fail(req, FAR_BAD_ARGS, 0, "so many elements it does not have");
	struct far_tensor t = far_tensor_2d(FAR_F32, m->data, rows, cols);
	struct far_val v = far_tensor_val(&t);
	return far_return(req, &v);
}

static const struct far_function counters[] = {
	{"c::Counter(int start=0) -> c::Counter", FAR_KIND_INLINE, counter_new, NULL},
	{"c::Counter_slow(int start, int ms) -> c::Counter", FAR_KIND_FIBER, counter_slow_new, NULL},
	{"c::Counter_broken() -> c::Counter", FAR_KIND_INLINE, counter_broken, NULL},
};
static const struct far_method counter_methods[] = {
	{"add(int by=1) -> int", FAR_KIND_INLINE, counter_add, NULL},
	{"slow_add(int by, int ms) -> int", FAR_KIND_FIBER, counter_slow_add, NULL},
	{"fail() -> int", FAR_KIND_INLINE, counter_raise, NULL},
	{"plus(rref other) -> int", FAR_KIND_FIBER, counter_plus, NULL},
	{"async_add(str to, Any a, Any b) -> Any", FAR_KIND_INLINE, counter_async_add, NULL},
	{"async_chained(str to, Any a, Any b, Any c) -> Any", FAR_KIND_INLINE, counter_async_chained, NULL},
};
static const struct far_class counter = {.name = "c::Counter",
					 .constructors = counters,
					 .constructors_n = sizeof counters / sizeof counters[0],
					 .methods = counter_methods,
					 .methods_n = sizeof counter_methods / sizeof counter_methods[0],
					 .destroy = object_free};

static const struct far_function matrices[] = {{"c::Matrix(Tensor x) -> c::Matrix", FAR_KIND_INLINE, matrix_new, NULL}};
static const struct far_method matrix_methods[] = {
	{"size() -> List", FAR_KIND_INLINE, matrix_size, NULL},
	{"view(int rows, int cols) -> Tensor", FAR_KIND_INLINE, matrix_view, NULL},
};
static const struct far_class matrix = {.name = "c::Matrix",
					.constructors = matrices,
					.constructors_n = 1,
					.methods = matrix_methods,
					.methods_n = sizeof matrix_methods / sizeof matrix_methods[0],
					.destroy = object_free};

/* A function that is given a reference to a counter, and uses it. */
static enum far_status method_add(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v;
	struct far_err e;
	enum far_status status = far_rref_rpc_sync(args[0].u.rref, "add", FAR_ARGS(args[1]), NULL, &v, &e);
	return status ? fail_with(req, status, &e) : answer_with(req, &v);
}

static const struct far_function of_counters = {"c::method_add(rref r, int by) -> int", FAR_KIND_FIBER, method_add,
						NULL};

void objects_register(const char *here)
{
	conform_at(here);
	conform_want(here, "registering c::Counter", far_register_class(agent, &counter, &err), FAR_OK);
	conform_want(here, "registering c::Matrix", far_register_class(agent, &matrix, &err), FAR_OK);
	conform_want(here, "registering c::method_add", far_register_function(agent, &of_counters, &err), FAR_OK);
	conform_want(here, "the barrier", far_barrier(agent, NULL, 0, 0, &err), FAR_OK);
}

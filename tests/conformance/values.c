/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls that must succeed, and what values must be. Main thread of each process. */
#include "conform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct far_val conform_call(const char *here, const char *to, const char *fn, const struct far_val *args, size_t n)
{
	struct far_val v = {0};
	conform_at(here);
	conform_want(here, fn, far_rpc_sync(agent, to, fn, args, n, NULL, &v, &err), FAR_OK);
	return v;
}

struct far_future *conform_async(const char *here, const char *to, const char *fn, const struct far_val *args, size_t n)
{
	struct far_future *f = NULL;
	enum far_status status;
	conform_at(here);
	while ((status = far_rpc_async(agent, to, fn, args, n, NULL, &f, &err)) == FAR_BUSY)
		conform_nap(FAR_MS / 10);
	conform_want(here, fn, status, FAR_OK);
	return f;
}

struct far_rref *conform_remote(const char *here, const char *to, const char *fn, const struct far_val *args, size_t n)
{
	struct far_rref *r = NULL;
	enum far_status status;
	conform_at(here);
	while ((status = far_remote(agent, to, fn, args, n, NULL, &r, &err)) == FAR_BUSY)
		conform_nap(FAR_MS / 10);
	conform_want(here, fn, status, FAR_OK);
	return r;
}

struct far_val conform_wait(const char *here, struct far_future *f)
{
	struct far_val v = {0};
	conform_at(here);
	conform_want(here, "waiting", far_future_wait(f, 0, &v, &err), FAR_OK);
	return v;
}

struct far_val conform_fetch(const char *here, struct far_rref *r)
{
	struct far_val v = {0};
	conform_at(here);
	conform_want(here, "fetching", far_rref_to_here(r, 0, &v, &err), FAR_OK);
	return v;
}

struct far_val conform_take(const char *here, struct far_future *f)
{
	struct far_val v = conform_wait(here, f);
	far_future_free(f);
	return v;
}

struct far_val conform_last(const char *here, struct far_rref *r)
{
	struct far_val v = conform_fetch(here, r);
	far_rref_free(r);
	return v;
}

void conform_refused(const char *here, enum far_status want, const char *to, const char *fn, const struct far_val *args,
		     size_t n)
{
	conform_at(here);
	conform_want(here, fn, far_rpc_sync(agent, to, fn, args, n, NULL, NULL, &err), want);
}

void conform_wait_fails(const char *here, enum far_status want, struct far_future *f)
{
	conform_at(here);
	conform_want(here, "waiting", far_future_wait(f, 0, NULL, &err), want);
	far_future_free(f);
}

void conform_fetch_fails(const char *here, enum far_status want, struct far_rref *r)
{
	conform_at(here);
	conform_want(here, "fetching", far_rref_to_here(r, 0, NULL, &err), want);
}

static _Noreturn void differs(const char *here, const struct far_val *v, const char *want)
{
	fprintf(stderr, "  the value is ");
	far_val_print(stderr, v);
	fputc('\n', stderr);
	conform_fail(here, "it is not %s", want);
}

void conform_int(const char *here, struct far_val v, int64_t want)
{
	char text[32];
	snprintf(text, sizeof text, "%lld", (long long)want);
	if (v.type != FAR_TYPE_INT || v.u.i != want)
		differs(here, &v, text);
	far_val_fini(&v);
}

void conform_text(const char *here, struct far_val v, const char *want)
{
	if (v.type != FAR_TYPE_STRING || v.u.s.len != strlen(want) || memcmp(v.u.s.data, want, v.u.s.len) != 0)
		differs(here, &v, want);
	far_val_fini(&v);
}

void conform_none(const char *here, struct far_val v)
{
	if (v.type != FAR_TYPE_NONE)
		differs(here, &v, "none");
}

void *conform_memory(size_t bytes)
{
	static struct block {
		struct block *next;
	} * all;
	struct block *b = calloc(1, bytes + 64);
	if (!b)
		conform_fail(HERE, "out of memory");
	b->next = all; /* reachable to the end: not a leak */
	all = b;
	return (char *)b + 64;
}

static struct far_val filled(size_t ndim, size_t rows, size_t cols, enum far_dtype dtype)
{
	size_t n = ndim == 2 ? rows * cols : rows;
	void *data = conform_memory(n * far_dtype_size(dtype));
	struct far_tensor t = ndim == 2 ? far_tensor_2d(dtype, data, rows, cols) : far_tensor_1d(dtype, data, n);
	return far_tensor_val(&t);
}

struct far_val full(size_t rows, size_t cols, double x)
{
	struct far_val v = filled(2, rows, cols, FAR_F32);
	for (size_t i = 0; i < rows * cols; i++)
		((float *)v.u.t.data)[i] = (float)x;
	return v;
}

static bool is_full(const struct far_val *v, size_t rows, size_t cols, double x)
{
	if (v->type != FAR_TYPE_TENSOR || v->u.t.dtype != FAR_F32 || v->u.t.ndim != 2 || v->u.t.shape[0] != rows ||
	    v->u.t.shape[1] != cols)
		return false;
	for (size_t i = 0; i < rows * cols; i++)
		if (((const float *)v->u.t.data)[i] != (float)x)
			return false;
	return true;
}

void conform_full(const char *here, struct far_val v, size_t rows, size_t cols, double x)
{
	char text[64];
	snprintf(text, sizeof text, "%zu x %zu times %g", rows, cols, x);
	if (!is_full(&v, rows, cols, x))
		differs(here, &v, text);
	far_val_fini(&v);
}

/* ---- operands ---- */

static struct far_val dense_make(double x)
{
	return full(2, 2, x);
}

static void dense_is(const char *here, struct far_val v, double x)
{
	conform_full(here, v, 2, 2, x);
}

/* Of shape 2 × 3, three elements that are not 0. */
enum { NONZERO = 3 };
static const int64_t places[2 * NONZERO] = {0, 1, 1, 2, 0, 2};
static const int64_t shape[2] = {2, 3};

static struct far_val sparse_make(double x)
{
	struct far_val *parts = conform_memory(3 * sizeof *parts);
	parts[0] = filled(2, 2, NONZERO, FAR_I64);
	memcpy(parts[0].u.t.data, places, sizeof places);
	parts[1] = filled(1, NONZERO, 0, FAR_F32);
	for (int i = 0; i < NONZERO; i++)
		((float *)parts[1].u.t.data)[i] = (float)(x * (i + 3));
	parts[2] = filled(1, 2, 0, FAR_I64);
	memcpy(parts[2].u.t.data, shape, sizeof shape);
	return far_list(parts, 3);
}

static void sparse_is(const char *here, struct far_val v, double x)
{
	const struct far_val *at = far_list_get(&v, 0), *values = far_list_get(&v, 1), *size = far_list_get(&v, 2);
	if (far_len(&v) != 3 || at->type != FAR_TYPE_TENSOR || far_tensor_bytes(&at->u.t) != sizeof places ||
	    memcmp(at->u.t.data, places, sizeof places) != 0 || values->type != FAR_TYPE_TENSOR ||
	    far_tensor_count(&values->u.t) != NONZERO || values->u.t.dtype != FAR_F32 ||
	    far_tensor_bytes(&size->u.t) != sizeof shape || memcmp(size->u.t.data, shape, sizeof shape) != 0)
		differs(here, &v, "a sparse matrix of these places");
	for (int i = 0; i < NONZERO; i++)
		if (((const float *)values->u.t.data)[i] != (float)(x * (i + 3)))
			differs(here, &v, "a sparse matrix of these values");
	far_val_fini(&v);
}

const struct operands dense = {dense_make, dense_is}, sparse = {sparse_make, sparse_is};

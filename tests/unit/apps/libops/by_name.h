/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls of functions of libfarcall-ops by name, without an engine, and what they must answer. The test's thread. */
#ifndef LIBOPS_BY_NAME_H
#define LIBOPS_BY_NAME_H

#include "fake_req.h"
#include "functions.h"

#include <criterion/criterion.h>

static inline struct far_val tensor(enum far_dtype dtype, const void *data, size_t n)
{
	struct far_tensor t = far_tensor_1d(dtype, data, n);
	return far_tensor_val(&t);
}

/** Checks that `name`(a, b) is the 1-d tensor `want`. */
static inline void expect_tensor(const char *name, struct far_val a, struct far_val b, enum far_dtype dtype,
				 const void *want, size_t n)
{
	struct far_req req;
	struct far_val args[2] = {a, b};
	cr_assert_eq(fake_req_call(&req, name, args, 2), FAR_OK);
	cr_assert_eq(req.answers, 1);
	cr_assert_eq(req.status, FAR_OK, "%s", req.err.text);
	cr_assert_eq(req.value.type, FAR_TYPE_TENSOR);
	cr_expect_eq(req.value.u.t.dtype, dtype, "%s is %s", name, far_dtype_name((enum far_dtype)req.value.u.t.dtype));
	cr_expect_eq(req.value.u.t.ndim, 1);
	cr_assert_eq(far_tensor_count(&req.value.u.t), n);
	cr_expect(n == 0 || memcmp(req.data, want, n * far_dtype_size(dtype)) == 0, "%s of %s", name,
		  far_dtype_name(dtype));
	fake_req_fini(&req);
}

static inline void expect_fail(const char *name, const struct far_val *args, size_t n, const char *text)
{
	struct far_req req;
	cr_assert_eq(fake_req_call(&req, name, args, n), FAR_OK);
	cr_assert_eq(req.answers, 1);
	cr_expect_eq(req.status, FAR_BAD_ARGS);
	cr_expect_str_eq(req.err.text, text);
	fake_req_fini(&req);
}

static inline struct far_val scalar(const char *name, struct far_val a, struct far_val b)
{
	struct far_req req;
	struct far_val args[2] = {a, b};
	cr_assert_eq(fake_req_call(&req, name, args, 2), FAR_OK);
	cr_assert(req.answers == 1 && req.status == FAR_OK);
	return req.value;
}

#endif

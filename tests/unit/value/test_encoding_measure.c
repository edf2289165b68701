/* SPDX-License-Identifier: BSD-3-Clause */
/** What cannot be encoded is refused before anything is written: values that an application got wrong, shapes without
 * a layout. The test's thread. */
#include "base/limits.h"
#include "value/encoding.h"

#include <criterion/criterion.h>
#include <farcall/message.h>
#include <string.h>

static void expect_refused(struct far_val v, enum far_status status, const char *text)
{
	struct far_val two[2] = {far_int(1), v};
	struct far_err err;
	struct values_plan plan;
	cr_expect_eq(values_size(two, 2, &plan, &err), SIZE_MAX, "%s", text);
	cr_expect_eq(err.status, status, "%s", text);
	cr_expect_eq(strncmp(err.text, "argument 2: ", 12), 0, "%s", err.text);
	cr_expect_not_null(strstr(err.text, text), "%s", err.text);
	cr_expect_eq(values_size(two, 2, &plan, NULL), SIZE_MAX);
}

Test(encoding_measure, values_that_an_application_got_wrong_are_named)
{
	float x = 0;
	struct far_tensor good = far_tensor_1d(FAR_F32, &x, 1), t;
	struct far_val v = far_int(1);
	v.kw = "alpha";
	expect_refused(v, FAR_INVALID, "keyword");
	v = far_none();
	v.type = FAR_TYPE_COUNT;
	expect_refused(v, FAR_INVALID, "type");
	t = good, t.dtype = 0;
	expect_refused(far_tensor_val(&t), FAR_INVALID, "dtype");
	t = good, t.dtype = FAR_DTYPE_COUNT;
	expect_refused(far_tensor_val(&t), FAR_INVALID, "dtype");
	t = good, t.ndim = FAR_DIMS_MAX + 1;
	expect_refused(far_tensor_val(&t), FAR_INVALID, "dimensions");
	t = good, t.domain = 1;
	expect_refused(far_tensor_val(&t), FAR_INVALID, "domain");
	t = good, t.data = NULL;
	expect_refused(far_tensor_val(&t), FAR_INVALID, "NULL");
	t = good, t.shape[0] = UINT64_C(1) << 62;
	expect_refused(far_tensor_val(&t), FAR_TOO_LARGE, "tensor");
	expect_refused(far_bytes(&x, FAR_MSG_BYTES_MAX + 1), FAR_TOO_LARGE, "bytes");
	expect_refused(far_bytes(NULL, 1), FAR_INVALID, "NULL");
	v = far_bytes(&x, FAR_STRINGS_BYTES_MAX);
	v.type = FAR_TYPE_STRING;
	expect_refused(v, FAR_TOO_LARGE, "strings");
	struct far_val many[FAR_ARGS_MAX + 1] = {{0}};
	struct values_plan plan;
	cr_expect_eq(values_size(many, FAR_ARGS_MAX + 1, &plan, NULL), SIZE_MAX);
	cr_expect_eq(values_size(many, FAR_ARGS_MAX, &plan, NULL), 1 + FAR_ARGS_MAX);
	struct far_err err;
	struct far_val sum[2] = {far_bytes(&x, FAR_MSG_BYTES_MAX / 2), far_bytes(&x, FAR_MSG_BYTES_MAX / 2)};
	cr_expect_eq(values_size(sum, 2, &plan, &err), SIZE_MAX);
	cr_expect_eq(err.status, FAR_TOO_LARGE);
}

Test(encoding_measure, shapes_that_cannot_be_laid_out)
{
	uint64_t shape[FAR_DIMS_MAX + 1] = {UINT64_C(1) << 61, 8, 1, 1, 1, 1, 1, 1, 1};
	size_t offset;
	cr_expect_eq(values_tensor_size(FAR_F64, 1, shape, &offset), SIZE_MAX);
	cr_expect_eq(values_tensor_size(FAR_U8, 2, shape, &offset), SIZE_MAX);
	cr_expect_eq(values_tensor_size(FAR_DTYPE_NONE, 1, shape, &offset), SIZE_MAX);
	cr_expect_eq(values_tensor_size(FAR_DTYPE_COUNT, 1, shape, &offset), SIZE_MAX);
	cr_expect_eq(values_tensor_size(FAR_U8, FAR_DIMS_MAX + 1, shape, &offset), SIZE_MAX);
	shape[0] = UINT64_MAX - 8;
	cr_expect_eq(values_tensor_size(FAR_U8, 1, shape, &offset), SIZE_MAX);
	shape[1] = 0;
	cr_expect_neq(values_tensor_size(FAR_U8, 2, shape, &offset), SIZE_MAX);
}

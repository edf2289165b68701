/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions of libfarcall-ops by name, one operator each: what they return, and what they refuse.
 * The test's thread. */
#include "by_name.h"

#include <math.h>

/* ---- one operator each ---- */

/** Checks that `name`(args) is a dense f32 tensor of this shape, near `want`. */
static void expect_f32(const char *name, const struct far_val *args, size_t n, unsigned ndim, const uint64_t *shape,
		       const float *want)
{
	struct far_req req;
	cr_assert_eq(fake_req_call(&req, name, args, n), FAR_OK);
	cr_assert_eq(req.answers, 1);
	cr_assert_eq(req.status, FAR_OK, "%s", req.err.text);
	const struct far_tensor *t = &req.value.u.t;
	cr_assert(t->dtype == FAR_F32 && t->ndim == ndim, "%s", name);
	cr_assert(ndim == 0 || memcmp(t->shape, shape, ndim * sizeof *shape) == 0, "%s", name);
	for (size_t i = 0; i < far_tensor_count(t); i++)
		cr_expect(fabsf(((float *)(void *)req.data)[i] - want[i]) <= 1e-6f * (1 + fabsf(want[i])),
			  "%s: element %zu is %g", name, i, (double)((float *)(void *)req.data)[i]);
	fake_req_fini(&req);
}

static struct far_val matrix(const float *data, uint64_t rows, uint64_t columns)
{
	struct far_tensor t = far_tensor_2d(FAR_F32, (void *)(uintptr_t)data, rows, columns);
	return far_tensor_val(&t);
}

Test(functions_operators, a_quotient_is_a_float)
{
	int32_t i[3] = {1, 2, 3}, k[3] = {2, 2, 2};
	float halves[3] = {0.5f, 1, 1.5f};
	expect_tensor("far::div", tensor(FAR_I32, i, 3), tensor(FAR_I32, k, 3), FAR_F32, halves, 3);
	expect_tensor("far::div", tensor(FAR_I32, i, 3), far_int(2), FAR_F32, halves, 3);
	struct far_val v = scalar("far::div", far_int(1), far_int(2));
	cr_expect(v.type == FAR_TYPE_FLOAT && v.u.f == 0.5);
}

Test(functions_operators, of_one_tensor)
{
	float x[3] = {-1, 0, 4};
	struct far_val v = tensor(FAR_F32, x, 3);
	uint64_t three[1] = {3};
	expect_f32("far::neg", &v, 1, 1, three, (const float[]){1, 0, -4});
	expect_f32("far::relu", &v, 1, 1, three, (const float[]){0, 0, 4});
	expect_f32("far::sigmoid", &v, 1, 1, three, (const float[]){0.26894143f, 0.5f, 0.98201376f});
	expect_f32("far::tanh", &v, 1, 1, three, (const float[]){-0.76159418f, 0, 0.9993293f});
	expect_f32("far::exp", &v, 1, 1, three, (const float[]){0.36787945f, 1, 54.59815f});
	int64_t i[3] = {1, 4, 9};
	v = tensor(FAR_I64, i, 3);
	expect_f32("far::sqrt", &v, 1, 1, three, (const float[]){1, 2, 3});
	expect_f32("far::log", &v, 1, 1, three, (const float[]){0, 1.3862944f, 2.1972246f});
	int64_t negative[3] = {-1, -4, -9};
	struct far_req req;
	cr_assert_eq(fake_req_call(&req, "far::neg", &v, 1), FAR_OK);
	cr_assert(req.status == FAR_OK && req.value.u.t.dtype == FAR_I64);
	cr_expect_eq(memcmp(req.data, negative, sizeof negative), 0);
	fake_req_fini(&req);
	expect_fail("far::relu", &v, 1, "far::relu: not defined for dtype i64, convert the tensor to a float dtype");
}

static const float six[6] = {1, 2, 3, 4, 5, 9};

Test(functions_operators, reductions)
{
	uint64_t two[1] = {2}, kept[2] = {2, 1}, three[1] = {3};
	struct far_val args[3] = {matrix(six, 2, 3), far_int(-1), far_bool(false)};
	expect_f32("far::sum", args, 1, 0, NULL, (const float[]){24});
	expect_f32("far::mean", args, 1, 0, NULL, (const float[]){4});
	expect_f32("far::sum", args, 3, 1, two, (const float[]){6, 18});
	expect_f32("far::mean", args, 3, 1, two, (const float[]){2, 6});
	expect_f32("far::amin", args, 3, 1, two, (const float[]){1, 4});
	expect_f32("far::amax", args, 3, 1, two, (const float[]){3, 9});
	args[2] = far_bool(true);
	expect_f32("far::sum", args, 3, 2, kept, (const float[]){6, 18});
	expect_f32("far::amax", args, 3, 2, kept, (const float[]){3, 9});
	args[1] = far_int(0);
	args[2] = far_bool(false);
	expect_f32("far::sum", args, 3, 1, three, (const float[]){5, 7, 12});
	args[1] = far_int(2);
	expect_fail("far::sum", args, 3, "far::sum: axis 2 is not in [0, 2), the axes of x f32[2,3]");
}

Test(functions_operators, softmax)
{
	float x[4] = {0, 0, 0, 1.0986123f}, logs[4];
	uint64_t shape[2] = {2, 2};
	float want[4] = {0.5f, 0.5f, 0.25f, 0.75f};
	for (int i = 0; i < 4; i++)
		logs[i] = logf(want[i]);
	struct far_val args[2] = {matrix(x, 2, 2), far_int(-1)};
	expect_f32("far::softmax", args, 2, 2, shape, want);
	expect_f32("far::log_softmax", args, 2, 2, shape, logs);
}

Test(functions_operators, products_and_rows)
{
	uint64_t shape[2] = {2, 2}, rows[2] = {3, 2};
	struct far_val args[2] = {matrix(six, 2, 3), matrix(six, 3, 2)};
	expect_f32("far::matmul", args, 2, 2, shape, (const float[]){22, 37, 64, 109});
	args[1] = matrix(six, 2, 3);
	expect_fail("far::matmul", args, 2,
		    "far::matmul: a f32[2,3] and b f32[2,3]: the rows of a have 3 elements, the columns of b 2");
	int64_t index[3] = {2, 0, 2};
	args[0] = matrix(six, 3, 2);
	args[1] = tensor(FAR_I64, index, 3);
	expect_f32("far::embedding", args, 2, 2, rows, (const float[]){5, 9, 1, 2, 5, 9});
	index[1] = 3;
	expect_fail("far::embedding", args, 2, "far::embedding: element 1 of index i64[3] is 3, not in [0, 3)");
	index[1] = -1;
	expect_fail("far::embedding", args, 2, "far::embedding: element 1 of index i64[3] is -1, not in [0, 3)");
}

Test(functions_operators, shapes)
{
	uint64_t three_two[2] = {3, 2}, two_two[2] = {2, 2}, six_rows[2] = {6, 1}, four_three[2] = {4, 3};
	int64_t to[2] = {3, -1}, column[2] = {-1, 1}, odd[2] = {4, -1};
	struct far_val x = matrix(six, 2, 3);
	expect_f32("far::reshape", (const struct far_val[]){x, tensor(FAR_I64, to, 2)}, 2, 2, three_two, six);
	expect_f32("far::reshape", (const struct far_val[]){x, tensor(FAR_I64, column, 2)}, 2, 2, six_rows, six);
	expect_f32("far::reshape", (const struct far_val[]){x, far_int(6)}, 2, 1, (const uint64_t[]){6}, six);
	expect_fail("far::reshape", (const struct far_val[]){x, tensor(FAR_I64, odd, 2)}, 2,
		    "far::reshape: x f32[2,3] has 6 elements, f32[4,1] has 4");
	expect_f32("far::transpose", (const struct far_val[]){x, far_int(0), far_int(-1)}, 3, 2, three_two,
		   (const float[]){1, 4, 2, 5, 3, 9});
	expect_f32("far::slice", (const struct far_val[]){x, far_int(1), far_int(-2), far_int(1000), far_int(1)}, 5, 2,
		   two_two, (const float[]){2, 3, 5, 9});
	expect_f32("far::slice", (const struct far_val[]){x, far_int(1), far_int(0), far_int(3), far_int(2)}, 5, 2,
		   two_two, (const float[]){1, 3, 4, 9});
	expect_fail("far::slice", (const struct far_val[]){x, far_int(1), far_int(0), far_int(3), far_int(0)}, 5,
		    "far::slice: step 0 is not positive");
	struct far_val both[2] = {x, x};
	expect_f32("far::cat", (const struct far_val[]){far_list(both, 2), far_int(0)}, 2, 2, four_three,
		   (const float[]){1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 5, 9});
	expect_fail("far::cat", (const struct far_val[]){far_list(NULL, 0), far_int(0)}, 2,
		    "far::cat: a list of 0 tensors, [1, 256] are possible");
	both[1] = far_int(1);
	expect_fail("far::cat", (const struct far_val[]){far_list(both, 2), far_int(0)}, 2,
		    "far::cat: item 1 of the list is no tensor");
}

Test(functions_operators, random_numbers_are_those_of_their_seed)
{
	float want[8] = {0};
	struct far_tensor t = far_tensor_1d(FAR_F32, want, 8);
	struct far_val args[2] = {far_int(8), far_int(5)};
	far_op_rand(5, 0, &t, NULL);
	expect_f32("far::rand", args, 2, 1, (const uint64_t[]){8}, want);
	far_op_randn(5, 0, &t, NULL);
	expect_f32("far::randn", args, 2, 1, (const uint64_t[]){8}, want);
	args[0] = far_int(-1);
	expect_fail("far::rand", args, 2, "far::rand: dimension -1 of the shape is negative");
}

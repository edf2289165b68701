/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Element-wise arithmetic of two values, behind far::add, sub, mul, min and max. Any thread.
 *
 * dtype of two tensors' result (rows and columns may be exchanged):
 *
 *         bool  u8   i8   i16  i32  i64  u64  f32  f64
 *   bool  bool  u8   i8   i16  i32  i64  u64  f32  f64
 *   u8          u8   i16  i16  i32  i64  u64  f32  f64
 *   i8               i8   i16  i32  i64  f64  f32  f64
 *   i16                   i16  i32  i64  f64  f32  f64
 *   i32                        i32  i64  f64  f32  f64
 *   i64                             i64  f64  f32  f64
 *   u64                                  u64  f32  f64
 *   f32                                       f32  f64
 *   f64                                            f64
 *
 * bf16 and f16: with bool and integers they stay, with each other they make f32, with f32 and f64 that.
 * This is torch's table; u64 with signed types, which torch refuses, is f64 as in numpy.
 *
 * bf16 and f16 are computed in f32, and the result is rounded once, to nearest, ties to even.
 *
 * add and sub may be given a third argument, the scalar alpha: a + alpha * b, a - alpha * b. It must be of a kind that
 * the result's dtype holds: no float with an integral result.
 *
 * A tensor with a scalar keeps its dtype, but: integral or bool with a float is f32, bool with an int is i64. An int
 * that the tensor's dtype cannot hold is an error. Two scalars: float if one of them is; else int, bools counting as 0
 * and 1.
 *
 * Integers wrap around. min and max give NaN when one element is. Two bool tensors: add and max are "or", mul and min
 * are "and", sub is an error.
 *
 * Two tensors have the same shape, or one of them a single element; the result then has the other's shape, with leading
 * ones up to the larger number of dimensions. Nothing else is broadcast.
 */
#ifndef FAR_BUILTIN_ELEMENTWISE_H
#define FAR_BUILTIN_ELEMENTWISE_H

#include <farcall/value.h>
#include <stdint.h>

enum elementwise_op {
	ELEMENTWISE_ADD,
	ELEMENTWISE_SUB,
	ELEMENTWISE_MUL,
	ELEMENTWISE_MIN,
	ELEMENTWISE_MAX,
	ELEMENTWISE_OPS
};

/** dst[i] = a[i] op b[i] for i in [0, n). dst overlaps neither. All three aligned to their element. */
typedef void elementwise_kernel(void *dst, const void *a, const void *b, size_t n);

/** One per dtype; the entries of FAR_DTYPE_NONE, bf16 and f16, and of sub on bool, are NULL. */
extern elementwise_kernel *const elementwise_kernels[ELEMENTWISE_OPS][FAR_DTYPE_COUNT];

/** The dtype of two tensors' result. */
enum far_dtype elementwise_promote(enum far_dtype a, enum far_dtype b);

/** dst[i] = src[i], where elementwise_promote() can lead from `from` to `to`, and f32 to bf16 and f16. */
void elementwise_convert(enum far_dtype to, void *dst, enum far_dtype from, const void *src, size_t n);

/** Handler of the functions, with two or three arguments; `user` is their struct elementwise_function. */
struct elementwise_function {
	const char *name;
	enum elementwise_op op;
};

struct far_req;
enum far_status elementwise_call(struct far_req *req, const struct far_val *args, size_t n, void *user);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Element-wise arithmetic of far::add, sub, mul, min and max. The kernels run on any thread, the handler on a shard.
 *
 * dtype of the result of two tensors (symmetric):
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
 * bf16 or f16 with bool or an integer: unchanged; with each other: f32; with f32 or f64: that one. This is torch's
 * table, but for u64 with signed types, which torch refuses; here it is f64, as in numpy.
 *
 * bf16 and f16 are computed in f32, and the result is rounded once, to nearest, ties to even.
 *
 * add and sub take an optional scalar alpha: a + alpha * b, a - alpha * b. A float alpha needs a floating-point result.
 *
 * Tensor and scalar: the tensor's dtype; but f32 for an integral or bool tensor with a float, i64 for a bool tensor
 * with an int. An int out of the range of the dtype is an error. Two scalars: float if one is a float, else int, with
 * bools as 0 and 1.
 *
 * Integers wrap around. min and max return NaN if an element is NaN. Two bool tensors: add and max are "or", mul and
 * min are "and", sub is an error.
 *
 * Two tensors have the same shape, or one has a single element. The result then has the shape of the other, with
 * leading ones up to the larger number of dimensions. There is no other broadcast.
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

/** dst[i] = a[i] op b[i] for i in [0, n). All aligned to an element; dst overlaps neither operand. */
typedef void elementwise_kernel(void *dst, const void *a, const void *b, size_t n);

/** Kernels by operation and dtype. NULL for FAR_DTYPE_NONE, bf16 and f16, and for sub on bool. */
extern elementwise_kernel *const elementwise_kernels[ELEMENTWISE_OPS][FAR_DTYPE_COUNT];

/** The dtype of the result of two tensors. */
enum far_dtype elementwise_promote(enum far_dtype a, enum far_dtype b);

/** dst[i] = src[i] for i in [0, n), for conversions that elementwise_promote() implies, and f32 to bf16 and f16. */
void elementwise_convert(enum far_dtype to, void *dst, enum far_dtype from, const void *src, size_t n);

/** `user` of elementwise_call(). */
struct elementwise_function {
	const char *name;
	enum elementwise_op op;
};

struct far_req;
/** Handler of the functions, with two or three arguments. */
enum far_status elementwise_call(struct far_req *req, const struct far_val *args, size_t n, void *user);

#endif

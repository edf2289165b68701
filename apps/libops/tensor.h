/* SPDX-License-Identifier: BSD-3-Clause */
/** Checks of tensors that a caller passed, and error texts. Any thread. */
#ifndef FAR_LIBOPS_TENSOR_H
#define FAR_LIBOPS_TENSOR_H

#include <farcall/ops.h>

/* Returns from the function if a check fails. */
#define TRY(call)                                                                                                      \
	do {                                                                                                           \
		enum far_status try_status = (call);                                                                   \
		if (try_status != FAR_OK)                                                                              \
			return try_status;                                                                             \
	} while (0)

/* Bytes of the text of a tensor, "f32[2,3]", with its NUL: dimensions of up to 20 digits. */
#define OPS_TEXT (FAR_DIMS_MAX * 21 + 8)

/** Writes dtype and shape of a valid tensor. Returns `text`. */
const char *ops_text(const struct far_tensor *t, char text[OPS_TEXT]);

/** Fills `err` and returns `status`. */
__attribute__((format(printf, 3, 4))) enum far_status ops_fail(struct far_err *err, enum far_status status,
							       const char *format, ...);

size_t ops_size(enum far_dtype dtype);
const char *ops_dtype_name(enum far_dtype dtype);
bool ops_is_half(enum far_dtype dtype);
bool ops_is_float(enum far_dtype dtype);
/** The dtype in which elements of `dtype` are computed. */
enum far_dtype ops_arithmetic(enum far_dtype dtype);

/** Elements of a checked tensor. */
uint64_t ops_count(const struct far_tensor *t);
/** Stride of dimension `k`, in elements. */
int64_t ops_stride(const struct far_tensor *t, unsigned k);
bool ops_is_dense(const struct far_tensor *t);
bool ops_same_shape(const struct far_tensor *a, const struct far_tensor *b);

/** Is `t`, argument `name` of operator `op`, a tensor whose elements can be read. */
enum far_status ops_check(const char *op, const char *name, const struct far_tensor *t, struct far_err *err);
/** Likewise, of a floating-point dtype. */
enum far_status ops_check_float(const char *op, const char *name, const struct far_tensor *t, struct far_err *err);
/** Likewise, of the dtype of the checked tensor `like`. */
enum far_status ops_check_like(const char *op, const char *name, const struct far_tensor *t, const char *like_name,
			       const struct far_tensor *like, struct far_err *err);
/** Likewise, of dtype and shape given. */
enum far_status ops_check_shape(const char *op, const char *name, const struct far_tensor *t, enum far_dtype dtype,
				unsigned ndim, const uint64_t *shape, struct far_err *err);
/** Likewise, i32 or i64: indices. */
enum far_status ops_check_index(const char *op, const char *name, const struct far_tensor *t, struct far_err *err);
/** The shape to which `a` and `b` broadcast. */
enum far_status ops_broadcast(const char *op, const struct far_tensor *a, const struct far_tensor *b, unsigned *ndim,
			      uint64_t *shape, struct far_err *err);
/** Is `axis` a dimension of `t`. */
enum far_status ops_check_axis(const char *op, const char *name, int axis, const struct far_tensor *t,
			       struct far_err *err);

/**
 * Checks an output, or makes it one of this dtype and shape without data if its dtype is NONE. After OK there is
 * nothing to compute if `out->data` is NULL.
 */
enum far_status ops_output(const char *op, const char *name, struct far_tensor *out, enum far_dtype dtype,
			   unsigned ndim, const uint64_t *shape, struct far_err *err);
/** Likewise, for one that may be a view. */
enum far_status ops_output_view(const char *op, const char *name, struct far_tensor *out, enum far_dtype dtype,
				unsigned ndim, const uint64_t *shape, struct far_err *err);
/** Likewise, dtype and shape of `like`; `out` may be NULL. */
enum far_status ops_gradient(const char *op, const char *name, struct far_tensor *out, const struct far_tensor *like,
			     struct far_err *err);

/** Checks that an output does not overlap an input. `same`: it may be exactly the same elements. */
enum far_status ops_apart(const char *op, const char *name, const struct far_tensor *out, const char *in_name,
			  const struct far_tensor *in, bool same, struct far_err *err);

/** Whether an output has memory, thus something to compute. */
static inline bool ops_wanted(const struct far_tensor *out)
{
	return out && out->data;
}

/** A dense tensor. */
struct far_tensor ops_dense(enum far_dtype dtype, void *data, unsigned ndim, const uint64_t *shape);

#endif

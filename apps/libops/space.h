/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Iteration over tensors with any strides, a block of elements at a time. Any thread.
 *
 * A space is a set of dimensions, whose elements are numbered in row-major order. An operand is a tensor seen over a
 * space; a broadcast dimension has stride 0. Kernels see blocks: elements of the dtype of the arithmetic, in the tensor
 * itself or copied and converted.
 */
#ifndef FAR_LIBOPS_SPACE_H
#define FAR_LIBOPS_SPACE_H

#include "kernels.h"
#include "tensor.h"

/* Elements of a block: some of them fit the first-level cache. */
#define OPS_BLOCK 256

union ops_block {
	double align;
	float f32[OPS_BLOCK];
	double f64[OPS_BLOCK];
	char bytes[OPS_BLOCK * 8];
};

struct ops_space {
	unsigned ndim; /* [1, FAR_DIMS_MAX] once folded */
	uint64_t shape[FAR_DIMS_MAX];
	uint64_t count; /* elements */
};

struct ops_operand {
	char *data; /* element 0 */
	enum far_dtype dtype;
	uint8_t size; /* bytes of an element */
	bool direct;  /* consecutive elements of the space are consecutive in memory */
	bool one;     /* the same element for the whole space */
	int64_t strides[FAR_DIMS_MAX];
};

/** The dimensions of a shape whose bits in `dims` are set. */
struct ops_space ops_space(unsigned ndim, const uint64_t *shape, unsigned dims);
/** `t` over the same dimensions of a shape of `ndim` dimensions to which it broadcasts. */
struct ops_operand ops_operand(const struct far_tensor *t, unsigned ndim, const uint64_t *shape, unsigned dims);
/** Merges dimensions as far as all operands allow, and sets `direct` and `one`. */
void ops_space_fold(struct ops_space *space, struct ops_operand *const *operands, unsigned n);

/** Position of element `at`, in elements from operand->data. */
int64_t ops_offset(const struct ops_space *space, const struct ops_operand *o, uint64_t at);

/** Elements [at, at + n) of an operand whose element 0 is moved by `base`, n <= OPS_BLOCK, in the arithmetic's dtype:
 * in the tensor or in `block`. */
const void *ops_read(const struct ops_space *space, const struct ops_operand *o, int64_t base, uint64_t at, size_t n,
		     union ops_block *block);
/** Where to compute elements [at, …): in the tensor, or `block`. ops_write() then completes them. */
void *ops_target(const struct ops_operand *o, int64_t base, uint64_t at, union ops_block *block);
void ops_write(const struct ops_space *space, const struct ops_operand *o, int64_t base, uint64_t at, size_t n,
	       const void *target);

/** d[i] = s[i] for i in [0, n): elements in the dtype of the arithmetic to those of `to`; for a half type to f32. */
void ops_convert(enum far_dtype to, void *d, enum far_dtype from, const void *s, size_t n);

/** out = kernel(in..., p) over a space, whose operands are folded. */
void ops_map(ops_map_kernel *kernel, double p, const struct ops_space *space, const struct ops_operand *out,
	     const struct ops_operand *in, unsigned n);

/* A map whose results are added up over some dimensions. */
struct ops_sum {
	ops_map_kernel *kernel; /* NULL: the first operand itself */
	double p;               /* of the kernel */
	double divisor;         /* of the sums */
};

/** out = sum of kernel(in..., p) / divisor over the dimensions of a shape in which `out` has size 1 or, with `reduced`,
 * over those whose bits are set. `out` is dense over the others. */
void ops_sum(const struct ops_sum *sum, const struct far_tensor *out, const struct far_tensor *const *in, unsigned n,
	     unsigned ndim, const uint64_t *shape, unsigned reduced);
/** The dimensions of a shape along which `t` is repeated. */
unsigned ops_repeated(const struct far_tensor *t, unsigned ndim, const uint64_t *shape);

/** The kernel of a map for elements of `dtype`. */
ops_map_kernel *ops_kernel(enum ops_map map, enum far_dtype dtype);

#endif

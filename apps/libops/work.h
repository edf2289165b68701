/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Workspaces, copies of operands in them, and matrix products. Any thread.
 *
 * An operator plans twice: ops_take() first counts bytes, then gives memory. Both plans are the same code, so that the
 * requested size is the size used.
 */
#ifndef FAR_LIBOPS_WORK_H
#define FAR_LIBOPS_WORK_H

#include "space.h"

struct ops_arena {
	char *base;  /* NULL: counts only */
	size_t used; /* SIZE_MAX: overflow */
};

/** Memory for `count` elements, aligned to 64 bytes; NULL when counting. */
void *ops_take(struct ops_arena *arena, uint64_t count, size_t size);

/** After counting `need`: makes `arena` give the memory of `work`, or sets work->bytes and leaves arena->base NULL. */
enum far_status ops_work(const char *op, struct far_op_work *work, size_t need, struct ops_arena *arena,
			 struct far_err *err);

/* An input in the dtype of the arithmetic. */
struct ops_source {
	const struct far_tensor *from;
	void *copy;          /* in the workspace; NULL: the tensor itself serves */
	struct far_tensor t; /* after ops_source_load() */
};

/** `dense`: whether a view needs a copy, too. `from` NULL: there is none. */
void ops_source_plan(struct ops_source *source, struct ops_arena *arena, const struct far_tensor *from, bool dense);
void ops_source_load(struct ops_source *source);

/* A dense output in the dtype of the arithmetic. */
struct ops_sink {
	const struct far_tensor *to; /* NULL: not wanted */
	void *data;                  /* of the tensor, or in the workspace */
};

void ops_sink_plan(struct ops_sink *sink, struct ops_arena *arena, const struct far_tensor *to);
void ops_sink_zero(const struct ops_sink *sink);
void ops_sink_store(const struct ops_sink *sink);

/** Copies and converts checked tensors of the same shape. */
void ops_copy(const struct far_tensor *x, const struct far_tensor *out);

/** Memory for a product's packed blocks. */
void *ops_gemm_plan(struct ops_arena *arena, enum far_dtype dtype, uint64_t m, uint64_t n, uint64_t k);
/** Computes a product of f32 or f64 elements, by OpenBLAS or gemm.c. */
void ops_multiply(enum far_dtype dtype, const struct ops_product *product, void *work);
/** c[i][j] = row[j], for i in [0, m). */
void ops_fill_rows(enum far_dtype dtype, void *c, uint64_t m, uint64_t n, const struct far_tensor *row);

/* OpenBLAS. NULL: absent. */
struct ops_blas {
	void (*f32)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a,
		    int lda, const float *b, int ldb, float beta, float *c, int ldc);
	void (*f64)(int order, int transpose_a, int transpose_b, int m, int n, int k, double alpha, const double *a,
		    int lda, const double *b, int ldb, double beta, double *c, int ldc);
};
const struct ops_blas *ops_blas(void);
/** False: not done, its strides or sizes are beyond the interface's. */
bool ops_blas_multiply(const struct ops_blas *blas, enum far_dtype dtype, const struct ops_product *product);

#endif

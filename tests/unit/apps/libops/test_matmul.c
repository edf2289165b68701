/* SPDX-License-Identifier: BSD-3-Clause */
/** Matrix products: the loops of every instruction set and OpenBLAS against a naive product. The test's thread. */
#include "dispatch.h"
#include "tensors.h"
#include "work.h"

TestSuite(matmul, .fini = tensors_free);

/* A matrix of any layout: element (i, j) is data[i * row + j * column]. */
struct matrix {
	double *f64;
	float *f32;
	ptrdiff_t row, column;
};

static struct matrix matrix(size_t rows, size_t columns, unsigned layout)
{
	struct matrix m;
	size_t count = 2 * (rows + 1) * (columns + 3);
	m.f64 = take(count * sizeof(double));
	m.f32 = take(count * sizeof(float));
	m.row = layout == 1 ? 1 : (ptrdiff_t)columns + (layout == 2 ? 3 : 0);
	m.column = layout == 1 ? (ptrdiff_t)rows + 1 : 1;
	if (layout == 3) { /* no stride of 1 */
		m.row = 2 * (ptrdiff_t)columns;
		m.column = 2;
	}
	for (size_t i = 0; i < count; i++)
		m.f32[i] = (float)(m.f64[i] = (double)(float)random_in(-1, 1));
	return m;
}

/* What computes a product; false: not this one. */
typedef bool multiplier(const void *how, enum far_dtype dtype, const struct ops_product *p);

static bool by_loops(const void *how, enum far_dtype dtype, const struct ops_product *p)
{
	const struct ops_gemm *gemm = how;
	struct ops_arena arena = {0};
	size_t size = ops_size(dtype);
	size_t m = p->m < OPS_GEMM_M ? p->m : OPS_GEMM_M, n = p->n < OPS_GEMM_N ? p->n : OPS_GEMM_N;
	size_t k = p->k < OPS_GEMM_K ? p->k : OPS_GEMM_K, columns = gemm->column_bytes / size;
	ops_take(&arena, k * ((m + gemm->rows - 1) / gemm->rows * gemm->rows + (n + columns - 1) / columns * columns),
		 size);
	void *work = aligned_alloc(64, arena.used);
	if (dtype == FAR_F64)
		gemm->f64(p, work);
	else
		gemm->f32(p, work);
	free(work);
	return true;
}

static bool by_blas(const void *how, enum far_dtype dtype, const struct ops_product *p)
{
	return ops_blas_multiply(how, dtype, p);
}

static void check(const char *name, multiplier *multiply, const void *how)
{
	static const size_t sizes[][3] = {{1, 1, 1},     {1, 7, 5},      {2, 40, 33},   {3, 3, 3},
					  {6, 16, 8},    {7, 17, 9},     {1, 100, 300}, {2, 3, 600},
					  {97, 33, 257}, {100, 520, 20}, {5, 1, 300},   {13, 513, 258}};
	unsigned done = 0;
	for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
		for (unsigned layouts = 0; layouts < 16; layouts++)
			for (int accumulate = 0; accumulate < 2; accumulate++) {
				size_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
				struct matrix a = matrix(m, k, layouts % 4), b = matrix(k, n, layouts / 4);
				struct matrix c = matrix(m, n, layouts % 2 ? 2 : 0), before = matrix(m, n, 0);
				memcpy(before.f64, c.f64, (m * n + (m - 1) * 3) * sizeof(double));
				struct ops_product p = {m,     n,        k,     a.f64,    b.f64, c.f64,
							a.row, a.column, b.row, b.column, c.row, accumulate};
				if (!multiply(how, FAR_F64, &p))
					continue;
				p.a = a.f32;
				p.b = b.f32;
				p.c = c.f32;
				multiply(how, FAR_F32, &p);
				done++;
				for (size_t i = 0; i < m; i++)
					for (size_t j = 0; j < n; j++) {
						double sum = accumulate
								     ? before.f64[(ptrdiff_t)i * c.row + (ptrdiff_t)j]
								     : 0;
						for (size_t l = 0; l < k; l++)
							sum += a.f64[(ptrdiff_t)i * a.row + (ptrdiff_t)l * a.column] *
							       b.f64[(ptrdiff_t)l * b.row + (ptrdiff_t)j * b.column];
						double f64 = c.f64[(ptrdiff_t)i * c.row + (ptrdiff_t)j];
						double f32 = (double)c.f32[(ptrdiff_t)i * c.row + (ptrdiff_t)j];
						cr_assert(near(f64, sum, 1e-13),
							  "%s f64 %zux%zux%zu layouts %u [%zu,%zu]: %.17g, not %.17g",
							  name, m, n, k, layouts, i, j, f64, sum);
						cr_assert(near(f32, sum, 3e-5),
							  "%s f32 %zux%zux%zu layouts %u [%zu,%zu]: %.9g, not %.9g",
							  name, m, n, k, layouts, i, j, f32, sum);
					}
				/* Nothing between the rows of c is written. */
				for (size_t i = 0; i + 1 < m && c.row > (ptrdiff_t)n; i++)
					cr_assert_eq(c.f64[(ptrdiff_t)i * c.row + (ptrdiff_t)n],
						     before.f64[(ptrdiff_t)i * c.row + (ptrdiff_t)n]);
				tensors_free();
			}
	cr_assert_gt(done, 100);
}

Test(matmul, loops)
{
	for (size_t s = 0; s < ops_sets_n; s++)
		if (ops_sets[s].present())
			check(ops_sets[s].kernels->name, by_loops, ops_sets[s].gemm);
		else
			fprintf(stderr, "SKIP: this processor has no %s\n", ops_sets[s].kernels->name);
}

Test(matmul, openblas)
{
	if (!ops_blas()) {
		cr_assert_str_eq(far_op_matmul_implementation(), "loops");
		cr_skip_test("OpenBLAS (package libopenblas0-serial) is not installed");
	}
	cr_assert_str_eq(far_op_matmul_implementation(), "OpenBLAS");
	check("OpenBLAS", by_blas, ops_blas());
}

Test(matmul, openblas_can_be_refused)
{
	setenv("FAR_OPS_BLAS", "none", 1);
	cr_assert_str_eq(far_op_matmul_implementation(), "loops");
}

Test(matmul, a_library_without_the_functions_is_not_used)
{
	setenv("FAR_OPS_BLAS", "libm.so.6", 1);
	cr_assert_str_eq(far_op_matmul_implementation(), "loops");
}

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Matrix products by blocks: packed panels of a and b, and a tile of c in registers. Any thread. meson compiles the
 * file once per instruction set: OPS_GEMM names the table, OPS_VECTOR the bytes of a vector register, OPS_ROWS the rows
 * of the tile; a row of it takes two registers.
 */
#include "kernels.h"

extern const struct ops_gemm OPS_GEMM;

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* T: type of an element. V: a vector of it. */
#define GEMM(name, T)                                                                                                  \
	typedef T name##_vector __attribute__((vector_size(OPS_VECTOR), aligned(sizeof(T)), may_alias));               \
	enum { name##_lanes = OPS_VECTOR / (int)sizeof(T), name##_columns = 2 * name##_lanes };                        \
                                                                                                                       \
	/* tile[i][j] = sum over k of a[k][i] * b[k][j] */                                                             \
	static void name##_tile(size_t k, const T *a, const T *b, T *tile)                                             \
	{                                                                                                              \
		name##_vector sum[OPS_ROWS][2] = {0};                                                                  \
		for (; k > 0; k--, a += OPS_ROWS, b += name##_columns) {                                               \
			name##_vector b0 = *(const name##_vector *)b;                                                  \
			name##_vector b1 = *(const name##_vector *)(b + name##_lanes);                                 \
			_Pragma("GCC unroll 16") for (int i = 0; i < OPS_ROWS; i++)                                    \
			{                                                                                              \
				sum[i][0] += a[i] * b0;                                                                \
				sum[i][1] += a[i] * b1;                                                                \
			}                                                                                              \
		}                                                                                                      \
		_Pragma("GCC unroll 16") for (int i = 0; i < OPS_ROWS; i++)                                            \
		{                                                                                                      \
			*(name##_vector *)(tile + i * name##_columns) = sum[i][0];                                     \
			*(name##_vector *)(tile + i * name##_columns + name##_lanes) = sum[i][1];                      \
		}                                                                                                      \
	}                                                                                                              \
                                                                                                                       \
	/* Panels of `width` entries of the first index for each k; those past the end are 0. */                       \
	static void name##_pack(T *to, const T *from, ptrdiff_t along, ptrdiff_t across, size_t n, size_t k,           \
				size_t width)                                                                          \
	{                                                                                                              \
		for (size_t at = 0; at < n; at += width, from += (ptrdiff_t)width * along) {                           \
			size_t used = least(width, n - at);                                                            \
			for (size_t l = 0; l < k; l++, to += width) {                                                  \
				const T *line = from + (ptrdiff_t)l * across;                                          \
				for (size_t i = 0; i < used; i++)                                                      \
					to[i] = line[(ptrdiff_t)i * along];                                            \
				for (size_t i = used; i < width; i++)                                                  \
					to[i] = 0;                                                                     \
			}                                                                                              \
		}                                                                                                      \
	}                                                                                                              \
                                                                                                                       \
	/* One or two rows of a: packing b would take as long as the product. */                                       \
	static void name##_row(const struct ops_product *p, size_t row)                                                \
	{                                                                                                              \
		const T *a = (const T *)p->a + (ptrdiff_t)row * p->a_row;                                              \
		T *c = (T *)p->c + (ptrdiff_t)row * p->c_row;                                                          \
		if (p->b_row == 1) { /* each column of b is contiguous, and so is the row of a */                      \
			for (size_t j = 0; j < p->n; j++) {                                                            \
				const T *b = (const T *)p->b + (ptrdiff_t)j * p->b_column;                             \
				name##_vector sum[2] = {0};                                                            \
				size_t l = 0;                                                                          \
				for (; l + name##_columns <= p->k; l += name##_columns) {                              \
					sum[0] += *(const name##_vector *)(a + l) * *(const name##_vector *)(b + l);   \
					sum[1] += *(const name##_vector *)(a + l + name##_lanes) *                     \
						  *(const name##_vector *)(b + l + name##_lanes);                      \
				}                                                                                      \
				sum[0] += sum[1];                                                                      \
				T total = p->accumulate ? c[j] : 0;                                                    \
				for (int i = 0; i < name##_lanes; i++)                                                 \
					total += sum[0][i];                                                            \
				for (; l < p->k; l++)                                                                  \
					total += a[l] * b[l];                                                          \
				c[j] = total;                                                                          \
			}                                                                                              \
			return;                                                                                        \
		}                                                                                                      \
		if (!p->accumulate)                                                                                    \
			memset(c, 0, p->n * sizeof *c);                                                                \
		for (size_t l = 0; l < p->k; l++) {                                                                    \
			const T *restrict b = (const T *)p->b + (ptrdiff_t)l * p->b_row;                               \
			T *restrict to = c;                                                                            \
			T x = a[(ptrdiff_t)l * p->a_column];                                                           \
			for (size_t j = 0; j < p->n; j++)                                                              \
				to[j] += x * b[j];                                                                     \
		}                                                                                                      \
	}                                                                                                              \
                                                                                                                       \
	static void name(const struct ops_product *p, void *work)                                                      \
	{                                                                                                              \
		if (p->m <= 2 && (p->b_column == 1 || (p->b_row == 1 && p->a_column == 1))) {                          \
			for (size_t i = 0; i < p->m; i++)                                                              \
				name##_row(p, i);                                                                      \
			return;                                                                                        \
		}                                                                                                      \
		T tile[OPS_ROWS * name##_columns];                                                                     \
		T *packed_b = work;                                                                                    \
		for (size_t column = 0; column < p->n; column += OPS_GEMM_N) {                                         \
			size_t n = least(OPS_GEMM_N, p->n - column);                                                   \
			size_t panels = (n + name##_columns - 1) / name##_columns * name##_columns;                    \
			for (size_t depth = 0; depth < p->k; depth += OPS_GEMM_K) {                                    \
				size_t k = least(OPS_GEMM_K, p->k - depth);                                            \
				bool add = p->accumulate || depth > 0;                                                 \
				T *packed_a = packed_b + panels * k;                                                   \
				name##_pack(packed_b,                                                                  \
					    (const T *)p->b + (ptrdiff_t)depth * p->b_row +                            \
						    (ptrdiff_t)column * p->b_column,                                   \
					    p->b_column, p->b_row, n, k, name##_columns);                              \
				for (size_t row = 0; row < p->m; row += OPS_GEMM_M) {                                  \
					size_t m = least(OPS_GEMM_M, p->m - row);                                      \
					name##_pack(packed_a,                                                          \
						    (const T *)p->a + (ptrdiff_t)row * p->a_row +                      \
							    (ptrdiff_t)depth * p->a_column,                            \
						    p->a_row, p->a_column, m, k, OPS_ROWS);                            \
					for (size_t j = 0; j < n; j += name##_columns)                                 \
						for (size_t i = 0; i < m; i += OPS_ROWS) {                             \
							name##_tile(k, packed_a + i * k, packed_b + j * k, tile);      \
							T *c = (T *)p->c + (ptrdiff_t)(row + i) * p->c_row + column +  \
							       j;                                                      \
							size_t rows = least(OPS_ROWS, m - i);                          \
							size_t columns = least(name##_columns, n - j);                 \
							for (size_t r = 0; r < rows; r++, c += p->c_row)               \
								for (size_t q = 0; q < columns; q++)                   \
									c[q] = (add ? c[q] : 0) +                      \
									       tile[r * name##_columns + q];           \
						}                                                                      \
				}                                                                                      \
			}                                                                                              \
		}                                                                                                      \
	}

GEMM(gemm_f32, float)
GEMM(gemm_f64, double)

const struct ops_gemm OPS_GEMM = {.f32 = gemm_f32, .f64 = gemm_f64, .rows = OPS_ROWS, .column_bytes = 2 * OPS_VECTOR};

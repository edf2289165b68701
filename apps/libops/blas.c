/* SPDX-License-Identifier: BSD-3-Clause */
/** OpenBLAS, loaded at the first matrix product. Any thread. */
#include "work.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

static struct ops_blas loaded;
static bool present;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Debian's serial build first: it starts no threads when it is loaded. */
static const char *const libraries[] = {
#if defined(__x86_64__)
	"/usr/lib/x86_64-linux-gnu/openblas-serial/libopenblas.so.0",
#elif defined(__aarch64__)
	"/usr/lib/aarch64-linux-gnu/openblas-serial/libopenblas.so.0",
#endif
	"libopenblas.so.0",
};

static bool load(const char *name)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return false;
	void *f32 = dlsym(library, "cblas_sgemm");
	void *f64 = dlsym(library, "cblas_dgemm");
	void *threads = dlsym(library, "openblas_set_num_threads");
	if (!f32 || !f64 || !threads) {
		dlclose(library);
		return false;
	}
	void (*set_threads)(int);
	memcpy(&set_threads, &threads, sizeof set_threads);
	memcpy(&loaded.f32, &f32, sizeof f32);
	memcpy(&loaded.f64, &f64, sizeof f64);
	set_threads(1);
	return true;
}

static void load_any(void)
{
	const char *given = getenv("FAR_OPS_BLAS");
	if (given && *given) {
		present = strcmp(given, "none") != 0 && load(given);
		return;
	}
	for (size_t i = 0; i < sizeof libraries / sizeof libraries[0] && !present; i++)
		present = load(libraries[i]);
}

const struct ops_blas *ops_blas(void)
{
	pthread_once(&once, load_any);
	return present ? &loaded : NULL;
}

const char *far_op_matmul_implementation(void)
{
	return ops_blas() ? "OpenBLAS" : "loops";
}

/* Values of the C interface of BLAS. */
enum { ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112 };

/** One stride of a matrix is 1; the other is its leading dimension. */
static bool layout(size_t rows, size_t columns, ptrdiff_t row, ptrdiff_t column, int *transpose, int *leading)
{
	ptrdiff_t most = INT_MAX;
	if ((column == 1 || columns == 1) && (rows == 1 || (row >= (ptrdiff_t)columns && row <= most))) {
		*transpose = AS_IT_IS;
		*leading = (int)(rows == 1 ? (ptrdiff_t)columns : row);
		return true;
	}
	if ((row == 1 || rows == 1) && (columns == 1 || (column >= (ptrdiff_t)rows && column <= most))) {
		*transpose = TRANSPOSED;
		*leading = (int)(columns == 1 ? (ptrdiff_t)rows : column);
		return true;
	}
	return false;
}

bool ops_blas_multiply(const struct ops_blas *blas, enum far_dtype dtype, const struct ops_product *p)
{
	int transpose_a, transpose_b, lda, ldb;
	if (p->m > INT_MAX || p->n > INT_MAX || p->k > INT_MAX || p->c_row > INT_MAX || p->c_row < (ptrdiff_t)p->n ||
	    !layout(p->m, p->k, p->a_row, p->a_column, &transpose_a, &lda) ||
	    !layout(p->k, p->n, p->b_row, p->b_column, &transpose_b, &ldb))
		return false;
	if (dtype == FAR_F64)
		blas->f64(ROW_MAJOR, transpose_a, transpose_b, (int)p->m, (int)p->n, (int)p->k, 1, p->a, lda, p->b, ldb,
			  p->accumulate, p->c, (int)p->c_row);
	else
		blas->f32(ROW_MAJOR, transpose_a, transpose_b, (int)p->m, (int)p->n, (int)p->k, 1, p->a, lda, p->b, ldb,
			  p->accumulate, p->c, (int)p->c_row);
	return true;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Chooses the inner loops by the processor: x86-64. Any thread. */
#include "pst_kernels.h"

extern const struct pst_kernels pst_kernels_baseline, pst_kernels_avx2, pst_kernels_avx512;

const struct pst_kernels *pst_kernels_nth(unsigned i)
{
	bool avx2 = __builtin_cpu_supports("avx2");
	bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
	if (i == 0)
		return &pst_kernels_baseline;
	if (i == 1 && avx2)
		return &pst_kernels_avx2;
	if (i == 2 && avx512)
		return &pst_kernels_avx512;
	return NULL;
}

const struct pst_kernels *pst_kernels_best(void)
{
	unsigned n = 1;
	while (pst_kernels_nth(n))
		n++;
	return pst_kernels_nth(n - 1);
}

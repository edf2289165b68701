/* SPDX-License-Identifier: BSD-3-Clause */
/** Instruction sets of x86-64, from the narrowest. Any thread. */
#include "dispatch.h"

extern const struct ops_kernels ops_kernels_base, ops_kernels_avx2, ops_kernels_avx512;
extern const struct ops_gemm ops_gemm_base, ops_gemm_avx2, ops_gemm_avx512;

static bool base_present(void)
{
	return true;
}

static bool avx2_present(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool avx512_present(void)
{
	return avx2_present() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

const struct ops_set ops_sets[] = {
	{base_present, &ops_kernels_base, &ops_gemm_base},
	{avx2_present, &ops_kernels_avx2, &ops_gemm_avx2},
	{avx512_present, &ops_kernels_avx512, &ops_gemm_avx512},
};
const size_t ops_sets_n = sizeof ops_sets / sizeof ops_sets[0];

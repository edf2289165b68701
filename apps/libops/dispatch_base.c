/* SPDX-License-Identifier: BSD-3-Clause */
/** Processors with one instruction set: that of the compiler. Any thread. */
#include "dispatch.h"

extern const struct ops_kernels ops_kernels_base;
extern const struct ops_gemm ops_gemm_base;

static bool base_present(void)
{
	return true;
}

const struct ops_set ops_sets[] = {{base_present, &ops_kernels_base, &ops_gemm_base}};
const size_t ops_sets_n = 1;

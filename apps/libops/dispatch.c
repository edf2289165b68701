/* SPDX-License-Identifier: BSD-3-Clause */
/** Choice of the instruction set, at the first use. Any thread. */
#include "dispatch.h"

const struct ops_kernels *_Atomic ops_kernels_chosen;

static const struct ops_set *choose(void)
{
	const struct ops_set *set = &ops_sets[0];
	for (size_t i = 1; i < ops_sets_n; i++)
		if (ops_sets[i].present())
			set = &ops_sets[i];
	return set;
}

const struct ops_kernels *ops_kernels_choose(void)
{
	const struct ops_kernels *kernels = choose()->kernels;
	atomic_store_explicit(&ops_kernels_chosen, kernels, memory_order_relaxed);
	return kernels;
}

const struct ops_gemm *ops_gemm(void)
{
	static const struct ops_gemm *_Atomic chosen; /* as ops_kernels_chosen */
	const struct ops_gemm *gemm = atomic_load_explicit(&chosen, memory_order_relaxed);
	if (!gemm) {
		gemm = choose()->gemm;
		atomic_store_explicit(&chosen, gemm, memory_order_relaxed);
	}
	return gemm;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Choice of the instruction set, at the first use. Any thread. */
#include "dispatch.h"

#include <stdatomic.h>

/* All threads store the same value, and what it points to is constant: relaxed. */
static const struct ops_set *_Atomic chosen;

static const struct ops_set *choose(void)
{
	const struct ops_set *set = &ops_sets[0];
	for (size_t i = 1; i < ops_sets_n; i++)
		if (ops_sets[i].present())
			set = &ops_sets[i];
	atomic_store_explicit(&chosen, set, memory_order_relaxed);
	return set;
}

static const struct ops_set *current(void)
{
	const struct ops_set *set = atomic_load_explicit(&chosen, memory_order_relaxed);
	return set ? set : choose();
}

const struct ops_kernels *ops_kernels(void)
{
	return current()->kernels;
}

const struct ops_gemm *ops_gemm(void)
{
	return current()->gemm;
}

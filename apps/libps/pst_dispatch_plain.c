/* SPDX-License-Identifier: BSD-3-Clause */
/** The inner loops where the compiler's default instruction set is the only one: NEON on aarch64. Any thread. */
#include "pst_kernels.h"

extern const struct pst_kernels pst_kernels_baseline;

const struct pst_kernels *pst_kernels_nth(unsigned i)
{
	return i == 0 ? &pst_kernels_baseline : NULL;
}

const struct pst_kernels *pst_kernels_best(void)
{
	return &pst_kernels_baseline;
}

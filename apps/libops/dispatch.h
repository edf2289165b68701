/* SPDX-License-Identifier: BSD-3-Clause */
/** Instruction sets that the kernels were compiled for. meson picks the file that lists them. Constant. Any thread. */
#ifndef FAR_LIBOPS_DISPATCH_H
#define FAR_LIBOPS_DISPATCH_H

#include "kernels.h"

struct ops_set {
	bool (*present)(void); /* this processor has it */
	const struct ops_kernels *kernels;
	const struct ops_gemm *gemm;
};

extern const struct ops_set ops_sets[]; /* from the narrowest */
extern const size_t ops_sets_n;

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** The 16-bit floating-point elements, bf16 and f16, to and from f32. Anyone. */
#ifndef FAR_VALUE_HALF_H
#define FAR_VALUE_HALF_H

#include <farcall/value.h>

/** Exact. `dtype` is FAR_BF16 or FAR_F16. */
float half_to_float(enum far_dtype dtype, uint16_t half);
/** Rounds to nearest, ties to even; beyond the largest: infinity. NaN stays NaN. */
uint16_t half_from_float(enum far_dtype dtype, float x);

#endif

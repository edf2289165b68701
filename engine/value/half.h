/* SPDX-License-Identifier: BSD-3-Clause */
/** Converts 16-bit floating-point elements, bf16 and f16, to and from f32. Any thread. */
#ifndef FAR_VALUE_HALF_H
#define FAR_VALUE_HALF_H

#include <farcall/value.h>

/** Exact. `dtype` is FAR_BF16 or FAR_F16. */
float half_to_float(enum far_dtype dtype, uint16_t half);
/** Rounds to nearest, ties to even. Beyond the largest finite number: infinity. NaN stays NaN. */
uint16_t half_from_float(enum far_dtype dtype, float x);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FAR_BASE_RANDOM_H
#define FAR_BASE_RANDOM_H

#include <stdint.h>

/** 64 bits from the kernel's generator, never 0: incarnations and tokens. */
uint64_t random_u64(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** Keys of a measurement of tables: drawn uniformly, or by Zipf's law with exponent 1.2. Any thread. */
#ifndef PERF_PS_KEYS_H
#define PERF_PS_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Writes n keys of [0, rows). `*state` is the generator's: any value begins a sequence. The frequent keys of Zipf's
 * law are spread over the rows by a hash. */
void ps_keys_draw(uint64_t *state, uint64_t rows, bool is_zipf, uint64_t *keys, size_t n);

#endif

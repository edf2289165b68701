/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads and updates flat arrays of rows, the floors of tables. The thread that has the array. */
#include "ps_flat.h"

#include "apps/libps/pst_kernels.h"
#include <assert.h>
#include <errno.h>
#include <stdalign.h>
#include <string.h>

#define AHEAD 32u /* keys that are prefetched */

static size_t whole(size_t bytes)
{
	return (bytes + PST_HUGE_BYTES - 1) & ~(PST_HUGE_BYTES - 1);
}

int ps_flat_open(struct ps_flat *f, uint64_t rows, uint32_t row_bytes)
{
	*f = (struct ps_flat){.bytes = whole(rows * row_bytes)};
	for (int i = 0; i < 2; i++) {
		f->at[i] = pst_memory_default.get(NULL, f->bytes, PST_PAGES_HUGE);
		if (!f->at[i]) {
			ps_flat_close(f);
			return -ENOMEM;
		}
		f->arr[i] = (struct pst_slabs){.stride = row_bytes, .shift = 31, .at = &f->at[i]};
	}
	return 0;
}

void ps_flat_close(struct ps_flat *f)
{
	for (int i = 0; i < 2; i++)
		if (f->at[i])
			pst_memory_default.put(NULL, f->at[i], f->bytes, PST_PAGES_HUGE);
	*f = (struct ps_flat){0};
}

static inline void copy(const char *rows, const uint64_t *keys, uint32_t n, size_t row_bytes, char *out)
{
	for (uint32_t i = 0; i < n; i++) {
		if (i + AHEAD < n)
			for (size_t line = 0; line < row_bytes; line += 64)
				__builtin_prefetch(rows + keys[i + AHEAD] * row_bytes + line, 0, 2);
		memcpy(out + i * row_bytes, rows + keys[i] * row_bytes, row_bytes);
	}
}

void ps_flat_pull(const struct ps_flat *f, const uint64_t *keys, uint32_t n, uint32_t row_bytes, void *out)
{
	if (row_bytes == 64) /* a size that the compiler knows */
		copy(f->at[0], keys, n, 64, out);
	else
		copy(f->at[0], keys, n, row_bytes, out);
}

void ps_flat_push(const struct ps_flat *f, const uint64_t *keys, uint32_t n, uint32_t row_bytes, const float *grads)
{
	uint32_t ids[PS_FLAT_KEYS_MAX];
	alignas(64) float scratch[3 * PS_FLAT_DIM_MAX];
	struct pst_rule rule;
	assert(n <= PS_FLAT_KEYS_MAX && row_bytes == f->arr[0].stride && row_bytes <= PS_FLAT_DIM_MAX * sizeof(float));
	pst_rule_defaults(&rule, PST_RULE_ADAGRAD);
	for (uint32_t i = 0; i < n; i++)
		ids[i] = (uint32_t)keys[i];
	const struct pst_apply a = {.rule = &rule,
				    .rate = rule.rate,
				    .dim = row_bytes / (uint32_t)sizeof(float),
				    .rows = &f->arr[0],
				    .state = &f->arr[1],
				    .ids = ids,
				    .n = n,
				    .grads = grads,
				    .scratch = scratch};
	pst_kernels_best()->apply(&a);
}

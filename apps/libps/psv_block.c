/* SPDX-License-Identifier: BSD-3-Clause */
/** Checks blocks. Any thread. */
#include "psv_block.h"

#include <string.h>

bool psv_values_bytes(const struct psv_rows *layout, const void *lens, uint32_t n, size_t room, size_t *bytes)
{
	const uint32_t *len = lens;
	size_t all = 0;
	for (uint32_t i = 0; i < n; i++) {
		if (len[i] > layout->value_max)
			return false;
		all += len[i];
	}
	*bytes += (all + 7) / 8 * 8;
	return (all + 7) / 8 * 8 <= room;
}

bool psv_block_read(const struct psv_rows *layout, const char **at, const char *end, struct psv_block_rows *out)
{
	struct psv_block block;
	size_t left = (size_t)(end - *at), state, ages;
	if (left < sizeof block)
		return false;
	memcpy(&block, *at, sizeof block);
	if (block.partition >= FAR_PS_PARTITIONS || psv_block_bytes(layout, block.n) > left)
		return false;
	const char *keys = *at + sizeof block, *rows = keys + (size_t)block.n * sizeof(uint64_t);
	(void)psv_rows_layout(layout, block.n, &state, &ages);
	*out = (struct psv_block_rows){.partition = block.partition,
				       .n = block.n,
				       .keys = (const uint64_t *)(const void *)keys,
				       .rows = rows,
				       .state = layout->state ? (const float *)(const void *)(rows + state) : NULL,
				       .ages = layout->age ? (const uint64_t *)(const void *)(rows + ages) : NULL};
	size_t bytes = psv_block_bytes(layout, block.n);
	if (layout->value_max) {
		out->values = *at + bytes;
		if (!psv_values_bytes(layout, rows, block.n, left - bytes, &bytes))
			return false;
	}
	for (uint32_t i = 0; i < out->n; i++) {
		uint64_t hash = pst_hash(out->keys[i]);
		if (pst_partition(hash) != block.partition || (i && hash <= pst_hash(out->keys[i - 1])))
			return false;
	}
	*at += bytes;
	return true;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** Lists tables, scans partitions and restores their rows. The thread that polls the shard. */
#include "psv_job.h"

#include "pst_fail.h"
#include <stdlib.h>
#include <string.h>

#define SCAN_PARTS 256u               /* partitions that a scan looks at */
#define SCAN_BYTES FAR_PS_CHUNK_BYTES /* after which it ends */

static enum far_status no_memory(struct far_err *err)
{
	return pst_fail(err, FAR_RESOURCE, 0, "no memory for a reply");
}

enum far_status psv_rows_list(struct psv_shard *s, struct psv_job *j, struct far_err *err)
{
	unsigned n = atomic_load_explicit(&s->tables_n, memory_order_relaxed);
	j->made = malloc((size_t)n * PSV_NAME_BYTES + 1);
	if (!j->made)
		return no_memory(err);
	for (unsigned i = 0; i < n; i++)
		memcpy(j->made + (size_t)i * PSV_NAME_BYTES,
		       atomic_load_explicit(&s->table[i], memory_order_relaxed)->name, PSV_NAME_BYTES);
	j->made_len = (size_t)n * PSV_NAME_BYTES;
	j->made_count = n;
	return FAR_OK;
}

enum far_status psv_rows_hot(struct psv_job *j, struct far_err *err)
{
	j->made = malloc(PSV_HOT_KEYS * sizeof(struct psv_hot_key));
	if (!j->made)
		return no_memory(err);
	j->made_count = psv_hot_list(&j->t->hot, (struct psv_hot_key *)(void *)j->made);
	j->made_len = j->made_count * sizeof(struct psv_hot_key);
	return FAR_OK;
}

/* The rows of a partition, at most `most`, as a block; returns its bytes. */
static size_t scan_partition(const struct psv_job *j, unsigned partition, uint32_t most, char *to)
{
	const struct psv_rows *layout = &j->t->layout;
	struct psv_block block = {.partition = partition};
	const unsigned shift = 64 - PST_PARTITION_BITS;
	struct pst_cursor c = {.from = (uint64_t)partition << shift,
			       .last = ((uint64_t)partition << shift) + (UINT64_MAX >> PST_PARTITION_BITS)};
	uint64_t *keys = (uint64_t *)(void *)(to + sizeof block);
	char *rows = (char *)(keys + most);
	size_t state, ages;
	(void)psv_rows_layout(layout, most, &state, &ages);
	while (!c.done && block.n < most)
		block.n += pst_scan(j->t->rows, &c, j->now_ms, most - block.n, keys + block.n,
				    rows + block.n * layout->row,
				    layout->state ? (float *)(void *)(rows + state + block.n * layout->state) : NULL,
				    layout->age ? (uint64_t *)(void *)(rows + ages) + block.n : NULL);
	memcpy(to, &block, sizeof block);
	if (block.n == most)
		return psv_block_bytes(layout, most);
	/* Expired rows left a gap behind each array. */
	size_t state_to, ages_to;
	(void)psv_rows_layout(layout, block.n, &state_to, &ages_to);
	char *packed = (char *)(keys + block.n);
	memmove(packed, rows, block.n * layout->row);
	memmove(packed + state_to, rows + state, block.n * layout->state);
	memmove(packed + ages_to, rows + ages, block.n * layout->age);
	return psv_block_bytes(layout, block.n);
}

/* Blocks of partitions from that of the request on, until SCAN_BYTES are full or another shard owns the next one. */
enum far_status psv_rows_scan(struct psv_shard *s, struct psv_job *j, struct far_err *err)
{
	unsigned first = j->q->worker, p = first;
	if (first >= FAR_PS_PARTITIONS || s->view->owner[first] != s->slot)
		return pst_fail(err, FAR_INVALID, 0, "partition %u does not belong to shard %d", first, s->self.shard);
	while (p < FAR_PS_PARTITIONS && p < first + SCAN_PARTS && s->view->owner[p] == s->slot &&
	       (p == first || j->made_len < SCAN_BYTES)) {
		uint32_t most = pst_table_partition_keys(j->t->rows, p);
		char *more = realloc(j->made, j->made_len + psv_block_bytes(&j->t->layout, most) + 8);
		if (!more)
			return no_memory(err);
		j->made = more;
		memset(j->made + j->made_len, 0, psv_block_bytes(&j->t->layout, most));
		j->made_len += (scan_partition(j, p++, most, j->made + j->made_len) + 7) / 8 * 8;
	}
	j->made_count = p - first;
	j->t->scans += p - first;
	return FAR_OK;
}

enum far_status psv_rows_restore(struct psv_shard *s, const struct psv_job *j, struct far_err *err)
{
	const struct psv_rows *layout = &j->t->layout;
	size_t state, ages;
	(void)psv_rows_layout(layout, j->q->n, &state, &ages);
	return pst_restore(j->t->rows, j->keys, j->q->n, j->rows, (const float *)(const void *)(j->rows + state),
			   (const uint64_t *)(const void *)(j->rows + ages), j->now_ms, s->status, err);
}

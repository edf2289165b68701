/* SPDX-License-Identifier: BSD-3-Clause */
/** Lists tables, scans partitions and restores their rows. The thread that polls the shard. */
#include "psv_job.h"

#include "pst_cut.h"
#include "pst_fail.h"
#include <stdlib.h>
#include <string.h>

#define GET_GROUP 64u /* values that are looked up together */

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

/* ---- Values ---- */

/* As many as fit; the others are PSV_LATER. Groups first, whose memory is prefetched, then one by one. */
enum far_status psv_rows_get(struct psv_shard *s, struct psv_job *j, struct far_err *err)
{
	uint32_t n = j->q->n, at[GET_GROUP + 1], done = 0;
	uint32_t group = GET_GROUP;
	size_t used = 0, needed;
	j->made = malloc((size_t)n * sizeof(uint32_t) + j->q->bags + 1);
	if (!j->made)
		return no_memory(err);
	char *bytes = j->made + (size_t)n * sizeof(uint32_t);
	memset(j->made, 0, (size_t)n * sizeof(uint32_t));
	memset(s->status, PSV_LATER, n);
	while (done < n) {
		uint32_t of_group = n - done < group ? n - done : group;
		enum far_status status = pst_value_get(j->t->rows, j->keys + done, of_group, at, bytes + used,
						       j->q->bags - used, &needed, j->now_ms, s->status + done, err);
		if (status == FAR_TOO_LARGE && group > 1) {
			group = 1;
			continue;
		}
		if (status == FAR_TOO_LARGE)
			break;
		if (status)
			return status;
		for (uint32_t i = 0; i < of_group; i++) {
			uint32_t len = at[i + 1] - at[i];
			memcpy(j->made + (done + i) * sizeof len, &len, sizeof len);
		}
		used += needed;
		done += of_group;
	}
	j->made_len = (size_t)n * sizeof(uint32_t) + used;
	return FAR_OK;
}

/* ---- Scans ---- */

static struct pst_cursor cursor_of(unsigned partition)
{
	const unsigned shift = 64 - PST_PARTITION_BITS;
	return (struct pst_cursor){.from = (uint64_t)partition << shift,
				   .last = ((uint64_t)partition << shift) + (UINT64_MAX >> PST_PARTITION_BITS)};
}

/* What a request to scan looks at, at most. */
struct bounds {
	uint32_t parts, rows, bytes;
};

/* Short while others use the tables of the shard, long else, since each slice takes the reader a round trip. */
static struct bounds bounds_of(const struct psv_shard *s, const struct psv_job *j)
{
	size_t row = psv_rows_bytes(&j->t->layout, 1);
	struct bounds b = {PSV_SCAN_PARTS, psv_slice_rows(&j->t->layout), PSV_SLICE_BYTES};
	if (j->now_ns - s->keyed_ns >= PSV_QUIET_NS)
		return b;
	b = (struct bounds){PSV_SHORT_PARTS, (uint32_t)(PSV_SHORT_BYTES / row), PSV_SHORT_BYTES};
	b.rows = b.rows < 1 ? 1 : b.rows > PSV_SHORT_ROWS ? PSV_SHORT_ROWS : b.rows;
	return b;
}

/* A slice of a partition, at most `most` rows and, of values, `bytes` of the reply, as a block behind `j->made`;
 * returns its rows. */
static uint32_t put_block(struct psv_job *j, struct pst_cut *cut, struct pst_cursor *c, unsigned partition,
			  uint32_t most, uint32_t bytes_max)
{
	const struct psv_rows *layout = &j->t->layout;
	char *to = j->made + j->made_len;
	uint64_t *keys = (uint64_t *)(void *)(to + sizeof(struct psv_block));
	char *rows = (char *)(keys + most);
	size_t state, ages, state_to, ages_to;
	(void)psv_rows_layout(layout, most, &state, &ages);
	memset(to, 0, psv_block_bytes(layout, most));
	bool values = layout->value_max > 0;
	struct pst_slice slice = {.keys = keys,
				  .rows = values ? NULL : rows,
				  .lens = values ? (uint32_t *)(void *)rows : NULL,
				  .bytes = values ? to + psv_block_bytes(layout, most) : NULL,
				  .bytes_max = j->made_len < bytes_max ? bytes_max - j->made_len : 0,
				  .state = layout->state ? (float *)(void *)(rows + state) : NULL,
				  .ages_ms = layout->age ? (uint64_t *)(void *)(rows + ages) : NULL};
	struct psv_block block = {.partition = partition};
	block.n = pst_slice(j->t->rows, cut, c, j->now_ms, most, &slice);
	memcpy(to, &block, sizeof block);
	/* Rows that are fewer leave a gap behind each array. */
	(void)psv_rows_layout(layout, block.n, &state_to, &ages_to);
	char *packed = (char *)(keys + block.n);
	memmove(packed, rows, block.n * layout->row);
	memmove(packed + state_to, rows + state, block.n * layout->state);
	memmove(packed + ages_to, rows + ages, block.n * layout->age);
	size_t bytes = psv_block_bytes(layout, block.n), padded = (slice.bytes_n + 7) / 8 * 8;
	if (values) {
		memmove(to + bytes, slice.bytes, slice.bytes_n);
		memset(to + bytes + slice.bytes_n, 0, padded - slice.bytes_n);
	}
	j->made_len += (bytes + padded + 7) / 8 * 8;
	return block.n;
}

/* The rest of the partition is to be read as it is now. */
static enum far_status begin_cut(struct psv_shard *s, struct psv_job *j, struct pst_cursor *rest,
				 struct psv_scan_head *head, struct far_err *err)
{
	if (s->cuts_n >= PSV_CUTS_MAX)
		return pst_fail(err, FAR_BUSY, 0, "%u scans and saves read large partitions of shard %d: try again",
				s->cuts_n, s->self.shard);
	struct pst_cut *cut = pst_cut_begin(j->t->rows, rest, j->now_ms);
	if (!cut)
		return no_memory(err);
	cut->id = j->now_ns > s->cut_last ? j->now_ns : s->cut_last + 1;
	cut->used_ns = j->now_ns;
	s->cut_last = cut->id;
	s->cuts_n++;
	atomic_fetch_add_explicit(&s->server->waiting, 1, memory_order_relaxed);
	*head = (struct psv_scan_head){cut->id, rest->from};
	return FAR_OK;
}

static void end_cut(struct psv_shard *s, struct psv_table *t, struct pst_cut *cut)
{
	pst_cut_end(t->rows, cut);
	s->cuts_n--;
	atomic_fetch_sub_explicit(&s->server->waiting, 1, memory_order_relaxed);
}

void psv_cuts_end(struct psv_shard *s, struct psv_table *t, uint64_t used_before_ns)
{
	for (struct pst_cut *cut = pst_cuts(t->rows), *next; cut; cut = next) {
		next = cut->next;
		if (cut->used_ns < used_before_ns)
			end_cut(s, t, cut);
	}
}

void psv_cuts_look(struct psv_shard *s)
{
	uint64_t now = psv_now_ns();
	for (unsigned i = 0; i < atomic_load_explicit(&s->tables_n, memory_order_relaxed); i++)
		psv_cuts_end(s, atomic_load_explicit(&s->table[i], memory_order_relaxed),
			     now > PSV_CUT_IDLE_NS ? now - PSV_CUT_IDLE_NS : 0);
}

/* The next slice of a partition that is being read. */
static enum far_status go_on(struct psv_shard *s, struct psv_job *j, struct psv_scan_head *head, struct far_err *err)
{
	const struct psv_request *q = j->q;
	struct pst_cut *cut = pst_cuts(j->t->rows);
	while (cut && cut->id != q->clock)
		cut = cut->next;
	if (!cut || q->token < cut->from || q->token > cut->last)
		return pst_fail(err, FAR_GONE, 0, "the reader of partition %u was silent for too long: read it again",
				q->worker);
	if (cut->torn) {
		end_cut(s, j->t, cut);
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for rows that change while partition %u is read",
				q->worker);
	}
	struct pst_cursor c = {.from = q->token, .last = cut->last};
	struct bounds most = bounds_of(s, j);
	(void)put_block(j, cut, &c, q->worker, most.rows, most.bytes);
	cut->used_ns = j->now_ns;
	if (!c.done) {
		*head = (struct psv_scan_head){cut->id, c.from};
		return FAR_OK;
	}
	j->made_count = 1;
	end_cut(s, j->t, cut);
	return FAR_OK;
}

/* Blocks of partitions from that of the request on, until a slice is full or another shard owns the next one. Of a
 * first partition that is larger than a slice a part. */
static enum far_status begin(struct psv_shard *s, struct psv_job *j, struct psv_scan_head *head, struct far_err *err)
{
	unsigned first = j->q->worker, p = first;
	struct bounds most = bounds_of(s, j);
	uint32_t left = most.rows;
	enum far_status status = FAR_OK;
	while (p < FAR_PS_PARTITIONS && p < first + most.parts && s->view->owner[p] == s->slot && left &&
	       j->made_len < most.bytes) {
		size_t before = j->made_len;
		struct pst_cursor c = cursor_of(p);
		uint32_t keys = pst_table_partition_keys(j->t->rows, p);
		if (p > first && keys > left)
			break;
		left -= put_block(j, NULL, &c, p, keys < left ? keys + 1 : left,
				  most.bytes); /* one more: its end is seen */
		if (!c.done && p > first)
			j->made_len = before;
		if (!c.done && p == first)
			status = begin_cut(s, j, &c, head, err);
		if (!c.done)
			break;
		p++;
	}
	j->made_count = p - first;
	return status;
}

static bool slice_room(struct psv_shard *s, size_t bytes)
{
	if (bytes <= s->slice_room)
		return true;
	free(s->slice);
	s->slice = malloc(bytes);
	s->slice_room = s->slice ? bytes : 0;
	return s->slice != NULL;
}

enum far_status psv_rows_scan(struct psv_shard *s, struct psv_job *j, struct far_err *err)
{
	unsigned first = j->q->worker;
	struct psv_scan_head head = {0};
	if (first >= FAR_PS_PARTITIONS || s->view->owner[first] != s->slot)
		return pst_fail(err, FAR_INVALID, 0, "partition %u does not belong to shard %d", first, s->self.shard);
	if (!slice_room(s, psv_scan_bytes(&j->t->layout)))
		return no_memory(err);
	j->made = s->slice;
	j->made_len = sizeof head;
	enum far_status status = (j->q->clock ? go_on : begin)(s, j, &head, err);
	memcpy(j->made, &head, sizeof head);
	j->t->scans += j->made_count;
	return status;
}

enum far_status psv_rows_restore(struct psv_shard *s, const struct psv_job *j, struct far_err *err)
{
	const struct psv_rows *layout = &j->t->layout;
	size_t state, ages;
	(void)psv_rows_layout(layout, j->q->n, &state, &ages);
	if (layout->value_max)
		return pst_value_restore(j->t->rows, j->keys, j->q->n, j->value_at,
					 j->rows + psv_rows_bytes(layout, j->q->n) - j->q->n * sizeof *j->keys,
					 (const uint64_t *)(const void *)(j->rows + ages), j->now_ms, s->status, err);
	return pst_restore(j->t->rows, j->keys, j->q->n, j->rows, (const float *)(const void *)(j->rows + state),
			   (const uint64_t *)(const void *)(j->rows + ages), j->now_ms, s->status, err);
}

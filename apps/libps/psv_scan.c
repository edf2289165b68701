/* SPDX-License-Identifier: BSD-3-Clause */
/** Lists, drops and scans of a client, one request at a time. Any thread; these block. */
#include "psv_block.h"

#include "pst_fail.h"
#include "psv_hot.h"
#include <farcall/message.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST ((size_t)128 << 10)
#define SCAN_TRIES 3 /* of a partition: a new view, or a pause of this process, ends its cut */

static_assert(sizeof(struct psv_reply) + PSV_VIEW_BYTES_MAX < ROOM_FIRST, "a view fits");

/* ---- Calls ---- */

static enum far_status make_room(struct psv_buffer *b, size_t bytes, struct far_err *err)
{
	if (bytes <= b->room)
		return FAR_OK;
	free(b->data);
	b->data = malloc(bytes);
	b->room = b->data ? bytes : 0;
	return b->data ? FAR_OK : pst_fail(err, FAR_RESOURCE, 0, "no memory for a reply of %zu bytes", bytes);
}

enum far_status psv_call(struct far_ps *ps, const struct psv_call *c, uint64_t timeout_ns, struct psv_buffer *reply,
			 struct far_err *err)
{
	struct far_call_opts opts = {.timeout_ns = timeout_ns};
	enum far_status status = make_room(reply, ROOM_FIRST, err);
	while (!status) {
		const struct psv_view *view = atomic_load_explicit(&ps->view, memory_order_acquire);
		struct psv_reply head = {0};
		c->q->epoch = view->epoch;
		reply->len = 0;
		status = far_msg_call(ps->agent, view->slot[view->owner[c->partition]], ps->message, c->q, c->len,
				      &opts, reply->data, reply->room, &reply->len, err);
		if (status == FAR_TOO_LARGE && reply->len > reply->room) {
			status = make_room(reply, reply->len + reply->len / 4, err);
			continue;
		}
		if (status)
			break;
		if (reply->len >= sizeof head)
			memcpy(&head, reply->data, sizeof head);
		if (head.magic == PSV_MAGIC && head.answer == PSV_DONE)
			return FAR_OK;
		if (head.magic != PSV_MAGIC || head.answer != PSV_STALE ||
		    !psv_adopt(ps, reply->data + sizeof head, reply->len - sizeof head, view->epoch))
			return pst_fail(err, FAR_PROTOCOL, 0, "a server sent a malformed reply of %zu bytes",
					reply->len);
		if (c->fixed)
			return pst_fail(err, FAR_GONE, 0, "the view of the service has changed meanwhile");
	}
	return status;
}

/* Puts the table's name in front of an error. */
static enum far_status of_table(const struct far_ps_table *t, enum far_status status, struct far_err *err)
{
	if (!status || !err)
		return status;
	struct far_err why = *err;
	snprintf(err->text, sizeof err->text, "table \"%s\": %.300s", t->name, why.text);
	return status;
}

static struct psv_request request_of(const struct far_ps *ps, enum psv_kind kind)
{
	return (struct psv_request){.magic = PSV_MAGIC, .kind = (uint8_t)kind, .service = ps->service};
}

/* ---- Tables ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

enum far_status far_ps_tables(struct far_ps *ps, uint64_t timeout_ns, char names[FAR_PS_TABLES_MAX][FAR_PS_NAME_MAX],
			      size_t *n, struct far_err *err)
{
	if (!ps || !names || !n)
		return pst_fail(err, FAR_INVALID, 0, "the service or the place for names is NULL");
	struct psv_buffer reply = {0};
	struct psv_request q = request_of(ps, PSV_LIST);
	struct psv_reply head;
	enum far_status status = psv_call(ps, &(struct psv_call){&q, sizeof q, 0, false}, timeout_ns, &reply, err);
	if (!status) {
		memcpy(&head, reply.data, sizeof head);
		if (head.count > FAR_PS_TABLES_MAX || reply.len != sizeof head + head.count * PSV_NAME_BYTES)
			status = pst_fail(err, FAR_PROTOCOL, 0, "a server sent a malformed list of tables");
	}
	for (size_t i = 0; !status && i < head.count; i++) {
		memcpy(names[i], reply.data + sizeof head + i * PSV_NAME_BYTES, PSV_NAME_BYTES);
		if (!psv_name_ok(names[i]))
			status = pst_fail(err, FAR_PROTOCOL, 0, "a server sent a malformed name of a table");
	}
	free(reply.data);
	if (status)
		return status;
	*n = head.count;
	qsort(names, *n, FAR_PS_NAME_MAX, by_name);
	return FAR_OK;
}

enum far_status far_ps_table_drop(struct far_ps *ps, const char *name, uint64_t timeout_ns, struct far_err *err)
{
	if (!ps || !psv_name_ok(name))
		return pst_fail(err, FAR_INVALID, 0, "a table needs a service and a name of 1 to %d bytes",
				FAR_PS_NAME_MAX - 1);
	struct psv_op op = {.ps = ps, .kind = PSV_DROP, .table = psv_name_id(name), .timeout_ns = timeout_ns};
	struct far_future *f;
	strcpy(op.table_name, name);
	enum far_status status = psv_op_start(&op, &f, err);
	if (status)
		return status;
	status = far_future_wait(f, FAR_FOREVER, NULL, err); /* ends by its own deadline */
	far_future_free(f);
	return status;
}

/* ---- Hot keys ---- */

static int by_uses(const void *a, const void *b)
{
	const struct far_ps_hot_key *x = a, *y = b;
	if (x->uses != y->uses)
		return x->uses < y->uses ? 1 : -1;
	return (x->key > y->key) - (x->key < y->key);
}

/* Adds the keys of a shard to *all, of *n. */
static enum far_status add_hot(const struct psv_buffer *reply, struct far_ps_hot_key **all, size_t *n,
			       struct far_err *err)
{
	struct psv_reply head;
	memcpy(&head, reply->data, sizeof head);
	if (head.count > PSV_HOT_KEYS || reply->len != sizeof head + head.count * sizeof(struct psv_hot_key))
		return pst_fail(err, FAR_PROTOCOL, 0, "a server sent a malformed list of keys");
	struct far_ps_hot_key *more = realloc(*all, (*n + head.count + 1) * sizeof *more);
	if (!more)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for %zu keys", *n + (size_t)head.count);
	for (size_t i = 0; i < head.count; i++) {
		struct psv_hot_key k;
		memcpy(&k, reply->data + sizeof head + i * sizeof k, sizeof k);
		more[(*n)++] = (struct far_ps_hot_key){.key = k.key, .uses = k.uses};
	}
	*all = more;
	return FAR_OK;
}

enum far_status far_ps_hot(struct far_ps_table *t, uint64_t timeout_ns, struct far_ps_hot_key *hot, size_t *n,
			   struct far_err *err)
{
	if (!t || !n || (*n && !hot))
		return pst_fail(err, FAR_INVALID, 0, "the table or the place for keys is NULL");
	struct psv_request q = request_of(t->ps, PSV_HOT);
	struct psv_buffer reply = {0};
	struct far_ps_hot_key *all = NULL;
	size_t all_n = 0;
	enum far_status status = FAR_OK;
	q.table = t->id;
	for (uint32_t p = 0; !status && p < FAR_PS_PARTITIONS;) {
		status = psv_call(t->ps, &(struct psv_call){&q, sizeof q, p, false}, timeout_ns, &reply, err);
		if (!status)
			status = add_hot(&reply, &all, &all_n, err);
		const struct psv_view *view = atomic_load_explicit(&t->ps->view, memory_order_acquire);
		for (uint16_t owner = view->owner[p]; p < FAR_PS_PARTITIONS && view->owner[p] == owner;)
			p++;
	}
	if (!status) {
		qsort(all, all_n, sizeof *all, by_uses);
		*n = all_n < *n ? all_n : *n;
		if (*n)
			memcpy(hot, all, *n * sizeof *hot);
	}
	free(reply.data);
	free(all);
	return of_table(t, status, err);
}

/* ---- Scans ---- */

/* Where the blocks of a slice begin in a reply. */
#define SLICE_AT (sizeof(struct psv_reply) + sizeof(struct psv_scan_head))

/* Requests a slice. */
static enum far_status scan_slice(struct far_ps_table *t, uint32_t first, struct psv_scan_head *head, uint32_t *parts,
				  uint64_t timeout_ns, struct psv_buffer *reply, struct far_err *err)
{
	struct psv_request q = request_of(t->ps, PSV_SCAN);
	struct psv_rows layout = psv_schema_rows(&t->schema);
	bool goes_on = head->cut != 0;
	q.table = t->id;
	q.worker = first;
	q.clock = head->cut;
	q.token = head->next;
	enum far_status status = make_room(reply, sizeof(struct psv_reply) + psv_scan_bytes(&layout), err);
	if (!status)
		status = psv_call(t->ps, &(struct psv_call){&q, sizeof q, first, false}, timeout_ns, reply, err);
	if (status)
		return status;
	struct psv_block_rows block;
	struct psv_reply r;
	memcpy(&r, reply->data, sizeof r);
	bool ok = reply->len >= SLICE_AT;
	if (ok)
		memcpy(head, reply->data + sizeof r, sizeof *head);
	const char *at = reply->data + (ok ? SLICE_AT : sizeof r);
	const char *end = reply->data + reply->len;
	uint32_t n = head->cut || goes_on ? 1 : (uint32_t)r.count;
	ok = ok && r.count == (head->cut ? 0 : n) && n > 0 && n <= FAR_PS_PARTITIONS - first;
	for (uint32_t i = 0; ok && i < n; i++)
		ok = psv_block_read(&layout, &at, end, &block) && block.partition == first + i;
	if (!ok || at != end)
		return pst_fail(err, FAR_PROTOCOL, 0, "a server sent malformed rows of partition %u", first);
	*parts = (uint32_t)r.count;
	return FAR_OK;
}

/* Adds blocks to those in the buffer. */
static enum far_status append(struct psv_buffer *b, const char *blocks, size_t bytes, struct far_err *err)
{
	if (b->len + bytes > b->room) {
		size_t room = 2 * (b->len + bytes);
		char *more = realloc(b->data, room);
		if (!more)
			return pst_fail(err, FAR_RESOURCE, 0, "no memory for %zu bytes of a partition", room);
		b->data = more;
		b->room = room;
	}
	memcpy(b->data + b->len, blocks, bytes);
	b->len += bytes;
	return FAR_OK;
}

/* All slices from the first on. */
static enum far_status scan_once(struct far_ps_table *t, uint32_t first, uint64_t timeout_ns, struct psv_buffer *reply,
				 struct psv_buffer *buffer, uint32_t *parts, struct far_err *err)
{
	struct psv_scan_head head = {0};
	enum far_status status;
	buffer->len = 0;
	do {
		status = scan_slice(t, first, &head, parts, timeout_ns, reply, err);
		if (!status)
			status = append(buffer, reply->data + SLICE_AT, reply->len - SLICE_AT, err);
	} while (!status && head.cut);
	return status;
}

enum far_status psv_scan(struct far_ps_table *t, uint32_t first, uint64_t timeout_ns, struct psv_buffer *buffer,
			 const char **blocks, uint32_t *parts, struct far_err *err)
{
	struct psv_buffer reply = {0};
	enum far_status status = FAR_GONE;
	for (int i = 0; i < SCAN_TRIES && status == FAR_GONE; i++)
		status = scan_once(t, first, timeout_ns, &reply, buffer, parts, err);
	free(reply.data);
	*blocks = buffer->data;
	return of_table(t, status, err);
}

void far_ps_rows_free(struct far_ps_rows *rows)
{
	free(rows->keys);
	free(rows->rows);
	free(rows->state);
	free(rows->ages_ms);
	free(rows->offsets);
	free(rows->values);
	*rows = (struct far_ps_rows){0};
}

static enum far_status rows_new(const struct far_ps_table *t, size_t n, size_t bytes, struct far_ps_rows *out,
				struct far_err *err)
{
	*out = (struct far_ps_rows){.n = n,
				    .keys = malloc(n * sizeof *out->keys + 1),
				    .rows = malloc(n * t->schema.dim * sizeof *out->rows + 1),
				    .state = malloc(n * t->state_floats * sizeof *out->state + 1),
				    .ages_ms = calloc(n + 1, sizeof *out->ages_ms)};
	if (t->schema.value_max) {
		out->offsets = calloc(n + 1, sizeof *out->offsets);
		out->values = malloc(bytes + 1);
	}
	if (out->keys && out->rows && out->state && out->ages_ms &&
	    (!t->schema.value_max || (out->offsets && out->values)))
		return FAR_OK;
	far_ps_rows_free(out);
	return pst_fail(err, FAR_RESOURCE, 0, "no memory for %zu rows", n);
}

static void put_block(const struct far_ps_table *t, const struct psv_block_rows *b, size_t to, struct far_ps_rows *out)
{
	unsigned dim = t->schema.dim;
	enum pst_type stored = PST_F32;
	(void)psv_type(t->schema.stored, &stored);
	memcpy(out->keys + to, b->keys, b->n * sizeof *b->keys);
	const char *value = b->values;
	for (uint32_t i = 0; value && i < b->n; i++) {
		uint32_t len = ((const uint32_t *)(const void *)b->rows)[i];
		memcpy(out->values + out->offsets[to + i], value, len);
		out->offsets[to + i + 1] = out->offsets[to + i] + len;
		value += len;
	}
	for (uint32_t i = 0; !value && i < b->n; i++) {
		const char *row = b->rows + (size_t)i * dim * pst_type_bytes(stored);
		if (stored == PST_F32)
			memcpy(out->rows + (to + i) * dim, row, dim * sizeof(float));
		else
			pst_kernels_best()->widen(stored, out->rows + (to + i) * dim, row, dim, 0);
	}
	if (b->state)
		memcpy(out->state + to * t->state_floats, b->state, (size_t)b->n * t->state_floats * sizeof *b->state);
	if (b->ages)
		memcpy(out->ages_ms + to, b->ages, b->n * sizeof *b->ages);
}

enum far_status far_ps_scan(struct far_ps_table *t, unsigned *partition, uint64_t timeout_ns, struct far_ps_rows *out,
			    struct far_err *err)
{
	if (!t || !partition || !out)
		return pst_fail(err, FAR_INVALID, 0, "the table, the partition or the place for rows is NULL");
	if (*partition >= FAR_PS_PARTITIONS)
		return pst_fail(err, FAR_INVALID, 0, "partition is %u; there are %d", *partition, FAR_PS_PARTITIONS);
	struct psv_buffer buffer = {0};
	const char *blocks = NULL;
	uint32_t parts = 0;
	enum far_status status = psv_scan(t, *partition, timeout_ns, &buffer, &blocks, &parts, err);
	struct psv_rows layout = psv_schema_rows(&t->schema);
	struct psv_block_rows block;
	const char *at = blocks, *end = buffer.len ? buffer.data + buffer.len : NULL;
	size_t n = 0;
	while (!status && psv_block_read(&layout, &at, end, &block))
		n += block.n;
	if (!status)
		status = rows_new(t, n, buffer.len, out, err);
	at = blocks;
	n = 0;
	while (!status && psv_block_read(&layout, &at, end, &block)) {
		put_block(t, &block, n, out);
		n += block.n;
	}
	free(buffer.data);
	if (!status)
		*partition += parts;
	return status;
}

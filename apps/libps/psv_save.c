/* SPDX-License-Identifier: BSD-3-Clause */
/** Saves the tables of a service to a directory, and loads them. The caller's thread, which blocks. */
#include "psv_file.h"

#include "pst_fail.h"
#include "psv_disk.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static enum far_status check_call(const struct far_ps *ps, const char *path, const struct far_ps_save_opts *o,
				  struct far_err *err)
{
	if (!ps || !path || !*path)
		return pst_fail(err, FAR_INVALID, 0, "the service or the directory is NULL or empty");
	for (unsigned i = 0; i < 4; i++)
		if (o->reserved[i])
			return pst_fail(err, FAR_INVALID, 0, "a reserved word of far_ps_save_opts is not 0");
	return FAR_OK;
}

/* Puts the directory in front of an error. */
static enum far_status in_directory(const char *path, enum far_status status, struct far_err *err)
{
	if (!status || !err)
		return status;
	struct far_err why = *err;
	snprintf(err->text, sizeof err->text, "%.100s: %.270s", path, why.text);
	return status;
}

/* ---- Saving ---- */

struct saving {
	struct far_ps *ps;
	int dir;
	uint64_t timeout_ns;
	uint32_t files_room;
	struct psv_manifest m;
	struct psv_buffer buffer;
	struct psv_packer packer;
	struct psv_disk *disk;
};

static enum far_status add_file(struct saving *s, const struct psv_saved_file *file, struct far_err *err)
{
	struct psv_manifest *m = &s->m;
	if (m->files_n == s->files_room) {
		uint32_t room = 2 * s->files_room + 16;
		struct psv_saved_file *more = realloc(m->file, room * sizeof *more);
		if (!more || room * sizeof *more > PSV_MANIFEST_MAX)
			return pst_fail(err, FAR_RESOURCE, 0, "no memory for a manifest of %u files", room);
		m->file = more;
		s->files_room = room;
	}
	m->file[m->files_n++] = *file;
	m->table[m->tables_n].files++;
	m->table[m->tables_n].rows += file->rows;
	return FAR_OK;
}

/* Packs the blocks that have rows. */
static enum far_status put_blocks(struct psv_packer *p, const struct psv_rows *layout, const char *at, const char *end,
				  uint64_t *rows, struct far_err *err)
{
	struct psv_block_rows block;
	enum far_status status = FAR_OK;
	while (!status && at < end) {
		const char *from = at;
		if (!psv_block_read(layout, &at, end, &block))
			return pst_fail(err, FAR_PROTOCOL, 0, "a server sent malformed rows");
		if (block.n == 0)
			continue;
		status = psv_packer_put(p, from, (size_t)(at - from), err);
		*rows += block.n;
	}
	return status;
}

/* Hands the packed file over to the disk. */
static enum far_status put_file(struct saving *s, uint64_t rows, struct far_err *err)
{
	struct psv_packer *p = &s->packer;
	struct psv_saved_file file = {.bytes = p->out_n, .plain = p->bytes, .rows = rows, .crc = p->crc};
	char name[64], *bytes = p->out;
	psv_data_name(s->m.generation, s->m.tables_n, s->m.table[s->m.tables_n].files, name);
	enum far_status status = add_file(s, &file, err);
	if (status)
		return status;
	p->out = NULL;
	return psv_disk_put(s->disk, name, bytes, file.bytes, err);
}

/* Partitions from *partition on, until the file is full or all are done. */
static enum far_status save_file(struct saving *s, struct far_ps_table *t, uint32_t *partition, struct far_err *err)
{
	struct psv_rows layout = psv_schema_rows(&t->schema);
	uint64_t rows = 0;
	enum far_status status = psv_packer_begin(&s->packer, err);
	while (!status && *partition < FAR_PS_PARTITIONS && s->packer.bytes < PSV_FILE_BYTES) {
		const char *blocks;
		uint32_t n = 0;
		status = psv_scan(t, *partition, s->timeout_ns, &s->buffer, &blocks, &n, err);
		if (!status)
			status = put_blocks(&s->packer, &layout, blocks, s->buffer.data + s->buffer.len, &rows, err);
		*partition += n;
	}
	if (!status)
		status = psv_packer_end(&s->packer, err);
	return !status && rows ? put_file(s, rows, err) : status;
}

static enum far_status save_table(struct saving *s, const char *name, struct far_err *err)
{
	struct psv_saved_table *saved = &s->m.table[s->m.tables_n];
	struct far_ps_table *t;
	enum far_status status = far_ps_table_open(s->ps, name, s->timeout_ns, &t, err);
	if (status)
		return status;
	*saved = (struct psv_saved_table){0};
	strcpy(saved->name, name);
	psv_schema_encode(&t->schema, &saved->schema);
	for (uint32_t partition = 0; !status && partition < FAR_PS_PARTITIONS;)
		status = save_file(s, t, &partition, err);
	far_ps_table_free(t);
	s->m.tables_n++;
	return status;
}

static enum far_status save_all(struct saving *s, struct far_err *err)
{
	static const char changed[] = "the view of the service has changed while its tables were saved";
	char(*names)[FAR_PS_NAME_MAX] = calloc(FAR_PS_TABLES_MAX, sizeof *names);
	size_t n = 0;
	if (!names)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for the names of tables");
	enum far_status status = far_ps_tables(s->ps, s->timeout_ns, names, &n, err);
	uint64_t epoch = far_ps_epoch(s->ps);
	for (size_t i = 0; i < n && !status; i++)
		status = save_table(s, names[i], err);
	if (!status && far_ps_epoch(s->ps) != epoch)
		status = pst_fail(err, FAR_GONE, 0, "%s", changed);
	if (!status)
		status = psv_disk_finish(s->disk, err);
	if (!status)
		status = psv_manifest_write(s->dir, &s->m, err);
	free(names);
	return status;
}

/* Removes the data files that the manifest does not name. */
static void clean(const struct saving *s)
{
	struct psv_manifest *now = malloc(sizeof *now);
	if (now && psv_manifest_read(s->dir, now, NULL) == FAR_OK) {
		psv_dir_clean(s->dir, now->generation, true);
		free(now->file);
	} else {
		psv_dir_clean(s->dir, s->m.generation, false);
	}
	free(now);
}

static void count(const struct psv_manifest *m, struct far_ps_saved *out)
{
	*out = (struct far_ps_saved){.tables = m->tables_n};
	for (uint32_t i = 0; i < m->tables_n; i++)
		out->rows += m->table[i].rows;
	for (uint32_t i = 0; i < m->files_n; i++)
		out->bytes += m->file[i].bytes;
}

enum far_status far_ps_save(struct far_ps *ps, const char *path, const struct far_ps_save_opts *opts,
			    struct far_ps_saved *saved, struct far_err *err)
{
	struct far_ps_save_opts o = opts ? *opts : (struct far_ps_save_opts){0};
	enum far_status status = check_call(ps, path, &o, err);
	if (status)
		return status;
	struct saving *s = calloc(1, sizeof *s);
	if (!s)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory to save tables");
	s->ps = ps;
	s->timeout_ns = o.timeout_ns;
	status = psv_dir_open(path, true, &s->dir, err);
	if (!status) {
		s->disk = psv_disk_open(s->dir);
		if (!s->disk)
			status = pst_fail(err, FAR_RESOURCE, 0, "no memory to save tables");
		else if (getrandom(&s->m.generation, sizeof s->m.generation, 0) != sizeof s->m.generation)
			status = pst_fail(err, FAR_SYSTEM, errno, "no random number: %s", strerror(errno));
		else
			status = save_all(s, err);
		psv_disk_close(s->disk);
		status = in_directory(path, status, err);
		clean(s);
		close(s->dir);
	}
	if (!status && saved)
		count(&s->m, saved);
	psv_packer_free(&s->packer);
	free(s->buffer.data);
	free(s->m.file);
	free(s);
	return status;
}

/* ---- Loading ---- */

struct loading {
	struct far_ps *ps;
	int dir;
	uint64_t timeout_ns;
	struct psv_manifest m;
	struct far_ps_table *table; /* of the present table */
	struct psv_rows layout;
	uint64_t refused;
	struct psv_buffer reply;
	/* Rows for one shard, up to `room` of them. */
	uint32_t n, room, partition; /* partition of the last one */
	uint64_t *keys;
	char *rows, *state, *request;
	uint64_t *ages;
	char *values; /* of tables of values: PSV_SLICE_BYTES and one value at most */
	size_t values_n;
};

static void batch_free(struct loading *l)
{
	free(l->keys);
	free(l->rows);
	free(l->state);
	free(l->ages);
	free(l->values);
	free(l->request);
	l->keys = l->ages = NULL;
	l->rows = l->state = l->values = l->request = NULL;
}

static enum far_status batch_new(struct loading *l, struct far_err *err)
{
	size_t one = psv_rows_bytes(&l->layout, 1), room = FAR_PS_CHUNK_BYTES / one;
	l->room = room < 1 ? 1 : room > PST_CHUNK_KEYS ? PST_CHUNK_KEYS : (uint32_t)room;
	l->n = 0;
	l->values_n = 0;
	l->keys = malloc(l->room * sizeof *l->keys);
	l->rows = malloc(l->room * l->layout.row);
	l->state = malloc(l->room * l->layout.state + 1);
	l->ages = malloc(l->room * sizeof *l->ages);
	size_t values = l->layout.value_max ? PSV_SLICE_BYTES + l->layout.value_max + 8 : 1;
	l->values = malloc(values);
	l->request = malloc(sizeof(struct psv_request) + psv_rows_bytes(&l->layout, l->room) + values);
	if (l->keys && l->rows && l->state && l->ages && l->values && l->request)
		return FAR_OK;
	batch_free(l);
	return pst_fail(err, FAR_RESOURCE, 0, "no memory for %u rows", l->room);
}

/* Sends the batch. */
static enum far_status flush(struct loading *l, struct far_err *err)
{
	struct psv_request q = {
		.magic = PSV_MAGIC, .kind = PSV_RESTORE, .service = l->ps->service, .table = l->table->id, .n = l->n};
	size_t state, ages, rows_bytes = psv_rows_bytes(&l->layout, l->n);
	size_t len = sizeof q + rows_bytes + (l->values_n + 7) / 8 * 8;
	if (l->n == 0)
		return FAR_OK;
	(void)psv_rows_layout(&l->layout, l->n, &state, &ages);
	memset(l->request, 0, len);
	memcpy(l->request, &q, sizeof q);
	char *keys = l->request + sizeof q, *rows = keys + l->n * sizeof *l->keys;
	memcpy(keys, l->keys, l->n * sizeof *l->keys);
	memcpy(rows, l->rows, l->n * l->layout.row);
	memcpy(rows + state, l->state, l->n * l->layout.state);
	memcpy(rows + ages, l->ages, l->n * l->layout.age);
	memcpy(l->request + sizeof q + rows_bytes, l->values, l->values_n);
	l->values_n = 0;
	const struct psv_call call = {(struct psv_request *)(void *)l->request, len, l->partition, true};
	enum far_status status = psv_call(l->ps, &call, l->timeout_ns, &l->reply, err);
	if (status)
		return status;
	if (l->reply.len != sizeof(struct psv_reply) + l->n)
		return pst_fail(err, FAR_PROTOCOL, 0, "a server sent a malformed reply of %zu bytes", l->reply.len);
	for (uint32_t i = 0; i < l->n; i++)
		l->refused += l->reply.data[sizeof(struct psv_reply) + i] == FAR_PS_REFUSED;
	l->n = 0;
	return FAR_OK;
}

static enum far_status put_block(struct loading *l, const struct psv_block_rows *b, struct far_err *err)
{
	const struct psv_view *view = atomic_load_explicit(&l->ps->view, memory_order_acquire);
	enum far_status status = FAR_OK;
	if (l->n && view->owner[l->partition] != view->owner[b->partition])
		status = flush(l, err);
	l->partition = b->partition;
	const char *value = b->values;
	for (uint32_t i = 0; i < b->n && !status; i++) {
		uint32_t len = value ? ((const uint32_t *)(const void *)b->rows)[i] : 0;
		if ((l->n == l->room || l->values_n > PSV_SLICE_BYTES) && (status = flush(l, err)))
			break;
		if (value) {
			memcpy(l->values + l->values_n, value, len);
			l->values_n += len;
			value += len;
		}
		l->keys[l->n] = b->keys[i];
		memcpy(l->rows + l->n * l->layout.row, b->rows + i * l->layout.row, l->layout.row);
		if (b->state)
			memcpy(l->state + l->n * l->layout.state, (const char *)b->state + i * l->layout.state,
			       l->layout.state);
		if (b->ages)
			l->ages[l->n] = b->ages[i];
		l->n++;
	}
	return status;
}

/* Reads and checks the files of a table; `restores`: sends their rows. */
static enum far_status walk_table(struct loading *l, uint32_t table, uint32_t first, bool restores, struct far_err *err)
{
	uint32_t partition = UINT32_MAX;
	enum far_status status = FAR_OK;
	for (uint32_t i = 0; i < l->m.table[table].files && !status; i++) {
		const struct psv_saved_file *file = &l->m.file[first + i];
		struct far_err why;
		char *bytes;
		status = psv_data_read(l->dir, &l->m, table, i, first + i, &bytes, err);
		if (status)
			break;
		status = psv_data_check(bytes, file, &l->layout, &partition, &why);
		if (status)
			status = pst_fail(err, status, 0, "file %u of table \"%s\": %.200s", i, l->m.table[table].name,
					  why.text);
		struct psv_block_rows block;
		for (const char *at = bytes, *end = bytes + file->plain; restores && !status && at < end;)
			if (psv_block_read(&l->layout, &at, end, &block))
				status = put_block(l, &block, err);
		free(bytes);
	}
	return status;
}

static enum far_status schema_of(struct loading *l, uint32_t table, struct far_ps_schema *schema, struct far_err *err)
{
	enum far_status status = psv_schema_decode(&l->m.table[table].schema, schema, err);
	l->layout = psv_schema_rows(schema);
	return status;
}

/* All files are whole. */
static enum far_status check_all(struct loading *l, struct far_err *err)
{
	enum far_status status = FAR_OK;
	uint32_t first = 0;
	for (uint32_t i = 0; i < l->m.tables_n && !status; first += l->m.table[i++].files) {
		struct far_ps_schema schema;
		status = schema_of(l, i, &schema, err);
		if (!status)
			status = walk_table(l, i, first, false, err);
	}
	return status;
}

/* Makes the table; it has no rows yet. */
static enum far_status make_empty(struct loading *l, uint32_t table, const struct far_ps_schema *schema,
				  struct far_ps_table **t, struct far_err *err)
{
	struct far_ps_stats stats;
	struct far_future *f;
	const char *name = l->m.table[table].name;
	enum far_status status = far_ps_table_create(l->ps, name, schema, l->timeout_ns, t, err);
	if (status)
		return status;
	status = far_ps_table_stats(*t, l->timeout_ns, &stats, &f, err);
	if (!status) {
		status = far_future_wait(f, FAR_FOREVER, NULL, err); /* ends by its own deadline */
		far_future_free(f);
	}
	if (!status && stats.rows)
		status = pst_fail(err, FAR_INVALID, 0, "table \"%s\" has %" PRIu64 " rows already: drop it first", name,
				  stats.rows);
	if (status) {
		far_ps_table_free(*t);
		*t = NULL;
	}
	return status;
}

static enum far_status restore_table(struct loading *l, uint32_t table, uint32_t first, struct far_err *err)
{
	struct far_ps_schema schema;
	enum far_status status = schema_of(l, table, &schema, err);
	if (!status)
		status = batch_new(l, err);
	if (status)
		return status;
	status = walk_table(l, table, first, true, err);
	if (!status)
		status = flush(l, err);
	batch_free(l);
	return status;
}

static enum far_status restore_all(struct loading *l, struct far_err *err)
{
	struct far_ps_table *table[FAR_PS_TABLES_MAX] = {NULL};
	struct far_ps_schema schema;
	enum far_status status = FAR_OK;
	for (uint32_t i = 0; i < l->m.tables_n && !status; i++) {
		status = schema_of(l, i, &schema, err);
		if (!status)
			status = make_empty(l, i, &schema, &table[i], err);
	}
	uint32_t first = 0;
	for (uint32_t i = 0; i < l->m.tables_n && !status; first += l->m.table[i++].files) {
		l->table = table[i];
		status = restore_table(l, i, first, err);
	}
	for (uint32_t i = 0; i < l->m.tables_n; i++)
		far_ps_table_free(table[i]);
	return status;
}

enum far_status far_ps_load(struct far_ps *ps, const char *path, const struct far_ps_save_opts *opts,
			    struct far_ps_saved *loaded, struct far_err *err)
{
	struct far_ps_save_opts o = opts ? *opts : (struct far_ps_save_opts){0};
	enum far_status status = check_call(ps, path, &o, err);
	if (status)
		return status;
	struct loading *l = calloc(1, sizeof *l);
	if (!l)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory to load tables");
	l->ps = ps;
	l->timeout_ns = o.timeout_ns;
	status = psv_dir_open(path, false, &l->dir, err);
	if (!status) {
		status = psv_manifest_read(l->dir, &l->m, err);
		if (status == FAR_SYSTEM && err && err->code == ENOENT)
			(void)pst_fail(err, status, ENOENT, "no tables are saved there: it has no file manifest");
		if (!status)
			status = check_all(l, err);
		if (!status)
			status = restore_all(l, err);
		status = in_directory(path, status, err);
		close(l->dir);
	}
	if (!status && loaded) {
		count(&l->m, loaded);
		loaded->refused = l->refused;
	}
	free(l->reply.data);
	free(l->m.file);
	free(l);
	return status;
}

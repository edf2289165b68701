/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads and writes the files of saved tables. Any thread; these block. */
#include "psv_file.h"

#include "pst_fail.h"
#include "psv_disk.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Checks ---- */

static enum far_status bad_manifest(const char *what, struct far_err *err)
{
	return pst_fail(err, FAR_INVALID, 0, "the manifest %s", what);
}

static enum far_status check_head(const char *bytes, size_t len, struct psv_manifest_head *head, struct far_err *err)
{
	if (len < sizeof *head)
		return bad_manifest("is torn", err);
	memcpy(head, bytes, sizeof *head);
	if (memcmp(head->magic, PSV_FILE_MAGIC, PSV_FILE_MAGIC_BYTES))
		return bad_manifest("is none of saved tables", err);
	if (head->version != PSV_FILE_VERSION)
		return pst_fail(err, FAR_UNSUPPORTED, 0, "the manifest has version %u; this library reads version %u",
				head->version, PSV_FILE_VERSION);
	uint64_t crc; /* with the zeros behind it */
	if (head->bytes != len || len < sizeof *head + 8 || len % 8)
		return bad_manifest("is torn: it has another length than its head", err);
	memcpy(&crc, bytes + len - 8, sizeof crc);
	if (crc != psv_crc32c(0, bytes, len - 8))
		return bad_manifest("is damaged: its CRC32C differs", err);
	if (head->tables > FAR_PS_TABLES_MAX)
		return bad_manifest("has too many tables", err);
	return FAR_OK;
}

static enum far_status check_tables(const struct psv_manifest *m, uint64_t *files, struct far_err *err)
{
	for (uint32_t i = 0; i < m->tables_n; i++) {
		const struct psv_saved_table *t = &m->table[i];
		struct far_ps_schema schema;
		if (!psv_name_ok(t->name) || (i && strcmp(m->table[i - 1].name, t->name) >= 0))
			return bad_manifest("has a malformed name, or tables out of order", err);
		if (psv_schema_decode(&t->schema, &schema, err))
			return bad_manifest("has a malformed schema", err);
		*files += t->files;
	}
	return FAR_OK;
}

static enum far_status check_files(const struct psv_manifest *m, struct far_err *err)
{
	const struct psv_saved_file *f = m->file;
	for (uint32_t i = 0; i < m->tables_n; i++) {
		uint64_t rows = 0;
		for (uint32_t k = 0; k < m->table[i].files; k++, f++) {
			if (f->rows == 0 || f->rows > UINT64_MAX - rows)
				return bad_manifest("has a file with a malformed number of rows", err);
			rows += f->rows;
		}
		if (rows != m->table[i].rows)
			return bad_manifest("has a table with another number of rows than its files", err);
	}
	return FAR_OK;
}

enum far_status psv_manifest_parse(const void *bytes, size_t len, struct psv_manifest *m, struct far_err *err)
{
	struct psv_manifest_head head = {.version = 0};
	m->file = NULL;
	enum far_status status = check_head(bytes, len, &head, err);
	if (status)
		return status;
	size_t tables = head.tables * sizeof m->table[0], left = len - sizeof head - 8;
	uint64_t files = 0;
	if (left < tables)
		return bad_manifest("is too short for its tables", err);
	m->generation = head.generation;
	m->tables_n = head.tables;
	memcpy(m->table, (const char *)bytes + sizeof head, tables);
	status = check_tables(m, &files, err);
	if (status)
		return status;
	if (files > PSV_MANIFEST_MAX / sizeof *m->file || left - tables != files * sizeof *m->file)
		return bad_manifest("has another length than its files take", err);
	m->files_n = (uint32_t)files;
	m->file = malloc(files * sizeof *m->file + 1);
	if (!m->file)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for a manifest of %zu bytes", len);
	memcpy(m->file, (const char *)bytes + sizeof head + tables, files * sizeof *m->file);
	status = check_files(m, err);
	if (status) {
		free(m->file);
		m->file = NULL;
	}
	return status;
}

enum far_status psv_data_check(const char *plain, const struct psv_saved_file *file, const struct psv_rows *layout,
			       uint32_t *partition, struct far_err *err)
{
	const char *at = plain, *end = plain + file->plain;
	uint64_t rows = 0;
	while (at < end) {
		struct psv_block_rows block;
		if (!psv_block_read(layout, &at, end, &block) || block.n == 0 ||
		    (*partition != UINT32_MAX && block.partition < *partition))
			return pst_fail(err, FAR_INVALID, 0, "it has a malformed block behind %" PRIu64 " rows", rows);
		*partition = block.partition;
		rows += block.n;
	}
	if (rows != file->rows)
		return pst_fail(err, FAR_INVALID, 0, "it has %" PRIu64 " rows, not %" PRIu64, rows, file->rows);
	return FAR_OK;
}

/* ---- Directories ---- */

enum far_status psv_dir_open(const char *path, bool saves, int *fd, struct far_err *err)
{
	if (saves && mkdir(path, 0777) && errno != EEXIST)
		return psv_disk_failed("make the directory", path, err);
	*fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*fd < 0)
		return psv_disk_failed("open the directory", path, err);
	if (flock(*fd, (saves ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0)
		return FAR_OK;
	enum far_status status = errno == EWOULDBLOCK
					 ? pst_fail(err, FAR_BUSY, 0, "another one saves to or loads from %.200s", path)
					 : psv_disk_failed("lock the directory", path, err);
	close(*fd);
	return status;
}

void psv_data_name(uint64_t generation, uint32_t table, uint32_t file, char name[64])
{
	snprintf(name, 64, "%016" PRIx64 "-%02" PRIx32 "-%06" PRIx32 ".rows", generation, table, file);
}

/* Whether it is the name of a data file, or of one that is being written. */
static bool is_data_name(const char *name, uint64_t *generation)
{
	uint32_t table, file;
	char again[64];
	if (sscanf(name, "%16" SCNx64 "-%" SCNx32 "-%" SCNx32 ".rows", generation, &table, &file) != 3)
		return false;
	psv_data_name(*generation, table, file, again);
	size_t len = strlen(again);
	return strncmp(name, again, len) == 0 && (!name[len] || strcmp(name + len, PSV_DISK_SUFFIX) == 0);
}

void psv_dir_clean(int fd, uint64_t generation, bool others)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	uint64_t of;
	if (!dir) {
		if (copy >= 0)
			close(copy);
		return;
	}
	for (const struct dirent *entry; (entry = readdir(dir));)
		if (is_data_name(entry->d_name, &of) && (of == generation) != others)
			unlinkat(fd, entry->d_name, 0);
	closedir(dir);
}

/* ---- Reading ---- */

/* A whole file of at most `most` bytes. */
static enum far_status read_file(int dir, const char *name, uint64_t most, char **out, size_t *len, struct far_err *err)
{
	struct stat st;
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is refused below */
	if (fd < 0)
		return psv_disk_failed("open", name, err);
	enum far_status status = fstat(fd, &st) ? psv_disk_failed("read", name, err) : FAR_OK;
	*len = 0;
	*out = NULL;
	if (!status && !S_ISREG(st.st_mode))
		status = pst_fail(err, FAR_INVALID, 0, "%s is no regular file", name);
	if (!status && (uint64_t)st.st_size > most)
		status = pst_fail(err, FAR_INVALID, 0, "%s has %lld bytes; at most %" PRIu64 " are possible", name,
				  (long long)st.st_size, most);
	if (!status && !(*out = malloc((size_t)st.st_size + 1)))
		status = pst_fail(err, FAR_RESOURCE, 0, "no memory for %s of %lld bytes", name, (long long)st.st_size);
	while (!status && *len < (size_t)st.st_size) {
		ssize_t n = read(fd, *out + *len, (size_t)st.st_size - *len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			status = psv_disk_failed("read", name, err);
		if (n <= 0)
			break;
		*len += (size_t)n;
	}
	close(fd);
	if (status) {
		free(*out);
		*out = NULL;
	}
	return status;
}

enum far_status psv_manifest_read(int dir, struct psv_manifest *m, struct far_err *err)
{
	char *bytes;
	size_t len;
	m->file = NULL;
	enum far_status status = read_file(dir, PSV_MANIFEST, PSV_MANIFEST_MAX, &bytes, &len, err);
	if (status)
		return status;
	status = psv_manifest_parse(bytes, len, m, err);
	free(bytes);
	return status;
}

enum far_status psv_data_read(int dir, const struct psv_manifest *m, uint32_t table, uint32_t file, uint32_t index,
			      char **plain, struct far_err *err)
{
	const struct psv_saved_file *saved = &m->file[index];
	struct far_err why;
	char name[64], *bytes;
	size_t len;
	psv_data_name(m->generation, table, file, name);
	enum far_status status = read_file(dir, name, saved->bytes, &bytes, &len, err);
	if (status)
		return status;
	if (len != saved->bytes) {
		status = pst_fail(err, FAR_INVALID, 0, "%s is torn: it has %zu bytes, not %" PRIu64, name, len,
				  saved->bytes);
	} else {
		status = psv_unpack(bytes, len, saved->crc, saved->plain, plain, &why);
		if (status)
			status = pst_fail(err, status, 0, "%s: %.200s", name, why.text);
	}
	free(bytes);
	return status;
}

/* ---- Writing ---- */

static char *encode(const struct psv_manifest *m, size_t *len)
{
	struct psv_manifest_head head = {
		.version = PSV_FILE_VERSION, .tables = m->tables_n, .generation = m->generation};
	size_t tables = m->tables_n * sizeof m->table[0], files = m->files_n * sizeof *m->file;
	*len = sizeof head + tables + files + 8;
	char *bytes = calloc(1, *len);
	if (!bytes)
		return NULL;
	memcpy(head.magic, PSV_FILE_MAGIC, PSV_FILE_MAGIC_BYTES);
	head.bytes = *len;
	memcpy(bytes, &head, sizeof head);
	memcpy(bytes + sizeof head, m->table, tables);
	if (files)
		memcpy(bytes + sizeof head + tables, m->file, files);
	uint32_t crc = psv_crc32c(0, bytes, *len - 8);
	memcpy(bytes + *len - 8, &crc, sizeof crc);
	return bytes;
}

enum far_status psv_manifest_write(int dir, const struct psv_manifest *m, struct far_err *err)
{
	size_t len;
	char *bytes = encode(m, &len);
	if (!bytes)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for a manifest");
	/* The data files' names first: a manifest never names a file that a crash could take back. */
	enum far_status status = fsync(dir) ? psv_disk_failed("write", "the directory", err) : FAR_OK;
	if (!status)
		status = psv_disk_write(dir, PSV_MANIFEST, bytes, len, err);
	if (!status && fsync(dir))
		status = psv_disk_failed("write", "the directory", err);
	free(bytes);
	return status;
}

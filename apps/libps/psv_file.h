/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Saved tables on disk. Any thread; all but the checks of memory block.
 *
 * A directory has one file "manifest" and data files "GENERATION-TABLE-FILE.rows", in hexadecimal. A data file is a
 * sequence of blocks (psv_wire.h) in the order of their partitions; partitions without rows have none. The manifest,
 * little-endian: struct psv_manifest_head; of each table struct psv_saved_table; of each file of each table, in this
 * order, struct psv_saved_file; CRC32C of all that (u32); 0 (u32). It is renamed to its name when all else is on disk:
 * data files of other generations are none of the saved state, and are removed then.
 */
#ifndef PSV_FILE_H
#define PSV_FILE_H

#include "psv_block.h"

#define PSV_MANIFEST         "manifest"
#define PSV_MANIFEST_NEW     "manifest.new"
#define PSV_FILE_VERSION     2u
#define PSV_FILE_BYTES       ((uint64_t)64 << 20) /* of a data file, after which the next one begins */
#define PSV_MANIFEST_MAX     ((size_t)16 << 20)
#define PSV_FILE_MAGIC       "FARPSSAV"
#define PSV_FILE_MAGIC_BYTES 8u

struct psv_manifest_head {
	char magic[PSV_FILE_MAGIC_BYTES];
	uint32_t version, tables;
	uint64_t generation;
	uint64_t bytes; /* of the manifest */
};

struct psv_saved_table {
	char name[PSV_NAME_BYTES];
	struct psv_schema schema;
	uint64_t rows;
	uint32_t files, zero;
};

struct psv_saved_file {
	uint64_t bytes, rows;
	uint32_t crc, zero;
};

static_assert(sizeof(struct psv_manifest_head) == 32 && sizeof(struct psv_saved_table) == 256 &&
		      sizeof(struct psv_saved_file) == 24,
	      "layout of files");

struct psv_manifest {
	uint64_t generation;
	uint32_t tables_n, files_n;
	struct psv_saved_table table[FAR_PS_TABLES_MAX];
	struct psv_saved_file *file; /* [files_n], of the tables in turn */
};

/** Checks bytes of a manifest; `m->file` is free()d by the caller. INVALID: torn, damaged or malformed; UNSUPPORTED:
 * another version; RESOURCE. */
enum far_status psv_manifest_parse(const void *bytes, size_t len, struct psv_manifest *m, struct far_err *err);

/** Checks the bytes of a data file, aligned to 8; its blocks are behind `*partition`, which goes on to the last one
 * (UINT32_MAX: none yet). INVALID. */
enum far_status psv_data_check(const char *bytes, const struct psv_saved_file *file, const struct psv_rows *layout,
			       uint32_t *partition, struct far_err *err);

uint32_t psv_crc32c(uint32_t crc, const void *data, size_t len);

/** Opens the directory and locks it, for one that saves or many that load. `*fd` is the caller's. A saver makes it if
 * it is missing. BUSY: another one saves or loads; SYSTEM. */
enum far_status psv_dir_open(const char *path, bool saves, int *fd, struct far_err *err);
/** Removes the data files of the generation, or (`others`) of all others. */
void psv_dir_clean(int dir, uint64_t generation, bool others);

/** Reads and checks. `bytes` is free()d by the caller. */
enum far_status psv_manifest_read(int dir, struct psv_manifest *m, struct far_err *err);
enum far_status psv_data_read(int dir, const struct psv_manifest *m, uint32_t table, uint32_t file, uint32_t index,
			      char **bytes, struct far_err *err);

/** Makes a data file; then blocks are written; its end makes it durable and notes its size and CRC. */
struct psv_writer {
	int dir, fd;
	char name[64];
	struct psv_saved_file saved;
};
enum far_status psv_writer_begin(struct psv_writer *w, int dir, uint64_t generation, uint32_t table, uint32_t file,
				 struct far_err *err);
enum far_status psv_writer_put(struct psv_writer *w, const void *data, size_t len, struct far_err *err);
/** Closes the file in any case. `status` is that of what went before, which the result has unless it is OK. */
enum far_status psv_writer_end(struct psv_writer *w, enum far_status status, struct far_err *err);

/** Writes the manifest and puts it in the place of the old one. */
enum far_status psv_manifest_write(int dir, const struct psv_manifest *m, struct far_err *err);

#endif

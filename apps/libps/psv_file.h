/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Saved tables on disk. Any thread; all but the checks of memory block.
 *
 * A directory has one file "manifest" and data files "GENERATION-TABLE-FILE.rows", in hexadecimal. A data file has
 * frames (psv_frame.h); unpacked it is a sequence of blocks (psv_wire.h) in the order of their partitions. Partitions
 * without rows have none. A file has one partition, or as many as make a MiB. The manifest, little-endian: struct
 * psv_manifest_head; of each table struct psv_saved_table; of each file of each table, in this order, struct
 * psv_saved_file; CRC32C of all that (u32); 0 (u32). It is renamed to its name when all else is on disk: data files of
 * other generations are none of the saved state, and are removed then. Files that are being written end in ".new".
 */
#ifndef PSV_FILE_H
#define PSV_FILE_H

#include "psv_block.h"
#include "psv_frame.h"

#define PSV_MANIFEST         "manifest"
#define PSV_FILE_VERSION     3u
#define PSV_FILE_BYTES       ((uint64_t)1 << 20) /* of a data file unpacked, after which the next one begins */
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
	uint64_t bytes, plain, rows; /* on disk, unpacked */
	uint32_t crc, zero;          /* of the frames' heads */
};

static_assert(sizeof(struct psv_manifest_head) == 32 && sizeof(struct psv_saved_table) == 256 &&
		      sizeof(struct psv_saved_file) == 32,
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

/** Checks the bytes of a data file, unpacked and aligned to 8; its blocks are behind `*partition`, which goes on to the
 * last one (UINT32_MAX: none yet). INVALID. */
enum far_status psv_data_check(const char *plain, const struct psv_saved_file *file, const struct psv_rows *layout,
			       uint32_t *partition, struct far_err *err);

/** Opens the directory and locks it, for one that saves or many that load. `*fd` is the caller's. A saver makes it if
 * it is missing. BUSY: another one saves or loads; SYSTEM. */
enum far_status psv_dir_open(const char *path, bool saves, int *fd, struct far_err *err);
/** Removes the data files of the generation, or (`others`) of all others. */
void psv_dir_clean(int dir, uint64_t generation, bool others);

/** Reads and checks. `*plain` is free()d by the caller. */
enum far_status psv_manifest_read(int dir, struct psv_manifest *m, struct far_err *err);
enum far_status psv_data_read(int dir, const struct psv_manifest *m, uint32_t table, uint32_t file, uint32_t index,
			      char **plain, struct far_err *err);

/** The name of a data file. */
void psv_data_name(uint64_t generation, uint32_t table, uint32_t file, char name[64]);

/** Writes the manifest and puts it in the place of the old one; the data files are on disk. */
enum far_status psv_manifest_write(int dir, const struct psv_manifest *m, struct far_err *err);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Writes files durably: each to a temporary name, then fsync, then rename. Some files are on their way at a time by
 * io_uring; where the kernel has none or forbids it, they are written one after the other. One thread, which blocks.
 */
#ifndef PSV_DISK_H
#define PSV_DISK_H

#include <farcall/status.h>
#include <stdbool.h>
#include <stddef.h>

#define PSV_DISK_SUFFIX ".new" /* of temporary names */

struct psv_disk;

/** `dir` is the caller's, and open until psv_disk_close(). NULL: no memory. */
struct psv_disk *psv_disk_open(int dir);

/** True: by io_uring. */
bool psv_disk_async(const struct psv_disk *disk);

/** Begins to write a file. `bytes`, of malloc(), belong to the disk in any case. An error may be that of an earlier
 * file, by its name. RESOURCE: the disk is full, or no memory; SYSTEM. */
enum far_status psv_disk_put(struct psv_disk *disk, const char *name, char *bytes, size_t len, struct far_err *err);

/** Waits until all files are durable under their names. */
enum far_status psv_disk_finish(struct psv_disk *disk, struct far_err *err);

/** Waits for what is being written. Temporary files of failed ones stay. NULL: nothing. */
void psv_disk_close(struct psv_disk *disk);

/** Writes one file. */
enum far_status psv_disk_write(int dir, const char *name, const char *bytes, size_t len, struct far_err *err);

/** The error of a failed system call, by errno. */
enum far_status psv_disk_failed(const char *what, const char *name, struct far_err *err);

#endif

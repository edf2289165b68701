/* SPDX-License-Identifier: BSD-3-Clause */
/** The format of a store's file, a log of changes; store_file.c has its layout. Control thread; no state. */
#ifndef FAR_CONTROL_STORE_LOG_H
#define FAR_CONTROL_STORE_LOG_H

#include "control/store_table.h"

#define FILE_MAGIC        "FCSFILE1"
#define FILE_HEAD_BYTES   16
#define RECORD_HEAD_BYTES 20
#define RECORD_BYTES_MAX  (RECORD_HEAD_BYTES + FAR_STORE_KEY_MAX + FAR_STORE_VALUE_MAX)

/** Writes a record; returns its bytes. */
size_t record_encode(const struct record *r, uint8_t out[RECORD_BYTES_MAX]);
/** Replays the records of `fd` from t->at on, up to the first that is incomplete. 0 or -errno. */
int records_replay(int fd, struct store_table *t);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/** A strict reader of the libsvm text format: "label index:value index:value …", one row per line. */
#ifndef PSERVER_LIBSVM_H
#define PSERVER_LIBSVM_H

#include "dataset.h"

#define LIBSVM_TEXT_MAX   384
#define LIBSVM_LINE_MAX   ((size_t)16 << 20) /* bytes of a line */
#define LIBSVM_INDEX_MAX  UINT32_MAX
#define LIBSVM_LABEL_TEXT "+1, 1, -1 or 0"

/**
 * Reads `path` and appends the rows r with r mod `parts` == `part` to `d` (initialised by the caller, freed by it too,
 * after a failure as well). All lines are checked, also those left out; `*rows_total` counts them. Labels are +1, 1,
 * -1, 0 (-1 and 0 are the negative class), indices positive and strictly ascending, values finite decimal numbers.
 * 0 or -errno with a text that names file, line and fault.
 */
int libsvm_read(const char *path, size_t part, size_t parts, struct dataset *d, size_t *rows_total,
		char text[LIBSVM_TEXT_MAX]);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Reads the input as a file of labelled rows. The first byte chooses the format. A fault is named with the file; what
 * reads well is sound, and two parts of it are the whole. Main thread.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: as fuzz_values.c.
 */
#include "apps/pserver/rows.h"
#include "base/must.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char file[32];
static enum rows_format format;

/* Returns the rows; SIZE_MAX: a fault. */
static size_t read_part(size_t part, size_t parts, struct dataset *d)
{
	size_t total = SIZE_MAX;
	char text[ROWS_TEXT_MAX] = "";
	dataset_init(d);
	int rc = rows_read(file, format, part, parts, d, &total, text);
	must(rc <= 0 && (rc == 0) == (text[0] == '\0') && (rc == 0) == (total != SIZE_MAX));
	must(rc == 0 || strncmp(text, file, strlen(file)) == 0);
	return total;
}

static void check(const struct dataset *d)
{
	for (size_t r = 0; r < d->rows; r++)
		must(d->label[r] <= 1 && d->start[r] <= d->start[r + 1]);
	must(d->rows == 0 || d->start[d->rows] == d->entries);
	for (size_t e = 0; e < d->entries; e++)
		must(d->column[e] < d->columns && isfinite(d->value[e]));
	for (size_t c = 0; c < d->columns; c++)
		must(d->key[c] <= ROWS_KEY_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct dataset whole, part[2];
	if (size == 0)
		return 0;
	if (fd < 0) {
		fd = memfd_create("fuzz_rows", 0);
		snprintf(file, sizeof file, "/proc/self/fd/%d", fd);
	}
	must(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data + 1, size - 1, 0) == (ssize_t)size - 1);
	format = (enum rows_format)(ROWS_LIBSVM + data[0] % 3);
	size_t rows = read_part(0, 1, &whole);
	must(rows == SIZE_MAX || (rows > 0 && rows == whole.rows));
	check(&whole);
	for (size_t i = 0; i < 2; i++) {
		must(read_part(i, 2, &part[i]) == rows);
		check(&part[i]);
	}
	must(rows == SIZE_MAX ||
	     (part[0].rows + part[1].rows == whole.rows && part[0].entries + part[1].entries == whole.entries));
	for (int i = 0; i < 2; i++)
		dataset_free(&part[i]);
	dataset_free(&whole);
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#include "apps/pserver/libsvm.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];
static char text[LIBSVM_TEXT_MAX];
static struct dataset d;
static size_t total;

static void setup(void)
{
	strcpy(path, "/tmp/farcall-libsvm-XXXXXX");
	int fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	close(fd);
	dataset_init(&d);
	text[0] = '\0';
}

static void teardown(void)
{
	dataset_free(&d);
	unlink(path);
}

TestSuite(libsvm, .init = setup, .fini = teardown);

static int read_bytes(const char *bytes, size_t n, size_t part, size_t parts)
{
	FILE *f = fopen(path, "w");
	cr_assert_not_null(f);
	cr_assert_eq(fwrite(bytes, 1, n, f), n);
	fclose(f);
	return libsvm_read(path, part, parts, &d, &total, text);
}

static int read_text(const char *bytes)
{
	return read_bytes(bytes, strlen(bytes), 0, 1);
}

static void refuses(const char *bytes, const char *line, const char *what)
{
	cr_assert_neq(read_text(bytes), 0, "accepted: %s", bytes);
	char place[96];
	snprintf(place, sizeof place, "%s:%s: ", path, line);
	cr_assert_eq(strncmp(text, place, strlen(place)), 0, "\"%s\" does not begin with %s", text, place);
	cr_assert_not_null(strstr(text, what), "\"%s\" does not say %s", text, what);
	dataset_free(&d);
}

Test(libsvm, reads_rows)
{
	cr_assert_eq(read_text("+1 3:1 11:0.5 \n-1\n1 3:-2e-1\r\n0 4:7\t5:1"), 0, "%s", text);
	cr_assert_eq(total, 4);
	cr_assert_eq(d.rows, 4);
	uint8_t labels[] = {1, 0, 1, 0};
	size_t starts[] = {0, 2, 2, 3, 5};
	for (int i = 0; i < 4; i++)
		cr_assert_eq(d.label[i], labels[i]);
	for (int i = 0; i < 5; i++)
		cr_assert_eq(d.start[i], starts[i]);
	cr_assert_eq(d.columns, 4);
	cr_assert_eq(d.key[d.column[0]], 3);
	cr_assert_eq(d.column[2], d.column[0]);
	cr_assert_float_eq(d.value[1], 0.5f, 0.0f);
	cr_assert_float_eq(d.value[2], -0.2f, 1e-9f);
}

Test(libsvm, keeps_a_part_but_checks_all)
{
	const char rows[] = "1 1:1\n0 2:1\n1 3:1\n0 4:1\n1 5:1\n";
	cr_assert_eq(read_bytes(rows, sizeof rows - 1, 1, 3), 0);
	cr_assert_eq(total, 5);
	cr_assert_eq(d.rows, 2);
	cr_assert_eq(d.key[0], 2);
	cr_assert_eq(d.key[1], 5);
	const char bad[] = "1 1:1\n0 2:x\n";
	cr_assert_neq(read_bytes(bad, sizeof bad - 1, 0, 2), 0);
}

Test(libsvm, names_the_line_and_the_fault)
{
	refuses("1 1:1\n\n1 2:1\n", "2", "empty");
	refuses("2 1:1\n", "1", "label");
	refuses("1:1 2:1\n", "1", "label");
	refuses("1 1:1\n1 2\n", "2", "index:value");
	refuses("1 0:1\n", "1", "positive");
	refuses("1 -3:1\n", "1", "positive");
	refuses("1 4294967296:1\n", "1", "positive");
	refuses("1 99999999999999999999:1\n", "1", "positive");
	refuses("1 2:1 2:1\n", "1", "ascend");
	refuses("0 1:1\n1 5:1 4:1\n", "2", "ascend");
	refuses("1 1:\n", "1", "finite");
	refuses("1 1:nan\n", "1", "finite");
	refuses("1 1:inf\n", "1", "finite");
	refuses("1 1:1e999\n", "1", "finite");
	refuses("1 1:1e39\n", "1", "finite");
	refuses("1 1:0x10\n", "1", "finite");
	refuses("1 1:1x\n", "1", "finite");
	refuses("1 qid:3 1:1\n", "1", "positive");
	refuses("1 1:1 # note\n", "1", "index:value");
}

Test(libsvm, refuses_binary)
{
	cr_assert_neq(read_bytes("1 1:1\n1 \0 2:1\n", 14, 0, 1), 0);
	cr_assert_not_null(strstr(text, ":2: "));
	cr_assert_not_null(strstr(text, "zero byte"));
}

Test(libsvm, names_a_file_that_is_empty_or_absent)
{
	cr_assert_neq(read_text(""), 0);
	cr_assert_not_null(strstr(text, "empty"));
	cr_assert_neq(libsvm_read("/nonexistent/file", 0, 1, &d, &total, text), 0);
	cr_assert_not_null(strstr(text, "/nonexistent/file"));
	cr_assert_not_null(strstr(text, "cannot open"));
	cr_assert_neq(libsvm_read("/tmp", 0, 1, &d, &total, text), 0);
	cr_assert_not_null(strstr(text, "cannot read"));
}

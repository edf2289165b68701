/* SPDX-License-Identifier: BSD-3-Clause */
/** Files of rows: libsvm, Criteo, CSV, and their mistakes. The test's thread. */
#include "apps/pserver/rows.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];
static char text[ROWS_TEXT_MAX];
static struct dataset d;
static size_t total;
static enum rows_format format = ROWS_LIBSVM;

static void setup(void)
{
	strcpy(path, "/tmp/farcall-rows-XXXXXX");
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

TestSuite(rows, .init = setup, .fini = teardown);

static int read_bytes(const char *bytes, size_t n, size_t part, size_t parts)
{
	FILE *f = fopen(path, "w");
	cr_assert_not_null(f);
	cr_assert_eq(fwrite(bytes, 1, n, f), n);
	fclose(f);
	return rows_read(path, format, part, parts, &d, &total, text);
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

Test(rows, reads_rows)
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

Test(rows, keeps_a_part_but_checks_all)
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

Test(rows, names_the_line_and_the_fault)
{
	refuses("2 1:1\n", "1", "label");
	refuses("1:1 2:1\n", "1", "label");
	refuses("1 1:1\n1 2\n", "2", "index:value");
	refuses("1 -3:1\n", "1", "integer");
	refuses("1 :1\n", "1", "integer");
	refuses("1 18446744073709551615:1\n", "1", "integer");
	refuses("1 99999999999999999999:1\n", "1", "integer");
	refuses("1 2:1 2:1\n", "1", "the feature 2 comes twice");
	refuses("0 1:1\n\n1 5:1 4:1 5:2\n", "3", "the feature 5 comes twice");
	refuses("1 1:\n", "1", "finite");
	refuses("1 1:nan\n", "1", "finite");
	refuses("1 1:inf\n", "1", "finite");
	refuses("1 1:1e999\n", "1", "finite");
	refuses("1 1:1e39\n", "1", "range of a float");
	refuses("1 1:0x10\n", "1", "finite");
	refuses("1 1:1x\n", "1", "finite");
	refuses("1 qid:3 1:1\n", "1", "integer");
	refuses("1 1:1 note\n", "1", "index:value");
}

Test(rows, refuses_binary)
{
	cr_assert_neq(read_bytes("1 1:1\n1 \0 2:1\n", 14, 0, 1), 0);
	cr_assert_not_null(strstr(text, ":2: "));
	cr_assert_not_null(strstr(text, "zero byte"));
}

Test(rows, names_a_file_that_is_empty_or_absent)
{
	cr_assert_neq(read_text(""), 0);
	cr_assert_not_null(strstr(text, "has no rows"));
	cr_assert_neq(rows_read("/nonexistent/file", ROWS_AUTO, 0, 1, &d, &total, text), 0);
	cr_assert_not_null(strstr(text, "/nonexistent/file"));
	cr_assert_not_null(strstr(text, "cannot open"));
	cr_assert_neq(rows_read("/tmp", ROWS_AUTO, 0, 1, &d, &total, text), 0);
	cr_assert_not_null(strstr(text, "cannot read"));
}

/* ---- libsvm: what other tools write ---- */

static void entry(size_t i, uint64_t key, float value)
{
	cr_assert(i < d.entries && d.key[d.column[i]] == key && d.value[i] == value,
		  "entry %zu: key %llu, value %g; not %llu, %g", i, (unsigned long long)d.key[d.column[i]],
		  (double)d.value[i], (unsigned long long)key, (double)value);
}

Test(rows, comments_and_lines_without_anything_are_no_rows)
{
	cr_assert_eq(read_text("# a comment\n1 1:1 # note\n\n  \t\r\n0 2:1#3:1\n"), 0, "%s", text);
	cr_assert_eq(total, 2);
	cr_assert_eq(d.entries, 2);
	entry(0, 1, 1);
	entry(1, 2, 1);
	cr_assert_neq(read_text("# nothing\n\n"), 0);
	cr_assert_not_null(strstr(text, "has no rows"));
}

Test(rows, indices_begin_at_0_come_in_any_order_and_have_64_bits)
{
	cr_assert_eq(read_text("1 18446744073709551614:3 0:1 7:2\n"), 0, "%s", text);
	cr_assert_eq(d.entries, 3);
	entry(0, 0, 1);
	entry(1, 7, 2);
	entry(2, ROWS_KEY_MAX, 3);
}

Test(rows, a_part_counts_rows_not_lines)
{
	const char rows[] = "#\n1 1:1\n\n0 2:1\n#\n1 3:1\n";
	cr_assert_eq(read_bytes(rows, sizeof rows - 1, 1, 2), 0);
	cr_assert_eq(total, 3);
	cr_assert_eq(d.rows, 1);
	entry(0, 2, 1);
}

/* ---- Criteo ---- */

static char line[1024];

/* A row with two numbers, and two categories. */
static const char *criteo(const char *label, const char *number, const char *category)
{
	int n = snprintf(line, sizeof line, "%s\t%s\t-1", label, number);
	for (int i = 2; i < 13; i++)
		n += snprintf(line + n, sizeof line - (size_t)n, "\t");
	n += snprintf(line + n, sizeof line - (size_t)n, "\t%s\t\tffFFffff", category);
	for (int i = 3; i < 26; i++)
		n += snprintf(line + n, sizeof line - (size_t)n, "\t");
	snprintf(line + n, sizeof line - (size_t)n, "\n");
	return line;
}

Test(rows, criteo)
{
	format = ROWS_CRITEO;
	cr_assert_eq(read_text(criteo("1", "3", "68fd1e64")), 0, "%s", text);
	cr_assert_eq(d.rows, 1);
	cr_assert_eq(d.label[0], 1);
	cr_assert_eq(d.entries, 4);
	entry(0, UINT64_C(1) << 32, 1.38629436f); /* log(4) */
	entry(1, UINT64_C(2) << 32, 0);
	entry(2, UINT64_C(14) << 32 | 0x68fd1e64, 1);
	entry(3, UINT64_C(16) << 32 | 0xffffffff, 1);
}

Test(rows, criteo_refuses)
{
	format = ROWS_CRITEO;
	refuses(criteo("2", "3", "0"), "1", "label");
	refuses(criteo("", "3", "0"), "1", "label");
	refuses(criteo("1", "x", "0"), "1", "\"x\" in field 2 is not a number");
	refuses(criteo("1", "1", "g0"), "1", "\"g0\" in field 15 is not a hexadecimal");
	refuses(criteo("1", "1", "123456789"), "1", "in field 15 is not a hexadecimal");
	refuses(criteo("1", "1", "0\t0"), "1", "more than 40 fields");
	refuses("1\t2\t3\n", "1", "3 fields, not 40");
	refuses("1 1:1\n", "1", "label");
}

/* ---- CSV ---- */

Test(rows, csv_without_a_header)
{
	format = ROWS_CSV;
	cr_assert_eq(read_text("1,2.5,,red\r\n-1,0,\"\",\"red\"\n\n0,1,2,\"a \"\"b\"\", c\"\n"), 0, "%s", text);
	cr_assert_eq(total, 3);
	cr_assert_eq(d.label[0], 1);
	cr_assert_eq(d.label[1], 0);
	cr_assert_eq(d.entries, 7);
	entry(0, 1, 2.5f);
	entry(2, 1, 0);
	cr_assert_eq(d.column[1], d.column[3], "the same text in the same field");
	cr_assert_gt(d.key[d.column[1]], ROWS_COLUMNS_MAX);
	entry(5, 2, 2);
	cr_assert_neq(d.column[6], d.column[3]);
	cr_assert_eq(d.value[6], 1.0f);
}

Test(rows, csv_with_a_header)
{
	format = ROWS_CSV;
	cr_assert_eq(read_text("color,label,size\nred,1,7\n\"red\",0,\n"), 0, "%s", text);
	cr_assert_eq(total, 2);
	cr_assert_eq(d.label[0], 1);
	cr_assert_eq(d.label[1], 0);
	cr_assert_eq(d.entries, 3);
	entry(1, 2, 7);
	cr_assert_eq(d.column[0], d.column[2]);
	dataset_free(&d);
	cr_assert_eq(read_text("click,size\n1,7\n"), 0, "%s", text);
	entry(0, 1, 7);
}

Test(rows, csv_the_same_text_in_another_field_is_another_feature)
{
	format = ROWS_CSV;
	cr_assert_eq(read_text("1,red,red\n"), 0, "%s", text);
	cr_assert_eq(d.columns, 2);
}

Test(rows, csv_refuses)
{
	format = ROWS_CSV;
	refuses("1,2\n1,2,3\n", "2", "3 fields, the first one has 2");
	refuses("1,2\n1\n", "2", "1 fields, the first one has 2");
	refuses("1,2\n5,2\n", "2", "label \"5\"");
	refuses("1,2\n1,\"x\n", "2", "does not end in its line");
	refuses("1,2\n1,\"x\"y\n", "2", "text follows the end of a quoted field");
	refuses("1,\"x\n", "1", "does not end in its line");
	refuses("1,1e39\n", "1", "range of a float");
	cr_assert_neq(read_text("label,size\n"), 0);
	cr_assert_not_null(strstr(text, "has no rows"));
}

Test(rows, the_name_of_a_file_chooses_the_format)
{
	static const char *const ends[] = {".csv", ".tsv", ".txt", ""};
	static const char *const texts[] = {"1,2", NULL, "1 5:2", "1 5:2"};
	for (int i = 0; i < 4; i++) {
		char named[80];
		snprintf(named, sizeof named, "%s%s", path, ends[i]);
		FILE *f = fopen(named, "w");
		cr_assert_not_null(f);
		fputs(texts[i] ? texts[i] : criteo("1", "3", "0"), f);
		fclose(f);
		int rc = rows_read(named, ROWS_AUTO, 0, 1, &d, &total, text);
		unlink(named);
		cr_assert_eq(rc, 0, "%s", text);
		cr_assert_eq(d.key[0], i == 0 ? 1 : i == 1 ? UINT64_C(1) << 32 : 5);
		dataset_free(&d);
	}
}

Test(rows, ratings)
{
	format = ROWS_RATINGS;
	cr_assert_eq(read_text("userId,movieId,rating,timestamp\n7,7,3.5,978\n# "
			       "nothing\n0::9223372036854775806::-1::5\n7\t2\t4\n"),
		     0, "%s", text);
	cr_assert_eq(total, 3);
	cr_assert_eq(d.columns, 5);
	entry(0, 14, 1);
	entry(1, 15, 1);
	entry(3, UINT64_MAX - 2, 1);
	entry(4, 14, 1);
	cr_assert_eq(d.target[0], 3.5f);
	cr_assert_eq(d.target[1], -1.0f);
	cr_assert_eq(d.target[2], 4.0f);
}

Test(rows, ratings_refuses)
{
	format = ROWS_RATINGS;
	refuses("1 2 3\n4 5\n", "2", "no user, item and rating");
	refuses("1 2 3\n4 5 good\n", "2", "rating \"good\"");
	refuses("1 2 1e39\n1 2 1e39\n", "2", "rating \"1e39\"");
	refuses("1 2 3\nanna 2 3\n", "2", "user \"anna\"");
	refuses("1 9223372036854775807 3\n", "1", "item \"9223372036854775807\"");
}

Test(rows, text)
{
	format = ROWS_TEXT;
	cr_assert_eq(read_text("to be or\tnot to be\r\n\n \n# that\n"), 0, "%s", text);
	cr_assert_eq(total, 2);
	cr_assert_eq(d.entries, 8);
	cr_assert_eq(d.columns, 6);
	cr_assert_eq(d.column[4], 0);
	cr_assert_eq(d.column[5], 1);
	cr_assert_eq(d.start[1], 6);
	cr_assert_eq(d.key[3], rows_word_key("not"));
	cr_assert_neq(rows_word_key("not"), rows_word_key("ton"));
}

/* Spreadsheets write a byte order mark. */
Test(rows, byte_order_mark)
{
	cr_assert_eq(read_text("\xef\xbb\xbf-1 3:1\n1 4:1\n"), 0, "%s", text);
	cr_assert_eq(d.rows, 2);
	dataset_free(&d);
	refuses("1 3:1\n\xef\xbb\xbf-1 3:1\n", "2", "label");
	refuses("\xef\xbb", "1", "label");
	format = ROWS_CSV;
	cr_assert_eq(read_text("\xef\xbb\xbflabel,a\n1,2\n"), 0, "%s", text);
	cr_assert_eq(d.rows, 1);
	dataset_free(&d);
	cr_assert_eq(read_text("\xef\xbb\xbf"
			       "a,label\n7,1\n"),
		     0, "%s", text);
	cr_assert(d.rows == 1 && d.label[0] == 1);
	cr_assert_neq(read_text("\xef\xbb\xbf"), 0);
	cr_assert_not_null(strstr(text, "the file has no rows"));
}

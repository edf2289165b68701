/* SPDX-License-Identifier: BSD-3-Clause */
/** The log of a store's file: records come back, and replay ends before what is incomplete or damaged. The test's
 * thread. */
#include "control/store_log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct store_table t;
static int fd;
static size_t written;

static void append(const void *bytes, size_t n)
{
	cr_assert_eq(pwrite(fd, bytes, n, (off_t)written), (ssize_t)n);
	written += n;
}

static void begin(void)
{
	static const uint8_t head[FILE_HEAD_BYTES] = FILE_MAGIC;
	cr_assert_eq(store_table_begin(&t), 0);
	fd = memfd_create("log", MFD_CLOEXEC);
	cr_assert_geq(fd, 0);
	append(head, sizeof head);
}

static void end(void)
{
	store_table_free(&t);
	close(fd);
}

TestSuite(store_log, .init = begin, .fini = end);

static struct kv_bytes bytes(const char *text)
{
	return (struct kv_bytes){(const uint8_t *)text, strlen(text)};
}

static size_t record(uint8_t out[RECORD_BYTES_MAX], enum record_kind kind, const char *key, const char *value,
		     uint64_t holder)
{
	const struct record r = {.kind = (int)kind, .holder = holder, .key = bytes(key), .value = bytes(value)};
	return record_encode(&r, out);
}

static void append_record(enum record_kind kind, const char *key, const char *value, uint64_t holder)
{
	uint8_t out[RECORD_BYTES_MAX];
	append(out, record(out, kind, key, value, holder));
}

static void replayed(uint64_t upto)
{
	cr_assert_eq(records_replay(fd, &t), 0);
	cr_assert_eq(t.at, upto);
}

static bool has(const char *key, const char *want)
{
	struct kv_bytes value;
	return kv_get(t.server->kv, bytes(key), &value) == 0 && value.len == strlen(want) &&
	       (!value.len || memcmp(value.data, want, value.len) == 0);
}

Test(store_log, records_come_back)
{
	append_record(RECORD_VALUE, "plain", "1", 5);
	append_record(RECORD_HELD, "held", "", UINT64_MAX);
	append_record(RECORD_VALUE, "deleted", "x", 0);
	append_record(RECORD_DELETED, "deleted", "", 1);
	replayed(written);
	cr_assert(has("plain", "1") && has("held", "") && !has("deleted", "x"));
	cr_assert_eq((*store_held_find(&t, bytes("held")))->holder, UINT64_MAX);
	cr_assert_null(*store_held_find(&t, bytes("plain")), "a plain value has no holder");
	/* What is appended later is replayed from there on. */
	append_record(RECORD_VALUE, "plain", "2", 0);
	replayed(written);
	cr_assert(has("plain", "2"));
}

/* More than one read: records lie across the ends of the buffer. */
Test(store_log, a_long_log)
{
	static char value[FAR_STORE_VALUE_MAX + 1];
	char key[16];
	memset(value, 'v', FAR_STORE_VALUE_MAX);
	for (int i = 0; i < 50; i++) {
		snprintf(key, sizeof key, "k%d", i);
		append_record(RECORD_VALUE, key, value, 0);
	}
	replayed(written);
	cr_assert_eq(kv_count(t.server->kv), 50u);
	cr_assert(has("k49", value));
}

Test(store_log, ends_before_an_incomplete_record)
{
	uint8_t out[RECORD_BYTES_MAX];
	append_record(RECORD_VALUE, "a", "1", 0);
	size_t whole = written, len = record(out, RECORD_VALUE, "b", "22", 0);
	for (size_t cut = 0; cut < len; cut++) {
		written = whole;
		cr_assert_eq(ftruncate(fd, (off_t)whole), 0);
		append(out, cut);
		replayed(whole);
		cr_assert_not(has("b", "22"), "cut to %zu", cut);
	}
	written = whole;
	append(out, len);
	replayed(written);
	cr_assert(has("b", "22"));
}

Test(store_log, ends_before_a_damaged_record)
{
	uint8_t out[RECORD_BYTES_MAX];
	size_t whole = written, len = record(out, RECORD_HELD, "b", "22", 7);
	for (size_t at = 0; at < len; at++) {
		written = whole;
		out[at] ^= 1;
		append(out, len);
		out[at] ^= 1;
		replayed(whole);
	}
	written = whole;
	append(out, len);
	replayed(written);
}

/* Sound by its checksum, but no record of this version: nothing is applied. */
Test(store_log, what_is_out_of_range_is_no_record)
{
	static char longer[FAR_STORE_VALUE_MAX + 2];
	static uint8_t out[2 * RECORD_BYTES_MAX];
	memset(longer, 'l', FAR_STORE_VALUE_MAX + 1);
	const struct {
		int kind;
		const char *key, *value;
	} cases[] = {{0, "k", "v"},
		     {RECORD_DELETED + 1, "k", "v"},
		     {RECORD_VALUE, "", "v"},
		     {RECORD_VALUE, longer + FAR_STORE_VALUE_MAX - FAR_STORE_KEY_MAX, "v"},
		     {RECORD_VALUE, "k", longer}};
	size_t whole = written;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct record r = {
			.kind = cases[i].kind, .key = bytes(cases[i].key), .value = bytes(cases[i].value)};
		written = whole;
		append(out, record_encode(&r, out));
		replayed(whole);
		cr_assert_eq(kv_count(t.server->kv), 0u, "case %zu", i);
	}
}

Test(store_log, a_file_that_is_no_store)
{
	cr_assert_eq(pwrite(fd, "X", 1, 0), 1);
	cr_assert_eq(records_replay(fd, &t), -EPROTO);
	/* Half a head is one that is being written. */
	cr_assert_eq(ftruncate(fd, FILE_HEAD_BYTES - 1), 0);
	replayed(0);
	cr_assert_eq(ftruncate(fd, 0), 0);
	replayed(0);
	close(fd);
	cr_assert_eq(records_replay(fd, &t), -EBADF);
	fd = memfd_create("log", MFD_CLOEXEC);
}

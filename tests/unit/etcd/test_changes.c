/* SPDX-License-Identifier: BSD-3-Clause */
/* The stream of a watch: split at every byte, with errors, malformed, without an end. The test's thread. */
#include "etcd/changes.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct changes c;
static struct etcd_kv kv;

static void begin(int64_t revision)
{
	changes_reset(&c);
	c.next = revision;
	c.returned = revision - 1;
}

static void put(const char *text)
{
	cr_assert_eq(changes_put(&c, text, strlen(text)), 1);
}

static void expect(const char *key, const char *value, int64_t revision, bool deleted)
{
	cr_assert_eq(kv.key.len, strlen(key));
	cr_assert_arr_eq(kv.key.data, key, strlen(key));
	cr_assert_eq(kv.value.len, strlen(value));
	cr_assert(memcmp(kv.value.data, value, strlen(value)) == 0);
	cr_assert_eq(kv.revision, revision);
	cr_assert_eq(kv.deleted, deleted);
}

static void next(const char *key, const char *value, int64_t revision, bool deleted)
{
	cr_assert_eq(changes_next(&c, &kv), 1, "%s", c.text);
	expect(key, value, revision, deleted);
}

#define CREATED  "{\"result\":{\"header\":{\"revision\":\"90\"},\"created\":true}}\n"
#define PROGRESS "{\"result\":{\"header\":{\"revision\":\"30\"}}}\n"
#define TWO                                                                                                            \
	"{\"result\":{\"header\":{\"revision\":\"12\"},\"events\":[{\"kv\":{\"key\":\"Zg==\",\"mod_revision\":"        \
	"\"11\",\"value\":\"Zm9v\"}},{\"type\":\"DELETE\",\"kv\":{\"key\":\"Zm8=\",\"mod_revision\":\"12\"}}]}}\n"

static const char stream[] = CREATED TWO PROGRESS;

Test(etcd_changes, in_order)
{
	begin(10);
	put(stream);
	next("f", "foo", 11, false);
	cr_assert_eq(c.returned, 9); /* a message may have more of this revision */
	next("fo", "", 12, true);
	cr_assert_eq(c.returned, 9);
	cr_assert_eq(changes_next(&c, &kv), 0);
	cr_assert_eq(c.returned, 30);
	cr_assert_eq(c.next, 31);
	cr_assert_eq(changes_next(&c, &kv), 0);
	changes_reset(&c);
}

/* An attempt that ends within a message is followed by one from its last revision on. */
Test(etcd_changes, continues_after_an_end)
{
	begin(10);
	put(TWO);
	next("f", "foo", 11, false);
	changes_reset(&c);
	cr_assert_eq(c.next, 11);
	cr_assert_eq(c.returned, 9);
	put(TWO);
	next("f", "foo", 11, false);
	next("fo", "", 12, true);
	cr_assert_eq(changes_next(&c, &kv), 0);
	cr_assert_eq(c.next, 13);
	cr_assert_eq(c.returned, 12);
	changes_reset(&c);
}

/* What `created` reports is the store's revision, up to which no change was sent yet. */
Test(etcd_changes, created_is_no_progress)
{
	begin(10);
	put(CREATED);
	cr_assert_eq(changes_next(&c, &kv), 0);
	cr_assert_eq(c.returned, 9);
	cr_assert_eq(c.next, 10);
	changes_reset(&c);
}

/* Both parts end in blocks of their own, which a sanitizer watches. */
static void split(size_t at)
{
	size_t len = sizeof stream - 1, found = 0;
	char *first = malloc(at + 1), *second = malloc(len - at + 1);
	memcpy(first, stream, at);
	memcpy(second, stream + at, len - at);
	begin(10);
	cr_assert_eq(changes_put(&c, first, at), 1);
	while (changes_next(&c, &kv) > 0)
		found++;
	cr_assert_eq(changes_put(&c, second, len - at), 1);
	while (changes_next(&c, &kv) > 0)
		found++;
	cr_assert_eq(found, 2u, "split at %zu", at);
	cr_assert_eq(c.returned, 30);
	free(first);
	free(second);
	changes_reset(&c);
}

Test(etcd_changes, split_at_every_byte)
{
	for (size_t at = 0; at < sizeof stream; at++)
		split(at);
	begin(10);
	size_t found = 0;
	for (size_t i = 0; i < sizeof stream - 1; i++) {
		cr_assert_eq(changes_put(&c, stream + i, 1), 1);
		while (changes_next(&c, &kv) > 0)
			expect(found ? "fo" : "f", found ? "" : "foo", found ? 12 : 11, found > 0), found++;
	}
	cr_assert_eq(found, 2u);
	changes_reset(&c);
}

Test(etcd_changes, errors)
{
	static const struct {
		const char *text;
		int error;
		const char *says;
	} lines[] = {
		{"{\"result\":{\"header\":{\"revision\":\"9\"},\"canceled\":true,\"compact_revision\":\"8\"}}\n",
		 -ESTALE, ""},
		{"{\"error\":{\"grpc_code\":11,\"message\":\"compacted\"}}\n", -ESTALE, "compacted"},
		{"{\"error\":{\"grpc_code\":7,\"message\":\"denied\"}}\n", -EACCES, "denied"},
		{"{\"error\":{\"grpc_code\":16,\"message\":\"token\"}}\n", -EKEYEXPIRED, "token"},
		{"{\"error\":{\"grpc_code\":14,\"message\":\"no\\nleader\"}}\n", -EAGAIN, "no?leader"},
		{"{\"result\":{\"header\":{},\"canceled\":true}}\n", -EAGAIN, "the watch was canceled"},
	};
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		begin(10);
		put(lines[i].text);
		cr_assert_eq(changes_next(&c, &kv), lines[i].error, "%s", lines[i].text);
		cr_assert(strstr(c.text, lines[i].says), "%s", c.text);
		cr_assert_eq(c.next, 10);
		changes_reset(&c);
	}
}

#define EVENT(event) "{\"result\":{\"header\":{\"revision\":\"12\"},\"events\":[" event "]}}\n"

Test(etcd_changes, malformed)
{
	static const char *const lines[] = {
		"\n",
		"7\n",
		"{}\n",
		"{\"result\":7}\n",
		"{\"result\":{\"header\":{\"revision\":[]}}}\n",
		"{\"result\":{\"header\":{\"revision\":\"9223372036854775807\"}}}\n",
		"{\"result\":{\"header\":{\"revision\":\"1\"},\"events\":7}}\n",
		"{\"result\":{\"header\":{\"revision\":\"1\"},\"canceled\":true,\"compact_revision\":\"x\"}}\n",
		"{\"result\":{\"header\":{\"revision\":\"1\"}}} x\n",
		EVENT("7"),
		EVENT("{}"),
		EVENT("{\"kv\":7}"),
		EVENT("{\"kv\":{\"key\":\"Zg==\"}}"),
		EVENT("{\"kv\":{\"mod_revision\":\"1\"}}"),
		EVENT("{\"kv\":{\"key\":\"Zg\",\"mod_revision\":\"1\"}}"),
		EVENT("{\"type\":7,\"kv\":{\"key\":\"Zg==\",\"mod_revision\":\"1\"}}"),
		EVENT("{\"kv\":{\"key\":\"Zg==\",\"mod_revision\":\"9223372036854775807\"}}"),
	};
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		begin(10);
		put(lines[i]);
		cr_assert_eq(changes_next(&c, &kv), -EPROTO, "%s", lines[i]);
		cr_assert_eq(c.returned, 9);
		changes_reset(&c);
	}
}

Test(etcd_changes, a_line_without_an_end)
{
	enum { CHUNK = 1 << 20 };
	char *chunk = malloc(CHUNK);
	int rc = 1;
	memset(chunk, ' ', CHUNK);
	begin(10);
	for (int i = 0; i < 64 && rc == 1; i++) {
		cr_assert_eq(changes_next(&c, &kv), 0);
		cr_assert_eq(changes_put(&c, chunk, CHUNK), 1);
		rc = c.in.len > CHANGES_UNREAD_MAX ? 0 : 1;
	}
	cr_assert_eq(rc, 0);
	cr_assert_eq(changes_put(&c, chunk, CHUNK), 0);
	cr_assert_eq(changes_next(&c, &kv), -EPROTO);
	changes_reset(&c);
	free(chunk);
}

/* Bytes that were read make room for others. */
Test(etcd_changes, reads_forever)
{
	begin(10);
	put(TWO);
	for (int i = 0; i < 1000; i++) {
		put(TWO);
		cr_assert_eq(changes_next(&c, &kv), 1);
		cr_assert_eq(changes_next(&c, &kv), 1);
	}
	cr_assert_lt(c.in.cap, 8 * sizeof TWO);
	changes_reset(&c);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Replies of etcd's gateway: well-formed, cut, of wrong types, with numbers out of range. The test's thread. */
#include "etcd/message.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct message m;

static int read_text(const char *text)
{
	/* A copy of just its bytes, which a sanitizer watches. */
	size_t len = strlen(text);
	char *copy = malloc(len + 1);
	memcpy(copy, text, len);
	copy = realloc(copy, len ? len : 1);
	int rc = message_read(&m, copy, len);
	free(copy);
	return rc;
}

static void expect_kv(size_t i, const char *key, const char *value, int64_t revision, int64_t lease)
{
	const struct etcd_kv *kv = &m.reply.kvs[i];
	cr_assert_lt(i, m.reply.kvs_n);
	cr_assert_eq(kv->key.len, strlen(key));
	cr_assert_arr_eq(kv->key.data, key, strlen(key));
	cr_assert_eq(kv->value.len, strlen(value));
	cr_assert(memcmp(kv->value.data, value, strlen(value)) == 0);
	cr_assert_eq(kv->revision, revision);
	cr_assert_eq(kv->lease, lease);
}

static const char txn[] = "{\"header\":{\"cluster_id\":\"1\",\"revision\":\"12\"},\"succeeded\":true,\"responses\":["
			  "{\"response_put\":{\"header\":{\"revision\":\"12\"}}},"
			  "{\"response_range\":{\"kvs\":[{\"key\":\"Zg==\",\"create_revision\":\"3\",\"mod_revision\":"
			  "\"4\",\"value\":\"Zm9v\",\"lease\":\"77\"},{\"key\":\"Zm8=\",\"mod_revision\":5}],"
			  "\"more\":true,\"count\":\"9\"}},"
			  "{\"response_range\":{\"kvs\":[{\"key\":\"Zm9v\",\"mod_revision\":\"12\"}]}}]}";

Test(etcd_message, transaction)
{
	cr_assert_eq(read_text(txn), 0);
	cr_assert_eq(m.reply.revision, 12);
	cr_assert(m.reply.succeeded && m.reply.more);
	cr_assert_eq(m.reply.kvs_n, 3u);
	expect_kv(0, "f", "foo", 4, 77);
	expect_kv(1, "fo", "", 5, 0);
	expect_kv(2, "foo", "", 12, 0);
	message_free(&m);
}

Test(etcd_message, every_cut_is_malformed)
{
	char text[sizeof txn];
	for (size_t cut = 0; cut < sizeof txn - 1; cut++) {
		memcpy(text, txn, cut);
		text[cut] = 0;
		cr_assert_eq(read_text(text), -EPROTO, "cut at %zu", cut);
	}
}

Test(etcd_message, lease)
{
	cr_assert_eq(read_text("{\"result\":{\"header\":{\"revision\":\"7\"},\"ID\":\"5\",\"TTL\":\"20\"}}"), 0);
	cr_assert_eq(m.reply.ttl_s, 20);
	cr_assert_eq(m.reply.revision, 7);
	message_free(&m);
	cr_assert_eq(read_text("{\"header\":{\"revision\":\"7\"},\"TTL\":\"-1\"}\n"), 0);
	cr_assert_eq(m.reply.ttl_s, -1);
	message_free(&m);
	cr_assert_eq(read_text("{\"header\":{}}"), 0);
	cr_assert_eq(m.reply.ttl_s, 0);
	message_free(&m);
}

#define KV(kv) "{\"header\":{},\"responses\":[{\"response_range\":{\"kvs\":[" kv "]}}]}"

Test(etcd_message, wrong_types_and_numbers)
{
	static const char *const texts[] = {
		"",
		"null",
		"7",
		"[]",
		"{}",
		"{\"header\":7}",
		"{\"header\":[]}",
		"{\"result\":7,\"header\":{}}",
		"{\"header\":{\"revision\":\"\"}}",
		"{\"header\":{\"revision\":\"x\"}}",
		"{\"header\":{\"revision\":\"1x\"}}",
		"{\"header\":{\"revision\":\" 1\"}}",
		"{\"header\":{\"revision\":\"1\\u0000\"}}",
		"{\"header\":{\"revision\":1.5}}",
		"{\"header\":{\"revision\":{}}}",
		"{\"header\":{\"revision\":-1}}",
		"{\"header\":{\"revision\":\"-1\"}}",
		"{\"header\":{\"revision\":\"9223372036854775807\"}}",
		"{\"header\":{\"revision\":9223372036854775808}}",
		"{\"header\":{\"revision\":\"9999999999999999999999\"}}",
		"{\"header\":{},\"TTL\":\"9999999999999999999999\"}",
		"{\"header\":{},\"TTL\":[]}",
		KV("7"),
		KV("{}"),
		KV("{\"key\":\"Zg==\"}"),
		KV("{\"key\":\"Zg==\",\"mod_revision\":\"0\"}"),
		KV("{\"key\":\"Zg==\",\"mod_revision\":\"-3\"}"),
		KV("{\"key\":\"Zg==\",\"mod_revision\":\"9223372036854775807\"}"),
		KV("{\"key\":\"\",\"mod_revision\":\"1\"}"),
		KV("{\"key\":\"Zg=\",\"mod_revision\":\"1\"}"),
		KV("{\"key\":7,\"mod_revision\":\"1\"}"),
		KV("{\"key\":\"Zg==\",\"value\":7,\"mod_revision\":\"1\"}"),
		KV("{\"key\":\"Zg==\",\"value\":null,\"mod_revision\":\"1\"}"),
		KV("{\"key\":\"Zg==\",\"value\":\"Z\",\"mod_revision\":\"1\"}"),
		KV("{\"key\":\"Zg==\",\"mod_revision\":\"1\",\"lease\":\"0x10\"}"),
		KV("{\"key\":\"Zg==\",\"mod_revision\":\"1\"},{\"key\":\"Zg==\"}"),
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		cr_assert_eq(read_text(texts[i]), -EPROTO, "%s", texts[i]);
		cr_assert_null(m.kvs);
	}
}

/* Deeper than a stack would bear. */
Test(etcd_message, deep)
{
	enum { DEPTH = 200000 };
	char *text = malloc(DEPTH + 1);
	memset(text, '[', DEPTH);
	text[DEPTH] = 0;
	cr_assert_eq(read_text(text), -EPROTO);
	free(text);
}

/* What has no list where one belongs has no keys. */
Test(etcd_message, no_lists)
{
	static const char *const texts[] = {"{\"header\":{},\"responses\":7}",
					    "{\"header\":{},\"responses\":[7,null,{}]}",
					    "{\"header\":{},\"responses\":[{\"response_range\":{\"kvs\":{}}}]}"};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		cr_assert_eq(read_text(texts[i]), 0);
		cr_assert_eq(m.reply.kvs_n, 0u);
		message_free(&m);
	}
}

static int error_of(const char *text, char *out, size_t cap)
{
	return message_error(text, strlen(text), out, cap);
}

Test(etcd_message, errors)
{
	char text[ETCD_TEXT_MAX] = "", few[8];
	cr_assert_eq(
		error_of("{\"error\":\"etcdserver: x\",\"message\":\"etcdserver: x\",\"code\":5}", text, sizeof text),
		5);
	cr_assert_str_eq(text, "etcdserver: x");
	cr_assert_eq(error_of("{\"error\":{\"grpc_code\":11,\"http_code\":400,\"message\":\"compacted\"}}", text,
			      sizeof text),
		     11);
	cr_assert_str_eq(text, "compacted");
	cr_assert_eq(error_of("{\"error\":\"a\",\"message\":\"a\\n\\u001b[2J\\u007f\\r\",\"code\":\"3\"}", text,
			      sizeof text),
		     3);
	cr_assert_str_eq(text, "a??[2J??");
	cr_assert_eq(error_of("{\"error\":\"a\",\"message\":\"longer than that\",\"code\":3}", few, sizeof few), 3);
	cr_assert_str_eq(few, "longer ");
	static const char *const none[] = {"",
					   "{}",
					   "[]",
					   "{\"error\":\"a\"}",
					   "{\"error\":\"a\",\"message\":\"a\"}",
					   "{\"message\":\"a\",\"code\":3}",
					   "{\"error\":\"a\",\"message\":7,\"code\":3}",
					   "{\"error\":\"a\",\"message\":\"a\",\"code\":17}",
					   "{\"error\":\"a\",\"message\":\"a\",\"code\":-1}",
					   "{\"error\":\"a\",\"message\":\"a\",\"code\":\"three\"}",
					   "{\"error\":\"a\",\"message\":\"a\",\"code\":99999999999999999999}",
					   "{\"error\":{\"message\":\"a\",\"code\":3}}"};
	for (size_t i = 0; i < sizeof none / sizeof *none; i++)
		cr_assert_eq(error_of(none[i], text, sizeof text), -1, "%s", none[i]);
}

static char *token_of(const char *text)
{
	return message_token(text, strlen(text));
}

Test(etcd_message, tokens)
{
	char *token = token_of("{\"header\":{},\"token\":\"abc.1\"}");
	cr_assert_str_eq(token, "abc.1");
	free(token);
	cr_assert_null(token_of("{\"header\":{}}"));
	cr_assert_null(token_of("{\"token\":7}"));
	cr_assert_null(token_of("{\"token\":\"\"}"));
	/* It would end the header and begin another. */
	cr_assert_null(token_of("{\"token\":\"a\\r\\nX: y\"}"));
	cr_assert_null(token_of("not json"));
}

Test(etcd_message, requests)
{
	const struct kv_bytes a = {(const uint8_t *)"a\xff", 2}, b = {(const uint8_t *)"b", 1};
	struct etcd_txn t = {
		.compares = {{{a, b}, ETCD_CREATED, true, 0}, {{.key = a}, ETCD_MODIFIED, false, 9}},
		.compares_n = 2,
		.then = {{.kind = ETCD_PUT, .of = {.key = a}, .value = b, .lease = INT64_MAX}},
		.then_n = 1,
		.otherwise = {{.kind = ETCD_GET, .of = {a, b}, .limit = 2, .revision_min = 3, .revision = 4},
			      {.kind = ETCD_DELETE, .of = {.key = a}}},
		.otherwise_n = 2};
	char *text = message_txn(&t);
	cr_assert_str_eq(
		text,
		"{\"compare\":[{\"key\":\"Yf8=\",\"range_end\":\"Yg==\",\"target\":\"CREATE\",\"result\":\"GREATER\","
		"\"create_revision\":\"0\"},{\"key\":\"Yf8=\",\"target\":\"MOD\",\"result\":\"EQUAL\","
		"\"mod_revision\":\"9\"}],\"success\":[{\"request_put\":{\"key\":\"Yf8=\",\"value\":\"Yg==\","
		"\"lease\":\"9223372036854775807\"}}],\"failure\":[{\"request_range\":{\"key\":\"Yf8=\","
		"\"range_end\":\"Yg==\",\"revision\":\"4\",\"limit\":\"2\",\"min_mod_revision\":\"3\","
		"\"sort_order\":\"ASCEND\",\"sort_target\":\"MOD\"}},{\"request_delete_range\":{\"key\":\"Yf8=\"}}]}");
	free(text);
	text = message_lease(-5, 20);
	cr_assert_str_eq(text, "{\"ID\":\"-5\",\"TTL\":\"20\"}");
	free(text);
	text = message_login("u\"", "p\\");
	cr_assert_str_eq(text, "{\"name\":\"u\\\"\",\"password\":\"p\\\\\"}");
	free(text);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** The connection of an application to its store: marked keys, deadlines, the errors of a store that does not answer,
 * a lost connection. The test's thread. */
#include "api/store_access.h"
#include "own_store.h"

#include <errno.h>

TestSuite(api_store_access, .init = own_store_open, .fini = own_store_close);

static void expect_marked(const char *key, bool prefix, const char *marked)
{
	char out[FAR_STORE_KEY_MAX + 1];
	int len = store_key_mark(key, prefix, out);
	cr_assert_eq(len, marked ? (int)strlen(marked) : -1, "%s: %d", key, len);
	if (marked)
		cr_assert_eq(memcmp(out, marked, (size_t)len), 0);
}

Test(api_store_access, marked_keys)
{
	static char longest[FAR_STORE_KEY_BYTES + 2];
	expect_marked("k", false, "/k/");
	expect_marked("a/b/", false, "/a/b//");
	expect_marked("k", true, "/k");
	expect_marked("", true, "/");
	expect_marked("", false, NULL);
	expect_marked(NULL, true, NULL);
	memset(longest, 'k', FAR_STORE_KEY_BYTES);
	char out[FAR_STORE_KEY_MAX + 1];
	cr_assert_eq(store_key_mark(longest, false, out), FAR_STORE_KEY_BYTES + STORE_MARK_BYTES);
	longest[FAR_STORE_KEY_BYTES] = 'k';
	expect_marked(longest, false, NULL);
}

Test(api_store_access, deadlines)
{
	cr_assert_eq(store_deadline(1000, 5), 1005u);
	cr_assert_eq(store_deadline(1000, 0), 1000 + FAR_STORE_TIMEOUT_NS);
	cr_assert_eq(store_deadline(1000, FAR_FOREVER), TIME_NEVER);
	cr_assert_eq(store_deadline(1000, FAR_FOREVER - 1), TIME_NEVER, "it does not wrap");
}

static struct access access_of = {.url = {.scheme = URL_TCP, .host = "10.0.0.5", .port = 7000}};

static void unanswered(int result, int error, bool connected, enum far_status status, const char *text)
{
	memset(&err, 0, sizeof err);
	cr_assert_eq(access_unanswered(&access_of, result, error, connected, &err), status, "%s: %s", text, err.text);
	cr_assert(strstr(err.text, text), "%s", err.text);
	cr_assert(strstr(err.text, "10.0.0.5:7000"), "%s", err.text);
	cr_assert_eq(err.executed, connected && (status == FAR_TIMEOUT || status == FAR_PEER_LOST) ? FAR_EXECUTED_MAYBE
												   : FAR_EXECUTED_NO);
}

/* Expect the store named, a remedy for each mistake of keys, and MAYBE only of a request that may have been sent. */
Test(api_store_access, a_store_that_does_not_answer)
{
	unanswered(-ENOMEM, 0, true, FAR_RESOURCE, "no memory");
	unanswered(-ENOBUFS, 0, true, FAR_BUSY, "too many calls are pending; wait for some");
	unanswered(-ENOKEY, 0, false, FAR_DENIED, "has a key, which was not found here; give its key (key_file)");
	unanswered(-EKEYREVOKED, 0, false, FAR_DENIED, "has no key (security=none), and one was given");
	unanswered(-EKEYREJECTED, 0, false, FAR_DENIED, "has another key; give its key (key_file)");
	unanswered(-EACCES, 0, false, FAR_DENIED, "no access, or others can access it, too");
	unanswered(-EPROTO, 0, false, FAR_PROTOCOL, "is no store of this version");
	unanswered(-ECONNREFUSED, 0, false, FAR_UNREACHABLE, "no store answers at ");
	unanswered(-EIO, 0, false, FAR_SYSTEM, "cannot be used");
	unanswered(-ETIMEDOUT, -ECONNREFUSED, false, FAR_TIMEOUT, "did not answer in time: Connection refused");
	unanswered(-ETIMEDOUT, -EKEYREJECTED, false, FAR_DENIED, "did not answer in time");
	unanswered(-ETIMEDOUT, 0, true, FAR_TIMEOUT, "the deadline passed");
	unanswered(-ECONNRESET, 0, true, FAR_PEER_LOST, "the connection ended");
}

/* What the connection knows itself goes first. */
Test(api_store_access, a_reason_of_the_stream)
{
	snprintf(access_of.why, sizeof access_of.why, "run etcdctl");
	unanswered(-EACCES, 0, false, FAR_DENIED, "the store at 10.0.0.5:7000: run etcdctl");
	unanswered(-ENOTSUP, 0, false, FAR_PROTOCOL, "run etcdctl");
	unanswered(-EIO, 0, false, FAR_UNREACHABLE, "run etcdctl");
	access_of.key_err = (struct far_err){.status = FAR_INVALID, .text = "the key at 10.0.0.5:7000 is short"};
	access_of.why[0] = '\0';
	unanswered(-EACCES, 0, false, FAR_INVALID, "the key at 10.0.0.5:7000 is short");
}

/* Values that come with a reply: those of no bytes, and none. */
Test(api_store_access, values)
{
	struct far_store_value v;
	store_value_set(&v, true, &(struct store_msg){.value = (const uint8_t *)"abc", .value_len = 3});
	cr_assert(v.found && v.bytes == 3 && memcmp(v.data, "abc", 3) == 0);
	store_value_set(&v, false, &(struct store_msg){.value = NULL});
	cr_assert(!v.found && v.bytes == 0);
}

/* A connection that ended is made anew by the next request. */
Test(api_store_access, a_lost_connection)
{
	struct access *a = &store->access;
	struct far_store_value v;
	cr_assert_eq(far_store_set(store, "k", "1", 1, 0, &err), FAR_OK, "%s", err.text);
	pthread_mutex_lock(&a->lock);
	store_client_destroy(a->client);
	a->client = NULL;
	pthread_mutex_unlock(&a->lock);
	cr_assert_eq(far_store_get(store, "k", 0, &v, &err), FAR_OK, "%s", err.text);
	cr_assert(v.found && v.bytes == 1);
}

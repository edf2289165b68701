/* SPDX-License-Identifier: BSD-3-Clause */
/** The watch of etcd: where it begins, goes on and ends, and at which endpoint. The test's thread. */
#include "fake_etcd.h"

static struct etcd_kv kv;
static int64_t revision;

TestSuite(etcd_watch, .fini = fake_end, .timeout = 60);

#define LINE(revision, key)                                                                                            \
	"{\"result\":{\"header\":{\"revision\":\"" #revision "\"},\"events\":[{\"kv\":{\"key\":\"" key                 \
	"\",\"mod_revision\":\"" #revision "\",\"value\":\"Zm9v\"}}]}}\n"
#define COMPACTED "{\"error\":{\"grpc_code\":11,\"message\":\"compacted\"}}\n"
#define DENIED    "{\"error\":{\"grpc_code\":7,\"message\":\"denied\"}}\n"

static void watch(int64_t from)
{
	const struct etcd_range of = {{(const uint8_t *)"a", 1}, {(const uint8_t *)"b", 1}};
	cr_assert_eq(ops()->watch(e, &of, from), 0);
}

/* The next change, or error. */
static int change(void)
{
	int rc = 0;
	for (unsigned i = 0; i < FAKE_TRIES && !(rc = ops()->change(e, &kv, &revision)); i++)
		fake_step();
	return rc;
}

static void expect_request(unsigned i, unsigned endpoint, const char *from)
{
	cr_assert_str_eq(fake.request[i].path, "/v3/watch");
	cr_assert_eq(fake.request[i].endpoint, endpoint);
	cr_assert(strstr(fake.request[i].body, from), "\"%s\" lacks \"%s\"", fake.request[i].body, from);
}

/* Changes come as they are sent, by one request. */
Test(etcd_watch, changes_come_by_one_request)
{
	fake_begin(1, NULL);
	fake_script(1, LINE(11, "Zg=="));
	watch(10);
	cr_assert_eq(ops()->change(e, &kv, &revision), 0);
	cr_assert_eq(revision, 9);
	cr_assert_eq(change(), 1);
	cr_assert(kv.key.len == 1 && kv.key.data[0] == 'f' && kv.revision == 11 && !kv.deleted);
	cr_assert_eq(ops()->change(e, &kv, &revision), 0);
	cr_assert_eq(revision, 11);
	dprintf(fake.stream, "%s", LINE(12, "Zm8="));
	cr_assert_eq(change(), 1);
	cr_assert(kv.key.len == 2 && kv.revision == 12);
	cr_assert_eq(fake.requests_n, 1u);
	expect_request(0, 0, "\"10\"");
	cr_assert(strstr(fake.request[0].body, "\"YQ==\"") && strstr(fake.request[0].body, "\"Yg==\""));
}

/* Its endpoint hangs up. Expect the next one asked for what comes after the last change. */
Test(etcd_watch, goes_on_at_the_next_endpoint)
{
	fake_begin(2, NULL);
	fake_script(1, LINE(11, "Zg=="));
	fake_script(1, LINE(12, "Zg=="));
	watch(10);
	cr_assert_eq(change(), 1);
	cr_assert_eq(ops()->change(e, &kv, &revision), 0);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		if (fake.at[i].fd == fake.stream && fake.stream)
			fake_hang_up(&fake.at[i]);
	cr_assert_eq(change(), 1);
	cr_assert_eq(kv.revision, 12);
	expect_request(1, 1, "\"12\"");
}

/* Changes were compacted, or are denied. Expect that error until there is another watch, and no request meanwhile. */
Test(etcd_watch, errors_that_stay)
{
	static const char *const lines[] = {COMPACTED, DENIED};
	for (unsigned i = 0; i < 2; i++) {
		int error = i ? -EACCES : -ESTALE;
		fake_begin(1, NULL);
		fake_script(1, lines[i]);
		watch(10);
		cr_assert_eq(change(), error);
		for (unsigned k = 0; k < 5; k++) {
			fake.skip += UINT64_C(2000000000);
			fake_step();
			cr_assert_eq(ops()->change(e, &kv, &revision), error);
		}
		cr_assert_eq(fake.requests_n, 1u);
		fake_script(1, LINE(41, "Zg=="));
		watch(40);
		cr_assert_eq(change(), 1);
		expect_request(1, 0, "\"40\"");
		fake_end();
	}
}

/* What no etcd sends. Expect the endpoint blamed and the next one tried from the same revision. */
Test(etcd_watch, malformed)
{
	fake_begin(2, NULL);
	fake_script(1, "{\"result\":7}\n");
	fake_script(1, LINE(11, "Zg=="));
	watch(10);
	for (unsigned i = 0; i < FAKE_TRIES && !e->failures; i++) {
		cr_assert_eq(ops()->change(e, &kv, &revision), 0);
		fake_step();
	}
	char want[64];
	snprintf(want, sizeof want, "etcd at http://127.0.0.1:%u: ", fake.port[0]);
	trouble(want);
	cr_assert_eq(e->trouble, -EPROTO);
	cr_assert_eq(change(), 1);
	expect_request(1, 1, "\"10\"");
}

/* The login has ended. Expect another one before the watch goes on. */
Test(etcd_watch, logs_in_again)
{
	fake_begin(2, "root");
	fake_script(200, "{\"token\":\"t1\"}");
	fake_script(1, "{\"error\":{\"grpc_code\":16,\"message\":\"token\"}}\n");
	fake_script(200, "{\"token\":\"t2\"}");
	fake_script(1, LINE(11, "Zg=="));
	watch(10);
	cr_assert_eq(change(), 1);
	cr_assert_eq(fake.requests_n, 4u);
	cr_assert_str_eq(fake.request[2].path, "/v3/auth/authenticate");
	cr_assert(strstr(fake.request[3].head, "Authorization: t2"), "%s", fake.request[3].head);
	expect_request(3, fake.request[3].endpoint, "\"10\"");
}

/* Two lines, more bytes than may wait to be read. */
static struct {
	char *bytes;
	size_t len, at;
} stream;

static void stream_write(void)
{
	ssize_t n = write(fake.stream, stream.bytes + stream.at, stream.len - stream.at);
	stream.at += n > 0 ? (size_t)n : 0;
	fake_step();
}

/* Expect the rest to stay with the server until the first one is read, and then to come. */
Test(etcd_watch, unread_bytes_are_bounded)
{
	static const char line[] = LINE(12, "Zg==");
	const size_t each = (CHANGES_UNREAD_MAX >> 1) + (1 << 20);
	unsigned seen = 0;
	stream.len = 2 * each;
	stream.bytes = malloc(stream.len);
	memset(stream.bytes, ' ', stream.len);
	for (unsigned i = 1; i <= 2; i++)
		memcpy(stream.bytes + i * each - (sizeof line - 1), line, sizeof line - 1);
	fake_begin(1, NULL);
	fake_script(1, LINE(11, "Zg=="));
	watch(10);
	cr_assert_eq(change(), 1);
	for (unsigned i = 0; i < FAKE_TRIES && !e->watch.paused; i++)
		stream_write();
	cr_assert(e->watch.paused && stream.at > CHANGES_UNREAD_MAX / 2);
	cr_assert_leq(e->watch.changes.in.len, CHANGES_UNREAD_MAX + (1 << 20));
	for (unsigned i = 0; i < FAKE_TRIES && seen < 2; i++) {
		seen += ops()->change(e, &kv, &revision) == 1;
		stream_write();
	}
	cr_assert(seen == 2 && stream.at == stream.len && fake.requests_n == 1);
	free(stream.bytes);
}

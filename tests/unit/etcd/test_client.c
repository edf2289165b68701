/* SPDX-License-Identifier: BSD-3-Clause */
/** Requests to etcd: answered, refused, repeated at another endpoint, with a login; the cause of each failure and what
 * helps. The test's thread. */
#include "fake_etcd.h"

TestSuite(etcd_client, .fini = fake_end, .timeout = 60);

static unsigned done_n;
static struct etcd_reply got;

static void done(void *user, const struct etcd_reply *reply)
{
	cr_assert_eq(user, &got);
	got = *reply;
	done_n++;
}

static void txn(void)
{
	const struct etcd_txn t = {
		.then = {{.kind = ETCD_PUT, .of.key = {(const uint8_t *)"key", 3}, .value = {(const uint8_t *)"v", 1}}},
		.then_n = 1};
	cr_assert_eq(ops()->txn(e, &t, done, &got), 0);
}

#define SUCCEEDED   "{\"header\":{\"revision\":\"5\"},\"succeeded\":true}"
#define LEADERLESS  "{\"error\":\"x\",\"code\":14,\"message\":\"no leader\"}"
#define ERROR(code) "{\"error\":\"x\",\"code\":" #code ",\"message\":\"why\"}"

Test(etcd_client, a_transaction_is_answered)
{
	fake_begin(1, NULL);
	fake_script(200, SUCCEEDED);
	txn();
	fake_until(&done_n, 1);
	cr_assert(got.error == 0 && got.succeeded && got.revision == 5);
	cr_assert_str_eq(fake.request[0].path, "/v3/kv/txn");
	cr_assert(strstr(fake.request[0].body, "\"a2V5\""), "the key, in base64: %s", fake.request[0].body);
	cr_assert(strstr(fake.request[0].head, "Content-Type: application/json"), "%s", fake.request[0].head);
	cr_assert_null(strstr(fake.request[0].head, "Authorization"));
	cr_assert_eq(trouble(""), 0);
	for (unsigned i = 0; i < 5; i++)
		fake_step();
	cr_assert(done_n == 1 && fake.requests_n == 1);
}

Test(etcd_client, leases)
{
	static const char *const paths[] = {"/v3/lease/grant", "/v3/lease/keepalive", "/v3/lease/revoke"};
	fake_begin(1, NULL);
	fake_script(200, "{\"header\":{\"revision\":\"5\"},\"ID\":\"77\",\"TTL\":\"30\"}");
	fake_script(200, "{\"result\":{\"header\":{\"revision\":\"5\"},\"ID\":\"77\",\"TTL\":\"30\"}}");
	fake_script(404, "{\"error\":\"x\",\"code\":5,\"message\":\"lease not found\"}");
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(ops()->lease(e, (enum etcd_lease)i, 77, 30, done, &got), 0);
		fake_until(&done_n, i + 1);
		cr_assert_str_eq(fake.request[i].path, paths[i]);
		cr_assert_eq(got.error, i == 2 ? -ENOENT : 0);
		cr_assert(i == 2 || got.ttl_s == 30);
	}
}

/* Errors that etcd reports of a request. Expect each once, as its errno, and no other attempt. */
Test(etcd_client, errors_of_requests)
{
	static const struct {
		const char *body;
		int error;
	} cases[] = {{ERROR(3), -EIO},     {ERROR(5), -ENOENT},
		     {ERROR(6), -EEXIST},  {ERROR(7), -EACCES},
		     {ERROR(9), -EEXIST},  {"{\"error\":\"x\",\"code\":8,\"message\":\"no space\"}", -ENOSPC},
		     {ERROR(11), -ESTALE}, {ERROR(12), -EIO}};
	fake_begin(1, NULL);
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		fake_script(500, cases[i].body);
		txn();
		fake_until(&done_n, i + 1);
		cr_assert_eq(got.error, cases[i].error, "case %u: %d", i, got.error);
		cr_assert_eq(fake.requests_n, i + 1);
	}
}

/* An endpoint without a leader, and one that hangs up. Expect the next one at once, and none of them blamed after that.
 */
Test(etcd_client, the_next_endpoint_is_tried)
{
	char want[64];
	fake_begin(2, NULL);
	fake_script(503, LEADERLESS);
	txn();
	fake_until(&fake.requests_n, 2);
	cr_assert(fake.request[0].endpoint == 0 && fake.request[1].endpoint == 1);
	snprintf(want, sizeof want, "etcd at http://127.0.0.1:%u: no leader", fake.port[0]);
	cr_assert_eq(trouble(want), -EAGAIN);
	fake_end();
	done_n = 0;
	fake_begin(2, NULL);
	fake_script(0, "");
	fake_script(200, SUCCEEDED);
	txn();
	fake_until(&done_n, 1);
	cr_assert(fake.requests_n == 2 && fake.request[1].endpoint == 1);
	cr_assert_eq(trouble(""), 0);
}

/* All have failed. Expect a rest, which doubles, and then all of them again. */
Test(etcd_client, all_rest_after_a_round)
{
	fake_begin(2, NULL);
	for (unsigned round = 1; round <= 3; round++) {
		fake_script(503, LEADERLESS);
		fake_script(503, LEADERLESS);
		if (round == 1)
			txn();
		fake.skip += UINT64_C(1000000000);
		fake_until(&fake.answered_n, 2 * round);
		for (unsigned i = 0; i < FAKE_TRIES && e->failures < 2 * round; i++)
			fake_step();
		cr_assert_eq(e->failures, 2 * round);
		cr_assert_eq(e->retry_ns, ETCD_RETRY_MIN_NS << round);
		cr_assert_eq(e->retry_at - e->now, ETCD_RETRY_MIN_NS << (round - 1));
		cr_assert_eq(ops()->step(e, e->now, &(bool){false}), e->retry_at);
		cr_assert_eq(fake.requests_n, 2 * round);
	}
	cr_assert_eq(trouble("no leader"), -EAGAIN);
	fake_script(200, SUCCEEDED);
	fake.skip += UINT64_C(1000000000);
	fake_until(&done_n, 1);
	cr_assert_eq(e->retry_ns, ETCD_RETRY_MIN_NS);
}

/* No endpoint takes a connection. Expect the begin of that round, once all have refused. */
Test(etcd_client, nobody_is_there)
{
	fake_begin(2, NULL);
	fake_refuse(0);
	fake_refuse(1);
	cr_assert_eq(ops()->absent(e), 0u);
	uint64_t before = fake_now();
	txn();
	for (unsigned i = 0; i < FAKE_TRIES && !e->refused_n; i++)
		fake_step();
	cr_assert(e->refused_n == 1 && !ops()->absent(e));
	uint64_t first = fake_now();
	fake.skip += UINT64_C(10000000000);
	for (unsigned i = 0; i < FAKE_TRIES && !ops()->absent(e); i++)
		fake_step();
	cr_assert(ops()->absent(e) >= before && ops()->absent(e) <= first);
	cr_assert_eq(trouble("; start it, or correct init_method"), -ECONNREFUSED);
	cr_assert_eq(done_n, 0u);
}

/* One of two is there, and does not serve. */
Test(etcd_client, somebody_is_there)
{
	fake_begin(2, NULL);
	fake_refuse(1);
	fake_script(503, LEADERLESS);
	fake_script(503, LEADERLESS);
	txn();
	for (unsigned i = 0; i < FAKE_TRIES && e->failures < 4; i++) {
		fake.skip += UINT64_C(1000000000);
		fake_step();
	}
	cr_assert_geq(e->failures, 4u);
	cr_assert_eq(ops()->absent(e), 0u);
}

/* Servers that are no etcd, or want what the client does not have. Expect cause and remedy. */
Test(etcd_client, what_cannot_be_served)
{
	static const struct {
		int status, error;
		const char *body, *part;
	} cases[] = {{404, -ENOTSUP, "404 page not found", "no gateway of etcd v3 (HTTP status 404); give the address"},
		     {200, -ENOTSUP, "<html>", "no gateway of etcd v3 (HTTP status 200)"},
		     {400, -EACCES, "Client sent an HTTP request to an HTTPS server.", "requires TLS; give the CA"},
		     {401, -EACCES, ERROR(16), "why; set FAR_ETCD_USER"},
		     {400, -EACCES, "{\"error\":\"x\",\"code\":3,\"message\":\"user name is empty\"}",
		      "; set FAR_ETCD_USER"},
		     {0, -ECONNREFUSED, "", "if it requires TLS, give the CA"}};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		fake_begin(1, NULL);
		fake_script(cases[i].status, cases[i].body);
		txn();
		for (unsigned k = 0; k < FAKE_TRIES && !e->failures; k++)
			fake_step();
		cr_assert_eq(trouble(cases[i].part), cases[i].error, "case %u", i);
		cr_assert_eq(done_n, 0u, "it is sent again");
		fake_end();
	}
}

/* Expect a login first, its token in each request, and another login when the token has ended. */
Test(etcd_client, logs_in)
{
	fake_begin(1, "root");
	fake_script(200, "{\"token\":\"t1\"}");
	fake_script(401, ERROR(16));
	fake_script(200, "{\"token\":\"t2\"}");
	fake_script(200, SUCCEEDED);
	txn();
	fake_until(&done_n, 1);
	cr_assert(got.error == 0 && fake.requests_n == 4);
	for (unsigned i = 0; i < 4; i += 2) {
		cr_assert_str_eq(fake.request[i].path, "/v3/auth/authenticate");
		cr_assert(strstr(fake.request[i].body, "\"root\"") && strstr(fake.request[i].body, "\"secret\""));
		cr_assert_null(strstr(fake.request[i].head, "Authorization"));
	}
	cr_assert(strstr(fake.request[1].head, "Authorization: t1"), "%s", fake.request[1].head);
	cr_assert(strstr(fake.request[3].head, "Authorization: t2"), "%s", fake.request[3].head);
}

Test(etcd_client, a_login_that_is_refused)
{
	fake_begin(1, "root");
	fake_script(400, ERROR(3));
	fake_script(400, ERROR(9));
	txn();
	for (unsigned i = 0; i < FAKE_TRIES && e->failures < 1; i++)
		fake_step();
	cr_assert_eq(trouble("why; correct FAR_ETCD_USER and the password in the file FAR_ETCD_PASSWORD_FILE"),
		     -EACCES);
	fake.skip += UINT64_C(1000000000);
	for (unsigned i = 0; i < FAKE_TRIES && e->failures < 2; i++)
		fake_step();
	cr_assert_eq(trouble("why; unset FAR_ETCD_USER"), -EACCES);
	cr_assert_eq(fake.requests_n, 2u, "the transaction waits");
}

/* A request about a lease whose bytes the only endpoint has, and does not answer. */
Test(etcd_client, arrived_and_unanswered)
{
	fake_begin(1, NULL);
	txn();
	fake_until(&fake.requests_n, 1);
	cr_assert_eq(ops()->arrived(e), 0u, "no lease");
	uint64_t before = fake_now();
	cr_assert_eq(ops()->lease(e, ETCD_KEEP, 77, 0, done, &got), 0);
	fake_until(&fake.requests_n, 2);
	for (unsigned i = 0; i < FAKE_TRIES && !ops()->arrived(e); i++)
		fake_step();
	cr_assert(ops()->arrived(e) >= before && ops()->arrived(e) <= fake_now());
}

Test(etcd_client, endpoints_that_cannot_be)
{
	static char long_one[ETCD_URL_MAX], many[17 * 4 + 1];
	const char *const lists[] = {"", ",", "a:1,,b:2", long_one, many};
	memset(long_one, 'x', sizeof long_one - 1);
	for (unsigned i = 0; i < 17; i++)
		strcat(many, i ? ",a:1" : "a:1");
	for (unsigned i = 0; i < sizeof lists / sizeof *lists; i++) {
		const struct etcd_config config = {.endpoints = lists[i]};
		cr_assert_null(ops()->create(&config, &err), "case %u", i);
		cr_assert_eq(err.status, FAR_INVALID);
		cr_assert_str_eq(err.text, "etcd:// takes 1 to 16 endpoints host:port, separated by commas");
	}
	many[16 * 4 - 1] = '\0';
	e = ops()->create(&(struct etcd_config){.endpoints = many}, &err);
	cr_assert_not_null(e, "%s", err.text);
	cr_assert_eq(e->endpoints_n, 16u);
	cr_assert_str_eq(e->endpoints[15], "http://a:1");
}

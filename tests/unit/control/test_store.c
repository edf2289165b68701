/* SPDX-License-Identifier: BSD-3-Clause */
/** The store over sockets in memory: operations, watches, malformed bytes. The test's thread. */
#include "control/kv.h"
#include "control/store.h"
#include "fake_net.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT   1
#define SECOND UINT64_C(1000000000)

static struct fake_world *world;
static struct ctl_net *net;
static struct store_server *server;
static struct store_client *a, *b;

struct answer {
	int calls, result;
	enum store_status status;
	int64_t number;
	size_t len;
	uint8_t value[FAR_STORE_VALUE_MAX];
};

static void steps(void)
{
	for (int i = 0; i < 50; i++) {
		bool busy = false;
		store_server_step(server, world->now, &busy);
		store_client_step(a, world->now, &busy);
		store_client_step(b, world->now, &busy);
	}
}

/* Client a is in the server's process, b is across the network. */
static void setup(void)
{
	world = fake_world_create();
	net = fake_net_create(world);
	server = store_server_create(net, net->ops->listen(net, "h", PORT, -1));
	a = store_client_create(store_stream_local(server));
	b = store_client_create(store_stream_tcp(net, "h", PORT));
	steps();
	cr_assert_eq(store_client_connection(a), STORE_CONNECTED);
	cr_assert_eq(store_client_connection(b), STORE_CONNECTED);
}

static void teardown(void)
{
	store_client_destroy(a);
	store_client_destroy(b);
	store_server_destroy(server);
	net->ops->destroy(net);
	fake_world_destroy(world);
}

TestSuite(store, .init = setup, .fini = teardown);

static void answered(void *user, int result, const struct store_msg *reply)
{
	struct answer *out = user;
	out->calls++;
	out->result = result;
	if (result)
		return;
	out->status = reply->status;
	out->number = reply->number;
	out->len = reply->value_len;
	memcpy(out->value, reply->value, reply->value_len);
}

static int submit(struct store_client *c, enum store_op op, const char *key, const char *value, const char *expected,
		  int64_t number, struct answer *out)
{
	struct store_msg m = {.op = op,
			      .number = number,
			      .key = (const uint8_t *)key,
			      .key_len = strlen(key),
			      .value = (const uint8_t *)value,
			      .value_len = value ? strlen(value) : 0,
			      .expected = (const uint8_t *)expected,
			      .expected_len = expected ? strlen(expected) : 0};
	*out = (struct answer){0};
	return store_client_submit(c, &m, world->now, world->now + SECOND, answered, out);
}

static struct answer request(struct store_client *c, enum store_op op, const char *key, const char *value,
			     const char *expected, int64_t number)
{
	struct answer out;
	cr_assert_eq(submit(c, op, key, value, expected, number, &out), 0);
	steps();
	cr_assert_eq(out.calls, 1);
	cr_assert_eq(out.result, 0);
	return out;
}

static void holds(struct answer out, enum store_status status, const char *text)
{
	cr_assert_eq(out.status, status);
	cr_assert_eq(out.len, strlen(text));
	cr_assert_eq(memcmp(out.value, text, out.len), 0);
}

Test(store, set_get_delete)
{
	struct store_client *both[] = {a, b};
	for (int i = 0; i < 2; i++) {
		struct store_client *c = both[i], *d = both[1 - i];
		holds(request(c, STORE_GET, "k", NULL, NULL, 0), STORE_MISSING, "");
		holds(request(c, STORE_SET, "k", "one", NULL, 0), STORE_OK, "");
		holds(request(d, STORE_GET, "k", NULL, NULL, 0), STORE_OK, "one");
		holds(request(d, STORE_SET, "k", "", NULL, 0), STORE_OK, "");
		holds(request(c, STORE_GET, "k", NULL, NULL, 0), STORE_OK, "");
		holds(request(c, STORE_DELETE, "k", NULL, NULL, 0), STORE_OK, "");
		holds(request(d, STORE_DELETE, "k", NULL, NULL, 0), STORE_MISSING, "");
	}
}

Test(store, add)
{
	cr_assert_eq(request(a, STORE_ADD, "n", NULL, NULL, 5).number, 5);
	cr_assert_eq(request(b, STORE_ADD, "n", NULL, NULL, -7).number, -2);
	holds(request(b, STORE_GET, "n", NULL, NULL, 0), STORE_OK, "-2");
	request(a, STORE_SET, "n", "9223372036854775807", NULL, 0);
	cr_assert_eq(request(b, STORE_ADD, "n", NULL, NULL, 1).status, STORE_BAD);
	request(a, STORE_SET, "n", "x", NULL, 0);
	cr_assert_eq(request(b, STORE_ADD, "n", NULL, NULL, 1).status, STORE_BAD);
	request(a, STORE_SET, "n", "", NULL, 0);
	cr_assert_eq(request(b, STORE_ADD, "n", NULL, NULL, 1).status, STORE_BAD);
}

Test(store, compare_and_set)
{
	holds(request(a, STORE_CAS, "c", "1", "x", 0), STORE_DIFFERS, "");
	holds(request(a, STORE_CAS, "c", "1", "", 0), STORE_OK, "");
	holds(request(b, STORE_CAS, "c", "2", "", 0), STORE_DIFFERS, "1");
	holds(request(b, STORE_CAS, "c", "2", "1", 0), STORE_OK, "");
	holds(request(a, STORE_GET, "c", NULL, NULL, 0), STORE_OK, "2");
}

Test(store, wait_is_answered_by_each_kind_of_write)
{
	struct answer one, two, three;
	cr_assert_eq(submit(b, STORE_WAIT, "w1", NULL, NULL, 0, &one), 0);
	cr_assert_eq(submit(b, STORE_WAIT, "w2", NULL, NULL, 0, &two), 0);
	cr_assert_eq(submit(a, STORE_WAIT, "w3", NULL, NULL, 0, &three), 0);
	steps();
	cr_assert_eq(one.calls + two.calls + three.calls, 0);
	/* Other requests of the same client overtake a pending WAIT. */
	request(b, STORE_SET, "other", "x", NULL, 0);
	request(a, STORE_SET, "w1", "v", NULL, 0);
	request(a, STORE_ADD, "w2", NULL, NULL, 3);
	request(b, STORE_CAS, "w3", "z", "", 0);
	holds(one, STORE_OK, "v");
	holds(two, STORE_OK, "3");
	holds(three, STORE_OK, "z");
	holds(request(a, STORE_WAIT, "w1", NULL, NULL, 0), STORE_OK, "v");
}

Test(store, wait_ends_at_its_deadline_on_both_sides)
{
	struct answer here, there;
	cr_assert_eq(submit(a, STORE_WAIT, "w", NULL, NULL, 0, &here), 0);
	cr_assert_eq(submit(b, STORE_WAIT, "w", NULL, NULL, 0, &there), 0);
	steps();
	bool busy = false;
	cr_assert_eq(store_server_step(server, world->now, &busy), world->now + SECOND);
	world->now += SECOND - 1;
	steps();
	cr_assert_eq(here.calls + there.calls, 0);
	world->now += 1;
	steps();
	cr_assert_eq(here.calls, 1);
	cr_assert_eq(there.calls, 1);
	cr_assert(here.result == -ETIMEDOUT || here.status == STORE_TIMEOUT);
	cr_assert(there.result == -ETIMEDOUT || there.status == STORE_TIMEOUT);
	/* Nothing is left to wake up for. */
	cr_assert_eq(store_server_step(server, world->now, &busy), TIME_NEVER);
	cr_assert_eq(store_client_step(b, world->now, &busy), TIME_NEVER);
}

Test(store, client_deadline_needs_no_server)
{
	struct answer out;
	bool busy = false;
	cr_assert_eq(submit(b, STORE_GET, "k", NULL, NULL, 0, &out), 0);
	cr_assert_eq(store_client_step(b, world->now, &busy), world->now + SECOND);
	world->now += SECOND;
	store_client_step(b, world->now, &busy);
	cr_assert_eq(out.calls, 1);
	cr_assert_eq(out.result, -ETIMEDOUT);
	/* The late reply is ignored. */
	steps();
	cr_assert_eq(out.calls, 1);
	cr_assert_eq(store_client_connection(b), STORE_CONNECTED);
}

Test(store, limits_of_key_and_value)
{
	static char key[FAR_STORE_KEY_MAX + 2], value[FAR_STORE_VALUE_MAX + 2];
	struct answer out;
	memset(key, 'k', FAR_STORE_KEY_MAX);
	memset(value, 'v', FAR_STORE_VALUE_MAX);
	cr_assert_eq(request(b, STORE_CAS, key, value, "", 0).status, STORE_OK);
	cr_assert_eq(request(b, STORE_CAS, key, value, value, 0).status, STORE_OK);
	holds(request(b, STORE_GET, key, NULL, NULL, 0), STORE_OK, value);
	value[FAR_STORE_VALUE_MAX] = 'v';
	cr_assert_eq(submit(b, STORE_SET, key, value, NULL, 0, &out), -EMSGSIZE);
	key[FAR_STORE_KEY_MAX] = 'k';
	cr_assert_eq(submit(b, STORE_SET, key, "", NULL, 0, &out), -EMSGSIZE);
	cr_assert_eq(submit(b, STORE_SET, "", "", NULL, 0, &out), -EINVAL);
}

Test(store, small_sends)
{
	static char value[FAR_STORE_VALUE_MAX + 1];
	memset(value, 'v', FAR_STORE_VALUE_MAX);
	world->chunk = 7;
	holds(request(b, STORE_SET, "k", value, NULL, 0), STORE_OK, "");
	holds(request(b, STORE_GET, "k", NULL, NULL, 0), STORE_OK, value);
}

Test(store, requests_outstanding_are_bounded)
{
	static struct answer out[STORE_REQUESTS_MAX + 1];
	char key[16];
	for (int i = 0; i < STORE_REQUESTS_MAX; i++) {
		snprintf(key, sizeof key, "w%d", i);
		cr_assert_eq(submit(b, STORE_WAIT, key, NULL, NULL, 0, &out[i]), 0);
	}
	cr_assert_eq(submit(b, STORE_WAIT, "w", NULL, NULL, 0, &out[STORE_REQUESTS_MAX]), -ENOBUFS);
	steps();
	cr_assert_eq(store_client_connection(b), STORE_CONNECTED);
	for (int i = 0; i < STORE_REQUESTS_MAX; i++) {
		snprintf(key, sizeof key, "w%d", i);
		request(a, STORE_SET, key, "v", NULL, 0);
		cr_assert_eq(out[i].calls, 1);
	}
}

Test(store, keys_are_bounded)
{
	struct kv *kv = kv_create(2);
	struct kv_bytes k[3] = {{(const uint8_t *)"a", 1}, {(const uint8_t *)"b", 1}, {(const uint8_t *)"c", 1}};
	int64_t sum;
	cr_assert_eq(kv_set(kv, k[0], k[0]), 0);
	cr_assert_eq(kv_set(kv, k[1], k[0]), 0);
	cr_assert_eq(kv_set(kv, k[2], k[0]), -ENOSPC);
	cr_assert_eq(kv_add(kv, k[2], 1, &sum), -ENOSPC);
	cr_assert_eq(kv_set(kv, k[1], k[1]), 0);
	cr_assert_eq(kv_count(kv), 2);
	cr_assert_eq(kv_delete(kv, k[0]), 0);
	cr_assert_eq(kv_set(kv, k[2], k[0]), 0);
	kv_destroy(kv);
}

Test(store, server_death_ends_requests)
{
	struct answer out;
	cr_assert_eq(submit(b, STORE_WAIT, "k", NULL, NULL, 0, &out), 0);
	steps();
	store_server_destroy(server);
	server = store_server_create(net, -1);
	bool busy = false;
	store_client_step(b, world->now, &busy);
	cr_assert_eq(out.calls, 1);
	cr_assert_lt(out.result, 0);
	cr_assert_eq(store_client_connection(b), STORE_LOST);
	cr_assert_eq(submit(b, STORE_GET, "k", NULL, NULL, 0, &out), -ENOTCONN);
	store_client_destroy(a);
	a = store_client_create(store_stream_local(server));
}

Test(store, connects_again_until_there_is_a_server)
{
	struct store_client *c = store_client_create(store_stream_tcp(net, "h", PORT + 1));
	bool busy = false;
	uint64_t rest = 0;
	for (int i = 0; i < 12; i++) {
		uint64_t next = store_client_step(c, world->now, &busy);
		cr_assert_eq(store_client_connection(c), STORE_CONNECTING);
		cr_assert_eq(store_client_error(c), -ECONNREFUSED);
		cr_assert_gt(next, world->now);
		cr_assert_geq(next - world->now, rest);
		rest = next - world->now;
		world->now = next;
	}
	cr_assert_eq(rest, UINT64_C(50000000));
	struct store_server *late = store_server_create(net, net->ops->listen(net, "h", PORT + 1, -1));
	for (int i = 0; i < 10; i++) {
		world->now += rest;
		store_client_step(c, world->now, &busy);
		store_server_step(late, world->now, &busy);
	}
	cr_assert_eq(store_client_connection(c), STORE_CONNECTED);
	store_client_destroy(c);
	store_server_destroy(late);
}

Test(store, shut_door_refuses_newcomers_only)
{
	store_server_shut(server);
	struct store_client *c = store_client_create(store_stream_tcp(net, "h", PORT));
	bool busy = false;
	store_client_step(c, world->now, &busy);
	cr_assert_eq(store_client_error(c), -ECONNREFUSED);
	cr_assert_eq(store_server_clients(server), 1);
	holds(request(b, STORE_SET, "k", "v", NULL, 0), STORE_OK, "");
	store_client_destroy(c);
}

/* ---- malformed bytes ---- */

static size_t frame(uint8_t out[STORE_FRAME_MAX], enum store_op op, const char *key)
{
	struct store_msg m = {.op = op, .id = 1, .key = (const uint8_t *)key, .key_len = strlen(key)};
	return store_msg_encode(&m, out);
}

/* A non-member sends LOGIN, if `login`, and the bytes. Expect it dropped, for this reason alone. */
static void non_member(bool login, const uint8_t *bytes, size_t len, enum store_drop reason)
{
	uint8_t out[STORE_FRAME_MAX];
	uint64_t before = store_server_drops(server, reason);
	unsigned clients = store_server_clients(server);
	int h = net->ops->connect(net, "h", PORT);
	if (login)
		net->ops->send(net, h, out, frame(out, STORE_LOGIN, ""));
	steps();
	cr_assert_eq(store_server_clients(server), clients + 1);
	net->ops->send(net, h, bytes, len);
	steps();
	cr_assert_eq(store_server_clients(server), clients, "still served");
	cr_assert_eq(store_server_drops(server, reason), before + 1);
	net->ops->close(net, h);
	holds(request(b, STORE_SET, "k", "v", NULL, 0), STORE_OK, "");
}

Test(store, malformed_frames_drop_their_client)
{
	uint8_t good[STORE_FRAME_MAX], f[STORE_FRAME_MAX];
	size_t len = frame(good, STORE_GET, "k");
	static const struct {
		size_t at;
		uint8_t value;
		enum store_drop reason;
	} cases[] = {
		{0, 'X', STORE_DROP_MALFORMED}, {4, 1, STORE_DROP_VERSION},       {5, 0, STORE_DROP_MALFORMED},
		{5, 11, STORE_DROP_MALFORMED},  {5, 0x83, STORE_DROP_MALFORMED},  {6, 1, STORE_DROP_MALFORMED},
		{7, 1, STORE_DROP_MALFORMED},   {24, 1, STORE_DROP_MALFORMED},    {33, 1, STORE_DROP_LENGTH},
		{32, 0, STORE_DROP_MALFORMED},  {35, 0x10, STORE_DROP_MALFORMED}, {35, 0x11, STORE_DROP_LENGTH},
		{37, 0x11, STORE_DROP_LENGTH},  {36, 1, STORE_DROP_MALFORMED},    {39, 1, STORE_DROP_MALFORMED},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		memcpy(f, good, len);
		f[cases[i].at] = cases[i].value;
		non_member(true, f, len, cases[i].reason);
	}
	non_member(false, good, len, STORE_DROP_MALFORMED);
	non_member(true, good, frame(good, STORE_LOGIN, ""), STORE_DROP_MALFORMED);
	non_member(false, (const uint8_t *)"GET / HTTP/1.1\r\n\r\n", 18, STORE_DROP_MALFORMED);
}

Test(store, too_many_pending_waits_drop_their_client)
{
	uint8_t f[STORE_FRAME_MAX];
	int h = net->ops->connect(net, "h", PORT);
	net->ops->send(net, h, f, frame(f, STORE_LOGIN, ""));
	struct store_msg m = {
		.op = STORE_WAIT, .timeout_ns = UINT64_MAX, .key = (const uint8_t *)"never", .key_len = 5};
	for (int i = 0; i <= STORE_REQUESTS_MAX; i++) {
		m.id = (uint64_t)i;
		net->ops->send(net, h, f, store_msg_encode(&m, f));
		steps();
	}
	cr_assert_eq(store_server_drops(server, STORE_DROP_REQUESTS), 1);
	cr_assert_eq(store_server_clients(server), 1);
	net->ops->close(net, h);
}

Test(store, an_unexpected_server_at_the_port_is_recognised)
{
	int l = net->ops->listen(net, "h", PORT + 1, -1);
	struct store_client *c = store_client_create(store_stream_tcp(net, "h", PORT + 1));
	bool busy = false;
	store_client_step(c, world->now, &busy);
	int h = net->ops->accept(net, l);
	net->ops->send(net, h, "SSH-2.0-OpenSSH", 15);
	store_client_step(c, world->now, &busy);
	cr_assert_eq(store_client_connection(c), STORE_LOST);
	cr_assert_eq(store_client_error(c), -EPROTO);
	store_client_destroy(c);
}

/* ---- random bytes ---- */

static uint64_t seed;

static uint32_t dice(void)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(seed >> 33);
}

/* Bytes that are no frame, frames with bytes changed, frames cut short, several in one send. */
static size_t noise(uint8_t *out)
{
	size_t len = 0;
	char key[8];
	if (dice() % 4 == 0) {
		len = dice() % 200;
		for (size_t i = 0; i < len; i++)
			out[i] = (uint8_t)dice();
		return len;
	}
	for (uint32_t n = 1 + dice() % 4; n > 0; n--) {
		snprintf(key, sizeof key, "k%u", (unsigned)(dice() % 8));
		struct store_msg m = {.op = (enum store_op)(STORE_SET + dice() % 6),
				      .id = dice(),
				      .timeout_ns = dice() % 4 ? dice() : UINT64_MAX,
				      .number = dice(),
				      .key = (const uint8_t *)key,
				      .key_len = strlen(key),
				      .value = (const uint8_t *)key,
				      .value_len = dice() % 3};
		len += store_msg_encode(&m, out + len);
	}
	for (uint32_t n = dice() % 3; n > 0; n--)
		out[dice() % len] = (uint8_t)dice();
	return dice() % 4 ? len : dice() % len;
}

Test(store, random_bytes)
{
	static uint8_t bytes[4 * STORE_FRAME_MAX];
	uint8_t login[STORE_FRAME_MAX];
	const char *given = getenv("FAR_TEST_SEED");
	uint64_t start = given ? strtoull(given, NULL, 0) : 1;
	bool busy = false;
	for (uint64_t round = 0; round < 3000; round++) {
		seed = start + round;
		int h = net->ops->connect(net, "h", PORT);
		if (dice() % 8)
			net->ops->send(net, h, login, frame(login, STORE_LOGIN, ""));
		for (int i = 0; i < 6; i++) {
			net->ops->send(net, h, bytes, noise(bytes));
			world->now += dice() % 1000;
			store_server_step(server, world->now, &busy);
			net->ops->recv(net, h, bytes, sizeof bytes);
		}
		net->ops->close(net, h);
		store_server_step(server, world->now, &busy);
		cr_assert_eq(store_server_clients(server), 1, "seed %llu", (unsigned long long)(start + round));
	}
	holds(request(b, STORE_SET, "k", "v", NULL, 0), STORE_OK, "");
	holds(request(b, STORE_GET, "k", NULL, NULL, 0), STORE_OK, "v");
}

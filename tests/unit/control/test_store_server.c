/* SPDX-License-Identifier: BSD-3-Clause */
/** The store's server over sockets in memory: operations, a shut door, malformed and random bytes. The test's thread.
 */
#include "store_pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

TestSuite(store_server, .init = pair_setup, .fini = pair_teardown);

Test(store_server, set_get_delete)
{
	struct store_client *both[] = {here, remote};
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

Test(store_server, add)
{
	cr_assert_eq(request(here, STORE_ADD, "n", NULL, NULL, 5).number, 5);
	cr_assert_eq(request(remote, STORE_ADD, "n", NULL, NULL, -7).number, -2);
	holds(request(remote, STORE_GET, "n", NULL, NULL, 0), STORE_OK, "-2");
	request(here, STORE_SET, "n", "9223372036854775807", NULL, 0);
	cr_assert_eq(request(remote, STORE_ADD, "n", NULL, NULL, 1).status, STORE_BAD);
	request(here, STORE_SET, "n", "x", NULL, 0);
	cr_assert_eq(request(remote, STORE_ADD, "n", NULL, NULL, 1).status, STORE_BAD);
	request(here, STORE_SET, "n", "", NULL, 0);
	cr_assert_eq(request(remote, STORE_ADD, "n", NULL, NULL, 1).status, STORE_BAD);
}

Test(store_server, compare_and_set)
{
	holds(request(here, STORE_CAS, "c", "1", "x", 0), STORE_DIFFERS, "");
	holds(request(here, STORE_CAS, "c", "1", "", 0), STORE_OK, "");
	holds(request(remote, STORE_CAS, "c", "2", "", 0), STORE_DIFFERS, "1");
	holds(request(remote, STORE_CAS, "c", "2", "1", 0), STORE_OK, "");
	holds(request(here, STORE_GET, "c", NULL, NULL, 0), STORE_OK, "2");
}

Test(store_server, shut_door_refuses_newcomers_only)
{
	store_server_shut(server);
	struct store_client *c = store_client_create(store_stream_tcp(net, "h", PORT));
	bool busy = false;
	store_client_step(c, world->now, &busy);
	cr_assert_eq(store_client_error(c), -ECONNREFUSED);
	cr_assert_eq(store_server_clients(server), 1);
	holds(request(remote, STORE_SET, "k", "v", NULL, 0), STORE_OK, "");
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
	holds(request(remote, STORE_SET, "k", "v", NULL, 0), STORE_OK, "");
}

Test(store_server, malformed_frames_drop_their_client)
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

Test(store_server, too_many_pending_waits_drop_their_client)
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

Test(store_server, random_bytes)
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
	holds(request(remote, STORE_SET, "k", "v", NULL, 0), STORE_OK, "");
	holds(request(remote, STORE_GET, "k", NULL, NULL, 0), STORE_OK, "v");
}

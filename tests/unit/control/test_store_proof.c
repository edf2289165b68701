/* SPDX-License-Identifier: BSD-3-Clause */
/** How connections to the store begin, with keys that fit and keys that do not, and whose records are whose.
 * The test's thread. */
#include "control/info.h"
#include "control/store.h"
#include "control/store_wire.h"
#include "fake_net.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PORT   1
#define SECOND UINT64_C(1000000000)

static const struct auth_key right = {"the key"}, wrong = {"the kez"};
static struct fake_world *world;
static struct ctl_net *net;
static struct store_server *server;

static void setup(void)
{
	world = fake_world_create();
	net = fake_net_create(world);
	server = store_server_create(net, net->ops->listen(net, "h", PORT, -1));
	store_server_set_key(server, &right, &random_kernel);
}

static void teardown(void)
{
	store_server_destroy(server);
	net->ops->destroy(net);
	fake_world_destroy(world);
}

TestSuite(store_proof, .init = setup, .fini = teardown);

/* What a client believes the key to be; NULL: not known yet. */
static int key_give(void *ctx, struct auth_key *out)
{
	const struct auth_key **key = ctx;
	if (!*key)
		return -ENOKEY;
	*out = **key;
	return 0;
}

static struct store_client *client(const struct auth_key **key, bool patient, int rank, const char *name)
{
	struct store_client *c = store_client_create(store_stream_tcp(net, "h", PORT));
	struct store_login login = {.who = {.rank = rank, .incarnation = rank < 0 ? 0 : 7},
				    .random = &random_kernel,
				    .key = key ? key_give : NULL,
				    .ctx = key,
				    .patient = patient};
	if (rank >= 0)
		snprintf(login.who.group, sizeof login.who.group, "g");
	if (rank >= 0)
		snprintf(login.who.name, sizeof login.who.name, "%s", name);
	store_client_login(c, &login);
	return c;
}

static void steps(struct store_client *const *clients, int n)
{
	for (int i = 0; i < 50; i++) {
		bool busy = false;
		store_server_step(server, world->now, &busy);
		for (int k = 0; k < n; k++)
			store_client_step(clients[k], world->now, &busy);
		world->now += 10 * 1000 * 1000;
	}
}

static void ends(struct store_client *c, enum store_connection link, int error)
{
	steps(&c, 1);
	cr_assert_eq(store_client_connection(c), link, "%d", store_client_error(c));
	cr_assert_eq(store_client_error(c), error);
	store_client_destroy(c);
}

Test(store_proof, keys_of_both_ends)
{
	const struct auth_key *same = &right, *other = &wrong;
	ends(client(&same, false, 1, "w1"), STORE_CONNECTED, 0);
	ends(client(&same, false, STORE_RANK_NONE, ""), STORE_CONNECTED, 0);
	ends(client(&other, false, 1, "w1"), STORE_LOST, -EKEYREJECTED);
	ends(client(NULL, false, 1, "w1"), STORE_LOST, -ENOKEY);
	/* It was not even sent a proof. */
	cr_assert_eq(store_server_drops(server, STORE_DROP_DENIED), 0u);
	store_server_set_key(server, NULL, NULL);
	ends(client(NULL, false, 1, "w1"), STORE_CONNECTED, 0);
	ends(client(&same, false, 1, "w1"), STORE_LOST, -EKEYREVOKED);
}

Test(store_proof, patient_client_takes_the_key_that_comes)
{
	const struct auth_key *key = NULL;
	struct store_client *c = client(&key, true, 1, "w1");
	steps(&c, 1);
	cr_assert_eq(store_client_connection(c), STORE_CONNECTING);
	cr_assert_eq(store_client_error(c), -ENOKEY);
	key = &wrong;
	steps(&c, 1);
	cr_assert_eq(store_client_connection(c), STORE_CONNECTING);
	cr_assert_eq(store_client_error(c), -EKEYREJECTED);
	key = &right;
	ends(c, STORE_CONNECTED, 0);
}

/* ---- a forger, frame by frame ---- */

static int dial(void)
{
	bool busy = false;
	int h = net->ops->connect(net, "h", PORT);
	cr_assert_geq(h, 0);
	store_server_step(server, world->now, &busy);
	return h;
}

static void send_request(int h, enum store_op op, const void *value, size_t len)
{
	struct store_msg m = {.op = op, .timeout_ns = UINT64_MAX, .value = value, .value_len = len};
	uint8_t frame[STORE_FRAME_MAX];
	if (op != STORE_LOGIN && op != STORE_PROVE) {
		m.key = (const uint8_t *)"k";
		m.key_len = 1;
	}
	size_t n = store_msg_encode(&m, frame);
	cr_assert_eq(net->ops->send(net, h, frame, n), (long)n);
}

/* The reply's status, or -1: the connection is closed. Its value goes to `value`. */
static int answer(int h, uint8_t *value, size_t *len)
{
	static uint8_t rx[STORE_FRAME_MAX];
	size_t got = 0;
	for (int i = 0; i < 20; i++) {
		bool busy = false;
		struct store_msg m;
		store_server_step(server, world->now, &busy);
		long n = net->ops->recv(net, h, rx + got, sizeof rx - got);
		if (n == 0 || (n < 0 && n != -EAGAIN))
			return -1;
		got += n > 0 ? (size_t)n : 0;
		if (store_msg_decode(rx, got, &m) > 0) {
			memcpy(value, m.value, m.value_len);
			*len = m.value_len;
			return (int)m.status;
		}
	}
	return -2;
}

static const struct store_identity who = {.rank = 1, .incarnation = 7, .group = "g", .name = "w1"};

/* Up to the challenge. */
static int greet(struct store_auth *g)
{
	uint8_t value[STORE_FRAME_MAX];
	size_t len = 0;
	int h = dial();
	send_request(h, STORE_LOGIN, g->login, g->login_len);
	cr_assert_eq(answer(h, value, &len), STORE_OK);
	uint8_t proof[AUTH_PROOF_BYTES];
	cr_assert_eq(store_challenge_read(g, value, len, proof), 0);
	cr_assert(store_challenge_verify(g, &right, proof));
	cr_assert_not(store_challenge_verify(g, &wrong, proof));
	return h;
}

static void denied(int h, const uint8_t *proof, size_t len)
{
	uint8_t value[STORE_FRAME_MAX];
	size_t n;
	uint64_t before = store_server_drops(server, STORE_DROP_DENIED);
	send_request(h, STORE_PROVE, proof, len);
	int status = answer(h, value, &n);
	cr_assert(status == STORE_DENIED || status == -1, "%d", status);
	cr_assert_eq(store_server_drops(server, STORE_DROP_DENIED), before + 1);
	cr_assert_eq(store_server_clients(server), 0u);
	net->ops->close(net, h);
}

Test(store_proof, forged_repeated_and_reflected_proofs)
{
	struct store_auth g, again;
	uint8_t proof[AUTH_PROOF_BYTES], challenge[STORE_CHALLENGE_BYTES], value[STORE_FRAME_MAX];
	size_t n;
	store_login_make(&g, &who, &random_kernel);
	int h = greet(&g);
	store_proof_make(&g, &right, proof);
	send_request(h, STORE_PROVE, proof, sizeof proof);
	cr_assert_eq(answer(h, value, &n), STORE_OK);
	net->ops->close(net, h);
	answer(dial(), value, &n);
	teardown();
	setup();
	/* The same LOGIN and proof once more: the server's nonce is another. */
	again = g;
	h = greet(&again);
	cr_assert_neq(memcmp(again.server_nonce, g.server_nonce, sizeof g.server_nonce), 0);
	denied(h, proof, sizeof proof);
	/* With a wrong key; shortened; the server's own proof, which covers the same. */
	h = greet(&g);
	store_proof_make(&g, &wrong, proof);
	denied(h, proof, sizeof proof);
	h = greet(&g);
	store_proof_make(&g, &right, proof);
	denied(h, proof, sizeof proof - 1);
	h = greet(&g);
	struct store_auth turned = g;
	store_challenge_make(&turned, &right, &random_kernel, challenge);
	turned = g;
	struct auth_key own;
	struct auth_mac m;
	auth_derive(&own, &right, "store", "");
	auth_mac_begin(&m, &own, "server");
	auth_mac_add(&m, g.server_nonce, sizeof g.server_nonce);
	auth_mac_add(&m, g.login, g.login_len);
	auth_mac_end(&m, proof);
	denied(h, proof, sizeof proof);
	/* Each byte of who it says it is counts. */
	for (size_t i = AUTH_NONCE_BYTES; i < g.login_len; i++) {
		h = greet(&g);
		struct store_auth other = g;
		other.login[i] ^= 1;
		store_proof_make(&other, &right, proof);
		denied(h, proof, sizeof proof);
	}
}

Test(store_proof, nothing_is_done_before_the_proof)
{
	static const enum store_op ops[] = {STORE_SET, STORE_GET, STORE_WAIT, STORE_DELETE, STORE_WATCH, STORE_HOLD};
	struct store_auth g;
	uint8_t value[STORE_FRAME_MAX];
	size_t n;
	for (size_t i = 0; i < 2 * sizeof ops / sizeof *ops; i++) {
		store_login_make(&g, &who, &random_kernel);
		int h = i & 1 ? greet(&g) : dial();
		send_request(h, ops[i / 2], NULL, 0);
		cr_assert_eq(answer(h, value, &n), -1, "%zu", i);
		cr_assert_eq(store_server_clients(server), 0u);
	}
	/* LOGIN twice, PROVE first, PROVE twice, a LOGIN of nobody. */
	store_login_make(&g, &who, &random_kernel);
	int h = greet(&g);
	send_request(h, STORE_LOGIN, g.login, g.login_len);
	cr_assert_eq(answer(h, value, &n), -1);
	h = dial();
	send_request(h, STORE_PROVE, value, AUTH_PROOF_BYTES);
	cr_assert_eq(answer(h, value, &n), -1);
	h = dial();
	send_request(h, STORE_LOGIN, NULL, 0);
	cr_assert_eq(answer(h, value, &n), -1);
	cr_assert_eq(store_server_clients(server), 0u);
}

Test(store_proof, login_is_checked)
{
	struct store_auth g, out;
	struct store_identity read;
	store_login_make(&g, &who, &random_kernel);
	cr_assert_eq(store_login_read(g.login, g.login_len, &out, &read), 0);
	cr_assert(read.rank == 1 && read.incarnation == 7 && !strcmp(read.group, "g") && !strcmp(read.name, "w1"));
	for (size_t len = 0; len < g.login_len; len++)
		cr_assert_eq(store_login_read(g.login, len, &out, &read), -EPROTO, "%zu", len);
	cr_assert_eq(store_login_read(g.login, g.login_len + 1, &out, &read), -EPROTO);
	struct {
		size_t at;
		uint8_t value;
	} bad[] = {{17, 4} /* rank 1025 */, {19, 0xff}, {28, 0}, {28, 255}, {29, 0}, {29, 255}, {30, 0}, {31, 0}};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		uint8_t login[STORE_LOGIN_MAX];
		memcpy(login, g.login, g.login_len);
		login[bad[i].at] = bad[i].value;
		cr_assert_eq(store_login_read(login, g.login_len, &out, &read), -EPROTO, "%zu", i);
	}
	memset(g.login + 20, 0, 8);
	cr_assert_eq(store_login_read(g.login, g.login_len, &out, &read), -EPROTO, "no incarnation");
}

/* ---- records ---- */

static struct {
	int calls, result;
	enum store_status status;
} got;

static void answered(void *user, int result, const struct store_msg *reply)
{
	got.calls++;
	got.result = result;
	got.status = result ? STORE_STATUS_COUNT : reply->status;
}

static struct store_client *all[4]; /* rank 0, 1, 2, and no member */

static enum store_status request(int i, enum store_op op, const char *key, const char *value, const char *expected)
{
	struct store_msg m = {.op = op,
			      .key = (const uint8_t *)key,
			      .key_len = strlen(key),
			      .value = (const uint8_t *)value,
			      .value_len = strlen(value),
			      .expected = (const uint8_t *)expected,
			      .expected_len = strlen(expected)};
	got.calls = 0;
	cr_assert_eq(store_client_submit(all[i], &m, world->now, world->now + 100 * SECOND, answered, NULL), 0);
	steps(all, 4);
	cr_assert_eq(got.calls, 1);
	return got.status;
}

Test(store_proof, records_belong_to_who_wrote_them)
{
	const struct auth_key *key = &right;
	all[0] = client(&key, false, 0, "w0");
	all[1] = client(&key, false, 1, "w1");
	all[2] = client(&key, false, 2, "w2");
	all[3] = client(&key, false, STORE_RANK_NONE, "");
	steps(all, 4);
	/* What names a rank is that rank's, before it is there and after. */
	cr_assert_eq(request(1, STORE_HOLD, "g/rank/2", "x", ""), STORE_DENIED);
	cr_assert_eq(request(3, STORE_HOLD, "g/rank/2", "x", ""), STORE_DENIED);
	cr_assert_eq(request(1, STORE_SET, "g/info/2", "x", ""), STORE_DENIED);
	cr_assert_eq(request(0, STORE_SET, "g/info/2", "x", ""), STORE_DENIED);
	cr_assert_eq(request(2, STORE_SET, "other/info/2", "x", ""), STORE_DENIED);
	cr_assert_eq(request(2, STORE_HOLD, "g/rank/2", "x", ""), STORE_OK);
	cr_assert_eq(request(2, STORE_SET, "g/info/2", "x", ""), STORE_OK);
	for (int i = 0; i < 4; i++) {
		if (i == 2)
			continue;
		cr_assert_eq(request(i, STORE_DELETE, "g/rank/2", "", ""), STORE_DENIED);
		cr_assert_eq(request(i, STORE_SET, "g/rank/2", "y", ""), STORE_DENIED);
		cr_assert_eq(request(i, STORE_CAS, "g/rank/2", "y", "x"), STORE_DENIED);
		cr_assert_eq(request(i, STORE_ADD, "g/rank/2", "", ""), STORE_DENIED);
		cr_assert_eq(request(i, STORE_HOLD, "g/rank/2", "y", ""), STORE_DENIED);
		cr_assert_eq(request(i, STORE_DELETE, "g/info/2", "", ""), STORE_DENIED);
		cr_assert_eq(request(i, STORE_SET, "g/info/2", "y", ""), STORE_DENIED);
	}
	cr_assert_eq(request(0, STORE_CAS, "g/rank/2", "y", ""), STORE_DIFFERS);
	cr_assert_eq(request(0, STORE_GET, "g/rank/2", "", ""), STORE_OK);
	/* Byes are the rank's, and rank 0's for it. */
	cr_assert_eq(request(1, STORE_SET, "g/bye/2", "1", ""), STORE_DENIED);
	cr_assert_eq(request(0, STORE_CAS, "g/bye/2", "lost", ""), STORE_OK);
	cr_assert_eq(request(1, STORE_DELETE, "g/bye/2", "", ""), STORE_DENIED);
	cr_assert_eq(request(2, STORE_DELETE, "g/bye/2", "", ""), STORE_OK);
	cr_assert_eq(request(1, STORE_SET, "g/bye3/2", "1", ""), STORE_DENIED);
	/* Other records of the group: only their writer may change them. */
	cr_assert_eq(request(0, STORE_SET, "g/list/1", "x", ""), STORE_OK);
	cr_assert_eq(request(1, STORE_SET, "g/list/1", "y", ""), STORE_DENIED);
	cr_assert_eq(request(3, STORE_DELETE, "g/list/1", "", ""), STORE_DENIED);
	cr_assert_eq(request(0, STORE_SET, "g/list/1", "z", ""), STORE_OK);
	cr_assert_eq(request(0, STORE_DELETE, "g/list/1", "", ""), STORE_OK);
	cr_assert_eq(request(1, STORE_SET, "g/list/1", "y", ""), STORE_OK);
	/* The application's are everybody's. */
	cr_assert_eq(request(1, STORE_SET, "mine", "x", ""), STORE_OK);
	cr_assert_eq(request(2, STORE_SET, "mine", "y", ""), STORE_OK);
	cr_assert_eq(request(3, STORE_DELETE, "mine", "", ""), STORE_OK);
	for (int i = 0; i < 4; i++)
		store_client_destroy(all[i]);
}

Test(store_proof, record_outlives_its_writer_under_his_name)
{
	const struct auth_key *key = &right;
	for (int i = 0; i < 4; i++)
		all[i] = client(&key, false, i < 3 ? i : STORE_RANK_NONE, "w");
	steps(all, 4);
	cr_assert_eq(request(1, STORE_SET, "g/info/1", "x", ""), STORE_OK);
	store_client_destroy(all[1]);
	all[1] = client(&key, false, 1, "another");
	steps(all, 4);
	cr_assert_eq(request(1, STORE_SET, "g/info/1", "y", ""), STORE_DENIED);
	store_client_destroy(all[1]);
	all[1] = client(&key, false, 1, "w");
	steps(all, 4);
	cr_assert_eq(request(1, STORE_SET, "g/info/1", "y", ""), STORE_OK);
	for (int i = 0; i < 4; i++)
		store_client_destroy(all[i]);
}

Test(store_proof, sealed_info)
{
	struct info info = {.name = "w", .incarnation = 7, .shards = 1, .addrs_n = 1}, read;
	uint8_t out[FAR_STORE_VALUE_MAX];
	info.addrs[0] = (struct nic_addr){.driver = "udp", .len = 3, .blob = {1, 2, 3}};
	size_t len = info_encode(&info, out);
	cr_assert_not(info_is_sealed(out, len, &right, 1));
	info_seal(out, len, &right, 1);
	cr_assert(info_is_sealed(out, len, &right, 1));
	cr_assert_eq(info_decode(out, len, &read), 0);
	cr_assert_not(info_is_sealed(out, len, &right, 2));
	cr_assert_not(info_is_sealed(out, len, &wrong, 1));
	for (size_t i = 0; i < len; i++) {
		out[i] ^= 1;
		cr_assert_not(info_is_sealed(out, len, &right, 1), "%zu", i);
		out[i] ^= 1;
		cr_assert_not(info_is_sealed(out, i, &right, 1), "%zu", i);
	}
}

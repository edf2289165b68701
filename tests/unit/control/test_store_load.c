/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's server under load and malice: what idle, greedy and deaf clients may cost, and that the others go on.
 * The test's thread. */
#include "base/random.h"
#include "control/store.h"
#include "control/store_proof.h"
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
static struct store_client *here, *far_away; /* here: in the server's process */
static char value[FAR_STORE_VALUE_MAX + 1];

static uint64_t step(void)
{
	bool busy = true;
	uint64_t next = 0;
	for (int i = 0; busy && i < 1000; i++) {
		busy = false;
		next = store_server_step(server, world->now, &busy);
		cr_assert_leq(store_server_out_bytes(server), FAR_STORE_OUT_BYTES_ALL);
	}
	return next;
}

static void steps(void)
{
	for (int i = 0; i < 50; i++) {
		bool busy = false;
		step();
		store_client_step(here, world->now, &busy);
		store_client_step(far_away, world->now, &busy);
	}
}

static void setup(void)
{
	world = fake_world_create();
	net = fake_net_create(world);
	server = store_server_create(net, net->ops->listen(net, "h", PORT, -1));
	here = store_client_create(store_stream_local(server));
	far_away = store_client_create(store_stream_tcp(net, "h", PORT));
	memset(value, 'v', FAR_STORE_VALUE_MAX);
	steps();
	cr_assert_eq(store_client_connection(far_away), STORE_CONNECTED);
}

static void teardown(void)
{
	store_client_destroy(here);
	store_client_destroy(far_away);
	store_server_destroy(server);
	net->ops->destroy(net);
	fake_world_destroy(world);
}

TestSuite(store_load, .init = setup, .fini = teardown);

static void count(void *user, int result, const struct store_msg *reply)
{
	*(unsigned *)user += result == 0 && reply->status == STORE_OK;
}

static void submit(struct store_client *c, enum store_op op, const char *key, const char *text, unsigned *ok)
{
	struct store_msg m = {.op = op,
			      .key = (const uint8_t *)key,
			      .key_len = strlen(key),
			      .value = (const uint8_t *)text,
			      .value_len = strlen(text)};
	cr_assert_eq(store_client_submit(c, &m, world->now, TIME_NEVER, count, ok), 0);
}

/* A well-behaved client is served. */
static void served(struct store_client *c)
{
	unsigned ok = 0;
	submit(c, STORE_SET, "served", "x", &ok);
	submit(c, STORE_GET, "served", "", &ok);
	steps();
	cr_assert_eq(ok, 2u);
}

/* ---- clients of bytes ---- */

static void send_request(int h, enum store_op op, const char *key, uint64_t timeout_ns)
{
	uint8_t f[STORE_FRAME_MAX];
	struct store_msg m = {
		.op = op, .id = 1, .key = (const uint8_t *)key, .key_len = strlen(key), .timeout_ns = timeout_ns};
	size_t len = store_msg_encode(&m, f);
	for (size_t sent = 0; sent < len;) {
		long n = net->ops->send(net, h, f + sent, len - sent);
		if (n == -EAGAIN) {
			step();
			continue;
		}
		if (n < 0)
			return; /* it has been dropped */
		sent += (size_t)n;
	}
}

static int greet(void)
{
	int h = net->ops->connect(net, "h", PORT);
	cr_assert_geq(h, 0);
	send_request(h, STORE_LOGIN, "", 0);
	step();
	return h;
}

static bool is_dropped(int h)
{
	char c;
	long n;
	while ((n = net->ops->recv(net, h, &c, 1)) > 0)
		;
	return n != -EAGAIN;
}

/* ---- before LOGIN ---- */

Test(store_load, without_login_one_goes_after_its_time)
{
	int h = net->ops->connect(net, "h", PORT);
	uint64_t from = world->now;
	cr_assert_eq(step(), from + FAR_STORE_LOGIN_NS);
	world->now += FAR_STORE_LOGIN_NS - 1;
	step();
	cr_assert_not(is_dropped(h));
	world->now++;
	cr_assert_eq(step(), TIME_NEVER);
	cr_assert(is_dropped(h));
	cr_assert_eq(store_server_drops(server, STORE_DROP_UNAUTHENTICATED), 1u);
	net->ops->close(net, h);
	served(far_away);
}

Test(store_load, half_a_login_is_none)
{
	static const uint8_t begin[] = {'F', 'C', 'S', 'T', STORE_VERSION};
	int h = net->ops->connect(net, "h", PORT);
	net->ops->send(net, h, begin, sizeof begin);
	step();
	world->now += FAR_STORE_LOGIN_NS;
	step();
	cr_assert(is_dropped(h));
	net->ops->close(net, h);
}

/* Idle connections take no member's place: the oldest makes room for the next, and who speaks is served. */
Test(store_load, idle_connections_lock_nobody_out)
{
	enum { IDLE = FAR_STORE_UNAUTHENTICATED_MAX + 40 };
	static int idle[IDLE];
	for (int i = 0; i < IDLE; i++) {
		idle[i] = net->ops->connect(net, "h", PORT);
		cr_assert_geq(idle[i], 0);
		step();
	}
	cr_assert_eq(store_server_clients(server), FAR_STORE_UNAUTHENTICATED_MAX + 1u);
	cr_assert_eq(store_server_drops(server, STORE_DROP_UNAUTHENTICATED), 40u);
	for (int i = 0; i < IDLE; i++)
		cr_assert_eq(is_dropped(idle[i]), i < 40, "%d", i);
	int h = greet(); /* takes the room of a connection without LOGIN as long as it is one */
	cr_assert(is_dropped(idle[40]));
	cr_assert_not(is_dropped(h));
	served(far_away);
	cr_assert_eq(store_server_clients(server), FAR_STORE_UNAUTHENTICATED_MAX + 1u);
	world->now += FAR_STORE_LOGIN_NS;
	step();
	cr_assert_eq(store_server_clients(server), 2u);
	cr_assert_not(is_dropped(h));
	for (int i = 0; i < IDLE; i++)
		net->ops->close(net, idle[i]);
	net->ops->close(net, h);
}

/* ---- WAITs ---- */

/* Each ends at a time of its own, in a step of its own. One step that looked at all of them would take as long as all
 * steps do now; the time limit is for a test that hangs. */
Test(store_load, waits_end_without_a_walk_over_all, .timeout = 200)
{
#ifdef UNDER_SANITIZER /* which makes each step slow, and finds nothing more in more of them */
	enum { CLIENTS = 15, EACH = 2000 };
#else
	enum { CLIENTS = 75, EACH = 2000 };
#endif
	static int h[CLIENTS];
	char key[24];
	uint64_t from = world->now;
	unsigned ended = 0;
	for (int c = 0; c < CLIENTS; c++)
		h[c] = greet();
	for (int c = 0; c < CLIENTS; c++) {
		for (int i = 0; i < EACH; i++) {
			snprintf(key, sizeof key, "never/%d/%d", c, i);
			send_request(h[c], STORE_WAIT, key, SECOND + (uint64_t)(i * CLIENTS + c));
		}
		step();
	}
	for (int i = 0; i < CLIENTS * EACH; i++) {
		bool busy = false;
		cr_assert_eq(store_server_step(server, world->now, &busy), from + SECOND + (uint64_t)i);
		world->now = from + SECOND + (uint64_t)i;
		store_server_step(server, world->now, &busy);
	}
	for (int c = 0; c < CLIENTS; c++) {
		uint8_t reply[STORE_HEAD_BYTES];
		while (net->ops->recv(net, h[c], reply, sizeof reply) == (long)sizeof reply) {
			ended += reply[6] == STORE_TIMEOUT;
			step();
		}
		net->ops->close(net, h[c]);
	}
	cr_assert_eq(ended, (unsigned)(CLIENTS * EACH));
	step();
	cr_assert_eq(step(), TIME_NEVER);
}

/* Pending WAITs, by the test's own book. */
struct pending {
	int client;
	unsigned key;
	uint64_t deadline;
};
static struct pending book[8192];
static unsigned book_n;

/* Strikes those of a client, of a key (-1: any), or due by now; returns when the next is due. */
static uint64_t book_strike(int client, int key)
{
	uint64_t next = TIME_NEVER;
	unsigned kept = 0;
	for (unsigned i = 0; i < book_n; i++) {
		if (book[i].client == client || (int)book[i].key == key || book[i].deadline <= world->now)
			continue;
		next = book[i].deadline < next ? book[i].deadline : next;
		book[kept++] = book[i];
	}
	book_n = kept;
	return next;
}

/* By key, by deadline and by client at once: whichever ends one, the others do not miss it. */
Test(store_load, waits_end_in_any_order)
{
	enum { CLIENTS = 20, ROUNDS = 6000 };
	static int h[CLIENTS];
	uint64_t dice = 7;
	char key[24];
	unsigned ok = 0, sets = 0;
	for (int round = 0; round < ROUNDS; round++) {
		dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		unsigned r = (unsigned)(dice >> 33), k = r / 32 % 50, of = r % CLIENTS;
		int c = (int)of, no_client = -1, no_key = -1;
		snprintf(key, sizeof key, "k%u", k);
		if (!h[c]) {
			h[c] = greet();
		} else if (r % 61 == 0) {
			net->ops->close(net, h[c]);
			h[c] = 0;
			no_client = c;
		} else if (r % 7) {
			uint64_t timeout = r % 11 ? 1 + r % 10007 : UINT64_MAX;
			send_request(h[c], STORE_WAIT, key, timeout);
			book[book_n++] = (struct pending){c, k, time_after(world->now, timeout)};
		} else {
			submit(here, STORE_SET, key, "x", &ok);
			submit(here, STORE_DELETE, key, "", &ok);
			sets += 2;
			steps();
			no_key = (int)k;
		}
		uint64_t next = step();
		cr_assert_eq(next, book_strike(no_client, no_key), "round %d", round);
		world->now += r % 40;
		step();
		book_strike(-1, -1);
		if (h[c])
			cr_assert_not(is_dropped(h[c])); /* it reads its replies */
	}
	cr_assert_eq(ok, sets);
	cr_assert_eq(store_server_drops(server, STORE_DROP_REQUESTS), 0u);
	for (int c = 0; c < CLIENTS; c++)
		if (h[c])
			net->ops->close(net, h[c]);
	step();
	cr_assert_eq(store_server_clients(server), 1u);
	cr_assert_eq(step(), TIME_NEVER);
	served(far_away);
}

/* All clients together: beyond the bound the one with the most goes. */
Test(store_load, waits_of_all_are_bounded)
{
	enum { CLIENTS = FAR_STORE_WAITS_MAX / STORE_REQUESTS_MAX + 1 };
	static int h[CLIENTS];
	int few = greet(), c = 0;
	send_request(few, STORE_WAIT, "few", UINT64_MAX);
	for (; c < CLIENTS; c++) {
		h[c] = greet();
		for (int i = 0; i < STORE_REQUESTS_MAX - c; i++)
			send_request(h[c], STORE_WAIT, "greedy", UINT64_MAX);
		step();
	}
	for (int n = 0; n < 20 && !store_server_drops(server, STORE_DROP_REQUESTS); n++) {
		int another = greet();
		for (int i = 0; i < 1000; i++)
			send_request(another, STORE_WAIT, "greedy", UINT64_MAX);
		step();
	}
	cr_assert_eq(store_server_drops(server, STORE_DROP_REQUESTS), 1u);
	cr_assert(is_dropped(h[0]), "it had the most");
	cr_assert_not(is_dropped(few));
	served(far_away);
}

/* ---- clients that do not read ---- */

Test(store_load, requests_wait_for_a_client_that_does_not_read)
{
	unsigned ok = 0;
	submit(here, STORE_SET, "k", value, &ok);
	steps();
	int h = greet();
	for (int i = 0; i < 1000; i++) {
		uint8_t f[STORE_FRAME_MAX];
		struct store_msg m = {.op = STORE_GET, .id = 1, .key = (const uint8_t *)"k", .key_len = 1};
		net->ops->send(net, h, f, store_msg_encode(&m, f));
		step();
		cr_assert_leq(store_server_out_bytes(server), FAR_STORE_WATCH_BYTES + STORE_FRAME_MAX);
	}
	cr_assert_eq(fake_world_unwatched(world), 1u, "what it sends would keep the thread awake");
	uint64_t from = world->now;
	cr_assert_eq(step(), from + FAR_STORE_STALLED_NS);
	world->now += FAR_STORE_STALLED_NS - 1;
	step();
	cr_assert_eq(store_server_drops(server, STORE_DROP_BACKLOG), 0u);
	world->now++;
	step();
	cr_assert_eq(store_server_drops(server, STORE_DROP_BACKLOG), 1u);
	cr_assert_eq(store_server_out_bytes(server), 0u);
	net->ops->close(net, h);
	served(far_away);
}

/* It reads, as slowly as it likes: nothing is lost, and it stays. */
Test(store_load, a_slow_reader_gets_everything)
{
	unsigned ok = 0, set = 0;
	submit(here, STORE_SET, "k", value, &set);
	steps();
	for (int i = 0; i < STORE_REQUESTS_MAX; i++)
		submit(far_away, STORE_GET, "k", "", &ok);
	for (int i = 0; i < 2000 && ok < STORE_REQUESTS_MAX; i++) {
		bool busy = false;
		world->chunk = 1000;
		step();
		world->now += FAR_STORE_STALLED_NS / 2;
		store_client_step(far_away, world->now, &busy);
	}
	cr_assert_eq(ok, STORE_REQUESTS_MAX);
	cr_assert_eq(store_server_drops(server, STORE_DROP_BACKLOG), 0u);
	cr_assert_eq(fake_world_unwatched(world), 0u);
	served(far_away);
}

/* Answers to WAITs come without a request to hold back. */
Test(store_load, a_client_that_does_not_read_is_dropped)
{
	char key[16];
	unsigned ok = 0, i = 0;
	int h = greet();
	for (; i < 2 * FAR_STORE_OUT_BYTES / FAR_STORE_VALUE_MAX; i++) {
		snprintf(key, sizeof key, "k%u", i);
		send_request(h, STORE_WAIT, key, UINT64_MAX);
	}
	for (i = 0; !store_server_drops(server, STORE_DROP_BACKLOG); i++) {
		cr_assert_lt(i, 2 * FAR_STORE_OUT_BYTES / FAR_STORE_VALUE_MAX);
		snprintf(key, sizeof key, "k%u", i);
		submit(here, STORE_SET, key, value, &ok);
		steps();
		cr_assert_leq(store_server_out_bytes(server), FAR_STORE_OUT_BYTES);
	}
	cr_assert_geq(i, FAR_STORE_OUT_BYTES / STORE_FRAME_MAX);
	cr_assert_eq(store_server_out_bytes(server), 0u);
	net->ops->close(net, h);
	served(far_away);
}

/* Each within its own bound, all together beyond theirs: step() checks that it is kept. */
Test(store_load, many_that_do_not_read_are_dropped)
{
	enum { KEYS = 230, CLIENTS = 160 };
	static int h[CLIENTS];
	char key[16];
	unsigned ok = 0;
	for (int c = 0; c < CLIENTS; c++) {
		h[c] = greet();
		for (int i = 0; i < KEYS; i++) {
			snprintf(key, sizeof key, "k%d", i);
			send_request(h[c], STORE_WAIT, key, UINT64_MAX);
		}
		step();
	}
	for (int i = 0; i < KEYS; i++) {
		snprintf(key, sizeof key, "k%d", i);
		submit(here, STORE_SET, key, value, &ok);
		steps();
	}
	cr_assert_eq(ok, (unsigned)KEYS);
	cr_assert_geq(store_server_drops(server, STORE_DROP_BACKLOG), 1u);
	cr_assert_leq(store_server_drops(server, STORE_DROP_BACKLOG), CLIENTS / 4u);
	cr_assert_gt(store_server_out_bytes(server), FAR_STORE_OUT_BYTES_ALL / 2);
	served(far_away);
	for (int c = 0; c < CLIENTS; c++)
		net->ops->close(net, h[c]);
	step();
	cr_assert_eq(store_server_out_bytes(server), 0u);
}

/* ---- descriptors, keys ---- */

/* None is left: who has said nothing makes room, who has does not. */
Test(store_load, without_descriptors)
{
	int idle = net->ops->connect(net, "h", PORT);
	step();
	world->accept_error = -EMFILE;
	int h = net->ops->connect(net, "h", PORT);
	uint64_t from = world->now;
	cr_assert_eq(step(), from + UINT64_C(50000000), "tried again, after a rest");
	cr_assert(is_dropped(idle));
	cr_assert_eq(store_server_accept_error(server), -EMFILE);
	served(far_away);
	world->accept_error = 0;
	world->now += UINT64_C(50000000);
	step();
	cr_assert_eq(store_server_accept_error(server), 0);
	send_request(h, STORE_LOGIN, "", 0);
	step();
	cr_assert_not(is_dropped(h));
	cr_assert_eq(store_server_clients(server), 2u);
	net->ops->close(net, idle);
	net->ops->close(net, h);
}

/* As a member of group "g". */
static int greet_as(int rank)
{
	uint8_t f[STORE_FRAME_MAX];
	struct store_identity who = {.rank = rank, .incarnation = 1, .group = "g", .name = "w"};
	struct store_auth greeting = {.login_len = 0};
	int h = net->ops->connect(net, "h", PORT);
	store_login_make(&greeting, &who, &random_kernel);
	struct store_msg m = {.op = STORE_LOGIN, .value = greeting.login, .value_len = greeting.login_len};
	net->ops->send(net, h, f, store_msg_encode(&m, f));
	step();
	return h;
}

static enum store_status write_key(int h, enum store_op op, const char *key)
{
	uint8_t reply[STORE_FRAME_MAX];
	step();
	while (net->ops->recv(net, h, reply, sizeof reply) > 0)
		step();
	send_request(h, op, key, SECOND);
	step();
	cr_assert_geq(net->ops->recv(net, h, reply, sizeof reply), STORE_HEAD_BYTES);
	return (enum store_status)reply[6];
}

Test(store_load, a_full_table_has_room_for_members)
{
	static const char *const others[] = {"other",    "g/other",    "g/rank",   "g/rankx/1", "g/bye/",
					     "g/bye/1x", "g/bye/4",    "g/byex/1", "g/info1",   "h/info/1",
					     "g/list/1", "g/bye/0001", "gg/bye/1", "g/bye2/2"};
	unsigned ok = 0;
	char key[24];
	store_server_reserve(server, "g", 4);
	int member = greet_as(1), second = greet_as(2), other = greet();
	cr_assert_eq(write_key(member, STORE_HOLD, "g/rank/1"), STORE_OK);
	for (int i = 1; i < FAR_STORE_KEYS_MAX; i++) {
		snprintf(key, sizeof key, "%d", i);
		cr_assert_eq(write_key(other, STORE_SET, key), STORE_OK);
	}
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		enum store_status refused = write_key(member, STORE_SET, others[i]);
		cr_assert(refused == STORE_FULL || refused == STORE_DENIED, "%s", others[i]);
	}
	cr_assert_eq(write_key(other, STORE_ADD, "sum"), STORE_FULL);
	cr_assert_eq(write_key(other, STORE_CAS, "cas"), STORE_FULL);
	cr_assert_eq(write_key(second, STORE_SET, "g/other"), STORE_FULL);
	cr_assert_eq(write_key(other, STORE_SET, "7"), STORE_OK, "there already");
	for (int i = 0; i < FAR_STORE_RESERVED_MAX; i++) {
		snprintf(key, sizeof key, "g/bye%d/1", i);
		cr_assert_eq(write_key(member, STORE_SET, key), STORE_OK, "%s", key);
	}
	cr_assert_eq(write_key(member, STORE_SET, "g/bye99/1"), STORE_FULL);
	cr_assert_eq(write_key(member, STORE_DELETE, "g/bye0/1"), STORE_OK);
	cr_assert_eq(write_key(member, STORE_SET, "g/bye99/1"), STORE_OK);
	cr_assert_eq(write_key(second, STORE_HOLD, "g/rank/2"), STORE_OK);
	cr_assert_eq(write_key(second, STORE_SET, "g/info/2"), STORE_OK);
	submit(here, STORE_SET, "g/list/1", "", &ok);
	steps();
	cr_assert_eq(ok, 1u);
	net->ops->close(net, member);
	net->ops->close(net, second);
	net->ops->close(net, other);
}

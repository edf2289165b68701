/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's server under load and malice: what idle, greedy and deaf clients may cost, and that the others go on.
 * The test's thread. */
#include "store_load.h"

#include <stdio.h>

static char value[FAR_STORE_VALUE_MAX + 1];

static void setup(void)
{
	pair_setup();
	memset(value, 'v', FAR_STORE_VALUE_MAX);
}

TestSuite(store_load, .init = setup, .fini = pair_teardown);

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
	served(remote);
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
	served(remote);
	cr_assert_eq(store_server_clients(server), FAR_STORE_UNAUTHENTICATED_MAX + 1u);
	world->now += FAR_STORE_LOGIN_NS;
	step();
	cr_assert_eq(store_server_clients(server), 2u);
	cr_assert_not(is_dropped(h));
	for (int i = 0; i < IDLE; i++)
		net->ops->close(net, idle[i]);
	net->ops->close(net, h);
}

/* ---- clients that do not read ---- */

Test(store_load, requests_wait_for_a_client_that_does_not_read)
{
	unsigned ok = 0;
	submit_counted(here, STORE_SET, "k", value, &ok);
	settle();
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
	served(remote);
}

/* It reads, as slowly as it likes: nothing is lost, and it stays. */
Test(store_load, a_slow_reader_gets_everything)
{
	unsigned ok = 0, set = 0;
	submit_counted(here, STORE_SET, "k", value, &set);
	settle();
	for (int i = 0; i < STORE_REQUESTS_MAX; i++)
		submit_counted(remote, STORE_GET, "k", "", &ok);
	for (int i = 0; i < 2000 && ok < STORE_REQUESTS_MAX; i++) {
		bool busy = false;
		world->chunk = 1000;
		step();
		world->now += FAR_STORE_STALLED_NS / 2;
		store_client_step(remote, world->now, &busy);
	}
	cr_assert_eq(ok, STORE_REQUESTS_MAX);
	cr_assert_eq(store_server_drops(server, STORE_DROP_BACKLOG), 0u);
	cr_assert_eq(fake_world_unwatched(world), 0u);
	served(remote);
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
		submit_counted(here, STORE_SET, key, value, &ok);
		settle();
		cr_assert_leq(store_server_out_bytes(server), FAR_STORE_OUT_BYTES);
	}
	cr_assert_geq(i, FAR_STORE_OUT_BYTES / STORE_FRAME_MAX);
	cr_assert_eq(store_server_out_bytes(server), 0u);
	net->ops->close(net, h);
	served(remote);
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
		submit_counted(here, STORE_SET, key, value, &ok);
		settle();
	}
	cr_assert_eq(ok, (unsigned)KEYS);
	cr_assert_geq(store_server_drops(server, STORE_DROP_BACKLOG), 1u);
	cr_assert_leq(store_server_drops(server, STORE_DROP_BACKLOG), CLIENTS / 4u);
	cr_assert_gt(store_server_out_bytes(server), FAR_STORE_OUT_BYTES_ALL / 2);
	served(remote);
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
	served(remote);
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

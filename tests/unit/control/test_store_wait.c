/* SPDX-License-Identifier: BSD-3-Clause */
/* Pending WAITs: answered by each kind of write, ended by deadlines and with their clients, and bounded. The test's
 * thread. */
#include "store_load.h"

#include <stdio.h>

TestSuite(store_wait, .init = pair_setup, .fini = pair_teardown);

Test(store_wait, wait_is_answered_by_each_kind_of_write)
{
	struct answer one, two, three;
	cr_assert_eq(submit(remote, STORE_WAIT, "w1", NULL, NULL, 0, &one), 0);
	cr_assert_eq(submit(remote, STORE_WAIT, "w2", NULL, NULL, 0, &two), 0);
	cr_assert_eq(submit(here, STORE_WAIT, "w3", NULL, NULL, 0, &three), 0);
	steps();
	cr_assert_eq(one.calls + two.calls + three.calls, 0);
	/* Other requests of the same client overtake a pending WAIT. */
	request(remote, STORE_SET, "other", "x", NULL, 0);
	request(here, STORE_SET, "w1", "v", NULL, 0);
	request(here, STORE_ADD, "w2", NULL, NULL, 3);
	request(remote, STORE_CAS, "w3", "z", "", 0);
	holds(one, STORE_OK, "v");
	holds(two, STORE_OK, "3");
	holds(three, STORE_OK, "z");
	holds(request(here, STORE_WAIT, "w1", NULL, NULL, 0), STORE_OK, "v");
}

Test(store_wait, wait_ends_at_its_deadline_on_both_sides)
{
	struct answer one, other;
	cr_assert_eq(submit(here, STORE_WAIT, "w", NULL, NULL, 0, &one), 0);
	cr_assert_eq(submit(remote, STORE_WAIT, "w", NULL, NULL, 0, &other), 0);
	steps();
	bool busy = false;
	cr_assert_eq(store_server_step(server, world->now, &busy), world->now + SECOND);
	world->now += SECOND - 1;
	steps();
	cr_assert_eq(one.calls + other.calls, 0);
	world->now += 1;
	steps();
	cr_assert_eq(one.calls, 1);
	cr_assert_eq(other.calls, 1);
	cr_assert(one.result == -ETIMEDOUT || one.status == STORE_TIMEOUT);
	cr_assert(other.result == -ETIMEDOUT || other.status == STORE_TIMEOUT);
	/* Nothing is left to wake up for. */
	cr_assert_eq(store_server_step(server, world->now, &busy), TIME_NEVER);
	cr_assert_eq(store_client_step(remote, world->now, &busy), TIME_NEVER);
}

/* Each ends at a time of its own, in a step of its own. One step that looked at all of them would take as long as all
 * steps do now; the time limit is for a test that hangs. */
Test(store_wait, waits_end_without_a_walk_over_all, .timeout = 200)
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
Test(store_wait, waits_end_in_any_order)
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
			submit_counted(here, STORE_SET, key, "x", &ok);
			submit_counted(here, STORE_DELETE, key, "", &ok);
			sets += 2;
			settle();
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
	served(remote);
}

/* All clients together: beyond the bound the one with the most goes. */
Test(store_wait, waits_of_all_are_bounded)
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
	served(remote);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's watches: each change once and in order, slow clients, bounds. The test's thread. */
#include "store_heard.h"

TestSuite(store_watch, .init = heard_setup, .fini = heard_teardown);

Test(store_watch, tells_each_change_once_in_order)
{
	request_once(third, STORE_SET, "k/1", "before", "0:");
	watch(remote, "k/", STORE_WATCH_FROM_NOW, &heard[0]);
	watch(here, "k/", 0, &heard[1]);
	request_once(third, STORE_SET, "k/2", "x", "0:");
	request_once(here, STORE_SET, "k/1", "y", "0:");
	request_once(third, STORE_SET, "other", "z", "0:");
	request_once(remote, STORE_ADD, "k/3", "", "0:");
	request_once(third, STORE_DELETE, "k/2", "", "0:");
	request_once(third, STORE_DELETE, "k/2", "", "1:");
	request_once(third, STORE_CAS, "k/2", "w", "0:");
	settle();
	HEARD(&heard[0], "k/2=x", "k/1=y", "k/3=0", "k/2-", "k/2=w");
	HEARD(&heard[1], "k/1=before", "k/2=x", "k/1=y", "k/3=0", "k/2-", "k/2=w");
}

Test(store_watch, of_one_key_or_of_all_that_begin_so)
{
	watch(remote, "k", STORE_WATCH_EXACT | STORE_WATCH_FROM_NOW, &heard[0]);
	watch(remote, "k", 0, &heard[1]);
	request_once(third, STORE_SET, "k1", "x", "0:");
	request_once(third, STORE_SET, "k", "y", "0:");
	HEARD(&heard[0], "k=y");
	HEARD(&heard[1], "k1=x", "k=y");
}

Test(store_watch, earlier_deletions_are_not_reported)
{
	watch(here, "k", 0, &heard[1]); /* deleted keys are kept from now on */
	request_once(third, STORE_SET, "k", "x", "0:");
	send_request(third, STORE_DELETE, "k", "", 0, SECOND, &heard[3]);
	send_request(remote, STORE_WATCH, "k", "", 0, TIME_NEVER, &heard[0]);
	settle(); /* c, which came last, is served first */
	cr_assert_eq(heard[0].n, 1u);
	cr_assert_str_eq(heard[0].news[0], ".");
	HEARD(&heard[1], "k=x", "k-");
}

/* The client does not read: what it misses is made up for by the latest values, and costs no memory. */
Test(store_watch, slow_client_gets_the_latest)
{
	static char value[FAR_STORE_VALUE_MAX];
	char key[16];
	memset(value, 'v', sizeof value - 1);
	watch(remote, "k/", 0, &heard[0]);
	remote_stopped = true;
	for (int round = 0; round < 40; round++) {
		for (int i = 0; i < 64; i++) {
			snprintf(key, sizeof key, "k/%02d", i);
			snprintf(value, sizeof value, "%02d", round);
			value[2] = 'v';
			send_request(here, STORE_SET, key, value, 0, SECOND, &heard[3]);
		}
		settle_n(80);
		heard[3].n = 0;
	}
	cr_assert_eq(store_server_drops(server, STORE_DROP_BACKLOG), 0u);
	remote_stopped = false;
	settle_n(400);
	/* Each key came to its last value, in order; far fewer than there were changes. */
	cr_assert_lt(heard[0].n, 64u * 40u);
	for (unsigned i = 0; i < 64; i++) {
		const char *last = heard[0].news[heard[0].n - 64 + i];
		snprintf(key, sizeof key, "k/%02u=39v", i);
		cr_assert(strncmp(last, key, strlen(key)) == 0, "%s, not %s", last, key);
	}
}

Test(store_watch, a_deleted_key_is_reported_to_slow_clients)
{
	static char value[FAR_STORE_VALUE_MAX];
	memset(value, 'v', sizeof value - 1);
	watch(remote, "k", 0, &heard[0]);
	remote_stopped = true;
	request_once(here, STORE_SET, "k", "x", "0:");
	for (int i = 0; i < 100; i++)
		request_once(here, STORE_SET, "k/long", value, "0:");
	request_once(here, STORE_DELETE, "k", "", "0:");
	remote_stopped = false;
	settle_n(200);
	cr_assert_str_eq(heard[0].news[heard[0].n - 1], "k-");
}

/* Keys that come and go while somebody does not read: the table does not grow for it without bound. */
Test(store_watch, too_slow_for_what_is_deleted_is_dropped)
{
	static char value[FAR_STORE_VALUE_MAX];
	char key[16];
	memset(value, 'v', sizeof value - 1);
	watch(remote, "k", 0, &heard[0]);
	watch(third, "k/none", 0, &heard[1]);
	remote_stopped = true;
	for (int i = 0; i < 100; i++)
		request_once(here, STORE_SET, "k/long", value, "0:");
	unsigned i = 0;
	for (; i < 2 * FAR_STORE_DELETED_MAX && !store_server_drops(server, STORE_DROP_BACKLOG); i++) {
		snprintf(key, sizeof key, "k%u", i);
		send_request(here, STORE_SET, key, value, 0, SECOND, &heard[3]);
		send_request(here, STORE_DELETE, key, "", 0, SECOND, &heard[3]);
		settle_n(2);
		heard[3].n = 0;
	}
	cr_assert_eq(store_server_drops(server, STORE_DROP_BACKLOG), 1u);
	cr_assert_geq(i, FAR_STORE_DELETED_MAX);
	cr_assert_eq(store_client_connection(third), STORE_CONNECTED);
	remote_stopped = false;
	settle();
	cr_assert_eq(store_client_connection(remote), STORE_LOST);
	cr_assert_str_eq(heard[0].news[heard[0].n - 1], "end");
}

Test(store_watch, watches_of_a_client_are_bounded)
{
	for (int i = 0; i < FAR_STORE_WATCHES_MAX; i++)
		send_request(remote, STORE_WATCH, "k", "", 0, TIME_NEVER, &heard[0]);
	send_request(remote, STORE_WATCH, "k", "", 0, TIME_NEVER, &heard[1]);
	settle();
	cr_assert_eq(heard[0].n, (unsigned)FAR_STORE_WATCHES_MAX);
	cr_assert_eq(heard[1].n, 1u);
	cr_assert_str_eq(heard[1].news[0], "refused");
	request_once(third, STORE_SET, "k", "x", "0:");
	settle();
	cr_assert_eq(heard[0].n, 2u * FAR_STORE_WATCHES_MAX);
	cr_assert_eq(heard[1].n, 1u);
	/* They go with the client. */
	store_client_destroy(remote);
	remote = NULL;
	request_once(third, STORE_SET, "k", "y", "0:");
	request_once(third, STORE_DELETE, "k", "", "0:");
	cr_assert_eq(store_server_clients(server), 1u);
}

/* While a group ends, the end of a client is reported to the one in the server's process alone. */
Test(store_watch, goings_after_the_door_is_shut)
{
	request_once(remote, STORE_HOLD, "k", "b", "0:");
	watch(here, "k", STORE_WATCH_FROM_NOW, &heard[0]);
	watch(third, "k", STORE_WATCH_FROM_NOW, &heard[1]);
	store_server_shut(server);
	store_client_destroy(remote);
	remote = NULL;
	request_once(third, STORE_SET, "k2", "x", "0:");
	HEARD(&heard[0], "k-", "k2=x");
	HEARD(&heard[1], "k2=x");
}

Test(store_watch, malformed_requests_drop_their_client)
{
	static const struct {
		enum store_op op;
		const char *key;
		int64_t number;
		size_t at;
		uint8_t value;
	} cases[] = {
		{STORE_WATCH, "k", 4, 0, 'F'}, {STORE_WATCH, "k", -1, 0, 'F'}, {STORE_WATCH, "", 0, 0, 'F'},
		{STORE_HOLD, "", 0, 0, 'F'},   {STORE_HOLD, "k", 2, 0, 'F'},   {STORE_PING, "k", 0, 0, 'F'},
		{STORE_PING, "", 1, 0, 'F'},   {STORE_WATCH, "k", 0, 5, 0x89}, {STORE_PING, "", 0, 5, 0x8a},
		{STORE_WATCH, "k", 0, 35, 1},  {STORE_HOLD, "k", 0, 37, 1},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint8_t f[STORE_FRAME_MAX];
		uint64_t before = store_server_drops(server, STORE_DROP_MALFORMED);
		int h = net->ops->connect(net, "h", PORT);
		net->ops->send(net, h, f, raw(f, STORE_LOGIN, "", 0));
		settle();
		size_t len = raw(f, cases[i].op, cases[i].key, cases[i].number);
		f[cases[i].at] = cases[i].value;
		memset(f + len, 'x', 1); /* what a length announces */
		net->ops->send(net, h, f, len + 1);
		settle();
		cr_assert_eq(store_server_drops(server, STORE_DROP_MALFORMED), before + 1, "case %zu", i);
		net->ops->close(net, h);
	}
}

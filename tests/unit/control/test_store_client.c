/* SPDX-License-Identifier: BSD-3-Clause */
/** The store's client: limits and deadlines of requests, attempts to connect, the end of the connection. The test's
 * thread. */
#include "store_pair.h"

#include <errno.h>
#include <stdio.h>

TestSuite(store_client, .init = pair_setup, .fini = pair_teardown);

Test(store_client, client_deadline_needs_no_server)
{
	struct answer out;
	bool busy = false;
	cr_assert_eq(submit(remote, STORE_GET, "k", NULL, NULL, 0, &out), 0);
	cr_assert_eq(store_client_step(remote, world->now, &busy), world->now + SECOND);
	world->now += SECOND;
	store_client_step(remote, world->now, &busy);
	cr_assert_eq(out.calls, 1);
	cr_assert_eq(out.result, -ETIMEDOUT);
	/* The late reply is ignored. */
	steps();
	cr_assert_eq(out.calls, 1);
	cr_assert_eq(store_client_connection(remote), STORE_CONNECTED);
}

Test(store_client, limits_of_key_and_value)
{
	static char key[FAR_STORE_KEY_MAX + 2], value[FAR_STORE_VALUE_MAX + 2];
	struct answer out;
	memset(key, 'k', FAR_STORE_KEY_MAX);
	memset(value, 'v', FAR_STORE_VALUE_MAX);
	cr_assert_eq(request(remote, STORE_CAS, key, value, "", 0).status, STORE_OK);
	cr_assert_eq(request(remote, STORE_CAS, key, value, value, 0).status, STORE_OK);
	holds(request(remote, STORE_GET, key, NULL, NULL, 0), STORE_OK, value);
	value[FAR_STORE_VALUE_MAX] = 'v';
	cr_assert_eq(submit(remote, STORE_SET, key, value, NULL, 0, &out), -EMSGSIZE);
	key[FAR_STORE_KEY_MAX] = 'k';
	cr_assert_eq(submit(remote, STORE_SET, key, "", NULL, 0, &out), -EMSGSIZE);
	cr_assert_eq(submit(remote, STORE_SET, "", "", NULL, 0, &out), -EINVAL);
}

Test(store_client, small_sends)
{
	static char value[FAR_STORE_VALUE_MAX + 1];
	memset(value, 'v', FAR_STORE_VALUE_MAX);
	world->chunk = 7;
	holds(request(remote, STORE_SET, "k", value, NULL, 0), STORE_OK, "");
	holds(request(remote, STORE_GET, "k", NULL, NULL, 0), STORE_OK, value);
}

Test(store_client, requests_outstanding_are_bounded)
{
	static struct answer out[STORE_REQUESTS_MAX + 1];
	char key[16];
	for (int i = 0; i < STORE_REQUESTS_MAX; i++) {
		snprintf(key, sizeof key, "w%d", i);
		cr_assert_eq(submit(remote, STORE_WAIT, key, NULL, NULL, 0, &out[i]), 0);
	}
	cr_assert_eq(submit(remote, STORE_WAIT, "w", NULL, NULL, 0, &out[STORE_REQUESTS_MAX]), -ENOBUFS);
	steps();
	cr_assert_eq(store_client_connection(remote), STORE_CONNECTED);
	for (int i = 0; i < STORE_REQUESTS_MAX; i++) {
		snprintf(key, sizeof key, "w%d", i);
		request(here, STORE_SET, key, "v", NULL, 0);
		cr_assert_eq(out[i].calls, 1);
	}
}

Test(store_client, server_death_ends_requests)
{
	struct answer out;
	cr_assert_eq(submit(remote, STORE_WAIT, "k", NULL, NULL, 0, &out), 0);
	steps();
	store_server_destroy(server);
	server = store_server_create(net, -1);
	bool busy = false;
	store_client_step(remote, world->now, &busy);
	cr_assert_eq(out.calls, 1);
	cr_assert_lt(out.result, 0);
	cr_assert_eq(store_client_connection(remote), STORE_LOST);
	cr_assert_eq(submit(remote, STORE_GET, "k", NULL, NULL, 0, &out), -ENOTCONN);
	store_client_destroy(here);
	here = store_client_create(store_stream_local(server));
}

Test(store_client, connects_again_until_there_is_a_server)
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

Test(store_client, an_unexpected_server_at_the_port_is_recognised)
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

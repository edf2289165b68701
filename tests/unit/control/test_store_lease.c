/* SPDX-License-Identifier: BSD-3-Clause */
/* Leases of the store's clients: renewed while both ends run, ended by silence, kept over a broken network.
 * The test's thread. */
#include "control/lease.h"
#include "control/store.h"
#include "control/store_proof.h"
#include "control/store_wire.h"
#include "fake_net.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PORT   1
#define MS     UINT64_C(1000000)
#define LEASE  (400 * MS)
#define SECOND (1000 * MS)

static struct fake_world *world;
static struct ctl_net *net;
static struct store_server *server;
static struct store_client *here, *member; /* here: in the server's process */
static bool stopped;                       /* the member's process */
static char reply[64], news[64];

static struct store_client *member_new(int rank, uint64_t incarnation)
{
	struct store_client *c = store_client_create(store_stream_tcp(net, "h", PORT));
	struct store_login login = {.who = {.rank = rank, .incarnation = incarnation, .group = "g", .name = "w"},
				    .random = &random_kernel,
				    .lease_ns = LEASE};
	store_client_login(c, &login);
	return c;
}

static void steps(void)
{
	for (int i = 0; i < 50; i++) {
		bool busy = false;
		store_server_step(server, world->now, &busy);
		store_client_step(here, world->now, &busy);
		if (member && !stopped)
			store_client_step(member, world->now, &busy);
	}
}

static void pass(uint64_t ns)
{
	for (uint64_t until = world->now + ns; world->now < until;) {
		world->now += ns < 10 * MS ? ns : 10 * MS;
		steps();
	}
}

static void on_reply(void *user, int result, const struct store_msg *m)
{
	if (result)
		snprintf(user, sizeof reply, "end");
	else
		snprintf(user, sizeof reply, "%d:%.*s:%d", (int)m->status, (int)m->value_len, (const char *)m->value,
			 (int)m->number);
}

static const char *request(struct store_client *from, enum store_op op, const char *key, const char *value)
{
	struct store_msg m = {.op = op,
			      .key = (const uint8_t *)key,
			      .key_len = strlen(key),
			      .value = (const uint8_t *)value,
			      .value_len = strlen(value)};
	reply[0] = 0;
	cr_assert_eq(store_client_submit(from, &m, world->now, TIME_NEVER, on_reply, op == STORE_WATCH ? news : reply),
		     0);
	steps();
	return reply;
}

static void setup(void)
{
	world = fake_world_create();
	world->now = SECOND;
	net = fake_net_create(world);
	server = store_server_create(net, net->ops->listen(net, "h", PORT, -1));
	here = store_client_create(store_stream_local(server));
	member = member_new(1, 7);
	stopped = false;
	steps();
	cr_assert_str_eq(request(member, STORE_HOLD, "g/rank/1", "claim"), "0::0");
	request(here, STORE_WATCH, "g/rank/", "");
	steps();
}

static void teardown(void)
{
	store_client_destroy(here);
	store_client_destroy(member);
	store_server_destroy(server);
	net->ops->destroy(net);
	fake_world_destroy(world);
}

TestSuite(store_lease, .init = setup, .fini = teardown);

Test(store_lease, a_member_renews_it)
{
	for (int i = 0; i < 20; i++) {
		pass(LEASE / 2);
		cr_assert_leq(world->now - store_client_kept(member), lease_interval(LEASE) + 10 * MS);
	}
	cr_assert_eq(store_server_drops(server, STORE_DROP_LEASE), 0u);
	cr_assert_str_eq(request(here, STORE_GET, "g/rank/1", ""), "0:claim:0");
}

/* The holder's clock says that it is over before the store's does. */
Test(store_lease, silence_ends_it)
{
	uint64_t kept = store_client_kept(member);
	stopped = true;
	pass(LEASE);
	cr_assert_geq(world->now, kept + LEASE);
	cr_assert_eq(store_server_drops(server, STORE_DROP_LEASE), 0u);
	pass(lease_with_margin(LEASE) - LEASE + lease_interval(LEASE));
	cr_assert_eq(store_server_drops(server, STORE_DROP_LEASE), 1u);
	cr_assert_str_eq(news, "1::1"); /* MISSING, because of the lease */
	cr_assert_str_eq(request(here, STORE_GET, "g/rank/1", ""), "1::0");
	stopped = false;
	steps();
	cr_assert_eq(store_client_connection(member), STORE_LOST);
	cr_assert_eq(store_client_kept(member), 0u);
}

static uint64_t world_now(void *ctx)
{
	return world->now;
}

/* A store that is stopped when its step has begun, and before that reads. */
Test(store_lease, a_renewal_counts_from_when_it_was_read)
{
	const struct clock_source clock = {world_now, NULL};
	bool busy = false;
	store_server_set_clock(server, &clock);
	world->now += LEASE / 2;
	uint64_t began = world->now;
	store_client_step(member, world->now, &busy);
	world->now += 2 * LEASE;
	store_server_step(server, began, &busy);
	store_server_step(server, world->now, &busy);
	cr_assert_eq(store_server_drops(server, STORE_DROP_LEASE), 0u);
	steps();
	store_server_set_clock(server, NULL);
}

/* Renewals that wait in the host of a stopped store count for the member. */
Test(store_lease, renewals_arrive_at_a_stopped_store)
{
	bool busy = false;
	uint64_t kept = store_client_kept(member);
	for (int i = 0; i < 500; i++) {
		world->now += 10 * MS;
		store_client_step(member, world->now, &busy);
		if (i >= 50)
			cr_assert_leq(world->now - store_client_arrived(member),
				      lease_interval(LEASE) + LEASE / 16 + 20 * MS);
	}
	cr_assert_eq(store_client_kept(member), kept);
	steps();
	pass(LEASE);
	cr_assert_leq(world->now - store_client_kept(member), lease_interval(LEASE) + 10 * MS);
	cr_assert_eq(store_server_drops(server, STORE_DROP_LEASE), 0u);
}

/* Nothing is received any more: the last renewal that was received counts. */
Test(store_lease, renewals_do_not_arrive)
{
	bool busy = false;
	uint64_t arrived = store_client_arrived(member);
	world->unacknowledged = 1;
	for (int i = 0; i < 500; i++) {
		world->now += 10 * MS;
		store_client_step(member, world->now, &busy);
	}
	cr_assert_eq(store_client_arrived(member), arrived);
}

/* The store's process stands still: what has arrived meanwhile counts. */
Test(store_lease, a_pause_of_the_store_ends_none)
{
	bool busy = false;
	for (int i = 0; i < 500; i++) {
		world->now += 10 * MS;
		store_client_step(member, world->now, &busy);
	}
	steps();
	cr_assert_eq(store_server_drops(server, STORE_DROP_LEASE), 0u);
	cr_assert_str_eq(request(here, STORE_GET, "g/rank/1", ""), "0:claim:0");
}

Test(store_lease, the_end_of_the_process_ends_it_at_once)
{
	store_client_destroy(member);
	member = NULL;
	steps();
	cr_assert_eq(store_server_drops(server, STORE_DROP_CLOSED), 1u);
	cr_assert_str_eq(news, "1::0");
}

/* Another incarnation that wants the records waits for the end of the lease, not only for a silence. */
Test(store_lease, a_claim_waits_for_its_end)
{
	struct store_client *other = member;
	stopped = true;
	member = member_new(1, 8);
	stopped = false;
	steps();
	cr_assert_str_eq(request(member, STORE_HOLD, "g/rank/1", "new"), "");
	pass(LEASE / 2);
	cr_assert_str_eq(reply, "");
	pass(LEASE);
	cr_assert_str_eq(reply, "0::0");
	cr_assert_str_eq(request(here, STORE_GET, "g/rank/1", ""), "0:new:0");
	store_client_destroy(other);
	steps();
	cr_assert_str_eq(request(here, STORE_GET, "g/rank/1", ""), "0:new:0");
}

static void send_raw(int handle, struct store_msg m)
{
	uint8_t frame[STORE_FRAME_MAX];
	m.timeout_ns = UINT64_MAX;
	size_t len = store_msg_encode(&m, frame);
	cr_assert_eq(net->ops->send(net, handle, frame, len), (long)len);
	steps();
}

/* A renewal that was on its way when its host died proves nothing about the claim of the next incarnation. */
Test(store_lease, a_renewal_answers_no_claim)
{
	struct store_client *other = member;
	const struct store_identity who = {.rank = 2, .incarnation = 9, .group = "g", .name = "v"};
	struct store_auth greeting;
	store_login_make(&greeting, &who, &random_kernel);
	int raw = net->ops->connect(net, "h", PORT);
	send_raw(raw, (struct store_msg){.op = STORE_LOGIN, .value = greeting.login, .value_len = greeting.login_len});
	send_raw(raw, (struct store_msg){.op = STORE_PING, .id = 1, .number = (int64_t)LEASE});
	send_raw(raw, (struct store_msg){.op = STORE_HOLD,
					 .id = 2,
					 .key = (const uint8_t *)"g/rank/2",
					 .key_len = 8,
					 .value = (const uint8_t *)"raw",
					 .value_len = 3});
	member = member_new(2, 10);
	steps();
	cr_assert_str_eq(request(member, STORE_HOLD, "g/rank/2", "new"), "");
	send_raw(raw, (struct store_msg){.op = STORE_PING, .id = 3, .number = (int64_t)LEASE});
	cr_assert_str_eq(reply, "", "it may have been sent before the claim");
	send_raw(raw, (struct store_msg){.op = STORE_PING, .number = (int64_t)LEASE});
	cr_assert_str_eq(reply, "2:raw:0", "the answer to the server");
	net->ops->close(net, raw);
	store_client_destroy(other);
}

/* The same incarnation takes its records over; the former connection's end does not matter any more. */
Test(store_lease, a_new_connection_takes_the_records_over)
{
	struct store_client *former = member;
	cr_assert_str_eq(request(member, STORE_HOLD, "g/info/1", "info"), "0::0");
	member = member_new(1, 7);
	steps();
	cr_assert_str_eq(request(member, STORE_HOLD, "g/rank/1", "claim"), "0::0");
	store_client_destroy(former);
	steps();
	cr_assert_str_eq(request(here, STORE_GET, "g/info/1", ""), "0:info:0");
	cr_assert_str_eq(request(here, STORE_GET, "g/rank/1", ""), "0:claim:0");
	pass(2 * LEASE);
	cr_assert_str_eq(request(here, STORE_GET, "g/info/1", ""), "0:info:0");
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of the application's keys at a second member: when changes are acknowledged, and what a store that begins anew
 * has of them. */
#include "control/lease.h"
#include "control/store.h"
#include "fake_net.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PORT   1
#define MS     UINT64_C(1000000)
#define LEASE  (2000 * MS) /* longer than FAR_STORE_COPY_NS */
#define SECOND (1000 * MS)

enum { MEMBERS = 3, SAID = 96 };

static struct fake_world *world;
static struct ctl_net *net;
static struct store_server *server; /* NULL: rank 0 is not there */
static struct member {
	struct store_client *client;
	struct store_copy copy;
	bool stopped;   /* its process */
} members[MEMBERS + 1]; /* by rank; [0] is no member, and the application's client */
static char said[SAID], waited[SAID], watched[SAID];

static void on_reply(void *user, int result, const struct store_msg *m)
{
	if (result)
		snprintf(user, SAID, "end");
	else
		snprintf(user, SAID, "%d:%.*s:%d", (int)m->status, (int)m->value_len, (const char *)m->value,
			 (int)m->number);
}

static void steps(void)
{
	for (int i = 0; i < 60; i++) {
		bool busy = false;
		if (server)
			store_server_step(server, world->now, &busy);
		for (int r = 0; r <= MEMBERS; r++)
			if (members[r].client && !members[r].stopped)
				store_client_step(members[r].client, world->now, &busy);
	}
}

static void pass(uint64_t ns)
{
	for (uint64_t until = world->now + ns; world->now < until;) {
		world->now += 10 * MS;
		steps();
	}
}

/* Submits a request of the application, and returns what it has been answered. */
static const char *request_into(char *into, enum store_op op, const char *key, const char *value, const char *expected,
				int64_t number)
{
	struct store_msg m = {.op = op,
			      .number = number,
			      .key = (const uint8_t *)key,
			      .key_len = strlen(key),
			      .value = (const uint8_t *)value,
			      .value_len = strlen(value),
			      .expected = (const uint8_t *)expected,
			      .expected_len = strlen(expected)};
	into[0] = 0;
	cr_assert_eq(store_client_submit(members[0].client, &m, world->now, TIME_NEVER, on_reply, into), 0);
	steps();
	return into;
}

static const char *set(const char *key, const char *value)
{
	return request_into(said, STORE_SET, key, value, "", 0);
}

static const char *get(const char *key)
{
	return request_into(said, STORE_GET, key, "", "", 0);
}

static const char *add(const char *key, int64_t number)
{
	return request_into(said, STORE_ADD, key, "", "", number);
}

static void connects(int rank, uint64_t incarnation)
{
	struct member *m = &members[rank];
	struct store_login login = {.who = {.rank = rank ? rank : STORE_RANK_NONE, .group = "g", .name = "w"},
				    .random = &random_kernel};
	store_client_destroy(m->client);
	m->client = store_client_create(store_stream_tcp(net, "h", PORT));
	m->stopped = false;
	if (rank) {
		snprintf(login.who.name, sizeof login.who.name, "w%d", rank);
		login.who.incarnation = incarnation;
		login.lease_ns = LEASE;
		login.copy = &m->copy;
	}
	store_client_login(m->client, &login);
	steps();
}

static void reported(void *user, int result, const struct store_msg *m)
{
	struct member *of = user;
	if (!result && m->status == STORE_OK)
		store_client_send_copy(of->client);
}

/* As a member does that has lost the store. `rank`, `incarnation`: one that has ended; 0: none. */
static void reports(int by, uint32_t rank, uint64_t incarnation)
{
	uint8_t value[16] = {0};
	struct member *of = &members[by];
	struct store_msg m = {.op = STORE_REPORT,
			      .number = (int64_t)of->copy.version,
			      .value = value,
			      .value_len = incarnation ? 16 : 4};
	uint32_t keys = of->copy.version ? (uint32_t)kv_count(of->copy.kv) : 0;
	memcpy(value, &keys, 4);
	memcpy(value + 4, &rank, 4);
	memcpy(value + 8, &incarnation, 8);
	cr_assert_eq(store_client_submit(of->client, &m, world->now, TIME_NEVER, reported, of), 0);
	steps();
}

static void server_starts(void)
{
	server = store_server_create(net, net->ops->listen(net, "h", PORT, -1));
	store_server_rebuild(server, world->now, LEASE);
	steps();
}

/* Rank 0 is killed; the members have lost it. */
static void server_dies(void)
{
	store_server_destroy(server);
	server = NULL;
	steps();
}

/* The value of a key in a member's copy; "-": none. */
static const char *copied(int rank, const char *key)
{
	static char text[SAID];
	struct kv_bytes value, k = {(const uint8_t *)key, strlen(key)};
	struct store_copy *copy = &members[rank].copy;
	bool is = copy->version && kv_get(copy->kv, k, &value) == 0;
	snprintf(text, sizeof text, "%.*s", is ? (int)value.len : 1, is ? (const char *)value.data : "-");
	return text;
}

static void setup(void)
{
	world = fake_world_create();
	world->now = SECOND;
	net = fake_net_create(world);
	memset(members, 0, sizeof members);
	server_starts();
	connects(0, 0);
	pass(FAR_STORE_REBUILD_NS);
}

static void teardown(void)
{
	for (int r = 0; r <= MEMBERS; r++) {
		store_client_destroy(members[r].client);
		store_copy_free(&members[r].copy);
	}
	store_server_destroy(server);
	net->ops->destroy(net);
	fake_world_destroy(world);
}

TestSuite(store_backup, .init = setup, .fini = teardown);

Test(store_backup, one_member_holds_the_keys_alone)
{
	cr_assert_str_eq(set("/a/", "1"), "0::0");
	cr_assert_str_eq(get("/a/"), "0:1:0");
}

Test(store_backup, the_lowest_rank_gets_every_change)
{
	cr_assert_str_eq(set("/before/", "1"), "0::0");
	connects(1, 7);
	connects(2, 8);
	cr_assert_str_eq(copied(1, "/before/"), "1");
	cr_assert_str_eq(set("/a/", "1"), "0::0");
	cr_assert_str_eq(copied(1, "/a/"), "1");
	cr_assert_str_eq(add("/n/", 5), "0::5");
	cr_assert_str_eq(copied(1, "/n/"), "5");
	cr_assert_str_eq(request_into(said, STORE_CAS, "/a/", "2", "1", 0), "0::0");
	cr_assert_str_eq(copied(1, "/a/"), "2");
	cr_assert_str_eq(request_into(said, STORE_DELETE, "/a/", "", "", 0), "0::0");
	cr_assert_str_eq(copied(1, "/a/"), "-");
	cr_assert_str_eq(copied(2, "/n/"), "-");
}

/* A reply, a WAIT and a watch show a change when the backup has it. */
Test(store_backup, nothing_shows_a_change_before_the_backup_has_it)
{
	char read[SAID] = "", wrote[SAID] = "";
	connects(1, 7);
	request_into(watched, STORE_WATCH, "/", "", "", 0);
	request_into(waited, STORE_WAIT, "/a/", "", "", 0);
	members[1].stopped = true;
	request_into(wrote, STORE_SET, "/a/", "1", "", 0);
	request_into(read, STORE_GET, "/a/", "", "", 0);
	pass(LEASE / 2);
	cr_assert_str_empty(wrote);
	cr_assert_str_empty(read);
	cr_assert_str_empty(waited);
	cr_assert_str_eq(watched, "0::0");
	cr_assert_str_eq(request_into(said, STORE_GET, "g/rank/1", "", "", 0), "1::0"); /* not the application's */
	members[1].stopped = false;
	steps();
	cr_assert_str_eq(wrote, "0::0");
	cr_assert_str_eq(read, "0:1:0");
	cr_assert_str_eq(waited, "0:1:0");
	cr_assert_str_eq(watched, "0:1:0");
	cr_assert_str_eq(copied(1, "/a/"), "1");
}

Test(store_backup, the_next_member_takes_the_place_of_one_that_is_lost)
{
	char wrote[SAID];
	connects(1, 7);
	connects(2, 8);
	set("/a/", "1");
	members[1].stopped = true;
	request_into(wrote, STORE_SET, "/b/", "2", "", 0);
	cr_assert_str_empty(wrote);
	store_client_destroy(members[1].client); /* its process ends */
	members[1].client = NULL;
	steps();
	cr_assert_str_eq(wrote, "0::0");
	cr_assert_str_eq(copied(2, "/a/"), "1");
	cr_assert_str_eq(copied(2, "/b/"), "2");
	store_client_destroy(members[2].client);
	members[2].client = NULL;
	steps();
	cr_assert_str_eq(set("/c/", "3"), "0::0"); /* alone again */
}

/* A member that is stopped holds changes back for FAR_STORE_COPY_NS, not for its lease. */
Test(store_backup, a_slow_backup_is_replaced)
{
	char wrote[SAID];
	connects(1, 7);
	connects(2, 8);
	members[1].stopped = true;
	request_into(wrote, STORE_SET, "/a/", "1", "", 0);
	for (int i = 0; i < 200 && !wrote[0]; i++)
		pass(10 * MS);
	cr_assert_str_eq(wrote, "0::0");
	cr_assert_str_eq(copied(2, "/a/"), "1");
	cr_assert_eq(store_server_drops(server, STORE_DROP_LEASE), 0u);
	members[1].stopped = false;
	steps();
	cr_assert_eq(members[1].copy.version, 0u); /* out of date */
}

static void all_come_back(void)
{
	connects(0, 0);
	for (int r = 1; r <= MEMBERS; r++) {
		connects(r, 6 + (uint64_t)r);
		reports(r, 0, 0);
	}
}

Test(store_backup, a_store_that_begins_anew_has_what_was_acknowledged)
{
	char key[16], value[16];
	for (int r = 1; r <= MEMBERS; r++)
		connects(r, 6 + (uint64_t)r);
	for (int i = 0; i < 500; i++) {
		snprintf(key, sizeof key, "/%d/", i);
		snprintf(value, sizeof value, "%d", i);
		cr_assert_str_eq(set(key, value), "0::0");
	}
	cr_assert_str_eq(add("/n/", 41), "0::41");
	request_into(said, STORE_DELETE, "/7/", "", "", 0);
	server_dies();
	server_starts();
	all_come_back();
	cr_assert_str_empty(get("/499/")); /* until the store is rebuilt */
	pass(FAR_STORE_REBUILD_NS);
	cr_assert_str_eq(said, "0:499:0");
	cr_assert_str_eq(get("/7/"), "1::0");
	cr_assert_str_eq(add("/n/", 1), "0::42");
	cr_assert_str_eq(copied(1, "/n/"), "42");
	/* Once more, with the versions of the second store. */
	server_dies();
	server_starts();
	all_come_back();
	pass(FAR_STORE_REBUILD_NS);
	cr_assert_str_eq(get("/n/"), "0:42:0");
	cr_assert_str_eq(get("/0/"), "0:0:0");
}

/* A member that was the backup has a copy still, without the later changes. */
static void older_copy_made(void)
{
	connects(1, 7);
	set("/a/", "old");
	set("/gone/", "old");
	store_client_destroy(members[1].client);
	members[1].client = NULL;
	steps();
	connects(2, 8);
	cr_assert_str_eq(set("/a/", "new"), "0::0");
	request_into(said, STORE_DELETE, "/gone/", "", "", 0);
	server_dies();
	server_starts();
	connects(0, 0);
	cr_assert_lt(members[1].copy.version, members[2].copy.version);
}

Test(store_backup, the_newest_copy_wins)
{
	for (int first = 1; first <= 2; first++) {
		older_copy_made();
		connects(first, 6 + (uint64_t)first);
		reports(first, 0, 0);
		connects(3 - first, 9 - (uint64_t)first);
		reports(3 - first, 0, 0);
		pass(FAR_STORE_REBUILD_NS);
		cr_assert_str_eq(get("/a/"), "0:new:0");
		cr_assert_str_eq(get("/gone/"), "1::0");
		teardown();
		setup();
	}
}

/* Members have reported, the backup has not: the store waits for it, as long as it may be a member. */
Test(store_backup, a_store_waits_for_the_backup)
{
	char read[SAID];
	for (int r = 1; r <= 2; r++)
		connects(r, 6 + (uint64_t)r);
	set("/a/", "1");
	server_dies();
	server_starts();
	connects(0, 0);
	connects(2, 8);
	reports(2, 0, 0);
	pass(FAR_STORE_REBUILD_NS);
	request_into(read, STORE_GET, "/a/", "", "", 0);
	cr_assert_str_empty(read);
	connects(1, 7);
	reports(1, 0, 0);
	pass(20 * MS);
	cr_assert_str_eq(read, "0:1:0");
}

Test(store_backup, a_store_waits_a_lease_at_most)
{
	char read[SAID];
	connects(1, 7);
	connects(2, 8);
	set("/a/", "1");
	server_dies();
	server_starts();
	connects(0, 0);
	connects(2, 8);
	reports(2, 0, 0);
	request_into(read, STORE_GET, "/a/", "", "", 0);
	pass(FAR_STORE_REBUILD_NS + lease_with_margin(LEASE));
	cr_assert_str_eq(read, "1::0");
	/* Its copy is too late, and older than what the store has from now on. */
	cr_assert_str_eq(set("/a/", "2"), "0::0");
	connects(1, 7);
	reports(1, 0, 0);
	pass(20 * MS);
	server_dies();
	server_starts();
	all_come_back();
	pass(FAR_STORE_REBUILD_NS);
	cr_assert_str_eq(get("/a/"), "0:2:0");
}

static const char *hold(int rank, const char *key)
{
	struct store_msg m = {.op = STORE_HOLD,
			      .key = (const uint8_t *)key,
			      .key_len = strlen(key),
			      .value = (const uint8_t *)"claim",
			      .value_len = 5};
	said[0] = 0;
	cr_assert_eq(store_client_submit(members[rank].client, &m, world->now, TIME_NEVER, on_reply, said), 0);
	steps();
	return said;
}

/* An incarnation whose lease had ended in the former store is refused by the next one, in either order. */
Test(store_backup, an_incarnation_that_has_ended_is_refused)
{
	connects(1, 7);
	connects(2, 8);
	server_dies();
	server_starts();
	connects(1, 7);
	reports(1, 2, 8);
	connects(2, 8);
	cr_assert_str_eq(hold(2, "g/rank/2"), "6::0"); /* DENIED */
	connects(2, 9);
	cr_assert_str_eq(hold(2, "g/rank/2"), "0::0");
	reports(1, 2, 9);
	steps();
	cr_assert_eq(store_client_connection(members[2].client), STORE_LOST);
	cr_assert_eq(store_server_drops(server, STORE_DROP_LEASE), 1u);
}

/* Only members report. */
Test(store_backup, a_client_that_is_no_member_cannot_report)
{
	struct store_msg m = {.op = STORE_REPORT, .value = (const uint8_t *)"\0\0\0\0", .value_len = 4};
	cr_assert_eq(store_client_submit(members[0].client, &m, world->now, TIME_NEVER, on_reply, said), 0);
	steps();
	cr_assert_eq(store_server_drops(server, STORE_DROP_MALFORMED), 1u);
}

/* A copy of more than the buffers hold. */
Test(store_backup, large_copies)
{
	static char large[FAR_STORE_VALUE_MAX];
	char key[16];
	memset(large, 'x', sizeof large - 1);
	connects(1, 7);
	for (int i = 0; i < 600; i++) {
		snprintf(key, sizeof key, "/%d/", i);
		cr_assert_str_eq(set(key, large), "0::0");
	}
	connects(2, 8);
	store_client_destroy(members[1].client);
	members[1].client = NULL;
	pass(100 * MS);
	cr_assert_str_eq(set("/last/", "1"), "0::0");
	cr_assert_eq(kv_count(members[2].copy.kv), 601u);
	store_copy_free(&members[1].copy);
	server_dies();
	server_starts();
	connects(0, 0);
	connects(2, 8);
	reports(2, 0, 0);
	pass(2 * FAR_STORE_REBUILD_NS);
	cr_assert_str_eq(get("/last/"), "0:1:0");
	request_into(said, STORE_GET, "/599/", "", "", 0);
	cr_assert_eq(strlen(said), (size_t)SAID - 1);
}

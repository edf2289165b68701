/* SPDX-License-Identifier: BSD-3-Clause */
/* Room of the store's table: keys beyond the bound are for records of the group's members. The test's thread. */
#include "base/random.h"
#include "control/store_proof.h"
#include "store_load.h"

#include <stdio.h>

TestSuite(store_room, .init = pair_setup, .fini = pair_teardown);

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

Test(store_room, a_full_table_has_room_for_members)
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
	submit_counted(here, STORE_SET, "g/list/1", "", &ok);
	settle();
	cr_assert_eq(ok, 1u);
	net->ops->close(net, member);
	net->ops->close(net, second);
	net->ops->close(net, other);
}

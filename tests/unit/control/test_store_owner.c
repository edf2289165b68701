/* SPDX-License-Identifier: BSD-3-Clause */
/** Whose records in the store are whose, and what others may do with them. The test's thread. */
#include "store_keyed.h"

TestSuite(store_owner, .init = keyed_setup, .fini = keyed_teardown);

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

Test(store_owner, records_belong_to_who_wrote_them)
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

Test(store_owner, record_outlives_its_writer_under_his_name)
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

/* SPDX-License-Identifier: BSD-3-Clause */
/** Frames of the store: read as they were written, cut anywhere incomplete, otherwise refused. The test's thread. */
#include "control/store_wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static uint8_t frame[STORE_FRAME_MAX + 1], big[FAR_STORE_VALUE_MAX + 1];

static struct store_msg request(enum store_op op, const char *key, const char *value)
{
	struct store_msg m = store_request(op, (const uint8_t *)value, value ? strlen(value) : 0);
	m.key = (const uint8_t *)key;
	m.key_len = key ? strlen(key) : 0;
	return m;
}

Test(store_wire, comes_back_and_is_cut_nowhere)
{
	struct store_msg m = request(STORE_CAS, "key", "new"), got;
	m.id = UINT64_C(0x0123456789abcdef);
	m.timeout_ns = UINT64_MAX - 1;
	m.expected = (const uint8_t *)"old!";
	m.expected_len = 4;
	cr_assert_eq(store_msg_check(&m), 0);
	size_t len = store_msg_encode(&m, frame);
	cr_assert_eq(len, STORE_HEAD_BYTES + 3u + 3u + 4u);
	for (size_t cut = 0; cut < len; cut++)
		cr_assert_eq(store_msg_decode(frame, cut, &got), 0, "%zu bytes", cut);
	cr_assert_eq(store_msg_decode(frame, len + 1, &got), (long)len, "the next frame is left alone");
	cr_assert(got.op == STORE_CAS && !got.reply && got.id == m.id && got.timeout_ns == m.timeout_ns);
	cr_assert(got.key_len == 3 && memcmp(got.key, "key", 3) == 0);
	cr_assert(got.value_len == 3 && memcmp(got.value, "new", 3) == 0);
	cr_assert(got.expected_len == 4 && memcmp(got.expected, "old!", 4) == 0);
	struct store_msg sum = {.op = STORE_ADD, .reply = true, .status = STORE_BAD, .id = 1, .number = -5};
	len = store_msg_encode(&sum, frame);
	cr_assert_eq(store_msg_decode(frame, len, &got), (long)len);
	cr_assert(got.reply && got.status == STORE_BAD && got.number == -5);
}

Test(store_wire, the_longest)
{
	struct store_msg m = {.op = STORE_CAS,
			      .key = big,
			      .key_len = FAR_STORE_KEY_MAX,
			      .value = big,
			      .value_len = FAR_STORE_VALUE_MAX,
			      .expected = big,
			      .expected_len = FAR_STORE_VALUE_MAX},
			 got;
	cr_assert_eq(store_msg_check(&m), 0);
	cr_assert_eq(store_msg_encode(&m, frame), (size_t)STORE_FRAME_MAX);
	cr_assert_eq(store_msg_decode(frame, STORE_FRAME_MAX, &got), (long)STORE_FRAME_MAX);
	m.key_len++;
	cr_assert_eq(store_msg_check(&m), -EMSGSIZE);
	m.key_len--, m.value_len++;
	cr_assert_eq(store_msg_check(&m), -EMSGSIZE);
	m.value_len--, m.expected_len++;
	cr_assert_eq(store_msg_check(&m), -EMSGSIZE);
}

Test(store_wire, another_program_is_found_out_at_once)
{
	struct store_msg m = request(STORE_GET, "k", NULL), got;
	size_t len = store_msg_encode(&m, frame);
	cr_assert_eq(store_msg_decode((const uint8_t *)"GET / HTTP", 4, &got), -EPROTO);
	frame[4]++;
	cr_assert_eq(store_msg_decode(frame, 5, &got), -EPROTONOSUPPORT);
	frame[4]--;
	static const unsigned zeros[] = {7, 38, 39};
	for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++) {
		frame[zeros[i]] = 1;
		cr_assert_eq(store_msg_decode(frame, len, &got), -EPROTO, "byte %u", zeros[i]);
		frame[zeros[i]] = 0;
	}
	frame[6] = STORE_STATUS_COUNT;
	cr_assert_eq(store_msg_decode(frame, len, &got), -EPROTO, "status");
	frame[6] = STORE_MISSING;
	cr_assert_eq(store_msg_decode(frame, len, &got), -EPROTO, "a request has no status");
	frame[6] = 0;
	cr_assert_eq(store_msg_decode(frame, len, &got), (long)len);
}

Test(store_wire, what_an_operation_does_not_have_is_refused)
{
	static const struct {
		enum store_op op;
		const char *key, *value;
		int64_t number;
		int status;
	} table[] = {
		{0, "k", NULL, 0, -EINVAL},
		{STORE_OP_COUNT, "k", NULL, 0, -EINVAL},
		{STORE_SET, NULL, "v", 0, -EINVAL},
		{STORE_SET, "k", "v", 0, 0},
		{STORE_SET, "k", "v", 1, -EINVAL},
		{STORE_GET, "k", "v", 0, -EINVAL},
		{STORE_WAIT, "k", "v", 0, -EINVAL},
		{STORE_DELETE, "k", "v", 0, -EINVAL},
		{STORE_ADD, "k", NULL, INT64_MIN, 0},
		{STORE_ADD, "k", "v", 1, -EINVAL},
		{STORE_HOLD, "k", "v", 0, 0},
		{STORE_HOLD, "k", "v", STORE_HOLD_AT_ONCE, 0},
		{STORE_HOLD, "k", "v", 2, -EINVAL},
		{STORE_LOGIN, "k", "v", 0, -EINVAL},
		{STORE_LOGIN, NULL, "v", 0, 0},
		{STORE_PING, NULL, NULL, 0, 0},
		{STORE_PING, "k", NULL, 0, -EINVAL},
		{STORE_PING, NULL, NULL, (int64_t)FAR_LEASE_NS_MIN - 1, -EINVAL},
		{STORE_PING, NULL, NULL, (int64_t)FAR_LEASE_NS_MIN, 0},
		{STORE_PING, NULL, NULL, (int64_t)FAR_LEASE_NS_MAX + 1, -EINVAL},
		{STORE_WATCH, "k", NULL, STORE_WATCH_FROM_NOW | STORE_WATCH_EXACT, 0},
		{STORE_WATCH, "k", NULL, 4, -EINVAL},
		{STORE_COPY, "k", "v", 0, 0},
		{STORE_COPY, NULL, NULL, 7, 0},
		{STORE_COPY, NULL, NULL, -1, -EINVAL},
		{STORE_REPORT, NULL, "v", 7, 0},
		{STORE_REPORT, "k", "v", 7, -EINVAL},
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct store_msg m = request(table[i].op, table[i].key, table[i].value);
		m.number = table[i].number;
		cr_expect_eq(store_msg_check(&m), table[i].status, "case %zu", i);
	}
	struct store_msg m = request(STORE_SET, "k", "v");
	m.expected = (const uint8_t *)"e";
	m.expected_len = 1;
	cr_expect_eq(store_msg_check(&m), -EINVAL, "only CAS expects something");
	m = request(STORE_GET, "k", "v");
	m.reply = true;
	cr_expect_eq(store_msg_check(&m), -EINVAL, "a reply repeats no key");
	m.op = STORE_WATCH;
	cr_expect_eq(store_msg_check(&m), 0, "but that of a watch");
}

/* SPDX-License-Identifier: BSD-3-Clause */
/** The table of a store that no server hosts: changes, holders, leases and groups. The test's thread. */
#include "control/store_table.h"

#include "base/byteorder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define LEASE UINT64_C(1000000000)

static struct store_table t;

static void begin(void)
{
	cr_assert_eq(store_table_begin(&t), 0);
}

static void end(void)
{
	store_table_free(&t);
	cr_assert(!t.server && !t.held);
}

TestSuite(store_table, .init = begin, .fini = end);

static struct kv_bytes bytes(const char *text)
{
	return (struct kv_bytes){(const uint8_t *)text, strlen(text)};
}

static void apply(struct store_table *to, enum record_kind kind, const char *key, const char *value, uint64_t holder)
{
	const struct record r = {.kind = (int)kind, .holder = holder, .key = bytes(key), .value = bytes(value)};
	cr_assert_eq(store_table_apply(to, &r), 0);
}

/* The key's value and holder, as "value:holder"; "-": it is missing. */
static const char *seen(const char *key)
{
	static char text[64];
	struct kv_bytes value;
	const struct held *h = *store_held_find(&t, bytes(key));
	if (kv_get(t.server->kv, bytes(key), &value))
		return h ? "held without a value" : "-";
	snprintf(text, sizeof text, "%.*s:%d", (int)value.len, (const char *)value.data, h ? (int)h->holder : 0);
	return text;
}

/* Runs a request of this client. */
static void request(enum store_op op, const char *key, const char *value)
{
	uint8_t frame[STORE_FRAME_MAX];
	struct store_msg m = {.op = op, .id = op == STORE_LOGIN ? 0 : 3, .timeout_ns = UINT64_MAX};
	m.key = bytes(key).data;
	m.key_len = strlen(key);
	m.value = bytes(value).data;
	m.value_len = strlen(value);
	store_table_answer(&t, frame, store_msg_encode(&m, frame), 1);
}

/* The next reply, as "status:value"; "": there is none. */
static const char *reply(void)
{
	static char text[64];
	static uint8_t rx[STORE_FRAME_MAX];
	struct store_msg m;
	long n = store_server_local_recv(t.server, rx, STORE_HEAD_BYTES);
	if (n < 0)
		return "";
	size_t body = rx[32] + rx[34];
	store_server_local_recv(t.server, rx + n, body);
	cr_assert_gt(store_msg_decode(rx, (size_t)n + body, &m), 0);
	snprintf(text, sizeof text, "%d:%.*s", (int)m.status, (int)m.value_len, (const char *)m.value);
	return text;
}

Test(store_table, changes_of_others)
{
	apply(&t, RECORD_VALUE, "k", "1", 0);
	cr_assert_str_eq(seen("k"), "1:0");
	apply(&t, RECORD_HELD, "h", "2", 7);
	cr_assert_str_eq(seen("h"), "2:7");
	apply(&t, RECORD_HELD, "h", "3", 8);
	cr_assert_str_eq(seen("h"), "3:8");
	apply(&t, RECORD_VALUE, "h", "4", 0);
	cr_assert_str_eq(seen("h"), "4:0");
	apply(&t, RECORD_DELETED, "k", "", 0);
	apply(&t, RECORD_DELETED, "never", "", 0);
	cr_assert_str_eq(seen("k"), "-");
}

Test(store_table, a_change_answers_a_wait)
{
	request(STORE_LOGIN, "", "");
	cr_assert_str_eq(reply(), "0:");
	request(STORE_WAIT, "k", "");
	cr_assert_str_eq(reply(), "");
	apply(&t, RECORD_VALUE, "other", "1", 0);
	cr_assert_str_eq(reply(), "");
	apply(&t, RECORD_VALUE, "k", "1", 0);
	cr_assert_str_eq(reply(), "0:1");
}

/* The same value again is no change: no watch reports it. */
Test(store_table, an_equal_value_is_no_change)
{
	apply(&t, RECORD_VALUE, "k", "1", 0);
	uint64_t changes = kv_changes(t.server->kv);
	apply(&t, RECORD_VALUE, "k", "1", 0);
	cr_assert_eq(kv_changes(t.server->kv), changes);
	apply(&t, RECORD_VALUE, "k", "", 0);
	apply(&t, RECORD_VALUE, "k", "", 0);
	cr_assert_eq(kv_changes(t.server->kv), changes + 1);
}

/* The client's own hold ends with a deletion by another one. */
Test(store_table, a_deletion_ends_the_own_hold)
{
	request(STORE_LOGIN, "", "");
	reply();
	request(STORE_HOLD, "k", "mine");
	cr_assert_str_eq(reply(), "0:");
	cr_assert(hold_is_of(t.server, &t.server->local, bytes("k")));
	apply(&t, RECORD_DELETED, "k", "", 0);
	cr_assert_not(hold_exists(t.server, bytes("k")));
}

Test(store_table, becomes_another)
{
	struct store_table other;
	memset(&other, 0xee, sizeof other); /* it begins empty, whatever was there */
	cr_assert_eq(store_table_begin(&other), 0);
	apply(&t, RECORD_VALUE, "gone", "1", 0);
	apply(&t, RECORD_HELD, "passed", "1", 7);
	apply(&t, RECORD_VALUE, "same", "1", 0);
	apply(&other, RECORD_HELD, "passed", "2", 8);
	apply(&other, RECORD_VALUE, "same", "1", 0);
	apply(&other, RECORD_VALUE, "new", "1", 0);
	other.at = 77;
	uint64_t changes = kv_changes(t.server->kv);
	cr_assert_eq(store_table_become(&t, &other), 0);
	store_table_free(&other);
	cr_assert_str_eq(seen("gone"), "-");
	cr_assert_str_eq(seen("passed"), "2:8");
	cr_assert_str_eq(seen("same"), "1:0");
	cr_assert_str_eq(seen("new"), "1:0");
	cr_assert_eq(t.at, 77u);
	cr_assert_eq(kv_changes(t.server->kv), changes + 3);
}

/* A request may be longer than the stream within the process takes at once. */
Test(store_table, answers_several_frames_at_once)
{
	static uint8_t frames[20 * STORE_FRAME_MAX];
	static uint8_t value[FAR_STORE_VALUE_MAX];
	size_t len = 0;
	struct store_msg m = {.op = STORE_LOGIN, .timeout_ns = UINT64_MAX};
	len += store_msg_encode(&m, frames);
	m = (struct store_msg){.op = STORE_SET, .timeout_ns = UINT64_MAX, .key = (const uint8_t *)"k", .key_len = 1};
	m.value = value;
	for (int i = 0; i < 10; i++) {
		m.id = (uint64_t)i + 1;
		m.value_len = sizeof value;
		len += store_msg_encode(&m, frames + len);
	}
	store_table_answer(&t, frames, len, 1);
	for (int i = 0; i < 11; i++)
		cr_assert_str_eq(reply(), "0:", "reply %d", i);
	cr_assert_str_eq(reply(), "");
}

/* ---- leases ---- */

static void renew(const char *key, uint64_t holder, uint64_t number)
{
	uint8_t value[STORE_LEASE_BYTES];
	le_put(value, LEASE, 8);
	le_put(value + 8, number, 8);
	const struct record r = {
		.kind = RECORD_HELD, .holder = holder, .key = bytes(key), .value = {value, sizeof value}};
	cr_assert_eq(store_table_apply(&t, &r), 0);
}

/* By this client's clock, from the look that has seen the last renewal. */
Test(store_table, a_lease_without_renewals_is_over)
{
	const uint64_t over = lease_with_margin(LEASE);
	renew("g/client/7", 7, 1);
	apply(&t, RECORD_HELD, "g/rank/1", "x", 7);
	cr_assert_not(store_lease_is_over(&t, 7, 5 * over), "nobody has looked since");
	store_leases_look(&t, 1000, false);
	cr_assert_not(store_lease_is_over(&t, 7, 1000 + over - 1));
	cr_assert(store_lease_is_over(&t, 7, 1000 + over));
	cr_assert_not(store_lease_is_over(&t, 8, 1000 + over), "it has none");
	renew("g/client/7", 7, 2);
	cr_assert_not(store_lease_is_over(&t, 7, 1000 + over));
	store_leases_look(&t, 2000, false);
	store_leases_look(&t, 3000, false);
	cr_assert_not(store_lease_is_over(&t, 7, 2000 + over - 1));
	cr_assert(store_lease_is_over(&t, 7, 2000 + over));
	/* Nobody could renew meanwhile: all have their time from now on. */
	store_leases_look(&t, 9000, true);
	cr_assert_not(store_lease_is_over(&t, 7, 9000 + over - 1));
}

/* A value of that length under another key is none. */
Test(store_table, only_client_keys_have_leases)
{
	renew("g/rank/1", 7, 1);
	store_leases_look(&t, 1000, false);
	cr_assert_not(store_lease_is_over(&t, 7, UINT64_MAX));
}

/* ---- groups ---- */

Test(store_table, members_of_a_group)
{
	cr_assert_not(store_table_has_members(&t, "g", 0));
	apply(&t, RECORD_HELD, "g/client/7", "", 7);
	apply(&t, RECORD_VALUE, "h/client/9", "", 0);
	apply(&t, RECORD_HELD, "gg/client/8", "", 8);
	cr_assert(store_table_has_members(&t, "g", 0));
	cr_assert_not(store_table_has_members(&t, "g", 7), "it is the one that does not count");
	cr_assert_not(store_table_has_members(&t, "h", 0), "nobody holds that key");
	apply(&t, RECORD_HELD, "g/client/", "", 9);
	cr_assert_not(store_table_has_members(&t, "g", 7), "a key without a client");
	apply(&t, RECORD_DELETED, "g/client/7", "", 0);
	cr_assert_not(store_table_has_members(&t, "g", 0));
}

Test(store_table, a_closed_group)
{
	apply(&t, RECORD_VALUE, "gg/closed", "1", 0);
	cr_assert_not(store_table_group_is_closed(&t, "g"));
	apply(&t, RECORD_VALUE, "g/closed", "1", 0);
	cr_assert(store_table_group_is_closed(&t, "g"));
}

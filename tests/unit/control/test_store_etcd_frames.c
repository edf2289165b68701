/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames of a client of etcd://, one at a time: reads, transactions that collide or lose their reply, refusals. The
 * test's thread. */
#include "etcd_fixture.h"

#include <errno.h>

/* A frame for the client's stream. */
static void frame(enum store_op op, const char *key, const char *value, const char *expected, int64_t number)
{
	uint8_t out[STORE_FRAME_MAX];
	struct store_msg m = {.op = op,
			      .id = op == STORE_LOGIN ? 0 : 3,
			      .timeout_ns = UINT64_MAX,
			      .number = number,
			      .key = (const uint8_t *)key,
			      .key_len = strlen(key),
			      .value = (const uint8_t *)value,
			      .value_len = strlen(value),
			      .expected = (const uint8_t *)expected,
			      .expected_len = strlen(expected)};
	cr_assert_eq(send_buffer_put(&store.in, out, store_msg_encode(&m, out)), 0);
}

static void asks(const char *want)
{
	bool busy = false;
	asked[0] = 0;
	etcd_store_frames_run(&store, &busy);
	cr_assert_str_eq(asked, want);
	cr_assert_eq(store.requested, want[0] != 0);
}

/* The client's next reply, as "status:value"; "": there is none. */
static const char *said(void)
{
	static uint8_t rx[STORE_FRAME_MAX];
	static char text[64];
	struct store_msg m;
	long n = store_server_local_recv(store.table.server, rx, sizeof rx);
	if (n < 0)
		return "";
	cr_assert_eq(store_msg_decode(rx, (size_t)n, &m), n);
	snprintf(text, sizeof text, "%d:%.*s", (int)m.status, (int)m.value_len, (const char *)m.value);
	return text;
}

static void setup(void)
{
	etcd_setup();
	store.ops = &noted;
	store.scratch = kv_create(1);
	frame(STORE_LOGIN, "", "", "", 0);
	asks(""); /* READY: the table answers it */
	cr_assert_str_eq(said(), "0:");
}

static void teardown(void)
{
	kv_destroy(store.scratch);
	send_buffer_fini(&store.in);
	etcd_teardown();
}

TestSuite(store_etcd_frames, .init = setup, .fini = teardown);

#define OP ", put farcall-op/0000000000000077="

Test(store_etcd_frames, a_read_waits_for_a_read_of_its_key)
{
	frame(STORE_GET, "k", "", "", 0);
	asks("get farcall/k");
	cr_assert_str_eq(said(), "");
	key_is("farcall/k", "v", 5, 0);
	reply((struct etcd_reply){.succeeded = true, .revision = 9});
	asks("");
	cr_assert_str_eq(said(), "0:v");
	/* Each one anew: another client may have changed it. */
	frame(STORE_GET, "k", "", "", 0);
	asks("get farcall/k");
	reply((struct etcd_reply){.succeeded = true, .revision = 10});
	asks("");
	cr_assert_str_eq(said(), "1:");
}

Test(store_etcd_frames, a_write_is_a_transaction)
{
	frame(STORE_SET, "k", "v", "", 0);
	asks("if farcall/k at 0: put farcall/k=v lease 0" OP "1 lease 77");
	reply((struct etcd_reply){.succeeded = true, .revision = 7});
	cr_assert_str_eq(said(), "0:");
	frame(STORE_ADD, "k", "", "", 3);
	asks("get farcall/k"); /* "v" is no number, as far as this client knows */
	key_is("farcall/k", "4", 8, 0);
	reply((struct etcd_reply){.succeeded = true, .revision = 8});
	asks("if farcall/k at 8: put farcall/k=7 lease 0" OP "2 lease 77");
	reply((struct etcd_reply){.succeeded = true, .revision = 9});
	cr_assert_str_eq(said(), "0:");
	frame(STORE_CAS, "k", "x", "7", 0);
	asks("if farcall/k at 9: put farcall/k=x lease 0" OP "3 lease 77");
	reply((struct etcd_reply){.succeeded = true, .revision = 10});
	cr_assert_str_eq(said(), "0:");
	frame(STORE_DELETE, "k", "", "", 0);
	asks("if farcall/k at 10: delete farcall/k" OP "4 lease 77");
	reply((struct etcd_reply){.succeeded = true, .revision = 11});
	cr_assert_str_eq(said(), "0:");
	cr_assert_not(has("k"));
}

/* Another client was first. Expect the frame to run again with what that one wrote. */
Test(store_etcd_frames, a_collision)
{
	frame(STORE_ADD, "n", "", "", 2);
	asks("if farcall/n at 0: put farcall/n=2 lease 0" OP "1 lease 77");
	key_is("farcall/n", "40", 6, 0);
	reply((struct etcd_reply){.revision = 6});
	cr_assert_str_eq(said(), "");
	asks("if farcall/n at 6: put farcall/n=42 lease 0" OP "2 lease 77");
	reply((struct etcd_reply){.succeeded = true, .revision = 7});
	cr_assert_str_eq(said(), "0:");
	frame(STORE_CAS, "c", "x", "", 0);
	asks("if farcall/c at 0: put farcall/c=x lease 0" OP "3 lease 77");
	key_is("farcall/c", "theirs", 8, 0);
	reply((struct etcd_reply){.revision = 8});
	asks("");
	cr_assert_str_eq(said(), "2:theirs");
}

/* It was committed, and the module sent it again. Expect it to count once. */
Test(store_etcd_frames, a_lost_reply)
{
	frame(STORE_ADD, "n", "", "", 2);
	asks("if farcall/n at 0: put farcall/n=2 lease 0" OP "1 lease 77");
	key_is("farcall/n", "2", 6, 0);
	key_is("farcall-op/0000000000000077", "1", 6, LEASE);
	reply((struct etcd_reply){.revision = 9});
	cr_assert_str_eq(said(), "0:");
	asks("");
	frame(STORE_ADD, "n", "", "", 1);
	asks("if farcall/n at 6: put farcall/n=3 lease 0" OP "2 lease 77");
	/* The number of a write before is none of this one. */
	key_is("farcall/n", "9", 10, 0);
	key_is("farcall-op/0000000000000077", "1", 6, LEASE);
	reply((struct etcd_reply){.revision = 10});
	cr_assert_str_eq(said(), "");
	asks("if farcall/n at 10: put farcall/n=10 lease 0" OP "3 lease 77");
}

Test(store_etcd_frames, refusals)
{
	frame(STORE_SET, "k", "v", "", 0);
	asks("if farcall/k at 0: put farcall/k=v lease 0" OP "1 lease 77");
	reply((struct etcd_reply){.error = -ENOSPC});
	cr_assert_str_eq(said(), "4:");
	frame(STORE_SET, "k", "v", "", 0);
	asks("if farcall/k at 0: put farcall/k=v lease 0" OP "2 lease 77");
	reply((struct etcd_reply){.error = -EACCES});
	cr_assert_str_eq(said(), "6:");
	/* The lease has ended: the frame waits for the next one. */
	frame(STORE_SET, "k", "v", "", 0);
	asks("if farcall/k at 0: put farcall/k=v lease 0" OP "3 lease 77");
	reply((struct etcd_reply){.error = -ENOENT});
	cr_assert_eq(store.phase, PHASE_NEW_LEASE);
	asks("");
	cr_assert_str_eq(said(), "");
	store.phase = PHASE_READY;
	asks("if farcall/k at 0: put farcall/k=v lease 0" OP "4 lease 77");
	reply((struct etcd_reply){.error = -EIO});
	cr_assert_eq(store.error, -EIO);
	cr_assert(strstr(store.text, "use etcd 3.4 or later"), "%s", store.text);
	store.error = 0;
}

Test(store_etcd_frames, a_read_that_is_refused)
{
	frame(STORE_GET, "k", "", "", 0);
	asks("get farcall/k");
	reply((struct etcd_reply){.error = -EACCES});
	cr_assert_eq(store.error, -EACCES);
	cr_assert(strstr(store.text, "etcdctl role grant-permission"), "%s", store.text);
	store.error = 0;
}

/* ---- held keys ---- */

Test(store_etcd_frames, a_hold_has_the_lease)
{
	frame(STORE_HOLD, "h", "mine", "", 0);
	asks("if farcall/h at 0: put farcall/h=mine lease 77" OP "1 lease 77");
	reply((struct etcd_reply){.succeeded = true, .revision = 7});
	cr_assert_str_eq(said(), "0:");
	/* A value that changes keeps its holder. */
	frame(STORE_SET, "h", "other", "", 0);
	asks("if farcall/h at 7: put farcall/h=other lease 77" OP "2 lease 77");
	reply((struct etcd_reply){.succeeded = true, .revision = 8});
	cr_assert_str_eq(said(), "0:");
	frame(STORE_HOLD, "h", "again", "", 0);
	asks("if farcall/h at 8: put farcall/h=again lease 77" OP "3 lease 77");
	reply((struct etcd_reply){.succeeded = true, .revision = 9});
	cr_assert_str_eq(said(), "0:");
}

/* Another client holds it. Expect a knock, and DIFFERS once that is answered. */
Test(store_etcd_frames, a_hold_of_another)
{
	change("farcall/h", 0x55, false);
	take();
	changes_n = taken = 0;
	frame(STORE_HOLD, "h", "mine", "", 0);
	asks("put farcall/g/knock/0000000000000055/0000000000000077 lease 77");
	reply((struct etcd_reply){.succeeded = true, .revision = 20});
	asks("");
	cr_assert_str_eq(said(), "");
	changes[0] = (struct etcd_kv){.key = {(const uint8_t *)"farcall/g/knock/0000000000000055/0000000000000077", 49},
				      .revision = 21};
	changes[0].deleted = true;
	changes_n = 1;
	take();
	asks("");
	cr_assert_str_eq(said(), "2:v");
}

/* A member that returns does not wait for another one; it waits for the end of its own former lease. */
Test(store_etcd_frames, a_hold_at_once)
{
	change("farcall/h", 0x55, false);
	take();
	changes_n = taken = 0;
	frame(STORE_HOLD, "h", "mine", "", STORE_HOLD_AT_ONCE);
	asks("");
	cr_assert_str_eq(said(), "2:v");
	frame(STORE_HOLD, "h", "v", "", STORE_HOLD_AT_ONCE);
	asks("put farcall/g/knock/0000000000000055/0000000000000077 lease 77");
	reply((struct etcd_reply){.succeeded = true, .revision = 20});
	cr_assert_str_eq(said(), "");
}

/* A member has seen the end of the holder's process: its lease ends. */
Test(store_etcd_frames, the_end_of_a_holder_is_reported)
{
	change("farcall/h", 0x55, false);
	take();
	changes_n = taken = 0;
	frame(STORE_CAS, "h", "", "w", 0);
	asks("get farcall/h"); /* it holds something else now */
	key_is("farcall/h", "v", 1, 0x55);
	reply((struct etcd_reply){.succeeded = true, .revision = 22});
	asks("");
	cr_assert_str_eq(said(), "2:v");
	frame(STORE_CAS, "h", "", "v", 0);
	asks("revoke 55");
	reply((struct etcd_reply){.error = -ENOENT}); /* it has ended by itself */
	cr_assert_str_eq(said(), "0:");
	frame(STORE_CAS, "h", "", "v", 0);
	asks("revoke 55");
	reply((struct etcd_reply){.error = -EACCES});
	cr_assert_str_eq(said(), "6:");
}

/* ---- the stream ---- */

Test(store_etcd_frames, one_frame_at_a_time)
{
	frame(STORE_SET, "a", "1", "", 0);
	frame(STORE_SET, "b", "2", "", 0);
	asks("if farcall/a at 0: put farcall/a=1 lease 0" OP "1 lease 77");
	bool busy = false;
	asked[0] = 0;
	etcd_store_frames_run(&store, &busy);
	cr_assert_str_empty(asked);
	reply((struct etcd_reply){.succeeded = true, .revision = 7});
	asks("if farcall/b at 0: put farcall/b=2 lease 0" OP "2 lease 77");
}

Test(store_etcd_frames, nothing_runs_before_the_login)
{
	store.phase = PHASE_LOGIN;
	frame(STORE_SET, "a", "1", "", 0);
	asks("");
	cr_assert_str_eq(said(), "");
	store.phase = PHASE_READY;
	asks("if farcall/a at 0: put farcall/a=1 lease 0" OP "1 lease 77");
}

Test(store_etcd_frames, malformed_bytes_end_the_attempt)
{
	cr_assert_eq(send_buffer_put(&store.in, "GET / HTTP/1.1\r\n\r\n", 18), 0);
	asks("");
	cr_assert_eq(store.error, -EPROTO);
	cr_assert_str_eq(store.text, "a malformed frame");
	store.error = 0;
}

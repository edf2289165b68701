/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages in parts and one-way messages: what arrives, and when their memory is the caller's again. The test's
 * thread, and fibers of agents that it steps. */
#include "agents_fixture.h"

#include <string.h>

enum { KEEP = 1, ECHO = 2 };

static const struct far_to w1 = {1, -1};
static size_t got_len;
static uint8_t *got; /* the first bytes of the last message */
static unsigned got_n, released, done_n;
static enum far_status done_status;
static uint8_t room[64];

static void keep(struct far_req *req, const void *data, size_t len, void *user)
{
	got_n++;
	got_len = len;
	got = room;
	if (len)
		memcpy(room, data, len < sizeof room ? len : sizeof room);
	if (len > sizeof room)
		memcpy(room + 32, (const uint8_t *)data + len - 32, 32);
	far_reply(req, data, len < 8 ? len : 8);
}

static void on_release(void *user)
{
	cr_assert_eq(user, &released);
	released++;
}

static void on_done(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	done_n++;
	done_status = status;
}

static void setup(void)
{
	static const struct far_msg_handler handlers[] = {{.id = KEEP, .kind = FAR_KIND_INLINE, .fn = keep},
							  {.id = ECHO, .kind = FAR_KIND_INLINE, .fn = keep}};
	const struct far_opts opts = {.messages = handlers, .messages_n = 2};
	agents_begin(2, &opts);
	got_n = released = done_n = 0;
}

TestSuite(api_parts, .init = setup, .fini = agents_end);

static void turns(unsigned n)
{
	while (n--)
		agents_turn();
}

static void until_got(unsigned n)
{
	for (unsigned left = 20000; left && got_n < n; left--)
		agents_turn();
	cr_assert_eq(got_n, n);
}

Test(api_parts, they_arrive_as_one)
{
	const struct far_part parts[] = {{"one ", 4}, {NULL, 0}, {"two ", 4}, {"three", 6}};
	cr_assert_eq(far_msg_oneway_parts(agents[0], w1, KEEP, parts, 4, NULL, NULL, NULL, &err), FAR_OK, "%s",
		     err.text);
	until_got(1);
	cr_assert_eq(got_len, 14u);
	cr_assert_str_eq((char *)got, "one two three");
	cr_assert_eq(far_msg_oneway_parts(agents[0], w1, KEEP, NULL, 0, NULL, NULL, NULL, &err), FAR_OK);
	until_got(2);
	cr_assert_eq(got_len, 0u);
	cr_assert_eq(
		far_msg_send_parts(agents[0], w1, KEEP, parts, 4, on_release, &released, NULL, on_done, NULL, &err),
		FAR_OK);
	cr_assert_eq(released, 1u, "an eager message was copied");
	until_got(3);
	turns(1000);
	cr_assert(done_n == 1 && done_status == FAR_OK);
}

/* A rendezvous message. Expect it sent from where it lies with a callback, and from a copy without. */
Test(api_parts, rendezvous_messages)
{
	static uint8_t large[FAR_MSG_EAGER_MAX / 2 + 100];
	for (unsigned zero_copy = 0; zero_copy < 2; zero_copy++) {
		const struct far_part parts[] = {{large, sizeof large}, {large, sizeof large}};
		memset(large, 1, sizeof large);
		released = 0;
		cr_assert_eq(far_msg_oneway_parts(agents[0], w1, KEEP, parts, 2, zero_copy ? on_release : NULL,
						  &released, NULL, &err),
			     FAR_OK, "%s", err.text);
		if (!zero_copy)
			memset(large, 9, sizeof large);
		else
			cr_assert_eq(released, 0u, "it is still read");
		until_got(zero_copy + 1);
		cr_assert_eq(got_len, 2 * sizeof large);
		cr_assert(got[0] == 1 && got[63] == 1);
		turns(2000);
		cr_assert_eq(released, zero_copy);
	}
}

/* Expect each refused with its reason, and the memory given back at once. */
Test(api_parts, what_cannot_be_sent)
{
	static const struct far_part many[FAR_PARTS_MAX + 1], null_part[] = {{"x", 1}, {NULL, 5}},
							      huge[] = {{"x", FAR_MSG_BYTES_MAX}, {"x", 1}};
	const struct far_call_opts with_buffer = {.recv_buf = {room, sizeof room}};
	const struct far_part one[] = {{"x", 1}};
	unsigned n = 0;
#define REFUSED(status, part, ...)                                                                                     \
	do {                                                                                                           \
		cr_assert_eq(__VA_ARGS__, status);                                                                     \
		cr_assert(strstr(err.text, part), "%s", err.text);                                                     \
		cr_assert_eq(released, ++n);                                                                           \
	} while (0)
	REFUSED(FAR_INVALID, "a message of 17 parts; give an array of at most 16",
		far_msg_oneway_parts(agents[0], w1, KEEP, many, 17, on_release, &released, NULL, &err));
	REFUSED(FAR_INVALID, "a message of 3 parts",
		far_msg_oneway_parts(agents[0], w1, KEEP, NULL, 3, on_release, &released, NULL, &err));
	REFUSED(FAR_INVALID, "part 1 of the message has 5 bytes, but its data is NULL",
		far_msg_oneway_parts(agents[0], w1, KEEP, null_part, 2, on_release, &released, NULL, &err));
	REFUSED(FAR_TOO_LARGE, "a message of more than",
		far_msg_oneway_parts(agents[0], w1, KEEP, huge, 2, on_release, &released, NULL, &err));
	REFUSED(FAR_INVALID, "message ids are in [0, 1024)",
		far_msg_oneway_parts(agents[0], w1, FAR_MSG_HANDLERS_MAX, one, 1, on_release, &released, NULL, &err));
	REFUSED(FAR_INVALID, "a one-way message has no reply; leave opts->recv_buf empty",
		far_msg_oneway_parts(agents[0], w1, KEEP, one, 1, on_release, &released, &with_buffer, &err));
	REFUSED(FAR_UNKNOWN_WORKER, "9",
		far_msg_oneway_parts(agents[0], (struct far_to){9, -1}, KEEP, one, 1, on_release, &released, NULL,
				     &err));
	REFUSED(FAR_INVALID, "far_msg_send needs a callback",
		far_msg_send_parts(agents[0], w1, KEEP, one, 1, on_release, &released, NULL, NULL, NULL, &err));
	turns(500);
	cr_assert(got_n == 0 && done_n == 0);
}

/* More than wait for a worker. Expect BUSY with its name, and the rest delivered in order. */
Test(api_parts, one_way_messages_are_bounded)
{
	uint32_t n = 0;
	enum far_status status;
	while ((status = far_msg_oneway(agents[0], w1, KEEP, &n, sizeof n, NULL, &err)) == FAR_OK)
		n++;
	cr_assert_eq(status, FAR_BUSY);
	cr_assert(strstr(err.text, "one-way messages wait for worker \"w1\""), "%s", err.text);
	cr_assert_geq(n, (uint32_t)FAR_ONEWAYS_QUEUED_MAX);
	until_got(n);
	uint32_t last;
	memcpy(&last, got, sizeof last);
	cr_assert_eq(last, n - 1);
	cr_assert_eq(far_msg_oneway(agents[0], w1, KEEP, &n, sizeof n, NULL, &err), FAR_OK);
	until_got(n + 1);
}

static void call_parts(void)
{
	const struct far_part parts[] = {{"abcd", 4}, {"efgh", 4}};
	const struct far_call_opts with_buffer = {.recv_buf = {room, sizeof room}};
	char reply[16];
	size_t len = 0;
	cr_assert_eq(far_msg_call_parts(agents[0], w1, ECHO, parts, 2, NULL, reply, sizeof reply, &len, &err), FAR_OK,
		     "%s", err.text);
	cr_assert(len == 8 && memcmp(reply, "abcdefgh", 8) == 0);
	cr_assert_eq(far_msg_call_parts(agents[0], w1, ECHO, parts, 2, NULL, reply, 7, &len, &err), FAR_TOO_LARGE);
	cr_assert_str_eq(err.text, "the reply has 8 bytes, the buffer 7");
	cr_assert(len == 8 && err.executed == FAR_EXECUTED_YES);
	cr_assert_eq(far_msg_call_parts(agents[0], w1, ECHO, parts, 2, &with_buffer, reply, 7, &len, &err),
		     FAR_INVALID);
	cr_assert(strstr(err.text, "leave opts->recv_buf empty"), "%s", err.text);
}

Test(api_parts, called_and_waited_for)
{
	agents_run(0, call_parts);
}

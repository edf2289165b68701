/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages with a reply: with a callback, and waited for. The test's thread, and fibers of agents that it steps. */
#include "agents_fixture.h"

#include <string.h>

enum { ECHO = 1, FAIL = 2 };

static const struct far_to w1 = {1, -1};
static unsigned done_n;
static enum far_status status;
static struct far_err why;
static char reply[64], buffer[8];
static size_t reply_len;
static const void *reply_at;

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

static void fail(struct far_req *req, const void *data, size_t len, void *user)
{
	far_fail(req, FAR_DENIED, -9, "no entry for %zu", len);
}

static void on_done(enum far_status s, const void *data, size_t len, const struct far_err *e, void *user)
{
	cr_assert_eq(user, &done_n);
	cr_assert_eq(!e, s == FAR_OK);
	done_n++;
	status = s;
	reply_len = len;
	reply_at = data;
	if (e)
		why = *e;
	else if (len)
		memcpy(reply, data, len < sizeof reply ? len : sizeof reply);
}

static void setup(void)
{
	static const struct far_msg_handler handlers[] = {{.id = ECHO, .kind = FAR_KIND_INLINE, .fn = echo},
							  {.id = FAIL, .kind = FAR_KIND_INLINE, .fn = fail}};
	const struct far_opts opts = {.messages = handlers, .messages_n = 2};
	agents_begin(2, &opts);
	done_n = 0;
	memset(buffer, 0, sizeof buffer);
}

TestSuite(api_message, .init = setup, .fini = agents_end);

static void send(uint16_t id, const void *data, size_t len, const struct far_call_opts *opts)
{
	unsigned n = done_n;
	cr_assert_eq(far_msg_send(agents[0], w1, id, data, len, opts, on_done, &done_n, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(done_n, n);
	for (unsigned left = 20000; left && done_n == n; left--)
		agents_turn();
	cr_assert_eq(done_n, n + 1);
}

/* Expect the reply, and the error of a handler with class, code, text and origin. */
Test(api_message, the_callback_gets_the_reply)
{
	for (int i = 0; i < 3; i++) {
		send(ECHO, "hello", 6, NULL);
		cr_assert(status == FAR_OK && reply_len == 6 && strcmp(reply, "hello") == 0);
	}
	send(ECHO, NULL, 0, NULL);
	cr_assert(status == FAR_OK && reply_len == 0);
	send(FAIL, "hello", 6, NULL);
	cr_assert(status == FAR_DENIED && why.code == -9 && why.executed == FAR_EXECUTED_YES);
	cr_assert_str_eq(why.text, "no entry for 6");
	cr_assert_str_eq(why.origin, "w1");
	send(77, "hello", 6, NULL);
	cr_assert(status == FAR_NO_FUNCTION && why.executed == FAR_EXECUTED_NO);
}

/* Expect the reply in the buffer; one that is too large leaves it as it was. */
Test(api_message, replies_to_a_buffer)
{
	const struct far_call_opts opts = {.recv_buf = {buffer, 6}};
	send(ECHO, "hello", 6, &opts);
	cr_assert(status == FAR_OK && reply_at == buffer && reply_len == 6 && strcmp(buffer, "hello") == 0);
	send(ECHO, "longer one", 10, &opts);
	cr_assert(status == FAR_TOO_LARGE && why.executed == FAR_EXECUTED_YES);
	cr_assert_str_eq(why.text, "the reply has 10 bytes, the buffer 6");
	cr_assert_str_eq(buffer, "hello");
	send(FAIL, "hello", 6, &opts);
	cr_assert_eq(status, FAR_DENIED);
}

Test(api_message, what_cannot_be_sent)
{
	cr_assert_eq(far_msg_send(agents[0], w1, ECHO, "x", 1, NULL, NULL, NULL, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "far_msg_send needs a callback and an id in [0, 1024)"), "%s", err.text);
	cr_assert_eq(far_msg_send(agents[0], w1, FAR_MSG_HANDLERS_MAX, "x", 1, NULL, on_done, &done_n, &err),
		     FAR_INVALID);
	cr_assert_eq(far_msg_send(agents[0], (struct far_to){2, -1}, ECHO, "x", 1, NULL, on_done, &done_n, &err),
		     FAR_UNKNOWN_WORKER);
	cr_assert_eq(far_msg_send(agents[0], (struct far_to){1, 5}, ECHO, "x", 1, NULL, on_done, &done_n, &err),
		     FAR_INVALID);
	for (unsigned i = 0; i < 500; i++)
		agents_turn();
	cr_assert_eq(done_n, 0u);
}

static void calls(void)
{
	const struct far_call_opts opts = {.recv_buf = {buffer, 6}}, soon = {.timeout_ns = FAR_SEC};
	size_t len = 99;
	cr_assert_eq(far_msg_call(agents[0], w1, ECHO, "hello", 6, NULL, reply, 6, &len, &err), FAR_OK, "%s", err.text);
	cr_assert(len == 6 && strcmp(reply, "hello") == 0);
	cr_assert_eq(far_msg_call(agents[0], w1, ECHO, "hello", 6, &soon, reply, 6, NULL, &err), FAR_OK);
	cr_assert_eq(far_msg_call(agents[0], w1, ECHO, "HELLO", 6, NULL, reply, 5, &len, &err), FAR_TOO_LARGE);
	cr_assert_str_eq(err.text, "the reply has 6 bytes, the buffer 5");
	cr_assert(len == 6 && err.executed == FAR_EXECUTED_YES && strcmp(reply, "hello") == 0);
	cr_assert_eq(far_msg_call(agents[0], w1, FAIL, NULL, 0, NULL, reply, 5, &len, &err), FAR_DENIED);
	cr_assert(err.code == -9 && strcmp(err.origin, "w1") == 0);
	cr_assert_eq(far_msg_call(agents[0], w1, 2000, NULL, 0, NULL, reply, 5, &len, &err), FAR_INVALID);
	cr_assert_eq(far_msg_call(agents[0], w1, ECHO, "x", 1, &opts, reply, 5, &len, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "leave opts->recv_buf empty, and pass `reply`"), "%s", err.text);
}

Test(api_message, called_and_waited_for)
{
	size_t len;
	agents_run(0, calls);
	cr_assert_eq(far_msg_call(agents[0], w1, ECHO, "x", 1, NULL, reply, 5, &len, &err), FAR_WOULD_DEADLOCK);
}

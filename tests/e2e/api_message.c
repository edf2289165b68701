/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 2. Main thread of each process; handlers on shard threads. */
/** The message API: rank 0 calls, rank 1 answers. */
#include "check.h"

enum { ECHO = 1, SUM, SILENT, ALLOC, LAST = FAR_MSG_HANDLERS_MAX - 1 };

static struct far_to to = {1, -1};

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK((uintptr_t)data % 8 == 0);
	CHECK(far_reply(req, data, len) == FAR_OK);
	CHECK(far_reply(req, data, len) == FAR_INVALID);
}

static void sum(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t total = *(const uint64_t *)user;
	const uint8_t *bytes = data;
	for (size_t i = 0; i < len; i++)
		total += bytes[i];
	far_reply(req, &total, sizeof total);
}

static void silent(struct far_req *req, const void *data, size_t len, void *user)
{
}

/* Answers with the requested number of bytes. */
static void alloc(struct far_req *req, const void *data, size_t len, void *user)
{
	uint64_t bytes;
	void *at;
	CHECK(len == sizeof bytes);
	memcpy(&bytes, data, sizeof bytes);
	enum far_status status = far_reply_alloc(req, bytes, &at);
	if (status == FAR_OK)
		memset(at, 'r', bytes);
	else
		far_fail(req, status, 0, "no room for %llu bytes", (unsigned long long)bytes);
}

static void pattern(uint8_t *bytes, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(i * 31 + seed + i / 251);
}

static void sizes(struct far_agent *a)
{
	static const size_t lens[] = {0,   1,   7,    8,    31,    32,    33,          63,          64,       65,
				      255, 256, 4095, 4096, 65536, 99999, 1048576 - 1, 1048576 + 1, 16777215, 16777216};
	static uint8_t sent[FAR_MSG_EAGER_MAX], got[FAR_MSG_EAGER_MAX];
	struct far_err err;
	for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++)
		for (unsigned self = 0; self < 2; self++) {
			size_t len = 77;
			struct far_to dest = self ? (struct far_to){0, 0} : to;
			pattern(sent, lens[i], i + self);
			memset(got, 0xee, lens[i]);
			CHECK_STATUS(far_msg_call(a, dest, ECHO, sent, lens[i], NULL, got, sizeof got, &len, &err),
				     FAR_OK, &err);
			CHECK(len == lens[i]);
			CHECK(memcmp(sent, got, len) == 0);
		}
}

static void limits(struct far_agent *a)
{
	static uint8_t large[FAR_MSG_EAGER_MAX + 1], reply[100];
	struct far_err err;
	struct far_counters before, after;
	size_t len = 0;
	far_counters_read(a, &before);
	CHECK_STATUS(far_msg_call(a, to, ECHO, large, sizeof large, NULL, reply, sizeof reply, &len, &err),
		     FAR_TOO_LARGE, &err);
	CHECK_TEXT(&err, "16777216");
	CHECK(err.executed == FAR_EXECUTED_NO);
	far_counters_read(a, &after);
	CHECK(after.calls_sent == before.calls_sent);
	/* The reply does not fit: the length says what would. */
	CHECK_STATUS(far_msg_call(a, to, ECHO, large, 101, NULL, reply, sizeof reply, &len, &err), FAR_TOO_LARGE, &err);
	CHECK(len == 101);
	CHECK(err.executed == FAR_EXECUTED_YES);
	CHECK_STATUS(far_msg_call(a, to, ECHO, large, 100, NULL, reply, sizeof reply, NULL, &err), FAR_OK, &err);
	CHECK_STATUS(far_msg_call(a, to, ECHO, large, 1, NULL, NULL, 0, &len, &err), FAR_TOO_LARGE, &err);
	CHECK(len == 1);
	CHECK_STATUS(far_msg_call(a, to, ECHO, NULL, 0, NULL, NULL, 0, &len, NULL), FAR_OK, &err);
	/* An answer that no message can carry. */
	uint64_t bytes = FAR_MSG_EAGER_MAX + 1;
	CHECK_STATUS(far_msg_call(a, to, ALLOC, &bytes, sizeof bytes, NULL, reply, sizeof reply, &len, &err),
		     FAR_TOO_LARGE, &err);
	CHECK(err.executed == FAR_EXECUTED_YES);
	bytes = 100;
	CHECK_STATUS(far_msg_call(a, to, ALLOC, &bytes, sizeof bytes, NULL, reply, sizeof reply, &len, &err), FAR_OK,
		     &err);
	CHECK(len == 100 && reply[99] == 'r');
}

static void mistakes(struct far_agent *a)
{
	struct far_err err;
	uint64_t reply;
	CHECK_STATUS(far_msg_call(a, to, 55, NULL, 0, NULL, &reply, sizeof reply, NULL, &err), FAR_NO_FUNCTION, &err);
	CHECK_TEXT(&err, "message 55");
	CHECK(strcmp(err.origin, "worker1") == 0);
	CHECK(err.executed == FAR_EXECUTED_NO);
	CHECK_STATUS(far_msg_call(a, to, FAR_MSG_HANDLERS_MAX, NULL, 0, NULL, NULL, 0, NULL, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_msg_send(a, to, ECHO, NULL, 0, NULL, NULL, NULL, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_msg_call(a, (struct far_to){2, 0}, ECHO, NULL, 0, NULL, NULL, 0, NULL, &err),
		     FAR_UNKNOWN_WORKER, &err);
	CHECK_STATUS(far_msg_call(a, (struct far_to){-1, 0}, ECHO, NULL, 0, NULL, NULL, 0, NULL, &err),
		     FAR_UNKNOWN_WORKER, &err);
	CHECK_STATUS(far_msg_call(a, (struct far_to){1, 1}, ECHO, NULL, 0, NULL, NULL, 0, NULL, &err), FAR_INVALID,
		     &err);
	CHECK_STATUS(far_msg_call(a, to, SILENT, NULL, 0, NULL, NULL, 0, NULL, &err), FAR_REMOTE, &err);
	CHECK_TEXT(&err, "without an answer");
	CHECK(err.executed == FAR_EXECUTED_YES);
	uint8_t bytes[] = {1, 2, 3};
	CHECK_STATUS(far_msg_call(a, to, SUM, bytes, 3, NULL, &reply, sizeof reply, NULL, &err), FAR_OK, &err);
	CHECK(reply == 1006);
	CHECK_STATUS(far_msg_call(a, to, LAST, bytes, 3, NULL, &reply, sizeof reply, NULL, &err), FAR_OK, &err);
	struct far_msg_handler again = {ECHO, FAR_KIND_INLINE, echo, NULL};
	CHECK_STATUS(far_register_message(a, &again, &err), FAR_INVALID, &err);
}

/* ---- a window of sends, kept full by the callbacks ---- */

struct window {
	struct far_agent *agent;
	uint32_t left, done, in_flight;
	size_t len;
	uint8_t bytes[5000];
};

static void next(struct window *w);

static void on_done(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	struct window *w = user;
	struct far_err wait_err;
	CHECK_STATUS(status, FAR_OK, err);
	CHECK(err == NULL);
	CHECK(len == w->len && (len == 0 || memcmp(data, w->bytes, len) == 0));
	w->done++;
	w->in_flight--;
	/* To wait is not allowed here: an error. */
	if (w->done == 10) {
		CHECK_STATUS(far_msg_call(w->agent, to, ECHO, NULL, 0, NULL, NULL, 0, NULL, &wait_err),
			     FAR_WOULD_DEADLOCK, &wait_err);
		CHECK_TEXT(&wait_err, "completion callback");
	}
	next(w);
}

static void next(struct window *w)
{
	struct far_err err;
	if (!w->left)
		return;
	w->left--;
	w->in_flight++;
	CHECK_STATUS(far_msg_send(w->agent, to, ECHO, w->bytes, w->len, NULL, on_done, w, &err), FAR_OK, &err);
}

static void windows(struct far_agent *a)
{
	static const struct {
		unsigned window;
		uint32_t n;
		size_t len;
	} runs[] = {{1, 1000, 8}, {16, 20000, 24}, {100, 20000, 0}, {32, 5000, 5000}};
	static struct window w;
	struct far_err err;
	for (unsigned i = 0; i < sizeof runs / sizeof *runs; i++) {
		w = (struct window){.agent = a, .left = runs[i].n, .len = runs[i].len};
		pattern(w.bytes, w.len, i);
		CHECK_STATUS(far_shard_acquire(a, 0, &err), FAR_OK, &err);
		for (unsigned k = 0; k < runs[i].window; k++)
			next(&w);
		while (w.done < runs[i].n)
			far_shard_poll(a);
		CHECK(w.in_flight == 0);
		far_shard_release(a);
	}
}

int main(void)
{
	static const uint64_t thousand = 1000;
	static const struct far_msg_handler handlers[] = {
		{ECHO, FAR_KIND_INLINE, echo, NULL},
		{SUM, FAR_KIND_INLINE, sum, (void *)(uintptr_t)&thousand},
		{SILENT, FAR_KIND_INLINE, silent, NULL},
		{ALLOC, FAR_KIND_INLINE, alloc, NULL},
		{LAST, FAR_KIND_INLINE, sum, (void *)(uintptr_t)&thousand},
	};
	struct far_opts opts = {.messages = handlers,
				.messages_n = sizeof handlers / sizeof *handlers,
				.max_message_bytes = FAR_MSG_EAGER_MAX};
	struct far_agent *a = check_join(&opts);
	if (check_rank() == 0) {
		struct far_counters c;
		sizes(a);
		limits(a);
		mistakes(a);
		windows(a);
		far_counters_read(a, &c);
		CHECK(c.calls_active == 0);
		CHECK(c.calls_sent == c.calls_completed + c.calls_failed);
		CHECK(c.packets_dropped == 0);
	}
	check_leave(a);
	return 0;
}
